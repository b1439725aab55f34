"""What `compare` returns: a verdict, both bounds, a witness and a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from relunorm.arithmetic.floats import at_least, at_most
from relunorm.display.shown import Shown, entries
from relunorm.forms.certificate.certificate import Certificate
from relunorm.forms.comparison.same_class import SameClass
from relunorm.matrix import Vector
from relunorm.network.head import NO_HEAD, Head, of_words

Verdict = Literal["equal", "within", "different", "unknown"]


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """What was found about max |f - g| over a domain, the maximum taken over outputs too.

    Attributes:
        verdict: ``equal`` (f = g exactly), ``within`` (the proved upper bound is at most the
            tolerance), ``different`` (the witness shows more than the tolerance) or ``unknown``.
        lower, upper: proved bounds on max |f - g|, rounding of the evaluation included.
        apart: for networks with step units a bound on |f - g| away from the thresholds, as the
            certificate states it (see `Certificate.exceptions`); None for others.
        tolerance: what was asked, or what follows from the precision of the models.
        precision: ``given`` where it was asked, else the precision it follows: ``float64``,
            ``float32`` or ``float16``.
        top1: whether both choose the same class everywhere, if that was asked.
        witness: the input where the largest difference was found, None if not searched.
        first, second: both outputs at the witness.
        method: what decided.
        seconds: wall time.
        head: of both networks. All numbers speak of what comes before it (``of``).
    """

    verdict: Verdict
    lower: float
    upper: float
    tolerance: float
    witness: Vector | None
    first: Vector | None
    second: Vector | None
    method: str
    seconds: float
    apart: float | None = None
    precision: str = "given"
    top1: SameClass | None = None
    proof: Callable[[], Certificate | None] | None = field(default=None, compare=False)
    head: Head = NO_HEAD

    @property
    def of(self) -> str:
        """What f and g are: the models' outputs, or what comes before their head."""
        return self.head.of

    @property
    def upper_after_head(self) -> float | None:
        """A bound on how far the models' own outputs, after their head, can be apart.

        ``upper`` times the head's `gain`; None where a head jumps or has no largest slope.
        """
        return None if self.head.gain is None else self.upper * self.head.gain

    @cached_property
    def certificate(self) -> Certificate | None:
        """Proof of the bound that relating units gave; it replays without a solver."""
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite bound proves nothing
            return None if self.proof is None else self.proof()

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; an infinite bound is null."""
        return {
            "schema": "relunorm.comparison/1",
            **entries(
                self,
                "verdict lower upper tolerance precision witness first second method "
                "seconds apart top1 of upper_after_head",
            ),
        }

    def __repr__(self) -> str:
        follows = "" if self.precision == "given" else f" for {self.precision}"
        return (
            f"Comparison({self.verdict}: {at_least(self.lower, 3)} <= max |f - g| "
            f"<= {at_most(self.upper, 3)}, "
            f"by {self.method}, tolerance {self.tolerance:.3g}{follows}, {self.seconds:.2f} s"
            f"{of_words(self.of)})"
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
