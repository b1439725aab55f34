"""What kernels read and write: two paired networks, and where one box after another is bounded.

All are groups (`relunorm.compiled.groups`). Rows lie one after another in flat arrays: a row of a
layer has inputs + open units below it numbers, and where it is one of e as many more as there
are open units, coefficients of q, in an array of their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, UNIT, gamma
from relunorm.bounds.pairs.pair import Pair
from relunorm.compiled.groups import group
from relunorm.matrix import Array, Vector

Whole = NDArray[np.int64]
#: Of rows: float32, or float64 where that does not suit.
Numbers = NDArray[Any]

#: Inputs that corners are made of, at most.
SPREAD = 5

#: In float32, no weight is below `LEAST` but 0, and what networks can make of one is below `MOST`.
LEAST, MOST = 2.0**-100, 2.0**100

#: Where weights differ by this share, lines above and below differences are joined.
JOINED = 1e-4


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
    row_W: Numbers  # the same, as rows have them
    row_V: Numbers
    row_D: Numbers
    bend: Numbers  # (layers,), 1 - below
    b: Array  # (rows,)
    shift: Array  # c - b
    rounding: float  # what a sum of sizes 1 can be off by at the middle
    terms: int  # of one sum, at most
    unit: float  # what a number of a row can be off by when it is rounded
    tiny: float  # more than underflow can lose
    joined: int  # whether lines above and below differences have one slope


def flatten(pair: Pair, reach: Vector) -> Flat:
    """Two paired networks in arrays.

    Args:
        reach: the largest absolute values of inputs.
    """
    blocks = [(k, s) for k, affine in enumerate(pair.maps) for s in affine.W]
    lengths = [pair.maps[k].W[s].size for k, s in blocks]
    W, V, D = (
        np.concatenate([np.empty(0), *(getattr(pair.maps[k], name)[s].ravel() for k, s in blocks)])
        for name in "WVD"
    )
    terms = max(sum(w.shape[1] for w in affine.W.values()) for affine in pair.maps)
    single = _suits_float32(pair, reach, (W, V, D))
    dtype = np.float32 if single else np.float64
    return Flat(
        np.cumsum([0, *(affine.size for affine in pair.maps)], dtype=np.int64),
        np.array(pair.below, dtype=np.float64),
        np.array([k for k, _ in blocks], dtype=np.int64),
        np.array([s for _, s in blocks], dtype=np.int64),
        np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        W,
        V,
        D,
        W.astype(dtype, copy=False),
        V.astype(dtype, copy=False),
        D.astype(dtype, copy=False),
        (1.0 - np.array(pair.below)).astype(dtype),
        np.concatenate([affine.b for affine in pair.maps]),
        np.concatenate([affine.shift for affine in pair.maps]),
        gamma(pair.operations + 2 * terms),
        2 * terms if any(pair.below) else terms,  # a leaky unit that is open is read twice
        2.0**-24 if single else UNIT,
        2.0**-90 if single else TINY,
        int(pair.apart >= JOINED),
    )


def _suits_float32(pair: Pair, reach: Vector, weights: tuple[Array, ...]) -> bool:
    """Whether rows in float32 neither overflow nor lose weights to underflow.

    No coefficient is larger than the product of the norms of all maps, and no value than that times
    those of the inputs and biases; sizes have one of each.
    """
    least = min(np.abs(m[m != 0]).min(initial=np.inf) for m in weights)
    norms, values = 1.0, 1.0 + reach.max(initial=0.0)
    with np.errstate(over="ignore"):
        for affine in pair.maps:
            sizes = [
                sum((np.abs(m).sum(axis=1) for m in of.values()), np.zeros(affine.size))
                for of in (affine.W, affine.V)
            ]
            norms *= max(1.0, *(size.max(initial=0.0) for size in sizes))
            values += np.abs(affine.b).max(initial=0.0) + np.abs(affine.c).max(initial=0.0)
        return bool(least >= LEAST and norms * norms * values * len(weights[0]) <= MOST)


@group
class Form(NamedTuple):
    """z, y or e, less what they are at the middle, in terms of (t, p): for y, of (t, relu(y))."""

    now: Numbers  # rows of the layer at hand
    size: Array  # their sizes
    off: Array  # and what they can be off by
    mid: Array  # what they are at the middle
    mid_off: Array  # and what that can be off by
    kept: Numbers  # rows of units that are put in, layer by layer
    kept_off: Numbers  # and what putting them in can be off by
    open: Numbers  # rows of open units, at steps of `Places.stride`
    lines: Numbers  # of open units: steep, rise, flat, z and relu(z) at the middle; of e, those of
    # `difference_lines`
    rest: Numbers  # at every corner what is above those lines, after the inputs there
    peak: Numbers  # the largest one of those
    less: Numbers  # of e, what is below the lower ones
    mean: Numbers  # where lines are joined, the middle between what is above and below them
    span: Numbers  # and how far that is from either
    value: Numbers  # of z, the middle between its bounds at every corner: all units at one, ...
    middle: Numbers  # and relu of that, after the inputs
    reach: Numbers  # how far t and p are from 0; of e, how far q is
    bulk: Numbers  # what a coefficient 1 of p or q can be off by on its way down


@group
class Rest(NamedTuple):
    """The coefficients of q in rows of e."""

    now: Numbers
    kept: Numbers
    open: Numbers


@group
class Middle(NamedTuple):
    """Values at the middle of the box: of the inputs, then of all units."""

    value: Array  # of the activation
    value_off: Array  # what it can be off by, and what reading it adds to that
    move: Array  # of its difference
    move_off: Array


@group
class Places(NamedTuple):
    """Which units are open or put in, and by layer how many are before it and where rows begin."""

    active: Whole  # rows of the layer at hand that anything reads
    some: Whole  # which of those are bounded
    stride: Whole  # how far rows of open units are apart
    spread: Whole  # inputs that corners are made of
    corners: Whole  # how many there are
    few: Whole  # and of how many slopes are judged: every other one, no two of which are neighbours
    open_unit: Whole
    kept_unit: Whole
    opened: Whole  # (layers + 1,), open units before each layer
    kept: Whole
    kept_row: Whole
    kept_rest: Whole


@group
class Ends(NamedTuple):
    """Rows, then minus them, on their way down to the inputs, and the bounds found."""

    A: Numbers  # (t, p)
    B: Numbers  # q
    lift: Array  # 1
    off: Array  # what all that can be off by
    slope: Numbers  # coefficients of z of open units
    g: Numbers  # and of e
    tilt: Numbers  # for every row and open unit the slope below relu
    z: Array
    y: Array
    e: Array
    part: Numbers  # coefficients of the inputs and what is above lines
    above: Numbers  # of what q is above its lines
    below: Numbers  # and below them
    z_corners: Numbers
    y_corners: Numbers
    e_corners: Numbers


@group
class Memory(NamedTuple):
    """All of it, and the box."""

    z: Form
    y: Form
    e: Form
    q: Rest
    middle: Middle
    places: Places
    ends: Ends
    center: Array
    half: Numbers  # sides
    aside: Numbers  # of inputs that no corners are made of
    rounding: Array  # what a sum of sizes 1 can be off by in rows
    loss: Array  # more than underflow can lose in a row
    weights: Numbers  # of the layer at hand, on units that are put in
    slope: Numbers  # of z of open units by inputs, on their chords
    shares: Numbers  # of inputs in how far units are open
    through: Numbers  # what that adds to units that read them


def new_memory(flat: Flat, inputs: int) -> Memory:
    """Room for every box of a pair."""
    widths, before = np.diff(flat.start), flat.start[:-1]
    layers, units, most = len(flat.below), int(before[-1]), int(widths.max())
    hidden = int(widths[:-1].max(initial=0))
    by_row, by_rest = widths * (inputs + before), widths * before
    row, rest = int(by_row.max()), int(by_rest.max())
    rows, rests = int(by_row[:-1].sum()), int(by_rest[:-1].sum())
    lanes = 64 // flat.row_W.itemsize
    opened = units * (inputs + units + lanes)
    corners = max(lanes, 1 << min(inputs, SPREAD))
    ahead = (inputs + units) * corners

    def doubles(*shape: int) -> Array:
        """Begin where a register is filled at once."""
        return _aligned(shape, np.dtype(np.float64))

    def numbers(*shape: int) -> Numbers:
        return _aligned(shape, flat.row_W.dtype)

    def form(lines: int, variables: int) -> Form:
        of_rows = numbers(row), *(doubles(most) for _ in range(4))
        kept = numbers(rows), numbers(units), numbers(opened), numbers(lines, units)
        rest, *others = (numbers(ahead) for _ in range(6))
        above = rest, numbers(2, units), *others
        fields: tuple[Numbers, ...] = *of_rows, *kept, *above, numbers(variables), numbers(units)
        return Form(*fields)

    def whole(size: int) -> Whole:
        return np.zeros(size, dtype=np.int64)

    forms = form(5, inputs + units), form(5, inputs + units), form(4, units)
    wide_rows = 2 * max(row, most * corners)
    ends = Ends(
        *map(numbers, (2 * row, 2 * rest)),
        *map(doubles, (2 * most,) * 2),
        *map(numbers, (2 * rest,) * 3),
        *map(doubles, (2 * most,) * 3),
        *map(numbers, (wide_rows, 2 * rest, 2 * rest, *(2 * most * corners,) * 3)),
    )
    places = Places(*map(whole, (most, most, 1, inputs, 1, 1, units, units, *(layers + 1,) * 4)))
    middle = Middle(*(doubles(inputs + units) for _ in range(4)))
    box = doubles(inputs), numbers(inputs), numbers(inputs), doubles(1), doubles(1)
    by_input = (numbers(units * inputs) for _ in range(3))
    rest_of_e = Rest(*map(numbers, (rest, rests, opened)))
    weights = numbers(most * hidden)
    return Memory(*forms, rest_of_e, middle, places, ends, *box, weights, *by_input)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Numbers:
    size, step = int(np.prod(shape)), 64 // dtype.itemsize
    whole = np.empty(size + step, dtype=dtype)
    first = -(whole.ctypes.data // dtype.itemsize) % step
    return whole[first : first + size].reshape(shape)
