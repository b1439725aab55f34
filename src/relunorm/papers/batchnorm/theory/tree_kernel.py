"""Compiled layers of the tree model: rows with many clusters one by one, two-cluster rows in sums.

A row of the tree is monotone in the sorted batch, so its clusters are consecutive: it is stored as
``values`` (one per cluster, in batch order) and ``ends`` (where each cluster stops). Rows are laid
end to end; ``pointer[k] : pointer[k + 1]`` is row k. Two-cluster rows with the split after m points
are not stored: ``A[m]`` sums the squares of those whose last n - m points are positive, ``B[m]``
those whose first m points are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.jit import kernel, kernel_part
from relunorm.matrix import Array

#: More layers than any jump takes.
FOREVER = 1 << 62
#: A row this far below the scale of the state (squares: 2^-400) is counted as faded and dropped.
FADED = 2.0**-200


@kernel_part
def _recentered(values, ends, low, high, mean, out, out_ends, used):
    """Append the clusters low to high of one side of the mean, equal ones as one; the new end."""
    for j in range(low, high):
        if j > low and values[j] - mean == values[j - 1] - mean:
            out_ends[used - 1] = ends[j]
            continue
        out[used] = abs(values[j] - mean)
        out_ends[used] = ends[j]
        used += 1
    return used


@kernel_part
def step_rows(n, values, ends, pointer, rows, out, out_ends, out_pointer, A, B, tie):
    """Both children of every stored row; returns (rows kept, mean ties met, clusters merged).

    Clusters whose difference the subtraction of the mean rounds away are one cluster from then on.
    """
    kept = 0
    merged = 0
    used = 0
    ties = 0
    for k in range(rows):
        lo, hi = pointer[k], pointer[k + 1]
        total = 0.0
        before = 0
        for j in range(lo, hi):
            total += (ends[j] - before) * values[j]
            before = ends[j]
        mean = total / n
        span = abs(values[hi - 1] - values[lo])
        rising = values[hi - 1] > values[lo]
        # in batch order: clusters [lo, cut) on one side of the mean, [start, hi) on the other
        cut = lo
        while cut < hi and (values[cut] < mean) == rising and abs(values[cut] - mean) > tie * span:
            cut += 1
        start = cut
        while start < hi and abs(values[start] - mean) <= tie * span:
            start += 1
            ties += 1
        low, high = 1, 1
        for j in range(lo + 1, cut):
            low += values[j] - mean != values[j - 1] - mean
        for j in range(start + 1, hi):
            high += values[j] - mean != values[j - 1] - mean
        merged += (cut - lo - low) + (hi - start - high)
        if low == 1:
            B[ends[cut - 1]] += (values[lo] - mean) ** 2
        else:
            used = _recentered(values, ends, lo, cut, mean, out, out_ends, used)
            out[used] = 0.0
            out_ends[used] = n
            used += 1
            kept += 1
            out_pointer[kept] = used
        if high == 1:
            A[ends[start - 1]] += (values[hi - 1] - mean) ** 2
        else:
            out[used] = 0.0
            out_ends[used] = ends[start - 1]
            used += 1
            used = _recentered(values, ends, start, hi, mean, out, out_ends, used)
            kept += 1
            out_pointer[kept] = used
    return kept, ties, merged


@kernel_part
def step_pairs(n, A, B):
    """One layer of all two-cluster rows: A' = (m/n)^2 (A + B), B' = ((n-m)/n)^2 (A + B)."""
    for m in range(1, n):
        both = A[m] + B[m]
        A[m] = (m / n) ** 2 * both
        B[m] = ((n - m) / n) ** 2 * both


@kernel_part
def rescale(n, values, used, A, B):
    """Keep the state near 1 by an even power of two (exact); returns the exponent taken out."""
    top = 0.0
    for m in range(1, n):
        top = max(top, A[m] + B[m])
    for j in range(used):
        top = max(top, values[j] * values[j])
    if top == 0.0 or (2.0**-64 < top < 2.0**64):
        return 0
    half = int(np.floor(np.log2(top))) // 2
    factor = 2.0**-half
    for m in range(1, n):
        A[m] = A[m] * factor * factor
        B[m] = B[m] * factor * factor
    for j in range(used):
        values[j] *= factor
    return half


@kernel_part
def fade(values, ends, pointer, rows):
    """Drop rows far below the scale of the state; returns (rows kept, sum of clusters - 2 lost)."""
    kept = 0
    used = 0
    lost = 0
    for k in range(rows):
        lo, hi = pointer[k], pointer[k + 1]
        if max(abs(values[lo]), abs(values[hi - 1])) < FADED:
            lost += hi - lo - 2
            continue
        for j in range(lo, hi):
            values[used] = values[j]
            ends[used] = ends[j]
            used += 1
        kept += 1
        pointer[kept] = used
    return kept, lost


def run(
    n: int,
    values: Array,
    ends: NDArray[np.int64],
    pointer: NDArray[np.int64],
    rows: int,
    A: Array,
    B: Array,
    steps: int,
    tie: float,
    until_stable: bool,
) -> tuple[int, int, int, int, int]:
    """Take ``steps`` layers in place, or stop at the first where every row has <= 3 clusters.

    Returns (layers taken, rows, mean ties, clusters lost to rounding, exponent taken out).
    """
    room = np.empty_like(values), np.empty_like(ends), np.zeros_like(pointer)
    return take_layers(n, values, ends, pointer, rows, A, B, steps, tie, until_stable, *room)


@kernel
def take_layers(
    n, values, ends, pointer, rows, A, B, steps, tie, until_stable, out, out_ends, out_pointer
):
    """`run`, with room for the next layer."""
    exponent = 0
    ties = 0
    lost = 0
    taken = 0
    while taken < steps:
        if until_stable:
            stable = True
            for k in range(rows):
                stable = stable and pointer[k + 1] - pointer[k] <= 3
            if stable:
                break
        step_pairs(n, A, B)
        rows, met, merged = step_rows(
            n, values, ends, pointer, rows, out, out_ends, out_pointer, A, B, tie
        )
        ties += met
        lost += merged
        used = out_pointer[rows]
        for j in range(used):
            values[j], ends[j] = out[j], out_ends[j]
        for j in range(rows + 1):
            pointer[j] = out_pointer[j]
        taken += 1
        if taken % 8 == 0 or taken == steps:
            exponent += rescale(n, values, used, A, B)
            rows, gone = fade(values, ends, pointer, rows)
            lost += gone
    return taken, rows, ties, lost, exponent


@kernel_part
def run_length(alpha, u, v):
    """How often u <- alpha (u - v) can be taken while u > v (v fixed); for v = 0, for ever."""
    if v == 0:
        return FOREVER
    shift = alpha * v / (1 - alpha)
    k = max(1, int(np.ceil(np.log((v + shift) / (u + shift)) / np.log(alpha))))
    # rounding may put the boundary one step off: the last step must start above v
    while k > 1 and alpha ** (k - 1) * (u + shift) <= v + shift:
        k -= 1
    return k


@kernel
def jump_row(n, first, middle, p, r, horizon, q, floor, tie, weight):
    """Carry one three-cluster row ``horizon`` layers in closed form, run by run.

    The clusters hold ``first``, ``middle`` and the remaining points; p and r are the gaps between
    them. With u = k0 p and v = k2 r a layer is u <- (k0/n)(u - v) if u > v (the row sheds a
    two-cluster row split after the first cluster), v <- (k2/n)(v - u) if v > u. A run of equal
    cases is a geometric sum. What is shed is added to ``weight[m]`` as it will stand ``horizon``
    layers on, measured in units of ``q`` per layer (q_m^(layers left) / q^horizon).

    Returns (p, r, layers done, ties): fewer layers than the horizon when the row died of a tie or
    fell below ``floor``.
    """
    k0, k2 = first, n - first - middle
    done = 0
    while done < horizon:
        if max(p, r) ** 2 * q ** (-done) < floor:
            return 0.0, 0.0, done, 0
        u, v = k0 * p, k2 * r
        # the tie tolerance is relative to the span, as in the layer-by-layer kernel
        if abs(u - v) <= tie * n * (p + r):
            shed_low, shed_high = p, r
            done += 1
            m = k0
            qm = (m * m + (n - m) * (n - m)) / (n * n)
            weight[m] += shed_low**2 * (qm / q) ** (horizon - done) * q ** (-done)
            m = n - k2
            qm = (m * m + (n - m) * (n - m)) / (n * n)
            weight[m] += shed_high**2 * (qm / q) ** (horizon - done) * q ** (-done)
            return 0.0, 0.0, done, 1
        low = u > v
        own, other = (u, v) if low else (v, u)
        size = k0 if low else k2
        alpha = size / n
        m = k0 if low else n - k2
        qm = (m * m + (n - m) * (n - m)) / (n * n)
        k = min(run_length(alpha, own, other), horizon - done)
        shift = alpha * other / (1 - alpha)
        drop = (own + shift) * (1 - alpha) / size
        total = drop**2 * (1 - (alpha * alpha / qm) ** k) / (qm - alpha * alpha)
        left = horizon - done
        weight[m] += total * (qm / q) ** left * q ** (-done)
        own = max(alpha**k * (own + shift) - shift, 0.0)
        if low:
            p = own / k0
        else:
            r = own / k2
        done += k
    return p, r, done, 0
