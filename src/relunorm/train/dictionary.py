"""Orthogonal greedy choice of units from a random sample of sphere x support interval.

The reduced parameter space is compact, so a few thousand live units cover it; one after the other,
the unit that lowers the squared error most, after refitting all weights, joins the network
(orthogonal matching pursuit, least-squares variant).
"""

from __future__ import annotations

import torch
from torch import Tensor

from relunorm.clock import NO_LIMIT, Clock
from relunorm.train.thresholds import live_thresholds


def sample_units(x: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random live units: directions uniform on the sphere, hyperplanes between two data points.

    b = -w . x for a random x on the segment between two rows, which the unit then tells apart.
    Where the two rows project to the same value the unit might be active on no row; its threshold
    is then that of `live_thresholds`. Only where no two rows differ a unit cannot be live.

    Args:
        x: (n, d) inputs.

    Returns:
        w (count, d) of unit rows, b (count,).
    """
    options = {"generator": generator, "device": x.device, "dtype": x.dtype}
    w = torch.randn(count, x.shape[1], **options)
    w = w / w.norm(dim=1, keepdim=True).clamp_min(1e-300)
    first = torch.randint(len(x), (count,), generator=generator, device=x.device)
    second = torch.randint(len(x), (count,), generator=generator, device=x.device)
    mix = torch.rand(count, 1, **options)
    anchor = mix * x[first] + (1 - mix) * x[second]
    return w, revived(x, w, -(w * anchor).sum(dim=1), generator)


def revived(x: Tensor, w: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """The thresholds b, those of units that no row activates replaced by live ones.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> w, b = torch.ones(2, 1), torch.tensor([-3.0, -1.0])
    >>> revived(x, w, b, torch.Generator().manual_seed(0)) > -3
    tensor([True, True])
    """
    z = x @ w.mT
    size = x.norm(dim=1).amax()
    # a unit that is active by rounding alone is dead
    dead = (z + b).amax(dim=0) <= 64 * torch.finfo(x.dtype).eps * size
    if not bool(dead.any()):
        return b
    live = b.clone()
    live[dead] = live_thresholds(z[:, dead], size, generator)
    return live


class Deflated:
    """Candidate features kept orthogonal to everything chosen so far.

    Args:
        columns: (n, N) candidate features, weighted by the root of the row weights; overwritten.
        basis: (n, q) columns that are always there (1, x, kept units).
        target: (n, m) weighted targets.
    """

    def __init__(self, columns: Tensor, basis: Tensor, target: Tensor):
        q, r = torch.linalg.qr(basis)
        size = r.diagonal().abs()
        q = q[:, size > 1e-10 * size.max()]
        self.columns = columns
        self.norms = columns.square().sum(dim=0)
        self.columns -= q @ (q.mT @ columns)
        self.residual = target - q @ (q.mT @ target)

    def best(self) -> int:
        """The candidate whose addition lowers the squared error most; -1 if none helps."""
        left = self.columns.square().sum(dim=0)
        # a candidate within rounding of the chosen span has no direction of its own
        sound = left > 1e-8 * self.norms
        gain = (self.residual.mT @ self.columns).square().sum(dim=0) / left.clamp_min(1e-300)
        gain = torch.where(sound, gain, -1.0)
        at = int(gain.argmax())
        return at if float(gain[at]) > 0 else -1

    def choose(self, at: int) -> None:
        """Take a candidate: deflate the residual and all candidates by it."""
        direction = self.columns[:, at] / self.columns[:, at].norm()
        self.residual -= torch.outer(direction, direction @ self.residual)
        self.columns -= torch.outer(direction, direction @ self.columns)


def greedy_units(
    x: Tensor,
    y: Tensor,
    root: Tensor,
    count: int,
    candidates: int,
    generator: torch.Generator,
    kept: tuple[Tensor, Tensor] | None = None,
    affine: float = 0.0,
    clock: Clock = NO_LIMIT,
) -> tuple[Tensor, Tensor]:
    """``count`` units added one by one to ``kept`` and the affine part; cost O(n N count).

    Args:
        x, y: (n, d) and (n, m).
        root: (n,) square roots of the row weights.
        kept: units (w, b) that stay.
        affine: penalty affine * sum(weight) * |S|^2 on the slopes of the affine part.
        clock: no unit is looked for after its end.

    Returns:
        w (count, d), b (count,): fewer distinct gains than ``count`` are filled with random units,
        live like the others.
    """
    w, b = sample_units(x, candidates, generator)
    column = root[:, None]
    affine *= float(root.square().sum())
    basis = torch.cat([torch.ones_like(column), x], dim=1)
    if kept is not None:
        basis = torch.cat([basis, (x @ kept[0].mT + kept[1]).clamp_min(0)], dim=1)
    parts = (x @ w.mT + b).clamp_min(0) * column, basis * column, y * column
    pool = Deflated(*(_with_slopes(parts, x.shape[1], affine) if affine else parts))
    chosen: list[int] = []
    while len(chosen) < count and not clock.expired() and (at := pool.best()) >= 0:
        pool.choose(at)
        chosen.append(at)
    if len(chosen) < count:
        taken = set(chosen)
        chosen += [i for i in range(candidates) if i not in taken][: count - len(chosen)]
    return w[chosen], b[chosen]


def _with_slopes(
    parts: tuple[Tensor, Tensor, Tensor], slopes: int, ridge: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Least squares with ridge |S|^2 as plain least squares: one further row for each slope."""
    columns, basis, target = (torch.cat([p, p.new_zeros(slopes, p.shape[1])]) for p in parts)
    basis[-slopes:, 1 : 1 + slopes] = ridge**0.5 * torch.eye(
        slopes, dtype=basis.dtype, device=basis.device
    )
    return columns, basis, target
