"""The part of a network that matters on a domain: what the bounds and searches really look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.arithmetic import rounding
from relunorm.arithmetic.floats import TINY, gamma, rounded_down, rounded_up
from relunorm.bounds.layers.every_unit import Around, layer_bounds
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain
from relunorm.domain.reach import reach_of
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Layer, Network, substitute, whole

#: Networks with more units keep their always-active units: folding them would fill sparse weights.
FOLD_UNITS = 4000

#: Of so many numbers at most, which units stay is kept as a dense matrix: products are quicker.
SELECTED = 1 << 20


@dataclass(frozen=True, eq=False)
class Local:
    """A network equal to the given one on the domain, over the domain's free coordinates.

    Equal up to rounding; `jacobian_error` bounds that of slopes.

    Args:
        given: the network over the free coordinates, without linear stages.
        domain: the domain in the free coordinates, or None for the whole space.
        free: the coordinates that vary; a box side of length zero fixes its coordinate.
        fixed: a full input with the fixed coordinates filled in.
        original: the network as it was given, linear stages included.
        bounds: on the units of the original network, layer by layer without linear stages.
        known: those of the given one as they were computed, and what was prepared for that; None
            on the whole space.
    """

    given: Network
    domain: Domain | None
    free: NDArray[np.intp]
    fixed: Vector
    original: Network
    bounds: list[tuple[Vector, Vector]] = field(repr=False)
    known: Around | None = field(default=None, repr=False)

    def part(self, box: Box, clock: Clock = NO_LIMIT) -> Local:
        """The same on a part of the domain, which is a box; sides of length zero are the same."""
        inner = Box(box.lo[self.free], box.hi[self.free])
        return _bounded(self.original, self.given, box, inner, self.free, clock, self.known)

    @property
    def network(self) -> Network:
        """Units that never change sign on the domain are folded into the affine maps."""
        return self._folded[0]

    @property
    def expressed(self) -> list[Affine]:
        """The input and the layers of the original network (without linear stages) as maps of the
        values of ``network``."""
        return self._folded[1]

    @cached_property
    def kept(self) -> list[NDArray[np.intp]]:
        """The units of these layers that are still units of ``network``."""
        if self.domain is None:
            return [np.arange(layer.width) for layer in self.given.layers]
        return stay(self.given, self.bounds)

    @cached_property
    def _folded(self) -> tuple[Network, list[Affine]]:
        if self.domain is None:
            return self.given, [whole(k, size) for k, size in enumerate(self.given.widths[:-1])]
        return fold_stable(self.given, self.bounds, self.kept)

    @cached_property
    def own_bounds(self) -> list[tuple[Vector, Vector]]:
        """Bounds on the units of ``network``."""
        pairs = zip(self.bounds, self.kept, strict=True)
        return [(low[some], high[some]) for (low, high), some in pairs if len(some)]

    @cached_property
    def unit_sizes(self) -> list[Vector]:
        """What is added up for the units of ``network``, layer by layer, folded terms included.

        Sums of absolute values on the domain; none where nothing was folded or no domain is given.
        """
        if self._is_original or self.domain is None:
            return []
        own, everything = self._magnitudes
        sizes = self._sizes(own, everything, True)
        hidden = [layer.affine for layer in self.original.layers if layer.has_units]
        pairs = zip(hidden, self.kept, strict=True)
        return [rounding.absolute(affine, sizes)[kept] for affine, kept in pairs if len(kept)]

    @property
    def _magnitudes(self) -> tuple[list[Any], Vector]:
        """Sizes of the values of ``network`` and of the inputs of the original, on the domain."""
        assert self.domain is not None
        box = self.domain.bounding_box
        inputs = np.maximum(np.abs(box.lo), np.abs(box.hi))
        everything = np.abs(self.fixed)
        everything[self.free] = inputs
        return rounding.magnitudes(self.network, self.own_bounds, inputs), everything

    @cached_property
    def jacobian_error(self) -> Array:
        """The same of the entries of the Jacobian, (outputs, free inputs).

        Of large networks it has one column: the sums over the inputs.
        """
        if self._is_original or self.has_exact_jacobians:
            return np.zeros((self.network.output_size, 1))
        own = rounding.gradients(self.network, self.own_bounds)
        everything = np.zeros((self.original.input_size, own[0].shape[1]))
        everything[self.free] = own[0]
        sizes = self._sizes(own, everything, False)
        original = rounding.sensitivity(self.original, self.original_bounds)
        return original.total(sizes, constant=False)

    @cached_property
    def jacobian_search_error(self) -> Array:
        """How far Jacobians of ``network`` can be off that are computed from affine forms."""
        if self.has_exact_jacobians:
            return np.zeros((self.network.output_size, 1))
        rates = rounding.gradients(self.network, self.own_bounds)
        return self.sensitivity.total(rates, constant=False)

    @cached_property
    def sensitivity(self) -> rounding.Sensitivity:
        """What a change of a unit of ``network`` does to its outputs."""
        return rounding.sensitivity(self.network, self.own_bounds)

    @cached_property
    def has_exact_jacobians(self) -> bool:
        """Whether Jacobians of the original network are computed without any rounding."""
        half = np.ones(self.original.input_size)
        if self.domain is not None:
            half[self.free] = self.domain.bounding_box.halfwidth
        return rounding.jacobians_are_exact(self.original, half)

    @property
    def _is_original(self) -> bool:
        """Whether no number was computed to get here."""
        everything = all(len(k) == len(b[0]) for k, b in zip(self.kept, self.bounds, strict=True))
        all_free = len(self.free) == self.original.input_size
        return everything and all_free and all(layer.has_units for layer in self.original.layers)

    @property
    def original_bounds(self) -> list[tuple[Vector, Vector]]:
        """Bounds on every layer of the original network, zeros for its linear stages."""
        own = iter(self.bounds)
        return [
            next(own) if layer.has_units else (np.zeros(layer.width), np.zeros(layer.width))
            for layer in self.original.layers
        ]

    def _sizes(self, own: Sequence[Any], inputs: Any, constant: bool) -> list[Any]:
        """What the expressions for the original's values add up, given the sizes of our values."""
        sizes, hidden = [inputs], iter(self.expressed[1:])
        for layer in self.original.layers:
            if layer.has_units:
                sizes.append(rounding.absolute(next(hidden), own, constant))
            else:
                sizes.append(rounding.absolute(layer.affine, sizes, constant))
        return sizes

    def lift(self, point: Array) -> Vector:
        """A point of the original input space."""
        full = self.fixed.copy()
        full[self.free] = point
        return full


def localize(network: Network, domain: Domain | None, clock: Clock = NO_LIMIT) -> Local:
    """Fold linear stages, fixed coordinates and every unit that bounds prove stable.

    Exact up to the rounding of the matrix products, which the result bounds. Without a domain only
    linear stages go. After the clock's end units are bounded by intervals alone, so fewer are
    folded.
    """
    original, network = network, network.folded()
    everything = np.arange(network.input_size)
    if domain is None:
        bounds = rounding.unknown_bounds(network)
        return Local(network, None, everything, np.zeros(network.input_size), original, bounds)
    domain.check_dimension(network.input_size)
    inner, box = domain, domain.as_box
    if box is not None and not (box.lo < box.hi).all():
        free = np.flatnonzero(box.lo < box.hi)
        if len(free):
            rest = np.where(box.lo < box.hi, 0.0, box.center)
            embedding = mx.as_matrix(mx.selection(free, network.input_size).T)
            network = network.restricted(embedding, rest)
            inner, everything = Box(box.lo[free], box.hi[free]), free
    return _bounded(original, network, domain, inner, everything, clock)


def _bounded(
    original: Network,
    given: Network,
    domain: Domain,
    inner: Domain,
    free: NDArray[np.intp],
    clock: Clock,
    around: Around | None = None,
) -> Local:
    """Bound every unit.

    Args:
        inner: the domain in the coordinates that are free.
        around: what is known over a domain that holds it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bounds, _ = layer_bounds(given, reach_of(inner), clock, solve=True, around=around)
        own = pairs = list(zip(bounds.lower, bounds.upper, strict=True))
        if given is not original:
            far = np.abs(domain.outer_ends()).max(axis=0)
            rest = np.where(np.isin(np.arange(len(far)), free), 0.0, far)
            pairs = _of_the_original(original, far, rest, pairs)
    known = bounds.problem, own
    return Local(given, inner, free, np.array(domain.center), original, pairs, known)


def _of_the_original(
    original: Network, far: Vector, fixed: Vector, bounds: Sequence[tuple[Vector, Vector]]
) -> list[tuple[Vector, Vector]]:
    """Bounds on the units of a network from those of the same one folded.

    Folding rounds the rows that read a linear stage or a fixed coordinate, so a unit that never
    turns on there may be on here, by as much as that and what it makes of units before.

    Args:
        far: the largest size of every input.
        fixed: sizes of the fixed coordinates, 0 for all others.
    """
    sizes, errors, found = [far], [np.zeros(len(far))], []
    folded = [fixed]  # positive where a value is folded into what reads it
    own = iter(bounds)
    for layer in original.layers:
        affine, steep = layer.affine, max(map(abs, layer.activation.slopes))
        size, passed, new = (
            rounding.absolute(affine, values, constant=values is sizes)
            for values in (sizes, errors, folded)
        )
        lost = gamma(2 * (sum(m.shape[1] for m in affine.terms.values()) + 4))
        error = np.where(new > 0, lost * size + TINY, 0.0) + passed * (1 + lost)
        if layer.has_units:
            low, high = next(own)
            low = np.where(error > 0, rounded_down(low, error), low)
            high = np.where(error > 0, rounded_up(high, error), high)
            found.append((low, high))
            size = np.minimum(size, np.maximum(np.abs(low), np.abs(high)))
        if layer.activation.kind == "step":
            size, steep = np.full(layer.width, max(1.0, abs(layer.activation.at_zero))), 1.0
            error = np.where(error > 0, 2 * size, 0.0)  # it may have turned
        sizes.append(steep * size)
        errors.append(steep * error)
        folded.append(np.full(layer.width, 0.0 if layer.has_units else 1.0))
    return found


def stay(network: Network, bounds: Sequence[tuple[Vector, Vector]]) -> list[NDArray[np.intp]]:
    """The units of every layer that `fold_stable` leaves."""
    fold_active, found = network.units <= FOLD_UNITS, []
    for layer, (low, high) in zip(network.layers, bounds, strict=True):
        linear = (high <= 0) & (fold_active or layer.activation.slopes[0] == 0)
        linear |= (low >= 0) & fold_active
        found.append(np.flatnonzero(~linear | (layer.activation.kind == "step")))
    return found


def fold_stable(
    network: Network,
    bounds: Sequence[tuple[Vector, Vector]],
    staying: Sequence[NDArray[np.intp]],
) -> tuple[Network, list[Affine]]:
    """Replace units that keep one sign by their line; layers without units left disappear.

    Args:
        staying: the units that stay (`stay`).

    Returns:
        the network, and every value of the given one as a map of its values.
    """
    expressed: list[Affine] = [whole(0, network.input_size)]
    layers: list[Layer] = []
    plain = not any(sp.issparse(m) for x in network.layers for m in x.affine.terms.values())
    for layer, (_, high), kept in zip(network.layers, bounds, staying, strict=True):
        below, above = layer.activation.slopes
        affine = substitute(layer.affine, expressed)
        slope = np.where(high <= 0, below, above)
        slope[kept] = 0.0
        line = _scaled(affine, slope)
        if len(kept):
            rows = {k: mx.as_matrix(m[kept]) for k, m in affine.terms.items()}
            layers.append(Layer(Affine(rows, affine.bias[kept]), layer.activation, layer.name))
            terms: dict[int, Any] = dict(line.terms)
            chosen = mx.selection(kept, layer.width).T
            dense = plain and layer.width * len(kept) <= SELECTED
            terms[len(layers)] = chosen.toarray() if dense else mx.as_matrix(chosen)
            line = Affine(terms, line.bias)
        expressed.append(line)
    output = substitute(network.output, expressed)
    return network.replace(layers=layers, output=output), expressed


def _scaled(affine: Affine, slope: Vector) -> Affine:
    terms = {k: mx.scale_rows(m, slope) for k, m in affine.terms.items()}
    return Affine({k: m for k, m in terms.items() if np.any(mx.entries(m))}, affine.bias * slope)
