"""What a search for slopes and the replay of its proof start from: a network on a domain.

Bounds of a search speak of the network with its stable units folded, in coordinates of a window, as
computed. Here they become bounds on the network as it was given, in real arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic.floats import SMALLEST, UNIT
from relunorm.arithmetic.rounding import path_sums, slopes_on
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain
from relunorm.domain.reach import Reach, reach_of
from relunorm.errors import InvalidDomainError
from relunorm.extrema.localize import Local, localize
from relunorm.lipschitz.norms import matrix_size, round_up
from relunorm.lipschitz.search.cells import margin_of
from relunorm.lipschitz.search.contacts import Contacts
from relunorm.lipschitz.search.windows import HalfSpaces, Window, windows
from relunorm.matrix import Array, Vector
from relunorm.network import Affine, Network

#: With at most so many coordinates, a box in which more units than this change sign is halved.
FEW_INPUTS, MANY_UNITS = 3, 100

#: A search keeps the least of many bounds on a node, and a replay computes some of them only. In
#: real numbers they fall from node to node; as computed, one may be above an earlier one by the
#: rounding of both. So a search claims less than it may, with so many times that rounding.
AGAIN = 3.0


@dataclass(frozen=True, eq=False)
class Setting:
    """A network on a domain, or on the whole space.

    Args:
        local: what matters of it; for a polytope, on a box that surely holds it.
        polytope: the polytope, and the multipliers that prove the box.
    """

    local: Local
    polytope: Reach | None = None

    @classmethod
    def of(
        cls,
        network: Network,
        domain: Domain | None,
        clock: Clock = NO_LIMIT,
        box_duals: Array | None = None,
    ) -> Setting:
        """Fold what is stable on the domain; after the clock's end less of it.

        Args:
            box_duals: what proves the box around a polytope; without them a solver is asked.
        """
        if domain is None or not domain.rows:
            return cls(localize(network, domain, clock))
        reach = reach_of(domain, box_duals)
        if not (reach.lo < reach.hi).all():
            raise InvalidDomainError(
                f"{domain!r} has a side of length zero; describe it in the other coordinates"
            )
        return cls(localize(network, Box(reach.lo, reach.hi), clock), reach)

    @property
    def domain(self) -> Domain | None:
        """The domain in the coordinates that vary."""
        return self.local.domain if self.polytope is None else self.polytope.domain

    @property
    def box_duals(self) -> Array | None:
        """What proves the box around a polytope."""
        return None if self.polytope is None else self.polytope.box_duals

    @property
    def _half_spaces(self) -> HalfSpaces | None:
        return None if self.polytope is None else self.polytope.domain.half_spaces

    def parts(self, domain: Domain | None, clock: Clock = NO_LIMIT) -> list[Setting]:
        """The domain in parts on which few units change sign, if it is a box in a small space.

        Units that change sign on a box are about as many as its longest sides are long, so crowded
        boxes are halved several times before their pieces are bounded.
        """
        whole = None if domain is None else domain.as_box
        if whole is None or len(self.local.free) > FEW_INPUTS:
            return [self]
        waiting, done, sides = [(whole, self)], [], len(self.local.free)
        while waiting:
            box, part = waiting.pop()
            open_ = sum(map(len, part.local.kept))
            times = sides * np.log2(max(open_, 1) / MANY_UNITS)
            pieces = _halved(box, int(times)) if times > 0.0 and not clock.expired() else []
            found = []
            for piece in pieces:
                if not clock.expired():
                    found.append((piece, Setting(part.local.part(piece, clock))))
            if pieces and len(found) == len(pieces):
                waiting += found
            else:
                done.append(part)
        return done

    @cached_property
    def windows(self) -> list[Window]:
        """Where to search."""
        return list(windows(self.local.network, self.local.domain, self._half_spaces))

    @cached_property
    def contacts(self) -> Contacts:
        """What decides about sides of units that a cell only touches."""
        return Contacts(self.local, self._half_spaces)

    @cached_property
    def margin(self) -> float:
        """What rounding takes of sums along paths, relative."""
        return margin_of(self.local)

    @cached_property
    def intervals(self) -> tuple[Array, Array]:
        """Bounds on every entry of the Jacobian, in real arithmetic, by slopes of units alone."""
        local = self.local
        low, high = jacobian_interval(local.network, local.own_bounds)
        zero = (low == 0) & (high == 0)
        low, high = low - local.jacobian_error, high + local.jacobian_error
        if zero.any():  # no path leads there, unless rounding made it so: the original knows
            first, last = jacobian_interval(local.original, local.original_bounds)
            zero &= (first[:, local.free] == 0) & (last[:, local.free] == 0)
        return np.where(zero, 0.0, low), np.where(zero, 0.0, high)

    @cached_property
    def paths(self) -> Array:
        """Sums of absolute values over all paths, (outputs, inputs)."""
        return path_sums(self.local.network)[0]

    @cached_property
    def error(self) -> Array:
        """How far entries of Jacobians are off: of folding, of forms, of sums over paths."""
        if self.local.has_exact_jacobians:
            return np.zeros_like(self.paths)
        own = 2.0 * self.margin * self.paths
        return own + self.local.jacobian_search_error + self.local.jacobian_error

    def entry_bound(self, output: int, axis: int, bound: float, replayed: bool = False) -> float:
        """An upper bound on an entry (or its negative) from that of a search in its window.

        `steepest` adds up one sum over all paths for the entry and one for every layer's lines.
        """
        lines = 2.0 * (len(self.local.network.layers) + 1) * self.margin
        lines *= 1.0 if replayed else AGAIN
        top = bound * float(self.windows[0].rates[axis])
        top += float(self.error[output, axis] + lines * self.paths[output, axis])
        return float(np.nextafter(top + 4 * abs(top) * 2.0**-53, np.inf))

    def norm_bound(self, norm: float, bound: float, replayed: bool = False) -> float:
        """An upper bound on norms of Jacobians from that of a search."""
        again = 1.0 if replayed else AGAIN
        return round_up(bound + again * matrix_size(self.error, norm), int(8 * again))


def _halved(box: Box, times: int) -> list[Box]:
    """A box halved across its longest side, at least once; nothing where floats end."""
    k = int(np.argmax(box.hi - box.lo))
    middle = 0.5 * box.lo[k] + 0.5 * box.hi[k]
    if not box.lo[k] < middle < box.hi[k]:
        return []
    halves = Box(box.lo, _put(box.hi, k, middle)), Box(_put(box.lo, k, middle), box.hi)
    if times <= 1:
        return list(halves)
    return [piece for half in halves for piece in _halved(half, times - 1) or [half]]


def _put(vector: Vector, k: int, value: float) -> Vector:
    changed = np.array(vector)
    changed[k] = value
    return changed


def jacobian_interval(
    network: Network, bounds: Sequence[tuple[Vector, Vector]]
) -> tuple[Array, Array]:
    """Lower and upper bounds (outputs, inputs) on the Jacobian of every region.

    Backwards from the outputs: a unit whose sign is known has its slope, any other one the whole
    interval of its slopes; products and sums are rounded outward. Sound, and loose where many units
    change sign. Where a unit is 0 on a whole region its slope does not matter.

    Args:
        network: relu or leaky units.
        bounds: of the pre-activations, layer by layer; those of linear stages do not matter.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> low, high = jacobian_interval(net, [(np.array([-1.0, -2.0]), np.array([2.0, 1.0]))])
    >>> bool(abs(low[0, 0] + 1) < 1e-12 and abs(high[0, 0] - 1) < 1e-12)
    True
    """
    outputs = network.output_size
    widths = [network.input_size, *(layer.width for layer in network.layers)]
    low = [np.zeros((outputs, width)) for width in widths]
    high = [np.zeros((outputs, width)) for width in widths]
    one = np.eye(outputs)
    _pull(network.output, one, one, low, high)
    for index in range(len(network.layers) - 1, -1, -1):
        layer, (lo, hi) = network.layers[index], bounds[index]
        first, last = slopes_on(layer.activation, lo, hi)
        ends = np.array([g * s for g in (low[index + 1], high[index + 1]) for s in (first, last)])
        lost = 2 * UNIT * np.abs(ends).max(axis=0)
        lost += SMALLEST * (((low[index + 1] != 0) | (high[index + 1] != 0)) & (last != 0))
        least, most = ends.min(axis=0), ends.max(axis=0)
        least = np.where(least >= 0, np.maximum(least - lost, 0.0), least - lost)
        most = np.where(most <= 0, np.minimum(most + lost, 0.0), most + lost)
        _pull(layer.affine, least, most, low, high)
    return low[0], high[0]


def _pull(affine: Affine, low: Array, high: Array, lows: list[Array], highs: list[Array]) -> None:
    """Add intervals times the rows of a map to the intervals of what it reads."""
    for source, matrix in affine.terms.items():
        dense = mx.dense(matrix)
        up, down = np.maximum(dense, 0.0), np.minimum(dense, 0.0)
        size = np.maximum(np.abs(low), np.abs(high)) @ np.abs(dense)
        before = np.maximum(np.abs(lows[source]), np.abs(highs[source]))
        lost = 4 * (len(dense) + 4) * UNIT * (size + before)
        # A sum without negative terms is not negative, however it is rounded. Terms are counted,
        # since a product may underflow.
        some, more, less = (1.0 * (part != 0) for part in (dense, up, down))
        rising = (lows[source] >= 0) & ((low < 0) @ more + (high > 0) @ less == 0)
        falling = (highs[source] <= 0) & ((high > 0) @ more + (low < 0) @ less == 0)
        lost += SMALLEST * (((low != 0) | (high != 0)) @ some)
        least = lows[source] + low @ up + high @ down - lost
        most = highs[source] + high @ up + low @ down + lost
        lows[source] = np.where(rising, np.maximum(least, 0.0), least)
        highs[source] = np.where(falling, np.minimum(most, 0.0), most)
