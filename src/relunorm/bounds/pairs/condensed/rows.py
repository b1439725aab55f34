"""The rows of one layer, with the rows of units that keep their signs put in.

A row says what z, y or e is more than at the middle of the box, in terms of t and p, which are
counted from there, too. What it can be off by is, anywhere in the box, at most the sum over what it
reads of the weight times what that can be off by; and, n numbers having been added up, n roundings
of the sum of the weights times the sizes of what is read (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel_part, steady_part
from relunorm.compiled.operations import lanes, spread, width
from relunorm.compiled.products import add_product


@kernel_part
def put_in(flat, memory, layer, count):
    """Rows of z, y and e of the active units of a layer; of the outputs those of e."""
    places = memory.places
    z, y, e, q = memory.z, memory.y, memory.e, memory.q
    K, d = places.opened[layer], len(memory.center)
    wide = d + K
    _clear(z, count, wide)
    _clear(y, count, wide)
    _clear(e, count, wide)
    for i in range(count * K):
        q.now[i] = 0.0
    for block in range(len(flat.target)):
        if flat.target[block] != layer:
            continue
        at, m = flat.offset[block], flat.source[block] - 1
        if m < 0:
            _inputs(memory, z, flat.row_W, at, count, wide)
            _inputs(memory, y, flat.row_V, at, count, wide)
            _inputs(memory, e, flat.row_D, at, count, wide)
            continue
        _put_open(flat, memory, at, m, count, wide)
        if places.kept[m] < places.kept[m + 1]:
            _put_kept(flat, memory, at, m, count, wide, layer == len(flat.below))
    _measure(memory, z, z.reach, count, wide)
    _measure(memory, y, y.reach, count, wide)
    _measure(memory, e, z.reach, count, wide)
    for r in range(count):
        e.size[r] += _size(q.now, r * K, e.reach, 0, K)


@kernel_part
def _clear(form, count, wide):
    for i in range(count * wide):
        form.now[i] = 0.0
    for r in range(count):
        form.off[r] = 0.0


@kernel_part
def _measure(memory, form, reach, count, wide):
    """The sizes of rows; what they can be off by is rounded up."""
    more = 1.0 + memory.rounding[0]
    for r in range(count):
        form.size[r] = _size(form.now, r * wide, reach, 0, wide)
        form.off[r] = form.off[r] * more + memory.loss[0]


@steady_part
def _size(numbers, at, reach, first, count):
    """The sum of absolute values of numbers times ``reach[first:]``, what they belong to."""
    wide, total = width(numbers), spread(0.0, numbers)
    for j in range(0, count, wide):
        some = min(count - j, wide)
        total += abs(lanes(numbers, at + j, some)) * lanes(reach, first + j, some)
    return np.sum(total)


@kernel_part
def _inputs(memory, form, weights, at, count, wide):
    """A layer reads the inputs."""
    now, active, d = form.now, memory.places.active, len(memory.center)
    for r in range(count):
        row = at + active[r] * d
        for j in range(d):
            now[r * wide + j] += weights[row + j]
        form.off[r] += memory.rounding[0] * _size(weights, row, memory.half, 0, d)


@kernel_part
def _put_open(flat, memory, at, m, count, wide):
    """A layer reads the open units of layer m: p in z, p' in y, p and q in e."""
    z, y, e, first = memory.z, memory.y, memory.e, len(memory.center)
    q = memory.q.now
    _open(flat, memory, flat.row_W, at, m, count, z.now, wide, first, z.off, z.reach)
    _open(flat, memory, flat.row_V, at, m, count, y.now, wide, first, y.off, y.reach)
    _open(flat, memory, flat.row_D, at, m, count, e.now, wide, first, e.off, z.reach)
    _open(flat, memory, flat.row_V, at, m, count, q, wide - first, 0, e.off, e.reach)


@steady_part
def _open(flat, memory, weights, at, m, count, now, wide, first, off, reach):
    """Add the weights on open units of layer m to rows that are ``wide``, from ``first`` on."""
    places, base = memory.places, flat.start[m]
    active, unit, layer_wide = places.active, places.open_unit, flat.start[m + 1] - base
    bend = flat.bend[m]
    for r in range(count):
        row, to = at + active[r] * layer_wide - base, r * wide + first
        more = 0.0
        for k in range(places.opened[m], places.opened[m + 1]):
            w = weights[row + unit[k]] * bend
            now[to + k] += w
            more += abs(w) * reach[first + k]
        off[r] += memory.rounding[0] * more


@kernel_part
def _put_kept(flat, memory, at, m, count, wide, last):
    """A layer reads the units of layer m that are put in."""
    places, weights, q = memory.places, memory.weights, memory.q
    z, y, e = memory.z, memory.y, memory.e
    many, before = places.kept[m + 1] - places.kept[m], places.opened[m]
    below, row, rest = len(memory.center) + before, places.kept_row[m], places.kept_rest[m]
    if not last:
        _gather(flat, memory, flat.row_W, at, m, count)
        _add_offs(places, weights, m, count, z.off, z.kept_off)
        add_product(weights, 0, many, z.kept, row, below, z.now, 0, wide, count, many, below)
    _gather(flat, memory, flat.row_D, at, m, count)
    _add_offs(places, weights, m, count, e.off, z.kept_off)
    add_product(weights, 0, many, z.kept, row, below, e.now, 0, wide, count, many, below)
    _gather(flat, memory, flat.row_V, at, m, count)
    if not last:
        _add_offs(places, weights, m, count, y.off, y.kept_off)
        add_product(weights, 0, many, y.kept, row, below, y.now, 0, wide, count, many, below)
    _add_offs(places, weights, m, count, e.off, e.kept_off)
    add_product(weights, 0, many, e.kept, row, below, e.now, 0, wide, count, many, below)
    if before > 0:
        K = wide - len(memory.center)
        add_product(weights, 0, many, q.kept, rest, before, q.now, 0, K, count, many, before)


@kernel_part
def _gather(flat, memory, numbers, at, m, count):
    """The weights of active rows on units of layer m that are put in."""
    places, weights, base = memory.places, memory.weights, flat.start[m]
    first, wide = places.kept[m], flat.start[m + 1] - base
    many = places.kept[m + 1] - first
    for r in range(count):
        row = at + places.active[r] * wide - base
        for i in range(many):
            weights[r * many + i] = numbers[row + places.kept_unit[first + i]]


@kernel_part
def _add_offs(places, weights, m, count, off, offs):
    first = places.kept[m]
    many = places.kept[m + 1] - first
    for r in range(count):
        off[r] += _size(weights, r * many, offs, first, many)
