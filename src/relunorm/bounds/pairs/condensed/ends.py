"""Upper bounds of rows of a layer and of their negatives, backward over open units.

Coefficients of p or q of a layer become coefficients of its z and e, by the lines that are above
where they are positive and below where they are negative, and those become coefficients of what is
further below, until only inputs are left.
"""

from __future__ import annotations

import numpy as np

from relunorm.arithmetic.floats import UNIT
from relunorm.bounds.pairs.condensed.lines import (
    above_p,
    above_q,
    around,
    through_joined,
    through_p,
    through_q,
    up,
)
from relunorm.compiled.jit import kernel_part, steady_part
from relunorm.compiled.operations import keep, lanes, spread, width
from relunorm.compiled.products import add_product

#: Which corners are where a row may be largest: a share of its range.
NEAR = 0.6


@kernel_part
def _load(rows, some, count, long, out):
    """Chosen rows, then minus them."""
    wide = width(rows)
    for i in range(count):
        at, to, minus = some[i] * long, i * long, (count + i) * long
        for j in range(0, long, wide):
            many = min(long - j, wide)
            row = lanes(rows, at + j, many)
            keep(out, to + j, many, row)
            keep(out, minus + j, many, -row)


@kernel_part
def _begin(memory, form, layer, count):
    """Load rows of a form; returns how many numbers each has."""
    some, ends = memory.places.some, memory.ends
    wide = len(memory.center) + memory.places.opened[layer]
    _load(form.now, some, count, wide, ends.A)
    for i in range(count):
        r = some[i]
        off = form.off[r] + form.mid_off[r] + memory.rounding[0] * form.size[r]
        ends.lift[i], ends.lift[count + i] = form.mid[r], -form.mid[r]
        ends.off[i] = ends.off[count + i] = off
    return wide


@kernel_part
def value_ends(memory, form, layer, count, found, over):
    """Bound z or y of the chosen rows, with slopes ``ends.tilt``; ``over`` gets them by corner."""
    places, ends, rows, ahead = memory.places, memory.ends, 2 * count, len(memory.center)
    wide = _begin(memory, form, layer, count)
    K, stride = wide - ahead, places.stride[0]
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        through_p(ends, rows, wide, ahead, form, k0, k1, ends.tilt, K)
        at, many = k0 * stride, k1 - k0
        add_product(
            ends.slope, k0, K, form.open, at, stride, ends.A, 0, wide, rows, many, ahead + k0
        )
    for r in range(rows):
        at = r * wide + ahead
        off, lift = above_p(ends, at, at, K, form, ends.tilt, r * K)
        _widen(memory, r, wide, off, lift)
    _at_corners(memory, form, rows, wide, over)
    _raise(memory, rows, found, over)


@kernel_part
def foresee(memory, form, layer, count):
    """Slopes for units where they will be at the corners where each row may be largest."""
    places, ends, K = memory.places, memory.ends, memory.places.opened[layer]
    corners = places.few[0]
    if K == 0:
        return
    wide = _begin(memory, form, layer, count)
    at, part = ends.z_corners, ends.part
    for i in range(count * corners):
        at[i] = 0.0
    add_product(ends.A, 0, wide, form.middle, 0, corners, at, 0, corners, count, wide, corners)
    for r in range(count):
        _weigh(at, part, r * corners, (count + r) * corners, corners)
    for i in range(2 * count * K):
        ends.tilt[i] = 0.0
    units = len(form.bulk)
    add_product(part, 0, corners, form.value, 0, units, ends.tilt, 0, K, 2 * count, corners, K)
    rise, flat = form.lines[1], form.lines[2]
    lines = width(rise)
    for r in range(2 * count):
        for k in range(0, K, lines):
            some = min(K - k, lines)
            goal = np.where(lanes(ends.tilt, r * K + k, some) > 0.0, 1.0, 0.0)
            open_ = lanes(rise, k, some) > 0.0
            keep(ends.tilt, r * K + k, some, np.where(open_, goal, lanes(flat, k, some)))


@steady_part
def _weigh(at, part, up, down, corners):
    """Weights of the corners where a row is nearly largest, and where it is nearly least."""
    most, least, wide = lanes(at, up), lanes(at, up), width(at)
    for c in range(wide, corners, wide):
        most, least = np.maximum(most, lanes(at, up + c)), np.minimum(least, lanes(at, up + c))
    top, bottom = np.max(most), -np.max(-least)
    near = NEAR * (top - bottom)
    from_, to = spread(top - near, at), spread(bottom + near, at)
    for c in range(0, corners, wide):
        high = np.maximum(lanes(at, up + c) - from_, 0.0)
        low = np.maximum(to - lanes(at, up + c), 0.0)
        keep(part, up + c, wide, high * high)
        keep(part, down + c, wide, low * low)


@kernel_part
def _widen(memory, r, wide, off, lift):
    """A number that makes the values of a row at corners bounds, whatever is rounded."""
    ends = memory.ends
    size, aside = _inputs_of(ends, r * wide, memory.half, memory.aside)
    lift += ends.lift[r]
    more = ends.off[r] + off + aside
    more += memory.rounding[0] * (size + more) + 4 * UNIT * abs(lift) + memory.loss[0]
    ends.lift[r] = lift + more


@steady_part
def _inputs_of(ends, at, half, aside):
    """Put coefficients of inputs beside those of rests; their sizes, and those no corner has."""
    d, wide = len(half), width(half)
    size, beside = spread(0.0, half), spread(0.0, half)
    for j in range(0, d, wide):
        some = min(d - j, wide)
        a = lanes(ends.A, at + j, some)
        keep(ends.part, at + j, some, a)
        size += abs(a) * lanes(half, j, some)
        beside += abs(a) * lanes(aside, j, some)
    return np.sum(size), np.sum(beside)


@kernel_part
def _at_corners(memory, form, rows, wide, over):
    """The values of rows of ``part`` at every corner: inputs, and what is above lines of relu."""
    ends, corners, lot = memory.ends, memory.places.corners[0], width(over)
    for i in range(0, rows * corners, lot):
        keep(over, i, lot, spread(0.0, over))
    add_product(ends.part, 0, wide, form.rest, 0, corners, over, 0, corners, rows, wide, corners)


@steady_part
def _raise(memory, rows, found, over):
    """Add the number of every row to its values at corners; find the largest ones.

    Those are added up in float64, so that the bound of a small box is as near as float64 can say.
    """
    corners, wide = memory.places.corners[0], width(over)
    for r in range(rows):
        lift, largest = memory.ends.lift[r], spread(-np.inf, over)
        rounded = spread(lift + memory.rounding[0] * abs(lift), over)
        for c in range(r * corners, (r + 1) * corners, wide):
            value = lanes(over, c)
            keep(over, c, wide, value + rounded)
            largest = np.maximum(largest, value)
        most = np.max(largest) + lift
        found[r] = up(most) if most > -np.inf else np.inf


@kernel_part
def difference_ends(flat, memory, layer, count, found, over):
    """Bound e of the chosen rows; ``A`` and ``B`` get the coefficients that were met."""
    K = memory.places.opened[layer]
    wide = _begin(memory, memory.e, layer, count)
    _load(memory.q.now, memory.places.some, count, K, memory.ends.B)
    if flat.joined != 0:
        _joined_ends(memory, layer, count, wide, over)
    else:
        _signed_ends(memory, layer, 2 * count, wide, over)
    _raise(memory, 2 * count, found, over)


@kernel_part
def _signed_ends(memory, layer, rows, wide, over):
    """With lines that depend on the signs of coefficients."""
    places, ends, ahead = memory.places, memory.ends, len(memory.center)
    z, e, corners, K = memory.z, memory.e, places.corners[0], wide - ahead
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 < k1:
            through_p(ends, rows, wide, ahead, z, k0, k1, z.lines[2], 0)
            through_q(ends, rows, K, e, k0, k1)
            _replace(memory, rows, wide, K, k0, k1)
    for r in range(rows):
        at = r * wide + ahead
        off, lift = above_p(ends, at, at, K, z, z.lines[2], 0)
        _widen(memory, r, wide, off + above_q(ends, r * K, K, e), lift)
    _at_corners(memory, z, rows, wide, over)
    at = ahead * corners
    add_product(ends.above, 0, K, e.rest, at, corners, over, 0, corners, rows, K, corners)
    add_product(ends.below, 0, K, e.less, at, corners, over, 0, corners, rows, K, corners)


@kernel_part
def _replace(memory, rows, wide, K, k0, k1):
    """Coefficients of z and e of open units become those of what their rows have."""
    z, e, q, ends, stride = memory.z, memory.e, memory.q, memory.ends, memory.places.stride[0]
    at, many, below = k0 * stride, k1 - k0, wide - K + k0
    add_product(ends.slope, k0, K, z.open, at, stride, ends.A, 0, wide, rows, many, below)
    add_product(ends.g, k0, K, e.open, at, stride, ends.A, 0, wide, rows, many, below)
    if k0 > 0:
        add_product(ends.g, k0, K, q.open, at, stride, ends.B, 0, K, rows, many, k0)


@kernel_part
def _joined_ends(memory, layer, count, wide, over):
    """With lines that are joined: minus a row has its coefficients."""
    places, ends, ahead, z, e = memory.places, memory.ends, len(memory.center), memory.z, memory.e
    K = wide - ahead
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 < k1:
            through_joined(ends, count, wide, ahead, z, e, k0, k1)
            _replace(memory, count, wide, K, k0, k1)
    for r in range(count):
        off = around(ends, r * wide + ahead, r * K, K, z, e)
        minus = (count + r) * wide
        for j in range(wide):
            ends.A[minus + j] = -ends.A[r * wide + j]
        _widen(memory, r, wide, off, 0.0)
        _widen(memory, count + r, wide, off, 0.0)
    _between_lines(memory, count, wide, over)


@kernel_part
def _between_lines(memory, count, wide, over):
    """The values of rows of ``A`` and ``B`` and of their negatives at every corner."""
    z, e, ends, ahead, corners = (
        memory.z, memory.e, memory.ends, len(memory.center), memory.places.corners[0]
    )  # fmt: skip
    K, at, minus, lot = wide - ahead, ahead * corners, count * corners, width(over)
    for i in range(0, 2 * minus, lot):
        keep(over, i, lot, spread(0.0, over))
    add_product(ends.A, 0, wide, z.mean, 0, corners, over, 0, corners, count, wide, corners)
    add_product(ends.B, 0, K, e.mean, at, corners, over, 0, corners, count, K, corners)
    add_product(ends.above, 0, K, z.span, at, corners, over, minus, corners, count, K, corners)
    add_product(ends.below, 0, K, e.span, at, corners, over, minus, corners, count, K, corners)
    for i in range(0, minus, lot):
        mean, span = lanes(over, i), lanes(over, minus + i)
        keep(over, i, lot, span + mean)
        keep(over, minus + i, lot, span - mean)
