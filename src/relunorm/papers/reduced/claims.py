"""What the tables of seed 001's figures say: constrained against unconstrained training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, shows

Judge = Callable[[Exhibit, bool], Iterable[Claim]]
#: Two-sided probability of so uneven a count of wins below which a difference is believed.
SIGNIFICANT = 0.05


def _better(item: str, found: Exhibit, full: bool) -> Claim:
    """The constrained run that does worst against the unconstrained one, by a sign test.

    A sign test that decides neither way is not a refutation: then the run is called too short.
    """
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    row = max((r for r in rows if r["run"].startswith("constrained")), key=_p_better)
    label, wins, starts = row["run"], row["better than unconstrained"], row["starts"]
    p, worse = _p_better(row), _p_worse(row)
    return Claim(
        item,
        "from the same starts the constrained runs fit better than the unconstrained one",
        Check(f"sign-test p of '{label} is better' ({wins} of {starts})", p, "<=", SIGNIFICANT),
        short=""
        if worse <= SIGNIFICANT
        else f"{starts} starts do not decide it" + ("" if full else "; --full runs 20"),
    )


def _p_better(row: dict[str, Any]) -> float:
    more = row["better than unconstrained"] > row["starts"] / 2
    return row["sign test p"] if more else 1.0


def _p_worse(row: dict[str, Any]) -> float:
    fewer = row["better than unconstrained"] < row["starts"] / 2
    return row["sign test p"] if fewer else 1.0


def _judge(item: str, cost: float) -> Judge:
    def judge(found: Exhibit, full: bool) -> list[Claim]:
        return [_better(item, found, full)]

    return shows(item, cost=cost)(judge)


@shows("Figure 5.1", "Section 5: less sensitive to the start", cost=6)
def figure51(found: Exhibit, full: bool) -> list[Claim]:
    """Figure 5.1, and the spread of the errors over the starts."""
    names = ("run", "lower quartile", "upper quartile")
    columns = zip(*(found.column(name) for name in names), strict=True)
    spreads = {run: high / low for run, low, high in columns}
    free = spreads.pop("unconstrained")
    constrained = max(v for k, v in spreads.items() if k.startswith("constrained"))
    starts = found.column("starts")[0]
    return [
        _better("Figure 5.1", found, full),
        Claim(
            "Section 5: less sensitive to the start",
            "constrained training depends less on the random start",
            Check(
                "quartile ratio of the errors, worst constrained over unconstrained",
                constrained / free,
                "<",
                1,
            ),
            short="" if full else f"{starts} starts; --full runs 20",
        ),
    ]


@shows("Theorem 3.1", "Theorem 3.2", "Theorem 3.3", cost=6)
def universality(found: Exhibit, full: bool) -> list[Claim]:
    """Density cannot be computed; that the error keeps falling with the width can."""
    functions = sorted(set(found.column("function")))
    errors = {name: found.column("RMS error", function=name) for name in functions}
    step = max(b / a for e in errors.values() for a, b in pairwise(e))
    rates = [max(found.column("rate", function=name)) for name in functions]
    last = max(e[-1] for e in errors.values())
    return [
        Claim(
            "Theorem 3.1",
            "shallow networks are dense in C(D) (cited); evidence: the error falls with the width",
            Check("largest error after doubling the width over the one before", step, "<", 1),
        ),
        Claim(
            "Theorem 3.2",
            "unit rows lose no density; evidence: the rate of the error in the width",
            Check("slowest rate (Barron: -1/2 or better)", max(rates), "<=", -0.5),
        ),
        Claim(
            "Theorem 3.3",
            "bounded thresholds lose no density; evidence: the error at the largest width",
            Check("largest RMS error (the functions are of order 1)", last, "<=", 0.02),
        ),
    ]


JUDGES: dict[str, Judge] = {
    "figure5.1": figure51,
    "figure5.2": _judge("Figure 5.2", 6),
    "figure5.3": _judge("Figure 5.3", 6),
    "figure5.4": _judge("Figure 5.4", 12),
    "figure5.5": _judge("Figure 5.5", 20),
    "figure5.6": _judge("Figure 5.6", 10),
    "figure5.7": _judge("Figure 5.7", 37),
    "figure5.8": _judge("Figure 5.8", 44),
    "universality": universality,
}
