"""The linear programme of a node, compiled: the best that lines over single units can prove.

    maximise the goal over x in the box and y with  y_j >= 0,  y_j >= z_j,  y_j <= chord(z_j),
    known rows >= 0.

Its dual is what `tune` descends on: the weights of a unit's three rows make a slope, those of the
known rows are beta. Here a dual simplex takes it to its end. It starts at the vertex where every
unit lies on the line that the node's own slopes choose, rounded to 0 or 1: that basis is triangular
and dual feasible, and what is left are pivots for the known rows and for slopes between 0 and 1. It
may be stopped after any pivot. What it proves is not read off the programme: slopes and multipliers
are handed to the backward bound.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import chord, part
from relunorm.bounds.nodes.memory import MOST_INPUTS, MOST_VARIABLES
from relunorm.bounds.nodes.node import bound_of, recall, remember
from relunorm.compiled.simplex import EMPTY, Workspace, descend

#: Multiple of a contradiction among the rows that is added to a goal.
LARGE = 1e9

#: How far a point may be outside a row of unit length.
NEAR = 1e-9


@part
def solve(node, ball, d, m, kept, first, last, q, cut, limit, lp, work, x, y):  # type: ignore[no-untyped-def]
    """Bound a goal group by its programme; alpha, beta and tau are kept if the bound is better.

    Returns the bound, not above the node's own. ``x`` and ``y`` become the point reached: a
    maximiser, unless the bound came down to ``cut`` before or ``limit`` pivots were made. With more
    than `MOST_VARIABLES` the units are left out, and known rows that read them; ``y`` is zero then,
    and so are inputs that no known row reads, which are at their best ends (`solvable`).
    """
    T, tc, tu, tau, v = node.rows, node.const, node.high, node.tau, work.v
    space, rhs, cost, plo, phi, scale, weight, flat, point, mult, u, basis, read, stop = lp
    p = m if d + m <= MOST_VARIABLES else 0
    many = last - first
    extra = 1 if many > 1 else 0  # with several rows: maximise t with t <= every row
    e = _read(node, d, m, p, kept, first, last, read)
    dim = e + p + extra
    total = 2 * p + kept + (many if extra else 0)
    rows = space[: total * dim].reshape((total, dim))
    solver = Workspace(
        point[:dim], flat[: dim * dim].reshape((dim, dim)), mult[:dim], u[:dim], basis[:dim], stop
    )
    _rows(node, d, m, p, kept, first, extra, read, e, rows, rhs, scale)
    offset = 0.0 if extra else tc[m + kept + first]
    for k in range(d):
        # where no row reads it: at its best end
        w = 0.0 if extra else T[m + kept + first, k]
        x[k] = node.hi[k] if w >= 0.0 else node.lo[k]
        offset += w * x[k]
    for i in range(e):
        k = read[i]
        plo[i], phi[i] = node.lo[k], node.hi[k]
        cost[i] = 0.0 if extra else T[m + kept + first, k]
        offset -= cost[i] * x[k]
    for j in range(p):
        plo[e + j], phi[e + j] = 0.0, tu[j]
        cost[e + j] = 0.0 if extra else T[m + kept + first, d + j]
    top = first
    if extra:
        cost[dim - 1], plo[dim - 1], phi[dim - 1] = 1.0, -np.inf, np.inf
        for g in range(first, last):
            if tau[g] > tau[top]:
                top = g
    bound = _start(
        node, d, m, p, kept, top, first, q, extra, read, e, rows, rhs, cost, plo, phi, v, solver
    )
    status, row = descend(
        cost[:dim], rows, rhs, total, plo[:dim], phi[:dim], cut - offset, NEAR, limit, bound, solver
    )
    for i in range(e):
        x[read[i]] = min(max(solver.x[i], plo[i]), phi[i])
    for j in range(m):
        y[j] = min(max(solver.x[e + j], 0.0), tu[j]) if j < p else 0.0
    remember(node, m, kept, first, last, q, work)
    old = bound_of(node, ball, d, m, kept, first, last, q, work, work.best_x)
    _weights(status, row, e, p, total, scale, solver, weight)
    _slopes(node, p, kept, first, last, q, extra, total, weight)
    new = bound_of(node, ball, d, m, kept, first, last, q, work, work.best_x)
    if new < old:
        return new
    recall(node, m, kept, first, last, q, work)
    return old


@part
def _read(node, d, m, p, kept, first, last, read):  # type: ignore[no-untyped-def]
    """The inputs that some row of a programme reads, and the first one; all if it has units, or
    several goals."""
    count = 0
    for k in range(d):
        used = k == 0 or p > 0 or last - first > 1
        for r in range(kept):
            used = used or node.rows[m + r, k] != 0.0
        if used:
            read[count] = k
            count += 1
    return count


@part
def solvable(node, d, m, kept, first, last, lp):  # type: ignore[no-untyped-def]
    """Whether the programme of a node without open units is small enough."""
    return _read(node, d, m, 0, kept, first, last, lp.read) <= MOST_INPUTS


@part
def _rows(node, d, m, p, kept, first, extra, read, e, rows, rhs, scale):  # type: ignore[no-untyped-def]
    """Rows of the programme, of unit length: y >= z, y <= chord(z), known rows, goals."""
    T, tc, tl, tu = node.rows, node.const, node.low, node.high
    total, dim = rows.shape
    for r in range(total):
        hidden = False  # whether it reads a unit that is left out
        for k in range(dim):
            rows[r, k] = 0.0
        if r < 2 * p:
            j = r if r < p else r - p
            factor, shift = 1.0, 0.0
            if r >= p:
                factor = -1.0
                if tl[j] < 0.0:
                    slope, shift = chord(tl[j], tu[j])
                    factor = -slope
            for k in range(d + j):  # with units all inputs are read
                rows[r, k] = factor * T[j, k]
            rows[r, d + j] = -1.0 if r < p else 1.0
            rhs[r] = shift - factor * tc[j]
        else:
            known = r < 2 * p + kept
            t = m + r - 2 * p + (0 if known else first)
            for i in range(e):
                rows[r, i] = -T[t, read[i]]
            for j in range(p):
                rows[r, e + j] = -T[t, d + j]
            for k in range(d + p, d + m):
                hidden = hidden or T[t, k] != 0.0
            if extra:
                rows[r, dim - 1] = 0.0 if known else 1.0
            rhs[r] = tc[t]
        length = 0.0
        for k in range(dim):
            length += rows[r, k] * rows[r, k]
        scale[r] = 0.0 if hidden or length == 0.0 else 1.0 / np.sqrt(length)
        for k in range(dim):
            rows[r, k] *= scale[r]
        rhs[r] = rhs[r] * scale[r] if scale[r] > 0.0 else 1.0


@part
def _start(  # type: ignore[no-untyped-def]
    node, d, m, p, kept, top, first, q, extra, read, e, rows, rhs, cost, plo, phi, v, solver
):
    """The basis of the lines that the slopes choose; its point, inverse and weights; the bound."""
    T, tl, tu, A = node.rows, node.low, node.high, node.alpha[q]
    x, inverse, mult, basis = solver.x, solver.inverse, solver.multipliers, solver.basis
    dim = len(x)
    for i in range(e):
        v[i] = T[m + kept + top, read[i]]
    for j in range(p):
        v[e + j] = T[m + kept + top, d + j]
    for j in range(p - 1, -1, -1):
        w = v[d + j]
        if w > 0.0:
            basis[d + j] = p + j
            if tl[j] < 0.0:
                w *= chord(tl[j], tu[j])[0]
        elif w < 0.0 and (A[j] >= 0.5 or tl[j] >= 0.0):
            basis[d + j] = j
        else:
            basis[d + j] = -2 * (d + j) - 2
            w = 0.0
        if w != 0.0:
            for k in range(d + j):
                v[k] += w * T[j, k]
    for k in range(e):
        basis[k] = -2 * k - 1 if v[k] >= 0.0 else -2 * k - 2
    if extra:
        basis[dim - 1] = 2 * p + kept + top - first
    # the basis is triangular: its inverse and its point by substitution
    for i in range(dim):
        for k in range(dim):
            inverse[i, k] = 0.0
        r = basis[i]
        if r < 0:
            inverse[i, i] = 1.0 if r % 2 else -1.0
            x[i] = phi[i] if r % 2 else plo[i]
            continue
        pivot, value = 1.0 / rows[r, i], rhs[r]
        for k in range(i):
            w = rows[r, k]
            if w != 0.0:
                value -= w * x[k]
                for h in range(k + 1):
                    inverse[i, h] -= w * inverse[k, h]
        for h in range(i):
            inverse[i, h] *= pivot
        inverse[i, i] = pivot
        x[i] = value * pivot
    bound = 0.0
    for k in range(dim):
        mult[k] = 0.0
    for i in range(dim):
        w = cost[i]
        bound += w * x[i]
        if w != 0.0:
            for k in range(i + 1):
                mult[k] += w * inverse[i, k]
    for k in range(dim):
        mult[k] = max(mult[k], 0.0)
    return bound


@part
def _weights(status, row, d, p, total, scale, solver, weight):  # type: ignore[no-untyped-def]
    """Weights of the programme's rows, and behind them of y >= 0."""
    for r in range(total + p):
        weight[r] = 0.0
    for i in range(len(solver.x)):
        r = solver.basis[i]
        w = max(solver.multipliers[i], 0.0)
        if status == EMPTY:
            # the violated row is minus a non-negative combination of the basic ones
            w += LARGE * max(-solver.pivot_row[i], 0.0)
        if r >= 0:
            weight[r] = w * scale[r]
        elif r % 2 == 0 and d <= (-r - 2) // 2 < d + p:
            weight[total + (-r - 2) // 2 - d] = w
    if status == EMPTY:
        if row >= 0:
            weight[row] += LARGE * scale[row]
        elif row % 2 == 0 and d <= (-row - 2) // 2 < d + p:
            weight[total + (-row - 2) // 2 - d] += LARGE


@part
def _slopes(node, p, kept, first, last, q, extra, total, weight):  # type: ignore[no-untyped-def]
    """Slopes, multipliers of known rows and weights of goals out of the weights of the rows."""
    tl, tu, A, B, tau = node.low, node.high, node.alpha[q], node.beta[q], node.tau
    whole = 1.0
    if extra:
        whole = 0.0
        for g in range(first, last):
            whole += weight[2 * p + kept + g - first]
        if not whole > 0.0:
            whole, weight[2 * p + kept] = 1.0, 1.0
        for g in range(first, last):
            tau[g] = weight[2 * p + kept + g - first] / whole
    for r in range(kept):
        B[r] = weight[2 * p + r] / whole
    for j in range(p):
        above, line, floor = weight[p + j], weight[j], weight[total + j]
        w = line + floor - above
        if w > 0.0:
            s = chord(tl[j], tu[j])[0] if tl[j] < 0.0 else 1.0
            A[j] = np.float32(min(max((line - s * above) / w, 0.0), 1.0))
