"""Both ends of the rows of a few units on a node, side by side, tuned by descent; compiled.

Multiples beta >= 0 of rows that are known to be >= 0 may be added (`tighten`). The descent is a
fixed number of steps from nothing, so a replay takes the same ones and no numbers need be stored.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.abreast import (
    adam_abreast,
    backward_abreast,
    forward_abreast,
    products,
)
from relunorm.bounds.nodes.kernel import EPS, part
from relunorm.compiled.operations import eight


@part
def ends(on, ball, size, d, n, read, known, cut, count, slope, steps, glance, memory):  # type: ignore[no-untyped-def]
    """Upper bounds of the rows of units ``lanes.unit``, and of minus them: ``lanes.best``.

    Two for each of ``count`` units, never above what is known of them. Of n units the first
    ``read`` are read.

    Args:
        size: the largest absolute values of the coordinates.
        known: how many known rows follow the n units, how many rows may be added in all, and the
            first of the goals among those that do; goals are taken to be at least ``cut``.
        slope: where the slopes below the units begin.
        glance: the step at which ends that are all out of reach are given up.
    """
    lanes = memory.lanes
    T, tc, tl, tu = on.rows, on.const, on.low, on.high
    v, lam, x, z, y = lanes.v, lanes.lam, lanes.x, lanes.z, lanes.y
    m1, m2, alpha, beta = lanes.m1, lanes.m2, lanes.alpha, lanes.beta
    value, best, start, least = lanes.value, lanes.best, lanes.start, lanes.least
    kept, rows, first = known
    for j in range(read):
        alpha[j] = eight(slope[j])
    for i in range(rows):
        beta[i] = eight(0.0)
    for i in range(rows + read):
        m1[i] = m2[i] = eight(0.0)
    best[:] = eight(0.0)
    least[:] = eight(np.inf)
    for i in range(count):
        best[2 * i], best[2 * i + 1] = tu[lanes.unit[i]], -tl[lanes.unit[i]]
    p1, p2, rate = 1.0, 1.0, 0.3
    for step in range(steps + 1):
        _load(on, d, n, read, known, cut, count, lanes)
        backward_abreast(on, ball, size, n, read, lanes, memory.work)
        going = 0
        for r in range(2 * count):
            i = lanes.unit[r // 2]
            given = tu[i] if r % 2 == 0 else -tl[i]
            start[r] = value[r] if step == 0 else start[r]
            best[r], least[r] = min(best[r], value[r]), min(least[r], value[r])
            # at its pace the descent does not come down to what is known
            hopeless = step == glance and start[r] - least[r] < 0.5 * (least[r] - given)
            going += 0 if best[r] <= 0.0 or hopeless else 1
        if going == 0 or step == steps:
            break
        forward_abreast(on, read, lanes)
        p1 *= 0.9
        p2 *= 0.98
        scale = np.sqrt(1.0 - p2) / (1.0 - p1) * rate
        swing = eight(0.0)
        if rows > 0:
            for k in range(d):
                swing += abs(eight(v[k])) * (on.hi[k] - on.lo[k])
            for j in range(read):
                if tl[j] < 0.0 and tu[j] > 0.0:
                    swing += abs(eight(lam[j])) * (tu[j] * -tl[j] / (tu[j] - tl[j]))
        for i in range(rows):
            t = n + i if i < kept else n + first + i
            g = products(eight(tc[t] - (cut if i >= kept else 0.0)), T[t], 0, x, d)
            g = products(g, T[t], d, y, n)
            pace = 0.5 * scale / lanes.reach[i] if lanes.reach[i] > 0.0 else 0.0
            move = adam_abreast(m1, m2, i, g, swing * pace)
            beta[i] = np.maximum(eight(beta[i]) - move, 0.0)
        for j in range(read):
            w = eight(lam[j])
            g = np.where(w < 0.0, w * eight(z[j]), 0.0) if tl[j] < 0.0 else eight(0.0)
            move = adam_abreast(m1, m2, rows + j, g, eight(scale))
            alpha[j] = np.minimum(np.maximum(eight(alpha[j]) - move, 0.0), 1.0)
        rate *= 0.95


@part
def _load(on, d, n, read, known, cut, count, lanes):  # type: ignore[no-untyped-def]
    """What is bounded: rows of units and minus them, with multiples of the known rows."""
    T, tc, terr, tmag = on.rows, on.const, on.err, on.mag
    v, const, beta = lanes.v, lanes.const, lanes.beta
    kept, rows, first = known
    for k in range(d + read):
        v[k] = eight(0.0)
    const[:] = eight(0.0)
    for i in range(count):
        unit = lanes.unit[i]
        row, up, down = T[unit], 2 * i, 2 * i + 1
        for k in range(d + min(unit, read)):
            v[k, up], v[k, down] = row[k], -row[k]
        const[up] = tc[unit] + (terr[unit] + tmag[unit])
        const[down] = -tc[unit] + (terr[unit] + tmag[unit])
    for i in range(rows):
        w = eight(beta[i])
        if not np.any(w > 0.0):
            continue
        t = n + i if i < kept else n + first + i
        row = T[t]
        for k in range(d + n):
            v[k] += w * row[k]
        const[:] += w * tc[t] + w * (terr[t] + tmag[t])
        if i >= kept:
            const[:] -= w * cut - 8.0 * EPS * abs(w * cut)
