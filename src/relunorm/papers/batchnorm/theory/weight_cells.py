"""gamma(X): the smallest cell of the hyperplane arrangement a batch cuts into weight space.

The hyperplanes {w : w.x_i = 0} cut the space of weights into cones; gamma(X) is the smallest
Gaussian measure of a cone with interior (seed 004, Def. 1). It depends on the span of the points
only, so the problem is reduced to its dimension k first. k = 2: arcs of a circle. k = 3: spherical
polygons, that lie end to end in one array, rays in order round each; a plane is placed on all of
them at once, so n planes take n passes over at most 4 n^2 rays. k > 3: an estimate by sampling
weights, with an error bar and a statement of what is in doubt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import generator, points, whole_number
from relunorm.clock import Clock, Listener, Teller
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

#: Directions closer than this (sine of the angle) count as one line.
SAME_LINE = 1e-12
#: Proportional points lie within this of one line, by rounding alone.
SAME_POINT = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class CellVolumes:
    """The cells of an arrangement and their Gaussian measures.

    Attributes:
        gamma: the smallest measure. Exact for k <= 3; beyond, an unbiased estimate of the measure
            of the cell ``smallest`` from samples that took no part in choosing it.
        error: standard error of ``gamma``; 0 when exact, infinite where the cell was not met again.
        signs: (cells, hyperplanes) the sign pattern of each cell found; 0 at hyperplanes that were
            not placed before a time limit.
        volumes: measure of each cell found; exact ones sum to 1, sampled ones are shares of the
            samples that chose the smallest.
        cells_total: how many cells there are, or None where some may not have been met.
        rivals: cells, a cone and its opposite counted once, whose measures could not be told from
            the smallest one's (three standard errors); 0 when exact.
        seen, seen_error: the share of all weights that lies in the cells found: all of them where
            the cells were listed, else an unbiased estimate with its standard error.
        doubt: why gamma may be smaller than stated; empty if nothing is in doubt.
    """

    gamma: float
    error: float
    kind: Literal["exact", "estimate"]
    dimension: int
    hyperplanes: int
    signs: NDArray[np.int8]
    volumes: NDArray[np.float64]
    smallest: int
    cells_total: int | None
    rivals: int = 0
    seen: float = 1.0
    seen_error: float = 0.0
    doubt: str = ""

    @property
    def cells(self) -> int:
        """How many cells were found."""
        return len(self.volumes)

    @property
    def coverage(self) -> float:
        """Share of all cells that were found; where they were not listed, a lower bound by Cover's
        (1965) count, which is exact in general position.
        """
        total = self.cells_total or cell_count(self.hyperplanes, self.dimension)
        return self.cells / total

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.gamma/2",
            **entries(self, "gamma error kind dimension hyperplanes cells cells_total coverage"),
            **entries(self, "seen seen_error rivals doubt"),
            "total_volume": float(self.volumes.sum()),
        }

    def __repr__(self) -> str:
        error = f" +- {self.error:.2g}" if self.kind == "estimate" else ""
        total = f" of {self.cells_total}" if self.cells_total is not None else ""
        doubt = ", in doubt" if self.doubt else ""
        return (
            f"CellVolumes(gamma={self.gamma:.6g}{error}, {self.cells}{total} cells, "
            f"{self.kind}{doubt})"
        )


def gamma(
    X: ArrayLike,
    *,
    samples: int = 4000,
    max_cells: int = 2000,
    random_state: int | np.random.Generator | None = 0,
    progress: Listener | None = None,
    time_limit: float | Clock | None = None,
) -> CellVolumes:
    """gamma(X) of Def. 1 for a batch X of shape (n, d), one row per point.

    Exact when the points span at most 3 dimensions. Points within 1e-12 of one line (the sine of
    the angle) count as one; where that is more than rounding of proportional points, ``doubt`` says
    so, the result is no longer called exact, and ``error`` is infinite.

    Beyond 3 dimensions, an estimate: 64 ``samples`` random weights say which cells there are, and
    as many fresh ones measure the smallest. A cell of a measure far below 1 / (64 samples) is not
    met; ``seen`` estimates the share of the weights in the cells found (Good 1953).

    Args:
        samples: a 64th of the weights drawn (beyond 3 dimensions).
        max_cells: keep at most this many cells (beyond 3 dimensions).
        progress: called with (hyperplanes placed, all) in 3 dimensions, (weights drawn, all)
            beyond.
        time_limit: seconds after which to stop and return what was found, as an interrupt does in
            3 dimensions; ``doubt`` then says what is missing.

    In 3 dimensions n points cost O(n^3) products of vectors: 300 points (89,702 cells) a second or
    two.

    For odd n equally spaced points on a circle it is 1/(2n), not the printed 1/n (docs/errata.md):

    >>> t = 2 * np.pi * np.arange(5) / 5
    >>> gamma(np.column_stack([np.cos(t), np.sin(t)]))
    CellVolumes(gamma=0.1, 10 of 10 cells, exact)
    """
    samples = whole_number("samples", samples, 2)
    max_cells = whole_number("max_cells", max_cells, 2)
    clock = Clock(time_limit)
    tell = Teller(progress, clock)
    lines, merged = _lines(X)
    found = _volumes(lines, samples, max_cells, generator(random_state), tell)
    if not merged:
        return found
    # the cell between two such points is at most the wedge between their hyperplanes
    doubt = (
        f"points within {SAME_LINE:g} of a line count as one, and some of them are {merged:.2g} "
        f"apart: taken as different, they have a cell of at most {merged / (2 * math.pi):.2g} "
        "between them"
    )
    doubt = "; ".join(filter(None, (found.doubt, doubt)))
    return replace(found, kind="estimate", error=math.inf, doubt=doubt)


def _volumes(
    lines: NDArray[np.float64], samples: int, max_cells: int, rng: np.random.Generator, tell: Teller
) -> CellVolumes:
    k = lines.shape[1]
    if k == 1:
        return _exact(np.array([[1], [-1]], np.int8), np.array([0.5, 0.5]), lines)
    if k == 2:
        return _exact(*_arcs(lines), lines)
    if k == 3:

        def stop(done: int, total: int) -> bool:
            tell("hyperplanes placed", done, total)
            return tell.clock.expired()

        return _exact(*polygons(lines, SAME_LINE, stop), lines)
    return _sampled(lines, 64 * samples, max_cells, rng, tell)


def _sampled(
    lines: NDArray[np.float64], draws: int, max_cells: int, rng: np.random.Generator, tell: Teller
) -> CellVolumes:
    """Cells met by random weights, the rarest of them measured by fresh ones."""
    n, k = lines.shape
    counts: Counter[bytes] = Counter()
    for drawn in _patterns(lines, draws, rng, tell, 0):
        patterns, times = np.unique(drawn, axis=0, return_counts=True)
        counts.update(dict(zip(map(bytes, patterns), times.tolist(), strict=True)))
    first = sum(counts.values())
    kept = sorted(counts, key=lambda key: counts[key])[: max_cells // 2]
    least, hits, fresh = kept[0], 0, 0
    for drawn in _patterns(lines, draws, rng, tell, draws):
        hits += int((drawn == np.frombuffer(least, np.uint8)).all(axis=1).sum())
        fresh += len(drawn)
    # one weight at a cell or its opposite: each holds half
    share = max(hits, 1) / max(fresh, 1)
    error = math.sqrt(hits) / fresh if hits else math.inf
    margin = counts[least] + 3 * math.sqrt(counts[least])
    rivals = sum(c - 3 * math.sqrt(c) <= margin for c in counts.values()) - 1
    once = sum(c == 1 for c in counts.values())
    whole = 2 * len(counts) == cell_count(n, k)
    doubts = [
        f"the time limit ended the sampling after {first + fresh:,} of {2 * draws:,} weights"
        if first + fresh < 2 * draws
        else "",
        "" if whole else f"cells of a measure below about {1 / first:.1g} may have been missed",
        f"{rivals} cells more are as small within the error" if rivals else "",
        "" if hits else "the cell was not met again, so its measure is a rough guess",
    ]
    bits = np.array([np.frombuffer(key, np.uint8) for key in kept])
    signs = np.where(np.unpackbits(bits, axis=1, count=n) > 0, 1, -1).astype(np.int8)
    volumes = np.array([counts[key] for key in kept]) / (2 * first)
    return CellVolumes(
        share / 2,
        error / 2,
        "estimate",
        k,
        n,
        np.vstack([signs, -signs]),
        np.tile(volumes, 2),
        0,
        2 * len(counts) if whole else None,
        rivals,
        1 - once / first,
        math.sqrt(once) / first,
        "; ".join(filter(None, doubts)),
    )


def _patterns(
    lines: NDArray[np.float64], draws: int, rng: np.random.Generator, tell: Teller, done: int
) -> Iterator[NDArray[np.uint8]]:
    """Packed sign patterns of random weights, at most 4,096 at a time, the first sign positive; two
    weights at least, whatever the time limit."""
    for start in range(0, draws, 4096):
        if start and tell.clock.expired():
            return
        count = 2 if tell.clock.expired() else min(4096, draws - start)
        above = rng.standard_normal((count, lines.shape[1])) @ lines.T > 0
        yield np.packbits(above == above[:, :1], axis=1)
        tell("weights drawn", done + start + count, 2 * draws)


def distinct_lines(X: ArrayLike) -> NDArray[np.float64]:
    """Unit normals of the different hyperplanes, in coordinates of the points' span: (lines, k)."""
    return _lines(X)[0]


def _lines(X: ArrayLike) -> tuple[NDArray[np.float64], float]:
    """`distinct_lines`, and the least angle between points counted as one line that is more than
    rounding, or 0.
    """
    X = points(X)
    unit = unit_rows(X[X.any(axis=1)])
    if not len(unit):
        raise InvalidInputError("every point of the batch is 0, so no hyperplane cuts the weights")
    kept: list[int] = []
    merged = []
    for i in range(len(unit)):
        near, far = (np.linalg.norm(unit[kept] + s * unit[i], axis=1) for s in (-1, 1))
        apart = float(np.minimum(near, far).min(initial=2.0))
        if apart >= SAME_LINE:
            kept.append(i)
        elif apart > SAME_POINT:
            merged.append(apart)
    unit = unit[kept]
    _, singular, vectors = np.linalg.svd(unit, full_matrices=False)
    rank = int(np.count_nonzero(singular > 1e-12 * singular[0]))
    unit = unit @ vectors[:rank].T
    return unit / np.linalg.norm(unit, axis=1, keepdims=True), min(merged, default=0.0)


def unit_rows(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows over their norms, at any scale that floats hold; rows of 0 stay 0."""
    largest = np.abs(X).max(axis=1, keepdims=True)
    scaled = np.ldexp(X, -np.frexp(largest)[1])
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(norms > 0, norms, 1.0)


def cell_count(hyperplanes: int, dimension: int) -> int:
    """Cells of central hyperplanes in general position: 2 sum_{i<k} C(n-1, i) (Cover 1965).

    >>> cell_count(12, 3)
    134
    """
    hyperplanes = whole_number("hyperplanes", hyperplanes, 1)
    dimension = whole_number("dimension", dimension, 1)
    return 2 * sum(math.comb(hyperplanes - 1, i) for i in range(dimension))


def _exact(
    signs: NDArray[np.int8], volumes: NDArray[np.float64], lines: NDArray[np.float64]
) -> CellVolumes:
    smallest = int(np.argmin(volumes))
    placed = int(np.count_nonzero(signs.any(axis=0)))
    whole = placed == len(lines)
    doubt = (
        f"stopped after {placed} of {len(lines)} hyperplanes: the others cut the cells further, so "
        "gamma is at most this"
    )
    return CellVolumes(
        float(volumes[smallest]),
        0.0 if whole else math.inf,
        "exact" if whole else "estimate",
        lines.shape[1],
        len(lines),
        signs,
        volumes,
        smallest,
        len(volumes) if whole else None,
        doubt="" if whole else doubt,
    )


def _arcs(lines: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    borders = np.sort((np.arctan2(lines[:, 1], lines[:, 0]) + np.pi / 2) % np.pi)
    borders = np.concatenate([borders, borders + np.pi])
    widths = np.diff(np.append(borders, borders[0] + 2 * np.pi))
    middle = borders + widths / 2
    signs = np.sign(np.column_stack([np.cos(middle), np.sin(middle)]) @ lines.T)
    return signs.astype(np.int8), widths / (2 * np.pi)


Rays = NDArray[np.float64]
Sizes = NDArray[np.int64]


def polygons(
    lines: NDArray[np.float64], same: float, stop: Callable[[int, int], bool]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Sign patterns and Gaussian measures of the cells of the planes with normals ``lines``.

    Cuts the eight cones of three independent planes by the other planes, one after the other, until
    ``stop(planes placed, planes)``; signs at planes that were not placed are 0.

    Args:
        same: rays whose product with a normal is below this lie on its plane.
    """
    first = _independent_triple(lines)
    order = [*first, *(i for i in range(len(lines)) if i not in first)]
    corners = np.linalg.inv(lines[first]).T  # corner i lies on the other two planes
    corners /= np.linalg.norm(corners, axis=1, keepdims=True)
    rays = np.concatenate([np.array(s)[:, None] * corners for s in product((1, -1), repeat=3)])
    state = rays, np.full(8, 3)
    placed = 3
    try:
        while placed < len(order) and not stop(placed, len(order)):
            state = _cut(*state, lines[order[placed]], same)
            placed += 1
    except KeyboardInterrupt:
        pass
    rays, sizes = state
    volumes = _solid_angles(rays, sizes) / (4 * np.pi)
    middles = np.add.reduceat(rays, _starts(sizes))
    signs = np.zeros((len(sizes), len(lines)), np.int8)
    for i in order[:placed]:
        signs[:, i] = np.sign(middles @ lines[i])
    return signs, volumes


def _independent_triple(lines: NDArray[np.float64]) -> list[int]:
    from scipy.linalg import qr

    found: Any = qr(lines.T, pivoting=True, mode="economic")
    return found[2][:3].tolist()


def _starts(sizes: Sizes) -> Sizes:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]])


def _cut(rays: Rays, sizes: Sizes, normal: NDArray[np.float64], same: float) -> tuple[Rays, Sizes]:
    """The polygons after one more plane: those it misses, and both parts of those it cuts."""
    side = rays @ normal
    side[np.abs(side) < same] = 0.0
    starts = _starts(sizes)
    cut = (np.minimum.reduceat(side, starts) < 0) & (np.maximum.reduceat(side, starts) > 0)
    touched = np.repeat(cut, sizes)
    parts = _halves(rays[touched], sizes[cut], side[touched])
    return (
        np.concatenate([rays[~touched], *(part for part, _ in parts)]),
        np.concatenate([sizes[~cut], *(size for _, size in parts)]),
    )


def _halves(rays: Rays, sizes: Sizes, side: NDArray[np.float64]) -> list[tuple[Rays, Sizes]]:
    """The parts of polygons above and below a plane that cuts each of them.

    Every ray is followed by a place for the crossing on the edge to the next one; each part keeps
    the rays on its side and the crossings, in order.
    """
    if not len(sizes):
        return []
    starts = _starts(sizes)
    following = np.arange(1, len(rays) + 1)
    following[starts + sizes - 1] = starts
    after = side[following]
    crossed = side * after < 0
    crossing = rays * np.abs(after)[:, None] + rays[following] * np.abs(side)[:, None]
    norms = np.linalg.norm(crossing, axis=1, keepdims=True)
    crossing /= np.where(crossed[:, None], norms, 1.0)
    both = np.stack([rays, crossing], axis=1)
    parts = []
    for mine in (side >= 0, side <= 0):
        kept = np.stack([mine, crossed], axis=1)
        parts.append((both[kept], np.add.reduceat(kept.sum(axis=1), starts)))
    return parts


def _solid_angles(rays: Rays, sizes: Sizes) -> NDArray[np.float64]:
    """Of convex polygons by fans of triangles (Van Oosterom & Strackee 1983)."""
    starts = _starts(sizes)
    inner = np.ones(len(rays), bool)
    inner[starts] = inner[starts + sizes - 1] = False
    (j,) = np.nonzero(inner)
    owner = np.repeat(np.arange(len(sizes)), sizes)[j]
    a, b, c = rays[starts[owner]], rays[j], rays[j + 1]
    # det(a, b, c) by differences: of a small triangle the products would cancel
    volume = np.abs(np.einsum("ij,ij->i", np.cross(b - a, c - a), a))
    denominator = 1 + sum(np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (a, c), (b, c)))
    angles = 2 * np.arctan2(volume, denominator)
    return np.bincount(owner, weights=angles, minlength=len(sizes)).astype(np.float64)
