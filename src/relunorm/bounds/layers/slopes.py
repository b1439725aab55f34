"""Better slopes for backward linear bounds, all open sides in one batch.

The bound of `linear` is convex in the slopes, and its gradient costs one forward pass: with x* the
maximiser at the input, push x* up through the chosen lines, z' = W v' + b, v' = line at z'. Then

    d bound / d a = z' - z*,    d bound / d lam = v'

where z* in {l, 0, u} attains the remainder. Every unit whose sign is open has one number to choose,
a ``tilt`` in [0, 1] (Xu et al., ICLR 2021, call it alpha). Descent is Adam with projection, in
single precision: nothing here needs to be safe, the slopes are only proposals, and `linear_upper`
says what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.backward import LinearBound
from relunorm.bounds.layers.linear import Slopes
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import chord_slope, default_tilt
from relunorm.clock import NO_LIMIT, Clock
from relunorm.matrix import Array, Vector

Single = NDArray[np.float32]

#: Length of the first steps.
RATE = 0.25


@dataclass(frozen=True, eq=False)
class Proposal:
    """What a descent found, one row per target.

    Attributes:
        slopes: those of the best bound seen.
        point: the input that maximised the affine bound: a candidate witness.
    """

    slopes: Slopes
    point: Array


class _Stage:
    """One layer as the descent sees it: lines a = lam * line, and what they leave.

    The remainder is lam * up where lam * act is convex, lam * down elsewhere.
    """

    def __init__(self, problem: Problem, layer: int, lower: Vector, upper: Vector):
        kink = problem.kinks[layer]
        self.gap, self.below = np.float32(kink.gap), np.float32(kink.below)
        self.tunable = not (kink.linear or kink.step)
        self.bias = problem.maps[layer].bias.astype(np.float32)
        free = (lower < 0) & (upper > 0)
        if self.tunable:
            chord = chord_slope(kink, lower, upper)
            self.up = _single(np.where(free, (kink.below - chord) * lower, 0.0))
            self.down = np.float32(0.0)
            self.rule = _single(default_tilt(lower, upper))
            self.free = free
        else:
            chord = np.full_like(lower, 0.0 if kink.step else kink.above)
            low, high = kink.image(lower, upper) if kink.step else (0.0 * lower, 0.0 * lower)
            self.up, self.down = _single(high), _single(low)
            self.free = np.zeros_like(free)
            self.gap = np.float32(1.0)
        self.chord = _single(chord)


def _single(array: Array) -> Single:
    return np.asarray(array, dtype=np.float32)


class _Pass:
    """Backward and forward passes for a batch of targets."""

    def __init__(
        self,
        problem: Problem,
        bounds: Bounds,
        index: int,
        units: NDArray[np.intp],
        signs: Vector,
    ):
        self.problem, self.index = problem, index
        self.count = len(units)
        rows = problem.rows(index, units)
        self.top = {s: _single(signs[:, None] * m) for s, m in rows.items()}
        self.constant = _single(signs * problem.maps[index].bias[units])
        self.used = self._used()
        self.stage = {i: _Stage(problem, i, bounds.lower[i], bounds.upper[i]) for i in self.used}
        self.lam: dict[int, Single] = {}
        self.line: dict[int, Single] = {}
        self.convex: dict[int, NDArray[np.bool_]] = {}
        self.rest: dict[int, Single] = {}

    def _used(self) -> list[int]:
        """Layers the target can be reached from, the last first."""
        wanted = set(self.top)
        used = []
        for layer in range(self.index - 1, -1, -1):
            if layer + 1 in wanted:
                used.append(layer)
                wanted |= set(self.problem.maps[layer].terms)
        return used

    def back(self, tilt: dict[int, Single]) -> Single:
        """The bound; keeps lam, line and remainder of every layer for `forth`."""
        walk = LinearBound(self.constant, dict(self.top))
        for layer, lam in walk.layers(self.index):
            stage = self.stage[layer]
            convex = lam * stage.gap > 0
            line = stage.chord
            if stage.tunable:
                line = np.where(convex, stage.chord, stage.below + tilt[layer] * stage.gap)
            rest = np.where(convex, stage.up, stage.down)
            walk.value = walk.value + np.einsum("ij,ij->i", lam, rest)
            walk.pull(lam * line, stage.bias, self.problem.single[layer])
            self.lam[layer], self.line[layer], self.rest[layer] = lam, line, rest
            self.convex[layer] = convex
        reach = self.problem.reach
        rows = walk.on.get(0)
        if rows is None:
            rows = np.zeros((self.count, reach.size), dtype=np.float32)
        self.input = rows
        return walk.value + _single(reach.support_upper(rows)[0])

    def forth(self) -> tuple[Array, dict[int, Single]]:
        """The maximising input, and z' of every layer."""
        point = self.problem.reach.maximizer(self.input)
        values: dict[int, Single] = {0: _single(point)}
        relaxed: dict[int, Single] = {}
        for layer in reversed(self.used):
            z = np.tile(self.stage[layer].bias, (self.count, 1))
            for source, matrix in self.problem.single[layer].items():
                z += values[source] @ matrix.T
            relaxed[layer] = z
            values[layer + 1] = self.line[layer] * z + self.rest[layer]
        return point, relaxed


class _Adam:
    """Adam for one array (Kingma and Ba, 2015)."""

    def __init__(self, shape: tuple[int, ...]):
        self.first = np.zeros(shape, dtype=np.float32)
        self.second = np.zeros(shape, dtype=np.float32)
        self.time = 0

    def step(self, gradient: Single) -> Single:
        self.time += 1
        self.first += np.float32(0.1) * (gradient - self.first)
        self.second += np.float32(0.02) * (gradient * gradient - self.second)
        scale = np.float32((1 - 0.98**self.time) ** 0.5 / (1 - 0.9**self.time))
        return scale * self.first / (np.sqrt(self.second) + np.float32(1e-20))


def optimize(
    problem: Problem,
    bounds: Bounds,
    index: int,
    units: NDArray[np.intp],
    signs: Vector,
    *,
    iterations: int = 20,
    goal: float | None = 0.0,
    clock: Clock = NO_LIMIT,
) -> Proposal:
    """Slopes that make the upper bounds of ``signs * z[units]`` small, from the fixed rule on.

    Args:
        iterations: descent steps at most.
        goal: stop once every bound is below it; None to use every step.
        clock: no further step after its end.
    """
    work = _Pass(problem, bounds, index, units, signs)
    tilt = {
        layer: np.broadcast_to(stage.rule, (work.count, len(stage.bias))).copy()
        for layer, stage in work.stage.items()
        if stage.tunable
    }
    best = np.full(len(units), np.inf, dtype=np.float32)
    kept = {k: v.copy() for k, v in tilt.items()}
    adam = {k: _Adam(v.shape) for k, v in tilt.items()}
    for step in range(iterations + 1):
        value = work.back(tilt)
        better = value < best
        best = np.where(better, value, best)
        for layer in tilt:
            kept[layer][better] = tilt[layer][better]
        if step == iterations or (goal is not None and (best < goal).all()) or clock.expired():
            break
        _, relaxed = work.forth()
        size = np.float32(RATE * 0.95**step)
        for layer in tilt:
            stage, lam, z = work.stage[layer], work.lam[layer], relaxed[layer]
            gradient = np.where(
                stage.free & ~work.convex[layer], lam * stage.gap * z, np.float32(0)
            )
            move = size * adam[layer].step(gradient)
            tilt[layer] = np.where(stage.free, np.clip(tilt[layer] - move, 0.0, 1.0), tilt[layer])
    work.back(kept)
    point, _ = work.forth()
    return Proposal(Slopes({k: v.astype(np.float64) for k, v in kept.items()}), point)
