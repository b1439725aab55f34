"""Levenberg-Marquardt for many small problems at once, one damping factor per member.

A problem supplies the normal equations of its residual at a batch of points; this file only
decides which steps to keep. A member whose factorization fails or whose numbers leave the
floating-point range keeps its last good point: it never spoils the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from relunorm.clock import NO_LIMIT, Clock

#: A point of the search space: tensors that all have the member dimension first.
Point = tuple[Tensor, ...]


@dataclass(frozen=True)
class Model:
    """What a problem knows at a batch of points.

    Attributes:
        loss: (B,) sum of squares (plus penalties); infinite where it could not be computed.
        parts: what the problem's ``step`` needs, member dimension first; the last part is
            J^T r (B, P), the negative gradient halved.
    """

    loss: Tensor
    parts: tuple[Tensor, ...]


class Problem(Protocol):
    """A batch of least-squares problems over the same data."""

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations at every member's point."""
        ...

    def step(self, model: Model, factor: Tensor) -> Tensor:
        """(B, P) damped Gauss-Newton step, with one damping factor a member."""
        ...

    def move(self, point: Point, step: Tensor) -> Point:
        """Retract: the feasible point reached from ``point`` along the tangent ``step``."""
        ...


@dataclass(frozen=True)
class Solution:
    """Where the search ended.

    Attributes:
        interrupted: whether Ctrl-C ended the run; the point is then the best until it.
    """

    point: Point
    loss: Tensor
    iterations: int
    curve: list[float]
    interrupted: bool = False


def minimize(
    problem: Problem,
    start: Point,
    *,
    iterations: int = 30,
    tolerance: float = 1e-9,
    damping: float = 1e-2,
    clock: Clock = NO_LIMIT,
    callback: Callable[[int, float], None] | None = None,
    watch: Callable[[Point, Tensor], bool] | None = None,
) -> Solution:
    """Minimize every member's sum of squares from its own start.

    Step: (H + lambda diag(H)) s = J^T r; lambda falls by 4 on success and grows by 3 on failure
    (Marquardt 1963). The result of a member does not depend on the other members, up to rounding
    of batched products. An estimate: local minima only.

    Args:
        tolerance: a member has converged when an accepted step gains less than this share of its
            loss, or when its damping has grown past use; all converged ends the run.
        clock: no iteration starts that would end after it if it took as long as the one before. The
            start is evaluated whatever the clock says.
        callback: called with the iteration and the smallest loss; may raise to stop.
        watch: called with the members' points and losses after every iteration; True ends the run.
    """
    last = clock.elapsed()

    def late() -> bool:
        """Whether another step like the last one would end after the clock; asked between two."""
        nonlocal last
        before, last = last, clock.elapsed()
        return 2 * last - before > clock.limit

    point, model = start, problem.linearize(start)
    factor = torch.full_like(model.loss, damping)
    still = torch.zeros_like(model.loss, dtype=torch.bool)
    curve = [float(model.loss.min())]
    done, interrupted = 0, False
    try:
        while done < iterations and not late() and not bool(still.all()):
            done += 1
            step = problem.step(model, factor)
            trial = problem.move(point, torch.nan_to_num(step, 0.0, 0.0, 0.0))
            reached = problem.linearize(trial)
            better = (reached.loss < model.loss) & ~still
            still = still | (better & (model.loss - reached.loss <= tolerance * model.loss))
            factor = torch.where(better, factor / 4, factor * 3).clamp(1e-12, 1e12)
            still = still | (factor > 1e8)
            point, model = _keep(better, (trial, reached), (point, model))
            curve.append(float(model.loss.min()))
            if callback is not None:
                callback(done, curve[-1])
            if watch is not None and watch(point, model.loss):
                break
    except KeyboardInterrupt:
        interrupted = True
    return Solution(point, model.loss, done, curve, interrupted)


def dense_step(hessian: Tensor, descent: Tensor, factor: Tensor) -> Tensor:
    """(H + factor diag(H))^-1 J^T r by Cholesky; zero where the factorization fails."""
    scale = hessian.diagonal(dim1=1, dim2=2)
    floor = 1e-10 * scale.amax(dim=1, keepdim=True) + 1e-300
    damped = hessian.clone()
    damped.diagonal(0, 1, 2).add_(factor[:, None] * scale.clamp_min(floor) + floor)
    root, info = torch.linalg.cholesky_ex(damped)
    half = torch.linalg.solve_triangular(root, descent[..., None], upper=False)
    step = torch.linalg.solve_triangular(root.mT, half, upper=True)[..., 0]
    return torch.where((info == 0)[:, None], step, 0.0)


def _keep(
    better: Tensor, new: tuple[Point, Model], old: tuple[Point, Model]
) -> tuple[Point, Model]:
    """Per member the new point and model where they are better, else the old ones."""
    count = int(better.sum())
    if count in (0, len(better)):  # often, and always of a single member
        return new if count else old

    def pick(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            torch.where(better.view(-1, *[1] * (x.ndim - 1)), x, y)
            for x, y in zip(a, b, strict=True)
        )

    loss = torch.where(better, new[1].loss, old[1].loss)
    return pick(new[0], old[0]), Model(loss, pick(new[1].parts, old[1].parts))
