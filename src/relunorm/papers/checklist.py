"""Every figure, theorem, tested equation and erratum of the five papers, read off the papers.

Each paper's folder has a ``statements.json``: exhibit by exhibit the items that its claims decide,
and of every item the statement as printed, in our words, the corrected one, and where the limit
comes from; then, of every other numbered equation and of sentences that claim something, why they
have no row. It is written apart from the exhibits: one that is lost, or that gives another claim
than the list promises, is an error. Items named "ours" are statements of docs/errata.md that no
paper makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relunorm.papers import PAPERS
from relunorm.papers.claim import Check, Claim


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
    """``claim(item, check, corrected_check)``: a claim in the words of the paper's statements.

    Further arguments are those words of a `Claim` that depend on the run.

    >>> claims_of("rescaling")("Lemma 1, construction", Check("off by", 0, "<=", 1)).printed
    'divide the row w_i and the bias b_i by |v_i|'
    """
    exhibits = _STATEMENTS[paper]["exhibits"].values()
    words = {item: said for own in exhibits for item, said in own.items()}

    def claim(item: str, check: Check, corrected: Check | None = None, **more: str) -> Claim:
        return Claim(item=item, check=check, corrected_check=corrected, **{**words[item], **more})

    return claim
