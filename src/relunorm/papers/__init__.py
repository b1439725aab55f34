"""The seed papers re-run: one function per figure, table, theorem or erratum.

A paper joins by adding its module to `PAPERS`. The module holds ``EXHIBITS``, a dict from exhibit
name to a function ``(data, full, random_state) -> Exhibit``. Beside it, ``KEY_claims`` may hold
``JUDGES``, functions that read claims off the table of an exhibit, and ``KEY_theorems`` more
``EXHIBITS``. `relunorm.papers.checklist` lists what a paper's claims have to cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from relunorm.errors import InvalidInputError
from relunorm.papers.claim import Check, Claim, Verdict
from relunorm.papers.exhibit import Exhibit, Make, Sample, judged

#: Name on the command line -> module that re-runs the paper, in the order of the seeds.
PAPERS = {
    "rescaling": "relunorm.papers.rescaling",
    "reduced": "relunorm.papers.reduced",
    "dying": "relunorm.papers.dying",
    "pieces": "relunorm.papers.pieces",
    "batchnorm": "relunorm.papers.batchnorm",
}

#: What each one is called.
TITLES = {
    "rescaling": "Seed 000: Normalization of single-layer ReLU networks",
    "reduced": "Seed 001: Reducing parameter space for neural network training",
    "dying": "Seed 002: The effect of target normalization and momentum on dying ReLU",
    "pieces": "Seed 003: Deep representation with ReLU neural networks",
    "batchnorm": "Seed 004: Batch normalization decomposed",
}

#: Modules that judge a paper's figures and that add its theorems.
_CLAIMS = {
    "reduced": ("relunorm.papers.reduced.claims", "relunorm.papers.reduced.theorems"),
    "dying": ("relunorm.papers.dying.claims", "relunorm.papers.dying.theorems"),
    "batchnorm": ("relunorm.papers.batchnorm.claims", "relunorm.papers.batchnorm.theorems"),
}

__all__ = [
    "PAPERS",
    "TITLES",
    "Check",
    "Claim",
    "Exhibit",
    "Make",
    "Sample",
    "Verdict",
    "exhibits",
    "paper_key",
    "read_sample",
]


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
    home: Any = _home(paper)
    found: dict[str, Make] = dict(home.EXHIBITS)
    if paper in _CLAIMS:
        figures, theorems = (import_module(name) for name in _CLAIMS[paper])
        for name, judge in figures.JUDGES.items():
            found[name] = judged(found[name], judge)
        found |= theorems.EXHIBITS
    return found


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
