"""Bounds on Jacobians, for given intervals of the slopes of the units, compiled.

One entry: forwards, an interval of the derivative of every pre-activation; backwards, lines above
(slope of the unit) x (its derivative), so that all readers of a unit see the same one. A norm:
backwards, an interval of the derivative of every output by every unit, down to the layer whose
affine forms are known, and their product.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import inner, kernel_part

#: Rounds of turning rows at most, and the cosine below which two are at a right angle.
MOST_SWEEPS, RIGHT_ANGLE = 40, 1e-15

EPS = 2.0**-52


@kernel_part
def steepest(net, columns, slopes, output, axis, sign, rates):  # type: ignore[no-untyped-def]
    """A bound on sign times the derivative of an output along an input.

    Args:
        columns: the weights, every matrix column by column.
        slopes: (2, units), the least and the largest slope of every unit.
        rates: memory: the intervals of the derivatives of pre-activations, the middles and the
            half-widths of those of activations, and the coefficients of the latter.
    """
    layers = net.shape[1]
    u, v, c = rates[:2], rates[2:4], rates[4]
    for q in range(layers):
        begin, end = net.first[q], net.first[q + 1]
        _derivatives(net, columns, q, axis, v, u[0, begin:end], u[1, begin:end])
        for i in range(begin, end):
            a, b = u[0, i] - u[1, i], u[0, i] + u[1, i]
            u[0, i], u[1, i], c[i] = a, b, 0.0
            w, x, y, z = a * slopes[0, i], a * slopes[1, i], b * slopes[0, i], b * slopes[1, i]
            least, most = min(w, x, y, z), max(w, x, y, z)
            v[0, i], v[1, i] = 0.5 * (least + most), 0.5 * (most - least)
    total = _read(net, layers, output, axis, sign, c)
    for q in range(layers - 1, -1, -1):
        for i in range(net.first[q], net.first[q + 1]):
            if c[i] == 0.0:
                continue
            before, after = slopes[0, i], slopes[1, i]
            if c[i] < 0.0:
                before, after = after, before
            slope = after if u[0, i] >= 0.0 else before
            if u[0, i] < 0.0 < u[1, i]:
                slope = (after * u[1, i] - before * u[0, i]) / (u[1, i] - u[0, i])
                # equal but for rounding
                one, other = c[i] * (after - slope) * u[1, i], c[i] * (before - slope) * u[0, i]
                total += max(one, other)
            if slope != 0.0:
                total += _read(net, q, i - net.first[q], axis, c[i] * slope, c)
    return total


@inner
def _derivatives(net, columns, layer, axis, v, middle, radius):  # type: ignore[no-untyped-def]
    """Middles and half-widths of the derivatives of a layer along an input."""
    n, d = len(middle), net.shape[0]
    for i in range(n):
        middle[i], radius[i] = 0.0, 0.0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source, start = net.source[term], net.start[term]
        if source == 0:
            for i in range(n):
                middle[i] += net.weights[start + i * d + axis]
            continue
        for j in range(net.first[source - 1], net.first[source]):
            m, r = v[0, j], v[1, j]
            column = columns[start : start + n]
            start += n
            if r != 0.0:
                for i in range(n):
                    radius[i] += abs(column[i]) * r
            if m != 0.0:
                for i in range(n):
                    middle[i] += column[i] * m


@inner
def _read(net, layer, row, axis, factor, c):  # type: ignore[no-untyped-def]
    """Add a multiple of a row to the coefficients of the units it reads; returns the constant."""
    own = 0.0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            own += factor * net.weights[net.start[term] + row * net.shape[0] + axis]
            continue
        offset = net.first[source - 1]
        width = net.first[source] - offset
        begin = net.start[term] + row * width
        for j in range(width):
            c[offset + j] += factor * net.weights[begin + j]
    return own


@kernel_part
def steepest_norm(net, slopes, forms, exact, rates, norm, g, jac):  # type: ignore[no-untyped-def]
    """A bound on the operator norm of the Jacobian times ``rates``, column by column.

    Args:
        slopes: (2, units), the least and the largest slope of every unit.
        forms: (units, d + 1), of the pre-activations of layers up to ``exact``.
        g: memory, (3, units); its last row becomes what a unit of these layers may change, roughly.
        jac: memory, (2, outputs, d).
    """
    d, layers, outputs = net.shape[0], net.shape[1], net.shape[3]
    for i in range(net.shape[2]):
        g[2, i] = 0.0
    for o in range(outputs):
        lo, hi = jac[0, o], jac[1, o]
        for i in range(net.shape[2]):
            g[0, i], g[1, i] = 0.0, 0.0
        for k in range(d):
            lo[k], hi[k] = 0.0, 0.0
        _pull(net, layers, o, 1.0, 1.0, g, lo, hi)
        for q in range(layers - 1, -1, -1):
            for i in range(net.first[q], net.first[q + 1]):
                if g[0, i] == 0.0 and g[1, i] == 0.0:
                    continue
                a, b = _times(g[0, i], g[1, i], slopes[0, i], slopes[1, i])
                if q > exact:
                    _pull(net, q, i - net.first[q], a, b, g, lo, hi)
                    continue
                width = max(abs(g[0, i]), abs(g[1, i])) * (slopes[1, i] - slopes[0, i])
                for k in range(d):
                    w = forms[i, k]
                    lo[k] += w * a if w > 0 else w * b
                    hi[k] += w * b if w > 0 else w * a
                    g[2, i] += width * abs(w) * rates[k]
    return _norm_between(jac, rates, norm)


@kernel_part
def _norm_between(jac, rates, norm):  # type: ignore[no-untyped-def]
    """The largest norm of a matrix between two, or a bound on it; overwrites both."""
    outputs, d = jac.shape[1], jac.shape[2]
    rest = np.inf
    if norm == 2.0 and outputs > 1:
        # the middle matrix, and how far others are from it in the Frobenius norm
        square = 0.0
        for o in range(outputs):
            for k in range(d):
                radius = 0.5 * (jac[1, o, k] - jac[0, o, k]) * rates[k]
                square += radius * radius
        rest = np.sqrt(square)
    for o in range(outputs):
        for k in range(d):
            low, high = jac[0, o, k] * rates[k], jac[1, o, k] * rates[k]
            jac[1, o, k] = 0.5 * (low + high)
            jac[0, o, k] = max(abs(low), abs(high))
    bound = _norm(jac[0], norm)
    if rest < bound:
        middle = jac[1]
        if outputs > d:  # as many rows to turn as the shorter side has
            middle = jac[0].reshape((d, outputs))
            for o in range(outputs):
                for k in range(d):
                    middle[k, o] = jac[1, o, k]
        bound = min(bound, rest + largest_singular_value(middle))
    return bound * (1.0 + 4.0 * (outputs + d + 8) * EPS)


@kernel_part
def largest_singular_value(rows):  # type: ignore[no-untyped-def]
    """The spectral norm of a matrix, which is overwritten, rounded up.

    Pairs of rows are turned until all are at right angles to one another; then the longest row is
    as long as the largest singular value (one-sided Jacobi rotations, Hestenes 1958). However far
    that went, no eigenvalue of their products exceeds the sum of a row of them (Gershgorin).
    """
    n, d = rows.shape
    unit = 0.0
    for p in range(n):
        for k in range(d):
            unit = max(unit, abs(rows[p, k]))
    if unit == 0.0:
        return 0.0
    for p in range(n):
        for k in range(d):
            rows[p, k] /= unit
    for _ in range(MOST_SWEEPS):
        turned = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                a, b, c = 0.0, 0.0, 0.0
                for k in range(d):
                    a += rows[p, k] * rows[p, k]
                    b += rows[q, k] * rows[q, k]
                    c += rows[p, k] * rows[q, k]
                if abs(c) <= RIGHT_ANGLE * np.sqrt(a) * np.sqrt(b):
                    continue
                turned = True
                ratio = (b - a) / (2.0 * c)
                tangent = 1.0 / (abs(ratio) + np.sqrt(1.0 + ratio * ratio))
                tangent = tangent if ratio >= 0.0 else -tangent
                cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
                for k in range(d):
                    x, y = rows[p, k], rows[q, k]
                    rows[p, k] = cosine * (x - tangent * y)
                    rows[q, k] = cosine * (y + tangent * x)
        if not turned:
            break
    longest = 0.0
    for p in range(n):
        total = 0.0
        for q in range(n):
            product = 0.0
            for k in range(d):
                product += rows[p, k] * rows[q, k]
            total += abs(product)
        longest = max(longest, total)
    # a turn moves a row by a few roundings, and each row is turned once with every other a round
    return unit * np.sqrt(longest) * (1.0 + (8.0 * MOST_SWEEPS * n + 4.0 * (n + d)) * EPS)


@kernel_part
def _norm(size, norm):  # type: ignore[no-untyped-def]
    """The operator norm of a non-negative matrix, or for 2 with several rows a bound on it."""
    columns, rows, square = 0.0, 0.0, 0.0
    for k in range(size.shape[1]):
        total = 0.0
        for o in range(size.shape[0]):
            total += size[o, k]
        columns = max(columns, total)
    for o in range(size.shape[0]):
        total, squares = 0.0, 0.0
        for k in range(size.shape[1]):
            total += size[o, k]
            squares += size[o, k] * size[o, k]
        rows = max(rows, total)
        square += squares
    if norm == 1.0:
        return columns
    if norm == 2.0:
        return min(np.sqrt(square), np.sqrt(rows * columns)) if len(size) > 1 else np.sqrt(square)
    return rows if norm == np.inf else np.inf  # no bound


@inner
def _times(a, b, low, high):  # type: ignore[no-untyped-def]
    """The interval [a, b] times [low, high]."""
    w, x, y, z = a * low, a * high, b * low, b * high
    return min(w, x, y, z), max(w, x, y, z)


@kernel_part
def _pull(net, layer, row, a, b, g, lo, hi):  # type: ignore[no-untyped-def]
    """Add [a, b] times a row of a layer's matrices to the intervals of its sources."""
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            width, offset = net.shape[0], 0
            down, up = lo, hi
        else:
            offset = net.first[source - 1]
            width = net.first[source] - offset
            down, up = g[0], g[1]
        begin = net.start[term] + row * width
        for j in range(width):
            w = net.weights[begin + j]
            if w > 0.0:
                down[offset + j] += w * a
                up[offset + j] += w * b
            elif w < 0.0:
                down[offset + j] += w * b
                up[offset + j] += w * a
