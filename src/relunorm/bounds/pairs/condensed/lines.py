"""Lines above and below relu and its differences, and what rows become by them.

A row takes the line above where its coefficient is positive, and the line below where it is not.
How far relu can be above its line is a convex function of the inputs, known at corners of the box.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import chord, rise_of, tangent
from relunorm.compiled.jit import kernel_part, steady_part
from relunorm.compiled.operations import keep, lanes, spread, width


@kernel_part
def relu_lines(lines, k, low, high):
    """Column k: the line above relu and its height at 0, and the slope of the line below.

    The height is that of the slope as it is kept, which is rounded: a line of another one would be
    below relu at an end, by more than the width of a difference of near copies.
    """
    lines[0, k], lines[1, k], lines[2, k] = 0.0, 0.0, 0.0
    if low >= 0.0:
        lines[0, k], lines[2, k] = 1.0, 1.0
    elif high > 0.0:
        steep, _ = chord(low, high)
        lines[0, k] = steep
        lines[1, k] = rise_of(float(lines[0, k]), low, high)
        lines[2, k] = tangent(0.0, 1.0, low, high)


@steady_part
def relu_rest(rest, at, steep, most, shift, over, high, low, corners):
    """What relu can be above ``steep * z`` at every corner, and shift; returns the mean without.

    That is (1 - steep) relu(z) or steep relu(-z), the larger one. ``over[high:]`` are values of a
    convex function above z, ``over[low:]`` of one above -z. With those put in it is convex, too.
    Where the number ``most``, which holds everywhere, is less in the mean, that is taken.
    """
    wide, total, steep_ = width(rest), spread(0.0, rest), spread(steep, rest)
    bend, shift_ = spread(1.0 - steep, rest), spread(shift, rest)
    for c in range(0, corners, wide):
        above, below = np.maximum(lanes(over, high + c), 0.0), np.maximum(lanes(over, low + c), 0.0)
        one = np.maximum(bend * above, steep_ * below)
        keep(rest, at + c, wide, one + shift_)
        total += one
    mean = np.sum(total) / corners
    if mean <= most:
        return mean
    for c in range(0, corners, wide):
        keep(rest, at + c, wide, spread(most + shift, rest))
    return most


@kernel_part
def difference_lines(z, y, e, k, at, over, high, low, el, eu, middle, mids, means, corners):
    """Lines above and below q = relu(z + e) - relu(z), the better ones at the middle.

    Column k of ``e.lines``: coefficients of e and of z, above and then below. ``e.rest`` and
    ``e.less`` get what q can be above and below them at every corner, all counted from the middle
    of the box; ``e.peak`` the sizes of what was added up there.

    Args:
        over: of e at every corner, as in `relu_rest`.
        middle: z and e, where lines are compared.
        mids: z, y, e and q at the middle of the box.
        means: of what relu(z) and relu(y) can be above their lines.

    Returns:
        whether any of them is made of lines of relu(z) and relu(y).
    """
    mid_z, mid_e = middle
    joined = False
    z_mid, y_mid, e_mid, q_mid = mids
    for side in range(2):
        sign = 1.0 if side == 0 else -1.0
        rest, lines = e.rest if side == 0 else e.less, e.lines
        first, last = sign * max(sign * el, 0.0), sign * max(sign * eu, 0.0)
        lines[2 * side, k] = (last - first) / (eu - el) if eu > el else 0.0
        lines[2 * side + 1, k] = 0.0
        g = float(lines[2 * side, k])
        # both ends, so that the line holds where they were rounded apart
        most = max(sign * (first - g * el), sign * (last - g * eu))
        shift = sign * (g * e_mid - q_mid)
        if side == 0:
            mean = relu_rest(rest, at, g, most, shift, over, high, low, corners)
        else:
            mean = relu_rest(rest, at, g, most, shift, over, low, high, corners)
        best, size = sign * g * mid_e + mean, abs(g * e_mid) + abs(q_mid)
        for tilt in range(2):
            if side == 0:
                ours, theirs, lift = float(y.lines[0, k]), _below(z.lines, k, tilt), means[1]
                shift = max(z_mid, 0.0) - theirs * z_mid
            else:
                ours, theirs, lift = _below(y.lines, k, tilt), float(z.lines[0, k]), means[0]
                shift = max(y_mid, 0.0) - ours * y_mid
            joint = sign * (ours * (mid_e + mid_z) - theirs * mid_z) + lift
            if joint < best:
                best, size, joined = joint, abs(z_mid) + abs(y_mid), True
                lines[2 * side, k], lines[2 * side + 1, k] = ours, ours - theirs
                _lifted(rest, y.rest if side == 0 else z.rest, at, shift, corners)
        e.peak[side, k] = peak(rest, at, corners) + size
    return joined


@kernel_part
def joined_lines(z, y, e, k, at, over, high, low, el, eu, mids, means, corners):
    """Lines with one slope above and below q: half of e, or those above relu(y) and relu(z).

    Then a row and minus it have the same coefficients. ``e.mean`` and ``e.span`` get what is
    between such lines. Arguments and what is returned are as in `difference_lines`.
    """
    z_mid, y_mid, e_mid, q_mid = mids
    most = max(abs(el), abs(eu)) / 2
    half = relu_rest(e.span, at, 0.5, most, 0.0, over, high, low, corners)
    if means[0] + means[1] < 2 * half:
        of_y, of_z = float(y.lines[0, k]), float(z.lines[0, k])
        shift_y, shift_z = of_y * y_mid - max(y_mid, 0.0), of_z * z_mid - max(z_mid, 0.0)
        _between(e, y.rest, z.rest, at, shift_y - shift_z, shift_y + shift_z, corners)
        size = abs(z_mid) + abs(y_mid)
        joined = True
    else:
        of_y, of_z, size, joined = 0.5, 0.0, abs(e_mid) + abs(q_mid), False
        for c in range(at, at + corners, width(e.mean)):
            keep(e.mean, c, width(e.mean), spread(0.5 * e_mid - q_mid, e.mean))
    lines = e.lines
    lines[0, k] = lines[2, k] = of_y
    lines[1, k] = lines[3, k] = of_y - of_z if joined else 0.0
    e.peak[0, k] = peak(e.mean, at, corners) + peak(e.span, at, corners) + size
    e.peak[1, k] = 0.0
    return joined


@steady_part
def _between(e, above, below, at, apart, both, corners):
    """The middle between two rests, shifts of which are so far apart, and how far they are."""
    wide, shift, less = width(e.mean), spread(apart / 2, e.mean), spread(both / 2, e.mean)
    for c in range(at, at + corners, wide):
        one, other = 0.5 * lanes(above, c), 0.5 * lanes(below, c)
        keep(e.mean, c, wide, (one - other) + shift)
        keep(e.span, c, wide, (one + other) - less)


@steady_part
def join_rest(form, at, shift, corners):
    """What relu is above and below lines of one slope: the rest, which is shifted, or the shift."""
    wide, half = width(form.mean), spread(shift / 2, form.mean)
    for c in range(at, at + corners, wide):
        rest = 0.5 * lanes(form.rest, c)
        keep(form.mean, c, wide, rest + half)
        keep(form.span, c, wide, rest - half)


@kernel_part
def _lifted(rest, other, at, shift, corners):
    """Another rest with a number added to it."""
    wide = width(rest)
    for c in range(at, at + corners, wide):
        keep(rest, c, wide, lanes(other, c) + spread(shift, rest))


@steady_part
def peak(rest, at, corners):
    """The largest absolute value at corners."""
    most, wide = spread(0.0, rest), width(rest)
    for c in range(at, at + corners, wide):
        most = np.maximum(most, abs(lanes(rest, c)))
    return np.max(most)


@kernel_part
def _below(lines, k, tilt):
    """A slope below relu: of an open unit 0 or 1 as wished."""
    return float(tilt) if lines[1, k] > 0.0 else float(lines[0, k])


@steady_part
def through_p(ends, rows, long, ahead, form, first, last, flat, apart):
    """Coefficients of p of some units, in ``A``, become those of z.

    Slopes below are ``flat``, those of a row ``apart`` from those of the one before.
    """
    steep, K, wide = form.lines[0], long - ahead, width(ends.A)
    for r in range(rows):
        for k in range(first, last, wide):
            some = min(last - k, wide)
            a = lanes(ends.A, r * long + ahead + k, some)
            up = np.maximum(a, 0.0)
            through = up * lanes(steep, k, some) + (a - up) * lanes(flat, r * apart + k, some)
            keep(ends.slope, r * K + k, some, through)


@steady_part
def through_q(ends, rows, K, e, first, last):
    """Coefficients of q of some units, in ``B``, become those of e and, added, of z."""
    high, high_z, low, low_z = e.lines[0], e.lines[1], e.lines[2], e.lines[3]
    wide = width(ends.B)
    for r in range(rows):
        for k in range(first, last, wide):
            some, to = min(last - k, wide), r * K + k
            b = lanes(ends.B, to, some)
            up = np.maximum(b, 0.0)
            down = b - up
            keep(ends.g, to, some, up * lanes(high, k, some) + down * lanes(low, k, some))
            of_z = up * lanes(high_z, k, some) + down * lanes(low_z, k, some)
            keep(ends.slope, to, some, lanes(ends.slope, to, some) + of_z)


@steady_part
def through_joined(ends, rows, long, ahead, z, e, first, last):
    """Coefficients of p and q of some units become those of z and e, whatever their signs."""
    steep, of_e, of_z, wide = z.lines[0], e.lines[0], e.lines[1], width(ends.A)
    K = long - ahead
    for r in range(rows):
        for k in range(first, last, wide):
            some, to = min(last - k, wide), r * K + k
            a, b = lanes(ends.A, r * long + ahead + k, some), lanes(ends.B, to, some)
            keep(ends.slope, to, some, a * lanes(steep, k, some) + b * lanes(of_z, k, some))
            keep(ends.g, to, some, b * lanes(of_e, k, some))


@steady_part
def above_p(ends, at, part, K, form, flat, under):
    """Coefficients of what p is above its lines; what those of p can be off by, and a number.

    Slopes below are ``flat[under:]``, and the number is what lines below are lower than p at the
    middle of the box.
    """
    z_mid, p_mid, wide = form.lines[3], form.lines[4], width(ends.A)
    off, lift = spread(0.0, ends.A), spread(0.0, ends.A)
    for k in range(0, K, wide):
        some = min(K - k, wide)
        a = lanes(ends.A, at + k, some)
        up = np.maximum(a, 0.0)
        flattest = lanes(flat, under + k, some)
        keep(ends.part, part + k, some, up)
        off += abs(a) * lanes(form.bulk, k, some)
        lift += (up - a) * (lanes(p_mid, k, some) - flattest * lanes(z_mid, k, some))
    return np.sum(off), np.sum(lift)


@steady_part
def above_q(ends, at, K, e):
    """Coefficients of what q is above and below its lines; what those of q can be off by."""
    wide, off = width(ends.B), spread(0.0, ends.B)
    for k in range(0, K, wide):
        some = min(K - k, wide)
        b = lanes(ends.B, at + k, some)
        up = np.maximum(b, 0.0)
        keep(ends.above, at + k, some, up)
        keep(ends.below, at + k, some, up - b)
        off += abs(b) * lanes(e.bulk, k, some)
    return np.sum(off)


@steady_part
def around(ends, a_at, at, K, z, e):
    """Sizes of coefficients of p and q; what those can be off by."""
    wide, off = width(ends.A), spread(0.0, ends.A)
    for k in range(0, K, wide):
        some = min(K - k, wide)
        a, b = abs(lanes(ends.A, a_at + k, some)), abs(lanes(ends.B, at + k, some))
        keep(ends.above, at + k, some, a)
        keep(ends.below, at + k, some, b)
        off += a * lanes(z.bulk, k, some) + b * lanes(e.bulk, k, some)
    return np.sum(off)


@kernel_part
def up(value):
    """The next float."""
    return np.nextafter(value, np.inf)


@kernel_part
def down(value):
    """The float before."""
    return np.nextafter(value, -np.inf)
