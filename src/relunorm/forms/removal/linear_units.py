"""Which units count as linear over the domain: proved ones, and small ones within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relunorm import matrix as mx
from relunorm.forms.outward import Range
from relunorm.forms.removal.reduced import Removal, Straight
from relunorm.matrix import Vector
from relunorm.network import Activation, Network
from relunorm.stability.verdicts import Stability


def nothing_known(network: Network) -> Straight:
    """No domain: only leaky units of slope 1, which never bend, are linear."""
    result = Straight([], [], [], [])
    for k, layer in enumerate(network.layers):
        below, above = layer.activation.slopes
        flat = np.full(layer.width, layer.activation.kind != "step" and below == above)
        result.flat.append(flat)
        result.slope.append(np.where(flat, above, 0.0))
        result.constant.append(np.zeros(layer.width))
        result.why.append([Removal(k, i, "active") if flat[i] else None for i in range(len(flat))])
    return result


def by_sign(network: Network, straight: Straight) -> Straight:
    """Add the units that cannot be negative anywhere: no weight is, on values that are not.

    Holds for every input, so it needs no domain. Relu values and constants are not negative.
    """
    for k, layer in enumerate(network.layers):
        kind = layer.activation.kind
        sources = [network.layers[s - 1].activation.kind if s else "" for s in layer.affine.terms]
        if kind not in ("relu", "leaky") or any(source != "relu" for source in sources):
            continue
        least = layer.affine.bias.copy()
        for matrix in layer.affine.terms.values():
            least = np.minimum(least, mx.dense(matrix.min(axis=1)).ravel())
        for i in np.flatnonzero((least >= 0) & ~straight.flat[k]):
            straight.flat[k][i], straight.slope[k][i] = True, 1.0
            straight.why[k][i] = Removal(k, int(i), "active", 0.0)
    return straight


def proved(network: Network, found: Stability) -> Straight:
    """The units a stability analysis proved dead or always active."""
    result = nothing_known(network)
    for layer in found.layers:
        k, activation = layer.layer, network.layers[layer.layer].activation
        below, above = activation.slopes
        for i in np.flatnonzero((layer.verdict == "dead") | (layer.verdict == "active")):
            dead = layer.verdict[i] == "dead"
            result.flat[k][i] = True
            result.slope[k][i] = below if dead else above
            result.constant[k][i] = 1.0 if activation.kind == "step" and not dead else 0.0
            result.why[k][i] = Removal(
                k,
                int(i),
                "constant" if activation.kind == "step" and not dead else str(layer.verdict[i]),
                float(layer.upper[i] if dead else layer.lower[i]),
                str(layer.method[i]),
                float(layer.margin[i]),
            )
    return result


def spend(
    network: Network, straight: Straight, ranges: Sequence[Range], eps: float, *, skips: bool
) -> Straight:
    """Add units whose linear stand-in changes no output by more than ``eps`` in all.

    A unit with value in [r, s] is replaced by the constant (r + s) / 2, off by at most
    delta = (s - r) / 2; one that is nearly always active by z - l / 2, off by at most -l / 2. The
    output moves by at most delta times the absolute path weight from the unit to it, so the costs
    of several units add up. Cheapest first. What feeds a step that can jump is left alone.

    Args:
        skips: whether the second kind, which needs a connection past the layer, is allowed.
    """
    gains = path_gains(network, straight)
    candidates = []
    for k, layer in enumerate(network.layers):
        value = ranges[k].after(layer.activation)
        half = value.hi / 2 - value.lo / 2
        lean = np.where((ranges[k].lo < 0) & (ranges[k].hi > 0), -ranges[k].lo / 2, np.inf)
        bends = layer.activation.kind == "relu" and skips
        for i in np.flatnonzero(~straight.flat[k]):
            tilt = bool(bends and lean[i] < half[i])
            delta = float(lean[i] if tilt else half[i])
            center = float(-ranges[k].lo[i] / 2 if tilt else value.lo[i] + half[i])
            # a unit that cannot move costs nothing, whatever it feeds
            cost = delta * gains[k][:, i] * (1 + 1e-9) if delta else np.zeros(len(gains[k]))
            candidates.append((float(cost.max()), k, int(i), cost, tilt, center, delta))
    used = np.zeros(network.output_size)
    for worst, k, i, cost, tilt, center, delta in sorted(candidates, key=lambda c: c[:3]):
        if not np.isfinite(worst) or (used + cost).max() > eps:
            continue
        used += cost
        straight.flat[k][i] = True
        straight.slope[k][i], straight.constant[k][i] = float(tilt), center
        straight.why[k][i] = Removal(k, i, "small", delta, "interval", 0.0, worst)
    return straight


def path_gains(network: Network, straight: Straight) -> list[Vector]:
    """Per layer a matrix (outputs, units): how far an output moves per unit of change, at most.

    The sum over all paths of the products of absolute weights; constant units pass nothing on. A
    step that can jump makes it infinite: there the smallest change may flip the unit.
    """
    reach: dict[int, Vector] = {}

    def pull(terms, weight) -> None:
        endless = np.isinf(weight)
        finite = np.where(endless, 0.0, weight)
        for source, matrix in terms.items():
            size = mx.dense(abs(matrix))
            part = finite @ size
            part[endless.astype(np.float64) @ (size > 0) > 0] = np.inf
            reach[source] = reach[source] + part if source in reach else part

    pull(network.output.terms, np.eye(network.output_size))
    gains: list[Vector] = []
    for k in range(len(network.layers) - 1, -1, -1):
        layer = network.layers[k]
        gain = reach.pop(k + 1, np.zeros((network.output_size, layer.width)))
        gains.append(gain)
        steep = np.full(layer.width, _steepness(layer.activation))
        flat = straight.flat[k]
        steep[flat] = np.abs(straight.slope[k][flat])
        passed = np.zeros_like(gain)
        np.multiply(gain, steep, out=passed, where=(gain > 0) & (steep > 0))
        pull(layer.affine.terms, passed)
    return gains[::-1]


def _steepness(activation: Activation) -> float:
    if activation.kind == "step":
        return np.inf
    below, above = activation.slopes
    return max(abs(below), abs(above))
