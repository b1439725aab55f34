"""Removal, sweep by sweep over the layers from the input up: what becomes of each unit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain.reach import Reach
from relunorm.errors import TimeLimitError
from relunorm.forms.outward import Range, span
from relunorm.forms.removal.dependence import Carriers, Groups, carriers, orientation, proportional
from relunorm.forms.removal.reduced import Reduced, Removal, Rules, Straight, drop_unobserved
from relunorm.forms.removal.shortcuts import take_shortcuts
from relunorm.forms.rewrite import (
    Origin,
    Rewriter,
    columns_read,
    dense_rows,
    divided,
    one_hot,
    row_norms,
    rows,
    scaled,
    stacked,
    total,
)
from relunorm.matrix import Vector
from relunorm.network import Activation, Affine, Layer, Network


def remove(
    network: Network, straight: Straight, ranges: Sequence[Range], reach: Reach | None, rules: Rules
) -> Reduced:
    """Apply all removals until none is left.

    A layer that loses all its units disappears.

    Args:
        network: without linear stages.

    Raises:
        TimeLimitError: the clock of the rules ended before the first sweep was done.
    """
    state = drop_unobserved(Reduced.whole(network))
    for sweep in itertools.count():
        before = state.network.units
        try:
            if rules.arrange is None:  # a canonical form turns and folds whatever it can anyway
                state = drop_unobserved(take_shortcuts(state, straight, rules))
            state = drop_unobserved(_sweep(state, straight, ranges, reach, rules))
        except TimeLimitError:
            if not sweep or rules.arrange is not None:  # a standard form is finished or none
                raise
            break
        if state.network.units == before:
            break
    state.removed.sort(key=lambda r: (r.layer, r.unit))
    return state


def _sweep(
    state: Reduced, straight: Straight, ranges: Sequence[Range], reach: Reach | None, rules: Rules
) -> Reduced:
    """Remove what can be removed, each layer seeing the layers below already reduced."""
    walk = _Sweep(state, straight, ranges, reach, rules)
    for k, layer in enumerate(state.network.layers):
        rules.clock.check()
        walk.reduce(k, layer)
    return Reduced(walk.rewriter.finish(), walk.rewriter.origins, walk.removed)


class _Sweep:
    def __init__(
        self,
        state: Reduced,
        straight: Straight,
        ranges: Sequence[Range],
        reach: Reach | None,
        rules: Rules,
    ):
        self.state, self.straight, self.ranges = state, straight, ranges
        self.reach, self.rules = reach, rules
        self.rewriter = Rewriter(state.network, rules.product)
        self.removed = list(state.removed)
        size = state.network.input_size
        # of the new values
        self.boxes = [Range.endless(size) if reach is None else Range(reach.lo, reach.hi)]

    def reduce(self, k: int, layer: Layer) -> None:
        """Split the layer's units into linear ones, copies and the rest, and emit the rest."""
        affine = self.rewriter.incoming(layer.affine)
        origins = self.state.origins[k]
        slope, constant, why = self._linear(affine, layer.activation, origins)
        linear = np.array([reason is not None for reason in why], dtype=bool)
        groups = self._groups(k, affine, layer.activation, np.flatnonzero(~linear))
        bent = np.flatnonzero(~linear & (groups.leader == np.arange(affine.size)))
        targets = np.full(affine.size, -1, dtype=np.intp)
        targets[bent] = np.arange(len(bent))
        targets = np.where(linear, -1, targets[groups.leader])
        side = np.ones(affine.size)
        if self.rules.orient and layer.activation.kind != "step":
            side[bent] = orientation(dense_rows(rows(affine, bent)))
        # relu(z) = z + relu(-z); for a leaky unit the first part is (1 + slope) z
        turned = (groups.factor < 0) != (side[groups.leader] < 0)
        past = np.where(~linear & turned, sum(layer.activation.slopes), 0.0)
        past[linear] = slope[linear]
        sloped = np.flatnonzero(linear & (slope != 0))
        skips = bool(past[~linear].any()) or bool((constant[sloped] != 0).any())
        mixed = np.array([origins[i] is None for i in sloped], dtype=bool)
        made = self._carriers(k, affine, sloped, slope, skips, mixed)
        self._record(origins, why, groups, sloped, made)
        parts, labels = [scaled(rows(affine, bent), side[bent])], [origins[i] for i in bent]
        recovered = [Affine({}, np.where(linear, constant, 0.0))]
        if made is not None:
            past[sloped] = 0.0
            parts.append(made.affine)
            labels += [origins[sloped[i]] if i >= 0 else None for i in made.survivors]
            shift = np.zeros(affine.size)
            shift[sloped] = made.constant
            recovered.append(Affine({}, shift))
        recovered.append(scaled(affine, past))
        new = stacked(parts)
        if new.size:
            matrix: mx.Matrix = one_hot(targets, np.abs(groups.factor), new.size)
            if made is not None:
                spread = np.zeros((affine.size, new.size))
                spread[np.ix_(sloped, len(bent) + np.arange(made.affine.size))] = made.spread
                matrix = mx.add(matrix, spread)
            recovered.append(self._emit(layer, new, matrix, labels))
        self.rewriter.express(total(recovered))

    def _emit(self, layer: Layer, new: Affine, matrix: mx.Matrix, labels: list[Origin]) -> Affine:
        """Emit the new units, arranged by the rules; how the old values read them."""
        if self.rules.arrange is not None:
            factor, order = self.rules.arrange(new)
            new = rows(divided(new, factor), order)
            labels = [labels[i] for i in order]
            if layer.activation.kind != "step":
                matrix = mx.scale_columns(matrix, factor)
            matrix = mx.as_matrix(matrix[:, order])
        value = self.rewriter.emit(new, layer.activation, layer.name, labels)
        self.boxes.append(self._range(new, labels).after(layer.activation))
        return Affine({value: matrix}, np.zeros(matrix.shape[0]))

    def _linear(
        self, affine: Affine, activation: Activation, origins: Sequence[Origin]
    ) -> tuple[Vector, Vector, list[Removal | None]]:
        """Slope, constant and reason of every linear unit; the reason is None for the others."""
        slope, constant = np.zeros(affine.size), np.zeros(affine.size)
        why: list[Removal | None] = [None] * affine.size
        empty = row_norms(affine, 1) == 0
        for i, origin in enumerate(origins):
            if origin is None:  # a mixture made by an earlier sweep, never negative
                slope[i], why[i] = 1.0, Removal(-1, -1, "active")
                continue
            layer, unit = origin
            if empty[i]:
                constant[i] = activation.apply_(affine.bias[i : i + 1].copy())[0]
                why[i] = Removal(layer, unit, "constant", float(affine.bias[i]))
            elif self.straight.flat[layer][unit]:
                slope[i] = self.straight.slope[layer][unit]
                constant[i] = self.straight.constant[layer][unit]
                why[i] = self.straight.why[layer][unit]
        return slope, constant, why

    def _groups(
        self, k: int, affine: Affine, activation: Activation, units: NDArray[np.intp]
    ) -> Groups:
        """Which of the units are multiples of another, factors as they act on values."""
        leader, factor = np.arange(affine.size), np.ones(affine.size)
        part, rules = rows(affine, units), self.rules
        turn = rules.architecture == "any" and activation.kind != "step"
        near = {"tolerance": rules.tolerance, "relative": rules.relative}
        groups = proportional(part, opposite=turn, **near)
        turned = int((groups.factor < 0).sum())
        if turned and not self._worth_turning(k, part, turned):
            groups = proportional(part, opposite=False, **near)
        leader[units], factor[units] = units[groups.leader], groups.factor
        if activation.kind == "step":
            factor[:] = 1.0
        return Groups(leader, factor)

    def _worth_turning(self, k: int, part: Affine, turned: int) -> bool:
        if self.rules.fold_all or self.rules.prefer == "units":
            return True
        return self._skip_cost(k, part) <= turned * self._unit_cost(k, part)

    def _carriers(
        self,
        k: int,
        affine: Affine,
        units: NDArray[np.intp],
        slope: Vector,
        skips_anyway: bool,
        mixed: NDArray[np.bool_],
    ) -> Carriers | None:
        """The units that stand for the sloped ones, or None to send those past the layer."""
        free = self.rules.architecture == "any"
        if not len(units) or (free and (self.rules.fold_all or skips_anyway)):
            return None
        part = rows(affine, units)
        if free and self.rules.prefer == "units":
            return None
        if self.rules.fold_all:  # no skips allowed: canonical forms keep such units as they are
            count = len(units)
            return Carriers(part, np.eye(count), np.zeros(count), np.arange(count))
        readers = [mx.dense(m)[:, units] for m in columns_read(self.state.network, k + 1)]
        made = carriers(part, slope[units], readers, self.boxes, self.reach, mixed)
        cheap = made.affine.size * self._unit_cost(k, part) < self._skip_cost(k, part)
        return made if cheap or not free else None

    def _unit_cost(self, k: int, part: Affine) -> int:
        """Stored parameters of one more unit in the layer."""
        read = 1 + sum(m.shape[1] for m in part.terms.values())
        return read + sum(m.shape[0] for m in columns_read(self.state.network, k + 1))

    def _skip_cost(self, k: int, part: Affine) -> int:
        """Stored parameters of the connections past the layer that do not exist yet."""
        cost = 0
        for affine in self.state.network.maps:
            if k + 1 in affine.terms:
                below = [s for s in affine.terms if s <= k]
                known = {j for s in below for j in self.rewriter.expressed[s].terms}
                new = [m.shape[1] for j, m in part.terms.items() if j not in known]
                cost += affine.size * sum(new)
        return cost

    def _range(self, affine: Affine, labels: Sequence[Origin]) -> Range:
        if self.reach is None:
            return Range.endless(affine.size)
        found = span(affine, self.boxes, self.reach)
        for i, origin in enumerate(labels):
            if origin is not None and self.rules.arrange is None and not self.rules.orient:
                layer, unit = origin
                found.lo[i] = max(found.lo[i], self.ranges[layer].lo[unit])
                found.hi[i] = min(found.hi[i], self.ranges[layer].hi[unit])
        return found

    def _record(
        self,
        origins: Sequence[Origin],
        why: Sequence[Removal | None],
        groups: Groups,
        sloped: NDArray[np.intp],
        made: Carriers | None,
    ) -> None:
        stays = set() if made is None else set(sloped[made.survivors[made.survivors >= 0]].tolist())
        for i, origin in enumerate(origins):
            reason = why[i]
            if origin is None or i in stays:
                continue
            if reason is not None:
                self.removed.append(reason)
            elif groups.leader[i] != i:
                factor = groups.factor[i]
                name = "opposite" if factor < 0 else "duplicate" if factor == 1 else "collinear"
                self.removed.append(Removal(*origin, name))
