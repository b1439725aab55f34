"""Values at the middle of a box, in float64: what rows are counted from.

With activations v and their differences d, z = W v + b and e = V d + D v + (c - b), layer by layer,
so that nothing cancels in e. Beside every value stands what it can be off by.
"""

from __future__ import annotations

import numpy as np

from relunorm.arithmetic.floats import TINY
from relunorm.compiled.jit import kernel_part, steady_part
from relunorm.compiled.operations import eight


@kernel_part
def start_middle(flat, memory):
    """The inputs there, which are exact."""
    values, center = memory.middle, memory.center
    for j in range(len(center)):
        values.value[j] = center[j]
        values.value_off[j] = flat.rounding * abs(center[j])
        values.move[j] = values.move_off[j] = 0.0


@kernel_part
def find_middle(flat, memory, layer, count):
    """z, y and e of the active rows of a layer."""
    z, y, e, first = memory.z, memory.y, memory.e, flat.start[layer]
    for r in range(count):
        row = first + memory.places.active[r]
        z.mid[r], e.mid[r] = flat.b[row], flat.shift[row]
        z.mid_off[r] = flat.rounding * abs(z.mid[r])
        e.mid_off[r] = flat.rounding * abs(e.mid[r])
    for block in range(len(flat.target)):
        if flat.target[block] == layer:
            _read(flat, memory, block, count)
    more = 1.0 + flat.rounding
    for r in range(count):
        z.mid_off[r], e.mid_off[r] = z.mid_off[r] * more + TINY, e.mid_off[r] * more + TINY
        y.mid[r] = z.mid[r] + e.mid[r]
        y.mid_off[r] = (z.mid_off[r] + e.mid_off[r]) * more + flat.rounding * abs(y.mid[r])
    if layer < len(flat.below):
        _activate(flat, memory, layer, count)


@kernel_part
def _read(flat, memory, block, count):
    """Add what active rows read from a source."""
    z, e, values, m = memory.z, memory.e, memory.middle, flat.source[block] - 1
    wide, at = len(memory.center), 0
    if m >= 0:
        at, wide = wide + flat.start[m], flat.start[m + 1] - flat.start[m]
    for r in range(count):
        row = flat.offset[block] + memory.places.active[r] * wide
        one, off = _dot(flat.W, row, values.value, values.value_off, at, wide)
        z.mid[r] += one
        z.mid_off[r] += off
        one, off = _dot(flat.D, row, values.value, values.value_off, at, wide)
        e.mid[r] += one
        e.mid_off[r] += off
        if m >= 0:
            one, off = _dot(flat.V, row, values.move, values.move_off, at, wide)
            e.mid[r] += one
            e.mid_off[r] += off


@steady_part
def _dot(weights, row, values, offs, at, wide):
    """A row of weights times values, and what that can be off by."""
    total, off = eight(0.0), eight(0.0)
    for j in range(0, wide, 8):
        some = min(wide - j, 8)
        w = eight(weights, row + j, some)
        total += w * eight(values, at + j, some)
        off += abs(w) * eight(offs, at + j, some)
    return np.sum(total), np.sum(off)


@kernel_part
def _activate(flat, memory, layer, count):
    """What the next layers read: of units that nothing reads, 0."""
    z, y, e, values, at = memory.z, memory.y, memory.e, memory.middle, len(memory.center)
    below, rounding = flat.below[layer], flat.rounding
    bend = 1.0 - below
    for k in range(at + flat.start[layer], at + flat.start[layer + 1]):
        values.value[k] = values.value_off[k] = values.move[k] = values.move_off[k] = 0.0
    for r in range(count):
        k = at + flat.start[layer] + memory.places.active[r]
        mids, offs = (z.mid[r], y.mid[r], e.mid[r]), (z.mid_off[r], y.mid_off[r], e.mid_off[r])
        q, q_off = move_at(mids, offs)
        values.value[k] = below * z.mid[r] + bend * max(z.mid[r], 0.0)
        values.value_off[k] = z.mid_off[r] + rounding * abs(z.mid[r])
        values.move[k] = below * e.mid[r] + bend * q
        values.move_off[k] = max(e.mid_off[r], q_off) + rounding * (abs(e.mid[r]) + abs(q))


@kernel_part
def move_at(mids, offs):
    """relu(y) - relu(z), of z, y and y - z that can be off by so much; what that can be off by."""
    z, y, e = mids
    z_off, y_off, e_off = offs
    if z > z_off and y > y_off:
        return e, e_off
    if z < -z_off and y < -y_off:
        return 0.0, 0.0
    return max(y, 0.0) - max(z, 0.0), min(z_off + y_off, 2.0 * (abs(e) + e_off))
