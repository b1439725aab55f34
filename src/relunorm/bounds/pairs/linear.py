"""Linear bounds on the difference of two paired networks over a domain.

From a target down to the input, both v and d are replaced by linear bounds (see `pair` for the
names): act(z) by lines above and below it, and d' = act(z + e) - act(z) by the best one of

    a line in e alone, through what the slopes that a difference can meet allow at the ends of e;
    a line above act(z + e) less a line below act(z), or the other way round;
    a number, where more is known of d' than what e says.

The first is sharp where e is small, the second where z or z + e keeps its sign and where e is
large. What is left is affine in the input. (Bounding the difference instead of both networks:
Paulsen, Wang and Wang, ReluDiff, ICSE 2020; backward bounds: Zhang et al., CROWN, NeurIPS 2018.)

The second may be a program that rounds: then e has an unknown t of known size added to it in every
map, d' an unknown r in every layer, and inputs may differ, too.

Sound in real arithmetic: sizes are summed beside every value, and results are widened by what their
roundings can amount to (`relunorm.arithmetic.floats`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import SMALLEST
from relunorm.bounds.backward import LinearBound
from relunorm.bounds.pairs.pair import Pair, PairedMap
from relunorm.bounds.relaxation import Kink, lines
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box
from relunorm.domain.reach import Reach, reach_of
from relunorm.matrix import Array, Matrix, Vector

#: Coefficients per pass over the rows of a map.
CHUNK = 1 << 20

#: Lower and upper ends, entry by entry.
Ends = tuple[Vector, Vector]


@dataclass(frozen=True, eq=False)
class Line:
    """``g e + k z + constant`` for every unit."""

    g: Vector
    k: Vector
    constant: Vector


@dataclass(eq=False)
class LayerBounds:
    """What is known of one layer: the ends of z, e and y = z + e, unit by unit.

    Computed from those: the ends of d', lines over v' = act(z) and d', and the sizes of both.

    Args:
        noise: r, at most, per unit; a unit that is 0 in both has none.
        known: what else is known of d'; all that is known of it if units jump.
        joint: whether lines over act(z + e) and act(z) are tried.
    """

    kink: Kink
    z: Ends
    e: Ends
    y: Ends
    noise: Vector | None = None
    known: Ends | None = None
    joint: bool = True
    upper: Line = field(init=False)
    lower: Line = field(init=False)

    def __post_init__(self) -> None:
        zl, zu = self.z
        self.slow, self.fast = self._slopes()
        still = (self.slow == 0) & (self.fast == 0)
        noise = np.zeros_like(zl) if self.noise is None else self.noise
        self.rounding = np.where(still, 0.0, noise)
        with np.errstate(invalid="ignore"):
            self.lines = lines(self.kink, zl, zu)
            self.d = self._moved()
            self.upper, self.lower = self._line(1.0), self._line(-1.0)
        self.reach, self.far = largest(self.z), largest(self.e)
        self.span, self.gap = largest(self.kink.image(zl, zu)), largest(self.d)
        self.size = self.gap.copy()  # of what d' is replaced by
        for line in (self.upper, self.lower):
            self.size += np.abs(line.g) * self.far + np.abs(line.k) * self.reach
            self.size += np.abs(line.constant)

    @property
    def open(self) -> NDArray[np.bool_]:
        """Units that may be on different sides of 0, here or in the other network."""
        (zl, zu), (yl, yu) = self.z, self.y
        return ~((zl >= 0) & (yl >= 0) | (zu <= 0) & (yu <= 0))

    def _slopes(self) -> Ends:
        """The smallest and the largest slope that a difference can meet."""
        below, above = self.kink.below, self.kink.above
        side = np.where((self.z[0] >= 0) & (self.y[0] >= 0), above, below)
        slow = np.where(self.open, min(below, above), side)
        return slow, np.where(self.open, max(below, above), side)

    def _moved(self) -> Ends:
        """The ends of d': a slope times e, r, and what else is known."""
        if self.kink.step:
            assert self.known is not None
            return self.known
        (el, eu), noise = self.e, self.rounding
        ends = [s * e for s in (self.slow, self.fast) for e in self.e]
        low, high = np.minimum.reduce(ends) - noise, np.maximum.reduce(ends) + noise
        low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        none = ((self.fast == 0) & (self.slow == 0) | (el == 0) & (eu == 0)) & (noise == 0)
        low = np.where(none, 0.0, np.nextafter(low, -np.inf))
        high = np.where(none, 0.0, np.nextafter(high, np.inf))
        if self.known is not None:
            low, high = np.maximum(low, self.known[0]), np.minimum(high, self.known[1])
        return low, high

    def _line(self, sign: float) -> Line:
        """The line above d', or the one below: the best one at the middle of the box."""
        (el, eu), (zl, zu), slow, fast = self.e, self.z, self.slow, self.fast
        flat, zero = self.d[1] if sign > 0 else self.d[0], np.zeros_like(zl)
        if self.kink.step:
            return Line(zero, zero, flat)
        bent, wide = slow != fast, eu - el
        ends = [sign * np.maximum(sign * slow * e, sign * fast * e) for e in (el, eu)]
        chord = (ends[1] - ends[0]) / np.where(wide > 0, wide, 1.0)
        g, k = np.where(bent & (wide > 0), chord, fast), zero
        # both ends, so that the line holds where they were rounded apart
        rest = sign * np.maximum(sign * (ends[0] - g * el), sign * (ends[1] - g * eu))
        rest = np.where(bent, rest, 0.0)
        e, z = el / 2 + eu / 2, zl / 2 + zu / 2
        if self.joint:
            ours, theirs = lines(self.kink, *self.y), self.lines
            if sign > 0:
                up, down, lift = ours.above, theirs.below, ours.rise - theirs.drop
            else:
                up, down, lift = ours.below, theirs.above, ours.drop - theirs.rise
            both = up * (e + z) + lift - down * z
            better = bent & (sign * both < sign * (g * e + rest)) & np.isfinite(both)
            g, k = np.where(better, up, g), np.where(better, up - down, k)
            rest = np.where(better, lift, rest)
        rest = rest + sign * self.rounding
        level = sign * flat < sign * (g * e + k * z + rest)
        return Line(*(np.where(level, a, b) for a, b in ((0.0, g), (0.0, k), (flat, rest))))

    def through(self, A: Array, B: Array | None) -> tuple[Array, Array | None, Vector, Vector]:
        """Coefficients of v' and d' become those of z and e; what that leaves, and the sizes."""
        up, line = np.maximum(A, 0.0), self.lines
        down = A - up
        a, value = up * line.above + down * line.below, up @ line.rise + down @ line.drop
        size = np.abs(A) @ self.span
        if B is None:
            return a, None, value, size
        up, above, below = np.maximum(B, 0.0), self.upper, self.lower
        down = B - up
        if above.k.any() or below.k.any():
            a += up * above.k + down * below.k
        value += up @ above.constant + down @ below.constant
        return a, up * above.g + down * below.g, value, size + np.abs(B) @ self.size


def largest(ends: Ends) -> Vector:
    """The largest absolute values between ends."""
    return np.maximum(np.abs(ends[0]), np.abs(ends[1]))


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
    passes = PairedBounds(pair.maps, reach_of(Box(lo, hi)), pair.operations)
    for below in pair.below:
        ends = []
        for own, gap in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            clock.check()
            found, _ = passes.bound(own, gap)
            size = len(found) // 2
            ends += [-found[size:], found[:size]]
        passes.layers.append(LayerBounds(Kink(below, 1.0, step=False), *_meet(*ends)))
    clock.check()
    return Bounded(passes.layers, *passes.bound(0.0, 1.0))


def _meet(
    zl: Vector, zu: Vector, el: Vector, eu: Vector, yl: Vector, yu: Vector
) -> tuple[Ends, Ends, Ends]:
    """z, e and y, the last two tightened by each other."""
    yl = np.maximum(yl, np.nextafter(zl + el, -np.inf))
    yu = np.minimum(yu, np.nextafter(zu + eu, np.inf))
    el = np.maximum(el, np.nextafter(yl - zu, -np.inf))
    eu = np.minimum(eu, np.nextafter(yu - zl, np.inf))
    return (zl, zu), (el, eu), (yl, yu)


@dataclass(frozen=True, eq=False)
class _Read:
    """A map with the matrices of its e (differences under ``~k``), the sizes that are summed up
    in z and in e, and what products can lose to underflow."""

    affine: PairedMap
    e: dict[int, Matrix]
    own: Vector
    far: Vector
    lost: float


class PairedBounds:
    """Backward bounds of z and e of the first map that has no layer yet.

    Args:
        maps: those of both networks; more may come.
        reach: of the inputs.
        operations: roundings behind one number of a pass, at most.
        apart: how far the inputs of both can be from each other; not at all if left out.

    Attributes:
        layers: what is known, added one by one.
        noise: t, at most, per map and row; none where it is left out.
    """

    def __init__(
        self,
        maps: Sequence[PairedMap],
        reach: Reach,
        operations: int,
        apart: Vector | None = None,
    ):
        self.maps, self.reach, self.operations, self.apart = maps, reach, operations, apart
        self.layers: list[LayerBounds] = []
        self.noise: list[Vector] = []
        self._reads: dict[int, _Read] = {}

    def _read(self, index: int) -> _Read:
        """A map, made ready while it is the same."""
        affine = self.maps[index]
        if index in self._reads and self._reads[index].affine is affine:
            return self._reads[index]
        own, far, lost, e = np.abs(affine.b), np.abs(affine.shift), 0.0, dict(affine.D)
        for source in affine.W:
            known = self.layers[source - 1] if source else None
            span, gap = (known.span, known.gap) if known else (self.reach.span, self.apart)
            own = own + abs(affine.W[source]) @ span
            far = far + abs(affine.D[source]) @ span
            lost += float(span[np.isfinite(span)].sum())
            if gap is not None:
                e[~source] = affine.V[source]
                far = far + abs(affine.V[source]) @ gap
                lost += float(gap[np.isfinite(gap)].sum())
        if index < len(self.noise):
            far = far + self.noise[index]
        self._reads[index] = _Read(affine, e, own, far, 2 * affine.size * SMALLEST * lost)
        return self._reads[index]

    def bound(self, own: float, gap: float) -> tuple[Vector, Array]:
        """Sound upper bounds of ``own * z + gap * e`` and of its negative, and slopes in x."""
        rows = self.maps[len(self.layers)].size
        widest = max((w.shape[1] for m in self.maps for w in m.W.values()), default=1)
        step = max(1, CHUNK // (2 * max(widest, rows)))
        bounds, slopes = np.empty((2, rows)), np.empty((2, rows, self.reach.size))
        for start in range(0, rows, step):
            weights = np.eye(min(step, rows - start), rows, start)
            weights = np.concatenate([weights, -weights])
            value, slope = self.rows(own * weights if own else None, gap * weights if gap else None)
            bounds[:, start : start + step] = value.reshape(2, -1)
            slopes[:, start : start + step] = slope.reshape(2, -1, self.reach.size)
        return bounds.ravel(), slopes.reshape(2 * rows, -1)

    def rows(self, a: Array | None, g: Array | None) -> tuple[Vector, Array]:
        """Sound upper bounds of ``a z + g e``, row by row, and slopes in x.

        Cost: as two backward passes of `relunorm.bounds.layers.linear`.
        """
        index, count = len(self.layers), next(len(x) for x in (a, g) if x is not None)
        walk = LinearBound(np.zeros(count), {}, size=np.zeros(count))
        self._pull(walk, index, a, g)
        for layer, A in walk.layers(index):
            known = self.layers[layer]
            a, g, rest, size = known.through(A, walk.on.pop(~(layer + 1), None))
            walk.value = walk.value + rest
            walk.size = walk.size + size + np.abs(a) @ known.reach
            if g is not None:
                walk.size += np.abs(g) @ known.far
            self._pull(walk, layer, a, g)
        last = walk.on.get(0, np.zeros((count, self.reach.size)))
        top, weight = self.reach.support_upper(last)
        walk.value, walk.size = walk.value + top, walk.size + weight
        if ~0 in walk.on:
            more = np.abs(walk.on[~0]) @ self.apart
            walk.value, walk.size = walk.value + more, walk.size + more
        return walk.safe(self.operations), last

    def _pull(self, walk: LinearBound, layer: int, a: Array | None, g: Array | None) -> None:
        """Coefficients of z and e become those of the values and differences they read."""
        read = self._read(layer)
        walk.lost += read.lost
        if a is not None:
            walk.size = walk.size + np.abs(a) @ read.own
            walk.pull(a, read.affine.b, read.affine.W)
        if g is not None:
            walk.size = walk.size + np.abs(g) @ read.far
            walk.pull(g, read.affine.shift, read.e)
            if layer < len(self.noise):
                walk.value = walk.value + np.abs(g) @ self.noise[layer]
