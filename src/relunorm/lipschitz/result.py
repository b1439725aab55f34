"""What `lipschitz` returns: an interval, its witness and every bound that was tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relunorm.display.shown import Shown, entries
from relunorm.lipschitz.norms import written
from relunorm.lipschitz.search.proof import SlopeProof
from relunorm.matrix import Vector
from relunorm.network.head import of_words


@dataclass(frozen=True)
class LipschitzBound:
    """One bound by one method.

    Args:
        method: its name.
        side: ``lower`` or ``upper``.
        value: the bound; NaN when the method does not apply or ran out of time.
        seconds: wall time it took.
        note: why it gave nothing, or what it assumed.
    """

    method: str
    side: str
    value: float
    seconds: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return entries(self, "method side value seconds note")


@dataclass(frozen=True, eq=False, repr=False)
class LipschitzResult(Shown):
    """An interval that holds the Lipschitz constant of a network over a domain.

    The constant is the smallest K with |f(x) - f(y)|_p <= K |x - y|_p for all x, y of the domain,
    the same p on inputs and outputs; the domain is convex, so it is the largest operator norm
    p -> p of the Jacobian over the regions that meet the domain's interior.

    Args:
        lower: the norm of the Jacobian at ``witness``, rounded down.
        upper: the least of the upper bounds.
        witness: a point inside a region whose Jacobian has norm ``lower``.
        exact: whether lower and upper meet to 1e-9 relative.
        method: the method of the upper bound.
        norm: p, or the number that `NORMS` gives the norm.
        domain: the domain in words.
        bounds: every bound that was tried, in order.
        complete: False when a time limit or an interrupt cut methods short.
        of: what the constant speaks of: the model's outputs, or what comes before its head.
        certificate: a proof of the bound by branch and bound, which is ``upper`` where that is the
            method; None where it was not run.
    """

    lower: float
    upper: float
    witness: Vector
    exact: bool
    method: str
    norm: float
    domain: str
    bounds: tuple[LipschitzBound, ...]
    complete: bool = True
    of: str = "outputs"
    certificate: SlopeProof | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.lipschitz/1",
            **entries(self, "lower upper exact method"),
            "norm": int(name) if (name := written(self.norm)).isdecimal() else name,
            **entries(self, "domain witness complete of bounds"),
        }

    def __repr__(self) -> str:
        head = f"LipschitzResult(l{written(self.norm)}, {self.domain}: "
        if self.exact:
            return f"{head}{self.lower:.12g}, exact by {self.method}{of_words(self.of)})"
        ends = f"[{self.lower:.9g}, {self.upper:.9g}]"
        return f"{head}{ends}, upper by {self.method}{of_words(self.of)})"
