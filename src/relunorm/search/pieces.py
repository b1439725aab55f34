"""From a point to the top of its linear piece, and across walls to better ones: no step to choose.

On a piece the goals are affine, so the best point of the piece is that of a linear programme. It
lies on walls; those with a positive multiplier are what keeps the goal down, and behind one of them
the same programme says whether to go on. A walk ends where no such wall is worth crossing: at a
maximum among the pieces around. Gradients stop short of it, along kinks and where two goals meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import Clock
from relunorm.compiled.simplex import FOUND, maximize, workspace
from relunorm.domain import Domain
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.network.patterns import forms_under

#: Inputs, and multiplications for the walls of a piece, at most.
MOST_INPUTS, MOST_WORK = 32, 1e6

#: Pieces of a walk at most, and the gain, relative, that is worth a step.
PIECES, WORTH = 400, 1e-7


def walkable(network: Network, domain: Domain) -> bool:
    """Whether pieces have flat walls, and so few that a programme over them takes no time."""
    if network.input_size > MOST_INPUTS or network.parameters * network.input_size > MOST_WORK:
        return False
    return domain.flat_sided and all(x.activation.kind != "step" for x in network.layers)


class Walk:
    """Walks over the pieces of a network on a domain for which it is `walkable`."""

    def __init__(self, network: Network, domain: Domain):
        self.network, self.sides = network, domain.half_spaces
        self.lo, self.hi = domain.bounding_box.lo, domain.bounding_box.hi
        self.work = workspace(network.input_size + 1)

    def up(self, x: Vector, A: Array, rhs: Vector, clock: Clock, target: float) -> Vector:
        """Where a walk from x ends that raises the least row of rhs - A f, or reaches a target."""
        signs = self.network.pattern(x)
        top = self._top(signs, A, rhs, float((rhs - A @ self.network(x)).min()))
        for _ in range(PIECES):
            if top is None:
                break
            x, value, walls = top
            if value >= target or clock.expired():
                break
            top = None
            for unit in walls:
                signs[unit] ^= True
                top = self._top(signs, A, rhs, value + WORTH * max(1.0, abs(value)))
                if top is not None:
                    break
                signs[unit] ^= True
        return x

    def _top(
        self, signs: NDArray[np.bool_], A: Array, rhs: Vector, least: float
    ) -> tuple[Vector, float, list[int]] | None:
        """The best point of a piece, its value, and the units whose walls it lies on, the steepest
        first; None if its value is not above ``least``."""
        walls, goals = self._piece(signs, A, rhs)
        d, count, many = walls.shape[1] - 1, len(walls), len(goals)
        # rows over the input and the value, which is at most every goal
        rows = np.zeros((count + len(self.sides[1]) + many, d + 1))
        rows[:count, :d], rows[count:-many, :d] = walls[:, :d], self.sides[0]
        rows[-many:, :d], rows[-many:, d] = -goals[:, :d], 1.0
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        length[length == 0.0] = 1.0
        ends = np.concatenate([-walls[:, d], self.sides[1], goals[:, d]]) / length
        far = np.where(goals[:, :d] > 0, self.hi, self.lo)
        high = ((far * goals[:, :d]).sum(axis=1) + goals[:, d]).min()
        if not least < high:
            return None
        lo, hi, aim = np.append(self.lo, least), np.append(self.hi, high), np.eye(d + 1)[d]
        rows /= length[:, None]
        work = self.work
        if maximize(aim, rows, ends, len(rows), lo, hi, least, work) != FOUND:
            return None
        basis = np.flatnonzero((work.basis >= 0) & (work.basis < count) & (work.multipliers > 0))
        units = work.basis[basis]
        steepest = np.argsort(-work.multipliers[basis] / length[units])
        return np.clip(work.x[:d], self.lo, self.hi), float(work.x[d]), units[steepest].tolist()

    def _piece(self, signs: NDArray[np.bool_], A: Array, rhs: Vector) -> tuple[Array, Array]:
        """Walls w.x + b <= 0 of a piece and the goals on it, as rows with the constant last."""
        *units, output = forms_under(self.network, signs)
        hidden = [form for form, x in zip(units, self.network.layers, strict=True) if x.has_units]
        walls = np.concatenate([np.zeros((0, output.shape[1])), *hidden])
        goals = -A @ output
        goals[:, -1] += rhs
        return np.where(signs[:, None], -walls, walls), goals
