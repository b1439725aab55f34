"""Units that can be computed a layer earlier, because what they read only carries affine values.

Two units whose rows are opposite, y = act(z) and y' = act(-s z) with s > 0, carry z itself:
act(-z) = act(z) - (1 + a) z, where a is the slope below 0. If the coefficients c of y and c' of y'
in a row satisfy c + s c' = 0, the row reads -s (1 + a) c' z and no longer bends with the pair. Rows
that need nothing else of the layer below are affine in what that layer reads. They are computed
from there, and units that nobody reads any more are gone. That undoes ReLUSplitter, which sends
relu(z) through such pairs, with any thresholds and scales.

A unit that moves down joins the layer it was carried by, in the place of its carriers; the units
that stay behind it are linear, and the sweep that follows folds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.forms.removal.dependence import proportional
from relunorm.forms.removal.reduced import Reduced, Removal, Rules, Straight
from relunorm.forms.rewrite import Origin, Rewriter, multiply, one_hot, rows, stacked
from relunorm.matrix import Matrix
from relunorm.network import Affine, Layer, Network

REASON = "carrier"


def take_shortcuts(state: Reduced, straight: Straight, rules: Rules) -> Reduced:
    """Compute every unit, and the output, as early as its row allows, if that saves units.

    Args:
        straight: the units of the original network known to be linear.

    Exact up to the rounding of the products and to ``rules.tolerance``; nothing is proved here.
    """
    reader = 0
    while reader <= len(state.network.layers):
        rules.clock.check()
        found = _shortcut(state, reader, straight, rules)
        if found is None:
            reader += 1
        else:
            state, reader = found, max(reader - 1, 0)
    return state


@dataclass(frozen=True)
class _Detour:
    """Rows of a map that value ``source`` only carries."""

    source: int
    moved: NDArray[np.bool_]
    direct: Affine
    gone: NDArray[np.bool_]


def _shortcut(state: Reduced, reader: int, straight: Straight, rules: Rules) -> Reduced | None:
    """The network with one map read past a layer; None where that saves nothing."""
    network = state.network
    affine = list(network.maps)[reader]
    for source in reversed(affine.sources):
        if source == 0:
            break
        detour = _detour(network, affine, source, rules)
        if detour is None or not detour.gone.any():
            continue
        layer = None if reader == len(network.layers) else network.layers[reader]
        carrier = network.layers[source - 1]
        joins = (
            layer is not None
            and layer.activation == carrier.activation
            and not detour.moved.all()
            and source == reader
            and _straight(state, reader, straight)[~detour.moved].all()
        )
        if joins:
            return _moved_down(state, reader, detour)
        if rules.architecture == "keep" and not detour.gone.all():
            continue
        direct = _in_place(state, reader, detour)
        if rules.prefer == "units" or direct.network.parameters <= network.parameters:
            return direct
    return None


def _detour(network: Network, affine: Affine, source: int, rules: Rules) -> _Detour | None:
    carrier = network.layers[source - 1]
    below, above = carrier.activation.slopes
    if carrier.activation.kind == "step" or below == above or below + above == 0:
        return None
    matrix = affine.terms[source]
    groups = proportional(
        carrier.affine, opposite=True, tolerance=rules.tolerance, relative=rules.relative
    )
    turned = groups.factor < 0
    if not turned.any():
        return None
    size = np.abs(groups.factor)
    together = one_hot(groups.leader, size, carrier.width)
    bent, whole = abs(multiply(matrix, together)), multiply(abs(matrix), together)
    near = max(rules.tolerance, rules.relative)
    # what is left of every pair against the pair itself, in its own unit
    left = bent - 4 * near * whole
    over = np.asarray(mx.dense(left.max(axis=1)), dtype=np.float64).ravel()
    moved = (mx.row_maxima(matrix) > 0) & (over <= 0)
    for later in affine.sources:  # rows that read what comes after the layer stay
        if later > source:
            moved &= mx.row_maxima(affine.terms[later]) == 0
    if not moved.any():
        return None
    index = np.flatnonzero(moved)
    weight = -(below + above) * np.where(turned, size, 0.0)
    linear = multiply(matrix[index], one_hot(groups.leader, weight, carrier.width))
    direct = _through(linear, carrier.affine, rows(affine, index), source)
    read = np.zeros(carrier.width, dtype=bool)
    for other in network.maps:
        if source in other.terms:
            part = other.terms[source]
            part = part[np.flatnonzero(~moved)] if other is affine else part
            read |= np.asarray((part != 0).sum(axis=0)).ravel() > 0
    was_read = np.asarray((matrix[index] != 0).sum(axis=0)).ravel() > 0
    return _Detour(source, moved, direct, was_read & ~read)


def _through(linear: Matrix, carrier: Affine, affine: Affine, source: int) -> Affine:
    """``linear`` of the carrier's pre-activations beside what else the rows read."""
    terms = {k: m for k, m in affine.terms.items() if k < source}
    for k, matrix in carrier.terms.items():
        part = mx.matmul(linear, matrix)
        terms[k] = mx.add(terms[k], part) if k in terms else part
    bias = affine.bias + np.asarray(linear @ carrier.bias).ravel()
    return Affine({k: mx.compact(m) for k, m in terms.items()}, bias)


def _straight(state: Reduced, k: int, straight: Straight) -> NDArray[np.bool_]:
    """Which units of a layer are known to be linear."""
    return np.array(
        [o is None or bool(straight.flat[o[0]][o[1]]) for o in state.origins[k]], dtype=bool
    )


def _in_place(state: Reduced, reader: int, detour: _Detour) -> Reduced:
    """The rows stay in their layer and read earlier values; the carriers go."""
    network, index = state.network, np.flatnonzero(detour.moved)
    old = list(network.maps)[reader]
    stay = np.flatnonzero(~detour.moved)
    order = np.argsort(np.concatenate([index, stay]))
    mixed = rows(stacked([detour.direct, rows(old, stay)]), order)
    if not len(stay):
        mixed = detour.direct
    layers, output = list(network.layers), network.output
    if reader == len(layers):
        output = mixed
    else:
        x = layers[reader]
        layers[reader] = Layer(mixed, x.activation, x.name, x.shape)
    changed = Reduced(network.replace(layers=layers, output=output), state.origins, state.removed)
    return _without(changed, detour.source, detour.gone, {})


def _moved_down(state: Reduced, reader: int, detour: _Detour) -> Reduced:
    """The rows join the layer that carried them, each in the place of its first carrier."""
    matrix = state.network.layers[reader].affine.terms[detour.source]
    places = {}
    for row, unit in enumerate(np.flatnonzero(detour.moved)):
        carriers = np.flatnonzero(mx.dense(matrix[[unit]]).ravel())
        places[row] = (int(carriers.min()), int(unit))
    return _without(state, detour.source, detour.gone, places, detour, reader)


def _without(
    state: Reduced,
    source: int,
    gone: NDArray[np.bool_],
    places: dict[int, tuple[int, int]],
    detour: _Detour | None = None,
    reader: int = -1,
) -> Reduced:
    """Drop carriers, and put the rows of a detour among the units that stay with them."""
    network = state.network
    rewriter = Rewriter(network)
    removed = list(state.removed)
    at: dict[int, int] = {}  # old unit of the reader -> its place in the carrying layer
    carried = 0  # what the carrying layer gives
    for k, layer in enumerate(network.layers):
        origins = state.origins[k]
        kept = np.arange(layer.width)
        parts = [rewriter.incoming(layer.affine)]
        keys = [(i, -1) for i in range(layer.width)]
        labels: list[Origin] = list(origins)
        if k == source - 1:
            kept = np.flatnonzero(~gone)
            carriers = [origins[i] for i in np.flatnonzero(gone)]
            removed += [Removal(*o, REASON) for o in carriers if o is not None]
            parts, keys = [rows(parts[0], kept)], [(int(i), -1) for i in kept]
            labels = [origins[i] for i in kept]
            if detour is not None:
                parts.append(rewriter.incoming(detour.direct))
                keys += [places[row] for row in range(len(places))]
                labels += [state.origins[reader][unit] for _, unit in places.values()]
        elif k == reader and detour is not None:
            kept = np.flatnonzero(~detour.moved)
            parts, keys = [rows(parts[0], kept)], [(int(i), -1) for i in kept]
            labels = [origins[i] for i in kept]
        order = np.array(sorted(range(len(keys)), key=lambda i: keys[i]), dtype=np.intp)
        recovered = np.full(layer.width, -1, dtype=np.intp)
        terms: dict[int, Matrix] = {}
        if len(keys):
            new = rows(stacked(parts), order) if len(parts) > 1 else parts[0]
            shape = layer.shape if len(keys) == layer.width else ()
            value = rewriter.emit(
                new, layer.activation, layer.name, [labels[i] for i in order], shape
            )
            rank = np.argsort(order)
            recovered[kept] = rank[: len(kept)]
            terms[value] = one_hot(recovered, np.ones(layer.width), len(keys))
            if k == source - 1:
                carried = value
                at = {places[row][1]: int(rank[len(kept) + row]) for row in places}
        if k == reader and detour is not None:
            target = np.array([at.get(i, -1) for i in range(layer.width)], dtype=np.intp)
            width = rewriter.layers[carried - 1].width
            terms[carried] = one_hot(target, np.ones(layer.width), width)
        rewriter.express(Affine(terms, np.zeros(layer.width)))
    return Reduced(rewriter.finish(), rewriter.origins, removed)
