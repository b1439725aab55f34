"""A node of a search, compiled: a box, known signs, and the network as it looks there.

The network on a node is a triangular form (`relunorm.bounds.nodes.kernel`) from which every unit
that cannot change sign is folded away (`child`). `tune` lowers the bound of a goal by descent on
its free numbers; `programme.solve` takes the same numbers to their best. All of them only make
numbers; what a bound proves rests on `backward` and on the error that each row carries.

A goal is a group of rows, and what is bounded is the largest minimum of a group over the node:
tau >= 0 with sum 1 weighs the rows of a group (for one row it is 1).
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import adam, backward, forward, part, row_at
from relunorm.bounds.nodes.memory import Node
from relunorm.compiled.groups import views
from relunorm.compiled.operations import placed
from relunorm.matrix import Array


@part
def node_size(n, known, d, goals, disjuncts):  # type: ignore[no-untyped-def]
    """How many numbers a node takes in the arena."""
    rows = n + known + goals
    return 2 * d + rows * (d + n) + 3 * rows + 6 * n + known + disjuncts * (n + known + 1) + goals


@part
def node_shapes(n, known, d, goals, disjuncts):  # type: ignore[no-untyped-def]
    """The shapes of a node's arrays (`Node`), which lie one after another."""
    rows = n + known + goals
    return (
        (d,), (d,), (rows, d + n), (rows,), (rows,), (rows,), (n,), (n,), (n,), (n,), (n,), (n,),
        (known,), (disjuncts, n), (disjuncts, known), (goals,), (disjuncts,),
    )  # fmt: skip


@part
def parts(words, arena, at, n, known, d, goals, disjuncts):  # type: ignore[no-untyped-def]
    """The arrays of a node that lies in an arena; ``words`` of `Memory` to keep where they are."""
    return placed(Node, words, arena, at, node_shapes(n, known, d, goals, disjuncts))


def node_of(numbers: Array, n: int, known: int, d: int, goals: int, disjuncts: int) -> Node:
    """The same for Python."""
    return views(Node, numbers, node_shapes(n, known, d, goals, disjuncts))


@part
def start_row(node, d, m, kept, first, last, q, v):  # type: ignore[no-untyped-def]
    """The row to bound: tau times the goals plus beta times the known rows; its constant."""
    rows, const, beta = node.rows, 0.0, node.beta[q]
    for k in range(d + m):
        v[k] = 0.0
    for i in range(last - first + kept):  # goals first
        r = i - (last - first)
        t, w = (m + kept + first + i, node.tau[first + i]) if r < 0 else (m + r, beta[r])
        if w > 0.0 or (r < 0 and w != 0.0):  # a goal weighed by NaN has no bound
            for k in range(d + m):
                v[k] += w * rows[t, k]
            const += w * node.const[t] + w * (node.err[t] + node.mag[t])
    return const


@part
def bound_of(node, ball, d, m, kept, first, last, q, work, x):  # type: ignore[no-untyped-def]
    """The bound of a goal group at the node's own alpha, beta and tau; ``x`` is where it lies."""
    lo, hi, size, v = node.lo, node.hi, work.size, work.v
    for k in range(d):
        size[k] = max(abs(lo[k]), abs(hi[k]))
    const = start_row(node, d, m, kept, first, last, q, v)
    return backward(v, const, node, node.alpha[q], ball, size, m, m, work, x)


@part
def remember(node, m, kept, first, last, q, work):  # type: ignore[no-untyped-def]
    """Keep alpha, beta and tau of a goal group for `recall`."""
    for j in range(m):
        work.best_a[j] = node.alpha[q, j]
    for r in range(kept):
        work.best_b[r] = node.beta[q, r]
    for g in range(first, last):
        work.best_t[g] = node.tau[g]


@part
def recall(node, m, kept, first, last, q, work):  # type: ignore[no-untyped-def]
    """The numbers that `remember` kept."""
    for j in range(m):
        node.alpha[q, j] = work.best_a[j]
    for r in range(kept):
        node.beta[q, r] = work.best_b[r]
    for g in range(first, last):
        node.tau[g] = work.best_t[g]


@part
def tune(node, ball, d, m, kept, first, last, q, cut, steps, patient, work):  # type: ignore[no-untyped-def]
    """Lower the bound of a goal group by descent on alpha, beta and tau; keep and return the best.

    Adam (Kingma and Ba 2015) on the derivatives that one forward pass through the chosen lines
    gives. Stops at ``cut``, or, unless ``patient``, when at its pace the cut is out of reach.
    """
    lo, hi, T, tc, tl, tu = node.lo, node.hi, node.rows, node.const, node.low, node.high
    v, lam, x, z, y, m1, m2 = work.v, work.lam, work.x, work.z, work.y, work.m1, work.m2
    bx = work.best_x
    A, B, tau = node.alpha[q], node.beta[q], node.tau
    best = np.inf
    start = np.inf
    width = m + kept + (last - first)
    for i in range(width):
        m1[i], m2[i] = 0.0, 0.0
    remember(node, m, kept, first, last, q, work)  # should no bound be finite
    p1, p2 = 1.0, 1.0
    rate = 0.3
    for step in range(steps + 1):
        value = bound_of(node, ball, d, m, kept, first, last, q, work, x)
        if step == 0:
            start = value
        if value < best:
            best = value
            remember(node, m, kept, first, last, q, work)
            for k in range(d):
                bx[k] = x[k]
        if best <= cut or step == steps:
            break
        if not patient and step == 8 and (start - best) < 0.05 * (best - cut):
            break
        forward(x, node, lam, A, m, z, y)
        p1 *= 0.9
        p2 *= 0.98
        scale = np.sqrt(1.0 - p2) / (1.0 - p1) * rate
        swing = 0.0
        for k in range(d):
            swing += abs(v[k]) * (hi[k] - lo[k])
        for j in range(m):
            swing += abs(lam[j]) * tu[j] * max(-tl[j], 0.0) / (tu[j] - tl[j])
        for j in range(m):
            rise = lam[j] * z[j] if lam[j] < 0.0 and tl[j] < 0.0 else 0.0
            moved = min(max(A[j] - adam(m1, m2, j, rise, scale), 0.0), 1.0)
            A[j] = np.float32(moved)  # a proof stores slopes in single precision
        for r in range(kept):
            i = m + r
            rise = row_at(T[i], tc[i], x, y, m)
            reach = 0.0
            for k in range(d):
                reach += abs(T[i, k]) * (hi[k] - lo[k])
            for k in range(m):
                reach += abs(T[i, d + k]) * tu[k]
            pace = 0.5 * scale * swing / reach if reach > 0.0 else 0.0
            B[r] = max(B[r] - adam(m1, m2, i, rise, pace), 0.0)
        if last - first > 1:
            total = 0.0
            for g in range(first, last):
                i = m + kept + g - first
                t = m + kept + g
                s = row_at(T[t], tc[t], x, y, m)
                tau[g] = max(tau[g] * np.exp(-adam(m1, m2, i, s, scale)), 1e-6)
                total += tau[g]
            for g in range(first, last):
                tau[g] /= total
        rate *= 0.95
    recall(node, m, kept, first, last, q, work)
    return best


@part
def linear(node, d, m, kept, first, last):  # type: ignore[no-untyped-def]
    """Whether the rows of a goal group read no open unit; -kept to 0 are the known rows."""
    for g in range(first, last):
        for k in range(m):
            if node.rows[m + kept + g, d + k] != 0.0:
                return False
    return True


@part
def open_units(node, m):  # type: ignore[no-untyped-def]
    """How many units can change sign; the others are active and were not folded."""
    count = 0
    for j in range(m):
        if node.low[j] < 0.0:
            count += 1
    return count
