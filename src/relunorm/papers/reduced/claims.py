"""What the tables of seed 001's figures say: constrained against unconstrained training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from relunorm.papers.checklist import words_of
from relunorm.papers.claim import LEVEL, Claim
from relunorm.papers.exhibit import Exhibit
from relunorm.papers.reduced.laws import Reduced

claim, _ = words_of("reduced")

Judge = Callable[[Exhibit, Reduced], Iterable[Claim]]


def _better(item: str, rows: list[dict[str, Any]], full: bool) -> Claim:
    """The constrained run that does worst against the unconstrained one, by a sign test.

    A sign test that decides neither way is not a refutation: then the run is called too short.
    """
    row = max((r for r in rows if r["run"].startswith("constrained")), key=_p_better)
    told = (row["better than unconstrained"], row["sign test p"], row["starts"], full)
    return _signs(item, *told, run=row["run"])


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
        p if less else 1.0,
        short=_short(1.0 if less else p, row["starts"], full),
        run=row["run"],
        ratio=ratio,
    )


def _short(p_against: float, starts: int, full: bool) -> str:
    """Why an undecided test is no refutation; nothing if it decides against the claim."""
    if p_against <= LEVEL:
        return ""
    return f"{starts} starts of a limited number of steps do not decide it" + (
        "" if full else "; --full runs 20"
    )


def _signs(item: str, wins: int, p: float, n: int, full: bool, **words: str) -> Claim:
    """A sign test of ``wins`` of ``n`` starts; what decides neither way is called too short."""
    more = wins > n / 2
    short = _short(1.0 if more else p, n, full)
    return claim(item, p if more else 1.0, short=short, wins=wins, n=n, **words)


def _p_better(row: dict[str, Any]) -> float:
    more = row["better than unconstrained"] > row["starts"] / 2
    return row["sign test p"] if more else 1.0


def _rows(found: Exhibit, **where: Any) -> list[dict[str, Any]]:
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [row for row in rows if all(row[k] == v for k, v in where.items())]


def figures51(found: Exhibit, world: Reduced) -> list[Claim]:
    """Each figure by its own set of starts, the rest by all of them."""
    wins, p = found.settings["tight_wins"], found.settings["tight_p"]
    starts = sum(len(part) for part in found.settings["sets"])
    return [
        *(
            _better(f"Figure {k}", _rows(found, figure=k), world.full)
            for k in ("5.1", "5.2", "5.3")
        ),
        _signs("Section 5.1: (5.3) against (5.2)", wins, p, starts, world.full),
        _steadier(
            "Section 5.1: less sensitive to the start", _rows(found, figure="all"), world.full
        ),
    ]


def _judge(item: str, steadier: str = "", along: str = "") -> Judge:
    def judge(found: Exhibit, world: Reduced) -> list[Claim]:
        """The sign test of the figure's table, the test of the spread, and the sign test of the
        errors along the cut."""
        claims = [_better(item, _rows(found), world.full)]
        if steadier:
            claims.append(_steadier(steadier, _rows(found), world.full))
        if along:
            own = found.settings
            told = (own["cut_wins"], own["cut_p"], len(own["starts"]), world.full)
            claims.append(_signs(along, *told))
        return claims

    return judge


JUDGES: dict[str, Judge] = {
    "figure5.1-3": figures51,
    "figure5.4": _judge("Figure 5.4", along="Figure 5.4: along y = 0.2 x"),
    "figure5.5": _judge("Figure 5.5", "Figure 5.5: less sensitive to the start"),
    "figure5.6": _judge("Figure 5.6", "Figure 5.6: less sensitive to the start"),
    "figure5.7": _judge("Figure 5.7", along="Figure 5.7: along y = 0.2 x"),
    "figure5.8": _judge("Figure 5.8", along="Figure 5.8: along y = 0.2 x"),
}
