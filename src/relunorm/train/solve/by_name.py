"""Solvers by name, which one suits a task, and what ``auto`` does where either of two may be right.

One input: the certified optimum has no penalty. On data free of noise that is what is wanted; on
noisy or stepped targets it follows the noise, with spikes between the rows.

Several inputs: Levenberg-Marquardt from many random starts may find what units that were chosen one
by one do not, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.train.holdout import SMALL, Clean, within
from relunorm.train.problem.task import Fit, Task
from relunorm.train.solve.adam import solve_adam
from relunorm.train.solve.deep import STAGES, STARTS, solve_deep
from relunorm.train.solve.descent import solve_bfgs, solve_lbfgs, solve_slsqp
from relunorm.train.solve.exact import solve_exact
from relunorm.train.solve.greedy import solve_greedy
from relunorm.train.solve.logistic import solve_logistic


@dataclass(frozen=True)
class Solver:
    """A solver.

    Attributes:
        solve: from a `Task` to a `Fit`.
        options: the names of its own, all of them positive.
        robust: whether inputs are scaled by their bulk where a few values are far away; not the
            papers' own runs, and not steps of a fixed size.
        penalized: whether ``alpha='auto'`` means a penalty; not for a certificate, and not for
            the papers' own runs.
        second_order: whether it holds the normal equations of all parameters.
        batches: whether it draws rows, in float32 and copies apart; others get the distinct rows
            with their total weights.
    """

    solve: Callable[..., Fit]
    options: tuple[str, ...] = ()
    robust: bool = False
    penalized: bool = True
    second_order: bool = False
    batches: bool = False


#: Those of regressions, in the order they are offered.
SOLVERS = {
    "exact": Solver(solve_exact, robust=True, penalized=False),
    "greedy": Solver(solve_greedy, robust=True, second_order=True),
    "deep": Solver(solve_deep, robust=True, second_order=True),
    "adam": Solver(solve_adam, ("batch", "epochs", "lr"), batches=True),
    "slsqp": Solver(solve_slsqp, ("max_iter",), penalized=False, second_order=True),
    "bfgs": Solver(solve_bfgs, ("max_iter",), penalized=False, second_order=True),
    "lbfgs": Solver(solve_lbfgs, ("max_iter",), penalized=False),
}

#: Those of classifiers.
CLASSIFIERS = {"logistic": Solver(solve_logistic, robust=True), "adam": SOLVERS["adam"]}

#: Multiplications of one second-order iteration above which mini-batches are used instead.
SECOND_ORDER = 4e9


#: Parameters that any solver is given at most, and bytes of normal equations a second-order one.
MOST_PARAMETERS, MOST_BYTES = 2 * 10**8, 4 * 2**30


def solver(name: str) -> Callable[..., Fit]:
    """The solver's function."""
    return described(name).solve


def described(name: str) -> Solver:
    """What is known of a solver."""
    known = {**SOLVERS, **CLASSIFIERS, **UNDECIDED}
    if name not in known:
        raise InvalidInputError(f"solver {name!r} is not known; use auto, {', '.join(SOLVERS)}")
    return known[name]


def check_options(options: dict[str, Any]) -> None:
    """Refuse options that no solver has, and values that make no sense.

    Those of another solver are left unused: ``auto`` may choose either.
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
    """Refuse what could only end with the memory used up."""
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


#: Seconds on one modest core that the second search may take where no time limit is set.
WORTH = 5.0


def solve_one_input(task: Task) -> Fit:
    """``exact`` if its first fit leaves less than 0.2 % of the variance and has no spike.

    Otherwise a small table goes to ``greedy``; ``exact`` and ``greedy`` are fitted to four fifths
    of a larger one, and the one with the smaller error on the others is fitted to all. With a
    penalty given, ``greedy``.
    """
    if task.alpha:
        return _named(solve_greedy(task), "greedy")
    first = solve_exact(replace(task, alpha=0.0), give_up=is_noisy)
    if task.alpha == 0 or first.stopped == "interrupted" or not first.facts["given_up"]:
        return _named(first, "exact")
    if len(task.x) <= SMALL:
        # a fifth of so few rows cannot tell, and only `greedy` may become a plane
        return _named(solve_greedy(task), "greedy")
    held, part = _held_out(task)
    plain = solve_exact(replace(part, alpha=0.0, rounds=1, clock=task.clock.until(1 / 4)))
    careful = solve_greedy(replace(part, rounds=1, clock=task.clock.until(1 / 2)))
    rows = task.x[held], task.y[held], task.weight[held]
    if _error(plain, *rows) <= _error(careful, *rows):
        return _named(solve_exact(replace(task, alpha=0.0)), "exact")
    return _named(solve_greedy(task), "greedy")


def is_noisy(loss: float, spike: float) -> bool:
    """Whether a first fit says that the data is not free of noise."""
    return loss > Clean().share or spike > 1


def solve_one_layer(task: Task) -> Fit:
    """``greedy``, or ``deep`` with the same penalty where that predicts held-out rows better.

    With a time limit, a given effort or few rows ``greedy`` alone: the second search costs about
    three times the first.
    """
    fit = solve_greedy(task)
    same = replace(
        task, hidden=(len(fit.layers[0][1]),), alpha=fit.alpha, affine=fit.affine, progress=None
    )
    # equations for the stages of one knock-out, as `Task.affordable` counts them
    work = STARTS * sum(steps * share for steps, share in STAGES)
    seconds = work / max(replace(same, clock=Clock(1.0)).affordable(1.0), 1e-300)
    limited = task.clock.limited or task.rounds is not None or task.watch is not None
    plane = fit.alpha >= 1 or not task.skip
    if fit.stopped or limited or plane or len(task.x) <= SMALL or seconds > WORTH:
        return _named(fit, "greedy")
    held, part = _held_out(same)
    rows = task.x[held], task.y[held], task.weight[held]
    task.report("greedy or deep", float("nan"), fit.loss)
    other = solve_deep(part)
    if other.stopped or _error(other, *rows) >= _error(solve_greedy(part), *rows):
        return _named(replace(fit, stopped=other.stopped), "greedy")
    return _named(solve_deep(replace(same, progress=task.progress)), "deep")


#: What ``auto`` calls where either of two may be right; not for users to ask for.
UNDECIDED = {
    "exact or greedy": Solver(solve_one_input),
    "greedy or deep": Solver(solve_one_layer),
}
UNDECIDED_BETWEEN = {"exact": "exact or greedy", "greedy": "greedy or deep"}


def _held_out(task: Task) -> tuple[Tensor, Task]:
    """A fifth of the rows, but for those far outside the others, and the task on the others."""
    order = torch.randperm(len(task.x), generator=task.generator(93), device=task.x.device)
    held, kept = order[: len(order) // 5], order[len(order) // 5 :].sort().values
    part = replace(task.rows(kept), progress=None)
    return within(part.x, task.x, held), part


def objective(fit: Fit) -> float:
    """What fits of one task are compared by: error on held-out rows if there are any, else loss
    and penalty."""
    if fit.watched:
        return min(fit.watched)
    held = fit.alpha * float(np.square(fit.output).sum())
    return fit.loss + held + fit.affine * float(np.square(fit.skip).sum())


def _named(fit: Fit, solver: str) -> Fit:
    return replace(fit, facts={**fit.facts, "solver": solver})


def _error(fit: Fit, x: Tensor, y: Tensor, weight: Tensor) -> float:
    """Weighted squared error of a shallow fit."""
    (w, b), x = (torch.from_numpy(part) for part in fit.layers[0]), x.cpu()
    hidden = (x @ w.mT + b).clamp_min(0)
    output, skip, bias = (torch.from_numpy(part) for part in (fit.output, fit.skip, fit.bias))
    residual = hidden @ output.mT + x @ skip.mT + bias - y.cpu()
    return float((weight.cpu() * residual.square().sum(dim=1)).sum())
