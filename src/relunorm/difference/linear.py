"""Linear bounds on the difference of two paired networks, for many boxes of inputs at once.

From a target down to the input, both v and d are replaced by linear bounds (see `pair` for the
names): act(z) by lines above and below it, and d' = act(z + e) - act(z) by the better one of

    a line in e alone, through what the slopes between 0 and 1 allow at the ends of e;
    a line above relu(z + e) less a line below relu(z), or the other way round.

The first is sharp where e is small, the second where z or z + e keeps its sign and where e is
large. What is left is affine in the input. (Bounding the difference instead of both networks:
Paulsen, Wang and Wang, ReluDiff, ICSE 2020; backward bounds: Zhang et al., CROWN, NeurIPS 2018.)

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.stability.rounding`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference.pair import Pair, PairedMap
from relunorm.stability.rounding import rounded_up, slack

Array = NDArray[np.float64]

#: Coefficients per pass over the rows of a map.
CHUNK = 1 << 21


@dataclass(frozen=True, eq=False)
class Line:
    """``d' <= g e + k z + constant`` for every box and unit, all (boxes, units)."""

    g: Array
    k: Array
    constant: Array


@dataclass(eq=False)
class LayerBounds:
    """What is known of one layer on every box: z, e and y = z + e, all (boxes, units).

    Computed from those: lines for v' = act(z) and d', and the sizes of v' and d'.
    """

    z: tuple[Array, Array]
    e: tuple[Array, Array]
    y: tuple[Array, Array]
    below: float
    upper: Line = field(init=False)
    lower: Line = field(init=False)

    def __post_init__(self) -> None:
        zl, zu = self.z
        with np.errstate(invalid="ignore", divide="ignore"):
            chord = np.where(zu > zl, zu / (zu - zl), 0.0)
        self.steep = np.where(zl >= 0, 1.0, np.where(zu <= 0, 0.0, chord))
        self.rise = np.where((zl < 0) & (zu > 0), -self.steep * zl, 0.0)
        self.flat = np.where(zl >= 0, 1.0, np.where(zu <= 0, 0.0, (zu > -zl) * 1.0))
        self.upper, self.lower = self._lines()
        self.span = self._size(*self.z)
        self.gap = np.maximum(np.abs(self.e[0]), np.abs(self.e[1]))

    def _size(self, low: Array, high: Array) -> Array:
        return np.maximum(np.maximum(high, 0.0), np.abs(self.below * low))

    @property
    def open(self) -> NDArray[np.bool_]:
        """Units whose difference is not a fixed multiple of e."""
        (zl, zu), (low, high) = self.z, self.y
        return ~(((zl >= 0) & (low >= 0)) | ((zu <= 0) & (high <= 0)))

    def _lines(self) -> tuple[Line, Line]:
        """Lines above and below relu(z + e) - relu(z), the better ones at the middle of the box."""
        (zl, zu), (el, eu), (yl, yu) = self.z, self.e, self.y
        on, off = (zl >= 0) & (yl >= 0), (zu <= 0) & (yu <= 0)
        fixed, zero = on | off, np.zeros_like(zl)
        wide = np.where(eu > el, eu - el, 1.0)
        middle_e, middle_z = el / 2 + eu / 2, zl / 2 + zu / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            chord = np.where(yu > yl, yu / (yu - yl), 0.0)
        steep = np.where(yl >= 0, 1.0, np.where(yu <= 0, 0.0, chord))
        rise = np.where((yl < 0) & (yu > 0), -steep * yl, 0.0)
        flat = np.where(yl >= 0, 1.0, np.where(yu <= 0, 0.0, (yu > -yl) * 1.0))
        lines = []
        for sign, ours, theirs, lift in (
            (1.0, steep, self.flat, rise),
            (-1.0, flat, self.steep, -self.rise),
        ):
            ends = [np.maximum(sign * e, 0.0) * sign for e in (el, eu)]
            g = np.where(eu > el, (ends[1] - ends[0]) / wide, 0.0)
            # both ends, so that the line holds where they were rounded apart
            rest = sign * np.maximum(sign * (ends[0] - g * el), sign * (ends[1] - g * eu))
            k, constant = zero, rest
            joint = ours * (middle_e + middle_z) + lift - theirs * middle_z
            better = sign * joint < sign * (g * middle_e + rest)
            better &= np.isfinite(joint)
            g = np.where(better, ours, g)
            k = np.where(better, ours - theirs, k)
            constant = np.where(better, lift, constant)
            lines.append(
                Line(
                    np.where(fixed, on * 1.0, g),
                    np.where(fixed, 0.0, k),
                    np.where(fixed, 0.0, constant),
                )
            )
        return lines[0], lines[1]


@dataclass(frozen=True, eq=False)
class Bounded:
    """What is known of both networks on every box.

    Attributes:
        layers: of every hidden layer.
        upper: (boxes, 2 outputs), bounds of g - f, then of f - g.
        slope: (boxes, 2 outputs, inputs), of the affine functions that gave them.
    """

    layers: list[LayerBounds]
    upper: Array
    slope: Array


def linear_bounds(pair: Pair, lo: Array, hi: Array, clock: Clock = NO_LIMIT) -> Bounded:
    """Bound both networks and their difference over boxes ``lo <= x <= hi``, (boxes, inputs)."""
    layers: list[LayerBounds] = []
    for index, below in enumerate(pair.below):
        clock.check()
        z = _ends(pair, layers, lo, hi, index, 1.0, 0.0)
        e = _ends(pair, layers, lo, hi, index, 0.0, 1.0)
        y = _ends(pair, layers, lo, hi, index, 1.0, 1.0)
        y = (
            np.maximum(y[0], np.nextafter(z[0] + e[0], -np.inf)),
            np.minimum(y[1], np.nextafter(z[1] + e[1], np.inf)),
        )
        e = (
            np.maximum(e[0], np.nextafter(y[0] - z[1], -np.inf)),
            np.minimum(e[1], np.nextafter(y[1] - z[0], np.inf)),
        )
        layers.append(LayerBounds(z, e, y, below))
    clock.check()
    count = pair.maps[-1].size
    rows = np.concatenate([np.eye(count), -np.eye(count)])
    upper, slope = descend(pair, layers, lo, hi, len(pair.below), rows, 0.0, 1.0)
    return Bounded(layers, upper, slope)


def _ends(
    pair: Pair, layers: list[LayerBounds], lo: Array, hi: Array, index: int, own: float, gap: float
) -> tuple[Array, Array]:
    """Bounds of own * z + gap * e of a map, for all rows."""
    size = pair.maps[index].size
    low, high = np.empty((len(lo), size)), np.empty((len(lo), size))
    inner = max(w.shape[1] for m in pair.maps for w in m.W.values())
    step = max(1, CHUNK // (2 * inner * len(lo)))
    for start in range(0, size, step):
        stop = min(start + step, size)
        rows = np.eye(stop - start, size, start)
        both = np.concatenate([rows, -rows])
        found, _ = descend(pair, layers, lo, hi, index, both, own, gap)
        high[:, start:stop], low[:, start:stop] = (
            found[:, : stop - start],
            -found[:, stop - start :],
        )
    return low, high


def descend(
    pair: Pair,
    layers: list[LayerBounds],
    lo: Array,
    hi: Array,
    index: int,
    rows: Array,
    own: float,
    gap: float,
) -> tuple[Array, Array]:
    """Sound upper bounds of ``rows @ (own * z + gap * e)`` of a map, and their slopes in x."""
    boxes, count = len(lo), len(rows)
    top = pair.maps[index]
    value = np.tile(rows @ (own * top.b + gap * top.shift), (boxes, 1))
    size = np.tile(np.abs(rows) @ (own * np.abs(top.b) + gap * np.abs(top.shift)), (boxes, 1))
    on_value: dict[int, Array] = {}
    on_gap: dict[int, Array] = {}
    flat_rows = np.broadcast_to(rows, (1, *rows.shape))
    _down(pair.maps[index], own * flat_rows, gap * flat_rows, on_value, on_gap)
    size = size + _sizes(top, layers, lo, hi, own, gap) @ np.abs(rows).T
    for layer in range(index - 1, -1, -1):
        A, B = on_value.pop(layer + 1, None), on_gap.pop(layer + 1, None)
        if A is None and B is None:
            continue
        known, affine = layers[layer], pair.maps[layer]
        shape = (boxes, count, affine.size)
        A = np.zeros(shape) if A is None else np.broadcast_to(A, shape)
        below = known.below
        # act = below * z + (1 - below) * relu(z), and the same for the difference
        up = A > 0
        kinked = (1.0 - below) * A
        slope = below * A + kinked * np.where(up, known.steep[:, None], known.flat[:, None])
        value += _dot(np.where(up, kinked, 0.0), known.rise)
        size += _dot(np.abs(A), known.span)
        g = None
        if B is not None:
            B = np.broadcast_to(B, shape)
            up, kinked = B > 0, (1.0 - below) * B
            g = below * B + kinked * np.where(up, known.upper.g[:, None], known.lower.g[:, None])
            slope = slope + kinked * np.where(up, known.upper.k[:, None], known.lower.k[:, None])
            lifted = np.where(up, kinked, 0.0)
            value += _dot(lifted, known.upper.constant)
            value += _dot(kinked - lifted, known.lower.constant)
            value += g @ affine.shift
            sizes = np.abs(known.upper.constant) + np.abs(known.lower.constant)
            size += _dot(np.abs(B), known.gap + sizes)
            size += np.abs(g) @ np.abs(affine.shift)
            size += _dot(np.abs(g), _sizes(affine, layers, lo, hi, 0.0, 1.0) + known.gap)
        value += slope @ affine.b
        reach = np.maximum(np.abs(known.z[0]), np.abs(known.z[1]))
        size += _dot(np.abs(slope), _sizes(affine, layers, lo, hi, 1.0, 0.0) + np.abs(affine.b))
        size += _dot(np.abs(slope), reach)
        _down(affine, slope, g, on_value, on_gap)
    last = on_value.pop(0, np.zeros((1, count, lo.shape[1])))
    last = np.broadcast_to(last, (boxes, count, lo.shape[1]))
    center, half = lo / 2 + hi / 2, np.nextafter(hi / 2 - lo / 2, np.inf)
    value += _dot(last, center) + _dot(np.abs(last), half)
    size += _dot(np.abs(last), np.abs(center) + half)
    result = rounded_up(value, slack(size, pair.operations))
    return np.where(np.isnan(result), np.inf, result), last


def _down(
    affine: PairedMap,
    slope: Array,
    g: Array | None,
    on_value: dict[int, Array],
    on_gap: dict[int, Array],
) -> None:
    """Coefficients of z and e become coefficients of the values and differences they read."""
    for source in affine.W:
        below = _times(slope, affine.W[source])
        if g is not None and g.any():
            below += _times(g, affine.D[source])
            if source:
                gaps = _times(g, affine.V[source])
                on_gap[source] = on_gap[source] + gaps if source in on_gap else gaps
        on_value[source] = on_value[source] + below if source in on_value else below


def _sizes(
    affine: PairedMap, layers: list[LayerBounds], lo: Array, hi: Array, own: float, gap: float
) -> Array:
    """The sizes that are summed up in own * z + gap * e, (boxes, rows)."""
    total = np.zeros((len(lo), affine.size))
    for source in affine.W:
        span = np.maximum(np.abs(lo), np.abs(hi)) if source == 0 else layers[source - 1].span
        if own:
            total += span @ np.abs(affine.W[source]).T
        if gap:
            total += span @ np.abs(affine.D[source]).T
            if source:
                total += layers[source - 1].gap @ np.abs(affine.V[source]).T
    return total


def _times(rows: Array, matrix: Array) -> Array:
    boxes, count, size = rows.shape
    return (rows.reshape(-1, size) @ matrix).reshape(boxes, count, -1)


def _dot(rows: Array, vectors: Array) -> Array:
    """Every row of a box times the vector of the box."""
    return np.matmul(rows, vectors[:, :, None])[:, :, 0]
