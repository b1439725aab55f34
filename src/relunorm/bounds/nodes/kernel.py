"""The backward linear bound of searches and their proofs, compiled, on a triangular form.

On a box (and maybe half-spaces) a piecewise linear network is n relu units and some linear rows,

    z_i = M_i . (x, y_0 .. y_{i-1}) + c_i + e_i,   |e_i| <= err_i,   y_i = max(z_i, 0),

in an order in which a unit reads only earlier ones. Every row of M has d + n columns. After the n
unit rows come K rows known to be >= 0 (signs that were decided, sides of a polytope) and G goal
rows. The term e_i is what rounding hid when stable units were folded in.

An upper bound on a row: go through the units from the last to the first and replace y_j by a line
above it if its coefficient is positive, by alpha_j z_j with any alpha_j in [0, 1] if it is
negative; what is left is linear in x and is maximised over the box. Multiples beta >= 0 of the
known rows may be added first (Xu et al. 2021, Wang et al. 2021, "alpha, beta-CROWN"). Every alpha
and beta gives a bound, so tuning needs no care and a proof is a list of numbers. A unit that is
never negative is its own line.

Rounding. Coefficients are used as computed. The exact coefficient of y_k is w_k + sum_j a_j M_jk
for the multipliers a_j actually used, and the computed one differs by at most
gamma sum_j |a_j M_jk|, whatever the order of summation. Times the largest |y_k| and summed over k
this is gamma sum_j |a_j| mag_j, where mag_j = |c_j| + sum_k |M_jk| max |(x, y)_k| belongs to the
row and the box. So the error of a bound costs one multiplication a unit, and it follows the bounds
of the units instead of the norms of whole layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.bounds import relaxation
from relunorm.bounds.relaxation import EPS, TINY
from relunorm.compiled import jit

#: No reordering of sums, so that what a proof rests on comes out the same everywhere. Nothing here
#: allocates (see `jit`), and no array is handed back to Python.
compiled: Any = jit.kernel

#: The same for parts of kernels, which Python cannot call.
part: Any = jit.kernel_part

#: For what only steers a search: sums may be reordered, which makes them vector instructions.
loosely: Any = jit.loose_part

chord, tangent = part(relaxation.relu_chord), part(relaxation.tangent)
rise_of = part(relaxation.relu_rise)


@part
def gamma(n):  # type: ignore[no-untyped-def]
    """A bound on the relative error of a sum of n products, doubled for the sum of magnitudes."""
    return (2.0 * n + 16.0) * EPS


@part
def support(v, lo, hi, ball, x):  # type: ignore[no-untyped-def]
    """Upper bound of v . x over a box, or the part of it in a ball; fills x with a maximiser.

    ``ball`` is empty, or holds the centre, the radius and the norm (2 or 1); coordinates behind
    those of the centre are free of it. The value is not rounded outward: the caller adds what sums
    of len(lo) products can lose.
    """
    d = len(lo)
    total = 0.0
    for k in range(d):
        x[k] = hi[k] if v[k] > 0.0 else lo[k]
        total += v[k] * x[k]
    if len(ball) == 0 or outside(x, ball) <= 0.0:
        return total
    total = 0.0
    for k in range(len(ball) - 2, d):
        total += v[k] * x[k]
    return total + _clipped(v, lo, hi, ball, x)


@part
def outside(x, ball):  # type: ignore[no-untyped-def]
    """How far a point is from the centre beyond the radius (for norm 2: squares)."""
    d = len(ball) - 2
    total = 0.0
    for k in range(d):
        step = abs(x[k] - ball[k])
        total += step if ball[d + 1] == 1.0 else step * step
    return total - (ball[d] if ball[d + 1] == 1.0 else ball[d] * ball[d])


@part
def _clipped(v, lo, hi, ball, x):  # type: ignore[no-untyped-def]
    """Over a box and a ball at once, by the multiplier of the ball: every one gives a bound.

    For the norms 2 and 1, with w the multiplier and c the centre:
    max over the box of v.x - w |x - c|^2 + w r^2, and of v.x - w |x - c|_1 + w r.
    """
    d = len(ball) - 2
    one = ball[d + 1] == 1.0
    radius = ball[d]
    largest, squares = 0.0, 0.0
    for k in range(d):
        largest = max(largest, abs(v[k]))
    if largest == 0.0 or radius == 0.0:
        total = 0.0
        for k in range(d):
            x[k] = min(max(ball[k], lo[k]), hi[k])
            total += v[k] * ball[k]
        return total
    for k in range(d):
        squares += (v[k] / largest) * (v[k] / largest)
    low = 0.0
    high = largest if one else largest * np.sqrt(squares) / (2.0 * radius)
    for _ in range(60):  # a side of the box may hold x away from the centre
        _step(v, lo, hi, ball, high, x)
        if outside(x, ball) <= 0.0:
            break
        low, high = high, 4.0 * high
    for _ in range(40):
        w = 0.5 * (low + high)
        _step(v, lo, hi, ball, w, x)
        if outside(x, ball) > 0.0:
            low = w
        else:
            high = w
    w = high
    _step(v, lo, hi, ball, w, x)
    total = w * radius if one else w * radius * radius
    for k in range(d):
        step = abs(x[k] - ball[k])
        total += v[k] * x[k] - (w * step if one else w * step * step)
    return total


@part
def _step(v, lo, hi, ball, w, x):  # type: ignore[no-untyped-def]
    """The maximiser over the box with the ball's multiplier w."""
    d = len(ball) - 2
    for k in range(d):
        if ball[d + 1] == 1.0:
            x[k] = min(max(ball[k], lo[k]), hi[k])
            if v[k] > w:
                x[k] = hi[k]
            elif v[k] < -w:
                x[k] = lo[k]
        else:
            x[k] = min(max(ball[k] + 0.5 * v[k] / max(w, 1e-300), lo[k]), hi[k])


@part
def backward(v, const, on, alpha, ball, size, n, read, work, x):  # type: ignore[no-untyped-def]
    """Upper bound of v . (x, y) + const on a node or a child; v becomes the linear form in x.

    ``const`` must carry the error of the row itself; of n units it reads the first ``read``. Fills
    ``work.lam`` (the coefficients met), ``work.a`` (what was handed on) and ``x`` (where the form
    is largest).

    Units that read none of each other, as those of a layer do, are replaced together, and their
    rows added by fours: sums of the same order as one by one, but v is read and written less often.
    """
    M, c, err, mag = on.rows, on.const, on.err, on.mag
    steep, rise, reads, lam, a, some = on.steep, on.rise, on.reads, work.lam, work.a, work.some
    d = len(on.lo)
    error, rounding = 0.0, gamma(n + d)
    i = read - 1
    while i >= 0:
        count, last = 0, -1
        while i > last:
            # no branches: signs of coefficients cannot be foretold
            w, shift, slope, weight = v[d + i], rise[i], alpha[i], err[i] + mag[i]
            lam[i] = w
            lift, more = w * shift, rounding * w * shift
            const += lift if w > 0.0 else 0.0
            error += more if w > 0.0 else 0.0
            above, below = w * steep[i], w * (slope if shift != 0.0 else 1.0)
            w = above if w > 0.0 else below
            a[i] = w
            lift, more = w * c[i], abs(w) * weight
            const += lift if w != 0.0 else 0.0
            error += more if w != 0.0 else 0.0
            some[count] = i
            count += 1 if w != 0.0 else 0
            last = max(last, int(reads[i]))
            i -= 1
        whole = count - count % 4
        for g in range(0, whole, 4):
            _add_four(v, M, a, d + i + 1, some[g], some[g + 1], some[g + 2], some[g + 3])
        for g in range(whole, count):
            w, row = a[some[g]], M[some[g]]
            for k in range(d + i + 1):
                v[k] += w * row[k]
    swing = abs(const)
    for k in range(d):
        swing += abs(v[k]) * size[k]
    total = const + support(v, on.lo, on.hi, ball, x)
    return total + error * (1.0 + 1e-9) + rounding * swing + TINY


@part
def _add_four(v, M, a, width, i, j, k, m):  # type: ignore[no-untyped-def]
    """Add the rows of four units, times what is handed on to them, to the first entries of v."""
    of_i, of_j, of_k, of_m = a[i], a[j], a[k], a[m]
    row_i, row_j, row_k, row_m = M[i], M[j], M[k], M[m]
    for h in range(width):
        v[h] = (((v[h] + of_i * row_i[h]) + of_j * row_j[h]) + of_k * row_k[h]) + of_m * row_m[h]


@part
def line_above(low, high):  # type: ignore[no-untyped-def]
    """Slope and shift of the line above a unit: no shift where it is its own line."""
    if low < 0.0:
        return chord(low, high)
    return 1.0, 0.0


@part
def last_read(row, d, n):  # type: ignore[no-untyped-def]
    """The last of n units that a row reads, or -1."""
    j = n - 1
    while j >= 0 and row[d + j] == 0.0:
        j -= 1
    return j


@part
def _line(z, lam, alpha, steep, rise):  # type: ignore[no-untyped-def]
    """The value at z of the line that `backward` chose for a unit."""
    if rise == 0.0:
        return z
    if lam > 0.0:
        return steep * z + rise
    if lam < 0.0:
        return alpha * z
    return max(z, 0.0)


def _forward(x, on, lam, alpha, n, z, y):  # type: ignore[no-untyped-def]
    """Pre-activations z and values y of the relaxed network at x: the lines `backward` chose."""
    M, c, steep, rise = on.rows, on.const, on.steep, on.rise
    d = len(x)
    for j in range(n):
        total = c[j]
        for k in range(d):
            total += M[j, k] * x[k]
        for k in range(j):
            total += M[j, d + k] * y[k]
        z[j] = total
        y[j] = _line(total, lam[j], alpha[j], steep[j], rise[j])


def _row_at(row, const, x, y, n):  # type: ignore[no-untyped-def]
    """A linear row at a point (x, y)."""
    d = len(x)
    total = const
    for k in range(d):
        total += row[k] * x[k]
    for k in range(n):
        total += row[d + k] * y[k]
    return total


forward, row_at = loosely(_forward), loosely(_row_at)


@part
def adam(m1, m2, i, slope, rate):  # type: ignore[no-untyped-def]
    """The step down of a number whose bound has this slope (Kingma and Ba, 2015)."""
    m1[i] += 0.1 * (slope - m1[i])
    m2[i] += 0.02 * (slope * slope - m2[i])
    step = rate * m1[i] / np.sqrt(m2[i] if m2[i] > 0.0 else 1.0)
    return step if m2[i] > 0.0 else 0.0


@loosely
def evaluate(x, M, c, n, y, jump, at_zero):  # type: ignore[no-untyped-def]
    """Values y of the units themselves at x, and in x those of steps."""
    d = len(x)
    for j in range(n):
        total = c[j]
        for k in range(d):
            total += M[j, k] * x[k]
        for k in range(j):
            total += M[j, d + k] * y[k]
        y[j] = max(total, 0.0)
        if jump[j] >= 0:
            x[jump[j]] = at_zero[j] if total == 0.0 else 1.0 if total > 0.0 else 0.0
