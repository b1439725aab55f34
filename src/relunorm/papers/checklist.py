"""Every figure, theorem, tested equation and erratum of the five papers, read off the papers.

Each paper's folder has a ``statements.json``: exhibit by exhibit the items that its claims decide,
and of every item the statement as printed, in our words, the corrected one, the quantities that
test them, what is asked of each, and where that limit comes from; then, of every other numbered
equation and of sentences that claim something, why they have no row. It is written apart from the
exhibits: one that is lost, or that gives another claim than the list promises, is an error. Items
named "ours" are statements of docs/errata.md that no paper makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relunorm.papers import PAPERS
from relunorm.papers.claim import ROUNDING, Check, Claim
from relunorm.papers.statistics import LEVEL

#: Limits that statements give by name.
_LIMITS = {"rounding": ROUNDING, "level": LEVEL}


def _read(paper: str) -> dict[str, dict[str, Any]]:
    return json.loads((Path(__file__).parent / paper / "statements.json").read_text("utf-8"))


_STATEMENTS = {paper: _read(paper) for paper in PAPERS}

#: Paper -> exhibit -> the items that its claims decide.
CHECKLIST: dict[str, dict[str, tuple[str, ...]]] = {
    paper: {exhibit: tuple(own) for exhibit, own in found["exhibits"].items()}
    for paper, found in _STATEMENTS.items()
}

#: Paper -> equations and sentences without a row -> why.
WITHOUT_ROW: dict[str, dict[str, str]] = {
    paper: found["without_row"] for paper, found in _STATEMENTS.items()
}


def items(paper: str) -> tuple[str, ...]:
    """All items of a paper, exhibit by exhibit."""
    return tuple(item for part in CHECKLIST[paper].values() for item in part)


def claims_of(paper: str) -> Callable[..., Claim]:
    """``claim(item, number, corrected)``: a claim in the words of the paper's statements.

    A number is held to the limit that the statements name. Where the limit, or what it is a limit
    of, depends on the run, a `Check` stands in its place; further arguments are other words of a
    `Claim` that do.

    >>> claims_of("rescaling")("Lemma 1, construction", 3e-16, 2e-16).verdict.value
    'holds'
    """
    exhibits = _STATEMENTS[paper]["exhibits"].values()
    statements = {item: said for own in exhibits for item, said in own.items()}

    def claim(
        item: str, check: Check | float, corrected: Check | float | None = None, **more: str
    ) -> Claim:
        said = dict(statements[item])
        asked = {name: said.pop(name, []) for name in ("check", "corrected_check")}
        given = {"check": check, "corrected_check": corrected}
        checks = {name: _check(value, asked[name]) for name, value in given.items()}
        return Claim(item=item, **checks, **{**said, **more})  # type: ignore[arg-type]

    return claim


def _check(value: Check | float | None, asked: list[Any]) -> Check | None:
    """The number against the limit of a statement: quantity, relation, limit and tolerance."""
    if value is None or isinstance(value, Check):
        return value
    what, relation, limit, *tolerance = asked
    return Check(what, value, relation, _LIMITS.get(limit, limit), *tolerance)
