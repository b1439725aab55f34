"""Every figure, theorem, tested equation and erratum of the five papers, read off the papers.

Each paper's folder has a ``statements.json``: titles, notes, costs and columns of its exhibits;
exhibit by exhibit the items that its claims decide, and of every item the statement as printed, in
our words, the corrected one, the quantities that test them, what is asked of each, and where that
limit comes from; then, of every other numbered equation and of sentences that claim something, why
they have no row. It is written apart from the exhibits: one that is lost, or that gives another
claim than the list promises, is an error. Items named "ours" are statements of docs/errata.md that
no paper makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from relunorm.papers import PAPERS
from relunorm.papers.claim import LEVEL, ROUNDING, Check, Claim
from relunorm.papers.exhibit import Exhibit

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

#: Paper -> exhibit -> processor seconds of its quick version where it is not about one.
COSTS: dict[str, dict[str, float]] = {paper: found["costs"] for paper, found in _STATEMENTS.items()}

#: Paper -> equations and sentences without a row -> why.
WITHOUT_ROW: dict[str, dict[str, str]] = {
    paper: found["without_row"] for paper, found in _STATEMENTS.items()
}


def items(paper: str) -> tuple[str, ...]:
    """All items of a paper, exhibit by exhibit."""
    return tuple(item for part in CHECKLIST[paper].values() for item in part)


def words_of(paper: str) -> tuple[Callable[..., Claim], Callable[..., Exhibit]]:
    """What makes claims and exhibits in the words of the paper's statements.

    ``claim(item, number, corrected)``: a number is held to the limit of the statements; a `Check`
    stands in its place where its words depend on the run. Further arguments are other words of a
    `Claim` that do, or values of names: those in braces that the words hold, and limits.

    ``exhibit(settings, name, *claims)``: the claims are its table where it has no ``rows``; columns
    and a note are given where the statements have none, since they depend on the run.

    >>> claim, exhibit = words_of("rescaling")
    >>> claim("Lemma 1, construction", 3e-16, 2e-16).verdict.value
    'holds'
    """
    words = _STATEMENTS[paper]
    statements = {item: said for own in words["exhibits"].values() for item, said in own.items()}
    own_words = {field.name for field in fields(Claim)}

    def claim(
        item: str, check: Check | float, corrected: Check | float | None = None, **more: Any
    ) -> Claim:
        values = {name: more.pop(name) for name in more.keys() - own_words}
        said = {k: _filled(v, values) if values else v for k, v in statements[item].items()}
        limits = {**_LIMITS, **values}
        said |= {"check": _check(check, said.get("check"), limits)}
        said |= {"corrected_check": _check(corrected, said.get("corrected_check"), limits)}
        return Claim(item=item, **{**said, **more})

    def exhibit(
        settings: dict[str, Any],
        name: str,
        *claims: Claim,
        columns: tuple[str, ...] = (),
        rows: Iterable[tuple[Any, ...]] = (),
        note: str = "",
        figure: Any = None,
    ) -> Exhibit:
        columns, rows = columns or tuple(words["columns"].get(name, ())), tuple(rows)
        if not columns:
            columns, rows = CLAIMED, tuple(map(_row, claims))
        note = note or words["notes"].get(name, "")
        return Exhibit(name, words["titles"][name], columns, rows, note, figure, settings, claims)

    return claim, exhibit


#: Columns of an exhibit with nothing but its claims to tabulate.
CLAIMED = ("item", "quantity", "as printed", "asked for", "corrected", "verdict")


def _row(claim: Claim) -> tuple[Any, ...]:
    check, corrected = claim.check, claim.corrected_check
    asked = f"{check.relation} {check.limit:.6g}"
    other = None if corrected is None else corrected.value
    return claim.item, check.what, check.value, asked, other, claim.verdict.value


def _filled(words: Any, values: dict[str, Any]) -> Any:
    """Words, or the words of a limit, with the values of this run."""
    if isinstance(words, str):
        return words.format(**values)
    return [words[0].format(**values), *words[1:]]


def _check(value: Check | float | None, asked: Any, named: dict[str, float]) -> Check | None:
    """The number against the limit of a statement: quantity, relation, limit and tolerance, which
    may be names."""
    if value is None or isinstance(value, Check):
        return value
    what, relation, *limits = asked
    numbers: list[Any] = [named.get(limit, limit) for limit in limits]
    return Check(what, value, relation, *numbers)
