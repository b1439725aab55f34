"""The seed papers re-run: one function per figure, table, theorem or erratum.

A paper joins by adding its folder to `TITLES`. The folder's package holds ``WORLD``, the
`relunorm.papers.exhibit.World` its claims are computed in, and ``EXHIBITS``, a dict from exhibit
name to a function ``(world) -> Exhibit``. `relunorm.papers.checklist` lists what a paper's claims
have to cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from relunorm.errors import InvalidInputError
from relunorm.papers.claim import Check, Claim, Verdict
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

__all__ = [
    "PAPERS",
    "TITLES",
    "Check",
    "Claim",
    "Exhibit",
    "Make",
    "Sample",
    "Verdict",
    "World",
    "exhibits",
    "paper_key",
    "read_sample",
    "world_of",
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
