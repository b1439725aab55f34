"""Linear bounds on the difference over a box, in terms of the units that are open there.

A unit that keeps its sign in both networks over a box is linear in what it reads. With all of those
put in, every pre-activation z and every difference e (see `pair`) is affine in the inputs, the
values p = relu(z) and the differences q = relu(z + e) - relu(z) of the open units below it:

    z = A (1, x, p),        e = B (1, x, p) + C q .

Small boxes have few open units, so these rows are short, and backward bounds (see `linear`, whose
lines for p and q are used) run over them instead of over whole layers. A closed unit stays closed
in every part of a box; what a part has to know of the box around it is which units those are.

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import TINY, gamma
from relunorm.compiled.jit import allocating, part
from relunorm.difference.pair import Pair

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

OFF, OPEN, ON = 0, 1, 2


class Flat(NamedTuple):
    """Both networks in arrays: maps by target and source, one after the other.

    Attributes:
        start: (layers + 2,), the first row of every map among all of them.
        below: (layers,), slopes on the left of 0.
        target, source, offset: (blocks,), which map reads which layer (0 is the input), and where.
        W, V, D: the numbers of all blocks, row by row.
        b, shift: (rows,).
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
    shift: Array
    rounding: float
    tiny: float


def flatten(pair: Pair) -> Flat:
    """Two paired networks in arrays."""
    blocks = [(k, s) for k, affine in enumerate(pair.maps) for s in affine.W]
    numbers = [[getattr(pair.maps[k], name)[s].ravel() for k, s in blocks] for name in "WVD"]
    lengths = [len(block) for block in numbers[0]]
    none = np.empty(0)
    return Flat(
        np.cumsum([0, *(affine.size for affine in pair.maps)]),
        np.array(pair.below, dtype=np.float64),
        np.array([k for k, _ in blocks], dtype=np.intp),
        np.array([s for _, s in blocks], dtype=np.intp),
        np.cumsum([0, *lengths[:-1]]),
        *(np.concatenate([none, *blocks]) for blocks in numbers),
        np.concatenate([affine.b for affine in pair.maps]),
        np.concatenate([affine.shift for affine in pair.maps]),
        gamma(pair.operations * (len(pair.maps) + 2) + 4),
        TINY,
    )


@part
def relu_lines(low, high):
    """The slope of the line above relu and its height at 0."""
    if low >= 0.0:
        return 1.0, 0.0
    if high <= 0.0:
        return 0.0, 0.0
    steep = high / (high - low)
    return steep, -steep * low


@part
def difference_lines(zl, zu, el, eu, yl, yu, lines, k):
    """Lines above and below q = relu(z + e) - relu(z), the better ones at the middle.

    Row k of ``lines``: steep, rise and flat of relu(z), then g, k and constant of the line above q
    and of the line below it.
    """
    z_steep, z_rise = relu_lines(zl, zu)
    y_steep, y_rise = relu_lines(yl, yu)
    z_flat = z_steep if zl >= 0.0 or zu <= 0.0 else (1.0 if zu > -zl else 0.0)
    lines[k, 0], lines[k, 1], lines[k, 2] = z_steep, z_rise, z_flat
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
        lines[k, 3 + 3 * side], lines[k, 4 + 3 * side] = best_g, best_k
        lines[k, 5 + 3 * side] = best_c


@part
def backward(A, B, size, level, before, lines, sizes, OZ, OE, d, seen, with_q):
    """Replace p and q in rows ``A (1, x, p) + B q`` from the last layer down, in place.

    Args:
        size: (rows,), sizes that were summed so far.
        level: layers below the rows.
        before: (layers + 1,), open units before each.
        lines, sizes: per open unit, see `difference_lines`; sizes of p, q, z and e.
        OZ, OE: rows of z and e of the open units, layer by layer.
        seen: (rows, 2 open units), gets the coefficients of p and of q.
    """
    rows = len(A)
    for m in range(level - 1, -1, -1):
        k0, k1 = before[m], before[m + 1]
        count, cols = k1 - k0, 1 + d + k0
        if count == 0:
            continue
        CZ, CE = np.empty((rows, count)), np.empty((rows, count))
        for r in range(rows):
            value = 0.0
            total = 0.0
            for i in range(count):
                k = k0 + i
                a = A[r, 1 + d + k]
                slope = a * (lines[k, 0] if a > 0.0 else lines[k, 2])
                if a > 0.0:
                    value += a * lines[k, 1]
                total += abs(a) * (sizes[k, 0] + lines[k, 1])
                if with_q:
                    b = B[r, k]
                    at = 3 if b > 0.0 else 6
                    g = b * lines[k, at]
                    slope += b * lines[k, at + 1]
                    value += b * lines[k, at + 2]
                    total += abs(b) * (sizes[k, 1] + abs(lines[k, at + 2]))
                    total += abs(b * lines[k, at + 1]) * sizes[k, 2] + abs(g) * sizes[k, 3]
                    CE[r, i] = g
                    seen[r, 1, k] = b
                total += abs(slope) * sizes[k, 2]
                CZ[r, i] = slope
                seen[r, 0, k] = a
            A[r, 0] += value
            size[r] += total
        at = k0 * (1 + d) + _pairs(before, m)
        block = OZ[at : at + count * cols].reshape(count, cols)
        more = np.dot(CZ, block)
        for r in range(rows):
            for j in range(cols):
                A[r, j] += more[r, j]
        if with_q:
            at = k0 * (1 + d) + 2 * _pairs(before, m)
            block = OE[at : at + count * (cols + k0)].reshape(count, cols + k0)
            more = np.dot(CE, block)
            for r in range(rows):
                for j in range(cols):
                    A[r, j] += more[r, j]
                for j in range(k0):
                    B[r, j] += more[r, cols + j]


@part
def _pairs(before, m):
    """Open units of layers below m, each times those before its layer."""
    total = 0
    for i in range(m):
        total += (before[i + 1] - before[i]) * before[i]
    return total


@part
def ends_of(A, size, center, half, far, rounding, tiny, found):
    """The largest values of rows over a box."""
    for r in range(len(A)):
        value, total = A[r, 0], abs(A[r, 0]) + size[r]
        for j in range(len(center)):
            c = A[r, 1 + j]
            value += c * center[j] + abs(c) * half[j]
            total += abs(c) * far[j]
        value = np.nextafter(value + (rounding * total + tiny), np.inf)
        found[r] = value if value == value else np.inf


@part
def bound_box(flat, lo, hi, signs, upper, score, FZ, FE, FT, OZ, OE, lines, sizes):
    """Bound one box; ``signs`` of all units become those on the box."""
    d, layers = len(lo), len(flat.below)
    center, half, far = np.empty(d), np.empty(d), np.empty(d)
    for j in range(d):
        center[j] = lo[j] / 2 + hi[j] / 2
        half[j] = np.nextafter(hi[j] / 2 - lo[j] / 2, np.inf)
        far[j] = max(abs(lo[j]), abs(hi[j]))
    before = np.zeros(layers + 1, dtype=np.intp)  # open units
    kept = np.zeros(layers + 1, dtype=np.intp)  # units whose rows are put in
    kept_z, kept_e = np.zeros(layers + 1, dtype=np.intp), np.zeros(layers + 1, dtype=np.intp)
    total = flat.start[layers]
    kept_unit, open_unit = np.empty(total, dtype=np.intp), np.empty(total, dtype=np.intp)
    span = np.empty(total)  # z, for the score
    for layer in range(layers + 1):
        last = layer == layers
        first, end = flat.start[layer], flat.start[layer + 1]
        width = end - first
        K = before[layer]
        cols = 1 + d + K
        # rows that anything reads
        active = np.empty(width, dtype=np.intp)
        count = 0
        for i in range(width):
            if last or signs[first + i] != 0 or flat.below[layer] != 0.0:
                active[count] = i
                count += 1
        Z, E = np.zeros((count, cols)), np.zeros((count, cols + K))
        size_z, size_e = np.empty(count), np.empty(count)
        for r in range(count):
            i = first + active[r]
            Z[r, 0], E[r, 0] = flat.b[i], flat.shift[i]
            size_z[r], size_e[r] = abs(flat.b[i]), abs(flat.shift[i])
        for block in range(len(flat.target)):
            if flat.target[block] != layer:
                continue
            at = flat.offset[block]
            if flat.source[block] == 0:
                for r in range(count):
                    row = at + active[r] * d
                    for j in range(d):
                        w, s = flat.W[row + j], flat.D[row + j]
                        Z[r, 1 + j] += w
                        E[r, 1 + j] += s
                        size_z[r] += abs(w) * far[j]
                        size_e[r] += abs(s) * far[j]
                continue
            m = flat.source[block] - 1
            base = flat.start[m]
            wide = flat.start[m + 1] - base
            bend = 1.0 - flat.below[m]
            for k in range(before[m], before[m + 1]):
                for r in range(count):
                    place = at + active[r] * wide + open_unit[k] - base
                    w, v, s = flat.W[place] * bend, flat.V[place] * bend, flat.D[place] * bend
                    Z[r, 1 + d + k] += w
                    E[r, 1 + d + k] += s
                    E[r, cols + k] += v
                    size_z[r] += abs(w) * sizes[k, 0]
                    size_e[r] += abs(s) * sizes[k, 0] + abs(v) * sizes[k, 1]
            f0, f1 = kept[m], kept[m + 1]
            if f1 == f0:
                continue
            W, V, D = (
                np.empty((count, f1 - f0)),
                np.empty((count, f1 - f0)),
                np.empty((count, f1 - f0)),
            )
            for r in range(count):
                row = at + active[r] * wide - base
                for i in range(f1 - f0):
                    place = row + kept_unit[f0 + i]
                    w, v, s = flat.W[place], flat.V[place], flat.D[place]
                    W[r, i], V[r, i], D[r, i] = w, v, s
                    size_z[r] += abs(w) * FT[f0 + i, 0]
                    size_e[r] += abs(s) * FT[f0 + i, 0] + abs(v) * FT[f0 + i, 1]
            there = 1 + d + before[m]
            rows_z = FZ[kept_z[m] : kept_z[m + 1]].reshape(f1 - f0, there)
            rows_e = FE[kept_e[m] : kept_e[m + 1]].reshape(f1 - f0, there + before[m])
            if not last:
                more = np.dot(W, rows_z)
                for r in range(count):
                    for j in range(there):
                        Z[r, j] += more[r, j]
            more, other = np.dot(V, rows_e), np.dot(D, rows_z)
            for r in range(count):
                for j in range(there):
                    E[r, j] += more[r, j] + other[r, j]
                for j in range(before[m]):
                    E[r, cols + j] += more[r, there + j]
        if last:
            rows = 2 * count
            A, B, size = np.empty((rows, cols)), np.empty((rows, K)), np.empty(rows)
            for r in range(count):
                size[r] = size[count + r] = 4 * size_e[r]
                for j in range(cols):
                    A[r, j], A[count + r, j] = E[r, j], -E[r, j]
                for j in range(K):
                    B[r, j], B[count + r, j] = E[r, cols + j], -E[r, cols + j]
            seen = np.empty((rows, 2, K))
            backward(A, B, size, layer, before, lines, sizes, OZ, OE, d, seen, True)
            ends_of(A, size, center, half, far, flat.rounding, flat.tiny, upper)
            _scores(A, seen, upper, before, lines, span, OZ, half, layers, score)
            return
        some = np.empty(count, dtype=np.intp)
        opened = 0
        for r in range(count):
            if signs[first + active[r]] == 1:
                some[opened] = r
                opened += 1
        ends = np.empty((3, 2 * opened))
        seen = np.empty((4 * opened, 2, K))
        A, B, size = np.empty((2 * opened, cols)), np.empty((0, 0)), np.empty(2 * opened)
        for i in range(opened):
            r = some[i]
            size[i] = size[opened + i] = 4 * size_z[r]
            for j in range(cols):
                A[i, j], A[opened + i, j] = Z[r, j], -Z[r, j]
        backward(A, B, size, layer, before, lines, sizes, OZ, OE, d, seen, False)
        ends_of(A, size, center, half, far, flat.rounding, flat.tiny, ends[0])
        A, B, size = np.empty((4 * opened, cols)), np.empty((4 * opened, K)), np.empty(4 * opened)
        for i in range(opened):
            r = some[i]
            for turn in range(4):
                at, sign = turn * opened + i, 1.0 if turn % 2 == 0 else -1.0
                size[at] = 4 * size_e[r] + (4 * size_z[r] if turn > 1 else 0.0)
                for j in range(cols):
                    A[at, j] = sign * (E[r, j] + Z[r, j] if turn > 1 else E[r, j])
                for j in range(K):
                    B[at, j] = sign * E[r, cols + j]
        backward(A, B, size, layer, before, lines, sizes, OZ, OE, d, seen, True)
        ends_of(A[: 2 * opened], size, center, half, far, flat.rounding, flat.tiny, ends[1])
        ends_of(
            A[2 * opened :], size[2 * opened :], center, half, far, flat.rounding, flat.tiny, ends[2]
        )
        # what is open still, and the rows that it and those that are put in have
        k, f = K, kept[layer]
        at_z, at_e = kept_z[layer], kept_e[layer]
        to_z, to_e = K * (1 + d) + _pairs(before, layer), K * (1 + d) + 2 * _pairs(before, layer)
        below = flat.below[layer]
        i = 0
        for r in range(count):
            unit = first + active[r]
            if signs[unit] == 1:
                zu, zl = ends[0, i], -ends[0, opened + i]
                eu, el = ends[1, i], -ends[1, opened + i]
                yu, yl = ends[2, i], -ends[2, opened + i]
                i += 1
                yl = max(yl, np.nextafter(zl + el, -np.inf))
                yu = min(yu, np.nextafter(zu + eu, np.inf))
                el = max(el, np.nextafter(yl - zu, -np.inf))
                eu = min(eu, np.nextafter(yu - zl, np.inf))
                if zl >= 0.0 and yl >= 0.0:
                    signs[unit] = 2
                elif zu <= 0.0 and yu <= 0.0:
                    signs[unit] = 0
                else:
                    difference_lines(zl, zu, el, eu, yl, yu, lines, k)
                    sizes[k, 0] = max(zu, 0.0)
                    sizes[k, 1] = max(abs(el), abs(eu))
                    sizes[k, 2] = 4 * size_z[r] + max(abs(zl), abs(zu))
                    sizes[k, 3] = 4 * size_e[r] + sizes[k, 1]
                    span[k] = zu - zl
                    open_unit[k] = unit
                    for j in range(cols):
                        OZ[to_z + j] = Z[r, j]
                    for j in range(cols + K):
                        OE[to_e + j] = E[r, j]
                    to_z += cols
                    to_e += cols + K
                    k += 1
            factor = 1.0 if signs[unit] == 2 else below
            if factor != 0.0:
                kept_unit[f] = unit
                FT[f, 0], FT[f, 1] = factor * size_z[r], factor * size_e[r]
                for j in range(cols):
                    FZ[at_z + j] = factor * Z[r, j]
                for j in range(cols + K):
                    FE[at_e + j] = factor * E[r, j]
                at_z += cols
                at_e += cols + K
                f += 1
        before[layer + 1], kept[layer + 1] = k, f
        kept_z[layer + 1], kept_e[layer + 1] = at_z, at_e


@part
def _scores(A, seen, upper, before, lines, span, OZ, half, layers, score):
    """How much each input has to do with what the worst row loses."""
    d, K = len(half), before[layers]
    worst = np.argmax(upper)
    slope = np.zeros((K, d))  # of z, open units on their chords
    for j in range(d):
        score[j] = 0.0
    for m in range(layers):
        k0 = before[m]
        cols, at = 1 + d + k0, k0 * (1 + d) + _pairs(before, m)
        for k in range(k0, before[m + 1]):
            row = at + (k - k0) * cols
            for j in range(d):
                slope[k, j] = OZ[row + 1 + j]
            for i in range(k0):
                a = OZ[row + 1 + d + i] * lines[i, 0]
                if a != 0.0:
                    for j in range(d):
                        slope[k, j] += a * slope[i, j]
            loss = abs(seen[worst, 0, k]) * lines[k, 1]
            b = abs(seen[worst, 1, k])
            loss += b * abs(lines[k, 5] - lines[k, 8])
            if span[k] > 0.0:
                for j in range(d):
                    score[j] += loss * abs(slope[k, j]) * half[j] / span[k]


@allocating
def bound_boxes(flat, lo, hi, signs, upper, score):
    """Bound boxes ``lo <= x <= hi``, (boxes, inputs), one after the other.

    Args:
        signs: (boxes, units), OFF, OPEN or ON: what is known; becomes what is found.
        upper: (boxes, 2 outputs), gets bounds of g - f, then of f - g.
        score: (boxes, inputs), gets what cutting across each input promises.
    """
    d, n = lo.shape[1], signs.shape[1]
    FZ, FE = np.empty(n * (1 + d + n)), np.empty(n * (1 + d + 2 * n))
    OZ, OE = np.empty(n * (1 + d + n)), np.empty(n * (1 + d + 2 * n))
    FT, lines, sizes = np.empty((n, 2)), np.empty((n, 9)), np.empty((n, 4))
    for k in range(len(lo)):
        bound_box(
            flat, lo[k], hi[k], signs[k], upper[k], score[k], FZ, FE, FT, OZ, OE, lines, sizes
        )
