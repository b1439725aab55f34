"""What `certify` returns: row by row what is known of a neighbourhood, and the curve over all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from relunorm.arithmetic.floats import at_least, at_most
from relunorm.display.shown import Shown, entries
from relunorm.matrix import Vector

RowVerdict = Literal["robust", "attacked", "unknown", "invalid"]


@dataclass(frozen=True, eq=False, repr=False)
class RowRobustness:
    """What is known about the neighbourhood of one input.

    Args:
        row: its number.
        verdict: ``robust`` (no valid input within the radius changes the answer), ``attacked``
            (``adversarial`` does), ``unknown``, or ``invalid`` (``reason`` says why).
        label: the class asked for; None for a regression.
        correct: whether the model gives that class at the input itself.
        radius: the largest safe radius lies in this interval: safe up to the lower end, attacked
            at the upper end.
        adversarial: an input with another answer, and what the network computes there.
        single: whether the adversarial input is one in single precision.
        nodes, seconds: the effort.
        reason: what is wrong with an invalid row, or why one is unknown, or its interval not
            closed: ``time limit``, ``interrupted``, or that rounding leaves it open.
    """

    row: int
    verdict: RowVerdict
    label: int | None = None
    correct: bool = True
    radius: tuple[float, float] = (0.0, math.inf)
    adversarial: Vector | None = None
    outputs: Vector | None = None
    single: bool = False
    nodes: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def decided(self) -> bool:
        """Whether anything was found out about the neighbourhood."""
        return self.verdict in ("robust", "attacked") or self.radius[0] > 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return entries(
            self, "row verdict label correct radius adversarial outputs single nodes seconds reason"
        )

    def __repr__(self) -> str:
        ends = f"[{at_least(self.radius[0], 6)}, {at_most(self.radius[1], 6)}]"
        return f"RowRobustness({self.row}: {self.verdict}, radius in {ends})"


@dataclass(frozen=True, eq=False, repr=False)
class Robustness(Shown):
    """What `certify` found, row by row.

    Args:
        rows: one entry per input.
        norm: inf, 2 or 1.
        asked: the radius asked for; None where the largest safe one was.
        seconds: wall time without compiling.
        classes: the name of each class, where the labels or the model have names.
        classes_from: who says which class belongs to which output (see `classes.py`);
            ``data`` and ``sorted`` are guesses.
        of: what the outputs of adversarial inputs (and ``delta``) speak of: the model's outputs, or
            what comes before its head. The class is the same before and after.
        stopped: ``interrupted`` where Ctrl-C ended the work, else empty.
        scale: the length of each input in which radii are measured; empty for 1.
    """

    rows: tuple[RowRobustness, ...]
    norm: float
    asked: float | None
    seconds: float
    classes: tuple[str, ...] = ()
    classes_from: str = ""
    of: str = "outputs"
    stopped: str = ""
    scale: tuple[float, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        words = ("robust", "attacked", "unknown", "invalid")
        return {word: sum(row.verdict == word for row in self.rows) for word in words}

    def accuracy(self, radius: float) -> tuple[float, float]:
        """The share of rows that are certainly, and that may be, right and safe at a radius.

        Between the two lie rows whose largest safe radius is not known well enough.
        """
        valid = [row for row in self.rows if row.verdict != "invalid"]
        if not valid:
            return 0.0, 0.0
        sure = sum(row.correct and row.radius[0] >= radius for row in valid)
        possible = sum(row.correct and row.radius[1] > radius for row in valid)
        return sure / len(valid), possible / len(valid)

    @property
    def half_safe(self) -> float:
        """The largest radius up to which at least half of the rows are proved right and safe.

        Invalid rows do not count; 0 where fewer than half of the others have a safe radius.
        """
        valid = [row for row in self.rows if row.verdict != "invalid"]
        radii = sorted(row.radius[0] if row.correct else 0.0 for row in valid)
        return radii[len(radii) // 2] if radii else 0.0

    def curve(self, points: int = 201) -> list[tuple[float, float, float]]:
        """Accuracy against radius, as steps: (radius, certainly right, possibly right).

        Both are step functions that change at the ends of the rows' own intervals. The share that
        is certainly right holds from the radius before up to this one; the share that is possibly
        right holds from this one up to the next. Of more than ``points`` radii some are left out,
        and both statements still hold. Where one radius was asked for, at that one and at 0.
        """
        if self.asked is not None:
            return [(r, *self.accuracy(r)) for r in dict.fromkeys((0.0, float(self.asked)))]
        valid = [row.radius for row in self.rows if row.verdict != "invalid"]
        ends = np.unique([0.0, *(end for ends in valid for end in ends if math.isfinite(end))])
        if len(ends) > points:
            ends = ends[np.unique(np.linspace(0, len(ends) - 1, points).astype(int))]
        return [(float(r), *self.accuracy(float(r))) for r in ends]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.robustness/1",
            "norm": "inf" if math.isinf(self.norm) else int(self.norm),
            "radius": self.asked,
            "scale": list(self.scale) or None,
            "counts": self.counts,
            **entries(self, "half_safe"),
            "curve": [list(point) for point in self.curve(21)],
            **entries(self, "rows seconds classes classes_from of stopped"),
        }

    def __repr__(self) -> str:
        if self.asked is None and self.rows:
            safe = at_least(self.half_safe)
            return f"Robustness({len(self.rows)} rows, half of them safe up to {safe})"
        counts = ", ".join(f"{n} {word}" for word, n in self.counts.items() if n)
        return f"Robustness({len(self.rows)} rows{': ' if counts else ''}{counts})"
