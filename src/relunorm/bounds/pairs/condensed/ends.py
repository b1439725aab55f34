"""Upper bounds of rows of a layer and of their negatives, backward over open units.

Coefficients of p or q of a layer become coefficients of its z and e, by the lines that are above
where they are positive and below where they are negative, and those become coefficients of what is
further below, until only inputs are left.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.lines import through_p, through_q
from relunorm.compiled.jit import kernel_part, loose_part
from relunorm.compiled.products import add_product, add_product_turned

#: Which corners are where a row may be largest: a share of its range.
NEAR = 0.6


@kernel_part
def _load(rows, some, count, wide, out):
    """Chosen rows, then minus them."""
    for i in range(count):
        at, to, minus = some[i] * wide, i * wide, (count + i) * wide
        for j in range(wide):
            out[to + j] = rows[at + j]
            out[minus + j] = -rows[at + j]


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
    rows, corners = 2 * count, memory.places.corners[0]
    wide = _begin(memory, form, layer, count)
    for m in range(layer - 1, -1, -1):
        _value_down(memory, form, m, rows, wide)
    _at_corners(memory, form, rows, wide)
    for r in range(rows):
        found[r] = _largest(flat, memory, r, wide)
    for c in range(rows * corners):
        over[c] = memory.ends.at_corners[c]


@kernel_part
def foresee(memory, form, layer, count):
    """Slopes for units where they will be at the corners where each row may be largest."""
    places, ends, K = memory.places, memory.ends, memory.places.opened[layer]
    corners, ahead = places.corners[0], 1 + len(memory.center)
    if K == 0:
        return
    wide = _begin(memory, form, layer, count)
    at, part = ends.at_corners, ends.part
    for i in range(count * corners):
        at[i] = 0.0
    add_product(ends.A, 0, wide, form.middle, 0, corners, at, 0, corners, count, wide, corners)
    for r in range(count):
        _weigh(at, part, r * corners, (count + r) * corners, corners)
    for i in range(2 * count * K):
        ends.tilt[i] = 0.0
    add_product_turned(
        part, 0, corners, form.value, ahead * corners, corners, ends.tilt, 0, K,
        2 * count, corners, K,
    )  # fmt: skip
    for r in range(2 * count):
        for k in range(K):
            goal = 1.0 if ends.tilt[r * K + k] > 0.0 else 0.0
            ends.tilt[r * K + k] = goal if form.lines[1, k] > 0.0 else form.lines[2, k]


@loose_part
def _weigh(at, part, up, down, corners):
    """Weights of the corners where a row is nearly largest, and where it is nearly least."""
    most, least = at[up], at[up]
    for c in range(corners):
        most, least = max(most, at[up + c]), min(least, at[up + c])
    near = NEAR * (most - least)
    for c in range(corners):
        high, low = max(at[up + c] - most + near, 0.0), max(least + near - at[up + c], 0.0)
        part[up + c], part[down + c] = high * high, low * low


@kernel_part
def _at_corners(memory, form, rows, wide):
    """The values of rows of ``A`` at every corner, with what relu can be above its lines."""
    ends, d, corners = memory.ends, len(memory.center), memory.places.corners[0]
    at, part, A = ends.at_corners, ends.part, ends.A
    for i in range(rows * corners):
        at[i] = 0.0
    for r in range(rows):
        for i in range(r * wide, r * wide + 1 + d):
            part[i] = A[i]
        for i in range(r * wide + 1 + d, r * wide + wide):
            part[i] = max(A[i], 0.0)
    add_product(part, 0, wide, form.rest, 0, corners, at, 0, corners, rows, wide, corners)


@kernel_part
def _largest(flat, memory, r, wide):
    """Round up the values of a row at corners; returns the largest one."""
    ends, d, corners = memory.ends, len(memory.center), memory.places.corners[0]
    A, size, more = ends.A, ends.size[r] + abs(ends.A[r * wide]), 0.0
    for j in range(d):
        slope = abs(A[r * wide + 1 + j])
        size += slope * memory.far[j]
        more += slope * memory.aside[j]
    largest, total = _raise(
        ends.at_corners, r * corners, corners, more + flat.rounding * (size + more) + flat.tiny
    )
    return largest if total == total else np.inf


@loose_part
def _raise(at, first, corners, more):
    """Add a number to values; returns the largest and the sum of them."""
    largest, total = -np.inf, 0.0
    for c in range(first, first + corners):
        at[c] += more
        total += at[c]
        largest = max(largest, at[c])
    return largest, total


@kernel_part
def _value_down(memory, form, m, rows, wide):
    """Put layer m into the rows."""
    places, ends, d = memory.places, memory.ends, len(memory.center)
    k0, k1 = places.opened[m], places.opened[m + 1]
    if k0 == k1:
        return
    K, many = wide - 1 - d, k1 - k0
    for r in range(rows):
        ends.size[r] += through_p(
            ends.A, r * wide + 1 + d, form, k0, k1, ends.tilt, r * K, ends.slope, r * many - k0
        )
    below = 1 + d + k0
    add_product(
        ends.slope, 0, many, form.open, places.open_row[m], below, ends.A, 0, wide,
        rows, many, below,
    )  # fmt: skip


@kernel_part
def difference_ends(flat, memory, layer, count, found, over):
    """Bound e of the chosen rows; ``A`` and ``B`` get the coefficients that were met."""
    ends, K, rows = memory.ends, memory.places.opened[layer], 2 * count
    corners, d, e = memory.places.corners[0], len(memory.center), memory.e
    wide = _begin(memory, memory.e, layer, count)
    _load(memory.q.now, memory.places.some, count, K, ends.B)
    for m in range(layer - 1, -1, -1):
        _difference_down(memory, m, rows, wide)
    _at_corners(memory, memory.z, rows, wide)
    if K > 0:
        first = (1 + d) * corners
        for side in range(2):
            sign = 1.0 if side == 0 else -1.0
            for i in range(rows * K):
                ends.part[i] = max(sign * ends.B[i], 0.0)
            rest = e.rest if side == 0 else e.less
            add_product(
                ends.part, 0, K, rest, first, corners, ends.at_corners, 0, corners, rows, K, corners
            )
    for r in range(rows):
        found[r] = _largest(flat, memory, r, wide)
    for c in range(rows * corners):
        over[c] = ends.at_corners[c]


@kernel_part
def _difference_down(memory, m, rows, wide):
    """Put layer m into the rows."""
    places, ends, d = memory.places, memory.ends, len(memory.center)
    z, e, q = memory.z, memory.e, memory.q
    k0, k1 = places.opened[m], places.opened[m + 1]
    if k0 == k1:
        return
    K, many, flat = wide - 1 - d, k1 - k0, z.lines[2]
    for r in range(rows):
        to = r * many - k0
        size = through_p(ends.A, r * wide + 1 + d, z, k0, k1, flat, 0, ends.slope, to)
        other = through_q(ends.B, r * K, e, k0, k1, z.whole, ends.slope, ends.g, to)
        ends.size[r] += size + other
    below, at = 1 + d + k0, places.open_row[m]
    add_product(ends.slope, 0, many, z.open, at, below, ends.A, 0, wide, rows, many, below)
    add_product(ends.g, 0, many, e.open, at, below, ends.A, 0, wide, rows, many, below)
    if k0 > 0:
        at = places.open_rest[m]
        add_product(ends.g, 0, many, q.open, at, k0, ends.B, 0, K, rows, many, k0)
