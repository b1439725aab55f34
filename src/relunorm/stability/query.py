"""Bounds of chosen units only: what a comparison asks for, as it goes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.layers.slopes import optimize
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import NO_LIMIT
from relunorm.domain.reach import Reach
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability.bound_proofs import Proof, Proofs, SlopeProof
from relunorm.stability.bound_replay import apply, rule_bounds

#: Descent steps for the bounds that later layers rest on: most of what twenty would gain.
STEPS = 6

#: They are taken while a layer costs at most this many multiplications.
WORK = 5e8


class Query:
    """Bounds of one network, computed when asked for, each with its proof.

    `stability` decides every unit; here the caller names the sides that matter, and the cheapest
    bound that settles them is looked for: intervals and the fixed rule, tuned slopes, then a few
    nodes of a search. All bounds hold in real arithmetic; `proofs` replays them. Whoever asks may
    set ``clock``; nothing further is proved after its end.

    >>> from relunorm import Box
    >>> from relunorm.domain.reach import reach_of
    >>> net = Network.from_weights([[[1.0], [1.0]], [[1.0, 1.0]]], [[1.0, -2.0], [0.0]])
    >>> [float(end[1]) for end in Query(net, reach_of(Box([-1.0], [1.0]))).rule(0)]
    [-3.0, -1.0]
    """

    def __init__(self, network: Network, reach: Reach):
        self.network, self.reach, self.clock = network, reach, NO_LIMIT
        self.problem = Problem(network, reach)
        self.bounds = Bounds(self.problem)
        self.items: list[Proof] = []
        self.tried: set[tuple[int, int, float]] = set()

    @property
    def proofs(self) -> Proofs:
        """What proves all bounds given out so far."""
        return Proofs(tuple(self.items), self.reach.box_duals, self.network.digest)

    @property
    def failed(self) -> bool:
        """Whether a side was asked about that is still open."""
        return any(
            self.bounds.sides(k, unit, sign) > 0
            for k, unit, sign in self.tried
            if k < len(self.bounds.lower)
        )

    def rule(self, index: int) -> tuple[Vector, Vector]:
        """The bounds of a layer: intervals, the fixed linear rule, and what was proved since."""
        while len(self.bounds.lower) <= index:
            layer = len(self.bounds.lower)
            if layer > 1 and not self.clock.expired():
                self._tighten(layer - 1)
            self.bounds.append(*rule_bounds(self.problem, self.bounds, layer, clock=self.clock))
        return self.bounds.lower[index], self.bounds.upper[index]

    def exclude(
        self, index: int, units: NDArray[np.intp], signs: Vector, *, nodes: int
    ) -> tuple[Vector, Vector]:
        """The bounds of a layer after an attempt to prove ``signs * z[units] <= 0``.

        Each side is tried once. Bounds of later layers rest on these and are forgotten.
        """
        self.rule(index)
        sides = [(index, u, s) for u, s in zip(units.tolist(), signs.tolist(), strict=True)]
        fresh = np.array([side not in self.tried for side in sides], dtype=bool)
        if index == 0 or not fresh.any() or self.clock.expired():
            return self.rule(index)
        self.tried.update(sides)
        self.bounds.truncate(index + 1)
        self.items = [item for item in self.items if item.layer <= index]
        units, signs = units[fresh], signs[fresh]
        found = optimize(
            self.problem, self.bounds, index, units, signs,
            iterations=20, goal=0.0, clock=self.clock,
        )  # fmt: skip
        value = linear_upper(self.problem, self.bounds, index, units, signs, found.slopes)
        done = np.flatnonzero(value <= 0)
        if len(done):
            self._use(SlopeProof(index, units[done], signs[done], found.slopes.take(done)))
        rest = np.flatnonzero(~(value <= 0))
        if len(rest) and nodes >= len(rest):
            self._search(index, units[rest], signs[rest], nodes // len(rest))
        return self.rule(index)

    def _search(self, index: int, units: NDArray[np.intp], signs: Vector, nodes: int) -> None:
        """A few nodes of branch and bound for each side."""
        from relunorm.stability.sides import ask

        for unit, sign in zip(units.tolist(), signs.tolist(), strict=True):
            if self.clock.expired():
                return
            found = ask(
                self.problem, self.bounds, index, unit, int(sign),
                shown=lambda _: True, clock=self.clock, nodes=nodes,
            )  # fmt: skip
            if found.proof is not None:
                self._use(found.proof)

    def _tighten(self, index: int) -> None:
        """A few steps on the slopes of every open side of a layer that others will rest on."""
        open_units = np.flatnonzero(self.bounds.bent(index) & self._read(index))
        entries = sum(a.nnz for a in self.problem.maps[:index])
        kink = self.problem.kinks[index]
        if kink.linear or 4 * STEPS * len(open_units) * entries > WORK or not len(open_units):
            return
        units, signs = np.tile(open_units, 2), np.repeat([1.0, -1.0], len(open_units))
        found = optimize(
            self.problem, self.bounds, index, units, signs,
            iterations=STEPS, goal=None, clock=self.clock,
        )  # fmt: skip
        self._use(SlopeProof(index, units, signs, found.slopes))

    def _read(self, index: int) -> NDArray[np.bool_]:
        """Which units of a layer anything reads."""
        later = (a.terms[index + 1] for a in self.problem.maps if index + 1 in a.terms)
        width = self.network.layers[index].width
        some = (np.asarray(abs(matrix).sum(axis=0)).ravel() != 0 for matrix in later)
        return np.logical_or.reduce([np.zeros(width, bool), *some])

    def _use(self, item: Proof) -> None:
        self.items.append(item)
        apply(self.problem, self.bounds, item, fresh=True)
