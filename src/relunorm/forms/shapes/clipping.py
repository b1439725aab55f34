"""Rows of norm 1 and thresholds inside the interval of what reaches them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm.forms.outward import Range
from relunorm.forms.outward import span as span_of
from relunorm.forms.rewrite import Rewriter, divided, one_hot, row_norms, rows
from relunorm.forms.shapes.scaling import norms
from relunorm.network import Affine, Layer, Network
from relunorm.stability.reach import Reach


def clipped(network: Network, ranges: Sequence[Range], order: int, reach: Reach) -> Network:
    """Divide every row by its l1 or l2 norm and clip every bias, adding no unit.

    With l <= z <= u over the domain, a unit that never bends is moved to the edge of its interval:
    z - l if l >= 0, z - u if u <= 0, and what that changes goes into the next bias. Afterwards -b
    lies between the minimum and the maximum of w.v over all v that reach the layer. Zero rows and
    step units that never jump become constants.

    Args:
        ranges: sound pre-activation bounds, per layer.
        order: 1 or 2, the norm.
        reach: the domain.
    """
    rewriter = Rewriter(network)
    boxes = [Range(reach.lo, reach.hi)]
    for k, layer in enumerate(network.layers):
        affine = rewriter.incoming(layer.affine)
        span = span_of(affine, boxes, reach).meet(ranges[k])
        constant, fixed = _constants(layer, affine, span)
        kept = np.flatnonzero(~fixed)
        if not len(kept):
            rewriter.express(Affine({}, constant))
            continue
        below, above = layer.activation.slopes
        active, dead = (span.lo >= 0) & ~fixed, (span.hi <= 0) & ~fixed & (span.lo < 0)
        shift = np.where(active, span.lo, np.where(dead, span.hi, 0.0))
        constant += np.where(active, above * shift, np.where(dead, below * shift, 0.0))
        part = rows(Affine(affine.terms, affine.bias - shift), kept)
        factor = norms(part, order)
        new = _clamped(divided(part, factor), active[kept], dead[kept], boxes, reach)
        # what clamping moved the bias by, in the unit's old scale
        constant[kept] += np.where(active, above, np.where(dead, below, 0.0))[kept] * (
            part.bias - new.bias * factor
        )
        value = rewriter.emit(new, layer.activation, layer.name, [None] * len(kept))
        boxes.append(span_of(new, boxes, reach).after(layer.activation))
        targets, worth = np.full(affine.size, -1, dtype=np.intp), np.ones(affine.size)
        targets[kept] = np.arange(len(kept))
        if layer.activation.kind != "step":
            worth[kept] = factor
        rewriter.express(Affine({value: one_hot(targets, worth, len(kept))}, constant))
    return rewriter.finish()


def _clamped(
    affine: Affine,
    active: np.ndarray,
    dead: np.ndarray,
    boxes: Sequence[Range],
    reach: Reach,
) -> Affine:
    """Biases of units that never bend, moved into the interval of w.v if rounding left it.

    A bias that was large before clipping leaves its rounding error behind.
    """
    swing = span_of(Affine(affine.terms, np.zeros(affine.size)), boxes, reach)
    bias = np.where(active, np.minimum(affine.bias, -swing.lo), affine.bias)
    return Affine(affine.terms, np.where(dead, np.maximum(bias, -swing.hi), bias))


def _constants(layer: Layer, affine: Affine, span: Range) -> tuple[np.ndarray, np.ndarray]:
    """The values of units that are constant, and which these are."""
    fixed = row_norms(affine, 1) == 0
    constant = np.where(fixed, layer.activation.apply_(affine.bias.copy()), 0.0)
    if layer.activation.kind == "step":
        never, always = ~fixed & (span.hi < 0), ~fixed & (span.lo > 0)
        constant = np.where(always, 1.0, constant)
        fixed = fixed | never | always
    return constant, fixed
