"""One search for every question: the largest value that some group of goals takes on a domain.

Open nodes wait, the one with the largest bound first (`relunorm.best_first`). A chunk takes one of
them and explores below it, compiled (`explore`), for a number of nodes that grows with the search;
what is left open waits again. Chunks of several nodes run in threads side by side, and shares of
the open nodes on other processes (`together`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.best_first import Frontier
from relunorm.bounds.nodes.form import Form, fits, triangular
from relunorm.bounds.problem import Group
from relunorm.clock import Clock, Teller
from relunorm.domain import Box, Domain
from relunorm.domain.reach import reach_of
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.search.attack import Attack
from relunorm.search.chunk import Found, Space, explored
from relunorm.search.folding import Folded, Start, bound_goals, fold
from relunorm.search.halves import MOST_REFRESH
from relunorm.search.pieces import Walk
from relunorm.search.proofs.entries import closing
from relunorm.search.proofs.tape import VERSION, Ended, Tape
from relunorm.search.root import (
    FEW_INPUTS,
    ROOT_SPEED,
    ROOT_STEPS,
    Task,
    first_node,
    goal_steps,
    tuning_steps,
    whole_node,
)
from relunorm.search.together import on_processes, on_threads
from relunorm.sweep.backends import Placement

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

#: Share of the time that goes into further attacks, and of a tree that says how long it may take.
ATTACK_SHARE = 0.1

#: Numbers that waiting nodes may take before the search goes depth first: 1 GB.
MOST_WAITING = 1 << 27

#: Passes over the rows of a form that its first nodes are taken to cost.
NODE_PASSES = 50

#: Seconds a chunk should take at most, so that an interrupt is heard.
CHUNK_SECONDS = 0.5

#: Open nodes, or if there are at least two the seconds without so many, after which a search goes
#: to other processes: what ends sooner waits for none.
DIVISION, DIVIDE_SECONDS = 64, 1.0


class Search:
    """The largest value over a domain that some group of goals rhs - A f takes at its least row.

    Args:
        groups: pairs (A, rhs); the value of a group at x is min_i (rhs - A f(x))_i.
        target: stop at a point with a value of at least this; None to find the maximum.
        below: with a target, a node is closed when its bound is below this.
        tolerance: for a maximum, the width at which the interval counts as closed, relative.
        place: threads or processes that search side by side; one thread if left out.
        proof: where to write what happens; None to write nothing.
        attacks: rounds of ascent at first.
        start: where to begin; the form is made, folded if it would be too large, and its units are
            bounded if it is left out.

    After `run`: ``value`` and ``point`` (the best found, in floats), ``upper`` (a bound in real
    arithmetic), ``nodes``, ``complete``, ``died`` (whether worker processes did, and the search
    ended for it). `run` may be called again to go on.
    """

    def __init__(
        self,
        network: Network,
        domain: Domain,
        groups: Sequence[Group],
        *,
        target: float | None = None,
        below: float = 0.0,
        tolerance: float = 1e-9,
        random_state: int = 0,
        place: Placement | None = None,
        proof: Tape | None = None,
        attacks: int = ATTACKS,
        start: Start | None = None,
    ):
        self.network, self.domain, self.groups = network, domain, groups
        self.target = math.inf if target is None else float(target)
        self.below, self.tolerance = below, tolerance
        self.place = Placement(workers=1) if place is None else place
        self.proof, self.attacks, self.start = proof, attacks, start
        if proof is not None:
            proof.write(np.array([VERSION]))
        self.attack = Attack(network, domain, groups, random_state)
        self.value, self.point = -math.inf, np.array(domain.center)
        self.seen: Vector | None = None  # the best point of the last chunk
        self.ceiling, self.nodes, self.lost = -math.inf, 0, 0
        self.most = math.inf  # nodes of this run
        self.open: Frontier[Task] = Frontier()
        self.turn = False
        self.died = False
        self.form: Form | None = None
        self.folded: Folded | None = None
        self.rooted, self.pending = False, attacks  # rounds to come
        self.unit_steps = -1
        self.pace = 1e-3  # seconds a node
        self.spent = [0.0, 0.0]  # seconds of attacks and of chunks

    @property
    def complete(self) -> bool:
        """Whether every node is closed or the target is reached."""
        return self.reached or (self.rooted and not len(self.open))

    @property
    def reached(self) -> bool:
        """Whether a point with the target's value was found."""
        return self.value >= self.target

    @property
    def upper(self) -> float:
        """A bound on the maximum in real arithmetic."""
        if not self.rooted:
            return math.inf
        return max(self.ceiling, self.open.bound)

    def record(self) -> Ended:
        """What proves ``upper``: the tape so far, and open nodes closed by their own bounds."""
        assert self.proof is not None
        firsts = np.zeros(1, np.int64) if self.form is None else self.form.firsts
        inputs = 0 if self.form is None else len(self.form.lo)
        return self.proof.ended(partial(closing, list(self.open), inputs, firsts))

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
            if self.place.far:
                self.alone(clock, tell, stop, DIVISION)
                on_processes(self, clock, tell)
            elif self.place.threads == 1:
                self.alone(clock, tell, stop)
            else:
                on_threads(self, clock, tell, stop)

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
        self.open = Frontier()
        if form is None:
            self._bound(clock)
        else:
            self._first_node(form, start, clock)
        self.rooted = True  # last: until then nothing is known, whatever interrupts

    def _first_node(self, form: Form, start: Start | None, clock: Clock) -> None:
        """Open the whole domain, unless it is empty."""
        self.theta = threshold(len(form.free))
        self.learned = np.zeros((len(form.jump) + 2, 2, 2))
        node, tuned = whole_node(form, start), start is None or start.tune
        begun = -1 if start is None else 0  # steps that were taken before
        if tuned:
            self.unit_steps = tuning_steps(form, form.units, clock.left(), begun)
        while True:
            steps = goal_steps(form, clock.left())
            task, self.whole = first_node(form, node, steps, self.cut, self.unit_steps)
            if task is None or task.bound <= self.cut or not tuned:
                break
            # what is stable costs nothing: with that known there may be time for more
            more = tuning_steps(form, task.units, clock.left(), begun)
            if more <= self.unit_steps:
                break
            self.unit_steps = more
        if task is None:
            self.ceiling = -math.inf  # nothing is feasible
            return
        if not math.isfinite(task.bound):
            self.open, self.ceiling = Frontier([task]), math.inf
            return
        entries = float(task.units * (task.units + len(form.lo)))
        refreshed = task.units if task.units * entries <= MOST_REFRESH else 0
        self.pace = max(self.pace, (NODE_PASSES + refreshed) * entries / ROOT_SPEED)
        self.open.add(task)

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

    def take(self, who: Hashable) -> Task:
        """The node with the largest bound, or the deepest: in turns when a target is looked for,
        since then order does not shorten a proof and depth finds points; always, once the waiting
        nodes take too much room."""
        self.turn = not self.turn
        if self.open.weight > MOST_WAITING or (self.turn and self.target < math.inf):
            return self.open.take(who, lambda task: (task.depth, task.number))
        return self.open.take(who)

    def _budget(self) -> int:
        """How many nodes a chunk may look at."""
        if self.pending:
            return GLANCE
        most = min(max(2.0, CHUNK_SECONDS / self.pace), self.most - self.nodes)
        return int(min(most, max(FIRST_CHUNK, GROWTH * self.nodes)))

    def settled(self, clock: Clock) -> bool:
        """Whether there is nothing to do, or no time or nodes to do it."""
        return self.reached or not self.open.waiting or self.nodes >= self.most or clock.expired()

    def alone(
        self, clock: Clock, tell: Teller, stop: NDArray[np.uint8], enough: float = math.inf
    ) -> None:
        """Search in this thread; at most until ``enough`` nodes wait or DIVIDE_SECONDS are over."""
        began = self.spent[1]

        def settled() -> bool:
            late = enough < math.inf and self.spent[1] - began > DIVIDE_SECONDS
            waiting = len(self.open.waiting)
            return self.settled(clock) or waiting >= enough or (late and waiting > 1)

        def chunk(tasks: list[Task]) -> bool:
            found = explored(self, tasks[0], self.space(0), clock, stop, *self.reserved())
            self.keep(found)
            self.marks = found.marks  # nobody else has taken numbers
            return True

        def between() -> None:
            if not self.settled(clock):
                self.attack_more(clock)
            self.report(tell)

        self.open.run(self.take, chunk, settled, between)

    def report(self, tell: Teller) -> None:
        """Say how far the search has come."""
        tell("searching", at_once=False, lower=self.value, upper=self.upper, nodes=self.nodes)

    def space(self, place: int) -> Space:
        """The memory of a thread."""
        assert self.form is not None
        while len(self.spaces) <= place:
            self.spaces.append(Space(self.form, self.whole.units))
        return self.spaces[place]

    def keep(self, found: Found) -> None:
        """Take over what was found."""
        self.nodes += found.used
        self.spent[1] += found.seconds
        self.lost += found.lost
        self.offer(found.value, found.point)
        if found.value > -math.inf:
            self.seen = found.point
        self.ceiling = max(self.ceiling, found.ceiling)
        for task in found.left:
            self.open.add(task)
        if found.used:
            self.pace = 0.5 * self.pace + 0.5 * found.seconds / found.used
        if self.proof is not None:
            for piece in found.tape:
                self.proof.append(piece)
        if found.learned is not None:
            self.learned += found.learned

    def attack_more(self, clock: Clock) -> None:
        """Rounds of ascent, for a small share of the time that the search has taken; where they end
        in walks, of what the whole of it is forecast to take, and at most as much as it has."""
        if self.pending:
            self._attack_first(clock)
            return
        part, walks = clock.part(seconds=CHUNK_SECONDS), self.attack.walk is not None
        allowed = ATTACK_SHARE * (self._forecast() if walks else self.spent[1])
        while self.spent[0] <= allowed and not (self.reached or part.expired()):
            began = clock.elapsed()
            self.attack.more(part, self.target, self._some_boxes(), self.seen)
            self.seen = None
            self.offer(self.attack.value, self.attack.point)
            self.spent[0] += clock.elapsed() - began

    def _forecast(self) -> float:
        """Seconds of the whole search: those so far over the share of its tree that is closed, each
        half of a node being half of it. While little is closed, as if that share were."""
        closed = 1.0 - sum(0.5**task.depth for task in self.open)
        return self.spent[1] / max(closed, ATTACK_SHARE)

    def _some_boxes(self) -> tuple[Array, Array]:
        """Boxes of open nodes, drawn at random; the first is that of the deepest or of the one with
        the largest bound, in turns."""
        assert self.form is not None
        d, size = len(self.form.lo), self.attack.starts // 2
        waiting = [task for *_, task in self.open.waiting]
        tasks = [waiting[i] for i in self.attack.rng.integers(len(waiting), size=size)]
        tasks[0] = max(waiting, key=lambda task: task.depth) if self.turn else waiting[0]
        lo, hi = ([self.form.lift(task.numbers[at : at + d]) for task in tasks] for at in (0, d))
        return np.array(lo), np.array(hi)

    def reserved(self) -> tuple[int, int]:
        """How many nodes the next chunk may look at, and the first of the numbers for new ones.

        Every chunk numbers its nodes apart from all others. A node that is cut has two parts.
        """
        budget, first = self._budget(), self.marks
        self.marks += 2 * max(budget, 0)
        return budget, first

    def __getstate__(self) -> dict[str, Any]:
        # What a part of the search needs elsewhere, where `together.Explorer` adds the rest.
        left_out = {"attack", "folded", "place", "proof", "reach", "start"}
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**kept, "open": Frontier(), "spaces": []}


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
        search.attack.values[:] = search.value = -math.inf
        search._begin(clock, Teller(None, clock), warm=False)
        search.value = -math.inf  # so that there is something to search for
        if proof is not None:
            list(search.record())
        search.run(clock, Teller(None, clock))
    Walk(tiny, Box.cube(1)).up(np.full(1, 0.25), *groups[0], clock, math.inf)
