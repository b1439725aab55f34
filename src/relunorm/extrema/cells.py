"""The exact maximum of a scalar network on a box, by the sign tree with linear bounds.

At a node every unit of the layers entered so far has an affine form on the cell, exact for the
decided ones. The rest of the network is replaced by lines above and below (`relaxation`), which
leaves one linear form that bounds the output on the cell; a linear programme maximises it over the
cell itself and stops as soon as it falls to the best value seen. Its maximiser is a point of the
domain, so it is tried as a better value. A leaf is a region, and its programme is exact.

Whatever the search leaves behind, a cell given up or a leaf done, adds the bound that holds on it
to the record's ceiling. Open frames and ceiling together bound the maximum, however the value
below which cells are given up moves meanwhile.
"""

from __future__ import annotations

import numpy as np

from relunorm.regions.jit import inner, kernel
from relunorm.regions.simplex import EMPTY, FAILED, FOUND, STOPPED, maximize
from relunorm.regions.tree import backtrack, descend, layer_of, signs, start_layer
from relunorm.regions.tree_signs import form_range
from relunorm.regions.tree_state import CUT_OFF, FAILURES, FRAMES, ROWS, STARTED

# Entries of the record the search carries.
BEST, IMPROVED, FLOOR, SLACK, CEILING, NODES, TARGET = range(7)
RECORD = 7


@kernel
def search(net, state, lb, ub, kept, record, point, coef, lin, budget):  # type: ignore[no-untyped-def]
    """Go on for ``budget`` nodes or until the time is up; 1 when the tree is done, 0 when not.

    Args:
        lb, ub: pre-activation bounds of every unit on the box of the state.
        kept: bound of each open frame, (units + 1,); the first entry holds the root's bound.
        record: best value, whether it improved, a floor and a slack (bounds up to the floor, or
            within the slack of the best value, need no further look), the largest bound of what
            was left behind, nodes visited, and a value that ends the search once the best reaches
            it.
        point: where the best value is attained.
        coef, lin: scratch of sizes (units,) and (d,).
    """
    at = state.at
    units, layers = net.shape[2], net.shape[1]
    for _ in range(budget):
        unit = 0
        if at[STARTED]:
            while at[FRAMES] and kept[at[FRAMES] - 1] <= _enough(record):
                at[FRAMES] -= 1
                record[CEILING] = max(record[CEILING], kept[at[FRAMES]])
            unit = backtrack(net, state) + 1
            if unit == 0:
                return 1
        at[STARTED] = 1
        record[NODES] += 1
        layer = layer_of(net.first, unit)
        bound = kept[at[FRAMES]]
        left, fresh = False, True
        while unit < units:
            if unit == net.first[layer]:
                start_layer(net, state, layer)
                fresh = True
            code = 3
            if ub[unit] <= 0.0:
                code = 1
            elif lb[unit] >= 0.0:
                code = 2
            else:
                code = signs(net, state, unit)
            if code == 0 or state.work.stop[0]:  # the time is up: the cell keeps the bound it has
                at[CUT_OFF] = 1
                record[CEILING] = max(record[CEILING], bound)
                return 0
            if code == 3 or (fresh and unit > 0):
                value = _bound(net, state, layer, unit, lb, ub, record, point, coef, lin)
                bound = min(bound, value)
                fresh = False
                if bound <= _enough(record):
                    left = True
                    break
            if code == 3:
                kept[at[FRAMES]] = bound
            descend(net, state, unit, code)
            unit += 1
            if unit == net.first[layer + 1]:
                layer += 1
        if not left:
            value = _bound(net, state, layers - 1, units, lb, ub, record, point, coef, lin)
            bound = min(bound, value)
        record[CEILING] = max(record[CEILING], bound)
        if record[BEST] >= record[TARGET]:
            return 0
    return 0


@inner
def _enough(record):  # type: ignore[no-untyped-def]
    """Cells with bounds up to this may be given up."""
    return max(record[FLOOR], record[BEST] + record[SLACK])


@kernel
def _bound(net, state, layer, unit, lb, ub, record, point, coef, lin):  # type: ignore[no-untyped-def]
    """An upper bound on the output over the cell; the maximiser is tried as a new best point."""
    d = net.shape[0]
    enough = _enough(record)
    constant = _linear_bound(net, state, layer, unit, lb, ub, coef, lin)
    stop = enough - constant
    status = maximize(
        lin, state.rows, state.rhs, state.at[ROWS], state.lo, state.hi, stop, state.work
    )
    if status == FAILED:
        state.at[FAILURES] += 1
        return np.inf
    if status == STOPPED:
        return np.inf
    if status == EMPTY:
        return np.inf  # the cell is thinner than a programme can tell: its parent's bound stays
    if status != FOUND:
        return enough
    value = constant
    for k in range(d):
        value += lin[k] * state.work.x[k]
    reached = evaluate(net, state.work.x, coef)
    if reached > record[BEST]:
        record[BEST], record[IMPROVED] = reached, 1.0
        for k in range(d):
            point[k] = state.work.x[k]
    return value


@kernel
def _linear_bound(net, state, layer, unit, lb, ub, coef, lin):  # type: ignore[no-untyped-def]
    """A linear form above the output on the cell; ``lin`` receives its gradient.

    Layers up to ``layer`` have their forms, units before ``unit`` are decided.
    """
    d, layers = net.shape[0], net.shape[1]
    for i in range(len(coef)):
        coef[i] = 0.0
    for k in range(d):
        lin[k] = 0.0
    constant = _pull(net, layers, 0, 1.0, coef, lin)
    for q in range(layers - 1, layer, -1):
        for i in range(net.first[q], net.first[q + 1]):
            if coef[i] != 0.0:
                slope, shift = _line(coef[i], lb[i], ub[i], net.slopes[q, 0], net.slopes[q, 1])
                constant += shift
                constant += _pull(net, q, i - net.first[q], slope, coef, lin)
    for q in range(layer + 1):
        for i in range(net.first[q], net.first[q + 1]):
            if coef[i] == 0.0:
                continue
            if i < unit:
                slope, shift = coef[i] * net.slopes[q, state.bits[i]], 0.0
            else:
                low, high = form_range(state, i)
                slope, shift = _line(
                    coef[i],
                    max(low, lb[i]),
                    min(high, ub[i]),
                    net.slopes[q, 0],
                    net.slopes[q, 1],
                )
            constant += shift + slope * state.forms[i, d]
            for k in range(d):
                lin[k] += slope * state.forms[i, k]
    return constant


@inner
def _line(c, low, high, below, above):  # type: ignore[no-untyped-def]
    """c times a line above (c > 0) or below (c < 0) the activation on [low, high]."""
    if high <= 0.0:
        return c * below, 0.0
    if low >= 0.0:
        return c * above, 0.0
    if (c > 0.0) == (below <= above):
        chord = (above * high - below * low) / (high - low)
        return c * chord, c * (above * high - chord * high)
    return c * (above if high > -low else below), 0.0


@kernel
def _pull(net, layer, row, a, coef, lin):  # type: ignore[no-untyped-def]
    """Add a times a row of a layer's matrices to the coefficients; a times its constant part."""
    for term in range(net.term_ptr[layer], net.term_ptr[layer + 1]):
        source = net.source[term]
        if source == 0:
            width = net.shape[0]
            begin = net.start[term] + row * width
            for j in range(width):
                lin[j] += a * net.weights[begin + j]
        else:
            offset = net.first[source - 1]
            width = net.first[source] - offset
            begin = net.start[term] + row * width
            for j in range(width):
                coef[offset + j] += a * net.weights[begin + j]
    return a * net.bias[net.first[layer] + row]


@kernel
def evaluate(net, t, values):  # type: ignore[no-untyped-def]
    """The first output at t; ``values`` is scratch for the units."""
    layers = net.shape[1]
    result = 0.0
    for q in range(layers + 1):
        rows = net.first[q + 1] - net.first[q] if q < layers else 1
        for row in range(rows):
            z = net.bias[net.first[q] + row]
            for term in range(net.term_ptr[q], net.term_ptr[q + 1]):
                source = net.source[term]
                if source == 0:
                    width = net.shape[0]
                    begin = net.start[term] + row * width
                    for j in range(width):
                        z += net.weights[begin + j] * t[j]
                else:
                    offset = net.first[source - 1]
                    width = net.first[source] - offset
                    begin = net.start[term] + row * width
                    for j in range(width):
                        z += net.weights[begin + j] * values[offset + j]
            if q == layers:
                result = z
            else:
                values[net.first[q] + row] = net.slopes[q, 1 if z > 0 else 0] * z
    return result
