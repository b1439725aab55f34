"""Boxes of inputs bounded one after the other: layer by layer up, and what the outputs lose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.pairs.condensed.ends import difference_ends
from relunorm.bounds.pairs.condensed.memory import LEAST, SPREAD, flatten, new_memory
from relunorm.bounds.pairs.condensed.middle import find_middle, start_middle
from relunorm.bounds.pairs.condensed.rows import put_in
from relunorm.bounds.pairs.condensed.units import (
    OPEN,
    above,
    bound_open,
    corner_of,
    read_rows,
    settle,
)
from relunorm.bounds.pairs.pair import Pair, pair_up
from relunorm.compiled.groups import group
from relunorm.compiled.jit import kernel, kernel_part
from relunorm.compiled.operations import width
from relunorm.compiled.products import add_product
from relunorm.matrix import Array, Vector
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

    Args:
        lo, hi: what all boxes are in.

    Attributes:
        units: hidden ones.
    """

    def __init__(self, pair: Pair, lo: Vector, hi: Vector):
        self.flat = flatten(pair, np.maximum(np.abs(lo), np.abs(hi)))
        self.memory = new_memory(self.flat, len(lo))
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
    _start(flat, memory, lo, hi, signs)
    _find_corners(memory, lo, hi)
    start_middle(flat, memory)
    layers = len(flat.below)
    for layer in range(layers):
        count = read_rows(flat, memory, signs, layer)
        find_middle(flat, memory, layer, count)
        put_in(flat, memory, layer, count)
        opened = bound_open(flat, memory, signs, layer, count)
        settle(flat, memory, signs, layer, count, opened)
    count = read_rows(flat, memory, signs, layers)
    find_middle(flat, memory, layers, count)
    put_in(flat, memory, layers, count)
    for r in range(count):
        memory.places.some[r] = r
    difference_ends(flat, memory, layers, count, upper, memory.ends.e_corners)


@kernel_part
def _start(flat, memory, lo, hi, signs):
    """The middle and sides of a box, how far rows are apart, and what they can be off by.

    A sum of n numbers is off by n u / (1 - n u) of their sizes, u being half of the last place; the
    sizes are sums themselves. Rows are no longer than they can be, so that they stay near.
    """
    d, wide, most, total = len(lo), width(memory.half), len(lo), 0.0
    for k in range(len(signs)):
        most += 1 if signs[k] == OPEN else 0
    memory.places.stride[0] = most // wide * wide + wide
    part = flat.unit * (max(flat.terms, most) + 2 * len(flat.below) + 24)
    memory.rounding[0] = 1.07 * part if part < 0.03 else np.inf
    memory.loss[0] = flat.tiny
    for j in range(d):
        memory.center[j] = lo[j] / 2 + hi[j] / 2
        half = max(hi[j] - memory.center[j], memory.center[j] - lo[j])
        memory.half[j] = above(memory, half) if half > 0.0 else 0.0
        memory.z.reach[j] = memory.y.reach[j] = memory.half[j]
        total += half
    memory.loss[0] = flat.tiny * (1.0 + total)


@kernel_part
def _find_corners(memory, lo, hi):
    """Choose the inputs that make corners, and put all inputs there ahead of all rests."""
    places, aside, spread_, corners = memory.places, memory.aside, 0, 1
    for j in range(len(lo)):
        aside[j] = memory.half[j]
        if lo[j] < hi[j] and spread_ < SPREAD:
            places.spread[spread_] = j
            aside[j] = 0.0
            spread_ += 1
            corners *= 2
    # so many at a time, some of them twice
    places.corners[0] = max(width(memory.half), corners)
    places.few[0] = 16 if places.corners[0] == 32 else places.corners[0]
    _put_ahead(memory, memory.z.rest, spread_, places.corners[0])
    _put_ahead(memory, memory.y.rest, spread_, places.corners[0])
    _put_ahead(memory, memory.z.mean, spread_, places.corners[0])
    _put_ahead(memory, memory.z.middle, spread_, places.few[0])


@kernel_part
def _put_ahead(memory, rest, spread_, many):
    corners, period, half = memory.places.corners[0], 1, memory.half
    for i in range(len(half) * many):
        rest[i] = 0.0
    for i in range(spread_):
        j = memory.places.spread[i]
        for c in range(many):
            upper = (corner_of(c, many, corners) // period) % 2 == 1
            rest[j * many + c] = half[j] if upper else -half[j]
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
    a = worst * (d + K)
    for j in range(d):
        side = z.rest[j * corners + place]
        if memory.aside[j] > 0.0:  # no corner is made of it
            side = ends.A[a + j]
        corner[j] = hi[j] if side > 0.0 else lo[j]
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
    shares, stride, first = memory.shares, memory.places.stride[0], len(lo)
    for k in range(k0, k1):
        for j in range(d):
            slope[k * d + j] = z.open[k * stride + j]
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
    """Compile what bounds boxes, with rows of either precision, or load it where that was done."""
    one = np.ones((1, 1))
    for scale in (1.0, LEAST / 2):
        tiny = Network.from_weights([scale * np.eye(1), np.eye(1)])
        pair = pair_up(tiny, tiny)
        assert pair is not None
        signs = np.full((1, 1), OPEN, dtype=np.int8)
        found = np.empty((1, 2)), np.empty((1, 1)), np.empty((1, 1))
        Bounder(pair, -one[0], one[0]).bound(-one, one, signs, *found)
