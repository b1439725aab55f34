"""The rows of one layer, with the rows of units that keep their signs put in."""

from __future__ import annotations

from relunorm.compiled.jit import kernel_part, loose_part
from relunorm.compiled.products import add_product


@kernel_part
def put_in(flat, memory, layer, count):
    """Rows and sizes of z, y and e of the active units of a layer; of the outputs those of e."""
    places = memory.places
    z, y, e = memory.z, memory.y, memory.e
    first, K = flat.start[layer], places.opened[layer]
    wide = 1 + len(memory.center) + K
    _constants(z, flat.b, first, places.active, count, wide)
    _constants(y, flat.c, first, places.active, count, wide)
    _constants(e, flat.shift, first, places.active, count, wide)
    for i in range(count * K):
        memory.q.now[i] = 0.0
    for block in range(len(flat.target)):
        if flat.target[block] != layer:
            continue
        at, m = flat.offset[block], flat.source[block] - 1
        if m < 0:
            _inputs(memory, z, flat.W, at, count, wide)
            _inputs(memory, y, flat.V, at, count, wide)
            _inputs(memory, e, flat.D, at, count, wide)
            continue
        _put_open(flat, memory, at, m, count, wide)
        if places.kept[m] < places.kept[m + 1]:
            _put_kept(flat, memory, at, m, count, wide, layer == len(flat.below))


@kernel_part
def _constants(form, constants, first, active, count, wide):
    now, size = form.now, form.size
    for i in range(count * wide):
        now[i] = 0.0
    for r in range(count):
        now[r * wide] = constants[first + active[r]]
        size[r] = abs(now[r * wide])


@loose_part
def _inputs(memory, form, weights, at, count, wide):
    """A layer reads the inputs."""
    now, size, active = form.now, form.size, memory.places.active
    far, d = memory.far, len(memory.far)
    for r in range(count):
        row, to = at + active[r] * d, r * wide + 1
        more = 0.0
        for j in range(d):
            now[to + j] += weights[row + j]
            more += abs(weights[row + j]) * far[j]
        size[r] += more


@kernel_part
def _put_open(flat, memory, at, m, count, wide):
    """A layer reads the open units of layer m: p in z, p' in y, p and q in e."""
    z, y, e = memory.z, memory.y, memory.e
    q, first = memory.q, 1 + len(memory.center)
    _open(flat, memory.places, flat.W, at, m, count, z.now, wide, first, z.size, z.top)
    _open(flat, memory.places, flat.V, at, m, count, y.now, wide, first, y.size, y.top)
    _open(flat, memory.places, flat.D, at, m, count, e.now, wide, first, e.size, z.top)
    _open(flat, memory.places, flat.V, at, m, count, q.now, wide - first, 0, e.size,
          e.top)  # fmt: skip


@loose_part
def _open(flat, places, weights, at, m, count, now, wide, first, size, top):
    """Add the weights on open units of layer m to rows that are ``wide``, from ``first`` on."""
    active, unit, base = places.active, places.open_unit, flat.start[m]
    bend, layer_wide = 1.0 - flat.below[m], flat.start[m + 1] - base
    for r in range(count):
        row, to = at + active[r] * layer_wide - base, r * wide + first
        more = 0.0
        for k in range(places.opened[m], places.opened[m + 1]):
            w = weights[row + unit[k]] * bend
            now[to + k] += w
            more += abs(w) * top[k]
        size[r] += more


@kernel_part
def _put_kept(flat, memory, at, m, count, wide, last):
    """A layer reads the units of layer m that are put in."""
    places, weights, q = memory.places, memory.weights, memory.q
    z, y, e = memory.z, memory.y, memory.e
    many, before = places.kept[m + 1] - places.kept[m], places.opened[m]
    below, row, rest = 1 + len(memory.center) + before, places.kept_row[m], places.kept_rest[m]
    if not last:
        _gather(flat, memory, flat.W, at, m, count)
        _add_sizes(places, weights, m, count, z.size, z.kept_size)
        add_product(weights, 0, many, z.kept, row, below, z.now, 0, wide, count, many, below)
    _gather(flat, memory, flat.D, at, m, count)
    _add_sizes(places, weights, m, count, e.size, z.kept_size)
    add_product(weights, 0, many, z.kept, row, below, e.now, 0, wide, count, many, below)
    _gather(flat, memory, flat.V, at, m, count)
    if not last:
        _add_sizes(places, weights, m, count, y.size, y.kept_size)
        add_product(weights, 0, many, y.kept, row, below, y.now, 0, wide, count, many, below)
    _add_sizes(places, weights, m, count, e.size, e.kept_size)
    add_product(weights, 0, many, e.kept, row, below, e.now, 0, wide, count, many, below)
    if before > 0:
        K = wide - 1 - len(memory.center)
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


@loose_part
def _add_sizes(places, weights, m, count, size, sizes):
    first = places.kept[m]
    many = places.kept[m + 1] - first
    for r in range(count):
        more = 0.0
        for i in range(many):
            more += abs(weights[r * many + i]) * sizes[first + i]
        size[r] += more
