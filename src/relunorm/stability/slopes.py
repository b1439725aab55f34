"""Better slopes for backward linear bounds, all open sides in one batch.

The bound of `linear` is convex in the slopes, and its gradient costs one forward pass: with x* the
maximiser at the input, push x* up through the chosen lines, z' = W v' + b, v' = a-line at z'. Then

    d bound / d a = z' - z*,    d bound / d lam = slope * (z' - z*) + act(z*)

where z* in {l, 0, u} attains the remainder. Descent is Adam with projection: ``tilt`` stays in
[0, 1], ``offset`` keeps the sign that a decided unit allows (Xu et al., ICLR 2021, call these alpha;
Wang et al., NeurIPS 2021, beta). Nothing here needs to be safe: the slopes are only proposals,
`linear_upper` says what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Polytope
from relunorm.matrix import Vector
from relunorm.stability.linear import (
    Part,
    Slopes,
    chord_slope,
    default_tilt,
    fixed_sides,
    remainder,
)
from relunorm.stability.problem import Bounds, Kink, Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Proposal:
    """What a descent found, one row per target.

    Attributes:
        value: the best bound seen (in floats, not safe).
        slopes: the slopes that gave it.
        point: the input that maximised the last affine bound: a candidate witness.
        score: layer -> (rows, width), how much each unit's line costs there: where to branch.
        intercept: layer -> (rows, width), how far the line is from the kink at most.
        lam: layer -> (rows, width), the coefficients on the layer's values.
    """

    value: Vector
    slopes: Slopes
    point: Array
    score: dict[int, Array]
    intercept: dict[int, Array]
    lam: dict[int, Array]


class _Pass:
    """One backward pass with what its gradient needs."""

    def __init__(
        self, problem: Problem, bounds: Bounds, index: int, units: NDArray[np.intp], signs: Vector, part: Part
    ):
        self.problem, self.index, self.units, self.signs = problem, index, units, signs
        self.part = part
        self.top = {s: signs[:, None] * m for s, m in problem.rows(index, units).items()}
        self.constant = signs * problem.maps[index].bias[units]
        self.lower = [part.lower.get(i, bounds.lower[i]) for i in range(index)]
        self.upper = [part.upper.get(i, bounds.upper[i]) for i in range(index)]
        self.used = self._used()
        self.chord = {
            i: chord_slope(problem.kinks[i], self.lower[i], self.upper[i]) for i in self.used
        }

    def _used(self) -> list[int]:
        """Layers the target can be reached from, the last first."""
        wanted = set(self.top)
        used = []
        for layer in range(self.index - 1, -1, -1):
            if layer + 1 in wanted:
                used.append(layer)
                wanted |= set(self.problem.maps[layer].terms)
        return used

    def free(self, layer: int) -> Array:
        """Where the sign is open and the tilt matters."""
        kink = self.problem.kinks[layer]
        if kink.linear or kink.step:
            return np.zeros((1, self.problem.network.layers[layer].width), dtype=bool)
        return np.atleast_2d((self.lower[layer] < 0) & (self.upper[layer] > 0))

    def down(self, slopes: Slopes) -> Vector:
        """The bound; keeps lam, slope and a of every layer."""
        value = self.constant.copy()
        pending = dict(self.top)
        self.lam: dict[int, Array] = {}
        self.line: dict[int, Array] = {}
        self.a: dict[int, Array] = {}
        for layer in self.used:
            lam = pending.pop(layer + 1)
            kink, affine = self.problem.kinks[layer], self.problem.maps[layer]
            line = _line(
                kink, lam, self.chord[layer], self.lower[layer], self.upper[layer],
                slopes.tilt.get(layer),
            )
            a = lam * line
            offset = slopes.offset.get(layer)
            if offset is not None:
                a = a + offset
            self.lam[layer], self.line[layer], self.a[layer] = lam, line, a
            value += remainder(kink, lam, a, self.lower[layer], self.upper[layer]).sum(axis=1)
            value += a @ affine.bias
            for source, matrix in affine.terms.items():
                below = a @ matrix
                pending[source] = pending[source] + below if source in pending else below
        rows = pending.get(0)
        if rows is None:
            rows = np.zeros((len(self.units), self.problem.reach.size))
        reach = self.problem.reach
        self.input = rows
        if slopes.multipliers is not None and isinstance(reach.domain, Polytope):
            self.input = rows - slopes.multipliers @ reach.domain.A
        top, _ = reach.support_upper(rows, slopes.multipliers, self.part.lo, self.part.hi)
        return value + top

    def up(self) -> tuple[Array, dict[int, Array], dict[int, Array]]:
        """The maximising input, and per layer z' and z*."""
        point = self.problem.reach.maximizer(self.input, self.part.lo, self.part.hi)
        values: dict[int, Array] = {0: point}
        relaxed, attained = {}, {}
        for layer in reversed(self.used):
            z = _apply(self.problem, layer, values)
            kink = self.problem.kinks[layer]
            at = _attained(kink, self.lam[layer], self.a[layer], self.lower[layer], self.upper[layer])
            relaxed[layer], attained[layer] = z, at
            values[layer + 1] = self.line[layer] * (z - at) + _act(kink, at, self.lam[layer])
        return point, relaxed, attained


def _apply(problem: Problem, layer: int, values: dict[int, Array]) -> Array:
    affine = problem.maps[layer]
    z = np.tile(affine.bias, (len(values[0]), 1))
    for source, matrix in affine.terms.items():
        if source in values:
            z += values[source] @ matrix.T
    return z


def _line(
    kink: Kink, lam: Array, chord: Array, lower: Array, upper: Array, tilt: Array | None
) -> Array:
    if kink.linear:
        return np.full_like(lam, kink.above)
    if kink.step:
        return np.zeros_like(lam)
    share = default_tilt(lower, upper) if tilt is None else tilt
    tangent = kink.below + fixed_sides(share, lower, upper) * kink.gap
    return np.where(lam * kink.gap > 0, chord, tangent)


def _act(kink: Kink, z: Array, lam: Array) -> Array:
    if kink.step:
        return np.where(z > 0, 1.0, np.where(z < 0, 0.0, np.where(lam > 0, 1.0, 0.0)))
    return np.where(z > 0, kink.above * z, kink.below * z)


def _attained(kink: Kink, lam: Array, a: Array, lower: Array, upper: Array) -> Array:
    """z* in {l, 0, u} where lam * act(z) - a z is largest."""
    lower, upper = np.broadcast_to(lower, lam.shape), np.broadcast_to(upper, lam.shape)
    at_lower = lam * _act(kink, lower, lam) - a * lower
    at_upper = lam * _act(kink, upper, lam) - a * upper
    best = np.where(at_lower >= at_upper, lower, upper)
    inside = (lower < 0) & (upper > 0) & (np.maximum(at_lower, at_upper) <= 0)
    return np.where(inside, 0.0, best)


def optimize(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    part: Part | None = None,
    start: Slopes | None = None,
    iterations: int = 20,
    rate: float = 0.05,
    goal: float | None = 0.0,
) -> Proposal:
    """Slopes that make the upper bounds of ``signs * z[units]`` small.

    Args:
        part: where the bound has to hold, one row per target.
        start: slopes to begin with; the fixed rule if omitted.
        iterations: descent steps at most.
        goal: stop once every bound is below it; None to use every step.
    """
    part = part or Part()
    work = _Pass(problem, bounds, index, units, signs, part)
    count = len(units)
    tilt, offset, signs_of = _start(work, start, part, count)
    many = None if start is None else start.multipliers
    best = np.full(count, np.inf)
    kept_tilt = {k: v.copy() for k, v in tilt.items()}
    kept_offset = {k: v.copy() for k, v in offset.items()}
    moments: dict[tuple[str, int], tuple[Array, Array]] = {}
    scale: dict[int, Array] = {}
    for step in range(iterations + 1):
        value = work.down(Slopes(tilt, offset, many))
        better = value < best
        best = np.where(better, value, best)
        for kept, now in ((kept_tilt, tilt), (kept_offset, offset)):
            for layer in now:
                kept[layer][better] = now[layer][better]
        if step == iterations or (goal is not None and (best < goal).all()):
            break
        _, relaxed, attained = work.up()
        size = rate * 0.95**step
        for layer in tilt:
            z = relaxed[layer] - attained[layer]
            gap = problem.kinks[layer].gap
            slope_gradient = np.where(work.lam[layer] * gap <= 0, work.lam[layer] * gap * z, 0.0)
            move = _adam(moments, ("tilt", layer), slope_gradient, step)
            tilt[layer] = np.clip(tilt[layer] - size * move, 0.0, 1.0)
            if layer in offset:
                if layer not in scale:
                    scale[layer] = np.abs(work.lam[layer]).max(axis=1, keepdims=True)
                move = _adam(moments, ("offset", layer), z, step)
                moved = offset[layer] - size * scale[layer] * move
                sign = signs_of[layer]
                offset[layer] = np.where(
                    sign > 0, np.maximum(moved, 0.0), np.where(sign < 0, np.minimum(moved, 0.0), 0.0)
                )
    slopes = Slopes(kept_tilt, kept_offset, many)
    work.down(slopes)
    point, relaxed, _ = work.up()
    score = {k: _cost(work, k, relaxed[k]) for k in work.used}
    intercept = {k: _intercept(work, k) for k in work.used}
    return Proposal(best, slopes, point, score, intercept, dict(work.lam))


def _start(
    work: _Pass, start: Slopes | None, part: Part, count: int
) -> tuple[dict[int, Array], dict[int, Array], dict[int, Array]]:
    """Copies of the first tilts and offsets, and the sign an offset may have."""
    tilt: dict[int, Array] = {}
    offset: dict[int, Array] = {}
    allowed: dict[int, Array] = {}
    for layer in work.used:
        kink = work.problem.kinks[layer]
        if kink.linear or kink.step:
            continue
        shape = (count, work.problem.network.layers[layer].width)
        if start is not None and layer in start.tilt:
            tilt[layer] = start.tilt[layer].copy()
        else:
            rule = default_tilt(work.lower[layer], work.upper[layer])
            tilt[layer] = np.broadcast_to(rule, shape).copy()
        if layer in part.lower:
            lower, upper = part.lower[layer], part.upper[layer]
            allowed[layer] = np.where(lower >= 0, 1.0, np.where(upper <= 0, -1.0, 0.0))
            has = start is not None and layer in start.offset
            offset[layer] = start.offset[layer].copy() if has else np.zeros(shape)  # type: ignore[union-attr]
    return tilt, offset, allowed


def _adam(
    moments: dict[tuple[str, int], tuple[Array, Array]],
    key: tuple[str, int],
    gradient: Array,
    step: int,
) -> Array:
    first, second = moments.get(key, (np.zeros_like(gradient), np.zeros_like(gradient)))
    first = 0.9 * first + 0.1 * gradient
    second = 0.98 * second + 0.02 * gradient * gradient
    moments[key] = first, second
    t = step + 1
    return (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.98**t)) + 1e-12)


def _cost(work: _Pass, layer: int, z: Array) -> Array:
    """What replacing each open unit by its line costs at the relaxed point z'."""
    kink, lam, a = work.problem.kinks[layer], work.lam[layer], work.a[layer]
    lower, upper = work.lower[layer], work.upper[layer]
    inside = np.clip(z, lower, upper)
    rest = remainder(kink, lam, a, lower, upper) + a * inside - lam * _act(kink, inside, lam)
    return np.where(work.free(layer), rest, 0.0)


def _intercept(work: _Pass, layer: int) -> Array:
    """How far each open unit's line is from the kink itself, at most over [l, u]."""
    kink, lam = work.problem.kinks[layer], work.lam[layer]
    lower, upper = work.lower[layer], work.upper[layer]
    width = np.where(upper > lower, upper - lower, 1.0)
    chord = np.abs(lam * kink.gap) * np.maximum(upper, 0.0) * np.maximum(-lower, 0.0) / width
    return np.where(work.free(layer), chord, 0.0)
