"""The affine forms of a layer's units on a cell, kept up to date column by column; compiled.

On a cell with known bits below a layer, its pre-activations are affine. Depth-first search visits
cells whose bits differ little, so a layer's forms are updated by the columns of the units whose
bit changed. They are computed afresh every `REFRESH` columns, and whenever what was taken away was
much larger than what is left (`SHRUNK`), so that the rounding in a form is that of the terms that
are in it now.

That rounding is estimated by two sums of absolute values over the active paths: ``rate`` of the
terms of the gradient, ``size`` of these and of the constant's. A gradient is off by the rounding of
its own terms, however large the constant beside it.

Forms are stored coordinate by coordinate, ``forms[k, unit]`` (k = d: the constant), and the
network's matrices column by column (`pack.pack` with ``by_columns``), so that all loops over units
are vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.compiled.groups import group
from relunorm.compiled.jit import inner
from relunorm.matrix import Array
from relunorm.regions.kernels.pack import ROUNDING, TOLERANCE, Packed

#: Columns added to and taken from a layer's forms before they are computed afresh.
REFRESH = 32
#: Forms are computed afresh when their terms once added up to more than this many times as much.
SHRUNK = 16.0


@group
class Columns(NamedTuple):
    """The forms of all layers on the path of a search, and the bits they were computed with."""

    bits: NDArray[np.uint8]
    used: NDArray[np.uint8]  # the bits the forms of the next layer were computed with
    age: NDArray[np.int64]  # per layer: columns exchanged since, -1 if its forms are not valid
    forms: Array  # (d + 1, units)
    size: Array  # what is added up for each form, in absolute values
    rate: Array  # the part of it that belongs to the gradient
    peaks: Array  # (2, units): the largest size and rate since the refresh
    flat: NDArray[np.uint8]  # whether a gradient is only rounding, so that the unit is constant
    band: Array  # how far from zero a form must be to count as a sign


def new_columns(net: Packed) -> Columns:
    """Nothing decided, nothing computed."""
    d, layers, units, _ = net.shape.tolist()
    numbers, bytes_ = np.zeros((d + 6, units)), np.zeros((3, units), np.uint8)
    age = np.full(layers, -1, np.int64)
    forms, sizes, peaks = numbers[: d + 1], numbers[d + 1 : d + 3], numbers[d + 3 : d + 5]
    return Columns(
        bytes_[0], bytes_[1], age, forms, sizes[0], sizes[1], peaks, bytes_[2], numbers[d + 5]
    )


@inner
def start_layer(net, columns, layer):  # type: ignore[no-untyped-def]
    """Make the forms and bands of a layer those under the current bits."""
    begin, end = net.first[layer], net.first[layer + 1]
    if not _exchange(net, columns, layer):
        _compute(net, columns, layer)
    for k in range(layer + 1, len(columns.age)):
        columns.age[k] = -1
    _measure(columns, begin, end)


@inner
def _measure(columns, begin, end):  # type: ignore[no-untyped-def]
    """The bands of a layer's forms, and which gradients are nothing but rounding.

    Those stay in the forms: they are what later layers read.
    """
    forms, band, flat = columns.forms, columns.band[begin:end], columns.flat[begin:end]
    size, rate = columns.size[begin:end], columns.rate[begin:end]
    d = len(forms) - 1
    for i in range(end - begin):
        band[i] = 0.0
    for k in range(d):
        row = forms[k, begin:end]
        for i in range(end - begin):
            band[i] += row[i] * row[i]
    around = 1.0 + np.sqrt(d)
    for i in range(end - begin):
        length, noise = np.sqrt(band[i]), ROUNDING * size[i]
        flat[i] = length <= ROUNDING * rate[i]
        band[i] = around * noise if flat[i] else max(TOLERANCE * length, noise)


@inner
def _compute(net, columns, layer):  # type: ignore[no-untyped-def]
    """The forms of a layer, afresh."""
    forms, size, rate, bits = columns.forms, columns.size, columns.rate, columns.bits
    d = len(forms) - 1
    begin, end = net.first[layer], net.first[layer + 1]
    width = end - begin
    for i in range(begin, end):
        for k in range(d):
            forms[k, i] = 0.0
        forms[d, i] = net.bias[i]
        size[i] = net.size0[i]
        rate[i] = 0.0
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        start, source = net.start[term], net.source[term] - 1
        if source < 0:
            for k in range(d):
                for i in range(width):
                    w = net.weights[start + k * width + i]
                    forms[k, begin + i] += w
                    size[begin + i] += abs(w)
                    rate[begin + i] += abs(w)
            continue
        for u in range(net.first[source], net.first[source + 1]):
            slope = net.slopes[source, bits[u]]
            if slope != 0.0:
                j, weight = u - net.first[source], abs(slope)
                _add_column(net, columns, start, begin, end, j, u, slope, weight)
    for u in range(net.first[layer - 1] if layer else begin, begin):
        columns.used[u] = bits[u]
    columns.age[layer] = 0


@inner
def _exchange(net, columns, layer):  # type: ignore[no-untyped-def]
    """Update valid forms by the columns of the bits that changed in the layer before."""
    if layer == 0 or columns.age[layer] < 0 or columns.age[layer] >= REFRESH:
        return False
    bits, used, source = columns.bits, columns.used, layer - 1
    begin, end = net.first[layer], net.first[layer + 1]
    if columns.age[layer] == 0:
        for i in range(begin, end):
            columns.peaks[0, i], columns.peaks[1, i] = 0.0, 0.0
    less = False
    for u in range(net.first[source], net.first[source + 1]):
        if bits[u] == used[u]:
            continue
        new, old = net.slopes[source, bits[u]], net.slopes[source, used[u]]
        used[u] = bits[u]
        columns.age[layer] += 1
        for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
            if net.source[term] == layer:
                j = u - net.first[source]
                more = abs(new) - abs(old)
                if more < 0.0:
                    less = True
                    _keep_peaks(columns, begin, end)
                _add_column(net, columns, net.start[term], begin, end, j, u, new - old, more)
    return not (less and _has_shrunk(columns, begin, end))


@inner
def _keep_peaks(columns, begin, end):  # type: ignore[no-untyped-def]
    """Remember the sizes before terms are taken away."""
    size, rate, peaks = columns.size[begin:end], columns.rate[begin:end], columns.peaks
    largest, steepest = peaks[0, begin:end], peaks[1, begin:end]
    for i in range(end - begin):
        largest[i] = max(largest[i], size[i])
        steepest[i] = max(steepest[i], rate[i])


@inner
def _has_shrunk(columns, begin, end):  # type: ignore[no-untyped-def]
    """Whether terms were taken from some form that were much larger than what is left in it."""
    size, rate, peaks = columns.size[begin:end], columns.rate[begin:end], columns.peaks
    largest, steepest = peaks[0, begin:end], peaks[1, begin:end]
    shrunk = False
    for i in range(end - begin):
        shrunk |= largest[i] > SHRUNK * size[i]
        shrunk |= steepest[i] > SHRUNK * rate[i]
    return shrunk


@inner
def _add_column(net, columns, start, begin, end, j, unit, slope, weight):  # type: ignore[no-untyped-def]
    """Add ``slope`` times column j, that of one unit, of the matrix that starts there.

    Args:
        weight: how much larger |slope of the unit| is than before, for the sizes.
    """
    forms, size, rate = columns.forms, columns.size, columns.rate
    if start >= 0:
        _add(net.weights, start + j * (end - begin), begin, end, columns, unit, slope, weight)
        return
    at = -start - 1
    rows, heavier, steeper = net.start[at], weight * size[unit], weight * rate[unit]
    for p in range(net.start[at + 1 + j], net.start[at + 2 + j]):
        i, w = begin + net.start[rows + p], net.weights[p]
        for k in range(len(forms)):
            forms[k, i] += w * (slope * forms[k, unit])
        size[i] += abs(w) * heavier
        rate[i] += abs(w) * steeper


@inner
def _add(weights, at, begin, end, columns, unit, slope, weight):  # type: ignore[no-untyped-def]
    """Add ``slope`` times the column of one unit."""
    width = end - begin
    column = weights[at : at + width]
    forms = columns.forms
    for k in range(len(forms)):
        a = slope * forms[k, unit]
        row = forms[k, begin:end]
        for i in range(width):
            row[i] += column[i] * a
    heavier, steeper = weight * columns.size[unit], weight * columns.rate[unit]
    size, rate = columns.size[begin:end], columns.rate[begin:end]
    for i in range(width):
        w = abs(column[i])
        size[i] += w * heavier
        rate[i] += w * steeper
