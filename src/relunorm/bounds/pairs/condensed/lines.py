"""Lines above and below relu and its differences, and what rows become by them.

A row takes the line above where its coefficient is positive, and the line below where it is not.
How far relu can be above its line is a convex function of the inputs, known at corners of the box.
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
def relu_rest(rest, at, steep, most, over, high, low, corners):
    """What relu can be above ``steep * z`` at every corner; returns the mean.

    That is (1 - steep) relu(z) or steep relu(-z), the larger one. ``over[high:]`` are values of a
    convex function above z, ``over[low:]`` of one above -z. With those put in it is convex, too.
    Where the number ``most``, which holds everywhere, is less in the mean, that is taken.
    """
    total, bend = 0.0, 1.0 - steep
    for c in range(corners):
        rest[at + c] = max(bend * max(over[high + c], 0.0), steep * max(over[low + c], 0.0))
        total += rest[at + c]
    if total <= most * corners:
        return total / corners
    for c in range(corners):
        rest[at + c] = most
    return most


@kernel_part
def difference_lines(z, y, e, k, at, over, high, low, el, eu, middle, means, corners):
    """Lines above and below q = relu(z + e) - relu(z), the better ones at the middle.

    Column k of ``e.lines``: coefficients of e and of z, above and then below. ``e.rest`` and
    ``e.less`` get what q can be above and below them at every corner.

    Args:
        over: of e at every corner, as in `relu_rest`.
        middle: z and e.
        means: of what relu(z) and relu(y) can be above their lines.
    """
    mid_z, mid_e = middle
    for side in range(2):
        sign = 1.0 if side == 0 else -1.0
        rest = e.rest if side == 0 else e.less
        first, last = sign * max(sign * el, 0.0), sign * max(sign * eu, 0.0)
        g = (last - first) / (eu - el) if eu > el else 0.0
        # both ends, so that the line holds where they were rounded apart
        most = max(sign * (first - g * el), sign * (last - g * eu))
        if side == 0:
            mean = relu_rest(rest, at, g, most, over, high, low, corners)
        else:
            mean = relu_rest(rest, at, g, most, over, low, high, corners)
        best, of_z = sign * g * mid_e + mean, 0.0
        for tilt in range(2):
            if side == 0:
                ours, theirs, lift = y.lines[0, k], _below(z.lines, k, tilt), means[1]
            else:
                ours, theirs, lift = _below(y.lines, k, tilt), z.lines[0, k], means[0]
            joint = sign * (ours * (mid_e + mid_z) - theirs * mid_z) + lift
            if joint < best:
                best, g, of_z = joint, ours, ours - theirs
                other = y.rest if side == 0 else z.rest
                for c in range(at, at + corners):
                    rest[c] = other[c]
        e.lines[2 * side, k], e.lines[2 * side + 1, k] = g, of_z
        e.peak[side, k] = peak(rest, at, corners)


@kernel_part
def peak(rest, at, corners):
    """The largest one at corners."""
    most = 0.0
    for c in range(at, at + corners):
        most = max(most, rest[c])
    return most


@kernel_part
def _below(lines, k, tilt):
    """A slope below relu: of an open unit 0 or 1 as wished."""
    return float(tilt) if lines[1, k] > 0.0 else lines[0, k]


@loose_part
def through_p(A, at, form, first, last, flat, under, slope, to):
    """Coefficients of p, ``A[at + k]``, become those of z; the sizes.

    ``flat[under + k]`` are the slopes below.
    """
    lines, top, whole = form.lines, form.top, form.whole
    size = 0.0
    for k in range(first, last):
        a = A[at + k]
        up = max(a, 0.0)
        through = up * lines[0, k] + (a - up) * flat[under + k]
        slope[to + k] = through
        size += abs(a) * (top[k] + form.peak[0, k]) + abs(through) * whole[k]
    return size


@loose_part
def through_q(B, at, e, first, last, size_z, slope, g, to):
    """Coefficients of q, ``B[at + k]``, become those of e and, added, of z."""
    lines, top, whole, peak = e.lines, e.top, e.whole, e.peak
    size = 0.0
    for k in range(first, last):
        b = B[at + k]
        up = max(b, 0.0)
        down = b - up
        of_e = up * lines[0, k] + down * lines[2, k]
        more = up * lines[1, k] + down * lines[3, k]
        lift = up * peak[0, k] - down * peak[1, k]
        g[to + k] = of_e
        slope[to + k] += more
        size += abs(b) * top[k] + lift + abs(more) * size_z[k] + abs(of_e) * whole[k]
    return size


@kernel_part
def up(value):
    """The next float."""
    return np.nextafter(value, np.inf)


@kernel_part
def down(value):
    """The float before."""
    return np.nextafter(value, -np.inf)
