"""Form ``bounded``: unit rows, thresholds that can matter; seed 001 (2.10), (4.5) corrected.

`clipped` does it for either norm: rows of norm 1, thresholds in the interval of what reaches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidDomainError, RelunormError
from relunorm.forms.outward import Range, quick_bounds
from relunorm.forms.outward import span as span_of
from relunorm.forms.rewrite import Rewriter, dense_rows, divided, row_norms, rows
from relunorm.forms.shapes.rescaling import norms, read_by_last, with_units, without_output_bias
from relunorm.network import Affine, Layer, Network


def bounded(
    network: Network, ranges: Sequence[Range], reach: Reach, *, pure: bool = False
) -> Network:
    """Rows of Euclidean norm 1 and every threshold inside the interval of what reaches the layer.

    At the first layer that is [min w.x, max w.x] over the domain (tighter than [-X_B, X_B] of
    Prop. 2.3), in deeper layers |b| <= sup |y| of what the layer reads. The printed (4.5) is wrong,
    see docs/errata.md. No unit is added.

    Args:
        ranges: sound pre-activation bounds, per layer.
        pure: (2.10) literally, no output bias: what is affine in the output becomes two units
            a relu(t + R) + b relu(-t + R) per output, a = (s + c/R)/2, b = (c/R - s)/2, where
            s t + c is the affine part, t has unit weights and |t| <= R. The proof in the seed
            spends six. Step networks use (2.5).
    """
    result = clipped(network, ranges, 2, reach)
    if not pure:
        return result
    if any(layer.activation.kind == "step" for layer in result.layers[-1:]):
        return without_output_bias(result) if result.output.bias.any() else result
    return _pure(result, reach)


def _pure(network: Network, reach: Reach) -> Network:
    """Replace the affine part of every output by two units of the last hidden layer."""
    last = len(network.layers)
    straight = {k: m for k, m in network.output.terms.items() if k != last or not last}
    if not straight:  # a constant is written along what the last layer reads, without a skip
        source, size = read_by_last(network)
        straight = {source: np.zeros((network.output_size, size))}
    affine = Affine(straight, network.output.bias)
    radius = _radius(network, affine, reach)
    table = dense_rows(affine)
    slope = np.linalg.norm(table, axis=1)
    needed = np.flatnonzero((slope > 0) | (affine.bias != 0))
    if not len(needed):
        return network
    if radius == 0:
        raise InvalidDomainError(
            "the domain is the single point 0, where units without bias are all 0, so a constant "
            "cannot be written without an output bias (Prop. 2.3 fails for D = {0}); use pure=False"
        )
    rows, weights = _pairs(affine, needed, slope, radius)
    return with_units(network, rows, weights, {})


def _pairs(
    affine: Affine, needed: np.ndarray, slope: np.ndarray, radius: float
) -> tuple[Affine, np.ndarray]:
    """Two units per output that add up to its affine part, and the output's weights on them."""
    terms: dict[int, mx.Matrix] = {}
    for k, matrix in affine.terms.items():
        direction = (
            mx.dense(matrix)[needed] / np.where(slope[needed] > 0, slope[needed], 1.0)[:, None]
        )
        terms[k] = np.vstack([direction, -direction])
    first = next(iter(terms))
    for j in np.flatnonzero(slope[needed] == 0):  # any unit direction serves a constant
        terms[first][[j, j + len(needed)], 0] = 1.0, -1.0
    rows = Affine(terms, np.full(2 * len(needed), radius))
    level = affine.bias[needed] / radius
    weights = np.zeros((affine.size, 2 * len(needed)))
    count = np.arange(len(needed))
    weights[needed, count] = (slope[needed] + level) / 2
    weights[needed, len(needed) + count] = (level - slope[needed]) / 2
    return rows, weights


def _radius(network: Network, affine: Affine, reach: Reach) -> float:
    """sup |v| over what the affine part reads; X_B where that is the input alone."""
    if set(affine.terms) <= {0}:
        return float(reach.domain.radius)
    found = quick_bounds(network, reach)
    total = reach.domain.radius**2 if 0 in affine.terms else 0.0
    for k in affine.terms:
        if k:
            box = found[k - 1].after(network.layers[k - 1].activation)
            total += float((box.largest**2).sum())
    return float(np.sqrt(total) * (1 + 1e-12))


def clipped(network: Network, ranges: Sequence[Range], order: int, reach: Reach) -> Network:
    """Divide every row by its l1 or l2 norm and clip every bias, adding no unit.

    With l <= z <= u over the domain, a unit that never bends is moved to the edge of its interval:
    z - l if l >= 0, z - u if u <= 0, and what that changes goes into the next bias. Afterwards -b
    lies between the minimum and the maximum of w.v over all v that reach the layer. Zero rows and
    step units that never jump become constants.
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
        rewriter.emit(new, layer.activation, layer.name, [None] * len(kept))
        boxes.append(span_of(new, boxes, reach).after(layer.activation))
        rewriter.recover(kept, factor, constant)
    return rewriter.finish()


def _clamped(
    affine: Affine, active: np.ndarray, dead: np.ndarray, boxes: Sequence[Range], reach: Reach
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


#: Rounding of the norms and of the clipped biases, relative.
ROUNDING = 1e-12


@dataclass(frozen=True)
class L1Facts:
    """What was checked on the finished network.

    Attributes:
        size: X, the largest |x_i| over the domain.
        positive: whether the domain lies in [0, X]^d; the bounds below are then all X.
        weight, bias, activation: the largest |w|, |b| and hidden value bound found.
    """

    size: float
    positive: bool
    weight: float
    bias: float
    activation: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return dict(self.__dict__)


def l1(network: Network, ranges: Sequence[Range], reach: Reach) -> Network:
    """Rows of l1 norm 1 and clipped biases.

    If the domain lies in [0, X]^d then at any depth and width every hidden value of a relu network
    lies in [0, X], every |w| <= 1 and every |b| <= X. If it lies in [-X, X]^d: the biases of the
    first layer are at most X, the others and all values at most 2 X. Proof in docs/forms.md.
    No unit is added; exact up to rounding.
    """
    return clipped(network, ranges, 1, reach)


def check_l1(network: Network, reach: Reach) -> L1Facts:
    """Check the theorem on a network in l1 form; raise if it does not hold.

    Values are bounded by intervals layer by layer, which is how the theorem is proved.
    """
    size = float(reach.span.max())
    positive = bool((reach.lo >= 0).all())
    weight = bias = activation = 0.0
    limit = size if positive else 2 * size
    worst = 0.0
    for k, layer in enumerate(network.layers):
        entries = [np.abs(mx.entries(m)).max(initial=0.0) for m in layer.affine.terms.values()]
        weight = max([weight, *map(float, entries)])
        largest = float(np.abs(layer.affine.bias).max())
        bias = max(bias, largest)
        worst = max(worst, largest - (size if k == 0 else limit))
        top = _tops(layer.affine, positive, size, limit)
        activation = max(activation, float(top.max()))
    facts = L1Facts(size, positive, weight, bias, activation)
    relu = all(layer.activation.kind == "relu" for layer in network.layers)
    slack = ROUNDING * max(size, 1.0) * max(len(network.layers), 1)
    if weight > 1 + ROUNDING or (relu and (worst > slack or activation > limit + slack)):
        raise RelunormError(f"the l1 form does not hold: {facts}; please report this network")
    return facts


def _tops(affine, positive: bool, size: float, limit: float) -> np.ndarray:
    """An upper bound on every pre-activation when hidden values lie in [0, limit]."""
    top = affine.bias.copy()
    for source, matrix in affine.terms.items():
        positive_part = np.asarray(mx.dense(matrix)).clip(min=0.0).sum(axis=1)
        if source == 0:
            negative_part = np.asarray(-mx.dense(matrix)).clip(min=0.0).sum(axis=1)
            top += size * (positive_part + (0.0 if positive else negative_part))
        else:
            top += limit * positive_part
    return top
