"""Bounds of a node's units under everything that is known there, compiled.

`child` bounds units on the box alone. Here they are bounded on the part of the node where its known
rows (decided signs, sides of a polytope) are >= 0 and, for one goal group, where the group reaches
``cut``: elsewhere the goal is below what is asked and nothing more need be shown. Multiples of
these rows are added to a unit's row and tuned by descent, as for a goal (bounds on outputs as
constraints on units: Kotha et al. 2023; bound tightening under the objective's cut-off is old in
mixed-integer programming).

The descent is a fixed number of steps from nothing, so a replay takes the same ones and no
multipliers need be stored. An end that is given up after a few of them is given up there too.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import (
    EPS,
    adam,
    backward,
    forward_again,
    line_above,
    part,
    row_again,
    tangent,
)

#: Steps of descent for each end of a unit, and the step at which one that is out of reach is given
#: up: tapes name their pair by their version.
STEPS, GLANCE = 6, 4

#: Multiplications that the tightening of one node may take: some seconds.
MOST = 2e10


@part
def tighten(node, ball, d, m, kept, first, last, cut, upto, steps, glance, stop, work):  # type: ignore[no-untyped-def]
    """Tighten the bounds of a node's open units in place: (how many changed, how many were tried).

    Changed is -1 where no point is left. Goal rows ``first`` to ``last`` are taken to be at least
    ``cut``; none where the two are equal. Only the first ``upto`` units are tried, and fewer where
    the byte ``stop`` is set meanwhile; ``steps`` and ``glance`` are those of a tape's version.
    """
    T, tl, tu = node.rows, node.low, node.high
    slope, size = work.best_a, work.size
    lo, hi = node.lo, node.hi
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    rows = kept + last - first
    reach = work.rank
    for r in range(rows):
        t = m + r if r < kept else m + first + r
        reach[r] = 0.0
        for k in range(d):
            reach[r] += abs(T[t, k]) * (hi[k] - lo[k])
        for k in range(m):
            reach[r] += abs(T[t, d + k]) * tu[k]
    for j in range(m):
        slope[j] = tangent(0.0, 1.0, tl[j], tu[j])
    changed = 0
    for j in range(min(upto, m)):
        if stop[0]:
            return changed, j
        if tl[j] >= 0.0 or tu[j] <= 0.0:
            continue
        top = _end(node, ball, d, m, kept, rows, first, cut, j, 1.0, steps, glance, work)
        if top < tu[j]:
            tu[j] = top
            node.steep[j], node.rise[j] = line_above(tl[j], tu[j])
            changed += 1
        if tu[j] > 0.0:
            top = _end(node, ball, d, m, kept, rows, first, cut, j, -1.0, steps, glance, work)
            if -top > tl[j]:
                tl[j] = -top
                changed += 1
        if tl[j] > tu[j]:
            return -1, j + 1
        slope[j] = tangent(0.0, 1.0, tl[j], tu[j])
        node.steep[j], node.rise[j] = line_above(tl[j], tu[j])
    return changed, min(upto, m)


@part
def _end(node, ball, d, m, kept, rows, first, cut, unit, sign, steps, glance, work):  # type: ignore[no-untyped-def]
    """Upper bound of sign times a unit's row under the known rows; never above what is known."""
    lo, hi, T, tc, tl, tu = node.lo, node.hi, node.rows, node.const, node.low, node.high
    terr, tmag = node.err, node.mag
    v, lam, x, z, y, size = work.v, work.lam, work.x, work.z, work.y, work.size
    m1, m2, slope, beta, reach = work.m1, work.m2, work.best_a, work.best_b, work.rank
    best = tu[unit] if sign > 0.0 else -tl[unit]
    reached, start, least = best, np.inf, np.inf
    alpha = reach[rows:]
    for j in range(m):
        alpha[j] = slope[j]
    for r in range(rows + m):
        m1[r], m2[r] = 0.0, 0.0
    for r in range(rows):
        beta[r] = 0.0
    p1, p2, rate = 1.0, 1.0, 0.3
    for step in range(steps + 1):
        for k in range(d + m):
            v[k] = sign * T[unit, k] if k < d + unit else 0.0
        const = sign * tc[unit] + terr[unit] + tmag[unit]
        for r in range(rows):
            w = beta[r]
            if w > 0.0:
                t = m + r if r < kept else m + first + r
                for k in range(d + m):
                    v[k] += w * T[t, k]
                const += w * tc[t] + w * (terr[t] + tmag[t])
                if r >= kept:
                    const -= w * cut - 8.0 * EPS * abs(w * cut)
        value = backward(v, const, node, alpha, ball, size, m, m, work, x)
        best, least = min(best, value), min(least, value)
        start = value if step == 0 else start
        if step == steps or best <= 0.0:
            break
        if step == glance and start - least < 0.5 * (least - reached):
            break  # at its pace the descent does not come down to what is known
        forward_again(x, node, lam, alpha, m, z, y)
        p1 *= 0.9
        p2 *= 0.98
        scale = np.sqrt(1.0 - p2) / (1.0 - p1) * rate
        swing = 0.0
        for k in range(d):
            swing += abs(v[k]) * (hi[k] - lo[k])
        for q in range(m):
            if tl[q] < 0.0 < tu[q]:
                swing -= abs(lam[q]) * tu[q] * tl[q] / (tu[q] - tl[q])
        moved = 0
        for r in range(rows):
            t = m + r if r < kept else m + first + r
            g = row_again(T[t], tc[t], x, y, m) - (cut if r >= kept else 0.0)
            pace = 0.5 * scale * swing / reach[r] if reach[r] > 0.0 else 0.0
            new = max(beta[r] - adam(m1, m2, r, g, pace), 0.0)
            moved += 1 if new != beta[r] else 0
            beta[r] = new
        for j in range(m):
            g = lam[j] * z[j]
            g = g if max(lam[j], tl[j]) < 0.0 else 0.0
            new = min(max(alpha[j] - adam(m1, m2, rows + j, g, scale), 0.0), 1.0)
            moved += 1 if new != alpha[j] else 0
            alpha[j] = new
        if moved == 0:
            break
        rate *= 0.95
    return best
