"""What `maximize` and `decide` return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from relunorm.display.shown import Shown, entries
from relunorm.matrix import Vector
from relunorm.network.head import of_words

if TYPE_CHECKING:
    from relunorm.search.proofs.proof import SearchProof

Verdict = Literal["proved", "counterexample", "unknown"]


class _Resumable(Shown):
    """A result of a search, which stays where it ran when the result is pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "resume": None}


@dataclass(frozen=True, eq=False, repr=False)
class Maximum(_Resumable):
    """An interval that holds the maximum of direction . f over a domain.

    Args:
        lower: the value at ``point``; with ``value``, that rounded down.
        upper: a sound upper bound.
        point: the best point found, inside the domain; NaN, and ``lower`` -inf, where no point in
            float64 was found that lies in it exactly (a polytope without interior may have none).
        exact: whether the interval is at most ``tolerance`` wide, relative to max(1, |maximum|).
        nodes: how many parts were looked at.
        seconds: wall time.
        complete: False when the search was stopped, or where nothing could be searched and the
            interval is a bound alone.
        certificate: a proof of ``upper`` that replays, also of a search that was stopped; None
            where ``upper`` is infinite. With ``value`` it proves what floats could show before,
            ``certificate.limit``.
        resume: called with further seconds it goes on and returns another result; None in a result
            that was pickled.
        of: what the numbers speak of: the model's outputs, or what comes before its head.
        value: the maximum itself, where it was asked for in fractions; ``fractions`` is a point
            that has it, and ``point`` one of the domain beside it in floats.
        stopped: what ended the search before its end: ``time limit``, ``interrupted``, ``worker
            processes died``, or that rounding leaves it open, for ``rational`` to go on; empty
            if nothing did.
    """

    lower: float
    upper: float
    point: Vector
    exact: bool
    nodes: int
    seconds: float
    complete: bool
    certificate: SearchProof | None = None
    resume: Callable[..., Maximum] | None = None
    of: str = "outputs"
    value: Fraction | None = None
    fractions: tuple[Fraction, ...] | None = None
    stopped: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.maximum/1",
            **entries(self, "lower upper point exact nodes seconds complete of stopped"),
            "value": None if self.value is None else str(self.value),
        }

    def __repr__(self) -> str:
        if self.exact:
            return f"Maximum({self.lower:.12g}, exact, {self.nodes} nodes{of_words(self.of)})"
        return (
            f"Maximum([{self.lower:.9g}, {self.upper:.9g}], {self.nodes} nodes{of_words(self.of)})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Decision(_Resumable):
    """Whether some input of a domain satisfies A f(x) <= b.

    Args:
        verdict: ``proved`` (no input does), ``counterexample`` (``point`` does, or ``fractions``
            where that is given) or ``unknown``.
        point: the input that comes nearest; for a counterexample A f(point) <= b in real
            arithmetic, and the point lies in the domain.
        margin: interval of max over the domain of min_i (b - A f(x))_i: negative upper end proves,
            a lower end of at least 0 is a counterexample.
        nodes: how many parts were looked at.
        seconds: wall time.
        certificate: a proof that replays, for ``proved``; None where fractions decided.
        resume: called with further seconds it goes on and returns another result; None in a result
            that was pickled.
        of: what the numbers speak of: the model's outputs, or what comes before its head.
        fractions: a counterexample found in fractions; ``point`` is the same in floats, which may
            miss it by their rounding.
        stopped: as for `Maximum`.
    """

    verdict: Verdict
    point: Vector
    margin: tuple[float, float]
    nodes: int
    seconds: float
    certificate: SearchProof | None = None
    resume: Callable[..., Decision] | None = None
    of: str = "outputs"
    fractions: tuple[Fraction, ...] | None = None
    stopped: str = ""

    def __bool__(self) -> bool:
        """True when the property is proved."""
        return self.verdict == "proved"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.decision/1",
            **entries(self, "verdict point margin nodes seconds of stopped"),
        }

    def __repr__(self) -> str:
        low, high = self.margin
        return (
            f"Decision({self.verdict}, margin in [{low:.6g}, {high:.6g}], "
            f"{self.nodes} nodes{of_words(self.of)})"
        )
