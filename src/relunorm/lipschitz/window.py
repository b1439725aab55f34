"""A bounded domain as a box of half-width one: the coordinates the compiled sign tree works in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Domain, Polytope
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.regions.kernels.pack import Packed, pack
from relunorm.regions.kernels.tree_state import State, new_state


@dataclass(frozen=True, eq=False)
class Window:
    """A network in the coordinates of a box, with the half-spaces of a polytope domain.

    Args:
        net: the network as a function of t.
        lo, hi: the box of t.
        rows, rhs: further half-spaces rows . t <= rhs, unit rows.
        witness: a point of all that.
        rates: dt/dx per coordinate, for Jacobians in x; 0 for the homogeneous coordinate.
        scale, shift: x = scale * t + shift, or scale * t / s for a homogeneous window.
        homogeneous: whether the last coordinate is s.
    """

    net: Packed
    lo: Vector
    hi: Vector
    rows: NDArray[np.float64]
    rhs: Vector
    witness: Vector
    rates: Vector
    scale: Vector
    shift: Vector
    homogeneous: bool = False

    def state(self, stop: NDArray[np.uint8]) -> State:
        """A search at the root of this window; ``stop`` of `Clock.watch`."""
        witness = self.witness[None]
        return new_state(self.net, self.lo, self.hi, self.rows, self.rhs, witness, stop=stop)

    def to_input(self, t: Vector) -> Vector | None:
        """The point of the input space, None for a point at infinity."""
        if not self.homogeneous:
            return self.scale * t + self.shift
        return self.scale * t[:-1] / t[-1] if t[-1] > 0 else None


def bounded(network: Network, domain: Domain) -> Window:
    """The window of a bounded domain; a box side of length zero keeps its coordinate at t = 0."""
    box = domain.bounding_box
    half = np.where(box.halfwidth > 0, box.halfwidth, 1.0)
    size = len(half)
    rows, rhs = np.zeros((0, size)), np.zeros(0)
    witness = np.zeros(size)
    if isinstance(domain, Polytope):
        lengths = np.linalg.norm(domain.A * half, axis=1)
        keep = lengths > 0
        rows = (domain.A * half)[keep] / lengths[keep, None]
        rhs = (domain.b - domain.A @ box.center)[keep] / lengths[keep]
        witness = (domain.center - box.center) / half
    flat = box.halfwidth > 0
    return Window(
        pack(network, np.diag(half), np.array(box.center)),
        np.where(flat, -1.0, 0.0),
        np.where(flat, 1.0, 0.0),
        rows,
        rhs,
        witness,
        1 / half,
        half,
        np.array(box.center),
    )
