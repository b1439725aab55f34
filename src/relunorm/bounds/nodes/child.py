"""A part of a node made out of the node, compiled: what becomes stable there is folded away.

`child` narrows the box or decides a unit, bounds the units again and folds those that have become
stable; each row carries what rounding has hidden in it. `make_root` makes the first node.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.abreast import LANES
from relunorm.bounds.nodes.ends import ends
from relunorm.bounds.nodes.kernel import (
    EPS,
    TINY,
    compiled,
    gamma,
    last_read,
    line_above,
    outside,
    part,
    support,
    tangent,
)
from relunorm.bounds.nodes.node import parts, tune

#: Kinds of cut.
ON_INPUT, ON_UNIT = 0, 1

#: See `child`: how well a row must be known to be folded.
FOLDED_ERROR = 1e-11


@part
def _reduce(parent, at, n, d, scratch, child, t):  # type: ignore[no-untyped-def]
    """A parent's row over the first n units in terms of the child's open units: its row t.

    Returns constant and error; the error grows by what the additions can round.
    """
    row, const, error = parent.rows[at], parent.const[at], parent.err[at]
    state, place, folded, fc = scratch.state, scratch.place, scratch.folded, scratch.const
    ferr, fweight, size, out = scratch.err, scratch.weight, child.size, child.rows[t]
    for k in range(len(out)):
        out[k] = 0.0
    total = abs(const)
    for k in range(d):
        out[k] = row[k]
        total += abs(row[k]) * size[k]
    count = 0
    for j in range(n):
        w = row[d + j]
        if w == 0.0:
            continue
        if state[j] == 0:
            out[d + place[j]] += w
            total += abs(w) * size[d + place[j]]
        elif state[j] == 1:
            for k in range(d + place[j]):
                out[k] += w * folded[j, k]
            const += w * fc[j]
            error += abs(w) * ferr[j]
            total += abs(w) * fweight[j]
            count += 1
    if count > 0:
        error = (error + 2.0 * (count + 2.0) * EPS * total) * (1.0 + 4.0 * (count + 2.0) * EPS)
    return const, error


@part
def _magnitude(row, const, width, size):  # type: ignore[no-untyped-def]
    total = abs(const)
    for k in range(width):
        total += abs(row[k]) * size[k]
    return total


@part
def _range(child, t, const, d, read, ball, v, x):  # type: ignore[no-untyped-def]
    """Range of row t over the box (and ball) and the units it reads, not rounded outward."""
    lo, hi, size, row = child.lo, child.hi, child.size, child.rows[t]
    low, high = const, const
    if len(ball) == 0:
        for k in range(d):
            w = row[k]
            if w > 0.0:
                low += w * lo[k]
                high += w * hi[k]
            else:
                low += w * hi[k]
                high += w * lo[k]
    else:
        for k in range(d):
            v[k] = row[k]
        high += support(v, lo, hi, ball, x)
        for k in range(d):
            v[k] = -row[k]
        low -= support(v, lo, hi, ball, x)
    for k in range(read):
        w = row[d + k]
        if w > 0.0:
            high += w * size[d + k]
        else:
            low += w * size[d + k]
    return low, high


@part
def _settle(lo, hi, k, at_zero, low, high, decided):  # type: ignore[no-untyped-def]
    """Fix coordinate k, the value of a step that is 0 or 1 at 0, where low to high say which it is.

    ``decided`` is 1 or -1 where the sign was chosen: the two parts then meet at 0, and the one with
    the value there has it. False if no value is left.
    """
    if decided > 0 or low > 0.0 or (low == 0.0 and at_zero == 1.0):
        lo[k] = 1.0
    if decided < 0 or high < 0.0 or (high == 0.0 and at_zero == 0.0):
        hi[k] = 0.0
    return lo[k] <= hi[k]


@part
def child(parent, ball, d, n, known, goals, kind, index, value, side, share, memory):  # type: ignore[no-untyped-def]
    """Build a part of a node in ``memory.child``; its (open units, known rows), or (-1, 0).

    ``kind`` ON_INPUT: coordinate ``index`` is cut at ``value`` and the part takes ``side``;
    ON_UNIT: open unit ``index`` is active (side 1) or dead (side 0). ON_INPUT with index < 0
    changes nothing: the node is bounded anew. ``memory.refresh`` says for every unit whether it
    gets a backward bound (>= 0) and after how many steps of descent. An active unit whose row is
    known to ``share`` of its size is folded, others stay as they are. The value of a step unit, a
    coordinate, is narrowed as its sign becomes known.
    """
    plo, phi, zl, zu, units = parent.lo, parent.hi, parent.low, parent.high, parent.units
    out, scratch, refresh, lanes = memory.child, memory.scratch, memory.refresh, memory.lanes
    lo, hi, T, tc, terr, tmag, tl, tu, steep, rise, reads, source, size = out
    state, place, folded, fc, ferr, fweight, rule, jump, at_zero = scratch
    v, x = memory.work.v, memory.work.x
    for k in range(d):
        lo[k], hi[k] = plo[k], phi[k]
    if kind == ON_INPUT and index >= 0:
        if side == 0:
            hi[index] = value
        else:
            lo[index] = value
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    if len(ball) > 0:
        for k in range(len(ball) - 2):
            x[k] = min(max(ball[k], lo[k]), hi[k])
        if outside(x, ball) > 1e-9 * ball[-2] * (1.0 + ball[-2]):
            return -1, 0  # the point nearest to the centre is outside the ball
    m, i = 0, 0
    while i < n:
        # units that read none of each other: their rows follow those of the open units so far
        begin, count, read, steps = i, 0, 0, 0
        more = True
        while more and i < n and i - begin < LANES // 2 and parent.reads[i] < begin:
            t = m + i - begin
            const, error = _reduce(parent, i, i, d, scratch, out, t)
            reads[t] = last_read(T[t], d, m)
            weight = _magnitude(T[t], const, d + int(reads[t]) + 1, size)
            spread = gamma(d + m) * weight + TINY
            low, high = _range(out, t, const, d, int(reads[t]) + 1, ball, v, x)
            low = max(low - error - 2.0 * spread, zl[i])
            high = min(high + error + 2.0 * spread, zu[i])
            value_at = jump[int(units[i])]
            if value_at >= 0:
                more = False  # what comes next may read the value of this step
                if lo[value_at] > 0.0:
                    low = max(low, 0.0)
                if hi[value_at] < 1.0:
                    high = min(high, 0.0)
            if kind == ON_UNIT and i == index:
                if side == 1:
                    low = max(low, 0.0)
                else:
                    high = min(high, 0.0)
            if low > high:
                return -1, 0
            tc[t], terr[t], tmag[t], tl[t], tu[t] = const, error, spread, low, high
            fweight[i] = weight
            if low < 0.0 and high > 0.0 and refresh[i] >= 0 and reads[t] >= 0.0:
                lanes.unit[count] = t
                count, steps = count + 1, refresh[i]
                read = max(read, int(reads[t]) + 1)
            i += 1
        if count > 0:
            none, unasked = (0, 0, 0), 0.0
            ends(out, ball, size, d, m, read, none, unasked, count, rule, steps, -1, memory)
            for j in range(count):
                t = lanes.unit[j]
                tl[t], tu[t] = max(tl[t], -lanes.best[2 * j + 1]), min(tu[t], lanes.best[2 * j])
                if tl[t] > tu[t]:
                    return -1, 0
        after = m
        for j in range(begin, i):
            t = after + j - begin
            low, high, name = tl[t], tu[t], int(units[j])
            const, error = tc[t], terr[t]
            if jump[name] >= 0:
                chosen = np.int64(2 * side - 1) if kind == ON_UNIT and j == index else 0
                if not _settle(lo, hi, jump[name], at_zero[name], low, high, chosen):
                    return -1, 0
                if lo[jump[name]] < hi[jump[name]]:  # it touches 0 only: open until it is decided
                    low, high = min(low, -TINY), max(high, TINY)
            # an active row that carries much rounding is not folded: it would multiply from row to
            # row
            if high > 0.0 and (low < 0.0 or error > share * high):
                if m < t:
                    reads[m], tmag[m] = reads[t], tmag[t]
                    for k in range(len(T[m])):
                        T[m, k] = T[t, k]
                state[j], place[j], source[m] = 0, m, j
                tc[m], terr[m], tl[m], tu[m] = const, error, low, high
                rule[m] = tangent(0.0, 1.0, low, high)
                steep[m], rise[m] = line_above(low, high)
                size[d + m] = high
                m += 1
            elif high <= 0.0:
                state[j] = -1
            else:
                state[j], place[j] = 1, after
                for k in range(d + after):
                    folded[j, k] = T[t, k]
                fc[j], ferr[j] = const, error
    kept = 0
    for r in range(known + (1 if kind == ON_UNIT else 0)):
        t = m + kept
        at, many = (n + r, n) if r < known else (index, index)
        const, error = _reduce(parent, at, many, d, scratch, out, t)
        if r >= known and side == 0:
            const = -const
            for k in range(d + m):
                T[t, k] = -T[t, k]
        spread = gamma(d + m) * _magnitude(T[t], const, d + m, size) + TINY
        low, high = _range(out, t, const, d, m, ball, v, x)
        if high + error + 2.0 * spread < 0.0:
            return -1, 0
        if low - error - 2.0 * spread >= 0.0:
            continue  # holds everywhere on the node
        tc[t], terr[t], tmag[t], source[t] = const, error, spread, n + r
        kept += 1
    for g in range(goals):
        t, at = m + kept + g, n + known + g
        const, error = _reduce(parent, at, n, d, scratch, out, t)
        tc[t], terr[t] = const, error
        tmag[t] = gamma(d + m) * _magnitude(T[t], const, d + m, size) + TINY
    return m, kept


@part
def place_child(arena, at, d, m, kept, goals, disjuncts, parent, n, name, memory):  # type: ignore[no-untyped-def]
    """Copy a child from scratch to the arena, with the parent's alpha, beta and tau."""
    lo, hi, T, tc, terr, tmag, tl, tu, steep, rise, reads, source, _ = memory.child
    node = parts(memory.target, arena, at, m, kept, d, goals, disjuncts)
    for k in range(d):
        node.lo[k], node.hi[k] = lo[k], hi[k]
    rows = m + kept + goals
    matrix, const, err, mag = node.rows, node.const, node.err, node.mag
    for r in range(rows):
        for k in range(d + m):
            matrix[r, k] = T[r, k]
        const[r], err[r], mag[r] = tc[r], terr[r], tmag[r]
    for j in range(m):
        s = source[j]
        node.low[j], node.high[j], node.units[j] = tl[j], tu[j], parent.units[s]
        node.steep[j], node.rise[j], node.reads[j] = steep[j], rise[j], reads[j]
        for q in range(disjuncts):
            node.alpha[q, j] = parent.alpha[q, s]
    known = len(parent.names)
    for r in range(kept):
        s = source[m + r] - n
        node.names[r] = parent.names[s] if s < known else name
        for q in range(disjuncts):
            node.beta[q, r] = parent.beta[q, s] if s < known else 0.0
    for g in range(goals):
        node.tau[g] = parent.tau[g]
    for q in range(disjuncts):
        node.bound[q] = parent.bound[q]


@compiled
def make_root(whole, ball, d, n, known, firsts, cut, steps, memory, numbers):  # type: ignore[no-untyped-def]
    """The first node of a search in ``numbers``: (open units, known rows), (-1, 0) if it is empty.

    ``whole`` is the node in which every unit is open; ``memory.refresh`` is that of `child`, and
    ``cut`` and ``steps`` are those of the goals.
    """
    groups = len(firsts) - 1
    goals, start = firsts[groups], 0
    parent = parts(memory.node, whole, start, n, known, d, goals, groups)
    kind, index, side = ON_INPUT, -1, 0
    m, kept = child(parent, ball, d, n, known, goals, kind, index, 0.0, side, FOLDED_ERROR, memory)
    if m < 0:
        return m, kept
    place_child(numbers, start, d, m, kept, goals, groups, parent, n, 0.0, memory)
    node = parts(memory.half, numbers, start, m, kept, d, goals, groups)
    for q in range(groups):
        for j in range(m):
            node.alpha[q, j] = tangent(0.0, 1.0, node.low[j], node.high[j])
        first, last, patient = firsts[q], firsts[q + 1], True
        node.bound[q] = tune(
            node, ball, d, m, kept, first, last, q, cut, steps, patient, memory.work
        )
    return m, kept
