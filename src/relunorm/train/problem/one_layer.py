"""Any number of inputs: variable projection for shallow ReLU networks, many at once.

f(x) = a + S x + sum_j c_j relu(w_j . x + b_j) with |w_j| = 1 and b_j in the support interval. For
given (w, b) the rest is linear least squares and is eliminated; the Jacobian in (w, b) is taken in
the tangent space of the sphere and projected off the feature span (Kaufman 1975). Everything
follows from one Gram matrix per member, so memory does not grow with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relunorm.train.problem.levenberg_marquardt import Model, Point, dense_step

#: Rows are taken in slices once features of all members would need more than this many doubles.
SLICE_DOUBLES = 1 << 23


@dataclass(frozen=True)
class Bounds:
    """Where a unit's threshold may lie, given its direction.

    - ``tight``: -max_D w.x <= b <= -min_D w.x over the box around the data: the unit is live, or
      active everywhere (docs/errata, seed 001: the support function, not X_B).
    - ``bounded``: |b| <= X_B (seed 001, eq. 2.10).
    - ``unit``: no bound.
    """

    kind: str
    center: Tensor
    halfwidth: Tensor

    @classmethod
    def around(cls, x: Tensor, kind: str = "tight") -> Bounds:
        """Bounds for the smallest box around the rows of x."""
        low, high = x.amin(dim=0), x.amax(dim=0)
        return cls(kind, (low + high) / 2, (high - low) / 2)

    def interval(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest threshold for directions w (..., d)."""
        if self.kind == "unit":
            wide = torch.full_like(w[..., 0], torch.inf)
            return -wide, wide
        if self.kind == "bounded":
            radius = (self.center.abs() + self.halfwidth).norm()
            wide = radius.expand(w.shape[:-1])
            return -wide, wide
        middle, reach = w @ self.center, w.abs() @ self.halfwidth
        return -middle - reach, reach - middle

    def clip(self, w: Tensor, b: Tensor) -> Tensor:
        """The nearest allowed thresholds."""
        low, high = self.interval(w)
        return torch.minimum(torch.maximum(b, low), high)


class ShallowProblem:
    """Least squares over unit directions and thresholds, the linear part eliminated.

    Args:
        x: (n, d) inputs, scaled to order one.
        y: (n, m) targets.
        bounds: where thresholds may lie.
        weight: (n,) non-negative row weights; ones if omitted.
        ridge: penalty ridge * sum(weight) * |c|^2 on the units' output weights; one number, or one
            per member.
        affine: the same for the slopes S of the affine part.

    A point is ``(w, b)`` with w (B, K, d) of unit rows and b (B, K).
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        bounds: Bounds,
        weight: Tensor | None = None,
        ridge: float | Tensor = 0.0,
        affine: float | Tensor = 0.0,
    ):
        self.x, self.y, self.bounds = x, y, bounds
        self.root = torch.ones_like(x[:, 0]) if weight is None else weight.sqrt()
        self.energy = float(((y * self.root[:, None]) ** 2).sum())
        self.ridges = ridge_table(self.root.square().sum(), ridge, affine)

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations in (tangent of w, b), unit by unit."""
        gram, q, root, scale, info = self._factored(point, jacobian=True)
        d, m = self.x.shape[1], self.y.shape[1]
        cross, target, scaled = gram[:, :q, q:-m], gram[:, :q, -m:], scale[:, :, None]
        half = torch.linalg.solve_triangular(
            root, torch.cat([cross, target], dim=2) * scaled, upper=False
        )
        half, top = half[..., :-m], half[..., -m:]
        output = torch.linalg.solve_triangular(root.mT, top, upper=True) * scaled
        loss = self.energy - top.square().sum(dim=(1, 2))
        schur = gram[:, q:-m, q:-m] - half.mT @ half
        c = output[:, 1 + d :]
        units = c.shape[1]
        pairs = (c @ c.mT)[:, :, None, :, None]
        hessian = (schur.view(-1, units, d, units, d) * pairs).view_as(schur)
        residual = gram[:, q:-m, -m:] - cross.mT @ output
        descent = (residual.view(-1, units, d, m) * c[:, :, None]).sum(dim=3).flatten(1)
        sound = (info == 0) & loss.isfinite()
        return Model(torch.where(sound, loss.clamp_min(0), torch.inf), (hessian, descent))

    def step(self, model: Model, factor: Tensor) -> Tensor:
        return dense_step(model.parts[0], model.parts[1], factor)

    def move(self, point: Point, step: Tensor) -> Point:
        """Along the sphere by normalization; thresholds clipped into their interval."""
        w, b = point
        step = step.view(*w.shape)
        head, scale = _householder(w)
        flat = torch.nn.functional.pad(step[..., :-1], (1, 0))
        tangent = flat - scale * (flat * head).sum(-1, keepdim=True) * head
        moved = w + tangent
        moved = moved / moved.norm(dim=-1, keepdim=True)
        return moved, self.bounds.clip(moved, b + step[..., -1])

    def output(self, point: Point) -> tuple[Tensor, Tensor]:
        """Best linear part (B, 1 + d + K, m), rows (a, S, c), and the loss without penalty."""
        gram, q, root, scale, _ = self._factored(point)
        inner, target = gram[:, :q, :q], gram[:, :q, q:]
        weights = torch.cholesky_solve(target * scale[..., None], root) * scale[..., None]
        fit = (weights * (inner @ weights - 2 * target)).sum(dim=(1, 2))
        return weights, (self.energy + fit).clamp_min(0)

    def predict(self, point: Point, x: Tensor) -> Tensor:
        """Outputs (B, rows, m) of every member with its best linear part on other inputs."""
        w, b = point
        weights, _ = self.output(point)
        shared = torch.cat([torch.ones_like(x[:, :1]), x], dim=1).expand(len(w), -1, -1)
        hidden = torch.baddbmm(b[:, None], x.expand(len(w), -1, -1), w.mT).clamp_min(0)
        return torch.cat([shared, hidden], dim=2) @ weights

    def contributions(self, point: Point) -> Tensor:
        """(B, K) how much the loss would grow without each unit: c_j^2 / (G^-1)_jj."""
        gram, q, root, scale, _ = self._factored(point)
        inverse = torch.cholesky_inverse(root)
        weights = inverse @ (gram[:, :q, q:] * scale[..., None])
        return (weights.square().sum(dim=2) / inverse.diagonal(dim1=1, dim2=2))[
            :, 1 + self.x.shape[1] :
        ]

    def _factored(
        self, point: Point, jacobian: bool = False
    ) -> tuple[Tensor, int, Tensor, Tensor, Tensor]:
        """The Gram matrix, how many of its columns are features, and `factor` of these."""
        w, b = point
        gram, (_, units, d) = self._gram(w, b, jacobian), w.shape
        q = 1 + d + units
        return gram, q, *factor(gram[:, :q, :q], ridge_diagonal(self.ridges, d, units))

    def _gram(self, w: Tensor, b: Tensor, jacobian: bool) -> Tensor:
        """Gram matrix of [1, x, relu | tangent and threshold columns | y], summed over slices."""
        members, units, d = w.shape
        columns = 1 + d + units * (1 + d * jacobian) + self.y.shape[1]
        step = max(64, SLICE_DOUBLES // (members * columns))
        total = torch.zeros(())
        for at in range(0, len(self.x), step):
            block = self._columns(w, b, slice(at, at + step), jacobian)
            part = block.mT @ block
            total = part if at == 0 else total + part
        return total

    def _columns(self, w: Tensor, b: Tensor, rows: slice, jacobian: bool) -> Tensor:
        x, y, root = self.x[rows], self.y[rows], self.root[rows, None]
        members, _, d = w.shape
        shared = torch.cat([torch.ones_like(root), x], dim=1) * root
        z = torch.baddbmm(b[:, None], x.expand(members, -1, -1), w.mT)
        parts = [shared.expand(members, -1, -1), z.clamp_min(0) * root]
        if jacobian:
            live = (z > 0) * root
            head, scale = _householder(w)
            along = x.expand(members, -1, -1) @ (scale * head).mT
            tail = x[:, None, 1:] - along[..., None] * head[:, None, :, 1:]
            block = torch.cat([tail, torch.ones_like(tail[..., :1])], dim=3) if d > 1 else None
            columns = live[..., None] if block is None else block * live[..., None]
            parts.append(columns.flatten(2))
        parts.append((y * root).expand(members, -1, -1))
        return torch.cat(parts, dim=2)


def _householder(w: Tensor) -> tuple[Tensor, Tensor]:
    """v and 2/|v|^2 of the reflection taking w to -+e_1; its other columns span w's tangent."""
    sign = torch.where(w[..., :1] < 0, -1.0, 1.0)
    head = torch.cat([w[..., :1] + sign, w[..., 1:]], dim=-1)
    return head, 2 / head.square().sum(-1, keepdim=True)


def ridge_table(total: Tensor, ridge: float | Tensor, affine: float | Tensor) -> Tensor:
    """(3,) or (B, 3): what the bias, a slope and a unit's output weight are penalized with."""
    parts = (
        torch.as_tensor(part, dtype=total.dtype, device=total.device) for part in (affine, ridge)
    )
    slopes, units = torch.broadcast_tensors(*parts)
    return torch.stack([torch.zeros_like(units), slopes, units], dim=-1) * total


def ridge_diagonal(table: Tensor, slopes: int, units: int) -> Tensor:
    """The penalty of every row (a, S, c) of an output layer."""
    parts = zip(table.unbind(-1), (1, slopes, units), strict=True)
    return torch.cat([part[..., None].expand(*part.shape, n) for part, n in parts], dim=-1)


def factor(gram: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cholesky factor of the Jacobi-scaled matrix, the scaling, and LAPACK's info."""
    ridged = gram.clone()
    diagonal = ridged.diagonal(dim1=1, dim2=2).add_(ridge)
    scale = diagonal.clamp_min(1e-14 * diagonal.amax(dim=1, keepdim=True) + 1e-300).rsqrt()
    scaled = ridged * scale[:, :, None] * scale[:, None, :]
    scaled.diagonal(0, 1, 2).add_(1e-12)
    root, info = torch.linalg.cholesky_ex(scaled)
    return root, scale, info
