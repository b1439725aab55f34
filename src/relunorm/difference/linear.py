"""Linear bounds on the difference of two paired networks over a box of inputs.

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
from relunorm.bounds.relaxation import Kink, chord_slope, default_tilt, fixed_sides
from relunorm.clock import NO_LIMIT, Clock
from relunorm.difference.pair import Pair, PairedMap
from relunorm.matrix import Array, Vector

#: Coefficients per pass over the rows of a map.
CHUNK = 1 << 20

RELU = Kink(0.0, 1.0, step=False)


@dataclass(frozen=True, eq=False)
class Line:
    """``d' <= g e + k z + constant`` for every unit."""

    g: Vector
    k: Vector
    constant: Vector


@dataclass(eq=False)
class LayerBounds:
    """What is known of one layer: the ends of z, e and y = z + e, unit by unit.

    Computed from those: lines for v' = act(z) and d', and the sizes of v' and d'.
    """

    z: tuple[Vector, Vector]
    e: tuple[Vector, Vector]
    y: tuple[Vector, Vector]
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
        closed, on = ~self.open, (zl >= 0) & (yl >= 0)
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
            joint = ours * (middle_e + middle_z) + lift - theirs * middle_z
            better = (sign * joint < sign * (g * middle_e + rest)) & np.isfinite(joint)
            g, k = np.where(better, ours, g), np.where(better, ours - theirs, 0.0)
            constant = np.where(better, lift, rest)
            lines.append(
                Line(
                    np.where(closed, on * 1.0, g),
                    np.where(closed, 0.0, k),
                    np.where(closed, 0.0, constant),
                )
            )
        return lines[0], lines[1]


def _relu_lines(low: Vector, high: Vector) -> tuple[Vector, Vector, Vector]:
    """Slopes of the line above relu and of the one below it, and the height of the first at 0."""
    with np.errstate(invalid="ignore"):
        steep = chord_slope(RELU, low, high)
        rise = np.where((low < 0) & (high > 0), -steep * low, 0.0)
    return steep, fixed_sides(default_tilt(low, high), low, high), rise


@dataclass(frozen=True, eq=False)
class Bounded:
    """What is known of both networks over a box.

    Attributes:
        layers: of every hidden layer.
        upper: (2 outputs,), bounds of g - f, then of f - g.
        slope: (2 outputs, inputs), of the affine functions that gave them.
    """

    layers: list[LayerBounds]
    upper: Vector
    slope: Array


def linear_bounds(pair: Pair, lo: Vector, hi: Vector, clock: Clock = NO_LIMIT) -> Bounded:
    """Bound both networks and their difference over the box ``lo <= x <= hi``."""
    passes = _Backward(pair, lo, hi)
    for below in pair.below:
        ends = []
        for own, gap in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            clock.check()
            found, _ = passes.bound(own, gap)
            size = len(found) // 2
            ends += [-found[size:], found[:size]]
        passes.add(LayerBounds(*_meet(*ends), below))
    clock.check()
    return Bounded(passes.layers, *passes.bound(0.0, 1.0))


def _meet(
    zl: Vector, zu: Vector, el: Vector, eu: Vector, yl: Vector, yu: Vector
) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector], tuple[Vector, Vector]]:
    """z, e and y, the last two tightened by each other."""
    yl = np.maximum(yl, np.nextafter(zl + el, -np.inf))
    yu = np.minimum(yu, np.nextafter(zu + eu, np.inf))
    el = np.maximum(el, np.nextafter(yl - zu, -np.inf))
    eu = np.minimum(eu, np.nextafter(yu - zl, np.inf))
    return (zl, zu), (el, eu), (yl, yu)


class _Backward:
    """Backward bounds over a box, from the first map without lines of its own."""

    def __init__(self, pair: Pair, lo: Vector, hi: Vector):
        self.pair = pair
        self.center, self.half = lo / 2 + hi / 2, np.nextafter(hi / 2 - lo / 2, np.inf)
        self.layers: list[LayerBounds] = []
        self.inputs = np.maximum(np.abs(lo), np.abs(hi))
        self.sizes = [self._sizes(pair.maps[0])]

    def add(self, layer: LayerBounds) -> None:
        """Go on to the next map."""
        self.layers.append(layer)
        self.sizes.append(self._sizes(self.pair.maps[len(self.layers)]))

    def _sizes(self, affine: PairedMap) -> tuple[Vector, Vector]:
        """The sizes that are summed up in z and in e."""
        own, gap = np.zeros(affine.size), np.zeros(affine.size)
        for source in affine.W:
            span = self.layers[source - 1].span if source else self.inputs
            own += np.abs(affine.W[source]) @ span
            gap += np.abs(affine.D[source]) @ span
            if source:
                gap += np.abs(affine.V[source]) @ self.layers[source - 1].gap
        return own, gap

    def bound(self, own: float, gap: float) -> tuple[Vector, Array]:
        """Sound upper bounds of ``own * z + gap * e`` and of its negative, and slopes in x."""
        rows = self.pair.maps[len(self.layers)].size
        widest = max((w.shape[1] for m in self.pair.maps for w in m.W.values()), default=1)
        step = max(1, CHUNK // max(widest, rows))
        bounds, slopes = [np.empty(0)], [np.empty((0, len(self.center)))]
        for sign in (1.0, -1.0):
            for start in range(0, rows, step):
                weights = sign * np.eye(min(step, rows - start), rows, start)
                value, slope = self._rows(own * weights, gap * weights if gap else None)
                bounds.append(value)
                slopes.append(slope)
        return np.concatenate(bounds), np.concatenate(slopes)

    def _rows(self, slope: Array, g: Array | None) -> tuple[Vector, Array]:
        """Bounds of rows, given their coefficients of z and of e of the last map."""
        index = len(self.layers)
        value, size = np.zeros(len(slope)), np.zeros(len(slope))
        on_value: dict[int, Array] = {}
        on_gap: dict[int, Array] = {}
        for layer in range(index, -1, -1):
            affine, (own_size, gap_size) = self.pair.maps[layer], self.sizes[layer]
            reach = far = np.zeros(affine.size)
            if layer < index:
                A, B = on_value.pop(layer + 1, None), on_gap.pop(layer + 1, None)
                if A is None:
                    continue
                known = self.layers[layer]
                below, bend = known.below, 1.0 - known.below
                reach, far = np.maximum(np.abs(known.z[0]), np.abs(known.z[1])), known.gap
                # act = below * z + (1 - below) * relu(z), and the same for the difference
                up = A > 0
                slope, g = A * (below + bend * np.where(up, known.steep, known.flat)), None
                value += bend * (np.where(up, A, 0.0) @ known.rise)
                size += np.abs(A) @ known.span
                if B is not None:
                    up, kinked = B > 0, bend * B
                    g = below * B + kinked * np.where(up, known.upper.g, known.lower.g)
                    slope += kinked * np.where(up, known.upper.k, known.lower.k)
                    lift = np.where(up, known.upper.constant, known.lower.constant)
                    value += (kinked * lift).sum(axis=1)
                    size += np.abs(B) @ (known.gap + known.lifts)
            value += slope @ affine.b
            size += np.abs(slope) @ (own_size + np.abs(affine.b) + reach)
            if g is not None:
                value += g @ affine.shift
                size += np.abs(g) @ (gap_size + np.abs(affine.shift) + far)
            _down(affine, slope, g, on_value, on_gap)
        last = on_value.pop(0, np.zeros((len(value), len(self.center))))
        value += last @ self.center + np.abs(last) @ self.half
        size += np.abs(last) @ (np.abs(self.center) + self.half)
        result = rounded_up(value, slack(size, self.pair.operations))
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
