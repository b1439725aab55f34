"""Boxes of inputs bounded one after the other: layer by layer up, and what the outputs lose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.pairs.condensed.ends import difference_ends
from relunorm.bounds.pairs.condensed.memory import SPREAD, flatten, new_memory
from relunorm.bounds.pairs.condensed.rows import put_in
from relunorm.bounds.pairs.condensed.units import OPEN, bound_open, read_rows, settle
from relunorm.bounds.pairs.pair import Pair, pair_up
from relunorm.compiled.groups import group
from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.products import add_product
from relunorm.matrix import Array
from relunorm.network import Network

Signs = NDArray[np.int8]

#: How much of what is above the lines of units counts two layers on.
LATER = 0.3


@group
class Boxes(NamedTuple):
    """Boxes ``lo <= x <= hi``, (boxes, inputs), and what a `Bounder` finds."""

    lo: Array
    hi: Array
    signs: Signs
    upper: Array
    score: Array
    corner: Array


class Bounder:
    """Bounds boxes of one pair, one after the other, in memory of its own: one for each thread.

    Attributes:
        units: hidden ones.
    """

    def __init__(self, pair: Pair, inputs: int):
        self.flat = flatten(pair)
        self.memory = new_memory(self.flat, inputs)
        self.units = int(self.flat.start[-2])

    def bound(
        self, lo: Array, hi: Array, signs: Signs, upper: Array, score: Array, corner: Array
    ) -> None:
        """Bound boxes ``lo <= x <= hi``, (boxes, inputs).

        Args:
            signs: (boxes, units), OFF, OPEN or ON: what is known; becomes what is found.
            upper: (boxes, 2 outputs), gets bounds of g - f, then of f - g.
            score: (boxes, inputs), gets what cutting across each input promises.
            corner: (boxes, inputs), gets where the largest bound is, as far as that is affine.
        """
        bound_all(self.flat, self.memory, Boxes(lo, hi, signs, upper, score, corner))


@kernel
def bound_all(flat, memory, boxes):
    """Bound all of them."""
    for k in range(len(boxes.lo)):
        lo, hi = boxes.lo[k], boxes.hi[k]
        _bound(flat, memory, lo, hi, boxes.signs[k], boxes.upper[k])
        _judge(flat, memory, lo, hi, boxes.upper[k], boxes.score[k], boxes.corner[k])


@kernel_part
def _bound(flat, memory, lo, hi, signs, upper):
    """Bound one box; ``signs`` of all units become those on the box."""
    for j in range(len(lo)):
        memory.center[j] = lo[j] / 2 + hi[j] / 2
        memory.half[j] = np.nextafter(hi[j] / 2 - lo[j] / 2, np.inf)
        memory.far[j] = max(abs(lo[j]), abs(hi[j]))
    _find_corners(memory, lo, hi)
    _space(memory, signs)
    layers = len(flat.below)
    for layer in range(layers):
        count = read_rows(flat, memory, signs, layer)
        put_in(flat, memory, layer, count)
        opened = bound_open(flat, memory, signs, layer, count)
        settle(flat, memory, signs, layer, count, opened)
    count = read_rows(flat, memory, signs, layers)
    put_in(flat, memory, layers, count)
    for r in range(count):
        memory.places.some[r] = r
    difference_ends(flat, memory, layers, count, upper, memory.ends.e_corners)


@kernel_part
def _space(memory, signs):
    """How far rows are apart: no more than they may be long, so that they stay near."""
    most = len(memory.center)
    for k in range(len(signs)):
        most += 1 if signs[k] == OPEN else 0
    memory.places.stride[0] = most // 8 * 8 + 8


@kernel_part
def _find_corners(memory, lo, hi):
    """Choose the inputs that make corners, and put 1 and all inputs there ahead of all rests."""
    places, aside, spread, corners = memory.places, memory.aside, 0, 1
    for j in range(len(lo)):
        aside[j] = memory.half[j]
        if lo[j] < hi[j] and spread < SPREAD:
            places.spread[spread] = j
            aside[j] = 0.0
            spread += 1
            corners *= 2
    places.corners[0] = max(8, corners)  # so many at a time, some of them twice
    _put_ahead(memory, memory.z.rest, lo, hi, spread)
    _put_ahead(memory, memory.y.rest, lo, hi, spread)
    _put_ahead(memory, memory.z.middle, lo, hi, spread)


@kernel_part
def _put_ahead(memory, rest, lo, hi, spread):
    corners, period = memory.places.corners[0], 1
    for c in range(corners):
        rest[c] = 1.0
        for j in range(len(lo)):
            rest[(1 + j) * corners + c] = memory.center[j]
    for i in range(spread):
        j = memory.places.spread[i]
        for c in range(corners):
            rest[(1 + j) * corners + c] = hi[j] if (c // period) % 2 == 1 else lo[j]
        period *= 2


@kernel_part
def _judge(flat, memory, lo, hi, upper, score, corner):
    """Where the worst row is largest, and what cutting across each input promises.

    That is what the row loses in values of open units, shared out among the inputs that keep them
    open.
    """
    places, ends, z, shares = memory.places, memory.ends, memory.z, memory.shares
    layers, d, worst = len(flat.below), len(lo), 0
    for r in range(len(upper)):
        if upper[r] > upper[worst]:
            worst = r
    K, corners, place = places.opened[layers], places.corners[0], 0
    for c in range(corners):
        if ends.e_corners[worst * corners + c] > ends.e_corners[worst * corners + place]:
            place = c
    a = worst * (1 + d + K) + 1
    for j in range(d):
        corner[j] = z.rest[(1 + j) * corners + place]
        if memory.aside[j] > 0.0:  # no corner is made of it
            corner[j] = hi[j] if ends.A[a + j] > 0.0 else lo[j]
        score[j] = 0.0
    for m in range(layers):
        _share(memory, m, lo, hi)
        for k in range(places.opened[m], places.opened[m + 1]):
            loss = abs(ends.A[a + d + k]) * z.lines[1, k]
            for j in range(d):
                score[j] += loss * shares[k * d + j]


@kernel_part
def _share(memory, m, lo, hi):
    """The inputs' shares in how far units of layer m are open.

    How far is what z changes with an input, with the units below on their chords, and what those
    are above their lines; that is shared as they are. What is above lines further down is counted
    by a part, `LATER`, for much of it cancels.
    """
    z, slope, through, ends = memory.z, memory.slope, memory.through, memory.ends
    d, k0, k1 = len(lo), memory.places.opened[m], memory.places.opened[m + 1]
    shares, stride, first = memory.shares, memory.places.stride[0], 1 + len(lo)
    for k in range(k0, k1):
        for j in range(d):
            slope[k * d + j] = z.open[k * stride + 1 + j]
            shares[k * d + j] = 0.0
        for i in range(k0):
            weight = z.open[k * stride + first + i]
            ends.part[(k - k0) * k0 + i] = weight * z.lines[0, i]
            ends.above[(k - k0) * k0 + i] = abs(weight)
    if k0 > 0:
        add_product(ends.part, 0, k0, slope, 0, d, slope, k0 * d, d, k1 - k0, k0, d)
        add_product(ends.above, 0, k0, through, 0, d, shares, k0 * d, d, k1 - k0, k0, d)
    for k in range(k0, k1):
        total = 0.0
        for j in range(d):
            total += shares[k * d + j] + abs(slope[k * d + j]) * (hi[j] - lo[j])
        for j in range(d):
            below = shares[k * d + j]
            one = below + abs(slope[k * d + j]) * (hi[j] - lo[j])
            shares[k * d + j] = one / total if total > 0.0 else 0.0
            through[k * d + j] = z.lines[1, k] * shares[k * d + j]
            through[k * d + j] += LATER * z.lines[0, k] * below


def compile_kernels() -> None:
    """Compile what bounds boxes, or load it where that was done."""
    tiny = Network.from_weights([np.eye(1), np.eye(1)])
    pair = pair_up(tiny, tiny)
    assert pair is not None
    one = np.ones((1, 1))
    signs = np.full((1, 1), OPEN, dtype=np.int8)
    Bounder(pair, 1).bound(-one, one, signs, np.empty((1, 2)), np.empty((1, 1)), one.copy())
