"""Where slopes are searched for: one window for a domain, several for the whole space.

A bounded domain is seen through x = centre + halfwidth * t, t in [-1, 1]^d. The whole space is seen
projectively: with homogeneous coordinates (x, s) every bias is a weight on s, the regions of R^d
are the cones of the homogeneous network with s > 0, and each of those meets the boundary of the box
|x|_inf <= R s_max. So its 2 d + 1 faces (s = 1, and x_i = +R or -R with 0 <= s <= 1) together see
every region, bounded or not, at a bounded distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relunorm import matrix as mx
from relunorm.domain import Domain
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.regions.kernels.pack import Packed, pack
from relunorm.regions.search.window import homogenized

HalfSpaces = tuple[Array, Vector]


@dataclass(frozen=True, eq=False)
class Window:
    """A network in the coordinates of a box, with the half-spaces of a polytope domain.

    Args:
        net: the network as a function of t; columns: its weights, every matrix column by column.
        lo, hi: the box of t.
        rows, rhs: further half-spaces rows . t <= rhs, unit rows.
        rates: dt/dx per coordinate, for Jacobians in x; 0 for the homogeneous coordinate.
        scale, shift: x = scale * t + shift, or scale * t / s for a homogeneous window.
        homogeneous: whether the last coordinate is s.
        ball: (m, r, p) where the domain lies in |x - m|_p <= r, too.
    """

    net: Packed
    columns: Vector
    lo: Vector
    hi: Vector
    rows: Array
    rhs: Vector
    rates: Vector
    scale: Vector
    shift: Vector
    homogeneous: bool = False
    ball: tuple[Vector, float, int] | None = None

    def to_input(self, t: Vector) -> Vector | None:
        """The point of the input space, None for a point at infinity."""
        if not self.homogeneous:
            return self.scale * t + self.shift
        return self.scale * t[:-1] / t[-1] if t[-1] > 0 else None


def windows(
    network: Network, domain: Domain | None, half_spaces: HalfSpaces | None = None
) -> Iterator[Window]:
    """The windows that together see every region meeting the interior of the domain.

    Args:
        half_spaces: (A, b), what else bounds the domain.
    """
    if domain is not None:
        yield bounded(network, domain, half_spaces)
        return
    size = network.input_size
    reach = kink_radius(network)
    homogeneous = homogenized(network, reach * np.eye(size))
    packed = _packed(homogeneous, np.eye(size + 1), np.zeros(size + 1))
    for face in range(2 * size + 1):
        lo, hi = np.append(-np.ones(size), 0.0), np.ones(size + 1)
        axis, side = (size, 1.0) if face == 0 else ((face - 1) // 2, (-1.0) ** face)
        lo[axis] = hi[axis] = side
        yield Window(
            *packed,
            lo,
            hi,
            np.zeros((0, size + 1)),
            np.zeros(0),
            np.append(np.full(size, 1 / reach), 0.0),
            np.full(size, reach),
            np.zeros(size),
            homogeneous=True,
        )


def _packed(network: Network, embedding: Array, offset: Vector) -> tuple[Packed, Vector]:
    return pack(network, embedding, offset), pack(network, embedding, offset, True).weights


def kink_radius(network: Network) -> float:
    """A radius around which the first kinks lie; any positive number is correct."""
    kinks = []
    for layer in network.layers:
        if 0 in layer.affine.terms:
            length = np.linalg.norm(mx.dense(layer.affine.terms[0]), axis=1)
            kinks.append(np.abs(layer.affine.bias)[length > 0] / length[length > 0])
    found = np.concatenate(kinks) if kinks else np.zeros(0)
    found = found[(found > 1e-100) & (found < 1e100)]
    return float(2 * np.median(found)) if len(found) else 1.0


def bounded(network: Network, domain: Domain, half_spaces: HalfSpaces | None = None) -> Window:
    """The window of a bounded domain; a box side of length zero keeps its coordinate at t = 0.

    Half-spaces are moved outward by what rounding takes of them.
    """
    box = domain.bounding_box
    half = np.where(box.halfwidth > 0, box.halfwidth, 1.0)
    size = len(half)
    rows, rhs = np.zeros((0, size)), np.zeros(0)
    if half_spaces is not None:
        A, b = half_spaces
        lengths = np.linalg.norm(A * half, axis=1)
        keep = lengths > 0
        rows = (A * half)[keep] / lengths[keep, None]
        size = np.abs(b) + np.abs(A) @ (np.abs(box.center) + half)
        rhs = (b - A @ box.center + 2.0**-50 * (len(half) + 4) * size)[keep] / lengths[keep]
    flat = box.halfwidth > 0
    return Window(
        *_packed(network, np.diag(half), np.array(box.center)),
        np.where(flat, -1.0, 0.0),
        np.where(flat, 1.0, 0.0),
        rows,
        rhs,
        1 / half,
        half,
        np.array(box.center),
        ball=domain.norm_bound,
    )
