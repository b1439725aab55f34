"""What the tables of seed 001's figures say: constrained against unconstrained training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, costs
from relunorm.papers.reduced.laws import Reduced

claim = claims_of("reduced")

Judge = Callable[[Exhibit, Reduced], Iterable[Claim]]
#: Two-sided probability below which a difference is believed, fixed before any run.
SIGNIFICANT = 0.05
SIGNS = "two-sided sign test of the validation errors over the starts at the 5 % level"
ALONG = "two-sided sign test of the errors at 81 points of the cut over the starts, 5 % level"
SPREADS = (
    "Pitman and Morgan's paired test of two variances of log validation errors, by ranks, at the "
    "5 % level"
)


def _better(item: str, rows: list[dict[str, Any]], full: bool) -> Claim:
    """The constrained run that does worst against the unconstrained one, by a sign test.

    A sign test that decides neither way is not a refutation: then the run is called too short.
    """
    row = max((r for r in rows if r["run"].startswith("constrained")), key=_p_better)
    return _signs(
        item,
        "from the same starts the constrained runs fit better than the unconstrained one",
        f"{row['run']} is better",
        row["better than unconstrained"],
        row["sign test p"],
        row["starts"],
        full,
    )


def _steadier(item: str, rows: list[dict[str, Any]], full: bool) -> Claim:
    """The constrained run whose errors spread most, against the unconstrained one."""
    free = next(r for r in rows if r["run"] == "unconstrained")
    constrained = [r for r in rows if r["run"].startswith("constrained")]
    row = max(constrained, key=lambda r: r["spread of log error"])
    less = row["spread of log error"] < free["spread of log error"]
    p = row["spread test p"]
    ratio = row["spread of log error"] / free["spread of log error"]
    return claim(
        item,
        Check(
            f"p of a smaller spread of the log error ({row['run']}: {ratio:.2f} of the "
            "unconstrained one's)",
            p if less else 1.0,
            "<=",
            SIGNIFICANT,
        ),
        printed="with the constraint the result depends less on the random start",
        short=_short(1.0 if less else p, row["starts"], full),
        basis=SPREADS,
    )


def _short(p_against: float, starts: int, full: bool) -> str:
    """Why an undecided test is no refutation; nothing if it decides against the claim."""
    if p_against <= SIGNIFICANT:
        return ""
    return f"{starts} starts of a limited number of steps do not decide it" + (
        "" if full else "; --full runs 20"
    )


def _signs(
    item: str, printed: str, what: str, wins: int, p: float, n: int, full: bool, basis: str = SIGNS
) -> Claim:
    """A sign test of ``wins`` of ``n`` starts; what decides neither way is called too short."""
    more = wins > n / 2
    return claim(
        item,
        Check(f"sign-test p of '{what}' ({wins} of {n})", p if more else 1.0, "<=", SIGNIFICANT),
        printed=printed,
        short=_short(1.0 if more else p, n, full),
        basis=basis,
    )


def _p_better(row: dict[str, Any]) -> float:
    more = row["better than unconstrained"] > row["starts"] / 2
    return row["sign test p"] if more else 1.0


def _rows(found: Exhibit, **where: Any) -> list[dict[str, Any]]:
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [row for row in rows if all(row[k] == v for k, v in where.items())]


@costs(13)
def figures51(found: Exhibit, world: Reduced) -> list[Claim]:
    """Each figure by its own set of starts, the rest by all of them."""
    wins, p = found.settings["tight_wins"], found.settings["tight_p"]
    starts = sum(len(part) for part in found.settings["sets"])
    return [
        *(
            _better(f"Figure {k}", _rows(found, figure=k), world.full)
            for k in ("5.1", "5.2", "5.3")
        ),
        _signs(
            "Section 5.1: (5.3) against (5.2)",
            "the tighter thresholds (5.3) fit better than the general ones (5.2)",
            "(5.3) is better",
            wins,
            p,
            starts,
            world.full,
        ),
        _steadier(
            "Section 5.1: less sensitive to the start", _rows(found, figure="all"), world.full
        ),
    ]


def _judge(item: str, cost: float, steadier: str = "", along: str = "") -> Judge:
    def judge(found: Exhibit, world: Reduced) -> list[Claim]:
        """The sign test of the figure's table, the test of the spread, and the sign test of the
        errors along the cut."""
        claims = [_better(item, _rows(found), world.full)]
        if steadier:
            claims.append(_steadier(steadier, _rows(found), world.full))
        if along:
            own = found.settings
            told = (own["cut_wins"], own["cut_p"], len(own["starts"]), world.full, ALONG)
            printed = "the improvement is visible along y = 0.2 x"
            claims.append(_signs(along, printed, "constrained is nearer along it", *told))
        return claims

    return costs(cost)(judge)


JUDGES: dict[str, Judge] = {
    "figure5.1-3": figures51,
    "figure5.4": _judge("Figure 5.4", 8, along="Figure 5.4: along y = 0.2 x"),
    "figure5.5": _judge("Figure 5.5", 6, "Figure 5.5: less sensitive to the start"),
    "figure5.6": _judge("Figure 5.6", 4, "Figure 5.6: less sensitive to the start"),
    "figure5.7": _judge("Figure 5.7", 5, along="Figure 5.7: along y = 0.2 x"),
    "figure5.8": _judge("Figure 5.8", 10, along="Figure 5.8: along y = 0.2 x"),
}
