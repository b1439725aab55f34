"""The plane (or line) on which a network of many inputs is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries, plain
from relunorm.errors import InvalidInputError
from relunorm.report.case import Case

Array = NDArray[np.float64]

#: Points and directions are printed up to this many inputs.
PRINTED = 4096
#: Points whose gradients choose the plane where there is no data.
GRADIENTS = 64
#: Multiplications the gradients may cost.
GRADIENT_COST = 2e8
#: What is seen around three points, as a share of their width and height.
AROUND = 0.35


@dataclass(frozen=True, eq=False)
class Plane:
    """x = origin + s u + t v with orthonormal u, v, seen for s and t in a window.

    ``middle`` is a point of the plane to run a line through; ``names`` are what s and t are called;
    ``marks`` are points of the plane that have a name, ``marked`` the points; ``rows`` are those of
    the data they are, and ``inputs`` the two that span the plane, where it is such a one.
    """

    origin: Array
    u: Array
    v: Array
    window: tuple[float, float, float, float]
    middle: Array
    words: str
    labels: tuple[str, str]
    names: tuple[str, str] = ("s", "t")
    marks: tuple[str, ...] = ()
    marked: Array | None = None
    rows: tuple[int, ...] | None = None
    inputs: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            **{name: printed(getattr(self, name)) for name in ("origin", "u", "v")},
            **entries(self, "window words labels names"),
            "marks": self._marks(),
        }

    def _marks(self) -> list[dict[str, Any]]:
        if self.marked is None:
            return []
        places = (self.marked - self.origin) @ np.stack([self.u, self.v]).T
        return [
            {"name": name, "at": plain(place)}
            for name, place in zip(self.marks, places, strict=True)
        ]


def printed(vector: Array) -> list[float | int | None] | None:
    """A point of the input space for the document; None where it has too many coordinates."""
    return plain(vector) if len(vector) <= PRINTED else None


def choose_plane(case: Case) -> Plane:
    """The slice that was asked for, or one that shows much.

    Of a classifier the plane through typical rows, else that of the data's (the gradient's) main
    directions.
    """
    if isinstance(case.plane, tuple):
        return _coordinates(case, *case.plane)
    if case.plane is not None:
        points = np.asarray(case.plane)
        rows = [_row_of(case, point) for point in points]
        names = tuple(
            f"point {k}" if row is None else f"row {row}" for k, row in enumerate(rows, start=1)
        )
        known = tuple(row for row in rows if row is not None)
        words = "the plane through the three given points"
        return _through(points, names, words, known if len(known) == len(rows) else None)
    typical = _typical(case)
    if typical is not None:
        return typical
    if case.x is not None and len(case.x) > 2:
        found = _principal(case.x - case.x.mean(axis=0))
        if found is not None:
            words = "the plane of the data's two main directions, through its mean"
            labels = ("first main direction", "second main direction")
            return _around_data(case, case.x.mean(axis=0), found, words, labels)
    gradients = _gradients(case)
    found = None if gradients is None else _principal(gradients)
    if found is not None:
        words = "the plane in which the gradient varies most, through the domain's centre"
        labels = ("first gradient direction", "second gradient direction")
        return _inside(case, case.domain.center, found, words, labels)
    wide = case.domain.bounding_box.halfwidth > 0
    first, second = np.argsort(~wide, kind="stable")[:2].tolist()
    return _coordinates(case, first, second)


def main_direction(case: Case) -> tuple[Array, Array, str]:
    """The ends of the line whose profile is shown, inside the domain's box, and words for it."""
    box = case.domain.bounding_box
    if case.network.input_size == 1:
        return box.lo, box.hi, "the whole domain"
    if case.network.input_size == 2 and case.x is not None:
        centre = np.clip(case.x.mean(axis=0), box.lo, box.hi)
        found = _principal(case.x - case.x.mean(axis=0))
        direction = np.array([1.0, 0.0]) if found is None else found[0]
        words = "through the mean of the data along its main direction"
    elif case.network.input_size == 2:
        centre, direction = np.array(case.domain.center), np.array([1.0, 0.0])
        words = f"through the domain's centre along {case.names[0]}"
    else:
        plane = choose_plane(case)
        if plane.marked is not None and ((box.lo <= plane.marked) & (plane.marked <= box.hi)).all():
            return plane.marked[0], plane.marked[1], plane.labels[0]
        centre, direction = np.clip(plane.middle, box.lo, box.hi), plane.u
        along = plane.labels[0]
        words = f"along {along}" if along in case.names else f"along the {along}"
        if plane.marks:
            words = f"through the middle of the slice, in the direction {along}"
    inside = _in_domain(case, direction)
    if not np.array_equal(inside, direction):
        direction, words = inside, f"{words}, as far as the domain has room"
    low, high = _reach(box.lo, box.hi, centre, direction)
    if not low < high:
        raise InvalidInputError(f"the domain {case.domain!r} has no length {words}")
    return centre + low * direction, centre + high * direction, words


def _principal(rows: Array) -> tuple[Array, Array] | None:
    """The two leading right singular vectors, signs fixed; None where the rows span less."""
    small = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T
    with np.errstate(all="ignore"):
        if not np.isfinite(small).all():
            return None
        values, vectors = np.linalg.eigh(small)
    if len(values) < 2 or not values[-2] > 1e-12 * values[-1]:
        return None
    pair = vectors[:, [-1, -2]].T
    if rows.shape[1] > len(rows):
        pair = pair @ rows
    return _signed(pair[0]), _signed(pair[1])


def _signed(vector: Array) -> Array:
    unit = vector / np.linalg.norm(vector)
    return unit if unit[np.argmax(np.abs(unit))] > 0 else -unit


def _gradients(case: Case) -> Array | None:
    network = case.few_outputs
    cost = 2.0 * GRADIENTS * network.output_size * network.parameters
    if cost > GRADIENT_COST or GRADIENTS * max(network.widths) > GRADIENT_COST:
        return None
    points = case.domain.sample(GRADIENTS, 0)
    gradients = network.jacobian(points).reshape(-1, network.input_size)
    return gradients * (case.domain.bounding_box.halfwidth > 0)


def _in_domain(case: Case, direction: Array) -> Array:
    """A direction without what leads out of a flat domain; the first free input if nothing is left.

    A domain that is flat along no axis leaves it as it is.
    """
    wide = case.domain.bounding_box.halfwidth > 0
    if wide.all():
        return direction
    inside = np.where(wide, direction, 0.0)
    length = float(np.linalg.norm(inside))
    return inside / length if length > 1e-9 else np.eye(len(wide))[int(wide.argmax())]


def _coordinates(case: Case, i: int, j: int) -> Plane:
    size = case.network.input_size
    u, v = np.zeros(size), np.zeros(size)
    u[i] = v[j] = 1.0
    middle = np.array(case.domain.center)
    origin = middle.copy()
    origin[[i, j]] = 0.0  # so that s and t are the coordinates themselves
    box = case.domain.bounding_box
    window = (box.lo[i], box.hi[i], box.lo[j], box.hi[j])
    names = (case.names[i], case.names[j])
    words = f"the plane of {names[0]} and {names[1]} through the domain's centre"
    return Plane(origin, u, v, window, middle, words, names, names, inputs=(i, j))


def _typical(case: Case) -> Plane | None:
    """Through a typical row of each of the three largest classes; of two, also the least sure row.

    A row is typical if it is nearest to the middle of its class.
    """
    if case.x is None or case.y is None or case.classes is None:
        return None
    sizes = np.bincount(case.y.astype(np.intp), minlength=len(case.classes.names))
    largest = [int(k) for k in np.argsort(-sizes, kind="stable")[:3] if sizes[k]]
    picks, names = [], []
    for k in sorted(largest):
        own = np.flatnonzero(case.y == k)
        away = np.linalg.norm(case.x[own] - case.x[own].mean(axis=0), axis=1)
        picks.append(int(own[away.argmin()]))
        names.append(f"{case.classes.names[k]} (row {case.row(picks[-1])})")
    if len(picks) == 2:
        outputs = case.network(case.x)
        top = np.sort(outputs, axis=1)
        margin = top[:, -1] - top[:, -2] if outputs.shape[1] > 1 else np.abs(outputs[:, 0])
        margin[picks] = np.inf
        picks.append(int(margin.argmin()))
        names.append(f"least sure (row {case.row(picks[-1])})")
    if len(picks) < 3:
        return None
    try:
        rows = tuple(case.row(k) for k in picks)
        words = "the plane through three rows of the data"
        return _through(case.x[picks], tuple(names), words, rows)
    except InvalidInputError:  # on one line
        return None


def _row_of(case: Case, point: Array) -> int | None:
    """Which row of the data a point is, of those that are used or all of a table."""
    known = case.x if case.table is None else case.table.x
    if known is None:
        return None
    same = np.flatnonzero((known == point).all(axis=1))
    if not len(same):
        return None
    return case.row(int(same[0])) if case.table is None else int(same[0])


def _through(
    points: Array, names: tuple[str, ...], words: str, rows: tuple[int, ...] | None
) -> Plane:
    u = points[1] - points[0]
    v = points[2] - points[0]
    length = float(np.linalg.norm(u))
    across = v - (v @ u) / length**2 * u if length > 0 else v
    height = float(np.linalg.norm(across))
    if not length > 0 or not height > 1e-9 * float(np.linalg.norm(v)):
        raise InvalidInputError("the three points of the slice lie on one line")
    u, across = u / length, across / height
    s = np.array([0.0, length, float(v @ u)])
    around, above = AROUND * float(np.ptp(s)), AROUND * height
    window = (s.min() - around, s.max() + around, -above, height + above)
    labels = (f"from {names[0]} to {names[1]}", f"towards {names[2]}")
    return Plane(points[0], u, across, window, points.mean(axis=0), words, labels,
                 marks=names, marked=points, rows=rows)  # fmt: skip


def _around_data(
    case: Case, centre: Array, axes: tuple[Array, Array], words: str, labels: tuple[str, str]
) -> Plane:
    assert case.x is not None
    window: list[float] = []
    for axis in axes:
        at = (case.x - centre) @ axis
        edge = 0.05 * float(np.ptp(at))
        window += [float(at.min()) - edge, float(at.max()) + edge]
    return Plane(centre, *axes, tuple(window), centre, words, labels)  # type: ignore[arg-type]


def _inside(
    case: Case, centre: Array, axes: tuple[Array, Array], words: str, labels: tuple[str, str]
) -> Plane:
    box = case.domain.bounding_box
    middle = np.array(centre)
    window = [end for axis in axes for end in _reach(box.lo, box.hi, middle, axis)]
    return Plane(middle, *axes, tuple(window), middle, words, labels)  # type: ignore[arg-type]


def _reach(lo: Array, hi: Array, centre: Array, direction: Array) -> tuple[float, float]:
    """How far a line through a point of a box stays inside it, backwards and forwards."""
    moving = np.abs(direction) > 1e-12
    ends = np.stack([lo - centre, hi - centre])[:, moving] / direction[moving]
    return float(ends.min(axis=0).max()), float(ends.max(axis=0).min())
