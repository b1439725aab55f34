"""Upper bounds of rows of a layer and of their negatives, backward over open units.

Coefficients of p or q of a layer become coefficients of its z and e, by the lines that are above
where they are positive and below where they are negative, and those become coefficients of what is
further below, until only inputs are left.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.lines import through_p, through_q
from relunorm.compiled.jit import kernel_part, loose_part
from relunorm.compiled.operations import eight, keep
from relunorm.compiled.products import add_product

#: Which corners are where a row may be largest: a share of its range.
NEAR = 0.6


@kernel_part
def _load(rows, some, count, wide, out):
    """Chosen rows, then minus them."""
    for i in range(count):
        at, to, minus = some[i] * wide, i * wide, (count + i) * wide
        for j in range(0, wide, 8):
            many = min(wide - j, 8)
            row = eight(rows, at + j, many)
            keep(out, to + j, many, row)
            keep(out, minus + j, many, -row)


@kernel_part
def _begin(memory, form, layer, count):
    """Load rows of a form; returns how many numbers each has."""
    some, ends = memory.places.some, memory.ends
    wide = 1 + len(memory.center) + memory.places.opened[layer]
    _load(form.now, some, count, wide, ends.A)
    for i in range(count):
        ends.size[i] = ends.size[count + i] = 4 * form.size[some[i]]
    return wide


@kernel_part
def value_ends(flat, memory, form, layer, count, found, over):
    """Bound z or y of the chosen rows, with slopes ``ends.tilt``; ``over`` gets them by corner."""
    places, ends, rows, ahead = memory.places, memory.ends, 2 * count, 1 + len(memory.center)
    wide = _begin(memory, form, layer, count)
    K, stride = wide - ahead, places.stride[0]
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        if k1 < K:
            add_product(
                ends.slope, k1, K, form.open, k1 * stride + ahead + k0, stride,
                ends.A, ahead + k0, wide, rows, K - k1, k1 - k0,
            )  # fmt: skip
        for r in range(rows):
            ends.size[r] += through_p(
                ends.A, r * wide + ahead, form, k0, k1, ends.tilt, r * K,
                ends.slope, r * K, ends.part,
            )  # fmt: skip
    add_product(ends.slope, 0, K, form.open, 0, stride, ends.A, 0, wide, rows, K, ahead)
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
    units = len(form.top)
    add_product(part, 0, corners, form.value, 0, units, ends.tilt, 0, K, 2 * count, corners, K)
    rise, flat = form.lines[1], form.lines[2]
    for r in range(2 * count):
        for k in range(0, K, 8):
            some = min(K - k, 8)
            goal = np.where(eight(ends.tilt, r * K + k, some) > 0.0, eight(1.0), eight(0.0))
            open_ = eight(rise, k, some) > 0.0
            keep(ends.tilt, r * K + k, some, np.where(open_, goal, eight(flat, k, some)))


@loose_part
def _weigh(at, part, up, down, corners):
    """Weights of the corners where a row is nearly largest, and where it is nearly least."""
    most, least = eight(at, up), eight(at, up)
    for c in range(8, corners, 8):
        most, least = np.maximum(most, eight(at, up + c)), np.minimum(least, eight(at, up + c))
    top, bottom = np.max(most), -np.max(-least)
    near = NEAR * (top - bottom)
    for c in range(0, corners, 8):
        high = np.maximum(eight(at, up + c) - (top - near), 0.0)
        low = np.maximum((bottom + near) - eight(at, up + c), 0.0)
        keep(part, up + c, 8, high * high)
        keep(part, down + c, 8, low * low)


@kernel_part
def _at_corners(memory, form, rows, wide, over):
    """The values of rows of ``A`` at every corner, with what relu can be above its lines."""
    ends, ahead, corners = memory.ends, 1 + len(memory.center), memory.places.corners[0]
    for r in range(rows):
        for i in range(r * wide, r * wide + ahead):
            ends.part[i] = ends.A[i]
    for i in range(0, rows * corners, 8):
        keep(over, i, 8, eight(0.0))
    add_product(ends.part, 0, wide, form.rest, 0, corners, over, 0, corners, rows, wide, corners)


@kernel_part
def _largest(flat, memory, r, wide, over):
    """Round up the values of a row at corners; returns the largest one."""
    ends, d, corners = memory.ends, len(memory.center), memory.places.corners[0]
    A, size, more = ends.A, ends.size[r] + abs(ends.A[r * wide]), 0.0
    for j in range(d):
        slope = abs(A[r * wide + 1 + j])
        size += slope * memory.far[j]
        more += slope * memory.aside[j]
    more += flat.rounding * (size + more) + flat.tiny
    largest = _raise(over, r * corners, corners, more)
    return largest if largest == largest else np.inf


@loose_part
def _raise(at, first, corners, more):
    """Add a number to values; returns the largest one."""
    largest = eight(-np.inf)
    for c in range(first, first + corners, 8):
        value = eight(at, c) + more
        keep(at, c, 8, value)
        largest = np.maximum(largest, value)
    return np.max(largest)


@kernel_part
def difference_ends(flat, memory, layer, count, found, over):
    """Bound e of the chosen rows; ``A`` and ``B`` get the coefficients that were met."""
    places, ends, rows, ahead = memory.places, memory.ends, 2 * count, 1 + len(memory.center)
    z, e, q, corners = memory.z, memory.e, memory.q, places.corners[0]
    wide = _begin(memory, e, layer, count)
    K, stride = wide - ahead, places.stride[0]
    _load(q.now, places.some, count, K, ends.B)
    for m in range(layer - 1, -1, -1):
        k0, k1 = places.opened[m], places.opened[m + 1]
        if k0 == k1:
            continue
        if k1 < K:
            at, to, many, new = k1 * stride + ahead + k0, ahead + k0, K - k1, k1 - k0
            add_product(ends.slope, k1, K, z.open, at, stride, ends.A, to, wide, rows, many, new)
            add_product(ends.g, k1, K, e.open, at, stride, ends.A, to, wide, rows, many, new)
            at = k1 * stride + k0
            add_product(ends.g, k1, K, q.open, at, stride, ends.B, k0, K, rows, many, new)
        for r in range(rows):
            size = through_p(
                ends.A, r * wide + ahead, z, k0, k1, z.lines[2], 0, ends.slope, r * K, ends.part
            )
            ends.size[r] += size + through_q(ends, r * K, e, k0, k1)
    add_product(ends.slope, 0, K, z.open, 0, stride, ends.A, 0, wide, rows, K, ahead)
    add_product(ends.g, 0, K, e.open, 0, stride, ends.A, 0, wide, rows, K, ahead)
    _at_corners(memory, z, rows, wide, over)
    at = ahead * corners
    add_product(ends.above, 0, K, e.rest, at, corners, over, 0, corners, rows, K, corners)
    add_product(ends.below, 0, K, e.less, at, corners, over, 0, corners, rows, K, corners)
    for r in range(rows):
        found[r] = _largest(flat, memory, r, wide, over)
