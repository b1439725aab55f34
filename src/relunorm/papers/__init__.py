"""The seed papers re-run: one module per paper, one function per figure, table or theorem.

A paper joins by adding its module to `PAPERS`. The module holds ``EXHIBITS``, a dict from exhibit
name to a function ``(data, full, random_state) -> Exhibit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from relunorm.errors import InvalidInputError
from relunorm.papers.exhibit import Exhibit, Sample

#: Name on the command line -> module that re-runs the paper.
PAPERS = {
    "batchnorm": "relunorm.papers.batchnorm",
    "dying": "relunorm.papers.dying",
    "reduced": "relunorm.papers.reduced",
}

Make = Callable[..., Exhibit]

__all__ = ["PAPERS", "Exhibit", "Sample", "exhibits"]


def exhibits(paper: str) -> Mapping[str, Make]:
    """The exhibits of a paper by name, in the paper's order.

    >>> "figure5" in exhibits("batchnorm")
    True
    """
    home = PAPERS.get(paper)
    if home is None:
        raise InvalidInputError(f"no paper {paper!r}; there are {', '.join(PAPERS)}")
    found: Any = import_module(home)
    return found.EXHIBITS
