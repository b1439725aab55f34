"""Form ``l1``: everything bounded at any depth by the size of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.domain.reach import Reach
from relunorm.errors import RelunormError
from relunorm.forms.outward import Range
from relunorm.forms.rewrite import row_norms
from relunorm.forms.shapes.bounded import clipped
from relunorm.network import Network

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
    size = float(np.maximum(np.abs(reach.lo), np.abs(reach.hi)).max())
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


def unit_rows(network: Network) -> float:
    """How far the l1 norm of a hidden row is from 1, at most."""
    gaps = [np.abs(row_norms(x.affine, 1) - 1).max() for x in network.layers]
    return float(max(gaps, default=0.0))
