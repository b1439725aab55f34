"""A statement of a paper, the number that tests it, and the verdict that follows from the number.

Nobody writes a verdict down. A `Check` compares a measured number with a limit; a `Claim` has one
for the statement as printed and, where docs/errata.md corrects it, one for the corrected statement.
Changing the number changes the verdict.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

Relation = Literal["<=", "<", ">=", ">", "="]
_COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}


class Verdict(str, Enum):
    """What the numbers say of a statement."""

    HOLDS = "holds"
    CORRECTED = "holds corrected"
    FAILS = "does not hold"
    SHORT = "not reproduced at this length"


@dataclass(frozen=True)
class Check:
    """One number against one limit; NaN passes nothing.

    >>> Check("largest difference", 3e-16, "<=", 1e-12).passed
    True
    >>> print(Check("regions", 7, "=", 8))
    regions: 7, asked for = 8
    """

    what: str
    value: float
    relation: Relation
    limit: float
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.relation not in (*_COMPARE, "="):
            raise InvalidInputError(f"relation {self.relation!r} is not one of <=, <, >=, >, =")

    @property
    def passed(self) -> bool:
        if self.relation == "=":
            return bool(abs(self.value - self.limit) <= self.tolerance)
        return bool(_COMPARE[self.relation](self.value, self.limit))

    @property
    def brief(self) -> str:
        """The number and what was asked of it, without words."""
        slack = f" within {self.tolerance:.3g}" if self.tolerance else ""
        asked = f"{self.relation} {_short(self.limit)}{slack}"
        return f"{_short(self.value)}, asked for {asked}"

    def __str__(self) -> str:
        return f"{self.what}: {self.brief}"

    def to_dict(self) -> dict[str, Any]:
        numbers = {"value": self.value, "limit": self.limit, "tolerance": self.tolerance}
        finite = {k: float(v) if math.isfinite(v) else None for k, v in numbers.items()}
        return {"what": self.what, "relation": self.relation, **finite, "passed": self.passed}


#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Claim:
    """One row of the page: a figure, theorem, equation or erratum of a paper.

    Attributes:
        short: why the sizes of this run cannot show the statement, if they cannot.
        basis: where the limits come from: the statement itself, rounding, or a named test.

    The verdict: *holds* if the check of the printed statement passes; otherwise *holds corrected*
    if that of the corrected one does; otherwise *not reproduced at this length* if ``short`` gives
    a reason, else *does not hold*.
    """

    item: str
    printed: str
    check: Check
    corrected: str = ""
    corrected_check: Check | None = None
    short: str = ""
    basis: str = "the statement; rounding where it is exact"

    @property
    def verdict(self) -> Verdict:
        if self.check.passed:
            return Verdict.HOLDS
        if self.corrected_check is not None and self.corrected_check.passed:
            return Verdict.CORRECTED
        return Verdict.SHORT if self.short else Verdict.FAILS

    @property
    def deciding(self) -> Check:
        """The check behind the verdict."""
        if self.verdict is Verdict.CORRECTED and self.corrected_check is not None:
            return self.corrected_check
        return self.check

    @property
    def numbers(self) -> str:
        """The check as printed and, if there is one, the corrected one, in words."""
        checks = [self.check, self.corrected_check]
        return "; ".join(str(check) for check in checks if check is not None)

    def to_dict(self) -> dict[str, Any]:
        return {
            **entries(self, "item printed corrected check corrected_check numbers"),
            "number": self.deciding.brief,
            **entries(self, "short basis"),
            "verdict": self.verdict.value,
        }


def _short(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


#: A difference is believed if a test gives it at most this probability; fixed before any run.
LEVEL = 0.05


def more_often(larger: Sequence[float], smaller: Sequence[float]) -> tuple[float, float]:
    """One-sided sign test of paired runs: the p of "the first is larger", and of the opposite.

    Five pairs that all agree give 1/32, below the level; four do not.

    >>> more_often([2, 3, 4, 5, 6], [1, 1, 1, 1, 1])
    (0.03125, 1.0)
    """
    from scipy.stats import binomtest

    gaps = np.asarray(larger, dtype=np.float64) - np.asarray(smaller, dtype=np.float64)
    up, down = int((gaps > 0).sum()), int((gaps < 0).sum())
    if up + down == 0:
        return 1.0, 1.0
    pair = (binomtest(k, up + down, alternative="greater").pvalue for k in (up, down))
    first, second = (float(p) for p in pair)
    return first, second


def share_above(hits: int, trials: int, chance: float) -> float:
    """Binomial test of "the share is above chance", one-sided p; 1 without trials.

    >>> share_above(9, 10, 0.5) < 0.05 < share_above(7, 10, 0.5)
    True
    """
    from scipy.stats import binomtest

    return float(binomtest(hits, trials, chance, "greater").pvalue) if trials else 1.0
