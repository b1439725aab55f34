"""What kernels read and write: two paired networks, and where one box after another is bounded.

All are groups (`relunorm.compiled.groups`). Rows lie one after another in flat arrays: a row of a
layer has 1 + inputs + open units below it numbers, and where it is one of e as many more as there
are open units, coefficients of q, in an array of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, gamma
from relunorm.bounds.pairs.pair import Pair
from relunorm.compiled.groups import group
from relunorm.matrix import Array

Whole = NDArray[np.int64]

#: Inputs that corners are made of, at most.
SPREAD = 5


@group
class Flat(NamedTuple):
    """Both networks in arrays: maps by target and source, one after the other."""

    start: Whole  # (layers + 2,), the first row of every map among all of them
    below: Array  # (layers,), slopes on the left of 0
    target: Whole  # (blocks,), which map
    source: Whole  # reads which layer (0 is the input)
    offset: Whole  # and where
    W: Array  # the numbers of all blocks, row by row
    V: Array
    D: Array
    b: Array  # (rows,)
    c: Array
    shift: Array  # c - b
    rounding: float  # what a sum of sizes 1 can be off by
    tiny: float  # more than underflow can lose


def flatten(pair: Pair) -> Flat:
    """Two paired networks in arrays."""
    blocks = [(k, s) for k, affine in enumerate(pair.maps) for s in affine.W]
    lengths = [pair.maps[k].W[s].size for k, s in blocks]
    W, V, D = (
        np.concatenate([np.empty(0), *(getattr(pair.maps[k], name)[s].ravel() for k, s in blocks)])
        for name in "WVD"
    )
    return Flat(
        np.cumsum([0, *(affine.size for affine in pair.maps)], dtype=np.int64),
        np.array(pair.below, dtype=np.float64),
        np.array([k for k, _ in blocks], dtype=np.int64),
        np.array([s for _, s in blocks], dtype=np.int64),
        np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        W,
        V,
        D,
        np.concatenate([affine.b for affine in pair.maps]),
        np.concatenate([affine.c for affine in pair.maps]),
        np.concatenate([affine.shift for affine in pair.maps]),
        gamma(pair.operations * (len(pair.maps) + 2) + 8),
        TINY,
    )


@group
class Form(NamedTuple):
    """z, y or e in terms of (1, x, p): for y, of (1, x, relu(y))."""

    now: Array  # rows of the layer at hand
    size: Array  # and their sizes
    kept: Array  # rows of units that are put in, layer by layer
    kept_size: Array
    open: Array  # rows of open units, at steps of `Places.stride`
    lines: Array  # of open units: steep, rise and flat; of e, those of `difference_lines`
    rest: Array  # at every corner what is above those lines, after 1 and the inputs there
    peak: Array  # the largest one of those
    less: Array  # of e, what is below the lower ones
    value: Array  # of z, the middle between its bounds at every corner: all units at one, ...
    middle: Array  # and relu of that, after 1 and the inputs
    top: Array  # sizes of relu of them; of e, of q
    bulk: Array  # sizes of all that a coefficient 1 of p or q becomes, at most


@group
class Rest(NamedTuple):
    """The coefficients of q in rows of e."""

    now: Array
    kept: Array
    open: Array


@group
class Places(NamedTuple):
    """Which units are open or put in, and by layer how many are before it and where rows begin."""

    active: Whole  # rows of the layer at hand that anything reads
    some: Whole  # which of those are bounded
    stride: Whole  # how far rows of open units are apart
    spread: Whole  # inputs that corners are made of
    corners: Whole  # how many there are
    open_unit: Whole
    kept_unit: Whole
    opened: Whole  # (layers + 1,), open units before each layer
    kept: Whole
    kept_row: Whole
    kept_rest: Whole


@group
class Ends(NamedTuple):
    """Rows, then minus them, on their way down to the inputs, and the bounds found."""

    A: Array  # (1, x, p)
    B: Array  # q
    size: Array
    slope: Array  # coefficients of z of open units
    g: Array  # and of e
    tilt: Array  # for every row and open unit the slope below relu
    z: Array
    y: Array
    e: Array
    part: Array  # coefficients of 1, the inputs and what is above lines
    above: Array  # of what q is above its lines
    below: Array  # and below them
    z_corners: Array
    y_corners: Array
    e_corners: Array


@group
class Memory(NamedTuple):
    """All of it, and the box."""

    z: Form
    y: Form
    e: Form
    q: Rest
    places: Places
    ends: Ends
    center: Array
    half: Array
    far: Array  # the largest absolute values
    aside: Array  # half sides of inputs that no corners are made of
    weights: Array  # of the layer at hand, on units that are put in
    slope: Array  # of z of open units by inputs, on their chords
    shares: Array  # of inputs in how far units are open
    through: Array  # what that adds to units that read them


def new_memory(flat: Flat, inputs: int) -> Memory:
    """Room for every box of a pair."""
    widths, before = np.diff(flat.start), flat.start[:-1]
    layers, units, most = len(flat.below), int(before[-1]), int(widths.max())
    hidden = int(widths[:-1].max(initial=0))
    by_row, by_rest = widths * (1 + inputs + before), widths * before
    row, rest = int(by_row.max()), int(by_rest.max())
    rows, rests = int(by_row[:-1].sum()), int(by_rest[:-1].sum())
    opened = units * (inputs + units + 8)

    corners = max(8, 1 << min(inputs, SPREAD))
    ahead = (1 + inputs + units) * corners

    def numbers(*shape: int) -> Array:
        """Begin where eight numbers are read at once."""
        size = int(np.prod(shape))
        whole = np.empty(size + 8)
        first = -(whole.ctypes.data // 8) % 8
        return whole[first : first + size].reshape(shape)

    def form(lines: int) -> Form:
        rows_of = numbers(row), numbers(most), numbers(rows), numbers(units), numbers(opened)
        at_corners = (numbers(ahead) for _ in range(4))
        rest, less, value, middle = at_corners
        sizes = numbers(units), numbers(units)
        return Form(
            *rows_of, numbers(lines, units), rest, numbers(2, units), less, value, middle, *sizes
        )

    def whole(size: int) -> Whole:
        return np.zeros(size, dtype=np.int64)

    coefficients = 2 * rest
    sizes = 2 * row, coefficients, 2 * most, coefficients, coefficients, coefficients
    kept = (2 * most,) * 3
    wide_rows = 2 * max(row, most * corners)
    by_sign = coefficients, coefficients
    at_corners = (2 * most * corners,) * 3
    ends = Ends(*map(numbers, (*sizes, *kept, wide_rows, *by_sign, *at_corners)))
    places = Places(*map(whole, (most, most, 1, inputs, 1, units, units, *(layers + 1,) * 4)))
    rest_of_e = Rest(*map(numbers, (rest, rests, opened)))
    others = *(inputs,) * 4, most * hidden, *(units * inputs,) * 3
    return Memory(form(3), form(3), form(4), rest_of_e, places, ends, *map(numbers, others))
