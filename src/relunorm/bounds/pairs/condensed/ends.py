"""Upper bounds of rows of a layer and of their negatives, backward over open units.

Coefficients of p or q of a layer become coefficients of its z and e, by the lines that are above
where they are positive and below where they are negative, and those become coefficients of what is
further below, until only inputs are left.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.lines import largest, through_p, through_q
from relunorm.compiled.jit import kernel_part
from relunorm.compiled.products import add_product, add_product_turned

#: How far the first step goes that tunes slopes.
FAR = 0.7


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
def value_ends(flat, memory, form, layer, count, steps, found):
    """Bound z or y of the chosen rows.

    The slopes in ``ends.tilt`` are tuned in so many steps and become the best ones.
    """
    ends, K, rows = memory.ends, memory.places.opened[layer], 2 * count
    for step in range(1 + (steps if K > 0 else 0)):
        if step > 0:
            _tune(memory, form, layer, rows, FAR / np.sqrt(float(step)))
        wide = _begin(memory, form, layer, count)
        for m in range(layer - 1, -1, -1):
            _value_down(memory, form, m, rows, wide)
        for r in range(rows):
            value = largest(flat, memory, r * wide, ends.size[r])
            if step == 0 or value < found[r]:
                found[r] = value
                for k in range(r * K, r * K + K):
                    ends.best[k] = ends.tilt[k]
    for k in range(rows * K):
        ends.tilt[k] = ends.best[k]


@kernel_part
def _value_down(memory, form, m, rows, wide):
    """Put layer m into the rows."""
    places, ends, d = memory.places, memory.ends, len(memory.center)
    k0, k1 = places.opened[m], places.opened[m + 1]
    if k0 == k1:
        return
    K, many = wide - 1 - d, k1 - k0
    for r in range(rows):
        value, size = through_p(
            ends.A, r * wide + 1 + d, form, k0, k1, ends.tilt, r * K, ends.slope, r * many - k0
        )
        ends.A[r * wide] += value
        ends.size[r] += size
    below = 1 + d + k0
    add_product(
        ends.slope, 0, many, form.open, places.open_row[m], below, ends.A, 0, wide,
        rows, many, below,
    )  # fmt: skip


@kernel_part
def _tune(memory, form, layer, rows, move):
    """Move slopes towards those of the relaxed values where each row is largest.

    ``A`` has the coefficients that were met, and gets those values.
    """
    places, ends, d = memory.places, memory.ends, len(memory.center)
    wide = 1 + d + places.opened[layer]
    A, center, half = ends.A, memory.center, memory.half
    for r in range(rows):
        A[r * wide] = 1.0
        for j in range(d):
            at = r * wide + 1 + j
            A[at] = center[j] + half[j] if A[at] > 0.0 else center[j] - half[j]
    for m in range(layer):
        k0, many = places.opened[m], places.opened[m + 1] - places.opened[m]
        if many == 0:
            continue
        below, z = 1 + d + k0, ends.slope
        for i in range(rows * many):
            z[i] = 0.0
        add_product_turned(
            A, 0, wide, form.open, places.open_row[m], below, z, 0, many, rows, below, many
        )
        for r in range(rows):
            _move(form.lines, A, r * wide + 1 + d, ends.tilt, r * (wide - 1 - d), z, r * many - k0,
                  k0, k0 + many, move)  # fmt: skip


@kernel_part
def _move(lines, A, at, tilt, row, z, to, first, last, move):
    for k in range(first, last):
        value, slope = z[to + k], tilt[row + k]
        if A[at + k] > 0.0:
            A[at + k] = lines[0, k] * value + lines[1, k]
            continue
        A[at + k] = slope * value
        if lines[1, k] > 0.0:
            goal = 1.0 if value > 0.0 else 0.0
            tilt[row + k] = min(max(slope + move * (goal - slope), 0.0), 1.0)


@kernel_part
def difference_ends(flat, memory, layer, count, found):
    """Bound e of the chosen rows; ``A`` and ``B`` get the coefficients that were met."""
    ends, K, rows = memory.ends, memory.places.opened[layer], 2 * count
    wide = _begin(memory, memory.e, layer, count)
    _load(memory.q.now, memory.places.some, count, K, ends.B)
    for m in range(layer - 1, -1, -1):
        _difference_down(memory, m, rows, wide)
    for r in range(rows):
        found[r] = largest(flat, memory, r * wide, ends.size[r])


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
        value, size = through_p(ends.A, r * wide + 1 + d, z, k0, k1, flat, 0, ends.slope, to)
        more, other = through_q(ends.B, r * K, e, k0, k1, z.whole, ends.slope, ends.g, to)
        ends.A[r * wide] += value + more
        ends.size[r] += size + other
    below, at = 1 + d + k0, places.open_row[m]
    add_product(ends.slope, 0, many, z.open, at, below, ends.A, 0, wide, rows, many, below)
    add_product(ends.g, 0, many, e.open, at, below, ends.A, 0, wide, rows, many, below)
    if k0 > 0:
        at = places.open_rest[m]
        add_product(ends.g, 0, many, q.open, at, k0, ends.B, 0, K, rows, many, k0)
