"""A search by several workers: threads of this process, or tasks on others, through joblib.

Threads share the open nodes: each takes a node, explores below it and puts back what stays open.

Processes work in rounds. The open nodes are dealt to some tasks for every worker, and what travels
with them is the question, the numbers of the first node and the best point. A task is a search of
its own, alone with its nodes for a number of seconds; it comes back with what it left open. Every
node has a number of its own wherever it was made, so the tapes of all tasks are one tape. Nodes
whose task does not come back, for whatever reason, are still open here: the interval is sound.
"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock, Teller
from relunorm.search.attack import Attack
from relunorm.search.chunk import Found, explored
from relunorm.search.proofs.tape import Tape
from relunorm.search.root import Task

if TYPE_CHECKING:
    from relunorm.search.engine import Search

#: Tasks a worker gets in a round, on average, so that none waits long for the last one.
TASKS = 4

#: Seconds of the first round, the factor from one to the next, and the most: a better point is
#: known to all in the next round, and Ctrl-C loses what a round has not brought back.
FIRST_ROUND, GROWTH, LONGEST_ROUND = 0.5, 1.25, 10.0

#: A round lasts at least so many times what the one before took beyond its seconds, the first with
#: its new processes apart: Ray starts new ones in every round.
WORTH = 2.0

#: Nodes a task gets at most, and numbers that travel in a round: 128 MB.
MOST_NODES, MOST_NUMBERS = 256, 1 << 24

#: Numbers for the nodes that a task makes, and nodes it may look at: each may be cut in two.
NAMES, MOST_LOOKED_AT = 1 << 30, 1 << 28


def on_threads(search: Search, clock: Clock, tell: Teller, stop: NDArray[np.uint8]) -> None:
    """Take nodes to threads until nothing is left or the time is up."""
    free = list(range(search.place.threads))
    taken: dict[Future[Found], int] = {}
    with ThreadPoolExecutor(search.place.threads) as pool:
        try:
            while taken or not search.settled(clock):
                while free and not search.settled(clock):
                    hand = object()
                    task, place = search.take(hand), free.pop()
                    space, reserved = search.space(place), search.reserved()
                    job = pool.submit(explored, search, task, space, clock, stop, *reserved)
                    search.open.running[job], taken[job] = [task], place
                    del search.open.running[hand]
                for job in wait(taken, return_when=FIRST_COMPLETED).done:
                    search.keep(job.result())
                    del search.open.running[job]
                    free.append(taken.pop(job))
                if not search.settled(clock):
                    search.attack_more(clock)
                search.report(tell)
        except BaseException:
            stop[0] = 1
            for job in list(taken):
                search.keep(job.result())
                del search.open.running[job], taken[job]
            for who in list(search.open.running):
                search.open.give_back(who)
            raise


def on_processes(search: Search, clock: Clock, tell: Teller) -> None:
    """Rounds of tasks on the ambient joblib backend, until nothing is left or the time is up.

    Once tasks have killed their workers twice the search ends: they would do so again.
    """
    if search.settled(clock):
        return
    from relunorm.sweep.backends import ambient_jobs
    from relunorm.sweep.tasks import WorkerDiedError, spread

    def go_on() -> bool:
        return not (search.reached or search.died or clock.expired())

    jobs, seconds, search.died = ambient_jobs(), FIRST_ROUND, False
    beyond = 0.0
    while not (search.settled(clock) or search.died):
        round_ = Clock(clock)
        try:
            shares = _dealt(search, clock, jobs, seconds)
            tasks = spread(Explorer(search, clock), shares, go_on=go_on)
            with closing(tasks) as results:
                for number, found in results:
                    if isinstance(found, WorkerDiedError):
                        search.died = True
                        continue
                    search.keep(found)
                    del search.open.running[number]
                    search.report(tell)
                    if search.reached:
                        break
        finally:
            for number in list(search.open.running):
                search.open.give_back(number)
        if seconds > FIRST_ROUND:
            beyond = round_.elapsed() - shares[0].seconds * max(len(shares) / jobs, 1.0)
        seconds = max(min(GROWTH * seconds, LONGEST_ROUND), WORTH * beyond)


@dataclass(frozen=True, eq=False)
class Share:
    """What one task gets.

    Attributes:
        nodes: open ones.
        marks: the first of NAMES numbers for new nodes.
        most: nodes to look at.
        seed: of the attacks.
        taped: whether to write what happens.
    """

    nodes: list[Task]
    seconds: float
    marks: int
    most: float
    seed: int
    taped: bool


def _dealt(search: Search, clock: Clock, jobs: int, seconds: float) -> list[Share]:
    """The open nodes, those with the largest bounds first, in turns to one task after the other."""
    open_ = search.open
    count = min(len(open_.waiting), TASKS * jobs)
    waiting = sorted(open_.waiting)
    nodes = [task for *_, task in waiting]
    sizes = np.cumsum([task.weight for task in nodes])
    sent = min(int(np.searchsorted(sizes, MOST_NUMBERS)), MOST_NODES * count)
    sent = min(max(sent, count), len(nodes))
    hands: dict[Hashable, list[Task]] = {k: nodes[k:sent:count] for k in range(count)}
    # never in neither of the two, whenever Ctrl-C comes
    open_.running, open_.waiting = hands, waiting[sent:]
    open_.weight -= int(sizes[sent - 1])
    if count < jobs:  # too few for all: come back soon with more of them
        seconds = FIRST_ROUND
    each = min(seconds, clock.left()) * min(jobs / count, 1.0)
    most = min((search.most - search.nodes) / count, MOST_LOOKED_AT)
    shares = []
    for hand in open_.running.values():
        seed = int(search.attack.rng.integers(1 << 62))
        shares.append(Share(hand, each, search.marks, most, seed, search.proof is not None))
        search.marks += NAMES
    return shares


@dataclass(frozen=True, eq=False)
class Explorer:
    """A search, ready to travel; called with a share of its nodes.

    Attributes:
        search: a pickle of it has no nodes, no tape and no attack.
        clock: when to stop. Clocks of other machines should agree.
    """

    search: Search
    clock: Clock

    def __call__(self, share: Share) -> Found:
        """Search below these nodes."""
        from relunorm.search.engine import warm_up

        search = self.search
        Teller(None, self.clock).compile("the search", warm_up)
        search.proof = Tape() if share.taped else None
        search.attack = Attack(search.network, search.domain, search.groups, share.seed)
        search.attack.offer(search.point[None])
        search.marks, search.ceiling, search.lost = share.marks, -np.inf, 0
        search.spent = [0.0, 0.0]
        nodes, learned = search.nodes, search.learned.copy()
        search.most = nodes + share.most
        for task in share.nodes:
            search.open.add(task)
        clock = self.clock.part(seconds=share.seconds)
        with clock.watch() as stop, np.errstate(over="ignore", invalid="ignore"):
            search.alone(clock, Teller(None, clock), stop)
        pieces = [] if search.proof is None else list(search.proof.pieces())
        return Found(
            list(search.open), search.nodes - nodes, search.value, search.point, search.ceiling,
            search.spent[1], search.lost, pieces, search.marks, search.learned - learned,
        )  # fmt: skip
