"""One search for every question: the largest value that some group of goals takes on a domain.

Open nodes wait in a heap, the one with the largest bound first. A chunk takes one of them and
explores below it, compiled (`explore`), for a number of nodes that grows with the search; what is
left open goes back to the heap. Chunks of several nodes run in threads side by side.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.form import Form, fits, triangular
from relunorm.bounds.node import (
    node_size,
)
from relunorm.clock import Clock, Teller
from relunorm.domain import Box, Domain
from relunorm.domain.reach import reach_of
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search import explore as kernel
from relunorm.search.attack import Attack
from relunorm.search.cuts import MOST_REFRESH
from relunorm.search.entries import closing
from relunorm.search.folding import Folded, Start, bound_goals, fold
from relunorm.search.root import (
    FEW_INPUTS,
    ROOT_SPEED,
    ROOT_STEPS,
    STEPS,
    first_node,
    goal_steps,
    tuning_steps,
    whole_node,
)
from relunorm.search.space import Space, Task
from relunorm.search.tape import VERSION, Ended, Tape

Array = NDArray[np.float64]

#: With few inputs coordinates are cut while more units than this are open.
OPEN_UNITS = 28

#: Nodes of the first chunks, and the share of all nodes so far that a later one may take.
FIRST_CHUNK, GROWTH = 100, 0.125

#: Shares of the time for bounding the units of a network that has to be folded: of all, and of what
#: is left where that was not enough for it to fit, since then nothing else can be done.
FOLD_SHARE, WHOLE_SHARE = 0.25, 0.8

#: Nodes of the first chunk where the root comes before the first attack.
GLANCE = 2

#: Rounds of the first attack.
ATTACKS = 8

#: Share of the time that goes into further attacks.
ATTACK_SHARE = 0.1

#: Numbers that waiting nodes may take before the search goes depth first: 1 GB.
MOST_WAITING = 1 << 27

#: Length of the tape of one chunk.
TAPE = 1 << 17

#: Passes over the rows of a form that its first nodes are taken to cost.
NODE_PASSES = 50

#: Seconds a chunk should take at most, so that an interrupt is heard.
CHUNK_SECONDS = 0.5


@dataclass
class _Chunk:
    """What one chunk found."""

    left: list[Task]
    used: int
    value: float
    point: Vector
    ceiling: float
    seconds: float
    reached: bool
    lost: int
    tape: list[Array]


class Search:
    """The largest value over a domain that some group of goals rhs - A f takes at its least row.

    Args:
        groups: pairs (A, rhs); the value of a group at x is min_i (rhs - A f(x))_i.
        target: stop at a point with a value of at least this; None to find the maximum.
        below: with a target, a node is closed when its bound is below this.
        tolerance: for a maximum, the width at which the interval counts as closed, relative.
        proof: where to write what happens; None to write nothing.
        attacks: rounds of ascent at first.
        start: where to begin; the form is made, folded if it would be too large, and its units are
            bounded if it is left out.

    After `run`: ``value`` and ``point`` (the best found, in floats), ``upper`` (a bound in real
    arithmetic), ``nodes``, ``complete``. `run` may be called again to go on.
    """

    def __init__(
        self,
        network: Network,
        domain: Domain,
        groups: Sequence[tuple[Array, Vector]],
        *,
        target: float | None = None,
        below: float = 0.0,
        tolerance: float = 1e-9,
        random_state: int = 0,
        workers: int = 1,
        proof: Tape | None = None,
        attacks: int = ATTACKS,
        start: Start | None = None,
    ):
        self.network, self.domain, self.groups = network, domain, groups
        self.target = math.inf if target is None else float(target)
        self.below, self.tolerance, self.workers = below, tolerance, workers
        self.proof, self.attacks, self.start = proof, attacks, start
        if proof is not None:
            proof.write(np.array([VERSION]))
        self.attack = Attack(network, domain, groups, random_state)
        self.value, self.point = -math.inf, np.array(domain.center)
        self.ceiling, self.nodes, self.lost = -math.inf, 0, 0
        self.most = math.inf  # nodes of this run
        self.heap: list[Task] = []
        self.waiting = 0
        self.turn = False
        self.running: dict[Future[_Chunk], Task] = {}
        self.form: Form | None = None
        self.folded: Folded | None = None
        self.rooted, self.pending = False, attacks  # rounds to come
        self.unit_steps = -1
        self.pace = 1e-3  # seconds a node
        self.spent = [0.0, 0.0]  # seconds of attacks and of chunks

    @property
    def complete(self) -> bool:
        """Whether every node is closed or the target is reached."""
        return self.reached or (self.rooted and not (self.heap or self.running))

    @property
    def reached(self) -> bool:
        """Whether a point with the target's value was found."""
        return self.value >= self.target

    @property
    def upper(self) -> float:
        """A bound on the maximum in real arithmetic."""
        if not self.rooted:
            return math.inf
        waiting = [self.heap[0].bound] if self.heap else []
        waiting += [task.bound for task in self.running.values()]
        return max([self.ceiling, *waiting])

    def record(self) -> Ended:
        """What proves ``upper``: the tape so far, and open nodes closed by their own bounds."""
        assert self.proof is not None
        firsts = np.zeros(1, np.int64) if self.form is None else self.form.firsts
        inputs = 0 if self.form is None else len(self.form.lo)
        return self.proof.ended(partial(closing, list(self.heap), inputs, firsts))

    def offer(self, value: float, point: Vector) -> None:
        """Keep a point if it is better than the best."""
        if value > self.value:
            self.value, self.point = float(value), np.array(point)

    def run(self, clock: Clock, tell: Teller, nodes: float = math.inf) -> None:
        """Go on until the question is settled, the time or ``nodes`` are used up, or Ctrl-C."""
        self.most = self.nodes + nodes
        if self.form is None and not self.rooted:
            self._begin(clock, tell)
        if not self.reached and not self.rooted:
            self._root(clock, tell)
        if self.reached:
            return
        with clock.watch() as stop:
            if self.workers == 1:
                self._alone(clock, tell, stop)
            else:
                self._together(clock, tell, stop)

    def _begin(self, clock: Clock, tell: Teller, warm: bool = True) -> None:
        """Attack, unless the root comes first; then the form and its bounds."""
        if warm:
            tell.compile("the search", warm_up)
        # With a target the root needs no point and may close the question, in less than an attack
        # takes; where there is none, or folding comes before it, a point is wanted first.
        if self.target == math.inf or self.start is not None or not fits(self.network):
            tell("attacking", lower=self.value)
            self._attack_first(clock)
        if self.start is None:
            self.reach = reach_of(self.domain)
            if fits(self.network):
                self.form = triangular(self.network, self.reach, self.groups)
            elif not self.reached:
                tell("folding what is stable", lower=self.value)
                for share in (FOLD_SHARE, WHOLE_SHARE):
                    part = clock.part(share=share)
                    self.folded = fold(self.network, self.reach, self.groups, part)
                    self.start = self.folded.start
                    if self.start is not None or not part.expired():
                        break
        if self.start is not None:
            self.form = self.start.form
        self.marks = 1  # the root is number 0

    def _attack_first(self, clock: Clock) -> None:
        """The first rounds of ascent, once."""
        began, self.pending = clock.elapsed(), 0
        self.attack.run(clock.part(share=0.1), self.target, self.attacks)
        self.offer(self.attack.value, self.attack.point)
        self.spent[0] += clock.elapsed() - began

    def _root(self, clock: Clock, tell: Teller) -> None:
        """Bound and fold the whole domain's form: the first node."""
        tell("bounding", lower=self.value)
        form, start = self.form, self.start
        self.spaces: list[Space] = []
        self.heap = []
        if form is None:
            self._bound(clock)
        else:
            self._first_node(form, start, clock)
        self.rooted = True  # last: until then nothing is known, whatever interrupts

    def _first_node(self, form: Form, start: Start | None, clock: Clock) -> None:
        """Put the whole domain into the heap, unless it is empty."""
        self.learned = np.zeros((len(form.jump) + len(form.lo) + 3, 2, 2))
        if start is None or start.tune:
            self.unit_steps = tuning_steps(form, clock.left())
            if start is not None and not self.unit_steps:
                self.unit_steps = -1  # that much was done before
        steps = goal_steps(form, clock.left())
        task, self.whole = first_node(
            form, whole_node(form, start), steps, self.cut, self.unit_steps
        )
        if task is None:
            self.ceiling = -math.inf  # nothing is feasible
            return
        if not math.isfinite(task.bound):
            self.heap, self.ceiling = [task], math.inf
            return
        entries = float(task.units * (task.units + len(form.lo)))
        refreshed = task.units if task.units * entries <= MOST_REFRESH else 0
        self.pace = max(self.pace, (NODE_PASSES + refreshed) * entries / ROOT_SPEED)
        self._wait(task)

    def _bound(self, clock: Clock) -> None:
        """Bound the goals on the whole domain: what is left of the network is too large to cut."""
        assert self.folded is not None
        self.ceiling, tape = bound_goals(self.folded, ROOT_STEPS, clock)
        if self.target < math.inf and not self.ceiling < self.below:
            self.lost += 1
        if self.proof is not None:
            self.proof.write(tape)
        self.attack.run(clock, self.target, self.attacks)
        self.offer(self.attack.value, self.attack.point)

    @property
    def cut(self) -> float:
        """The bound at which a node is closed."""
        if self.target < math.inf:
            return self.below
        return self.value + 0.5 * self.tolerance * max(1.0, abs(self.value))

    def _wait(self, task: Task) -> None:
        heapq.heappush(self.heap, task)
        self.waiting += len(task.numbers)

    def _take(self) -> Task:
        """The node with the largest bound, or the deepest: in turns when a target is looked for,
        since then order does not shorten a proof and depth finds points; always, once the waiting
        nodes take too much room."""
        self.turn = not self.turn
        if self.waiting > MOST_WAITING or (self.turn and self.target < math.inf):
            place = max(
                range(len(self.heap)), key=lambda i: (self.heap[i].depth, self.heap[i].number)
            )
            task = self.heap.pop(place)
            heapq.heapify(self.heap)
        else:
            task = heapq.heappop(self.heap)
        self.waiting -= len(task.numbers)
        return task

    def _budget(self) -> int:
        if self.pending:
            return GLANCE
        most = min(max(2.0, CHUNK_SECONDS / self.pace), self.most - self.nodes)
        return int(min(most, max(FIRST_CHUNK, GROWTH * self.nodes)))

    def _settled(self, clock: Clock) -> bool:
        return self.reached or not self.heap or self.nodes >= self.most or clock.expired()

    def _alone(self, clock: Clock, tell: Teller, stop: NDArray[np.uint8]) -> None:
        while not self._settled(clock):
            task = self._take()
            try:
                found = self._chunk(task, self._space(0), stop)
            except KeyboardInterrupt:
                self._wait(task)
                raise
            self._keep(found)
            if not self._settled(clock):
                self._attack(clock)
            tell("searching", at_once=False, lower=self.value, upper=self.upper, nodes=self.nodes)

    def _together(self, clock: Clock, tell: Teller, stop: NDArray[np.uint8]) -> None:
        free = list(range(self.workers))
        taken: dict[Future[_Chunk], int] = {}
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                while self.running or not self._settled(clock):
                    while free and not self._settled(clock):
                        task, place = self._take(), free.pop()
                        job = pool.submit(self._chunk, task, self._space(place), stop)
                        self.running[job], taken[job] = task, place
                    done, _ = wait(self.running, return_when=FIRST_COMPLETED)
                    for job in done:
                        del self.running[job]
                        free.append(taken.pop(job))
                        self._keep(job.result())
                    if not self._settled(clock):
                        self._attack(clock)
                    tell(
                        "searching", at_once=False, lower=self.value, upper=self.upper,
                        nodes=self.nodes,
                    )  # fmt: skip
            except BaseException:
                stop[0] = 1
                for job in list(self.running):
                    self._keep(job.result())
                    del self.running[job]
                raise

    def _space(self, place: int) -> Space:
        assert self.form is not None
        while len(self.spaces) <= place:
            self.spaces.append(Space(self.form, self.whole.units))
        return self.spaces[place]

    def _keep(self, found: _Chunk) -> None:
        """Take over what a chunk found."""
        self.nodes += found.used
        self.spent[1] += found.seconds
        self.lost += found.lost
        self.offer(found.value, self.form.lift(found.point) if self.form else found.point)
        self.ceiling = max(self.ceiling, found.ceiling)
        for task in found.left:
            self._wait(task)
        if found.used:
            self.pace = 0.5 * self.pace + 0.5 * found.seconds / found.used
        if self.proof is not None:
            for part in found.tape:
                self.proof.write(part)

    def _attack(self, clock: Clock) -> None:
        """Another round of ascent, as long as attacks take a small share of the time."""
        if self.pending:
            self._attack_first(clock)
            return
        if self.spent[0] > ATTACK_SHARE * self.spent[1]:
            return
        began = clock.elapsed()
        part = clock.part(seconds=CHUNK_SECONDS)
        if self.value > self.attack.value:
            self.attack.refine(self.point, part, self.target)
        self.attack.run(part, self.target)
        if self.heap and self.form is not None:
            d = len(self.form.lo)
            task = max(self.heap, key=lambda task: task.depth) if self.turn else self.heap[0]
            lo, hi = (self.form.lift(task.numbers[at : at + d]) for at in (0, d))
            self.attack.around(lo, hi, part, self.target)
        self.offer(self.attack.value, self.attack.point)
        self.spent[0] += clock.elapsed() - began

    def _chunk(self, task: Task, space: Space, stop: NDArray[np.uint8]) -> _Chunk:
        """Explore below one node."""
        form = self.form
        assert form is not None
        began = time.perf_counter()
        d, groups = len(form.lo), len(form.firsts) - 1
        goals, theta = int(form.firsts[-1]), threshold(len(form.free))
        best, point = np.array([self.value]), np.zeros(d)
        ceiling = np.array([-math.inf])
        # every chunk numbers its nodes apart from all others
        marks = np.array([0, self._numbers(), 0])
        while len(task.numbers) > len(space.arena):
            space.grow()
        space.arena[: len(task.numbers)] = task.numbers
        space.stack[0] = task.units, task.known, 0, task.depth, task.number
        if self.proof is not None and not len(space.tape):
            space.tape = np.zeros(TAPE)
        count, used, budget, tapes = 1, 0, self._budget(), []
        while True:
            why, count, more = kernel.explore(
                self.whole, form.ball, space.arena, space.stack, count, budget - used, self.target,
                self.below, self.tolerance, STEPS, theta, form.firsts, best, point, ceiling,
                self.learned, space.tape, marks, space.memory, stop,
            )  # fmt: skip
            used += more
            if why == kernel.FULL:
                space.grow()
            elif why == kernel.TAPE_FULL:
                if not marks[0]:
                    space.tape = np.zeros(2 * len(space.tape))
                tapes.append(space.tape[: marks[0]].copy())
                marks[0] = 0
            else:
                break
        if marks[0]:
            tapes.append(space.tape[: marks[0]].copy())
        left = []
        for at in range(count):
            units, known, start, depth, number = (int(i) for i in space.stack[at])
            size = node_size.py_func(units, known, d, goals, groups)
            numbers = space.arena[start : start + size].copy()
            bound, origin = float(numbers[size - groups :].max()), None
            if bound > task.bound:  # tuned anew, a part may come out above the whole
                bound, origin = task.bound, task.origin or task
            left.append(Task(-bound, number, numbers, units, known, depth, origin))
        return _Chunk(
            left, used, float(best[0]), point, float(ceiling[0]),
            time.perf_counter() - began, why == kernel.REACHED, int(marks[2]), tapes,
        )  # fmt: skip

    def _numbers(self) -> int:
        """The first of a range of numbers for the nodes of a chunk."""
        first = self.marks
        self.marks += 1 << 24
        return first


def threshold(inputs: int) -> int:
    """Coordinates are cut while more units are open than this; with many inputs they never are."""
    return OPEN_UNITS if inputs <= FEW_INPUTS else 1 << 30


def warm_up() -> None:
    """Compile or load the kernels, on a network of two units."""
    tiny = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0], [1.0, -1.0]]])
    groups = [(-np.eye(2), np.zeros(2))]
    clock = Clock()
    for proof in (None, Tape()):
        search = Search(tiny, Box.cube(1), groups, proof=proof)
        search.attack.value = search.value = -math.inf
        search._begin(clock, Teller(None, clock), warm=False)
        search.value = -math.inf  # so that there is something to search for
        if proof is not None:
            list(search.record())
        search.run(clock, Teller(None, clock))
