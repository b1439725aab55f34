"""The search for regions on processes, here or on a cluster, through joblib.

A search divides into independent parts (`work.divided`) that the network and the domain alone fix.
So nothing but these travels: every task divides the search again, which is cheap, and runs its
share of the parts. Put together in their order, the answers are what one process would have found.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.network import Network
from relunorm.regions.search.engines import parts
from relunorm.regions.search.window import open_window
from relunorm.regions.search.work import Batch, Budget, CellLimitError, run
from relunorm.sweep.backends import Placement, ambient_jobs
from relunorm.sweep.tasks import WorkerDiedError, spread

#: Parts of a search, whatever the backend and its workers: the same parts, the same bits.
DIVISION = 64

#: Tasks a worker gets, on average: few, since each divides the search again.
TASKS = 4


@dataclass(frozen=True, eq=False)
class Share:
    """What a task found.

    Attributes:
        batches: those of every job the task ran, by job.
        failures: linear programmes that did not converge.
        hidden: how often a side thinner than the tolerance was left out.
        stopped: whether a limit ended it.
        beyond_cells: the message of a `CellLimitError`, or "".
    """

    batches: dict[int, list[Batch]] = field(default_factory=dict)
    failures: int = 0
    hidden: int = 0
    stopped: bool = False
    beyond_cells: str = ""


@dataclass(frozen=True, eq=False)
class Searcher:
    """A search, ready to travel; called with the jobs to run.

    Attributes:
        network: without linear stages.
        clock: when to stop. Clocks of other machines should agree.
    """

    network: Network
    domain: Domain | None
    method: str
    max_regions: int | None
    clock: Clock

    def __call__(self, jobs: Sequence[int]) -> Share:
        """Run some of the jobs."""
        with self.clock.watch() as stop:
            return self._run(jobs, stop)

    def _run(self, jobs: Sequence[int], stop: NDArray[np.uint8]) -> Share:
        if self.clock.expired():
            return Share(stopped=True)
        window = open_window(self.network, self.domain)
        budget = Budget(self.clock, self.max_regions)
        found: dict[int, list[Batch]] = {}
        try:
            every = parts(self.method, self.network, window, DIVISION, stop)
            if self.clock.expired():  # perhaps on the way: these are not everybody's parts
                return Share(stopped=True)
            for job in jobs:
                part = every[job]
                found[job] = list(part.found)
                budget.book(sum(len(b.points) for b in part.found), lambda: 0.0)
                if part.work is not None and part.work.more() and not budget.spent:
                    found[job] += run(part.work, 1, budget)
                if budget.spent:
                    return Share(found, budget.failures, budget.hidden, stopped=True)
        except CellLimitError as error:
            return Share(beyond_cells=str(error))
        return Share(found, budget.failures, budget.hidden)


def search_far(
    network: Network,
    domain: Domain | None,
    method: str,
    budget: Budget,
    place: Placement,
) -> list[Batch]:
    """Every batch, in the order of one search.

    Args:
        network: without linear stages.
    """
    with place.entered():
        window = open_window(network, domain)
        with budget.clock.watch() as stop:
            jobs = len(parts(method, network, window, DIVISION, stop))
        searcher = Searcher(network, domain, method, budget.max_regions, budget.clock)
        return _gather(searcher, jobs, budget)


def _gather(searcher: Searcher, jobs: int, budget: Budget) -> list[Batch]:
    kept: dict[int, list[Batch]] = {}
    # Neighbouring jobs are of similar size, so every task takes one here and one there.
    count = min(jobs, TASKS * ambient_jobs())
    tasks = [range(first, jobs, count) for first in range(count)]
    try:
        with closing(spread(searcher, tasks, go_on=lambda: not budget.reason)) as shares:
            for _, share in shares:
                _book(share, kept, jobs, budget)
    except KeyboardInterrupt:
        budget.stop(INTERRUPTED)
    return [batch for job in sorted(kept) for batch in kept[job]]


def _book(
    share: Share | WorkerDiedError, kept: dict[int, list[Batch]], jobs: int, budget: Budget
) -> None:
    if isinstance(share, WorkerDiedError):
        budget.stop("a worker process died")
        return
    if share.beyond_cells:
        raise CellLimitError(share.beyond_cells)
    kept.update(share.batches)
    budget.failures += share.failures
    budget.hidden += share.hidden
    found = sum(len(batch.points) for some in share.batches.values() for batch in some)
    budget.book(found, lambda: len(kept) / jobs)
    if share.stopped and budget.clock.limited:
        budget.stop(TIME_LIMIT)
