"""Which points lie inside a region, so that the Jacobian there is a lower bound.

At a kink the Jacobian as it is computed (the slope from below for every unit at its kink) need not
be that of any region: x - relu(x)/2 + relu(-x)/2 = x/2 gets the slope 1 at 0. A point x of the
domain counts when every unit

- is farther from its kink than rounding can have moved it: then x has a neighbourhood on which the
  unit keeps its sign, and that neighbourhood meets the interior of the domain; or
- vanishes identically around x: nothing it reads moves there (its bias is zero, and every value it
  reads with a weight is that of an idle unit), or its gradient is zero up to rounding.

The first part is sound by construction. Let s be what was added up for a unit in absolute values,
s = |b| + |W| s', with s' the same of the values it reads (|x| of inputs). Then z is off by at most
g s, with g growing by n + 2 roundings a layer, n the terms of a sum (Higham 2002, section 3.1).
Inputs are as given, so they have no error in a box; points of a ball or a polytope may be outside
by the rounding of the test, which is counted in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic.rounding import absolute, path_sums
from relunorm.domain import Domain
from relunorm.lipschitz.norms import ROUNDOFF
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Network
from relunorm.network.patterns import forms_under, slopes_under

#: Added to sizes: products below the normal numbers lose more than their relative rounding.
UNDERFLOW = 2.0**-960

#: Gradients of all units of a layer may take this many numbers.
GRADIENT_ENTRIES = 1 << 21


def near_kink(network: Network, points: Array, domain: Domain | None) -> NDArray[np.bool_]:
    """For every point whether some unit is within rounding of its kink and may move off it."""
    near = np.zeros(len(points), dtype=bool)
    sizes, roundings = [_input_sizes(points, domain)], [_input_rounding(network, domain)]
    values: list[Array] = [points]
    live: list[NDArray[np.bool_]] = [np.ones(points.shape, dtype=bool)]
    for layer in network.layers:
        affine = layer.affine
        z = affine(values)
        size = affine.absolute()(sizes)
        fixed = (size == 0.0) & (z == 0.0)
        if fixed.any():  # or its products have underflowed
            fixed &= ~_reads_live(affine, live)
        size = np.where(fixed, 0.0, size + UNDERFLOW)
        rounding = _rounding(affine, roundings)
        near |= ((np.abs(z) <= rounding * size) & ~fixed).any(axis=1) & layer.has_units
        slope = np.abs(layer.activation.derivative(z))
        values.append(layer.activation.apply_(z))
        sizes.append(size * slope)
        live.append((slope != 0.0) & ~fixed)
        roundings.append(rounding)
    return near


def _reads_live(affine: Affine, live: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """For every point and row whether the row reads a value that moves, or has a bias."""
    count = np.tile((affine.bias != 0.0).astype(float), (len(live[0]), 1))
    for source, matrix in affine.terms.items():
        some: Any = (matrix != 0).astype(float)
        count = count + live[source].astype(float) @ some.T
    return count > 0.0


def _input_sizes(points: Array, domain: Domain | None) -> Array:
    if domain is None or domain.as_box is not None:
        return np.abs(points)
    box = domain.bounding_box
    return np.broadcast_to(np.maximum(np.abs(box.lo), np.abs(box.hi)), points.shape)


def _input_rounding(network: Network, domain: Domain | None) -> float:
    exact = domain is None or domain.as_box is not None
    return 0.0 if exact else 8.0 * (network.input_size + 4) * ROUNDOFF


def _rounding(affine: Affine, roundings: list[float]) -> float:
    """How far pre-activations are off, relative to their sizes; twice, for higher orders."""
    terms = sum(mx.longest_row(matrix) for matrix in affine.terms.values())
    before = max((roundings[source] for source in affine.terms), default=0.0)
    return before + 2.0 * (terms + 2) * ROUNDOFF


def is_differentiable(network: Network, point: Vector, domain: Domain | None) -> bool:
    """Whether every unit near its kink at the point vanishes identically around it.

    Then its gradient is zero up to rounding: weights that cancel (a maximum of equal terms, a unit
    and its copy) make such units on whole regions.
    """
    if network.input_size * max(network.widths) > GRADIENT_ENTRIES:
        return False
    sizes = [_input_sizes(point[None], domain)[0]]
    roundings = [_input_rounding(network, domain)]
    bulks: list[Array] = [np.eye(network.input_size)]
    bits, heights = network.pattern(point), iter(network.preactivations(point))
    under = zip(slopes_under(network.layers, bits), forms_under(network, bits), strict=False)
    for layer, (slope, form) in zip(network.layers, under, strict=True):
        size, bulk = absolute(layer.affine, sizes), absolute(layer.affine, bulks, constant=False)
        rounding = _rounding(layer.affine, roundings)
        flat = (np.abs(form[:, :-1]) <= rounding * bulk).all(axis=1)
        if layer.has_units:
            near = np.abs(next(heights)[0]) <= rounding * (size + UNDERFLOW)
            if (near & ~flat).any():
                return False
        sizes.append(size * np.abs(slope))
        bulks.append(bulk * np.abs(slope)[:, None])
        roundings.append(rounding)
    return True


def rounding_of(network: Network) -> float:
    """How far the entries of a Jacobian are off, relative to `slope_sums`."""
    roundings = [0.0]
    for affine in network.maps:
        roundings.append(_rounding(affine, roundings))
    return roundings[-1]


def slope_sums(network: Network, point: Vector) -> Array:
    """Sums over paths of products of |weight| and |slope| at a point: what its Jacobian adds up."""
    return path_sums(network, [*slopes_under(network.layers, network.pattern(point))])[0]
