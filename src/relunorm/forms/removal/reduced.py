"""Removing units that do nothing, or nothing a linear map could not do, from the input up.

Over a domain where l <= z <= u is known for every pre-activation, a unit is

- dead (u <= 0): its value is 0;
- constant: its row is zero, or it is a step that never jumps;
- unobserved: no path leads from it to the output;
- duplicate or collinear: its row is a positive multiple of another one's;
- opposite: its row is a negative multiple, relu(z) = z + relu(-z), which needs a skip connection;
- a carrier: it and an opposite one only carry z to the next layer, where units are computed from
  what the two read instead (`shortcuts`);
- active (l >= 0): its value is affine. All active units of a layer together are folded by what
  costs least: kept, replaced by as many carriers as their rank, or sent past the layer as a skip.

Every replacement is exact up to rounding; `relation` proves the result afterwards. This file holds
the vocabulary, `sweep` does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.forms.outward import Range
from relunorm.forms.removal.dependence import TOLERANCE
from relunorm.forms.rewrite import Origin, Product, Rewriter, rows
from relunorm.matrix import Vector
from relunorm.network import Activation, Affine, Network
from relunorm.stability.verdicts import Stability

Architecture = Literal["any", "keep"]
Prefer = Literal["parameters", "units"]


@dataclass(frozen=True)
class Removal:
    """One unit that is gone.

    Attributes:
        reason: dead, constant, unobserved, duplicate, collinear, opposite, carrier, active or
            small; channel where all units of a channel went together.
        bound: the proved bound that decided it (the maximum of z for a dead unit, the minimum for
            an active one), None where the structure alone decides.
        margin: how far the bound is from 0.
        cost: how much of the eps budget it used; 0 for an exact removal.
    """

    layer: int
    unit: int
    reason: str
    bound: float | None = None
    method: str = "structure"
    margin: float = 0.0
    cost: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def summarize(removed: Iterable[Removal]) -> list[dict[str, Any]]:
    """Removed units counted by layer, reason and method; JSON-safe.

    ``margin`` is the smallest of a group, None where the structure alone decides.

    >>> summarize([Removal(0, 2, "dead", -1.0, "interval", 1.0)])
    [{'layer': 0, 'reason': 'dead', 'method': 'interval', 'units': 1, 'margin': 1.0}]
    """
    groups: dict[tuple[int, str, str], list[float]] = {}
    for unit in removed:
        groups.setdefault((unit.layer, unit.reason, unit.method), []).append(unit.margin)
    return [
        {
            "layer": layer,
            "reason": reason,
            "method": method,
            "units": len(margins),
            "margin": None if method == "structure" else min(margins),
        }
        for (layer, reason, method), margins in sorted(groups.items())
    ]


@dataclass(frozen=True)
class Straight:
    """Units that count as linear: y = slope z + constant, and why.

    ``flat[k]`` marks them in layer k; the other lists run alongside.
    """

    flat: list[NDArray[np.bool_]]
    slope: list[Vector]
    constant: list[Vector]
    why: list[list[Removal | None]]


@dataclass(frozen=True)
class Rules:
    """What removal may do.

    Attributes:
        architecture: ``any`` allows new skip connections, ``keep`` none.
        prefer: what "cheapest" counts: stored parameters or units.
        fold_all: send every active unit past its layer, whatever it costs (canonical form).
        tolerance: on rows of l1 norm 1, when two count as multiples of one another.
        relative: the same as a share of a row's largest entry; the larger of the two counts.
        product: the matrix product for substitutions; None for the fast one.
        arrange: for a finished layer the factor every row is divided by and the order of the
            units; None leaves them as they are.
        orient: turn every unit to the standard side of its hyperplane (shallow canonical form).
        clock: when to give up.
    """

    architecture: Architecture = "any"
    prefer: Prefer = "parameters"
    fold_all: bool = False
    tolerance: float = TOLERANCE
    relative: float = 0.0
    product: Product | None = None
    arrange: Callable[[Affine], tuple[Vector, NDArray[np.intp]]] | None = None
    orient: bool = False
    clock: Clock = NO_LIMIT


@dataclass
class Reduced:
    """A smaller network, where its units come from, and what was removed.

    ``loosely``: whether rows that float32 does not tell apart counted as multiples.
    """

    network: Network
    origins: list[list[Origin]]
    removed: list[Removal] = field(default_factory=list)
    loosely: bool = False

    @classmethod
    def whole(cls, network: Network) -> Reduced:
        """Nothing removed yet."""
        origins: list[list[Origin]] = [
            [(k, i) for i in range(layer.width)] for k, layer in enumerate(network.layers)
        ]
        return cls(network, origins)


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
        rewriter.emit(affine, layer.activation, layer.name, [origins[i] for i in kept])
        rewriter.recover(kept, np.ones(len(kept)), np.zeros(layer.width))
    return Reduced(rewriter.finish(), rewriter.origins, removed)


def _mark(affine: Affine, used: NDArray[np.bool_], seen: list[NDArray[np.bool_]]) -> None:
    for source, matrix in affine.terms.items():
        touched = np.asarray((matrix[np.flatnonzero(used)] != 0).sum(axis=0)).ravel() > 0
        seen[source] |= touched


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
