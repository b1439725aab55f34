"""Several fits from different seeds, the best one kept; spread over joblib.

The first fit runs here and chooses the penalty; the others take it over, so that all are measured
by the same objective, mean squared error + penalty. Each fit runs on one thread from its own
seed: the answer does not depend on the backend or the number of jobs.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock
from relunorm.errors import RelunormError
from relunorm.sweep.backends import placed
from relunorm.sweep.tasks import WorkerDiedError, single_threaded, spread
from relunorm.train.problem.task import Fit, Task
from relunorm.train.solve.automatic import objective
from relunorm.train.solve.by_name import solver


@dataclass(frozen=True, eq=False)
class Restart:
    """A task without its seed, ready to travel; called with the seed.

    Its clock travels as time of day: those of other machines should agree.
    """

    name: str
    task: Task

    def __call__(self, seed: int) -> Fit:
        """One fit."""
        own = replace(self.task, seed=seed, clock=Clock(self.task.clock))
        return solver(self.name)(own.with_fresh_watch())


def best_fit(name: str, task: Task, restarts: int, n_jobs: int | None) -> tuple[Fit, list[float]]:
    """The best of several fits, and the objective of every one that was finished.

    Args:
        name: the solver.
        task: its seed is that of the first fit; the others' are drawn from it.
        restarts: how many fits.
        n_jobs: fits at a time; None honours an ambient ``joblib.parallel_config``.
    """
    if restarts == 1:
        only = solver(name)(task)
        return only, [objective(only)]
    with single_threaded():
        first = solver(name)(task.with_fresh_watch())
    fits = {0: first}
    rest = Restart(name, replace(task, alpha=first.alpha, affine=first.affine, progress=None))
    draws = np.random.SeedSequence([task.seed, 11]).generate_state(restarts - 1)
    seeds = [int(draw) >> 1 for draw in draws]

    def go_on() -> bool:
        return not task.spent and not any(fit.stopped == "interrupted" for fit in fits.values())

    interrupted = False
    try:
        with placed(None, None, n_jobs), closing(spread(rest, seeds, go_on=go_on)) as found:
            for index, fit in found:
                if isinstance(fit, WorkerDiedError):
                    raise RelunormError(f"restart {index + 1} of {restarts} failed: {fit}")
                fits[index + 1] = fit
                best = min(fits.values(), key=objective)
                task.report("restarts", len(fits) / restarts, best.loss)
    except KeyboardInterrupt:
        interrupted = True
    best = min((fits[k] for k in sorted(fits)), key=objective)
    if interrupted or any(fit.stopped == "interrupted" for fit in fits.values()):
        best = replace(best, stopped=INTERRUPTED)
    elif len(fits) < restarts:
        best = replace(best, stopped=TIME_LIMIT)
    return best, [objective(fits[k]) for k in sorted(fits)]
