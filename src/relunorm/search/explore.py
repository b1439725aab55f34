"""Branch and bound, compiled: explore one subtree depth first for a number of nodes.

A node is a box, the signs of some units, and the network as it looks there: a triangular form
(`relunorm.bounds.kernel`) from which every unit that cannot change sign on the node is folded away.
Children inherit the form and fold further, so nodes get smaller as the search goes down, and a node
of thirty open units costs microseconds whatever the size of the network it came from.

Nodes lie on a stack in one array (`arena`). `explore` takes the top node, cuts it in two, bounds
both halves and puts back what stays open, until the stack is empty, the budget is used up, or a
point reaches the goal.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.kernel import EPS, backward, compiled, evaluate, forward, gamma, row_at
from relunorm.regions.simplex import EMPTY, FOUND, maximize

#: Integers kept for a node beside its numbers: units, known rows, offset, depth, record.
N, K, AT, DEPTH, RECORD = 0, 1, 2, 3, 4

#: Kinds of cut.
ON_INPUT, ON_UNIT = 0, 1

#: Trials after which what was learned of a cut is believed.
RELIABLE = 4

#: Why `explore` came back.
EMPTY_STACK, OUT_OF_NODES, REACHED, FULL = 0, 1, 2, 3


@compiled
def node_size(n, known, d, goals, disjuncts):  # type: ignore[no-untyped-def]
    """How many numbers a node takes in the arena."""
    rows = n + known + goals
    return 2 * d + rows * (d + n) + 3 * rows + 3 * n + known + disjuncts * (n + known + 1) + goals


@compiled
def parts(arena, at, n, known, d, goals, disjuncts):  # type: ignore[no-untyped-def]
    """Views of a node: box, M, c, err, mag, zl, zu, ids, names, alpha, beta, tau, bound."""
    rows = n + known + goals
    lo = arena[at : at + d]
    at += d
    hi = arena[at : at + d]
    at += d
    M = arena[at : at + rows * (d + n)].reshape((rows, d + n))
    at += rows * (d + n)
    c = arena[at : at + rows]
    at += rows
    err = arena[at : at + rows]
    at += rows
    mag = arena[at : at + rows]
    at += rows
    zl = arena[at : at + n]
    at += n
    zu = arena[at : at + n]
    at += n
    ids = arena[at : at + n]
    at += n
    names = arena[at : at + known]
    at += known
    alpha = arena[at : at + disjuncts * n].reshape((disjuncts, n))
    at += disjuncts * n
    beta = arena[at : at + disjuncts * known].reshape((disjuncts, known))
    at += disjuncts * known
    tau = arena[at : at + goals]
    at += goals
    bound = arena[at : at + disjuncts]
    return lo, hi, M, c, err, mag, zl, zu, ids, names, alpha, beta, tau, bound


@compiled
def _reduce(row, const, error, n, d, state, place, folded, fc, ferr, fweight, size, out):  # type: ignore[no-untyped-def]
    """A parent's row over the first n units in terms of the child's open units.

    ``state``: 0 open, 1 active, -1 dead; ``place`` the new number of an open unit, for an active
    one how many open units come before it; ``folded`` the rows of active units in the child's
    terms. Returns constant and error; the error grows by what the additions can round.
    """
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


@compiled
def _magnitude(row, const, width, size):  # type: ignore[no-untyped-def]
    total = abs(const)
    for k in range(width):
        total += abs(row[k]) * size[k]
    return total


@compiled
def _interval(row, const, d, m, lo, hi, top):  # type: ignore[no-untyped-def]
    """Range of a row over the box and 0 <= y_k <= top_k."""
    low, high = const, const
    for k in range(d):
        w = row[k]
        if w > 0.0:
            low += w * lo[k]
            high += w * hi[k]
        else:
            low += w * hi[k]
            high += w * lo[k]
    for k in range(m):
        w = row[d + k]
        if w > 0.0:
            high += w * top[k]
        else:
            low += w * top[k]
    return low, high


@compiled
def child(parent, d, n, known, goals, disjuncts, kind, index, value, side, refresh, scratch, out):  # type: ignore[no-untyped-def]
    """Build a child of a node in ``scratch``; returns (open units, known rows), or (-1, 0) if empty.

    ``kind`` ON_INPUT: coordinate ``index`` is cut at ``value``, the child takes ``side``; ON_UNIT:
    open unit ``index`` is active (side 1) or dead (side 0). ON_INPUT with index < 0 changes
    nothing: the node is bounded anew. Units with ``refresh`` > 0 get backward bounds.
    """
    plo, phi, M, c, err, mag, zl, zu, ids, names, alpha, beta, tau, bound = parent
    lo, hi, T, tc, terr, tmag, tl, tu, source, size = out
    state, place, folded, fc, ferr, fweight, v, lam, a, rule = scratch
    for k in range(d):
        lo[k], hi[k] = plo[k], phi[k]
    if kind == ON_INPUT and index >= 0:
        if side == 0:
            hi[index] = value
        else:
            lo[index] = value
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    m = 0
    for i in range(n):
        row = T[m]
        const, error = _reduce(M[i], c[i], err[i], i, d, state, place, folded, fc, ferr, fweight, size, row)
        weight = _magnitude(row, const, d + m, size)
        spread = gamma(d + m + 4) * weight
        low, high = _interval(row, const, d, m, lo, hi, size[d:])
        low = max(low - error - spread, zl[i])
        high = min(high + error + spread, zu[i])
        if kind == ON_UNIT and i == index:
            if side == 1:
                low = max(low, 0.0)
            else:
                high = min(high, 0.0)
        if low > high:
            return -1, 0
        opened = low < 0.0 and high > 0.0
        if opened and m > 0 and refresh[i] > 0:
            used = False
            for k in range(m):
                if row[d + k] != 0.0:
                    used = True
                    break
            if used:
                for k in range(d + m):
                    v[k] = row[k]
                top = backward(v, const + error + spread, T, tc, terr, tmag, tl, tu, rule, lo, hi, size, m, lam, a)
                high = min(high, top)
                if high > 0.0:
                    for k in range(d + m):
                        v[k] = -row[k]
                    top = backward(v, -const + error + spread, T, tc, terr, tmag, tl, tu, rule, lo, hi, size, m, lam, a)
                    low = max(low, -top)
                if low > high:
                    return -1, 0
                opened = low < 0.0 and high > 0.0
        if opened:
            state[i], place[i], source[m] = 0, m, i
            tc[m], terr[m], tmag[m], tl[m], tu[m] = const, error, spread, low, high
            rule[m] = 1.0 if high > -low else 0.0
            size[d + m] = high
            m += 1
        elif high <= 0.0 and not (low >= 0.0 and high <= 0.0 and kind == ON_UNIT and i == index and side == 1):
            state[i] = -1
        else:
            state[i], place[i] = 1, m
            for k in range(d + m):
                folded[i, k] = row[k]
            fc[i], ferr[i], fweight[i] = const, error, weight
    kept = 0
    for r in range(known + (1 if kind == ON_UNIT else 0)):
        t = m + kept
        if r < known:
            const, error = _reduce(
                M[n + r], c[n + r], err[n + r], n, d, state, place, folded, fc, ferr, fweight, size, T[t]
            )
        else:
            const, error = _reduce(
                M[index], c[index], err[index], index, d, state, place, folded, fc, ferr, fweight, size, T[t]
            )
            if side == 0:
                const = -const
                for k in range(d + m):
                    T[t, k] = -T[t, k]
        weight = _magnitude(T[t], const, d + m, size)
        spread = gamma(d + m + 4) * weight
        low, high = _interval(T[t], const, d, m, lo, hi, size[d:])
        if high + error + spread < 0.0:
            return -1, 0
        if low - error - spread >= 0.0:
            continue  # holds everywhere on the node
        tc[t], terr[t], tmag[t], source[t] = const, error, spread, n + r
        kept += 1
    for g in range(goals):
        t = m + kept + g
        r = n + known + g
        const, error = _reduce(M[r], c[r], err[r], n, d, state, place, folded, fc, ferr, fweight, size, T[t])
        weight = _magnitude(T[t], const, d + m, size)
        tc[t], terr[t], tmag[t] = const, error, gamma(d + m + 4) * weight
    return m, kept


@compiled
def _start(T, tc, terr, tmag, m, kept, first, last, tau, beta, d, v):  # type: ignore[no-untyped-def]
    """The row to bound: tau times the goals plus beta times the known rows; its constant."""
    for k in range(d + m):
        v[k] = 0.0
    const = 0.0
    for g in range(first, last):
        w = tau[g]
        if w > 0.0:
            t = m + kept + g
            for k in range(d + m):
                v[k] += w * T[t, k]
            const += w * tc[t] + w * (terr[t] + tmag[t])
    for r in range(kept):
        w = beta[r]
        if w > 0.0:
            t = m + r
            for k in range(d + m):
                v[k] += w * T[t, k]
            const += w * tc[t] + w * (terr[t] + tmag[t])
    return const


@compiled
def tune(node, d, m, kept, first, last, q, cut, steps, hopeless, work):  # type: ignore[no-untyped-def]
    """Lower the bound of one disjunct by descent on alpha, beta and tau; keeps the best.

    Fills work.x (the maximiser at the best bound), work.lam, work.z, work.y there. Stops at
    ``cut``, or when at the present pace the cut is out of reach (unless ``hopeless`` is 0).
    """
    lo, hi, T, tc, terr, tmag, tl, tu, ids, names, alpha, beta, tau, bound = node
    v, lam, a, x, z, y, size, m1, m2, best_a, best_b, best_t, bx, bz, by, blam, bv, _, _ = work
    A, B = alpha[q], beta[q]
    best = np.inf
    start = np.inf
    width = m + kept + (last - first)
    for i in range(width):
        m1[i], m2[i] = 0.0, 0.0
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    p1, p2 = 1.0, 1.0
    rate = 0.3
    for step in range(steps + 1):
        const = _start(T, tc, terr, tmag, m, kept, first, last, tau, B, d, v)
        value = backward(v, const, T, tc, terr, tmag, tl, tu, A, lo, hi, size, m, lam, a)
        if step == 0:
            start = value
        for k in range(d):
            x[k] = hi[k] if v[k] > 0.0 else lo[k]
        forward(x, T, tc, lam, A, tl, tu, m, z, y)
        if value < best:
            best = value
            for j in range(m):
                best_a[j], bz[j], by[j], blam[j] = A[j], z[j], y[j], lam[j]
            for r in range(kept):
                best_b[r] = B[r]
            for g in range(first, last):
                best_t[g] = tau[g]
            for k in range(d):
                bx[k], bv[k] = x[k], v[k]
        if best <= cut or step == steps:
            break
        if hopeless and step == 6 and (start - best) < 0.08 * (best - cut):
            break
        p1 *= 0.9
        p2 *= 0.98
        scale = np.sqrt(1.0 - p2) / (1.0 - p1) * rate
        swing = 0.0
        for k in range(d):
            swing += abs(v[k]) * (hi[k] - lo[k])
        for j in range(m):
            g = lam[j] * z[j] if lam[j] < 0.0 else 0.0
            m1[j] += 0.1 * (g - m1[j])
            m2[j] += 0.02 * (g * g - m2[j])
            if m2[j] > 0.0:
                A[j] = min(max(A[j] - scale * m1[j] / np.sqrt(m2[j]), 0.0), 1.0)
        for r in range(kept):
            i = m + r
            g = row_at(T[i], tc[i], x, y, m)
            reach = 0.0
            for k in range(d):
                reach += abs(T[i, k]) * (hi[k] - lo[k])
            for k in range(m):
                reach += abs(T[i, d + k]) * tu[k]
            m1[i] += 0.1 * (g - m1[i])
            m2[i] += 0.02 * (g * g - m2[i])
            if m2[i] > 0.0 and reach > 0.0:
                B[r] = max(B[r] - 0.5 * scale * swing / reach * m1[i] / np.sqrt(m2[i]), 0.0)
        if last - first > 1:
            total = 0.0
            for g in range(first, last):
                i = m + kept + g - first
                t = m + kept + g
                s = row_at(T[t], tc[t], x, y, m)
                m1[i] += 0.1 * (s - m1[i])
                m2[i] += 0.02 * (s * s - m2[i])
                if m2[i] > 0.0:
                    tau[g] = max(tau[g] * np.exp(-scale * m1[i] / np.sqrt(m2[i])), 1e-6)
                total += tau[g]
            for g in range(first, last):
                tau[g] /= total
        rate *= 0.95
    for j in range(m):
        A[j] = best_a[j]
    for r in range(kept):
        B[r] = best_b[r]
    for g in range(first, last):
        tau[g] = best_t[g]
    return best


@compiled
def _scores(node, d, m, lam, z, y, v, score):  # type: ignore[no-untyped-def]
    """What each open unit, and behind them each coordinate, may cost the bound.

    A unit: the height of its line over the unit itself at the maximiser, and a share of the whole
    triangle. A coordinate: its share in the widths of the triangles.
    """
    lo, hi, T, tl, tu = node[0], node[1], node[2], node[6], node[7]
    for j in range(m):
        triangle = abs(lam[j]) * tu[j] * -tl[j] / (tu[j] - tl[j])
        score[j] = max(lam[j] * (y[j] - max(z[j], 0.0)), 0.0) + 1e-2 * triangle
    for k in range(d):
        width = hi[k] - lo[k]
        total = 1e-3 * abs(v[k]) * width
        if width > 0.0:
            for j in range(m):
                w = tu[j] - tl[j]
                total += abs(lam[j]) * tu[j] * -tl[j] / w * min(abs(T[j, k]) * width / w, 1.0)
        score[m + k] = total if width > 0.0 else 0.0


@compiled
def _promise(node, d, m, n0, score, learned, rank, inputs):  # type: ignore[no-untyped-def]
    """Predicted gain of every cut: product over both sides of score times the learned ratio."""
    for i in range(m + (d if inputs else 0)):
        name = int(node[8][i]) if i < m else n0 + i - m
        kind = 0 if i < m else 1
        value = 1.0
        for side in range(2):
            if learned[name, side, 1] > 0.0:
                ratio = learned[name, side, 0] / learned[name, side, 1]
            else:
                overall = learned[len(learned) - 2 + kind, side]
                ratio = overall[0] / overall[1] if overall[1] > 0.0 else 1.0
            value *= max(ratio, 1e-3) * score[i]
        rank[i] = value if score[i] > 0.0 else -1.0


@compiled
def _place(arena, at, d, m, kept, goals, disjuncts, parent, n, out, names_of):  # type: ignore[no-untyped-def]
    """Copy a child from scratch to the arena, with the parent's alpha, beta and tau."""
    lo, hi, T, tc, terr, tmag, tl, tu, source, size = out
    node = parts(arena, at, m, kept, d, goals, disjuncts)
    for k in range(d):
        node[0][k], node[1][k] = lo[k], hi[k]
    rows = m + kept + goals
    for r in range(rows):
        for k in range(d + m):
            node[2][r, k] = T[r, k]
        node[3][r], node[4][r], node[5][r] = tc[r], terr[r], tmag[r]
    for j in range(m):
        s = source[j]
        node[6][j], node[7][j], node[8][j] = tl[j], tu[j], parent[8][s]
        for q in range(disjuncts):
            node[10][q, j] = parent[10][q, s]
    known = len(parent[9])
    for r in range(kept):
        s = source[m + r] - n
        node[9][r] = parent[9][s] if s < known else names_of
        for q in range(disjuncts):
            node[11][q, r] = parent[11][q, s] if s < known else 0.0
    for g in range(goals):
        node[12][g] = parent[12][g]
    for q in range(disjuncts):
        node[13][q] = parent[13][q]
    return node


@compiled
def _offer(whole, d, firsts, q, x, y, best, best_x):  # type: ignore[no-untyped-def]
    """Value of a disjunct at x on the whole domain's form; keeps the best."""
    M, c, n, known, _ = whole
    evaluate(x, M, c, n, y)
    value = np.inf
    for g in range(firsts[q], firsts[q + 1]):
        t = n + known + g
        value = min(value, row_at(M[t], c[t], x, y, n))
    if value > best[0]:
        for r in range(known):
            if row_at(M[n + r], c[n + r], x, y, n) < 0.0:
                return  # outside the polytope
        best[0] = value
        for k in range(d):
            best_x[k] = x[k]


@compiled
def _leaf(node, d, kept, firsts, q, cut, lp, work, x):  # type: ignore[no-untyped-def]
    """No unit is open: one linear programme, whose multipliers become beta and tau.

    Returns the bound they prove.
    """
    lo, hi, T, tc, terr, tmag, tl, tu, ids, names, alpha, beta, tau, bound = node
    rows, rhs, cost, plo, phi, scale, solver = lp
    first, last = firsts[q], firsts[q + 1]
    many = last - first
    extra = 1 if many > 1 else 0
    for k in range(d):
        plo[k], phi[k] = lo[k], hi[k]
        cost[k] = 0.0 if extra else T[kept + first, k]
    count = 0
    for r in range(kept + (many if extra else 0)):
        t = r if r < kept else kept + first + r - kept
        length = 0.0
        for k in range(d):
            length += T[t, k] * T[t, k]
        if r >= kept:
            length += 1.0
        length = np.sqrt(length)
        if length == 0.0:
            scale[r] = 0.0
            continue
        for k in range(d):
            rows[r, k] = -T[t, k] / length
        if extra:
            rows[r, d] = 0.0 if r < kept else 1.0 / length
        rhs[r] = tc[t] / length
        scale[r] = 1.0 / length
        count = r + 1
    if extra:
        cost[d] = 1.0
        low, high = np.inf, -np.inf
        for g in range(first, last):
            t = kept + g
            a, b = _interval(T[t], tc[t], d, 0, lo, hi, lo)
            low, high = min(low, a), max(high, b)
        plo[d], phi[d] = low - 1.0, high + 1.0
    stop = cut - (0.0 if extra else tc[kept + first])
    for r in range(kept + (many if extra else 0)):
        if scale[r] == 0.0:
            for k in range(d + extra):
                rows[r, k] = 0.0
            rhs[r] = 1.0
    total = kept + (many if extra else 0)
    dim = d + extra
    status = maximize(cost[:dim], rows[:, :dim], rhs, total, plo[:dim], phi[:dim], stop, solver)
    for k in range(d):
        x[k] = min(max(solver.x[k], lo[k]), hi[k])
    for r in range(kept):
        beta[q, r] = 0.0
    if extra:
        for g in range(first, last):
            tau[g] = 0.0
    factor = 1.0
    if status == EMPTY:
        # the entering row is minus a non-negative combination of the basic ones: a contradiction
        factor = 1e9
        row = solver.counts[3]
        if row >= 0 and row < kept:
            beta[q, row] = factor * scale[row]
        for i in range(dim):
            r = solver.basis[i]
            w = max(-solver.pivot_row[i], 0.0)
            if r >= 0 and r < kept:
                beta[q, r] += factor * w * scale[r]
        if extra:
            tau[first] = 1.0
    else:
        for i in range(dim):
            r = solver.basis[i]
            w = max(solver.multipliers[i], 0.0)
            if r >= 0 and r < kept:
                beta[q, r] = w * scale[r]
            elif r >= kept:
                tau[first + r - kept] = w * scale[r]
        if extra:
            s = 0.0
            for g in range(first, last):
                s += tau[g]
            if s > 0.0:
                for g in range(first, last):
                    tau[g] /= s
                for r in range(kept):
                    beta[q, r] /= s
            else:
                tau[first] = 1.0
    v, lam, a, size = work[0], work[1], work[2], work[6]
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    const = _start(T, tc, terr, tmag, 0, kept, first, last, tau, beta[q], d, v)
    return backward(v, const, T, tc, terr, tmag, tl, tu, alpha[q], lo, hi, size, 0, lam, a)


@compiled
def _cut(node, d, n, n0, i, learned, side, gain):  # type: ignore[no-untyped-def]
    """Learn from a measured gain (in shares of the score)."""
    name = int(node[8][i]) if i < n else n0 + i - n
    kind = len(learned) - 2 + (0 if i < n else 1)
    for who in (name, kind):
        learned[who, side, 0] += gain
        learned[who, side, 1] += 1.0


@compiled
def _try(arena, where, node, d, n, known, goals, disjuncts, firsts, i, side, cut, steps, space):  # type: ignore[no-untyped-def]
    """Bound one child at ``where`` in the arena. Returns (units, known rows, highest open bound).

    Units is -1 for an empty child and -2 where the arena is full; the bound is -inf when closed.
    """
    scratch, out, work, lp, refresh = space
    kind = ON_UNIT if i < n else ON_INPUT
    index = i if i < n else i - n
    value = 0.0
    if kind == ON_INPUT:
        value = node[0][index] + 0.5 * (node[1][index] - node[0][index])
    for j in range(n):
        refresh[j] = 1 if (kind == ON_INPUT or j > index) else 0
    m, kept = child(
        node, d, n, known, goals, disjuncts, kind, index, value, side, refresh, scratch, out
    )
    if m < 0:
        return -1, 0, -np.inf
    if where + node_size(m, kept, d, goals, disjuncts) > len(arena):
        return -2, 0, -np.inf
    name = node[8][index] + 1.0 if kind == ON_UNIT else 0.0
    baby = _place(arena, where, d, m, kept, goals, disjuncts, node, n, out, name)
    highest = -np.inf
    for q in range(disjuncts):
        if node[13][q] == -np.inf:
            continue
        found = tune(baby, d, m, kept, firsts[q], firsts[q + 1], q, cut, steps, 1, work)
        baby[13][q] = min(found, node[13][q])
        highest = max(highest, baby[13][q])
    return m, kept, highest


@compiled
def explore(whole, arena, stack, count, nodes, goal, tolerance, steps, firsts, best, best_x, ceiling, learned, space, theta, look):  # type: ignore[no-untyped-def]
    """Work on the stack for at most ``nodes`` nodes. Returns (why, nodes on the stack, nodes used).

    ``goal``: a point with a value of at least this ends the search (np.inf for a maximum).
    ``best``, ``best_x``: the best point so far. ``ceiling``: the largest bound a node was closed
    with. ``inputs``: whether boxes may be cut. ``look``: how many cuts are tried before one is
    made, as long as too little is known of them.
    """
    scratch, out, work, lp, refresh = space
    d = len(best_x)
    disjuncts = len(firsts) - 1
    goals = firsts[disjuncts]
    n0 = whole[4]
    used = 0
    x, y, score, rank = work[3], work[5], work[17], work[18]
    while count > 0:
        if used >= nodes:
            return OUT_OF_NODES, count, used
        top = count - 1
        n, known, at = stack[top, N], stack[top, K], stack[top, AT]
        node = parts(arena, at, n, known, d, goals, disjuncts)
        bound = node[13]
        cut = goal if goal < np.inf else best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
        worst = -1
        for q in range(disjuncts):
            if bound[q] > -np.inf and bound[q] <= cut and not (bound[q] == goal):
                ceiling[0] = max(ceiling[0], bound[q])
                bound[q] = -np.inf
            if bound[q] > -np.inf and (worst < 0 or bound[q] > bound[worst]):
                worst = q
        if worst < 0:
            count = top
            continue
        used += 1
        if n == 0:
            value = _leaf(node, d, known, firsts, worst, cut, lp, work, x)
            _offer(whole, d, firsts, worst, x, y, best, best_x)
            if best[0] >= goal:
                return REACHED, count, used
            ceiling[0] = max(ceiling[0], min(value, bound[worst]))
            bound[worst] = -np.inf
            ceiling[1] += 0.5 ** stack[top, DEPTH]
            continue
        # where the bound comes from, and which cut promises most
        v, lam, a, z, size = work[0], work[1], work[2], work[4], work[6]
        for k in range(d):
            size[k] = max(abs(node[0][k]), abs(node[1][k]))
        const = _start(node[2], node[3], node[4], node[5], n, known, firsts[worst], firsts[worst + 1], node[12], node[11][worst], d, v)
        backward(v, const, node[2], node[3], node[4], node[5], node[6], node[7], node[10][worst], node[0], node[1], size, n, lam, a)
        for k in range(d):
            x[k] = node[1][k] if v[k] > 0.0 else node[0][k]
        forward(x, node[2], node[3], lam, node[10][worst], node[6], node[7], n, z, y)
        _scores(node, d, n, lam, z, y, v, score)
        _promise(node, d, n, n0, score, learned, rank, n > theta)
        old = bound[worst]
        first, last = 0, n
        if n > theta:
            first, last = n, n + d
        where = at + node_size(n, known, d, goals, disjuncts)
        begin = where
        pick, top_rank = -1, -1.0
        for trial in range(look):
            i = -1
            for j in range(first, last):
                if rank[j] > 0.0 and (i < 0 or rank[j] > rank[i]):
                    i = j
            if i < 0 or rank[i] <= top_rank:
                break
            name = int(node[8][i]) if i < n else n0 + i - n
            known_well = min(learned[name, 0, 1], learned[name, 1, 1]) >= RELIABLE
            if known_well:
                pick, top_rank = i, rank[i]
                break
            measured = 1.0
            for side in range(2):
                m, kept, highest = _try(arena, where, node, d, n, known, goals, disjuncts, firsts, i, side, cut, steps // 2, space)
                drop = old - max(highest, cut) if highest > -np.inf else old - cut
                _cut(node, d, n, n0, i, learned, side, drop / score[i])
                measured *= max(drop, 1e-3 * score[i])
            used += 1
            rank[i] = -1.0
            if measured > top_rank:
                pick, top_rank = i, measured
        if pick < 0:
            for j in range(first, last):
                if pick < 0 or score[j] > score[pick]:
                    pick = j
        fresh = 0
        for side in range(2):
            m, kept, highest = _try(arena, where, node, d, n, known, goals, disjuncts, firsts, pick, side, cut, steps, space)
            if m == -2 or top + 2 >= len(stack):
                return FULL, count, used
            drop = old - max(highest, cut) if highest > -np.inf else old - cut
            _cut(node, d, n, n0, pick, learned, side, drop / max(score[pick], 1e-300))
            if m < 0:
                ceiling[1] += 0.5 ** (stack[top, DEPTH] + 1.0)
                continue
            bx = work[12]
            for k in range(d):
                x[k] = bx[k]
            _offer(whole, d, firsts, worst, x, y, best, best_x)
            if best[0] >= goal:
                return REACHED, count, used
            if goal == np.inf:
                cut = best[0] + 0.5 * tolerance * max(1.0, abs(best[0]))
            baby = parts(arena, where, m, kept, d, goals, disjuncts)
            alive = False
            for q in range(disjuncts):
                if baby[13][q] > -np.inf:
                    if baby[13][q] <= cut and not (baby[13][q] == goal):
                        ceiling[0] = max(ceiling[0], baby[13][q])
                        baby[13][q] = -np.inf
                    else:
                        alive = True
            if not alive:
                ceiling[1] += 0.5 ** (stack[top, DEPTH] + 1.0)
            else:
                stack[top + 1 + fresh, N], stack[top + 1 + fresh, K] = m, kept
                stack[top + 1 + fresh, AT] = where
                stack[top + 1 + fresh, DEPTH] = stack[top, DEPTH] + 1
                fresh += 1
                where += node_size(m, kept, d, goals, disjuncts)
        # the children take the parent's place
        shift = begin - at
        for i in range(begin, where):
            arena[i - shift] = arena[i]
        for i in range(fresh):
            stack[top + i, N], stack[top + i, K] = stack[top + 1 + i, N], stack[top + 1 + i, K]
            stack[top + i, AT] = stack[top + 1 + i, AT] - shift
            stack[top + i, DEPTH] = stack[top + 1 + i, DEPTH]
        count = top + fresh
    return EMPTY_STACK, count, used
