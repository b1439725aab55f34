"""Levenberg-Marquardt for many small problems at once, one damping factor per member.

A problem supplies the normal equations of its residual at a batch of points; this file only
decides which steps to keep. A member whose factorization fails or whose numbers leave the
floating-point range keeps its last good point: it never spoils the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

#: A point of the search space: tensors that all have the member dimension first.
Point = tuple[Tensor, ...]


@dataclass(frozen=True)
class Model:
    """What Levenberg-Marquardt needs to know at a batch of points.

    Attributes:
        loss: (B,) sum of squares (plus penalties); infinite where it could not be computed.
        hessian: (B, P, P) Gauss-Newton matrix J^T J.
        descent: (B, P) J^T r, the negative gradient halved.
    """

    loss: Tensor
    hessian: Tensor
    descent: Tensor


class Problem(Protocol):
    """A batch of least-squares problems over the same data."""

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations at every member's point."""
        ...

    def move(self, point: Point, step: Tensor) -> Point:
        """Retract: the feasible point reached from ``point`` along the tangent ``step``."""
        ...


@dataclass(frozen=True)
class Solution:
    """Where the search ended.

    Attributes:
        point: the best point of every member.
        loss: (B,) its loss.
        iterations: how many iterations ran.
        converged: (B,) whether the member stopped moving before the iterations ran out.
        curve: the smallest loss over members, after every iteration.
        interrupted: whether Ctrl-C ended the run; the point is then the best until it.
    """

    point: Point
    loss: Tensor
    iterations: int
    converged: Tensor
    curve: list[float]
    interrupted: bool = False


def minimize(
    problem: Problem,
    start: Point,
    *,
    iterations: int = 30,
    tolerance: float = 1e-9,
    damping: float = 1e-2,
    deadline: float = float("inf"),
    callback: Callable[[int, float], None] | None = None,
) -> Solution:
    """Minimize every member's sum of squares from its own start.

    Step: (H + lambda diag(H)) s = J^T r; lambda falls by 4 on success and grows by 3 on failure
    (Marquardt 1963). The result of a member does not depend on the other members, up to rounding
    of batched products. An estimate: local minima only.

    Args:
        tolerance: a member has converged when an accepted step gains less than this share of its
            loss, or when its damping has grown past use; all converged ends the run.
        deadline: value of ``time.monotonic()`` after which no further iteration starts.
        callback: called with the iteration and the smallest loss; may raise to stop.
    """
    point, model = start, problem.linearize(start)
    factor = torch.full_like(model.loss, damping)
    still = torch.zeros_like(model.loss, dtype=torch.bool)
    curve = [float(model.loss.min())]
    done, interrupted = 0, False
    try:
        for done in range(1, iterations + 1):
            trial = problem.move(point, _steps(model, factor))
            reached = problem.linearize(trial)
            better = (reached.loss < model.loss) & ~still
            still = still | (better & (model.loss - reached.loss <= tolerance * model.loss))
            factor = torch.where(better, factor / 4, factor * 3).clamp(1e-12, 1e12)
            still = still | (factor > 1e8)
            point, model = _keep(better, (trial, reached), (point, model))
            curve.append(float(model.loss.min()))
            if callback is not None:
                callback(done, curve[-1])
            if time.monotonic() > deadline or bool(still.all()):
                break
    except KeyboardInterrupt:
        interrupted = True
    return Solution(point, model.loss, done, still, curve, interrupted)


def _keep(
    better: Tensor, new: tuple[Point, Model], old: tuple[Point, Model]
) -> tuple[Point, Model]:
    """Per member the new point and model where they are better, else the old ones."""
    point = tuple(_select(better, a, b) for a, b in zip(new[0], old[0], strict=True))
    names = ("loss", "hessian", "descent")
    return point, Model(*(_select(better, getattr(new[1], k), getattr(old[1], k)) for k in names))


def _steps(model: Model, factor: Tensor) -> Tensor:
    """The damped Gauss-Newton step of every member; zero where the factorization fails."""
    scale = model.hessian.diagonal(dim1=1, dim2=2)
    floor = 1e-10 * scale.amax(dim=1, keepdim=True) + 1e-300
    damped = model.hessian + torch.diag_embed(factor[:, None] * scale.clamp_min(floor) + floor)
    root, info = torch.linalg.cholesky_ex(damped)
    step = torch.cholesky_solve(model.descent[..., None], root)[..., 0]
    sound = (info == 0) & step.isfinite().all(dim=1)
    return torch.where(sound[:, None], step, 0.0)


def _select(keep: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(keep.view(-1, *[1] * (new.ndim - 1)), new, old)
