"""The one loop of branch and bound: open nodes in the order of their bounds, the largest first.

What a node is and how it is bounded and cut is its client's: a box of inputs here, a box and some
decided signs there, below which a compiled kernel searches on its own. Nodes that are being worked
on are open still, so whatever ends a search, a limit, an error or Ctrl-C, the bound of what is left
holds for everything that is not closed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from relunorm.clock import NO_LIMIT, Clock


@dataclass(order=True)
class Node:
    """Something open: minus its bound, and the number that it is known by."""

    key: float
    number: int

    @property
    def bound(self) -> float:
        return -self.key

    @property
    def weight(self) -> int:
        """How much room it takes while it waits."""
        return 1


N = TypeVar("N", bound=Node)
W = TypeVar("W")

#: For every part how it is cut, and both halves; or None.
Cut: TypeAlias = "list[tuple[Any, W, W]] | None"


class Frontier(Generic[N]):
    """Open nodes."""

    def __init__(self, nodes: Iterable[N] = ()):
        self.waiting: list[tuple[float, int, N]] = []
        self.running: dict[Hashable, list[N]] = {}
        self.weight = 0
        for node in nodes:
            self.add(node)

    def __len__(self) -> int:
        return len(self.waiting) + sum(map(len, self.running.values()))

    def __iter__(self) -> Iterator[N]:
        yield from (node for *_, node in self.waiting)
        for nodes in self.running.values():
            yield from nodes

    @property
    def bound(self) -> float:
        """The largest bound of an open node."""
        first = -self.waiting[0][0] if self.waiting else -math.inf
        return max([first, *(node.bound for nodes in self.running.values() for node in nodes)])

    def add(self, node: N) -> None:
        """Put a node among those that wait."""
        heapq.heappush(self.waiting, (node.key, node.number, node))
        self.weight += node.weight

    def take(self, who: Hashable, order: Callable[[N], Any] | None = None) -> N:
        """Hand somebody the node with the largest bound, or the one that is last in another order.

        It is theirs before it waits no more, so that Ctrl-C in between does not lose it.
        """
        at = 0
        if order is not None:
            at = max(range(len(self.waiting)), key=lambda k: order(self.waiting[k][2]))
        node = self.waiting[at][2]
        self.running.setdefault(who, []).append(node)
        if order is None:
            heapq.heappop(self.waiting)
        else:
            self.waiting = [*self.waiting[:at], *self.waiting[at + 1 :]]
            heapq.heapify(self.waiting)
        self.weight -= node.weight
        return node

    def give_back(self, who: Hashable) -> None:
        """Let what somebody did not finish wait again."""
        waiting = {id(node) for *_, node in self.waiting}
        for node in self.running.get(who, ()):
            if id(node) not in waiting:
                self.add(node)
        self.running.pop(who, None)

    def run(
        self,
        take: Callable[[Hashable], object],
        branch: Callable[[list[N]], bool],
        settled: Callable[[], bool],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Work on one batch of nodes after the other, here, until none waits or all is settled.

        Args:
            take: takes what is next, for whoever it is told.
            branch: adds what is left of these nodes, or says that it cannot: then that was all.
            then: called after each batch.
        """
        while self.waiting and not settled():
            done = False
            try:
                take(self)
                done = branch(self.running[self])
            finally:
                if done:
                    del self.running[self]
                else:
                    self.give_back(self)
            if not done:
                return
            then()


@dataclass(order=True)
class Part(Node, Generic[W]):
    """A part of a domain, with what its client knows of it."""

    what: W = field(compare=False)


class Parts(Frontier[Part[W]]):
    """Parts of a domain, numbered as they come: the whole is number 0.

    Attributes:
        made: how many there have been.
        cuts: parts cut in two, by their numbers, and how; the k-th cut, counted from 0, makes parts
            2k + 1 and 2k + 2.
    """

    def __init__(self, bound: float, whole: W):
        super().__init__()
        self.made = 0
        self.cuts: list[tuple[int, Any]] = []
        self.push(bound, whole)

    def push(self, bound: float, what: W) -> None:
        """Add a part."""
        self.add(Part(-bound, self.made, what))
        self.made += 1

    def halve(
        self,
        cut: Callable[[list[W]], Cut[W]],
        bound: Callable[[W], float],
        enough: Callable[[], float],
        *,
        batch: int = 1,
        most: float = math.inf,
        clock: Clock = NO_LIMIT,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Cut the parts with the largest bounds in two until all bounds are enough.

        Args:
            cut: for every part how it is cut, and both halves; None where there is no time, or
                nothing to cut.
            bound: of a part.
            enough: asked again before every batch.
            batch: parts at a time.
            most: parts that are open, at most.
        """

        def branch(taken: list[Part[W]]) -> bool:
            return self._put(taken, cut([part.what for part in taken]), bound)

        def settled() -> bool:
            return not self.bound > enough() or clock.expired() or len(self) >= most

        self.run(lambda who: self._best(who, batch, enough()), branch, settled, then)

    def halve_ahead(
        self,
        begin: Callable[[list[W]], Callable[[], Cut[W]]],
        bound: Callable[[W], float],
        enough: Callable[[], float],
        *,
        batch: int,
        most: float,
        clock: Clock,
        then: Callable[[], None],
    ) -> None:
        """The same where parts are chosen while those before them are still being cut.

        Args:
            begin: begins to cut parts; what it returns waits for the end, as ``cut`` of `halve`.
        """
        begun: list[tuple[object, Callable[[], Cut[W]]]] = []
        goal = enough()

        def go_on() -> bool:
            full = len(begun) > 1 or not self.waiting or len(self) >= most or clock.expired()
            return not full and self.bound > goal

        try:
            while go_on() or begun:
                if go_on():
                    hand = object()
                    self._best(hand, batch, goal)
                    begun.append((hand, begin([part.what for part in self.running[hand]])))
                    continue
                hand, wait = begun[0]
                if not self._put(self.running[hand], wait(), bound):
                    return
                del begun[0], self.running[hand]
                goal = enough()
                then()
        finally:
            for hand in list(self.running):
                self.give_back(hand)

    def _best(self, who: Hashable, batch: int, goal: float) -> None:
        """Hand on the parts with the largest bounds, but for the first one those above a goal."""
        hand, waiting, pop = self.running.setdefault(who, []), self.waiting, heapq.heappop
        while waiting and (not hand or (len(hand) < batch and -waiting[0][0] > goal)):
            hand.append(waiting[0][2])  # first, as in `take`
            self.weight -= pop(waiting)[2].weight

    def _put(self, taken: list[Part[W]], made: Cut[W], bound: Callable[[W], float]) -> bool:
        """Push the halves of parts that were cut; whether they were."""
        for part, (how, *halves) in zip(taken, made or (), strict=made is not None):
            self.cuts.append((part.number, how))
            for half in halves:
                self.push(bound(half), half)
        return made is not None
