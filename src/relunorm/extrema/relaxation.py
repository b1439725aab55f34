"""Bounds on every unit over many boxes at once: intervals, tightened by backward linear bounds.

A unit with slopes a below and b above its kink lies between two lines while its pre-activation is
in [l, u]: the chord through the ends and any line through the kink with a slope between a and b.
Substituting those lines from an affine map back to the input gives a linear bound, maximised over
the box in closed form (Weng et al. 2018, Zhang et al. 2018, "CROWN"). Alone it can be looser than
intervals, so the two are intersected. All bounds are sound up to the rounding of float64 products,
which `SLACK` covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain
from relunorm.extrema.sparse_backward import tightened
from relunorm.matrix import Matrix
from relunorm.network import Activation, Affine, Network

Batch = NDArray[np.float64]

#: Every bound is moved outward by this share of the magnitudes it was added up from.
SLACK = 1e-13

#: Backward bounds for a layer are skipped when they would take more multiplications than this.
MAX_WORK = 4e9

#: Coefficients substituted backward at a time, which bounds memory and the time between two looks
#: at the clock (16 MB; networks of up to a thousand units a layer are done in one go).
CHUNK = 1 << 21

#: Coefficients of rows that a domain bounds at a time: a polytope solves two programmes a row.
DOMAIN_ENTRIES = 1 << 16


@dataclass(frozen=True)
class Lines:
    """For each box and unit a line above and a line below the activation on [l, u]: (n, width)."""

    upper_slope: Batch
    upper_shift: Batch
    lower_slope: Batch
    lower_shift: Batch


def lines(lo: Batch, hi: Batch, activation: Activation, alpha: Batch | None = None) -> Lines:
    """The lines of a relu or leaky unit on [lo, hi].

    Args:
        alpha: in [0, 1], where between the two slopes the line through the kink lies; by default
            the end that leaves the smaller area.
    """
    below, above = activation.slopes
    ends = np.where(lo < 0, below, above) * lo, np.where(hi > 0, above, below) * hi
    stable = (lo >= 0) | (hi <= 0)
    width = np.where(hi > lo, hi - lo, 1.0)
    chord = np.where(stable, np.where(hi <= 0, below, above), (ends[1] - ends[0]) / width)
    shift = np.where(stable, 0.0, ends[0] - chord * lo)
    share = (hi > -lo).astype(np.float64) if alpha is None else alpha
    kink = np.where(stable, chord, below + share * (above - below))
    none = np.zeros_like(shift)
    if below <= above:
        return Lines(chord, shift, kink, none)
    return Lines(kink, none, chord, shift)


def value_bounds(lo: Batch, hi: Batch, activation: Activation) -> tuple[Batch, Batch]:
    """Bounds on the activation from bounds on the pre-activation."""
    if activation.kind == "step":
        ends = min(0.0, activation.at_zero), max(1.0, activation.at_zero)
        return np.where(lo > 0, 1.0, ends[0]), np.where(hi < 0, 0.0, ends[1])
    below, above = activation.slopes
    ends = np.where(lo < 0, below, above) * lo, np.where(hi > 0, above, below) * hi
    straddles = (lo < 0) & (hi > 0)
    low, high = np.minimum(*ends), np.maximum(*ends)
    return (
        np.where(straddles, np.minimum(low, 0.0), low),
        np.where(straddles, np.maximum(high, 0.0), high),
    )


def interval(affine: Affine, lows: Sequence[Batch], highs: Sequence[Batch]) -> tuple[Batch, Batch]:
    """Interval bounds on an affine map of values with these bounds, rounded outward."""
    count = len(lows[0])
    middle = np.tile(affine.bias, (count, 1))
    radius = SLACK * np.abs(middle)
    for source, matrix in affine.terms.items():
        center = (lows[source] + highs[source]) / 2
        half = (highs[source] - lows[source]) / 2
        middle = middle + center @ matrix.T
        radius = radius + (half * (1 + SLACK) + SLACK * np.abs(center)) @ abs(matrix).T
    return middle - radius, middle + radius


def backward(
    network: Network,
    rows: Mapping[int, Batch],
    bias: Batch,
    relaxed: Sequence[Lines | None],
    lo: Batch,
    hi: Batch,
) -> tuple[Batch, Batch, Batch]:
    """Upper bounds on rows over values, by substituting lines back to the input.

    Args:
        rows: value -> coefficients (n, r, width), for n boxes and r rows each.
        bias: (n, r).
        relaxed: the lines of each layer.
        lo, hi: the boxes, (n, d).

    Returns:
        the bounds (n, r) and the linear form that gives them: coefficients (n, r, d), constant.
    """
    held = dict(rows)
    constant = np.array(bias)
    weight = np.abs(constant)
    shape = constant.shape
    for index in range(len(network.layers) - 1, -1, -1):
        given = held.pop(index + 1, None)
        if given is None:
            continue
        line = relaxed[index]
        assert line is not None
        positive, negative = np.maximum(given, 0.0), np.minimum(given, 0.0)
        shift = (positive @ line.upper_shift[:, :, None] + negative @ line.lower_shift[:, :, None])[
            ..., 0
        ]
        slope = positive * line.upper_slope[:, None] + negative * line.lower_slope[:, None]
        affine = network.layers[index].affine
        constant += shift + slope @ affine.bias
        weight += np.abs(shift) + np.abs(slope) @ np.abs(affine.bias)
        pull(held, affine.terms, slope)
    form = held.get(0, np.zeros((*shape, lo.shape[1])))
    center, half = (lo + hi) / 2, (hi - lo) / 2
    swing = (np.abs(form) @ half[:, :, None])[..., 0]
    middle = (form @ center[:, :, None])[..., 0]
    size = weight + swing + (np.abs(form) @ np.abs(center)[:, :, None])[..., 0]
    return middle + swing + constant + 100 * SLACK * size, form, constant


def pull(held: dict[int, Batch], terms: Mapping[int, Matrix], slope: Batch) -> None:
    """Add slope @ matrix to the coefficients of every source."""
    count, rows, width = slope.shape
    for source, matrix in terms.items():
        part = (slope.reshape(count * rows, width) @ matrix).reshape(count, rows, -1)
        held[source] = held[source] + part if source in held else part


@dataclass(frozen=True)
class UnitBounds:
    """Pre-activation bounds per layer, each (n, width); ``empty`` marks boxes proved infeasible."""

    lows: tuple[Batch, ...]
    highs: tuple[Batch, ...]

    def unstable(self) -> NDArray[np.intp]:
        """How many units change sign, per box."""
        pairs = zip(self.lows, self.highs, strict=True)
        return sum(
            (((lo < 0) & (hi > 0)).sum(axis=1) for lo, hi in pairs),
            start=np.zeros(len(self.lows[0]) if self.lows else 1, dtype=np.intp),
        )


def unit_bounds(
    network: Network,
    lo: Batch,
    hi: Batch,
    domain: Domain | None = None,
    known: UnitBounds | None = None,
    linear: bool = True,
    clock: Clock = NO_LIMIT,
) -> UnitBounds:
    """Sound bounds on every pre-activation over boxes [lo, hi] of shape (n, d).

    Args:
        network: without linear stages and step units.
        domain: when given, units that read only the input are bounded over it as well.
        known: bounds that already hold, intersected.
        linear: whether to run backward linear bounds where intervals leave units undecided.
        clock: units not tightened before its end keep their interval bounds.
    """
    lows, highs = [lo], [hi]
    relaxed: list[Lines | None] = []
    pre: list[tuple[Batch, Batch]] = []
    for index, layer in enumerate(network.layers):
        low, high = interval(layer.affine, lows, highs)
        if known is not None:
            low, high = np.maximum(low, known.lows[index]), np.minimum(high, known.highs[index])
        if domain is not None and layer.affine.sources == (0,):
            low, high = _over_domain(layer.affine, domain, low, high, clock)
        elif linear and layer.affine.sources != (0,):
            low, high = _tighten(network, index, low, high, relaxed, lo, hi, clock)
        high = np.maximum(low, high)  # crossing by rounding only; a real crossing is an empty box
        pre.append((low, high))
        step = layer.activation.kind == "step"
        relaxed.append(None if step else lines(low, high, layer.activation))
        value = value_bounds(low, high, layer.activation)
        lows.append(value[0])
        highs.append(value[1])
    return UnitBounds(tuple(p[0] for p in pre), tuple(p[1] for p in pre))


def _over_domain(
    affine: Affine, domain: Domain, low: Batch, high: Batch, clock: Clock
) -> tuple[Batch, Batch]:
    """Bounds on units that read only the input: the domain's own, for as long as there is time."""
    matrix = affine.terms[0]
    if isinstance(domain, Box) and sp.issparse(matrix):
        return low, high  # intervals are exact there
    low, high = low.copy(), high.copy()
    step = max(1, DOMAIN_ENTRIES // matrix.shape[1])
    for start in range(0, affine.size, step):
        if clock.expired():
            break
        part = slice(start, start + step)
        below, above = domain.support(mx.dense(matrix[part]))
        below, above = below - SLACK * np.abs(below), above + SLACK * np.abs(above)
        low[:, part] = np.maximum(low[:, part], below + affine.bias[part])
        high[:, part] = np.minimum(high[:, part], above + affine.bias[part])
    return low, high


def _tighten(
    network: Network,
    index: int,
    low: Batch,
    high: Batch,
    relaxed: Sequence[Lines | None],
    lo: Batch,
    hi: Batch,
    clock: Clock,
) -> tuple[Batch, Batch]:
    """Backward bounds for the units that some box leaves undecided."""
    affine = network.layers[index].affine
    open_units = np.flatnonzero(((low < 0) & (high > 0)).any(axis=0))
    if not len(open_units) or any(line is None for line in relaxed):
        return low, high
    cost = sum(mx.nnz(m) for a in [*network.maps][: index + 1] for m in a.terms.values())
    if 2.0 * len(lo) * len(open_units) * cost > MAX_WORK:
        return low, high
    low, high = low.copy(), high.copy()
    if len(lo) == 1 and all(sp.issparse(m) for m in affine.terms.values()):
        box = lo[0], hi[0]
        done, least, most = tightened(network, affine, open_units, relaxed, box, SLACK, clock)
        high[0, done] = np.minimum(high[0, done], most)
        low[0, done] = np.maximum(low[0, done], least)
        return low, high
    step = max(1, CHUNK // (2 * len(lo) * max(network.widths)))
    for start in range(0, len(open_units), step):
        if clock.expired():
            break
        some = open_units[start : start + step]
        bound = _both_sides(network, affine, some, relaxed, lo, hi)
        high[:, some] = np.minimum(high[:, some], bound[:, : len(some)])
        low[:, some] = np.maximum(low[:, some], -bound[:, len(some) :])
    return low, high


def _both_sides(
    network: Network,
    affine: Affine,
    units: NDArray[np.intp],
    relaxed: Sequence[Lines | None],
    lo: Batch,
    hi: Batch,
) -> Batch:
    """Upper bounds on some units of a map and, behind them, on their negatives."""
    rows: dict[int, Batch] = {}
    for source, matrix in affine.terms.items():
        picked: Any = mx.dense(matrix[units])
        both = np.concatenate([picked, -picked])
        rows[source] = np.broadcast_to(both, (len(lo), *both.shape))
    bias = np.concatenate([affine.bias[units], -affine.bias[units]])
    return backward(network, rows, np.tile(bias, (len(lo), 1)), relaxed, lo, hi)[0]
