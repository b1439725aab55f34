"""The search for regions on processes, here or on a cluster, through joblib.

A search is a list of independent jobs (subtrees, groups of faces) that the network, the domain and
the number of workers fix. So nothing but these travels: every task divides the search again, which
is cheap, and runs its share of the jobs. Put together in the order of the list, the answers are
what one process would have found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from relunorm.domain import Domain
from relunorm.network import Network
from relunorm.regions.enumerate import Batch, Budget, divided
from relunorm.regions.limits import CellLimitError
from relunorm.regions.window import open_window
from relunorm.sweep.ambient import ambient_jobs
from relunorm.sweep.backends import placed
from relunorm.sweep.tasks import WorkerDiedError, spread

#: The search is divided as for this many threads, whatever the backend and its workers: the same
#: jobs, the same bits.
DIVISION = 8

#: Tasks a worker gets, on average: few, since each divides the search again.
TASKS = 4


@dataclass(frozen=True, eq=False)
class Share:
    """What a task found.

    Attributes:
        batches: those of every job the task ran, by job.
        failures: linear programmes that did not converge.
        stopped: whether a limit ended it.
        beyond_cells: the message of a `CellLimitError`, or "".
    """

    batches: dict[int, list[Batch]] = field(default_factory=dict)
    failures: int = 0
    stopped: bool = False
    beyond_cells: str = ""


@dataclass(frozen=True, eq=False)
class Searcher:
    """A search, ready to travel; called with the jobs to run.

    Attributes:
        network: without linear stages.
        deadline: `time.time` after which to stop, or None. Clocks of other machines should agree.
    """

    network: Network
    domain: Domain | None
    method: str
    max_regions: int | None
    deadline: float | None

    def __call__(self, jobs: Sequence[int]) -> Share:
        """Run some of the jobs."""
        left = None if self.deadline is None else self.deadline - time.time()
        if left is not None and left <= 0:
            return Share(stopped=True)
        window = open_window(self.network, self.domain)
        net = window.pack(self.network)
        budget = Budget(time.perf_counter(), self.max_regions, left, None)
        every = divided(self.method, net, window, DIVISION, budget)
        found: dict[int, list[Batch]] = {}
        try:
            for job in jobs:
                kept = found.setdefault(job, [])
                for batch in every[job]():
                    kept.append(batch)
                    if not budget.spend(len(batch.points)):
                        return Share(found, budget.failures, stopped=True)
        except CellLimitError as error:
            return Share(beyond_cells=str(error))
        return Share(found, budget.failures)


def search_far(
    network: Network,
    domain: Domain | None,
    method: str,
    budget: Budget,
    backend: str | None,
    scheduler: str | None,
    workers: int | None,
) -> list[list[Batch]]:
    """Every job's batches, in the order of the jobs.

    Args:
        network: without linear stages.
        backend, scheduler, workers: see `relunorm.sweep.backends.placed`.
    """
    with placed(backend, scheduler, workers):
        window = open_window(network, domain)
        jobs = len(divided(method, window.pack(network), window, DIVISION, budget))
        limit = budget.time_limit
        deadline = None if limit is None else time.time() + limit - budget.elapsed
        searcher = Searcher(network, domain, method, budget.max_regions, deadline)
        return _gather(searcher, jobs, budget)


def _gather(searcher: Searcher, jobs: int, budget: Budget) -> list[list[Batch]]:
    kept: list[list[Batch]] = [[] for _ in range(jobs)]
    budget.jobs = jobs
    # Neighbouring jobs are of similar size, so every task takes one here and one there.
    count = min(jobs, TASKS * ambient_jobs())
    tasks = [range(first, jobs, count) for first in range(count)]
    try:
        with closing(spread(searcher, tasks, go_on=lambda: not budget.reason)) as shares:
            for index, share in shares:
                _book(tasks[index], share, kept, budget)
    except KeyboardInterrupt:
        budget.stop("interrupted")
    return kept


def _book(
    jobs: range, share: Share | WorkerDiedError, kept: list[list[Batch]], budget: Budget
) -> None:
    if isinstance(share, WorkerDiedError):
        budget.stop("a worker process died")
        return
    if share.beyond_cells:
        raise CellLimitError(share.beyond_cells)
    for job, batches in share.batches.items():
        kept[job] = batches
    budget.failures += share.failures
    budget.jobs_done += len(jobs)
    budget.spend(sum(len(b.points) for some in share.batches.values() for b in some))
    if share.stopped and budget.time_limit is not None:
        budget.stop(f"time_limit = {budget.time_limit:g} s")
