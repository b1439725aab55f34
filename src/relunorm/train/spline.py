"""One input: a shallow ReLU network is a linear spline, and its fit costs O(knots), not O(rows).

On an interval, a + s x + sum_j c_j relu(x - t_j) is the continuous piecewise-linear function with
knots t_j. In the basis of hat functions its normal equations are tridiagonal and well conditioned,
and every entry follows from prefix sums of 1, x, x^2, y, xy at the knots. Moving knot j, up to the
span of the hats, changes the fit by (s_left - s_right) times the right half of hat j; projecting
these columns off the hats is variable projection with Kaufman's Jacobian (Golub & Pereyra 1973,
Kaufman 1975).
"""

from __future__ import annotations

import torch
from torch import Tensor

from relunorm.train.lm import Model, Point


class SplineProblem:
    """Least squares over the knots of a linear spline, values eliminated; one output.

    Args:
        x: (n,) sorted inputs.
        y: (n,) targets.
        weight: (n,) non-negative weights of the rows; ones if omitted.
        low, high: the interval that holds the knots; the data's own range if omitted.

    A point is ``(knots,)`` with knots (B, K), sorted along the last axis.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        low: float | None = None,
        high: float | None = None,
    ):
        weight = torch.ones_like(x) if weight is None else weight
        self.x = x.contiguous()
        self.low = float(x[0]) if low is None else low
        self.high = float(x[-1]) if high is None else high
        terms = torch.stack([torch.ones_like(x), x, x * x, y, x * y]) * weight
        self.sums = torch.cat([terms.new_zeros(5, 1), terms.cumsum(dim=1)], dim=1)
        self.energy = float((weight * y * y).sum())
        self.gap = 1e-7 * (self.high - self.low)

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations in the knots."""
        (knots,) = point
        h, a, b, c, left, right = self._segments(knots)
        gram = torch.diag_embed(_pad(a, 0, 1) + _pad(c, 1, 0))
        gram.diagonal(1, 1, 2).copy_(b)
        gram.diagonal(-1, 1, 2).copy_(b)
        target = _pad(left, 0, 1) + _pad(right, 1, 0)
        scale = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-12 * float(self.sums[0, -1])).rsqrt()
        scaled = gram * scale[:, :, None] * scale[:, None, :]
        scaled.diagonal(0, 1, 2).add_(1e-12)
        root, info = torch.linalg.cholesky_ex(scaled)
        values = torch.cholesky_solve((scale * target)[..., None], root)[..., 0] * scale
        slopes = values.diff(dim=1) / h
        kink = slopes[:, :-1] - slopes[:, 1:]
        a, b = kink * a[:, 1:], kink * b[:, 1:]
        cross = torch.diag_embed(_pad(a, 1, 1))[:, 1:-1]
        cross.diagonal(2, 1, 2).copy_(b)
        half = torch.linalg.solve_triangular(root, (cross * scale[:, None]).mT, upper=False)
        hessian = torch.diag_embed(kink * a) - half.mT @ half
        descent = kink * left[:, 1:] - a * values[:, 1:-1] - b * values[:, 2:]
        loss = (self.energy - (target * values).sum(dim=1)).clamp_min(0)
        loss = torch.where((info == 0) & loss.isfinite(), loss, torch.inf)
        return Model(loss, hessian, descent)

    def move(self, point: Point, step: Tensor) -> Point:
        """Add, clip into the interval, sort, and keep knots a hair apart."""
        moved = (point[0] + step).clamp(self.low, self.high).sort(dim=1).values
        rank = self.gap * torch.arange(1, moved.shape[1] + 1, device=moved.device, dtype=moved.dtype)
        raised = (moved - rank).cummax(dim=1).values + rank
        ceiling = self.high - rank.flip(0)
        return (torch.minimum(raised.clamp_min(self.low + self.gap), ceiling),)

    def _segments(self, knots: Tensor) -> tuple[Tensor, ...]:
        """Per segment: length, then sums of (1-u)^2, u(1-u), u^2, y(1-u), y u, 0 <= u <= 1."""
        members = len(knots)
        ends = knots.new_tensor([self.low, self.high]).expand(members, 2)
        edges = torch.cat([ends[:, :1], knots, ends[:, 1:]], dim=1)
        cut = torch.searchsorted(self.x, knots.contiguous())
        cut = torch.nn.functional.pad(cut, (1, 0))
        cut = torch.nn.functional.pad(cut, (0, 1), value=len(self.x))
        n, x1, x2, y0, y1 = self.sums[:, cut].diff(dim=2)
        start, h = edges[:, :-1], edges.diff(dim=1)
        u1 = (x1 - start * n) / h
        u2 = (x2 - start * (2 * x1 - start * n)) / h.square()
        yu = (y1 - start * y0) / h
        return h, n - 2 * u1 + u2, u1 - u2, u2, y0 - yu, yu


def stratified_knots(
    low: float, high: float, members: int, count: int, generator: torch.Generator
) -> Tensor:
    """Sorted random knots, one in each of ``count`` equal cells of the interval; float64."""
    device = generator.device
    options = {"generator": generator, "device": device, "dtype": torch.float64}
    cells = torch.arange(count, device=device, dtype=torch.float64)
    return low + (high - low) / count * (cells + torch.rand(members, count, **options))


def _pad(tensor: Tensor, before: int, after: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (before, after))
