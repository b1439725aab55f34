"""A bound on the derivative of one output along one input, for given slopes of the units, compiled.

Forwards, an interval of the derivative of every pre-activation; backwards, lines above (slope of
the unit) x (its derivative), so that all readers of a unit see the same one. Both searches for
derivatives, `slope` and `branch`, call it.
"""

from __future__ import annotations

from relunorm.compiled.jit import inner, kernel_part


@kernel_part
def steepest(net, slopes, output, axis, sign, rates):  # type: ignore[no-untyped-def]
    """A bound on sign times the derivative of an output along an input.

    Args:
        slopes: (2, units), the least and the largest slope of every unit.
        rates: memory: the intervals of the derivatives of pre-activations and of activations, and
            the coefficients of the latter.
    """
    layers = net.shape[1]
    u, v, c = rates[:2], rates[2:4], rates[4]
    for q in range(layers):
        for i in range(net.first[q], net.first[q + 1]):
            a, b = _derivative(net, q, i - net.first[q], axis, v)
            u[0, i], u[1, i], c[i] = a, b, 0.0
            w, x, y, z = a * slopes[0, i], a * slopes[1, i], b * slopes[0, i], b * slopes[1, i]
            v[0, i], v[1, i] = min(w, x, y, z), max(w, x, y, z)
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
                total += c[i] * (after - slope) * u[1, i]
            total += _read(net, q, i - net.first[q], axis, c[i] * slope, c)
    return total


@inner
def _derivative(net, layer, row, axis, v):  # type: ignore[no-untyped-def]
    """The interval of a row's derivative along an input, from those of the units it reads."""
    low, high = 0.0, 0.0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            w = net.weights[net.start[term] + row * net.shape[0] + axis]
            low, high = low + w, high + w
            continue
        offset = net.first[source - 1]
        width = net.first[source] - offset
        begin = net.start[term] + row * width
        for j in range(width):
            w = net.weights[begin + j]
            low += w * v[0, offset + j] if w > 0.0 else w * v[1, offset + j]
            high += w * v[1, offset + j] if w > 0.0 else w * v[0, offset + j]
    return low, high


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
