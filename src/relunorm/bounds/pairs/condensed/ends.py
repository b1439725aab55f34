"""Upper bounds of rows of a layer and of their negatives, backward over open units.

Coefficients of p or q of a layer become coefficients of its z and e, by the lines that are above
where they are positive and below where they are negative, and those become coefficients of what is
further below, until only inputs are left.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.lines import through_joined, through_p, through_q
from relunorm.compiled.jit import kernel_part, loose_part
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
def value_ends(flat, memory, form, layer, count, found, over):
    """Bound z or y of the chosen rows, with slopes ``ends.tilt``; ``over`` gets them by corner."""
    places, ends, rows, ahead = memory.places, memory.ends, 2 * count, len(memory.center)
    wide = _begin(memory, form, layer, count)
    K, stride = wide - ahead, places.stride[0]
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        for r in range(rows):
            off, lift = through_p(
                ends.A, r * wide + ahead, form, k0, k1, ends.tilt, r * K,
                ends.slope, r * K, ends.part,
            )  # fmt: skip
            ends.off[r] += off
            ends.lift[r] += lift
        at, many = k0 * stride, k1 - k0
        add_product(
            ends.slope, k0, K, form.open, at, stride, ends.A, 0, wide, rows, many, ahead + k0
        )
    _at_corners(memory, form, rows, wide, over)
    for r in range(rows):
        found[r] = _largest(flat, memory, r, wide, over)


@kernel_part
def foresee(memory, form, layer, count):
    """Slopes for units where they will be at the corners where each row may be largest."""
    places, ends, K = memory.places, memory.ends, memory.places.opened[layer]
    corners = places.corners[0]
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


@loose_part
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
def _at_corners(memory, form, rows, wide, over):
    """The values of rows of ``A`` at every corner, with what relu can be above its lines."""
    ends, ahead, corners = memory.ends, len(memory.center), memory.places.corners[0]
    for r in range(rows):
        for i in range(r * wide, r * wide + ahead):
            ends.part[i] = ends.A[i]
    for i in range(0, rows * corners, width(over)):
        keep(over, i, width(over), spread(0.0, over))
    add_product(ends.part, 0, wide, form.rest, 0, corners, over, 0, corners, rows, wide, corners)


@kernel_part
def _largest(flat, memory, r, wide, over):
    """Round up the values of a row at corners; returns the largest one."""
    ends, d, corners = memory.ends, len(memory.center), memory.places.corners[0]
    size, more = abs(ends.lift[r]), ends.off[r]
    for j in range(d):
        slope = abs(ends.A[r * wide + j])
        size += slope * memory.half[j]
        more += slope * memory.aside[j]
    rounding = memory.rounding[0]
    more += rounding * (size + more) + memory.loss[0]
    largest = _raise(over, r * corners, corners, ends.lift[r] + more)
    return largest if largest == largest else np.inf


@loose_part
def _raise(at, first, corners, more):
    """Add a number to values; returns the largest one."""
    largest, lift, wide = spread(-np.inf, at), spread(more, at), width(at)
    for c in range(first, first + corners, wide):
        value = lanes(at, c) + lift
        keep(at, c, wide, value)
        largest = np.maximum(largest, value)
    return np.max(largest)


@kernel_part
def difference_ends(flat, memory, layer, count, found, over):
    """Bound e of the chosen rows; ``A`` and ``B`` get the coefficients that were met."""
    if flat.joined != 0:
        _joined_ends(flat, memory, layer, count, found, over)
    else:
        _signed_ends(flat, memory, layer, count, found, over)


@kernel_part
def _signed_ends(flat, memory, layer, count, found, over):
    """With lines that depend on the signs of coefficients."""
    places, ends, rows, ahead = memory.places, memory.ends, 2 * count, len(memory.center)
    z, e, q, corners = memory.z, memory.e, memory.q, places.corners[0]
    wide = _begin(memory, e, layer, count)
    K = wide - ahead
    _load(q.now, places.some, count, K, ends.B)
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        for r in range(rows):
            off, lift = through_p(
                ends.A, r * wide + ahead, z, k0, k1, z.lines[2], 0, ends.slope, r * K, ends.part
            )
            ends.off[r] += off + through_q(ends, r * K, e, k0, k1)
            ends.lift[r] += lift
        _replace(memory, rows, wide, K, k0, k1)
    _at_corners(memory, z, rows, wide, over)
    at = ahead * corners
    add_product(ends.above, 0, K, e.rest, at, corners, over, 0, corners, rows, K, corners)
    add_product(ends.below, 0, K, e.less, at, corners, over, 0, corners, rows, K, corners)
    for r in range(rows):
        found[r] = _largest(flat, memory, r, wide, over)


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
def _joined_ends(flat, memory, layer, count, found, over):
    """With lines that are joined: minus a row has its coefficients."""
    places, ends, ahead = memory.places, memory.ends, len(memory.center)
    z, e, q = memory.z, memory.e, memory.q
    wide = _begin(memory, e, layer, count)
    K = wide - ahead
    _load(q.now, places.some, count, K, ends.B)
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        for r in range(count):
            ends.off[r] += through_joined(ends, r * wide + ahead, r * K, z, e, k0, k1)
        _replace(memory, count, wide, K, k0, k1)
    _between_lines(memory, count, wide, over)
    for r in range(count):
        ends.off[count + r] = ends.off[r]
        for j in range(wide):
            ends.A[(count + r) * wide + j] = -ends.A[r * wide + j]
    for r in range(2 * count):
        found[r] = _largest(flat, memory, r, wide, over)


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
