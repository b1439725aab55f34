"""Which units of a layer are open on a box, and what is kept of them for the layers above."""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.ends import difference_ends, foresee, value_ends
from relunorm.bounds.pairs.condensed.lines import (
    difference_lines,
    down,
    join_rest,
    joined_lines,
    peak,
    relu_lines,
    relu_rest,
    up,
)
from relunorm.bounds.pairs.condensed.middle import move_at
from relunorm.compiled.jit import kernel_part
from relunorm.compiled.operations import keep, lanes, spread, width

#: What is known of a unit in both networks.
OFF, OPEN, ON = 0, 1, 2

#: Where the ranges of e are at most this share of those of z, those of y = z + e are their sums.
ALIKE = 0.02


@kernel_part
def read_rows(flat, memory, signs, layer):
    """Choose the rows of a layer that anything reads; returns how many."""
    first, active, count = flat.start[layer], memory.places.active, 0
    hidden = layer < len(flat.below)
    for i in range(flat.start[layer + 1] - first):
        if not hidden or signs[first + i] != OFF or flat.below[layer] != 0.0:
            active[count] = i
            count += 1
    return count


@kernel_part
def bound_open(flat, memory, signs, layer, count):
    """Bound z, y and e of the units that were open; returns how many those are."""
    places, ends, opened = memory.places, memory.ends, 0
    for r in range(count):
        if signs[flat.start[layer] + places.active[r]] == OPEN:
            places.some[opened] = r
            opened += 1
    K, of_z, of_y = places.opened[layer], memory.z.lines, memory.y.lines
    foresee(memory, memory.z, layer, opened)
    value_ends(memory, memory.z, layer, opened, ends.z, ends.z_corners)
    difference_ends(flat, memory, layer, opened, ends.e, ends.e_corners)
    if _alike(ends, opened):
        for i in range(2 * opened):
            ends.y[i] = np.inf
        for i in range(2 * opened * places.corners[0]):
            ends.y_corners[i] = np.inf
        return opened
    # what suits z suits its copy, too
    for k in range(K):
        if of_y[0, k] == 0.0 or of_y[0, k] == 1.0:
            flattest = of_y[0, k]
        elif of_z[0, k] == 0.0 or of_z[0, k] == 1.0:
            flattest = of_y[2, k]
        else:
            continue
        for i in range(2 * opened):
            ends.tilt[i * K + k] = flattest
    value_ends(memory, memory.y, layer, opened, ends.y, ends.y_corners)
    return opened


@kernel_part
def _alike(ends, opened):
    """Whether e is so small that z + e needs no bounds of its own."""
    of_z, of_e = 0.0, 0.0
    for i in range(2 * opened):
        of_z += ends.z[i]
        of_e += ends.e[i]
    return of_e <= ALIKE * of_z


@kernel_part
def settle(flat, memory, signs, layer, count, opened):
    """Find out what is open still, and keep the rows of that and of what is put in."""
    places = memory.places
    places.opened[layer + 1], places.kept[layer + 1] = places.opened[layer], places.kept[layer]
    places.kept_row[layer + 1] = places.kept_row[layer]
    places.kept_rest[layer + 1] = places.kept_rest[layer]
    i = 0
    for r in range(count):
        unit = flat.start[layer] + places.active[r]
        if signs[unit] == OPEN:
            signs[unit] = _sign(flat, memory, layer, unit, r, i, opened)
            i += 1
        factor = 1.0 if signs[unit] == ON else flat.below[layer]
        if factor != 0.0:
            _keep(memory, layer, unit, r, factor)


@kernel_part
def _sign(flat, memory, layer, unit, r, i, opened):
    """The sign of a unit in both networks; where it is open, its rows and lines are kept."""
    ends = memory.ends
    zu, zl = ends.z[i], -ends.z[opened + i]
    eu, el = ends.e[i], -ends.e[opened + i]
    yu, yl = ends.y[i], -ends.y[opened + i]
    for _ in range(2):
        yl, yu = max(yl, down(zl + el)), min(yu, up(zu + eu))
        zl, zu = max(zl, down(yl - eu)), min(zu, up(yu - el))
        el, eu = max(el, down(yl - zu)), min(eu, up(yu - zl))
    if zl >= 0.0 and yl >= 0.0:
        return ON
    if zu <= 0.0 and yu <= 0.0:
        return OFF
    _open_unit(flat, memory, layer, unit, r, i, opened, (zl, zu, yl, yu, el, eu))
    return OPEN


@kernel_part
def _open_unit(flat, memory, layer, unit, r, i, opened, known):
    """Keep the rows and lines of an open unit."""
    zl, zu, yl, yu, el, eu = known
    z, y, e, places = memory.z, memory.y, memory.e, memory.places
    k, K = places.opened[layer + 1], places.opened[layer]
    far_z, far_y = _value_lines(memory, z, k, r, zl, zu), _value_lines(memory, y, k, r, yl, yu)
    mids = z.mid[r], y.mid[r], e.mid[r]
    q, q_off = move_at(mids, (z.mid_off[r], y.mid_off[r], e.mid_off[r]))
    if _line(flat, memory, i, opened, k, el, eu, (mids[0], mids[1], mids[2], q)):
        q_off += z.mid_off[r] + y.mid_off[r]
    _bulk(memory, z, k, r, far_z)
    _bulk(memory, y, k, r, far_y)
    far_e = max(eu - e.mid[r], e.mid[r] - el, 0.0)
    _difference_bulk(memory, k, r, far_z, far_e, q_off)
    reach = max(max(eu, 0.0) - q, q - min(el, 0.0), 0.0) + q_off
    e.reach[k] = above(memory, reach)
    memory.loss[0] += flat.tiny * (reach + far_z + far_y + far_e)
    places.open_unit[k] = unit
    at, wide = k * places.stride[0], len(memory.center) + K
    _copy(z.now, r, wide, z.open, at, 1.0)
    _copy(y.now, r, wide, y.open, at, 1.0)
    _copy(e.now, r, wide, e.open, at, 1.0)
    _copy(memory.q.now, r, K, memory.q.open, at, 1.0)
    places.opened[layer + 1] = k + 1


@kernel_part
def above(memory, value):
    """At least a value, also when it is rounded to a number of rows."""
    return value * (1.0 + memory.rounding[0]) + memory.loss[0]


@kernel_part
def _value_lines(memory, form, k, r, low, high):
    """Lines of open unit k, and how far its p is from that at the middle; returns how far z is."""
    mid, off = form.mid[r], form.mid_off[r]
    p = max(mid, 0.0)
    relu_lines(form.lines, k, low, high)
    form.lines[3, k], form.lines[4, k] = mid, p
    reach = max(max(high, 0.0) - p, p - max(low, 0.0), 0.0) + off
    form.reach[len(memory.center) + k] = above(memory, reach)
    return max(high - mid, mid - low, 0.0) + off


@kernel_part
def _bulk(memory, form, k, r, far):
    """What a coefficient 1 of p can be off by: its row, its lines and what is above those."""
    size = form.size[r] + far + form.peak[0, k] + 4 * abs(form.mid[r])
    off = form.off[r] + 2 * form.mid_off[r] + memory.rounding[0] * size
    form.bulk[k] = above(memory, off)


@kernel_part
def _difference_bulk(memory, k, r, far_z, far_e, q_off):
    """What a coefficient 1 of q can be off by."""
    z, e, rounding = memory.z, memory.e, memory.rounding[0]
    lines, mid_z, mid_e = e.lines, abs(z.mid[r]), abs(e.mid[r])
    of_e, of_z = max(abs(lines[0, k]), abs(lines[2, k])), max(abs(lines[1, k]), abs(lines[3, k]))
    by_e = e.off[r] + e.mid_off[r] + rounding * (e.size[r] + far_e + 2 * mid_e)
    by_z = z.off[r] + z.mid_off[r] + rounding * (z.size[r] + far_z + 2 * mid_z)
    size = max(e.peak[0, k], e.peak[1, k])
    e.bulk[k] = above(memory, of_e * by_e + of_z * by_z + q_off + rounding * size)


@kernel_part
def _line(flat, memory, i, opened, k, el, eu, mids):
    """What is above the lines of open unit k at every corner, and its lines of the difference."""
    z, y, e, ends, corners = memory.z, memory.y, memory.e, memory.ends, memory.places.corners[0]
    units, far = len(z.bulk), ends.e_corners
    high, low, at = i * corners, (opened + i) * corners, (len(memory.center) + k) * corners
    over, also, wide = ends.z_corners, ends.y_corners, width(ends.z_corners)
    _sums(memory, high, corners)
    _sums(memory, low, corners)
    of_z = _rest(z, k, at, over, high, low, corners)
    of_y = _rest(y, k, at, also, high, low, corners)
    mid_z, mid_e = spread(0.0, over), spread(0.0, over)
    for c in range(0, corners, wide):
        z_here = 0.5 * (lanes(over, high + c) - lanes(over, low + c))
        mid_z += z_here
        mid_e += 0.5 * (lanes(far, high + c) - lanes(far, low + c))
    few = memory.places.few[0]
    for i in range(few):
        c = corner_of(i, few, corners)
        value = 0.5 * (over[high + c] - over[low + c])
        z.value[i * units + k] = value
        z.middle[(len(memory.center) + k) * few + i] = max(value, 0.0) - max(mids[0], 0.0)
    if flat.joined != 0:
        shift = z.lines[0, k] * z.lines[3, k] - z.lines[4, k]
        join_rest(z, at, shift, corners)
        return joined_lines(z, y, e, k, at, far, high, low, el, eu, mids, (of_z, of_y), corners)
    middle, means = (np.sum(mid_z) / corners, np.sum(mid_e) / corners), (of_z, of_y)
    return difference_lines(
        z, y, e, k, at, far, high, low, el, eu, middle, mids, means, corners
    )  # fmt: skip


@kernel_part
def corner_of(i, few, corners):
    """One of all corners: of each two along the first input one, in turns."""
    if few == corners:
        return i
    return 2 * i + ((i ^ (i >> 1) ^ (i >> 2) ^ (i >> 3)) & 1)


@kernel_part
def _rest(form, k, at, over, high, low, corners):
    """What relu is above its line at corners; returns the mean, before the middle is taken off."""
    steep, rise = float(form.lines[0, k]), float(form.lines[1, k])
    shift = steep * form.lines[3, k] - form.lines[4, k]
    mean = relu_rest(form.rest, at, steep, rise, shift, over, high, low, corners)
    form.peak[0, k] = peak(form.rest, at, corners)
    return mean


@kernel_part
def _sums(memory, at, corners):
    """Where z + e says more of y at corners, in the mean, than its own bounds do, take that."""
    ends, rounding = memory.ends, memory.rounding[0]
    y, z, e, wide = ends.y_corners, ends.z_corners, ends.e_corners, width(ends.y_corners)
    own, sums = spread(0.0, y), spread(0.0, y)
    for c in range(at, at + corners, wide):
        own += lanes(y, c)
        sums += lanes(z, c) + lanes(e, c)
    if np.sum(own) <= np.sum(sums):
        return
    more, loss = spread(rounding, y), spread(memory.loss[0], y)
    for c in range(at, at + corners, wide):
        total = lanes(z, c) + lanes(e, c)
        keep(y, c, wide, total + (abs(total) * more + loss))


@kernel_part
def _keep(memory, layer, unit, r, factor):
    """Keep the rows of a unit that is put in, times its slope."""
    z, y, e = memory.z, memory.y, memory.e
    places, K = memory.places, memory.places.opened[layer]
    f, at, rest = places.kept[layer + 1], places.kept_row[layer + 1], places.kept_rest[layer + 1]
    wide = len(memory.center) + K
    places.kept_unit[f] = unit
    _keep_row(memory, z, r, wide, f, at, factor)
    _keep_row(memory, y, r, wide, f, at, factor)
    _keep_row(memory, e, r, wide, f, at, factor)
    _copy(memory.q.now, r, K, memory.q.kept, rest, factor)
    places.kept_row[layer + 1], places.kept_rest[layer + 1] = at + wide, rest + K
    places.kept[layer + 1] = f + 1


@kernel_part
def _keep_row(memory, form, r, wide, f, at, factor):
    off = form.off[r] + memory.rounding[0] * form.size[r]
    form.kept_off[f] = above(memory, factor * off)
    _copy(form.now, r, wide, form.kept, at, factor)


@kernel_part
def _copy(rows, r, long, out, at, factor):
    wide, times = width(rows), spread(factor, rows)
    for j in range(0, long, wide):
        some = min(long - j, wide)
        keep(out, at + j, some, times * lanes(rows, r * long + j, some))
