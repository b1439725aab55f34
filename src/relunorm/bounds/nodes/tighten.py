"""Bounds of a node's units under everything that is known there, compiled.

`child` bounds units on the box alone. Here they are bounded on the part of the node where its known
rows (decided signs, sides of a polytope) are >= 0 and, for one goal group, where the group reaches
``cut``: elsewhere the goal is below what is asked and nothing more need be shown. Multiples of
these rows are added to a unit's row and tuned by descent, as for a goal (bounds on outputs as
constraints on units: Kotha et al. 2023; bound tightening under the objective's cut-off is old in
mixed-integer programming).
"""

from __future__ import annotations

from relunorm.bounds.nodes.abreast import LANES
from relunorm.bounds.nodes.ends import ends
from relunorm.bounds.nodes.kernel import line_above, part, tangent

#: Steps of descent for each end of a unit, and the step at which ends that are out of reach are
#: given up. With either the version of tapes counts up.
STEPS, GLANCE = 6, 4

#: Multiplications that the tightening of one node may take: some seconds.
MOST = 2e10


@part
def tighten(node, ball, d, m, kept, first, last, cut, upto, stop, memory):  # type: ignore[no-untyped-def]
    """Tighten the bounds of a node's open units in place: (how many changed, how many were tried).

    Changed is -1 where no point is left. Goal rows ``first`` to ``last`` are taken to be at least
    ``cut``; none where the two are equal. Only the first ``upto`` units are tried, and fewer where
    the byte ``stop`` is set meanwhile.
    """
    T, tl, tu = node.rows, node.low, node.high
    work, lanes, lo, hi = memory.work, memory.lanes, node.lo, node.hi
    slope, size = work.best_a, work.size
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    rows = kept + last - first
    reach = lanes.reach
    for r in range(rows):
        t = m + r if r < kept else m + first + r
        reach[r] = 0.0
        for k in range(d):
            reach[r] += abs(T[t, k]) * (hi[k] - lo[k])
        for k in range(m):
            reach[r] += abs(T[t, d + k]) * tu[k]
    for j in range(m):
        slope[j] = tangent(0.0, 1.0, tl[j], tu[j])
    changed, j, upto = 0, 0, min(upto, m)
    while j < upto:
        if stop[0]:
            return changed, j
        count = 0
        while j < upto and count < LANES // 2:
            lanes.unit[count] = j
            count += 1 if tl[j] < 0.0 and tu[j] > 0.0 else 0
            j += 1
        if count == 0:
            break
        known = kept, rows, first
        ends(node, ball, size, d, m, m, known, cut, count, slope, STEPS, GLANCE, memory)
        for i in range(count):
            unit, top, bottom = lanes.unit[i], lanes.best[2 * i], -lanes.best[2 * i + 1]
            changed += (1 if top < tu[unit] else 0) + (1 if bottom > tl[unit] else 0)
            tl[unit], tu[unit] = max(tl[unit], bottom), min(tu[unit], top)
            if tl[unit] > tu[unit]:
                return -1, unit + 1
            slope[unit] = tangent(0.0, 1.0, tl[unit], tu[unit])
            node.steep[unit], node.rise[unit] = line_above(tl[unit], tu[unit])
    return changed, upto
