"""Linear bounds on the difference over a box, in terms of the units that are open there.

A unit that keeps its sign in both networks over a box is linear in what it reads. With all of those
put in, every pre-activation z and every difference e (see `pair`) is affine in the inputs, the
values p = relu(z) and the differences q = relu(z + e) - relu(z) of the open units below it:

    z = A (1, x, p),        e = B (1, x, p) + C q .

The same goes for y = z + e in terms of relu(y). Small boxes have few open units, so these rows are
short, and backward bounds (see `linear`, whose lines are used) run over them instead of over whole
layers. A closed unit stays closed in every part of a box; what a part has to know of the box around
it is which units those are.

What is lost over a large box is lost in z and y, deep in the networks. So the slopes of their lines
below relu are tuned for every bound: a row that takes such a line is largest at some corner of the
box, and there the line should have slope 1 where z > 0 and 0 elsewhere. A few steps in that
direction follow the gradient of the bound. (Optimised slopes: Xu et al., alpha-CROWN, ICLR 2021.)

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, gamma
from relunorm.compiled.jit import allocating, loose_part, part
from relunorm.difference.pair import Pair, pair_up
from relunorm.network import Network

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

#: What is known of a unit in both networks.
OFF, OPEN, ON = 0, 1, 2

#: Steps that tune the slopes of a bound, and how far the first goes. Where more than this share of
#: all units is open, no slopes help.
STEPS, FAR, HOPELESS = 2, 0.7, 0.7


class Flat(NamedTuple):
    """Both networks in arrays: maps by target and source, one after the other.

    Attributes:
        start: (layers + 2,), the first row of every map among all of them.
        below: (layers,), slopes on the left of 0.
        target, source, offset: (blocks,), which map reads which layer (0 is the input), and where.
        W, V, D: the numbers of all blocks, row by row.
        b, c, shift: (rows,), c - b is the last.
        rounding: what a sum of sizes 1 can be off by.
        tiny: more than underflow can lose.
    """

    start: NDArray[np.intp]
    below: Array
    target: NDArray[np.intp]
    source: NDArray[np.intp]
    offset: NDArray[np.intp]
    W: Array
    V: Array
    D: Array
    b: Array
    c: Array
    shift: Array
    rounding: float
    tiny: float


def flatten(pair: Pair) -> Flat:
    """Two paired networks in arrays."""
    blocks = [(k, s) for k, affine in enumerate(pair.maps) for s in affine.W]
    lengths = [pair.maps[k].W[s].size for k, s in blocks]
    W, V, D = (
        np.concatenate([np.empty(0), *(getattr(pair.maps[k], name)[s].ravel() for k, s in blocks)])
        for name in "WVD"
    )
    return Flat(
        np.cumsum([0, *(affine.size for affine in pair.maps)]),
        np.array(pair.below, dtype=np.float64),
        np.array([k for k, _ in blocks], dtype=np.intp),
        np.array([s for _, s in blocks], dtype=np.intp),
        np.cumsum([0, *lengths[:-1]]),
        W,
        V,
        D,
        np.concatenate([affine.b for affine in pair.maps]),
        np.concatenate([affine.c for affine in pair.maps]),
        np.concatenate([affine.shift for affine in pair.maps]),
        gamma(pair.operations * (len(pair.maps) + 2) + 4),
        TINY,
    )


@part
def relu_lines(low, high):
    """The line above relu and its height at 0, and the slope of the line below."""
    if low >= 0.0:
        return 1.0, 0.0, 1.0
    if high <= 0.0:
        return 0.0, 0.0, 0.0
    steep = high / (high - low)
    return steep, -steep * low, 1.0 if high > -low else 0.0


@part
def difference_lines(zl, zu, el, eu, yl, yu, of_q, k):
    """Lines above and below q = relu(z + e) - relu(z), the better ones at the middle.

    Column k of ``of_q``: coefficients of e, of z and the constant, above and then below.
    """
    z_steep, z_rise, _ = relu_lines(zl, zu)
    y_steep, y_rise, _ = relu_lines(yl, yu)
    wide = eu - el if eu > el else 1.0
    e, z = el / 2 + eu / 2, zl / 2 + zu / 2
    for side in range(2):
        sign = 1.0 if side == 0 else -1.0
        first, last = sign * max(sign * el, 0.0), sign * max(sign * eu, 0.0)
        g = (last - first) / wide if eu > el else 0.0
        # both ends, so that the line holds where they were rounded apart
        c = sign * max(sign * (first - g * el), sign * (last - g * eu))
        best_g, best_k, best_c, best = g, 0.0, c, sign * (g * e + c)
        for tilt in range(2):
            if side == 0:
                under = z_steep if zl >= 0.0 or zu <= 0.0 else float(tilt)
                ours, theirs, lift = y_steep, under, y_rise
            else:
                under = y_steep if yl >= 0.0 or yu <= 0.0 else float(tilt)
                ours, theirs, lift = under, z_steep, -z_rise
            joint = sign * (ours * (e + z) + lift - theirs * z)
            if joint < best:
                best_g, best_k, best_c, best = ours, ours - theirs, lift, joint
        of_q[3 * side, k], of_q[3 * side + 1, k], of_q[3 * side + 2, k] = best_g, best_k, best_c


@loose_part
def _through_p(a, steep, rise, flat, size_p, size_z, slope):
    """Coefficients of p become coefficients of z; what is added, and the sizes."""
    value, size = 0.0, 0.0
    for k in range(len(a)):
        up = max(a[k], 0.0)
        slope[k] = up * steep[k] + (a[k] - up) * flat[k]
        value += up * rise[k]
        size += abs(a[k]) * (size_p[k] + rise[k]) + abs(slope[k]) * size_z[k]
    return value, size


@loose_part
def _through_q(b, of_q, size_q, size_z, size_e, slope, g):
    """Coefficients of q become coefficients of e and, added, of z."""
    value, size = 0.0, 0.0
    for k in range(len(b)):
        up = max(b[k], 0.0)
        down = b[k] - up
        g[k] = up * of_q[0, k] + down * of_q[3, k]
        more = up * of_q[1, k] + down * of_q[4, k]
        lift = up * of_q[2, k] + down * of_q[5, k]
        slope[k] += more
        value += lift
        size += abs(b[k]) * size_q[k] + abs(lift) + abs(more) * size_z[k] + abs(g[k]) * size_e[k]
    return value, size


@loose_part
def _add(row, more):
    for j in range(len(more)):
        row[j] += more[j]


@loose_part
def _add_sizes(weights, sizes):
    size = 0.0
    for j in range(len(weights)):
        size += abs(weights[j]) * sizes[j]
    return size


@loose_part
def _largest(row, center, half, far):
    """The largest value of a row over a box, and its size."""
    value, size = row[0], abs(row[0])
    for j in range(len(center)):
        c = row[1 + j]
        value += c * center[j] + abs(c) * half[j]
        size += abs(c) * far[j]
    return value, size


@part
def _outward(value, size, flat):
    value = np.nextafter(value + (flat.rounding * size + flat.tiny), np.inf)
    return value if value == value else np.inf


@part
def _place(before, m, d, q):
    """Where the rows of a layer's open units begin: each has 1 + d + (1 + q) numbers before it."""
    at = 0
    for i in range(m):
        at += (before[i + 1] - before[i]) * (1 + d + (1 + q) * before[i])
    return at


@part
def value_ends(
    flat, start, size, level, before, lines, sizes, forms, center, half, far, tilt, steps, found
):
    """Upper bounds of rows ``start (1, x, p)``.

    Args:
        tilt: (rows, open units), slopes below relu; become those of the best of so many ``steps``.
        size: (rows,), sizes of the rows.
        level: how many layers are below them.
        before: (layers + 1,), open units before each layer.
        lines, sizes: of every open unit: steep, rise and flat, and sizes of p and z.
        forms: rows of z of the open units, layer by layer.
    """
    rows, K, d = len(start), before[level], len(center)
    best, seen = tilt.copy(), np.empty((rows, K))
    found[:] = np.inf
    A = np.empty_like(start)
    for step in range(steps + 1):
        A[:] = start
        total = size.copy()
        for m in range(level - 1, -1, -1):
            k0, k1 = before[m], before[m + 1]
            if k0 == k1:
                continue
            cols = 1 + d + k0
            slope = np.empty((rows, k1 - k0))
            for r in range(rows):
                value, more = _through_p(
                    A[r, 1 + d + k0 : 1 + d + k1],
                    lines[0, k0:k1],
                    lines[1, k0:k1],
                    tilt[r, k0:k1],
                    sizes[0, k0:k1],
                    sizes[1, k0:k1],
                    slope[r],
                )
                A[r, 0] += value
                total[r] += more
            at = _place(before, m, d, 0)
            added = np.dot(slope, forms[at : at + (k1 - k0) * cols].reshape(k1 - k0, cols))
            for r in range(rows):
                _add(A[r, :cols], added[r])
        for r in range(rows):
            value, more = _largest(A[r], center, half, far)
            value = _outward(value, more + total[r], flat)
            if value < found[r]:
                found[r] = value
                best[r] = tilt[r]
        if step == steps or K == 0:
            tilt[:] = best
            return
        # the relaxed values where each row is largest
        for r in range(rows):
            seen[r] = A[r, 1 + d :]
            for j in range(d):
                A[r, 1 + j] = center[j] + half[j] if A[r, 1 + j] > 0.0 else center[j] - half[j]
            A[r, 0] = 1.0
        move = FAR / np.sqrt(1.0 + step)
        for m in range(level):
            k0, k1 = before[m], before[m + 1]
            if k0 == k1:
                continue
            cols = 1 + d + k0
            at = _place(before, m, d, 0)
            block = forms[at : at + (k1 - k0) * cols].reshape(k1 - k0, cols)
            z = np.dot(A[:, :cols].copy(), block.T)
            for r in range(rows):
                for i in range(k1 - k0):
                    k = k0 + i
                    if seen[r, k] > 0.0:
                        A[r, 1 + d + k] = lines[0, k] * z[r, i] + lines[1, k]
                        continue
                    A[r, 1 + d + k] = tilt[r, k] * z[r, i]
                    if lines[1, k] > 0.0:
                        goal = 1.0 if z[r, i] > 0.0 else 0.0
                        tilt[r, k] = min(max(tilt[r, k] + move * (goal - tilt[r, k]), 0.0), 1.0)


@part
def difference_ends(
    flat, A, B, size, level, before, of_z, sizes_z, of_q, sizes_q, OZ, OE, center, half, far, found
):
    """Upper bounds of rows ``A (1, x, p) + B q``, in place.

    Returns:
        the coefficients of p and of q that were met: (rows, 2, open units).
    """
    rows, K, d = len(A), before[level], len(center)
    seen = np.empty((rows, 2, K))
    for m in range(level - 1, -1, -1):
        k0, k1 = before[m], before[m + 1]
        if k0 == k1:
            continue
        cols = 1 + d + k0
        slope, g = np.empty((rows, k1 - k0)), np.empty((rows, k1 - k0))
        for r in range(rows):
            value, more = _through_p(
                A[r, 1 + d + k0 : 1 + d + k1],
                of_z[0, k0:k1],
                of_z[1, k0:k1],
                of_z[2, k0:k1],
                sizes_z[0, k0:k1],
                sizes_z[1, k0:k1],
                slope[r],
            )
            other, size_q = _through_q(
                B[r, k0:k1],
                of_q[:, k0:k1],
                sizes_q[0, k0:k1],
                sizes_z[1, k0:k1],
                sizes_q[1, k0:k1],
                slope[r],
                g[r],
            )
            seen[r, 0, k0:k1] = A[r, 1 + d + k0 : 1 + d + k1]
            seen[r, 1, k0:k1] = B[r, k0:k1]
            A[r, 0] += value + other
            size[r] += more + size_q
        at = _place(before, m, d, 0)
        added = np.dot(slope, OZ[at : at + (k1 - k0) * cols].reshape(k1 - k0, cols))
        at = _place(before, m, d, 1)
        more = np.dot(g, OE[at : at + (k1 - k0) * (cols + k0)].reshape(k1 - k0, cols + k0))
        for r in range(rows):
            _add(A[r, :cols], added[r])
            _add(A[r, :cols], more[r, :cols])
            _add(B[r, :k0], more[r, cols:])
    for r in range(rows):
        value, more = _largest(A[r], center, half, far)
        found[r] = _outward(value, more + size[r], flat)
    return seen


@part
def bound_box(flat, lo, hi, signs, upper, score, corner, work):
    """Bound one box; ``signs`` of all units become those on the box."""
    FZ, FY, FE, FT, OZ, OY, OE, of_z, of_y, of_q, sizes_z, sizes_y, sizes_q = work
    d, layers = len(lo), len(flat.below)
    center, half, far = lo / 2 + hi / 2, np.nextafter(hi / 2 - lo / 2, np.inf), np.empty(d)
    for j in range(d):
        far[j] = max(abs(lo[j]), abs(hi[j]))
    before = np.zeros(layers + 1, dtype=np.intp)  # open units
    kept = np.zeros(layers + 1, dtype=np.intp)  # units whose rows are put in
    kept_z, kept_e = np.zeros(layers + 1, dtype=np.intp), np.zeros(layers + 1, dtype=np.intp)
    total = flat.start[layers]
    kept_unit, open_unit = np.empty(total, dtype=np.intp), np.empty(total, dtype=np.intp)
    span = np.empty(total)
    steps = 0 if (signs == OPEN).sum() > HOPELESS * total else STEPS
    for layer in range(layers + 1):
        last = layer == layers
        first = flat.start[layer]
        width = flat.start[layer + 1] - first
        K = before[layer]
        cols = 1 + d + K
        active = np.empty(width, dtype=np.intp)  # rows that anything reads
        count = 0
        for i in range(width):
            if last or signs[first + i] != OFF or flat.below[layer] != 0.0:
                active[count] = i
                count += 1
        Z, Y, E = np.zeros((count, cols)), np.zeros((count, cols)), np.zeros((count, cols + K))
        size = np.empty((3, count))
        for r in range(count):
            i = first + active[r]
            Z[r, 0], E[r, 0], Y[r, 0] = flat.b[i], flat.shift[i], flat.c[i]
            size[0, r], size[1, r], size[2, r] = abs(Z[r, 0]), abs(E[r, 0]), abs(Y[r, 0])
        for block in range(len(flat.target)):
            if flat.target[block] != layer:
                continue
            at = flat.offset[block]
            if flat.source[block] == 0:
                for r in range(count):
                    row = at + active[r] * d
                    _add(Z[r, 1 : 1 + d], flat.W[row : row + d])
                    _add(E[r, 1 : 1 + d], flat.D[row : row + d])
                    _add(Y[r, 1 : 1 + d], flat.V[row : row + d])
                    size[0, r] += _add_sizes(flat.W[row : row + d], far)
                    size[1, r] += _add_sizes(flat.D[row : row + d], far)
                    size[2, r] += _add_sizes(flat.V[row : row + d], far)
                continue
            m = flat.source[block] - 1
            base = flat.start[m]
            wide = flat.start[m + 1] - base
            bend = 1.0 - flat.below[m]
            f0, f1 = kept[m], kept[m + 1]
            W, V = np.empty((count, f1 - f0)), np.empty((count, f1 - f0))
            D = np.empty((count, f1 - f0))
            for r in range(count):
                row = at + active[r] * wide - base
                for k in range(before[m], before[m + 1]):
                    place = row + open_unit[k]
                    w, v, s = flat.W[place] * bend, flat.V[place] * bend, flat.D[place] * bend
                    Z[r, 1 + d + k] += w
                    Y[r, 1 + d + k] += v
                    E[r, 1 + d + k] += s
                    E[r, cols + k] += v
                    size[0, r] += abs(w) * sizes_z[0, k]
                    size[1, r] += abs(s) * sizes_z[0, k] + abs(v) * sizes_q[0, k]
                    size[2, r] += abs(v) * sizes_y[0, k]
                for i in range(f1 - f0):
                    place = row + kept_unit[f0 + i]
                    W[r, i], V[r, i] = flat.W[place], flat.V[place]
                    D[r, i] = flat.D[place]
                size[0, r] += _add_sizes(W[r], FT[0, f0:f1])
                size[1, r] += _add_sizes(D[r], FT[0, f0:f1]) + _add_sizes(V[r], FT[1, f0:f1])
                size[2, r] += _add_sizes(V[r], FT[2, f0:f1])
            if f1 == f0:
                continue
            there = 1 + d + before[m]
            rows_z = FZ[kept_z[m] : kept_z[m + 1]].reshape(f1 - f0, there)
            rows_y = FY[kept_z[m] : kept_z[m + 1]].reshape(f1 - f0, there)
            rows_e = FE[kept_e[m] : kept_e[m + 1]].reshape(f1 - f0, there + before[m])
            if not last:
                more, other = np.dot(W, rows_z), np.dot(V, rows_y)
                for r in range(count):
                    _add(Z[r, :there], more[r])
                    _add(Y[r, :there], other[r])
            more, other = np.dot(V, rows_e), np.dot(D, rows_z)
            for r in range(count):
                _add(E[r, :there], more[r, :there])
                _add(E[r, :there], other[r])
                _add(E[r, cols : cols + before[m]], more[r, there:])
        if last:
            A, B, sums = np.empty((2 * count, cols)), np.empty((2 * count, K)), np.empty(2 * count)
            for r in range(count):
                sums[r] = sums[count + r] = 4 * size[1, r]
                A[r], A[count + r] = E[r, :cols], -E[r, :cols]
                B[r], B[count + r] = E[r, cols:], -E[r, cols:]
            seen = difference_ends(
                flat, A, B, sums, layer, before, of_z, sizes_z, of_q, sizes_q, OZ, OE,
                center, half, far, upper,
            )  # fmt: skip
            worst = np.argmax(upper)
            for j in range(d):
                corner[j] = hi[j] if A[worst, 1 + j] > 0.0 else lo[j]
            _scores(seen, upper, before, of_z, of_q, span, OZ, half, layers, score)
            return
        some = np.empty(count, dtype=np.intp)
        opened = 0
        for r in range(count):
            if signs[first + active[r]] == OPEN:
                some[opened] = r
                opened += 1
        ends = np.empty((3, 2 * opened))
        A, B, sums = np.empty((2 * opened, cols)), np.empty((2 * opened, K)), np.empty(2 * opened)
        for i in range(opened):
            sums[i] = sums[opened + i] = 4 * size[0, some[i]]
            A[i], A[opened + i] = Z[some[i]], -Z[some[i]]
        tilt = np.empty((2 * opened, K))
        for i in range(2 * opened):
            tilt[i] = of_z[2, :K]
        value_ends(
            flat, A, sums, layer, before, of_z, sizes_z, OZ, center, half, far,
            tilt, steps, ends[0],
        )  # fmt: skip
        # what suits z suits its copy, too
        for k in range(K):
            if of_y[0, k] == 0.0 or of_y[0, k] == 1.0:
                tilt[:, k] = of_y[0, k]
            elif of_z[0, k] == 0.0 or of_z[0, k] == 1.0:
                tilt[:, k] = of_y[2, k]
        for i in range(opened):
            sums[i] = sums[opened + i] = 4 * size[2, some[i]]
            A[i], A[opened + i] = Y[some[i]], -Y[some[i]]
        value_ends(
            flat, A, sums, layer, before, of_y, sizes_y, OY, center, half, far, tilt, 0, ends[2]
        )
        for i in range(opened):
            r = some[i]
            sums[i] = sums[opened + i] = 4 * size[1, r]
            A[i], A[opened + i] = E[r, :cols], -E[r, :cols]
            B[i], B[opened + i] = E[r, cols:], -E[r, cols:]
        difference_ends(
            flat, A, B, sums, layer, before, of_z, sizes_z, of_q, sizes_q, OZ, OE,
            center, half, far, ends[1],
        )  # fmt: skip
        # what is open still, and the rows that it and those that are put in have
        k, f = K, kept[layer]
        at_z, at_e = kept_z[layer], kept_e[layer]
        to_z, to_e = _place(before, layer, d, 0), _place(before, layer, d, 1)
        i = 0
        for r in range(count):
            unit = first + active[r]
            if signs[unit] == OPEN:
                zu, zl = ends[0, i], -ends[0, opened + i]
                eu, el = ends[1, i], -ends[1, opened + i]
                yu, yl = ends[2, i], -ends[2, opened + i]
                i += 1
                for _ in range(2):
                    yl = max(yl, np.nextafter(zl + el, -np.inf))
                    yu = min(yu, np.nextafter(zu + eu, np.inf))
                    zl = max(zl, np.nextafter(yl - eu, -np.inf))
                    zu = min(zu, np.nextafter(yu - el, np.inf))
                    el = max(el, np.nextafter(yl - zu, -np.inf))
                    eu = min(eu, np.nextafter(yu - zl, np.inf))
                if zl >= 0.0 and yl >= 0.0:
                    signs[unit] = ON
                elif zu <= 0.0 and yu <= 0.0:
                    signs[unit] = OFF
                else:
                    of_z[0, k], of_z[1, k], of_z[2, k] = relu_lines(zl, zu)
                    of_y[0, k], of_y[1, k], of_y[2, k] = relu_lines(yl, yu)
                    difference_lines(zl, zu, el, eu, yl, yu, of_q, k)
                    sizes_z[0, k], sizes_y[0, k] = max(zu, 0.0), max(yu, 0.0)
                    sizes_q[0, k] = max(abs(el), abs(eu))
                    sizes_z[1, k] = 4 * size[0, r] + max(abs(zl), abs(zu))
                    sizes_y[1, k] = 4 * size[2, r] + max(abs(yl), abs(yu))
                    sizes_q[1, k] = 4 * size[1, r] + sizes_q[0, k]
                    span[k], open_unit[k] = zu - zl, unit
                    OZ[to_z : to_z + cols], OY[to_z : to_z + cols] = Z[r], Y[r]
                    OE[to_e : to_e + cols + K] = E[r]
                    to_z += cols
                    to_e += cols + K
                    k += 1
            factor = 1.0 if signs[unit] == ON else flat.below[layer]
            if factor != 0.0:
                kept_unit[f] = unit
                for j in range(3):
                    FT[j, f] = factor * size[j, r]
                FZ[at_z : at_z + cols], FY[at_z : at_z + cols] = factor * Z[r], factor * Y[r]
                FE[at_e : at_e + cols + K] = factor * E[r]
                at_z += cols
                at_e += cols + K
                f += 1
        before[layer + 1], kept[layer + 1] = k, f
        kept_z[layer + 1], kept_e[layer + 1] = at_z, at_e


@part
def _scores(seen, upper, before, of_z, of_q, span, OZ, half, layers, score):
    """How much each input has to do with what the worst row loses."""
    d = len(half)
    worst = np.argmax(upper)
    slope = np.zeros((before[layers], d))  # of z, open units on their chords
    score[:] = 0.0
    for m in range(layers):
        k0 = before[m]
        for k in range(k0, before[m + 1]):
            row = _place(before, m, d, 0) + (k - k0) * (1 + d + k0)
            slope[k] = OZ[row + 1 : row + 1 + d]
            for i in range(k0):
                a = OZ[row + 1 + d + i] * of_z[0, i]
                if a != 0.0:
                    for j in range(d):
                        slope[k, j] += a * slope[i, j]
            loss = abs(seen[worst, 0, k]) * of_z[1, k]
            loss += abs(seen[worst, 1, k]) * abs(of_q[2, k] - of_q[5, k])
            if span[k] > 0.0:
                for j in range(d):
                    score[j] += loss * abs(slope[k, j]) * half[j] / span[k]


@allocating
def bound_boxes(flat, lo, hi, signs, upper, score, corner):
    """Bound boxes ``lo <= x <= hi``, (boxes, inputs), one after the other.

    Args:
        signs: (boxes, units), OFF, OPEN or ON: what is known; becomes what is found.
        upper: (boxes, 2 outputs), gets bounds of g - f, then of f - g.
        score: (boxes, inputs), gets what cutting across each input promises.
        corner: (boxes, inputs), gets where the largest bound is attained, as far as it is affine.
    """
    d, n = lo.shape[1], signs.shape[1]
    short, long = n * (1 + d + n), n * (1 + d + 2 * n)
    work = (
        np.empty(short), np.empty(short), np.empty(long), np.empty((3, n)),
        np.empty(short), np.empty(short), np.empty(long),
        np.empty((3, n)), np.empty((3, n)), np.empty((6, n)),
        np.empty((2, n)), np.empty((2, n)), np.empty((2, n)),
    )  # fmt: skip
    for k in range(len(lo)):
        bound_box(flat, lo[k], hi[k], signs[k], upper[k], score[k], corner[k], work)


def compile_kernels() -> None:
    """Compile what bounds boxes, or load it where that was done."""
    tiny = Network.from_weights([np.eye(1), np.eye(1)])
    pair = pair_up(tiny, tiny)
    assert pair is not None
    one = np.ones((1, 1))
    signs = np.full((1, 1), OPEN, dtype=np.int8)
    bound_boxes(flatten(pair), -one, one, signs, np.empty((1, 2)), np.empty((1, 1)), one.copy())
