"""Solvers by name, and which one suits a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from math import inf
from numbers import Integral, Real
from typing import Any

from relunorm.errors import InvalidInputError
from relunorm.train.problem.task import Fit


@dataclass(frozen=True)
class Solver:
    """A solver: one file, or a function of one.

    Attributes:
        module, function: where it is.
        options: the names of its own, all of them positive.
        robust: whether inputs are scaled by their bulk where a few values are far away; not the
            papers' own runs, and not steps of a fixed size.
        penalized: whether ``alpha='auto'`` means a penalty; not for a certificate, and not for
            the papers' own runs.
        second_order: whether it holds the normal equations of all parameters.
    """

    module: str
    function: str
    options: tuple[str, ...] = ()
    robust: bool = False
    penalized: bool = True
    second_order: bool = False

    def load(self) -> Callable[..., Fit]:
        return getattr(import_module(f"relunorm.train.solve.{self.module}"), self.function)


#: Those of regressions, in the order they are offered.
SOLVERS = {
    "exact": Solver("exact", "solve_exact", robust=True, penalized=False),
    "greedy": Solver("greedy", "solve_greedy", robust=True, second_order=True),
    "deep": Solver("deep", "solve_deep", robust=True, second_order=True),
    "adam": Solver("adam", "solve_adam", ("batch", "epochs", "lr")),
    "slsqp": Solver("descent", "solve_slsqp", ("max_iter",), penalized=False, second_order=True),
    "bfgs": Solver("descent", "solve_bfgs", ("max_iter",), penalized=False, second_order=True),
    "lbfgs": Solver("descent", "solve_lbfgs", ("max_iter",), penalized=False),
}

#: Those of classifiers.
CLASSIFIERS = {
    "logistic": Solver("logistic", "solve_logistic", robust=True),
    "adam": SOLVERS["adam"],
}

#: What ``auto`` calls where either of two may be right; not for users to ask for.
UNDECIDED = {
    "exact or greedy": Solver("automatic", "solve_one_input"),
    "greedy or deep": Solver("automatic", "solve_one_layer"),
}
UNDECIDED_BETWEEN = {"exact": "exact or greedy", "greedy": "greedy or deep"}

#: Multiplications of one second-order iteration above which mini-batches are used instead.
SECOND_ORDER = 4e9


#: Parameters that any solver is given at most, and bytes of normal equations a second-order one.
MOST_PARAMETERS, MOST_BYTES = 2 * 10**8, 4 * 2**30


def solver(name: str) -> Callable[..., Fit]:
    """The solver's function."""
    return described(name).load()


def described(name: str) -> Solver:
    """What is known of a solver."""
    known = {**SOLVERS, **CLASSIFIERS, **UNDECIDED}
    if name not in known:
        raise InvalidInputError(f"solver {name!r} is not known; use auto, {', '.join(SOLVERS)}")
    return known[name]


def check_options(options: dict[str, Any]) -> None:
    """Refuse options that no solver has, and values that make no sense.

    Those of another solver are left unused: ``auto`` may choose either.

    Raises:
        InvalidInputError: an unknown name, or a value that is not a positive number.
    """
    for key, value in options.items():
        if not any(key in solver.options for solver in SOLVERS.values()):
            known = ", ".join(
                f"{name}: {' '.join(solver.options)}"
                for name, solver in SOLVERS.items()
                if solver.options
            )
            raise InvalidInputError(f"no solver has an option {key!r}; there are {known}")
        kind = Real if key == "lr" else Integral
        number = isinstance(value, kind) and not isinstance(value, bool)
        positive = number and 0 < float(value) < inf
        if not positive:
            raise InvalidInputError(
                f"option {key}={value!r}: expected a positive "
                f"{'number' if key == 'lr' else 'whole number'}"
            )


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
    parameters = parameter_count(inputs, hidden)
    if single and inputs == outputs == 1 and rows >= 6 * hidden[0] and not alpha:
        return "exact"
    if parameters**2 * (rows + parameters) > SECOND_ORDER:
        return "adam"
    return "greedy" if single else "deep"


def parameter_count(inputs: int, hidden: tuple[int, ...]) -> int:
    """Weights and thresholds of the hidden layers."""
    return sum((a + 1) * b for a, b in pairwise((inputs, *hidden)))


def check_size(name: str, rows: int, inputs: int, hidden: tuple[int, ...]) -> None:
    """Refuse what could only end with the memory used up.

    Raises:
        InvalidInputError: there are too many parameters for the solver.
    """
    if name == "greedy":
        # it never places more units than half the rows
        hidden = (min(hidden[0], max(1, rows // 2)),)
    count = parameter_count(inputs, hidden)
    if count > MOST_PARAMETERS:
        raise InvalidInputError(
            f"hidden={hidden} with {inputs} inputs has {count:,} parameters; at most "
            f"{MOST_PARAMETERS:,} are supported: use fewer units"
        )
    if described(name).second_order and 8 * count**2 > MOST_BYTES:
        raise InvalidInputError(
            f"solver {name!r} needs {8 * count**2 / 2**30:,.0f} GiB for the normal equations of "
            f"{count:,} parameters; use fewer units, or solver='adam'"
        )
