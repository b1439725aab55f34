"""Which units of a layer are open on a box, and what is kept of them for the layers above."""

from __future__ import annotations

import numpy as np

from relunorm.bounds.pairs.condensed.ends import difference_ends, foresee, value_ends
from relunorm.bounds.pairs.condensed.lines import (
    difference_lines,
    down,
    peak,
    relu_lines,
    relu_rest,
    up,
)
from relunorm.compiled.jit import kernel_part
from relunorm.compiled.operations import eight, keep

#: What is known of a unit in both networks.
OFF, OPEN, ON = 0, 1, 2

#: Where the ranges of e are at most this share of those of z, those of y = z + e are their sums.
ALIKE = 0.05


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
    value_ends(flat, memory, memory.z, layer, opened, ends.z, ends.z_corners)
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
    value_ends(flat, memory, memory.y, layer, opened, ends.y, ends.y_corners)
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
            signs[unit] = _sign(memory, layer, unit, r, i, opened)
            i += 1
        factor = 1.0 if signs[unit] == ON else flat.below[layer]
        if factor != 0.0:
            _keep(memory, layer, unit, r, factor)


@kernel_part
def _sign(memory, layer, unit, r, i, opened):
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
    z, y, e = memory.z, memory.y, memory.e
    places, k = memory.places, memory.places.opened[layer + 1]
    relu_lines(z.lines, k, zl, zu)
    relu_lines(y.lines, k, yl, yu)
    _line(memory, i, opened, k, el, eu)
    z.top[k], y.top[k], e.top[k] = max(zu, 0.0), max(yu, 0.0), max(abs(el), abs(eu))
    z.bulk[k] = z.top[k] + z.peak[0, k] + 4 * z.size[r] + max(abs(zl), abs(zu))
    y.bulk[k] = y.top[k] + y.peak[0, k] + 4 * y.size[r] + max(abs(yl), abs(yu))
    most, lines = max(e.peak[0, k], e.peak[1, k]), e.lines
    of_e, of_z = max(abs(lines[0, k]), abs(lines[2, k])), max(abs(lines[1, k]), abs(lines[3, k]))
    e.bulk[k] = e.top[k] + most + of_e * (4 * e.size[r] + e.top[k]) + of_z * z.bulk[k]
    places.open_unit[k] = unit
    K, at = places.opened[layer], k * places.stride[0]
    wide = 1 + len(memory.center) + K
    _copy(z.now, r, wide, z.open, at, 1.0)
    _copy(y.now, r, wide, y.open, at, 1.0)
    _copy(e.now, r, wide, e.open, at, 1.0)
    _copy(memory.q.now, r, K, memory.q.open, at, 1.0)
    places.opened[layer + 1] = k + 1
    return OPEN


@kernel_part
def _line(memory, i, opened, k, el, eu):
    """What is above the lines of open unit k at every corner, and its lines of the difference."""
    z, y, e, ends, corners = memory.z, memory.y, memory.e, memory.ends, memory.places.corners[0]
    units = len(z.top)
    high, low, at = i * corners, (opened + i) * corners, (1 + len(memory.center) + k) * corners
    over, also = ends.z_corners, ends.y_corners
    _sums(ends, high, corners)
    _sums(ends, low, corners)
    of_z = relu_rest(z.rest, at, z.lines[0, k], z.lines[1, k], over, high, low, corners)
    of_y = relu_rest(y.rest, at, y.lines[0, k], y.lines[1, k], also, high, low, corners)
    z.peak[0, k], y.peak[0, k] = peak(z.rest, at, corners), peak(y.rest, at, corners)
    mid_z, mid_e, far = eight(0.0), eight(0.0), ends.e_corners
    for c in range(0, corners, 8):
        z_here = 0.5 * (eight(over, high + c) - eight(over, low + c))
        keep(z.middle, at + c, 8, np.maximum(z_here, 0.0))
        for lane in range(8):
            z.value[(c + lane) * units + k] = 0.5 * (over[high + c + lane] - over[low + c + lane])
        mid_z += z_here
        mid_e += 0.5 * (eight(far, high + c) - eight(far, low + c))
    middle, means = (np.sum(mid_z) / corners, np.sum(mid_e) / corners), (of_z, of_y)
    difference_lines(
        z, y, e, k, at, ends.e_corners, high, low, el, eu, middle, means, corners
    )  # fmt: skip


@kernel_part
def _sums(ends, at, corners):
    """Where z + e says more of y at corners, in the mean, than its own bounds do, take that."""
    y, z, e = ends.y_corners, ends.z_corners, ends.e_corners
    own, sums = eight(0.0), eight(0.0)
    for c in range(at, at + corners, 8):
        own += eight(y, c)
        sums += eight(z, c) + eight(e, c)
    if np.sum(own) <= np.sum(sums):
        return
    for c in range(at, at + corners):
        y[c] = up(z[c] + e[c])


@kernel_part
def _keep(memory, layer, unit, r, factor):
    """Keep the rows of a unit that is put in, times its slope."""
    z, y, e = memory.z, memory.y, memory.e
    places, K = memory.places, memory.places.opened[layer]
    f, at, rest = places.kept[layer + 1], places.kept_row[layer + 1], places.kept_rest[layer + 1]
    wide = 1 + len(memory.center) + K
    places.kept_unit[f] = unit
    z.kept_size[f], y.kept_size[f] = factor * z.size[r], factor * y.size[r]
    e.kept_size[f] = factor * e.size[r]
    _copy(z.now, r, wide, z.kept, at, factor)
    _copy(y.now, r, wide, y.kept, at, factor)
    _copy(e.now, r, wide, e.kept, at, factor)
    _copy(memory.q.now, r, K, memory.q.kept, rest, factor)
    places.kept_row[layer + 1], places.kept_rest[layer + 1] = at + wide, rest + K
    places.kept[layer + 1] = f + 1


@kernel_part
def _copy(rows, r, wide, out, at, factor):
    for j in range(wide):
        out[at + j] = factor * rows[r * wide + j]
