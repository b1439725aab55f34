"""The rows that `certify` is asked about: checked, and what is near them and wrong there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.arguments import real_numbers
from relunorm.bounds.problem import Group
from relunorm.domain import Box, Domain
from relunorm.domain.base import LARGEST
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.extrema.decide import checked
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.questions.classes import Classes, label_numbers
from relunorm.questions.neighbourhood import (
    Neighbourhood,
    distance,
    neighbourhood,
    wrong_outputs,
)
from relunorm.questions.robustness import RowRobustness

#: Rows, radii and deltas may be so large, so that what is near a row has a domain.
FURTHEST = LARGEST / 2


class Rows:
    """Inputs of a network with the answers that are right, and how distances are measured.

    Attributes:
        x: the inputs, (n, d). outputs: what the network computes there.
        labels: the class of every row, or its outputs for a regression.
        classes: how labels were matched to the outputs, where that was asked.
        groups, surely: for every row the conjunctions A f(x) <= b that make an output wrong; those
            that hold every wrong output, and those that hold no right one.
        invalid: what is known of rows that cannot be asked about.
    """

    def __init__(
        self,
        network: Network,
        x: ArrayLike,
        norm: float | str,
        label: ArrayLike | None,
        delta: float | None,
        valid: Domain | None,
        scale: ArrayLike | None,
    ):
        self.network, self.delta = network, delta
        self.x = _rows(network, x)
        self.norm = _norm(norm)
        self.scale = None if scale is None else _scale(scale, network.input_size, self.norm)
        if delta is not None and not (is_real(delta) and 0 < delta <= FURTHEST):
            raise InvalidInputError(
                f"delta is {delta!r}, expected a number above 0 and at most {FURTHEST:g}"
            )
        self.valid = _valid(valid)
        self.invalid: dict[int, RowRobustness] = {}
        for row, values in enumerate(self.x):
            if reason := self._fault(values):
                self.invalid[row] = RowRobustness(row, "invalid", reason=f"row {row}: {reason}")
        usable = np.where((np.abs(self.x) <= FURTHEST).all(axis=1, keepdims=True), self.x, 0.0)
        self.outputs = network(usable)
        self.classes: Classes | None = None
        if delta is None:
            network.check_decides(
                "ask about what comes before with network.without_head(), or pass delta for how "
                "far outputs may move"
            )
        self.labels = self._labels(label)
        rows = range(len(self.x))
        self.groups: list[list[Group]] = [self._goals(row, surely=False) for row in rows]
        self.surely: list[list[Group]] = [self._goals(row, surely=True) for row in rows]

    def _fault(self, values: Vector) -> str:
        """What is wrong with an input, or nothing."""
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            return f"input {bad[0]} is {values[bad[0]]}, expected a finite number"
        large = np.flatnonzero(np.abs(values) > FURTHEST)
        if len(large):
            i = int(large[0])
            return f"input {i} is {values[i]:g}, too large to compute with (at most {FURTHEST:g})"
        if self.valid is None:
            return ""
        out = np.flatnonzero((values < self.valid.lo) | (values > self.valid.hi))
        if not len(out):
            return ""
        i = int(out[0])
        return (
            f"input {i} is {values[i]:g}, outside of the valid range "
            f"[{self.valid.lo[i]:g}, {self.valid.hi[i]:g}]"
        )

    def _labels(self, label: Any) -> Array:
        """The class of every row, or its outputs for a regression; marks rows without."""
        n, count = self.outputs.shape
        if label is None:
            if self.delta is not None:
                return self.outputs
            if count > 1 and [step.kind for step in self.network.head.steps[:1]] == ["sigmoid"]:
                raise InvalidInputError(
                    f"the model ends in a sigmoid on each of {count} outputs and may give several "
                    "answers at once; pass label, the class of each row, if the largest output is "
                    "its answer, or delta for how far outputs may move"
                )
            own = self.outputs.argmax(axis=1) if count > 1 else self.outputs[:, 0] > 0
            names = self.network.head.classes
            if names and len(names) == max(count, 2):
                counts = np.bincount(own.astype(np.intp), minlength=len(names))
                self.classes = Classes(tuple(map(str, names)), tuple(counts.tolist()), "model")
            return own.astype(np.float64)
        try:
            told = np.atleast_1d(np.asarray(label))
        except (ValueError, RuntimeError) as error:  # ragged, or a tensor with a gradient
            raise InvalidInputError(f"label is not an array: {error}") from None
        if self.delta is None:
            label, self.classes = label_numbers(label, self.network.head, self.outputs)
        try:
            given = np.atleast_1d(np.asarray(label, dtype=np.float64))
        except ValueError:
            raise InvalidInputError(
                f"labels such as {str(told.flat[0])!r} are no numbers, and delta (--delta) is how "
                "far the outputs of a regression may move; leave it out for classes"
            ) from None
        if self.delta is not None:
            if given.size != n * count:
                raise InvalidInputError(
                    f"label has shape {np.shape(label)}, expected ({n}, {count}): outputs"
                )
            given = given.reshape(n, count)
            usable = np.all(np.abs(given) <= FURTHEST, axis=1)
            for row in np.flatnonzero(~usable).tolist():
                what = "too large" if np.isfinite(given[row]).all() else "not a finite number"
                reason = f"row {row}: the right output is {what}"
                self.invalid.setdefault(row, RowRobustness(row, "invalid", reason=reason))
            return np.where(usable[:, None], given, 0.0)
        if given.shape != (n,):
            raise InvalidInputError(
                f"label has shape {np.shape(label)}, expected ({n},): one class for each row"
            )
        classes = max(count, 2)
        named = f"0 to {classes - 1}"
        if self.classes is not None and self.classes.source == "model":
            named = ", ".join(self.classes.names)
        for row in np.flatnonzero(~np.isin(given, np.arange(classes))).tolist():
            shown = f"{told[row]:g}" if told.dtype.kind in "fiub" else repr(str(told[row]))
            reason = f"row {row}: label {shown}, but the model has classes {named}"
            self.invalid.setdefault(row, RowRobustness(row, "invalid", reason=reason))
        return np.where(np.isin(given, np.arange(classes)), given, 0.0)

    def _goals(self, row: int, *, surely: bool) -> list[Group]:
        value = self.outputs[row] if self.delta is None else self.labels[row]
        return wrong_outputs(self.network, self.label(row), value, self.delta, surely=surely)

    def __len__(self) -> int:
        return len(self.x)

    def label(self, row: int) -> int | None:
        """The class of a row; None for a regression."""
        return None if self.delta is not None else int(self.labels[row])

    def around(self, row: int, radius: float) -> Neighbourhood:
        """The valid inputs within a radius of a row."""
        return neighbourhood(self.x[row], radius, self.norm, self.valid, self.scale)

    def distance(self, row: int, point: Vector) -> float:
        """How far a point is from a row."""
        return distance(self.x[row], point, self.norm, self.scale)

    def largest_radius(self) -> float:
        """The largest radius that can be asked about, in the units of ``scale``."""
        return FURTHEST if self.scale is None else FURTHEST / max(1.0, float(self.scale.max()))

    def reach(self, row: int) -> float:
        """How far the furthest valid input is from a row, rounded up."""
        if self.valid is None:
            return math.inf
        x, box = self.x[row], self.valid
        corner = np.where(box.hi - x > x - box.lo, box.hi, box.lo)
        return self.distance(row, corner) * (1 + 1e-12)

    def wrongness(self, row: int, outputs: Vector) -> float:
        """How far outputs are from being wrong, as computed: at least 0 where they are."""
        return max(float((b - A @ outputs).min()) for A, b in self.groups[row])

    def adversarial(self, row: int, domain: Domain, point: Vector) -> Vector | None:
        """A point of the domain beside ``point`` where an output is surely wrong."""
        sure = checked(self.network, self.surely[row], domain, point)
        return sure[0] if sure is not None and sure[1] >= 0.0 else None


def _rows(network: Network, x: ArrayLike) -> Array:
    given = real_numbers("x", x).astype(np.float64, copy=False)
    if given.ndim == 1 and given.shape == (network.input_size,):
        given = given[None]
    rows = given.reshape(len(given), math.prod(given.shape[1:])) if given.ndim > 1 else given
    if rows.ndim != 2 or rows.shape[1] != network.input_size:
        raise InvalidInputError(
            f"x has shape {np.shape(x)}, expected rows of {network.input_size} inputs"
        )
    return rows


def _norm(norm: float | str) -> float:
    known = {"inf": math.inf, "2": 2.0, "1": 1.0}
    found = known.get(str(norm).lower().removesuffix(".0"))
    if found is None:
        raise InvalidInputError(f"norm is {norm!r}, expected inf, 2 or 1")
    return found


def _scale(scale: ArrayLike, inputs: int, norm: float) -> Vector:
    try:
        given = np.asarray(scale, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"scale is not an array of numbers: {error}") from None
    fit = (given >= 0) & (given <= FURTHEST)
    if len(given) != inputs or not fit.all() or not given.any():
        raise InvalidInputError(
            f"a radius or a scale for each input is {inputs} numbers from 0 to {FURTHEST:g}, not "
            f"all of them 0; given are {len(given)}"
        )
    if norm != math.inf:
        raise InvalidInputError("a radius or a scale for each input needs the norm inf")
    return given


def _valid(valid: Domain | None) -> Box | None:
    box = None if valid is None else valid.as_box
    if valid is not None and box is None:
        raise InvalidDomainError(f"valid is {valid!r}, expected a box")
    return box


def is_real(value: Any) -> bool:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
