"""Units from which no path leads to the output."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relunorm.forms.removal.reduced import Reduced, Removal
from relunorm.forms.rewrite import Rewriter, one_hot, rows
from relunorm.network import Affine


def drop_unobserved(state: Reduced) -> Reduced:
    """Remove every unit from which no path of non-zero weights leads to the output."""
    network = state.network
    seen = [np.zeros(n, dtype=bool) for n in network.widths[:-1]]
    _mark(network.output, np.ones(network.output_size, dtype=bool), seen)
    for k in range(len(network.layers) - 1, -1, -1):
        _mark(network.layers[k].affine, seen[k + 1], seen)
    if all(mask.all() for mask in seen[1:]):
        return state
    rewriter = Rewriter(network)
    removed = list(state.removed)
    for k, layer in enumerate(network.layers):
        kept = np.flatnonzero(seen[k + 1])
        gone = np.flatnonzero(~seen[k + 1])
        origins = state.origins[k]
        removed += [Removal(*o, "unobserved") for i in gone if (o := origins[i]) is not None]
        if not len(kept):
            rewriter.express(Affine({}, np.zeros(layer.width)))
            continue
        affine = rewriter.incoming(rows(layer.affine, kept))
        value = rewriter.emit(affine, layer.activation, layer.name, [origins[i] for i in kept])
        targets = np.full(layer.width, -1, dtype=np.intp)
        targets[kept] = np.arange(len(kept))
        recovered = one_hot(targets, np.ones(layer.width), len(kept))
        rewriter.express(Affine({value: recovered}, np.zeros(layer.width)))
    return Reduced(rewriter.finish(), rewriter.origins, removed)


def _mark(affine: Affine, used: NDArray[np.bool_], seen: list[NDArray[np.bool_]]) -> None:
    for source, matrix in affine.terms.items():
        touched = np.asarray((matrix[np.flatnonzero(used)] != 0).sum(axis=0)).ravel() > 0
        seen[source] |= touched
