"""Finding the relation between two networks: which units compute the same thing.

A unit is looked up by the direction of its pre-activation form in the basis: eight random
projections of the row, divided by its l1 norm, are the same for every positive multiple of the row
and opposite for every negative one. The nearest known row is proposed; `Walk` then bounds how far
the two really are apart, so a wrong proposal costs tightness, never soundness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.forms.outward import Range
from relunorm.forms.precision import is_single
from relunorm.forms.relation.relate import Walk, proportion
from relunorm.forms.relation.relation import LINEAR, NEW, OPPOSITE, SCALED, Relation, Side
from relunorm.forms.rewrite import rows
from relunorm.matrix import Array, Vector
from relunorm.network import Activation, Affine, Network

#: Within one network units count as copies when they agree to this share of their magnitude.
SAME = 1e-11
#: Units of two networks are related when they differ by less than this share of their magnitude.
ALIKE = 0.05
#: The same for what is only rounded differently, in networks whose numbers are all float32.
ROUNDED = 2.0**-20
#: A unit is called linear when its kink costs at most this share of its range.
FLAT = 1e-11
PROJECTIONS = 8

#: Of every row: which known one is nearest, the sign that makes it so, and how far it is.
_Nearest = tuple[NDArray[np.intp], Vector, Vector]


@dataclass(frozen=True)
class Forced:
    """Units that are to be taken as linear, y = t z + c, whatever that costs."""

    slope: Mapping[tuple[int, int], float] = field(default_factory=dict)
    constant: Mapping[tuple[int, int], float] = field(default_factory=dict)


def relate(
    first: Network,
    second: Network,
    reach: Reach,
    first_bounds: Sequence[Range],
    second_bounds: Sequence[Range],
    forced: Sequence[Forced] = (Forced(), Forced()),
    alike: float = ALIKE,
    same: float = SAME,
    away: bool = False,
    clock: Clock = NO_LIMIT,
) -> Walk:
    """Walk both networks over one basis and relate every unit that can be related.

    Args:
        forced: per network the units to be replaced by a linear function of their pre-activation.
        alike: units of the two networks are related when they differ by less than this share of
            their magnitude; what they differ by then counts as error.
        same: the same for units of one network.
        away: leave out inputs near the threshold of a related step unit (see `Walk`).
    """
    walk = Walk(reach, away=away, clock=clock)
    for network, bounds, fixed in zip(
        (first, second), (first_bounds, second_bounds), forced, strict=True
    ):
        walk.run(walk.add(network, bounds), Matcher(fixed, alike, same))
    return walk


class Matcher:
    """Decides the relation of each unit of one network."""

    def __init__(self, forced: Forced, alike: float = ALIKE, same: float = SAME):
        self.forced = forced
        self.alike, self.same = alike, same
        self.directions: list[Array] = []
        self.trees: dict[int, Any] = {}  # of the finished blocks
        self.straight: dict[int, Any] = {}  # of the linear units of the first network, by layer

    def __call__(
        self, walk: Walk, side: Side, form: Affine, error: Vector, span: Range
    ) -> Relation:
        k = len(side.forms)
        activation = side.network.layers[k].activation
        relation = Relation.fresh(form.size)
        known = _Known(self, walk, side, form, activation)
        if side.number:  # a known function first: its own bounds may prove more than the other's
            self._basis(known, relation, SAME)
            if is_single(side.network):  # no bounds have to be found for what is merely rounded
                self._basis(known, relation, min(self.alike, ROUNDED))
        self.linear(side, k, activation, span, relation)
        if side.number:
            # a pair that carries its pre-activation through the layer is no unit with about the
            # same threshold
            self._basis(known, relation, min(self.alike, ROUNDED))
            paired = self._paired(walk, form, activation, relation)
            self._basis(known, relation, self.alike, but=paired)
        else:
            self._basis(known, relation, self.same)
        if side.number:
            self._carried(walk, form, error, activation, relation)
        self._copies(walk, form, activation, relation)
        return relation

    def linear(
        self, side: Side, k: int, activation: Activation, span: Range, relation: Relation
    ) -> None:
        """Dead, active and constant units, and those that were asked for."""
        slope, constant, flat = straighten(activation, span)
        flat &= relation.kind == NEW
        relation.kind[flat] = LINEAR
        relation.factor[flat], relation.constant[flat] = slope[flat], constant[flat]
        for (layer, unit), value in self.forced.slope.items():
            if layer == k:
                relation.kind[unit] = LINEAR
                relation.factor[unit] = value
                relation.constant[unit] = self.forced.constant[layer, unit]

    def _basis(
        self, known: _Known, relation: Relation, alike: float, but: NDArray[np.bool_] | None = None
    ) -> None:
        """Units whose row is a multiple of a basis function's row, to a share of its size."""
        for number, block in known.blocks:
            free = relation.kind == NEW
            units = np.flatnonzero(free if but is None else free & ~but)
            if not len(units):
                return
            sharp = block.network == known.side.number or block.activation.kind == "step"
            share = min(self.same, alike) if sharp else alike
            near = known.nearest(number, units)
            self._attach(known.walk, known.form, units, near, block.forms, number, share, relation)

    def _copies(self, walk: Walk, form: Affine, activation: Activation, relation: Relation) -> None:
        """Units of this layer that are multiples of an earlier unit of this layer."""
        fresh = np.flatnonzero(relation.kind == NEW)
        # taking step units for copies of one another costs a jump unless thresholds are left out
        if activation.kind == "step" and not walk.away:
            return
        doubles, heads, factor, sign = self._doubles(walk, rows(form, fresh))
        units = fresh[doubles]
        relation.kind[units] = np.where(sign > 0, SCALED, OPPOSITE)
        relation.factor[units] = factor
        relation.block[units] = len(walk.blocks)
        stays = np.setdiff1d(np.arange(len(fresh)), doubles)
        relation.index[units] = np.searchsorted(stays, heads)

    def _paired(
        self, walk: Walk, form: Affine, activation: Activation, relation: Relation
    ) -> NDArray[np.bool_]:
        """Open units that have an opposite one among themselves."""
        result = np.zeros(form.size, dtype=bool)
        fresh = np.flatnonzero(relation.kind == NEW)
        theirs = any((r.kind == OPPOSITE).any() for r in walk.sides[0].relations)
        if activation.kind != "step" and not theirs:  # pairs of both are matched like other units
            doubles, heads, _, sign = self._doubles(walk, rows(form, fresh))
            result[fresh[doubles[sign < 0]]] = result[fresh[heads[sign < 0]]] = True
        return result

    def _doubles(
        self, walk: Walk, form: Affine
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector, Vector]:
        """Rows that are multiples of an earlier one: both, the factor's size and its sign."""
        none = np.empty(0, dtype=np.intp)
        if form.size < 2:
            return none, none, np.empty(0), np.empty(0)
        keys = self.keys(walk, form)
        leader = _leaders(keys, max(1e-9, 4 * self.same))
        doubles = np.flatnonzero(leader != np.arange(form.size))
        if not len(doubles):
            return none, none, np.empty(0), np.empty(0)
        heads = leader[doubles]
        same, turned = (np.abs(keys[doubles] - s * keys[heads]).sum(axis=1) for s in (1.0, -1.0))
        sign = np.where(same < turned, 1.0, -1.0)
        ours, theirs = rows(form, doubles), rows(form, heads)
        factor, good = _alike(walk, ours, theirs, sign, self.same)
        return doubles[good], heads[good], factor[good], sign[good]

    def _carried(
        self, walk: Walk, form: Affine, error: Vector, activation: Activation, relation: Relation
    ) -> None:
        """Units that are a scaled and shifted copy of a linear unit of the first network."""
        ours: Array | None = None
        for layer, (theirs, known) in enumerate(
            zip(walk.sides[0].forms, walk.sides[0].relations, strict=True)
        ):
            units = np.flatnonzero(_unnamed(relation))
            linear = np.flatnonzero(known.kind == LINEAR)
            if not len(units) or not len(linear):
                continue
            if ours is None:
                ours = self.keys(walk, _centered(walk, form))
            if layer not in self.straight:
                self.straight[layer] = _tree(self.keys(walk, _centered(walk, rows(theirs, linear))))
            pair, _, distance = _nearest(self.straight[layer], ours[units])
            near = np.flatnonzero(distance < 1e-6)
            if not len(near):
                continue
            trial = Relation.fresh(form.size)
            trial.kind[units[near]] = LINEAR
            trial.block[units[near]], trial.index[units[near]] = layer, linear[pair[near]]
            span = walk.transferred(form, error, trial)
            slope, constant, flat = straighten(activation, span)
            flat &= trial.kind == LINEAR
            already = relation.kind == LINEAR  # its bounds carry over all the same
            slope = np.where(already, relation.factor, slope)
            constant = np.where(already, relation.constant, constant)
            relation.kind[flat] = LINEAR
            relation.block[flat], relation.index[flat] = trial.block[flat], trial.index[flat]
            relation.factor[flat], relation.constant[flat] = slope[flat], constant[flat]

    def _attach(
        self,
        walk: Walk,
        form: Affine,
        units: NDArray[np.intp],
        nearest: _Nearest,
        known: Affine,
        block: int,
        share: float,
        relation: Relation,
    ) -> None:
        pair, sign, distance = nearest
        near = np.flatnonzero(distance < 4 * share)
        if not len(near):
            return
        ours, theirs = rows(form, units[near]), rows(known, pair[near])
        factor, good = _alike(walk, ours, theirs, sign[near], share)
        chosen = units[near[good]]
        relation.kind[chosen] = np.where(sign[near[good]] > 0, SCALED, OPPOSITE)
        relation.block[chosen], relation.index[chosen] = block, pair[near[good]]
        relation.factor[chosen] = factor[good]

    def keys(self, walk: Walk, form: Affine) -> Array:
        """Projections of the rows, as functions of how far each basis function is from its middle.

        Divided by the row's l1 norm in the same measure. Coordinates that cannot move drop out.
        """
        while len(self.directions) <= len(walk.ranges):
            block = len(self.directions) - 1
            width = 1 if block < 0 else len(walk.ranges[block].lo)
            rng = np.random.default_rng(len(self.directions))
            self.directions.append(rng.uniform(-1, 1, (width, PROJECTIONS)))
        middle, keys, norms = form.bias, np.zeros((form.size, PROJECTIONS)), np.zeros(form.size)
        for block, matrix in form.terms.items():
            box = walk.ranges[block]
            swing = box.hi / 2 - box.lo / 2
            middle = middle + matrix @ (box.lo + swing)
            keys = keys + matrix @ (swing[:, None] * self.directions[block + 1])
            norms = norms + abs(matrix) @ swing
        keys = keys + middle[:, None] * self.directions[0]
        norms = norms + np.abs(middle)
        keys = keys / np.where(norms > 0, norms, 1.0)[:, None]
        # a row beyond float64 has no direction; what is proposed for it is checked and turned down
        return np.where(np.isfinite(keys), keys, 0.0)


class _Known:
    """What is known when a layer is related, and which of it is nearest to each of its units.

    Attributes:
        blocks: those with units of the same activation, of the same layer first: there a copy has
            its units.
    """

    def __init__(
        self, matcher: Matcher, walk: Walk, side: Side, form: Affine, activation: Activation
    ):
        self.matcher, self.walk, self.side, self.form = matcher, walk, side, form
        depth = [0, *(k for side in walk.sides for k in range(len(side.forms)))]
        far = sorted(range(len(walk.blocks)), key=lambda n: abs(depth[n] - len(side.forms)))
        self.blocks = [
            (number, block)
            for number, block in ((n, walk.blocks[n]) for n in far)
            if block is not None and block.activation == activation and block.forms.size
        ]
        self.found: dict[int, _Nearest] = {}

    @cached_property
    def keys(self) -> Array:
        return self.matcher.keys(self.walk, self.form)

    def nearest(self, number: int, units: NDArray[np.intp]) -> _Nearest:
        """Of each of the units: the nearest row of a block, its sign and how far it is."""
        if number not in self.found:
            trees, block = self.matcher.trees, self.walk.blocks[number]
            if number not in trees:
                assert block is not None
                trees[number] = _tree(self.matcher.keys(self.walk, block.forms))
            self.found[number] = _nearest(trees[number], self.keys)
        pair, sign, distance = self.found[number]
        return pair[units], sign[units], distance[units]


def _unnamed(relation: Relation) -> NDArray[np.bool_]:
    """Units that may yet be said to be copies of linear ones."""
    return (relation.kind == NEW) | ((relation.kind == LINEAR) & (relation.block < 0))


def _alike(
    walk: Walk, ours: Affine, theirs: Affine, sign: Vector, share: float
) -> tuple[Vector, NDArray[np.bool_]]:
    """Factors between rows whose signs are known, and where they agree to a share of their size."""
    factor = sign * proportion(ours, theirs, walk.ranges)
    gap = walk.gap(ours, theirs, sign * factor)
    size = walk.gap(ours, theirs, np.zeros(len(sign)))
    return factor, (gap <= share * size) & (factor > 0) & np.isfinite(size) & np.isfinite(factor)


def _tree(keys: Array) -> Any:
    from scipy.spatial import KDTree

    return KDTree(keys)


def _nearest(tree: Any, keys: Array) -> _Nearest:
    """For every row the nearest known row, the sign that makes it so, and the distance."""
    distance, known = (part.reshape(2, -1) for part in tree.query(np.concatenate([keys, -keys])))
    turn = distance[1] < 0.5 * distance[0]
    return (
        np.where(turn, known[1], known[0]),
        np.where(turn, -1.0, 1.0),
        np.where(turn, distance[1], distance[0]),
    )


def straighten(activation: Activation, span: Range) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Slope and constant of the linear stand-in of every unit, and where it is as good as exact."""
    below, above = activation.slopes
    with np.errstate(invalid="ignore"):
        width = span.hi - span.lo
    slack = np.where(np.isfinite(width), FLAT * np.maximum(width, 0.0), 0.0)
    if activation.kind == "step":
        dead, active = span.hi < 0, span.lo > 0
        return np.zeros(len(dead)), np.where(active, 1.0, 0.0), dead | active
    dead, active = span.hi <= slack, span.lo >= -slack
    if below == above:
        active = np.ones(len(active), dtype=bool)
    slope = np.where(active, above, below)
    return slope, np.zeros(len(slope)), dead | active


def _centered(walk: Walk, form: Affine) -> Affine:
    """The form shifted so that it is 0 in the middle of what the basis can reach."""
    middle = np.zeros(form.size)
    for block, matrix in form.terms.items():
        box = walk.ranges[block]
        middle -= matrix @ (box.lo + (box.hi / 2 - box.lo / 2))
    return Affine(form.terms, middle)


def _leaders(keys: Array, near: float) -> NDArray[np.intp]:
    """For every row the first row that is the same up to sign."""
    flip = np.sign(keys[:, :1])
    oriented = keys * np.where(flip == 0, 1.0, flip)
    order = np.lexsort(oriented.T[::-1])
    step = np.abs(np.diff(oriented[order], axis=0)).max(axis=1) > near
    group = np.concatenate([[0], np.cumsum(step)])
    leader = np.full(group[-1] + 1, len(keys), dtype=np.intp)
    np.minimum.at(leader, group, order)
    result = np.empty(len(keys), dtype=np.intp)
    result[order] = leader[group]
    return result


def folding_error(network: Network, reach: Reach, clock: Clock = NO_LIMIT) -> Vector:
    """A bound on |f - f.folded()| over the domain, output by output; 0 without linear stages.

    Both are walked over one basis, as two networks are when they are compared. Sound. A clock
    that ends before raises `TimeLimitError`.

    >>> from relunorm import Box
    >>> from relunorm.domain.reach import reach_of
    >>> net = Network.from_weights([[[1.0]], [[1.0]]])
    >>> folding_error(net, reach_of(Box([0.0], [1.0]))).tolist()
    [0.0]
    """
    folded = network.folded()
    if folded is network:
        return np.zeros(network.output_size)
    first, second = ([Range.endless(x.width) for x in n.layers] for n in (network, folded))
    return relate(network, folded, reach, first, second, clock=clock).difference.largest
