"""The seed papers re-run: one function per figure, table, theorem or erratum.

A paper joins by adding its folder to `TITLES`. The folder's package holds ``WORLD``, the
`relunorm.papers.exhibit.World` its claims are computed in, and ``EXHIBITS``, a dict from exhibit
name to a function ``(world) -> Exhibit``.

Its ``statements.json`` lists every figure, theorem, tested equation and erratum, read off the
paper: titles, notes, costs and columns of the exhibits; exhibit by exhibit the items that its
claims decide, and of every item the statement as printed, in our words, the corrected one, the
quantities that test them, what is asked of each, and where that limit comes from; then, of every
other numbered equation and of sentences that claim something, why they have no row. It is written
apart from the exhibits: one that is lost, or that gives another claim than the list promises, is an
error. Items named "ours" are statements of docs/errata.md that no paper makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from relunorm.errors import InvalidInputError
from relunorm.papers.claim import LEVEL, ROUNDING, Check, Claim
from relunorm.papers.exhibit import Exhibit, Make, Sample, World

#: Name on the command line -> what the paper is called, in the order of the seeds.
TITLES = {
    "rescaling": "Seed 000: Normalization of single-layer ReLU networks",
    "reduced": "Seed 001: Reducing parameter space for neural network training",
    "dying": "Seed 002: The effect of target normalization and momentum on dying ReLU",
    "pieces": "Seed 003: Deep representation with ReLU neural networks",
    "batchnorm": "Seed 004: Batch normalization decomposed",
}
#: Name -> module that re-runs the paper.
PAPERS = {name: f"relunorm.papers.{name}" for name in TITLES}


def paper_key(name: str) -> str:
    """A paper's key from its seed's number; a key, or what is none, comes back as it is.

    >>> paper_key("003"), paper_key("pieces")
    ('pieces', 'pieces')
    """
    return {f"{number:03}": key for number, key in enumerate(PAPERS)}.get(name, name)


def exhibits(paper: str) -> Mapping[str, Make]:
    """The exhibits of a paper by name, in the paper's order, figures before theorems.

    >>> "figure5" in exhibits("batchnorm")
    True
    """
    return dict(_home(paper).EXHIBITS)


def world_of(
    paper: str, data: Sample | None = None, full: bool = False, random_state: int = 0, **laws: Any
) -> World:
    """The world a paper's exhibits are made in; ``laws`` replace ingredients of it.

    >>> world_of("rescaling", tiny=True).tiny
    True
    """
    kind: type[World] = _home(paper).WORLD
    return kind(data, full, random_state, **laws)


def read_sample(paper: str, data: str | None = None, target: str | None = None) -> Sample:
    """The data a paper's exhibits run on: a table of the user's, or what scikit-learn carries."""
    own = getattr(_home(paper), "read_sample", None)
    if own is not None:  # a paper on regression reads its own data; the others use classes
        return own(data, target)
    if data is None:
        return Sample.digits()
    import numpy as np

    from relunorm.io.table import read_table

    table = read_table(Path(data), target)
    labels = None
    if table.y is not None:
        labels = np.unique(table.y, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return Sample(table.x, labels, data)


def _home(paper: str) -> Any:
    if paper not in PAPERS:
        there = ", ".join(f"{key} ({number:03})" for number, key in enumerate(PAPERS))
        raise InvalidInputError(f"no paper {paper!r}; there are {there}")
    return import_module(PAPERS[paper])


@cache
def statements(paper: str) -> dict[str, dict[str, Any]]:
    """What a paper's ``statements.json`` holds; ``exhibits`` has the items of each in its order."""
    return json.loads((Path(__file__).parent / paper / "statements.json").read_text("utf-8"))


def items(paper: str) -> tuple[str, ...]:
    """All items of a paper, exhibit by exhibit."""
    return tuple(item for part in statements(paper)["exhibits"].values() for item in part)


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
    words = statements(paper)
    known = {item: said for own in words["exhibits"].values() for item, said in own.items()}
    own_words = {field.name for field in fields(Claim)}

    def claim(
        item: str, check: Check | float, corrected: Check | float | None = None, **more: Any
    ) -> Claim:
        values = {name: more.pop(name) for name in more.keys() - own_words}
        said = {k: _filled(v, values) if values else v for k, v in known[item].items()}
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


#: Limits that statements give by name.
_LIMITS = {"rounding": ROUNDING, "level": LEVEL}
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
