"""Solvers by name, and which one suits a task."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise

from relunorm.errors import InvalidInputError
from relunorm.train.task import Fit, Task

#: Name -> (module, function); each solver is one file.
SOLVERS = {
    "exact": ("relunorm.train.exact", "solve_exact"),
    "greedy": ("relunorm.train.greedy", "solve_greedy"),
    "deep": ("relunorm.train.deep", "solve_deep"),
    "adam": ("relunorm.train.adam", "solve_adam"),
    "slsqp": ("relunorm.train.slsqp", "solve_slsqp"),
    "bfgs": ("relunorm.train.bfgs", "solve_bfgs"),
    "lbfgs": ("relunorm.train.lbfgs", "solve_lbfgs"),
}

#: Multiplications of one second-order iteration above which mini-batches are used instead.
SECOND_ORDER = 4e9


def solver(name: str) -> Callable[[Task], Fit]:
    """The solver's function."""
    if name not in SOLVERS:
        raise InvalidInputError(f"solver {name!r} is not known; use auto, {', '.join(SOLVERS)}")
    module, function = SOLVERS[name]
    return getattr(import_module(module), function)


def suitable(
    rows: int, inputs: int, outputs: int, hidden: tuple[int, ...], alpha: float | None
) -> str:
    """What ``solver='auto'`` means.

    ``exact`` where a certificate is possible and the rows clearly outnumber the knots, ``greedy``
    and ``deep`` while one second-order iteration stays cheap, ``adam`` beyond.

    >>> suitable(200, 1, 1, (20,), None), suitable(500, 2, 1, (40,), None)
    ('exact', 'greedy')
    >>> suitable(10**6, 20, 1, (20,), None)
    'adam'
    """
    single = len(hidden) == 1
    if single and inputs == outputs == 1 and rows >= 6 * hidden[0] and not alpha:
        return "exact"
    sizes = (inputs, *hidden)
    parameters = sum((a + 1) * b for a, b in pairwise(sizes))
    if parameters**2 * (rows + parameters) > SECOND_ORDER:
        return "adam"
    return "greedy" if single else "deep"
