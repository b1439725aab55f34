"""The part of a network that matters on a domain: what the bounds and searches really look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain
from relunorm.extrema.relaxation import UnitBounds, unit_bounds
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network, substitute

#: Networks with more units keep their always-active units: folding them would fill sparse weights.
FOLD_UNITS = 4000


@dataclass(frozen=True, eq=False)
class Local:
    """A network equal to the given one on the domain, over the domain's free coordinates.

    Args:
        network: units that never change sign on the domain are folded into the affine maps.
        domain: the domain in the free coordinates, or None for the whole space.
        free: the coordinates that vary; a box side of length zero fixes its coordinate.
        fixed: a full input with the fixed coordinates filled in.
    """

    network: Network
    domain: Domain | None
    free: NDArray[np.intp]
    fixed: Vector

    def lift(self, point: NDArray[np.float64]) -> Vector:
        """A point of the original input space."""
        full = self.fixed.copy()
        full[self.free] = point
        return full


def localize(network: Network, domain: Domain | None, clock: Clock = NO_LIMIT) -> Local:
    """Fold linear stages, fixed coordinates and every unit that bounds prove stable.

    Exact up to the rounding of the matrix products. Without a domain only linear stages go. After
    the clock's end units are bounded by intervals alone, so fewer are folded.
    """
    network = network.folded()
    everything = np.arange(network.input_size)
    if domain is None:
        return Local(network, None, everything, np.zeros(network.input_size))
    domain.check_dimension(network.input_size)
    fixed = np.array(domain.center)
    if isinstance(domain, Box) and not (domain.lo < domain.hi).all():
        free = np.flatnonzero(domain.lo < domain.hi)
        if len(free):
            network = fix_inputs(network, free, fixed)
            domain = Box(domain.lo[free], domain.hi[free])
            everything = free
    box = domain.bounding_box
    bounds = unit_bounds(network, box.lo[None], box.hi[None], domain, clock=clock)
    return Local(fold_stable(network, bounds), domain, everything, fixed)


def fix_inputs(network: Network, free: NDArray[np.intp], fixed: Vector) -> Network:
    """The network as a function of the free coordinates alone, the others at ``fixed``."""
    rest = fixed.copy()
    rest[free] = 0.0
    embedding = mx.as_matrix(mx.selection(free, network.input_size).T)
    expressed = [Affine({0: embedding}, rest)]
    expressed += [_same(k + 1, layer.width) for k, layer in enumerate(network.layers)]
    layers = [
        Layer(substitute(x.affine, expressed), x.activation, x.name, x.shape)
        for x in network.layers
    ]
    output = substitute(network.output, expressed)
    return network.replace(layers=layers, output=output, input_shape=len(free))


def fold_stable(network: Network, bounds: UnitBounds) -> Network:
    """Replace units that keep one sign by their line; layers without units left disappear.

    Args:
        bounds: pre-activation bounds for one box.
    """
    fold_active = network.units <= FOLD_UNITS
    expressed: list[Affine] = [_same(0, network.input_size)]
    layers: list[Layer] = []
    for index, layer in enumerate(network.layers):
        low, high = bounds.lows[index][0], bounds.highs[index][0]
        below, above = layer.activation.slopes
        affine = substitute(layer.affine, expressed)
        if layer.activation.kind == "step":
            keep = np.ones(layer.width, dtype=bool)
        else:
            linear = (high <= 0) & (fold_active or below == 0) | ((low >= 0) & fold_active)
            keep = ~linear
        slope = np.where(keep, 0.0, np.where(high <= 0, below, above))
        kept = np.flatnonzero(keep)
        line = _scaled(affine, slope)
        if len(kept):
            rows = {k: mx.as_matrix(m[kept]) for k, m in affine.terms.items()}
            layers.append(Layer(Affine(rows, affine.bias[kept]), layer.activation, layer.name))
            terms: dict[int, Any] = dict(line.terms)
            terms[len(layers)] = mx.as_matrix(mx.selection(kept, layer.width).T)
            line = Affine(terms, line.bias)
        expressed.append(line)
    return network.replace(layers=layers, output=substitute(network.output, expressed))


def _scaled(affine: Affine, slope: Vector) -> Affine:
    terms = {k: mx.scale_rows(m, slope) for k, m in affine.terms.items()}
    return Affine({k: m for k, m in terms.items() if np.any(mx.entries(m))}, affine.bias * slope)


def _same(source: int, size: int) -> Affine:
    return Affine({source: mx.identity(size)}, np.zeros(size))
