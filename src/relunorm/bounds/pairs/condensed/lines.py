"""Lines above and below relu and its differences, and what rows become by them.

A row takes the line above where its coefficient is positive, and the line below where it is not.
How far relu can be above its line is a convex function of the inputs, known at corners of the box.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import chord, tangent
from relunorm.compiled.jit import kernel_part, loose_part
from relunorm.compiled.operations import eight, keep


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


@loose_part
def relu_rest(rest, at, steep, most, over, high, low, corners):
    """What relu can be above ``steep * z`` at every corner; returns the mean.

    That is (1 - steep) relu(z) or steep relu(-z), the larger one. ``over[high:]`` are values of a
    convex function above z, ``over[low:]`` of one above -z. With those put in it is convex, too.
    Where the number ``most``, which holds everywhere, is less in the mean, that is taken.
    """
    total, bend = eight(0.0), 1.0 - steep
    for c in range(0, corners, 8):
        above, below = np.maximum(eight(over, high + c), 0.0), np.maximum(eight(over, low + c), 0.0)
        one = np.maximum(bend * above, steep * below)
        keep(rest, at + c, 8, one)
        total += one
    mean = np.sum(total) / corners
    if mean <= most:
        return mean
    for c in range(0, corners, 8):
        keep(rest, at + c, 8, eight(most))
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
                for c in range(at, at + corners, 8):
                    keep(rest, c, 8, eight(other, c))
        e.lines[2 * side, k], e.lines[2 * side + 1, k] = g, of_z
        e.peak[side, k] = peak(rest, at, corners)


@kernel_part
def peak(rest, at, corners):
    """The largest one at corners."""
    most = eight(0.0)
    for c in range(at, at + corners, 8):
        most = np.maximum(most, eight(rest, c))
    return np.max(most)


@kernel_part
def _below(lines, k, tilt):
    """A slope below relu: of an open unit 0 or 1 as wished."""
    return float(tilt) if lines[1, k] > 0.0 else lines[0, k]


@loose_part
def through_p(A, at, form, first, last, flat, under, slope, to, above):
    """Coefficients of p, ``A[at + k]``, become those of z; the sizes.

    ``flat[under + k]`` are the slopes below. ``above[at + k]`` get coefficients of the rests.
    """
    steep, bulk = form.lines[0], form.bulk
    size = eight(0.0)
    for k in range(first, last, 8):
        some = min(last - k, 8)
        a = eight(A, at + k, some)
        up = np.maximum(a, 0.0)
        keep(above, at + k, some, up)
        through = up * eight(steep, k, some) + (a - up) * eight(flat, under + k, some)
        keep(slope, to + k, some, through)
        size += abs(a) * eight(bulk, k, some)
    return np.sum(size)


@loose_part
def through_q(ends, at, e, first, last):
    """Coefficients of q, ``B[at + k]``, become those of e and, added, of z; the sizes."""
    high, high_z, low, low_z = e.lines[0], e.lines[1], e.lines[2], e.lines[3]
    size = eight(0.0)
    for k in range(first, last, 8):
        some, to = min(last - k, 8), at + k
        b = eight(ends.B, to, some)
        up = np.maximum(b, 0.0)
        down = b - up
        keep(ends.above, to, some, up)
        keep(ends.below, to, some, -down)
        keep(ends.g, to, some, up * eight(high, k, some) + down * eight(low, k, some))
        of_z = up * eight(high_z, k, some) + down * eight(low_z, k, some)
        keep(ends.slope, to, some, eight(ends.slope, to, some) + of_z)
        size += abs(b) * eight(e.bulk, k, some)
    return np.sum(size)


@kernel_part
def up(value):
    """The next float."""
    return np.nextafter(value, np.inf)


@kernel_part
def down(value):
    """The float before."""
    return np.nextafter(value, -np.inf)
