"""From a point to the top of its linear piece, and across walls to better ones: no step to choose.

On a piece the goals are affine, so the best point of the piece is that of a linear programme. It
lies on walls; those with a positive multiplier are what keeps the goal down, and behind one of them
the same programme says whether to go on. A walk ends where no such wall is worth crossing: at a
maximum among the pieces around. Gradients stop short of it, along kinks and where two goals meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import Clock
from relunorm.compiled.simplex import FOUND, maximize, workspace
from relunorm.domain import Domain
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

Array = NDArray[np.float64]

#: Inputs, and multiplications for the walls of a piece, at most.
MOST_INPUTS, MOST_WORK = 32, 1e6

#: Pieces of a walk at most, and the gain, relative, that is worth a step.
PIECES, WORTH = 400, 1e-7


def walkable(network: Network, domain: Domain) -> bool:
    """Whether pieces have flat walls, and so few that a programme over them takes no time."""
    work = network.parameters * network.input_size
    steps = any(layer.activation.kind == "step" for layer in network.layers)
    few = network.input_size <= MOST_INPUTS and work <= MOST_WORK
    return few and domain.flat_sided and not steps


class Walk:
    """Walks over the pieces of a network on a domain for which it is `walkable`."""

    def __init__(self, network: Network, domain: Domain):
        self.network = network
        self.sides = domain.half_spaces
        box = domain.bounding_box
        self.lo, self.hi = box.lo, box.hi
        self.work = workspace(network.input_size + 1, np.zeros(1, np.uint8))

    def up(self, x: Vector, A: Array, rhs: Vector, clock: Clock, target: float) -> Vector:
        """Where a walk from x ends that raises the least row of rhs - A f, or reaches a target."""
        signs = [z[0] > 0 for z in self.network.preactivations(x[None])]
        value = float((rhs - A @ self.network(x)).min())
        top = self._top(signs, A, rhs, value)
        for _ in range(PIECES):
            if top is None:
                break
            x, value, walls = top
            if value >= target or clock.expired():
                break
            top = None
            for layer, unit in walls:
                signs[layer][unit] ^= True
                top = self._top(signs, A, rhs, value + WORTH * max(1.0, abs(value)))
                if top is not None:
                    break
                signs[layer][unit] ^= True
        return x

    def _top(
        self, signs: list[NDArray[np.bool_]], A: Array, rhs: Vector, least: float
    ) -> tuple[Vector, float, list[tuple[int, int]]] | None:
        """The best point of a piece, its value, and its walls there, the steepest first; None if
        its value is not above ``least``."""
        walls, bias, goals, ends = self._piece(signs, A, rhs)
        d, many = walls.shape[1], len(goals)
        count = len(walls)
        rows = np.zeros((count + len(self.sides[1]) + many, d + 1))
        rows[:count, :d], rows[count:-many, :d] = walls, self.sides[0]
        rows[-many:, :d], rows[-many:, d] = -goals, 1.0
        limits = np.concatenate([bias, self.sides[1], ends])
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        idle = length == 0.0
        length[idle] = 1.0
        rows /= length[:, None]
        limits = np.where(idle, 1.0, limits / length)
        high = (np.where(goals > 0, self.hi, self.lo) * goals).sum(axis=1) + ends
        lo, hi = np.append(self.lo, least), np.append(self.hi, high.min())
        if not least < hi[-1]:
            return None
        aim = np.zeros(d + 1)
        aim[d] = 1.0
        work = self.work
        if maximize(aim, rows, limits, len(rows), lo, hi, least, work) != FOUND:
            return None
        steep = [
            (float(work.multipliers[i] / length[row]), int(row))
            for i, row in enumerate(work.basis)
            if 0 <= row < count and work.multipliers[i] > 0.0
        ]
        first = np.cumsum([0] + [len(part) for part in signs])
        units = [row for _, row in sorted(steep, reverse=True)]
        layers = [int(np.searchsorted(first, unit, "right")) - 1 for unit in units]
        places = [(k, unit - int(first[k])) for k, unit in zip(layers, units, strict=True)]
        return np.clip(work.x[:d], self.lo, self.hi), float(work.x[d]), places

    def _piece(
        self, signs: list[NDArray[np.bool_]], A: Array, rhs: Vector
    ) -> tuple[Array, Vector, Array, Vector]:
        """Walls w.x <= b of a piece, and the goals g.x + c on it."""
        d = self.network.input_size
        # values as rows over the input, the constant last
        values = [np.eye(d, d + 1)]
        walls, own = [np.zeros((0, d + 1))], iter(signs)
        for layer in self.network.layers:
            z = _affine(layer.affine, values)
            if layer.has_units:
                on = next(own)[:, None]
                walls.append(np.where(on, -z, z))
                below, above = layer.activation.slopes
                z = np.where(on, above, below) * z
            values.append(z)
        both = np.concatenate(walls)
        goals = -A @ _affine(self.network.output, values)
        return both[:, :d], -both[:, d], goals[:, :d], goals[:, d] + rhs


def _affine(affine: Affine, values: list[Array]) -> Array:
    total = np.zeros((affine.size, values[0].shape[1]))
    total[:, -1] = affine.bias
    for source, matrix in affine.terms.items():
        total += mx.dense(matrix @ values[source])
    return total
