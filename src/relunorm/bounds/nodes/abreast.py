"""The backward bound of eight rows of a node at once, and its relaxed network at eight points.

What `relunorm.bounds.nodes.kernel` does for one row, with a last axis of LANES on every array: a
row of the form is read once for all of them, and what is done in all lanes is an instruction or
two, however few units there are. Sums are added up in the order they are written in, in every lane
by itself, so a lane's numbers do not depend on what is bounded beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.nodes.kernel import TINY, gamma, part, support
from relunorm.compiled.groups import group
from relunorm.compiled.operations import eight
from relunorm.matrix import Array

LANES = 8


@group
class Lanes(NamedTuple):
    """Rows side by side: see `backward` and `forward` of one row; all have a last axis of LANES."""

    v: Array
    lam: Array
    a: Array
    x: Array
    z: Array
    y: Array
    alpha: Array
    beta: Array  # of known rows
    m1: Array
    m2: Array
    const: Array  # from here on one number a lane
    value: Array
    start: Array
    least: Array
    best: Array
    reach: Array  # how far known rows go
    unit: NDArray[np.int64]
    some: NDArray[np.int64]  # units that hand something on, in any lane


def new_lanes(d: int, n: int, rows: int) -> Lanes:
    """Room for bounds over d coordinates and n units under so many known rows."""
    sizes = d + n, n, n, d, n, n, n, rows, n + rows, n + rows
    parts: list[Any] = [np.zeros((size, LANES)) for size in sizes]
    parts += [*(np.zeros(LANES) for _ in range(5)), np.zeros(rows)]
    parts += [np.zeros(LANES, np.int64), np.zeros(n, np.int64)]
    return Lanes(*parts)


@part
def backward_abreast(on, ball, size, n, read, lanes, work):  # type: ignore[no-untyped-def]
    """Upper bounds of v . (x, y) + const in every lane: see `backward`.

    ``lanes.value`` gets the bounds, ``v`` the linear forms in x, ``x`` where they are largest.
    """
    M, c, err, mag = on.rows, on.const, on.err, on.mag
    steep, rise, reads, some = on.steep, on.rise, on.reads, lanes.some
    v, lam, a, alpha = lanes.v, lanes.lam, lanes.a, lanes.alpha
    d = len(on.lo)
    rounding = gamma(n + d)
    const = eight(lanes.const)
    error = eight(0.0)
    i = read - 1
    while i >= 0:
        count, last = 0, -1
        while i > last:
            shift = rise[i]
            w = eight(v[d + i])
            lam[i] = w
            up = np.maximum(w, 0.0)
            below = eight(alpha[i]) if shift != 0.0 else eight(1.0)
            handed = up * steep[i] + (w - up) * below
            a[i] = handed
            const += up * shift + handed * c[i]
            error += up * (rounding * shift) + abs(handed) * (err[i] + mag[i])
            some[count] = i
            count += 1 if np.any(handed != 0.0) else 0
            last = max(last, int(reads[i]))
            i -= 1
        whole = count - count % 4
        for g in range(0, whole, 4):
            _add_four(v, M, a, d + i + 1, some[g], some[g + 1], some[g + 2], some[g + 3])
        for g in range(whole, count):
            row, w = M[some[g]], eight(a[some[g]])
            for h in range(d + i + 1):
                v[h] += w * row[h]
    value, swing = _support(on, ball, size, lanes, work)
    error = error * (1.0 + 1e-9) + rounding * (abs(const) + swing) + TINY
    lanes.value[:] = const + value + error


@part
def _add_four(v, M, a, width, i, j, k, m):  # type: ignore[no-untyped-def]
    """Add the rows of four units, times what is handed on to them, to the first rows of v."""
    row_i, row_j, row_k, row_m = M[i], M[j], M[k], M[m]
    of_i, of_j, of_k, of_m = eight(a[i]), eight(a[j]), eight(a[k]), eight(a[m])
    for h in range(width):
        first = (eight(v[h]) + of_i * row_i[h]) + of_j * row_j[h]
        v[h] = (first + of_k * row_k[h]) + of_m * row_m[h]


@part
def _support(on, ball, size, lanes, work):  # type: ignore[no-untyped-def]
    """The largest values of the linear forms over the box and the ball, and sizes of their sums."""
    lo, hi, v, x = on.lo, on.hi, lanes.v, lanes.x
    d = len(lo)
    value, swing = eight(0.0), eight(0.0)
    for k in range(d):
        w = eight(v[k])
        at = np.where(w > 0.0, hi[k], lo[k])
        x[k] = at
        value += w * at
        swing += abs(w) * size[k]
    if len(ball) > 0:
        for r in range(LANES):
            for k in range(d):
                work.v[k] = v[k, r]
            lanes.value[r] = support(work.v, lo, hi, ball, work.x)
            for k in range(d):
                x[k, r] = work.x[k]
        value = eight(lanes.value)
    return value, swing


@part
def forward_abreast(on, n, lanes):  # type: ignore[no-untyped-def]
    """Pre-activations z and values y of the relaxed network at x, by the lines that were chosen."""
    M, c, steep, rise, reads = on.rows, on.const, on.steep, on.rise, on.reads
    x, y, lam, alpha = lanes.x, lanes.y, lanes.lam, lanes.alpha
    d = len(on.lo)
    for j in range(n):
        z = products(eight(c[j]), M[j], 0, x, d)
        z = products(z, M[j], d, y, int(reads[j]) + 1)
        lanes.z[j] = z
        if rise[j] == 0.0:
            y[j] = z
        else:
            w = eight(lam[j])
            line = np.where(w > 0.0, steep[j] * z + rise[j], eight(alpha[j]) * z)
            y[j] = np.where(w == 0.0, np.maximum(z, 0.0), line)


@part
def products(total, row, start, x, n):  # type: ignore[no-untyped-def]
    """total + row[start : start + n] . x in every lane, by eights."""
    whole = n - n % 8
    for k in range(0, whole, 8):
        i = start + k
        first = row[i] * eight(x[k]) + row[i + 1] * eight(x[k + 1])
        second = row[i + 2] * eight(x[k + 2]) + row[i + 3] * eight(x[k + 3])
        third = row[i + 4] * eight(x[k + 4]) + row[i + 5] * eight(x[k + 5])
        fourth = row[i + 6] * eight(x[k + 6]) + row[i + 7] * eight(x[k + 7])
        total += (first + second) + (third + fourth)
    for k in range(whole, n):
        total += row[start + k] * eight(x[k])
    return total


@part
def adam_abreast(m1, m2, i, slope, rate):  # type: ignore[no-untyped-def]
    """The steps down of numbers whose bounds have these slopes: see `adam`."""
    first, second = eight(m1[i]), eight(m2[i])
    first += 0.1 * (slope - first)
    second += 0.02 * (slope * slope - second)
    m1[i], m2[i] = first, second
    moves = second > 0.0
    return np.where(moves, rate * first / np.sqrt(np.where(moves, second, 1.0)), 0.0)
