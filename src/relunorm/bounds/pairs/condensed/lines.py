"""Lines above and below relu and its differences, and what rows become by them.

A row takes the line above where its coefficient is positive, and the line below where it is not.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import chord, tangent
from relunorm.compiled.jit import kernel_part, loose_part


@kernel_part
def relu_lines(lines, k, low, high):
    """Column k: the line above relu and its height at 0, and the slope of the line below."""
    steep, rise, flat = 0.0, 0.0, 0.0
    if low >= 0.0:
        steep, flat = 1.0, 1.0
    elif high > 0.0:
        steep, rise = chord(low, high)
        flat = tangent(0.0, 1.0, low, high)
    lines[0, k], lines[1, k], lines[2, k] = steep, rise, flat


@kernel_part
def difference_lines(of_q, k, of_z, of_y, zl, zu, el, eu):
    """Lines above and below q = relu(z + e) - relu(z), the better ones at the middle.

    Column k of ``of_q``: coefficients of e, of z and the constant, above and then below. Those of
    ``of_z`` and ``of_y`` are the lines of relu(z) and relu(z + e).
    """
    e, z = el / 2 + eu / 2, zl / 2 + zu / 2
    for side in range(2):
        sign = 1.0 if side == 0 else -1.0
        first, last = sign * max(sign * el, 0.0), sign * max(sign * eu, 0.0)
        g = (last - first) / (eu - el) if eu > el else 0.0
        # both ends, so that the line holds where they were rounded apart
        c = sign * max(sign * (first - g * el), sign * (last - g * eu))
        best, best_k = sign * (g * e + c), 0.0
        for tilt in range(2):
            if side == 0:
                ours, theirs, lift = of_y[0, k], _below(of_z, k, tilt), of_y[1, k]
            else:
                ours, theirs, lift = _below(of_y, k, tilt), of_z[0, k], -of_z[1, k]
            joint = sign * (ours * (e + z) + lift - theirs * z)
            if joint < best:
                best, best_k = joint, ours - theirs
                g, c = ours, lift
        of_q[3 * side, k], of_q[3 * side + 1, k], of_q[3 * side + 2, k] = g, best_k, c


@kernel_part
def _below(lines, k, tilt):
    """A slope below relu: of an open unit 0 or 1 as wished."""
    return float(tilt) if lines[1, k] > 0.0 else lines[0, k]


@loose_part
def through_p(A, at, form, first, last, flat, under, slope, to):
    """Coefficients of p, ``A[at + k]``, become those of z; what is added, and the sizes.

    ``flat[under + k]`` are the slopes below.
    """
    lines, top, whole = form.lines, form.top, form.whole
    value, size = 0.0, 0.0
    for k in range(first, last):
        a = A[at + k]
        up = max(a, 0.0)
        through = up * lines[0, k] + (a - up) * flat[under + k]
        slope[to + k] = through
        value += up * lines[1, k]
        size += abs(a) * (top[k] + lines[1, k]) + abs(through) * whole[k]
    return value, size


@loose_part
def through_q(B, at, e, first, last, size_z, slope, g, to):
    """Coefficients of q, ``B[at + k]``, become those of e and, added, of z."""
    lines, top, whole = e.lines, e.top, e.whole
    value, size = 0.0, 0.0
    for k in range(first, last):
        b = B[at + k]
        up = max(b, 0.0)
        down = b - up
        of_e = up * lines[0, k] + down * lines[3, k]
        more = up * lines[1, k] + down * lines[4, k]
        lift = up * lines[2, k] + down * lines[5, k]
        g[to + k] = of_e
        slope[to + k] += more
        value += lift
        size += abs(b) * top[k] + abs(lift) + abs(more) * size_z[k] + abs(of_e) * whole[k]
    return value, size


@loose_part
def _largest(A, at, center, half, far):
    value, size = A[at], abs(A[at])
    for j in range(len(center)):
        c = A[at + 1 + j]
        value += c * center[j] + abs(c) * half[j]
        size += abs(c) * far[j]
    return value, size


@kernel_part
def largest(flat, memory, at, size):
    """The largest value over the box of row ``A[at:]``, whose size so far is given, rounded up."""
    ends = memory.ends
    value, more = _largest(ends.A, at, memory.center, memory.half, memory.far)
    value = up(value + (flat.rounding * (more + size) + flat.tiny))
    return value if value == value else np.inf


@kernel_part
def up(value):
    """The next float."""
    return np.nextafter(value, np.inf)


@kernel_part
def down(value):
    """The float before."""
    return np.nextafter(value, -np.inf)
