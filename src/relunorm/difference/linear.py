"""Linear bounds on the difference of two paired networks, for many boxes of inputs at once.

From a target down to the input, both v and d are replaced by linear bounds (see `pair` for the
names): act(z) by lines above and below it, and d' = act(z + e) - act(z) by the better one of

    a line in e alone, through what the slopes between 0 and 1 allow at the ends of e;
    a line above relu(z + e) less a line below relu(z), or the other way round.

The first is sharp where e is small, the second where z or z + e keeps its sign and where e is
large. What is left is affine in the input. (Bounding the difference instead of both networks:
Paulsen, Wang and Wang, ReluDiff, ICSE 2020; backward bounds: Zhang et al., CROWN, NeurIPS 2018.)

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import rounded_up, slack
from relunorm.bounds.linear import chord_slope, default_tilt, fixed_sides
from relunorm.bounds.problem import Kink
from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference.pair import Pair, PairedMap

Array = NDArray[np.float64]

#: Coefficients per pass over the rows of a map.
CHUNK = 1 << 20

RELU = Kink(0.0, 1.0, step=False)

#: Lower and upper ends of z, of e and of y = z + e: (boxes, 6, units).
Ends = Array


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
        self.steep, self.flat, self.rise = _relu_lines(zl, zu)
        self.upper, self.lower = self._lines()
        self.span = np.maximum(np.maximum(zu, 0.0), np.abs(self.below * zl))
        self.gap = np.maximum(np.abs(self.e[0]), np.abs(self.e[1]))
        self.lifts = np.abs(self.upper.constant) + np.abs(self.lower.constant)

    @property
    def open(self) -> NDArray[np.bool_]:
        """Units whose difference is not a fixed multiple of e."""
        (zl, zu), (yl, yu) = self.z, self.y
        return ~((zl >= 0) & (yl >= 0) | (zu <= 0) & (yu <= 0))

    def _lines(self) -> tuple[Line, Line]:
        """Lines above and below relu(z + e) - relu(z), the better ones at the middle of the box."""
        (zl, zu), (el, eu), (yl, yu) = self.z, self.e, self.y
        on, off = (zl >= 0) & (yl >= 0), (zu <= 0) & (yu <= 0)
        fixed, zero = on | off, np.zeros_like(zl)
        wide = np.where(eu > el, eu - el, 1.0)
        middle_e, middle_z = el / 2 + eu / 2, zl / 2 + zu / 2
        steep, flat, rise = _relu_lines(yl, yu)
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


def _relu_lines(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Slopes of the line above relu and of the one below it, and the height of the first at 0."""
    with np.errstate(invalid="ignore"):
        steep = chord_slope(RELU, low, high)
        rise = np.where((low < 0) & (high > 0), -steep * low, 0.0)
    return steep, fixed_sides(default_tilt(low, high), low, high), rise


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


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows over a map, each on a box of its own: ``weights @ (own * z + gap * e)``.

    Attributes:
        weights: (rows, size of the map).
        box: (rows,), on which box.
        own, gap: (rows,), how much of z and of e.
    """

    weights: Array
    box: NDArray[np.intp]
    own: Array
    gap: Array

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.weights[part], self.box[part], self.own[part], self.gap[part])

    @staticmethod
    def of_units(
        size: int, box: NDArray[np.intp], unit: NDArray[np.intp], own: float, gap: float
    ) -> Rows:
        """Both signs of single units: the upper ends first, then the negated lower ones."""
        count = len(unit)
        weights = np.zeros((2 * count, size))
        weights[np.arange(count), unit] = 1.0
        weights[count + np.arange(count), unit] = -1.0
        same = np.ones(2 * count)
        return Rows(weights, np.concatenate([box, box]), own * same, gap * same)


def linear_bounds(pair: Pair, lo: Array, hi: Array, clock: Clock = NO_LIMIT) -> Bounded:
    """Bound both networks and their difference over boxes ``lo <= x <= hi``, (boxes, inputs)."""
    layers: list[LayerBounds] = []
    sizes: list[tuple[Array, Array]] = []
    for index, below in enumerate(pair.below):
        clock.check()
        sizes.append(_sizes(pair.maps[index], layers, lo, hi))
        size = pair.maps[index].size
        box, unit = (where.ravel() for where in np.indices((len(lo), size)))
        ends = np.empty((len(lo), 6, size))
        for at, own, gap in ((0, 1.0, 0.0), (2, 0.0, 1.0), (4, 1.0, 1.0)):
            rows = Rows.of_units(size, box, unit, own, gap)
            found, _ = descend(pair, layers, sizes, lo, hi, index, rows)
            ends[:, at] = -found[len(unit) :].reshape(len(lo), size)
            ends[:, at + 1] = found[: len(unit)].reshape(len(lo), size)
        layers.append(LayerBounds(*_meet(ends), below))
    clock.check()
    outputs = pair.maps[-1].size
    weights = np.tile(np.concatenate([np.eye(outputs), -np.eye(outputs)]), (len(lo), 1))
    box = np.repeat(np.arange(len(lo)), 2 * outputs)
    rows = Rows(weights, box, np.zeros(len(box)), np.ones(len(box)))
    sizes.append(_sizes(pair.maps[-1], layers, lo, hi))
    upper, slope = descend(pair, layers, sizes, lo, hi, len(pair.below), rows)
    return Bounded(layers, upper.reshape(len(lo), -1), slope.reshape(len(lo), 2 * outputs, -1))


def _meet(
    ends: Ends,
) -> tuple[tuple[Array, Array], tuple[Array, Array], tuple[Array, Array]]:
    """z, e and y, the last two tightened by each other."""
    zl, zu, el, eu, yl, yu = (ends[:, k] for k in range(6))
    yl = np.maximum(yl, np.nextafter(zl + el, -np.inf))
    yu = np.minimum(yu, np.nextafter(zu + eu, np.inf))
    el = np.maximum(el, np.nextafter(yl - zu, -np.inf))
    eu = np.minimum(eu, np.nextafter(yu - zl, np.inf))
    return (zl, zu), (el, eu), (yl, yu)


def descend(
    pair: Pair,
    layers: list[LayerBounds],
    sizes: list[tuple[Array, Array]],
    lo: Array,
    hi: Array,
    index: int,
    rows: Rows,
) -> tuple[Array, Array]:
    """Sound upper bounds of rows over a map, and their slopes in x.

    Args:
        layers: what is known below the map.
        sizes: for every map up to this one what `_sizes` says.
    """
    widest = max((w.shape[1] for m in pair.maps for w in m.W.values()), default=1)
    step = max(1, CHUNK // widest)
    count = len(rows.box)
    bound, slope = np.empty(count), np.empty((count, lo.shape[1]))
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        bound[part], slope[part] = _descend(pair, layers, sizes, lo, hi, index, rows[part])
    return bound, slope


def _descend(
    pair: Pair,
    layers: list[LayerBounds],
    sizes: list[tuple[Array, Array]],
    lo: Array,
    hi: Array,
    index: int,
    rows: Rows,
) -> tuple[Array, Array]:
    box, top = rows.box, pair.maps[index]
    own, gap = rows.own[:, None] * rows.weights, rows.gap[:, None] * rows.weights
    value = own @ top.b + gap @ top.shift
    size = np.abs(own) @ np.abs(top.b) + np.abs(gap) @ np.abs(top.shift)
    size += _dot(np.abs(own), sizes[index][0][box]) + _dot(np.abs(gap), sizes[index][1][box])
    on_value: dict[int, Array] = {}
    on_gap: dict[int, Array] = {}
    _down(top, own, gap if rows.gap.any() else None, on_value, on_gap)
    for layer in range(index - 1, -1, -1):
        A, B = on_value.pop(layer + 1, None), on_gap.pop(layer + 1, None)
        if A is None:
            continue
        known, affine = layers[layer], pair.maps[layer]
        below, bend = known.below, 1.0 - known.below
        # act = below * z + (1 - below) * relu(z), and the same for the difference
        up = A > 0
        slope = A * (below + bend * np.where(up, known.steep[box], known.flat[box]))
        value += bend * _dot(np.where(up, A, 0.0), known.rise[box])
        size += _dot(np.abs(A), known.span[box])
        g = None
        if B is not None:
            up, kinked = B > 0, bend * B
            g = below * B + kinked * np.where(up, known.upper.g[box], known.lower.g[box])
            slope += kinked * np.where(up, known.upper.k[box], known.lower.k[box])
            lift = np.where(up, known.upper.constant[box], known.lower.constant[box])
            value += _dot(kinked, lift) + g @ affine.shift
            size += _dot(np.abs(B), (known.gap + known.lifts)[box])
            size += _dot(np.abs(g), (sizes[layer][1] + known.gap + np.abs(affine.shift))[box])
        value += slope @ affine.b
        reach = np.maximum(np.abs(known.z[0]), np.abs(known.z[1]))
        size += _dot(np.abs(slope), (sizes[layer][0] + np.abs(affine.b) + reach)[box])
        _down(affine, slope, g, on_value, on_gap)
    last = on_value.pop(0, np.zeros((len(box), lo.shape[1])))
    center, half = lo / 2 + hi / 2, np.nextafter(hi / 2 - lo / 2, np.inf)
    value += _dot(last, center[box]) + _dot(np.abs(last), half[box])
    size += _dot(np.abs(last), (np.abs(center) + half)[box])
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
        below = slope @ affine.W[source]
        if g is not None:
            below += g @ affine.D[source]
            if source:
                gaps = g @ affine.V[source]
                on_gap[source] = on_gap[source] + gaps if source in on_gap else gaps
        on_value[source] = on_value[source] + below if source in on_value else below


def _sizes(
    affine: PairedMap, layers: list[LayerBounds], lo: Array, hi: Array
) -> tuple[Array, Array]:
    """The sizes that are summed up in z and in e, (boxes, rows) each."""
    own, gap = np.zeros((len(lo), affine.size)), np.zeros((len(lo), affine.size))
    for source in affine.W:
        span = np.maximum(np.abs(lo), np.abs(hi)) if source == 0 else layers[source - 1].span
        own += span @ np.abs(affine.W[source]).T
        gap += span @ np.abs(affine.D[source]).T
        if source:
            gap += layers[source - 1].gap @ np.abs(affine.V[source]).T
    return own, gap


def _dot(rows: Array, vectors: Array) -> Array:
    """Row by row."""
    return np.einsum("ij,ij->i", rows, vectors)
