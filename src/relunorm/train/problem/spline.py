"""One input: a shallow ReLU network is a linear spline, and its fit costs O(knots), not O(rows).

On an interval, a + s x + sum_j c_j relu(x - t_j) is the continuous piecewise-linear function with
knots t_j. In the basis of hat functions its normal equations are tridiagonal and well conditioned,
and every entry follows from prefix sums of 1, x, x^2, y, xy at the knots. Moving knot j, up to the
span of the hats, changes the fit by (s_left - s_right) times the right half of hat j; projecting
these columns off the hats is variable projection with Kaufman's Jacobian (Golub & Pereyra 1973,
Kaufman 1975).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relunorm.train.problem.levenberg_marquardt import Model, Point


class SplineProblem:
    """Least squares over the knots of a linear spline, values eliminated; one output.

    Args:
        x: (n,) sorted inputs.
        y: (n,) targets.
        weight: (n,) non-negative weights of the rows; ones if omitted.

    A point is ``(knots,)`` with knots (B, K) in the data's range, sorted along the last axis.
    """

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor | None = None):
        weight = torch.ones_like(x) if weight is None else weight
        self.x, self.y, self.weight = x.contiguous(), y, weight
        self.low, self.high = float(x[0]), float(x[-1])
        terms = torch.stack([torch.ones_like(x), x, x * x, y, x * y]) * weight
        self.sums = _sums_from(terms, int(x.abs().argmin()))
        self.squares = _pad((weight * y * y).cumsum(dim=0), 1, 0)
        self.energy = float(self.squares[-1])
        self.total = float(weight.sum())
        # sums of squares over a segment of length h that reaches out to r are wrong by up to this
        # times r^2 / h^2
        self.rounding = 4 * torch.finfo(x.dtype).eps * self.total
        # closer knots would lose the differences of prefix sums in rounding
        self.gap = 1e-4 * min(self.high - self.low, _filled_width(x))

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations in (values, knots): all of them tridiagonal."""
        h, a, b, c, left, right, noise = self._segments(point[0])
        target = _pad(left, 0, 1) + _pad(right, 1, 0)
        scale, diagonal, off = self._scaled(a, b, c, noise)
        scaled = solve_tridiagonal(diagonal, off, scale * target)
        # the loss of these very values, not of the exact solution: a poor solve cannot look good
        pairs = diagonal * scaled + 2 * _pad(off * scaled[:, 1:], 0, 1) - 2 * scale * target
        loss = self.energy + (scaled * pairs).sum(dim=1)
        values = scaled * scale
        slopes = values.diff(dim=1) / h
        kink = slopes[:, :-1] - slopes[:, 1:]
        same, following = kink * a[:, 1:], kink * b[:, 1:]
        descent = kink * left[:, 1:] - same * values[:, 1:-1] - following * values[:, 2:]
        cross = same * scale[:, 1:-1], following * scale[:, 2:]
        parts = (diagonal, off, *cross, kink * same, descent)
        sound = loss.isfinite() & (loss >= -1e-10 * self.energy)
        return Model(torch.where(sound, loss.clamp_min(0), torch.inf), parts)

    def step(self, model: Model, factor: Tensor) -> Tensor:
        """Move of the knots, values moving along undamped: one block-tridiagonal solve.

        Eliminating the values gives the step of variable projection.
        """
        diagonal, off, same, following, square, descent = model.parts
        floor = 1e-10 * square.amax(dim=1, keepdim=True) + 1e-300
        # what the two nearest hats cannot follow of a knot's move stands for diag(J^T J)
        alone = (square - same.square() - following.square()).maximum(0.02 * square)
        square = square + factor[:, None] * alone.maximum(floor) + floor
        size = descent.square().mean(dim=1, keepdim=True).sqrt() + 1e-300
        unit = square.rsqrt()
        ones, zeros = torch.ones_like(diagonal), torch.zeros_like(diagonal)
        middle = _pad(same * unit, 1, 1)
        blocks = torch.stack([torch.stack([diagonal, middle]), torch.stack([middle, ones])])
        lower = torch.stack([_pad(off, 0, 1), _pad(following * unit, 1, 1)])
        after = torch.stack([lower, torch.stack([zeros, zeros])], dim=1)
        right = torch.stack([zeros, _pad(descent / size * unit, 1, 1)])
        return solve_blocks(blocks, after, right)[1, :, 1:-1] * unit * size

    def values(self, point: Point) -> Tensor:
        """(B, K + 2) best values of the spline at the ends and knots, in order."""
        _, a, b, c, left, right, noise = self._segments(point[0])
        scale, diagonal, off = self._scaled(a, b, c, noise)
        target = _pad(left, 0, 1) + _pad(right, 1, 0)
        return solve_tridiagonal(diagonal, off, scale * target) * scale

    def _scaled(
        self, a: Tensor, b: Tensor, c: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scaling to unit diagonal, and the scaled hats' Gram matrix: diagonal and next to it.

        Segments without data leave values undetermined, and rounding would determine them; a ridge
        as large as what rounding can do picks small ones.
        """
        diagonal = _pad(a, 0, 1) + _pad(c, 1, 0) + _pad(noise, 0, 1).maximum(_pad(noise, 1, 0))
        scale = diagonal.rsqrt()
        return scale, diagonal * scale.square() + 1e-12, b * scale[:, :-1] * scale[:, 1:]

    def move(self, point: Point, step: Tensor) -> Point:
        """Add, clip into the interval, sort, and keep knots a hair apart."""
        moved = (point[0] + step).clamp(self.low, self.high).sort(dim=1).values
        rank = self.gap * torch.arange(
            1, moved.shape[1] + 1, device=moved.device, dtype=moved.dtype
        )
        raised = (moved - rank).cummax(dim=1).values + rank
        ceiling = self.high - rank.flip(0)
        return (torch.minimum(raised.clamp_min(self.low + self.gap), ceiling),)

    def _segments(self, knots: Tensor) -> tuple[Tensor, ...]:
        """Per segment: length, sums of (1-u)^2, u(1-u), u^2, y(1-u), y u, 0 <= u <= 1, and how
        wrong they can be.
        """
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
        first, last = (n - 2 * u1 + u2).clamp_min(0), u2.clamp_min(0)
        # 2 x 2 Gram matrices stay positive semidefinite whatever the rounding
        mixed = (u1 - u2).clamp_min(0).minimum((first * last).sqrt())
        reach = edges[:, :-1].abs().maximum(edges[:, 1:].abs())
        noise = self.rounding * (reach / h).square() + 1e-12 * self.total
        return h, first, mixed, last, y0 - yu, yu, noise

    def pair_sums(self, grid: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """For every pair g < h of grid positions the sums over rows between them.

        With u = (x - grid[g]) / (grid[h] - grid[g]): sums of (1-u)^2, u(1-u), u^2, y(1-u), y u and
        y^2; infinite where g >= h.
        """
        x = self.x.numpy()
        cut = np.searchsorted(x, grid)
        cut[0], cut[-1] = 0, len(x)
        n, x1, x2, y0, y1 = (row[cut][None, :] - row[cut][:, None] for row in self.sums.numpy())
        squares = self.squares.numpy()[cut]
        start, h = grid[:, None], grid[None, :] - grid[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            u1 = (x1 - start * n) / h
            u2 = (x2 - start * (2 * x1 - start * n)) / (h * h)
            yu = (y1 - start * y0) / h
        sums = n - 2 * u1 + u2, u1 - u2, u2, y0 - yu, yu
        energy = np.where(h > 0, squares[None, :] - squares[:, None], np.inf)
        return (*(np.where(h > 0, part, 0.0) for part in sums), energy)


def refit(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]:
    """Best values at the edges (ends and knots) and the sum of squares, without prefix sums.

    Slower than `SplineProblem.values` but free of its cancellation where knots nearly meet. Values
    that no row determines are put on the line between their neighbours.
    """
    count = len(edges)
    at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, count - 2)
    u = (x - edges[at]) / np.diff(edges)[at]
    gram, target = np.zeros((count, count)), np.zeros(count)
    for row, first in ((at, 1 - u), (at + 1, u)):
        np.add.at(target, row, weight * first * y)
        for column, second in ((at, 1 - u), (at + 1, u)):
            np.add.at(gram, (row, column), weight * first * second)
    inner = np.arange(1, count - 1)
    share = (edges[inner] - edges[inner - 1]) / (edges[inner + 1] - edges[inner - 1])
    bend = np.zeros((len(inner), count))
    bend[inner - 1, inner - 1], bend[inner - 1, inner], bend[inner - 1, inner + 1] = (
        share - 1,
        1,
        -share,
    )
    gram += 1e-12 * float(weight.sum()) * bend.T @ bend
    values = np.linalg.lstsq(gram, target, rcond=1e-15)[0]
    residual = y - (1 - u) * values[at] - u * values[at + 1]
    return values, float((weight * residual**2).sum())


def stratified_knots(
    low: float, high: float, members: int, count: int, generator: torch.Generator
) -> Tensor:
    """Sorted random knots, one in each of ``count`` equal cells of the interval; float64."""
    device = generator.device
    options = {"generator": generator, "device": device, "dtype": torch.float64}
    cells = torch.arange(count, device=device, dtype=torch.float64)
    return low + (high - low) / count * (cells + torch.rand(members, count, **options))


def _filled_width(x: Tensor) -> float:
    """Twice the width of as many inputs, evenly spaced as the middle pair of neighbours is.

    Inputs far away or in clusters leave most of the range empty; where they do not, it is larger
    than the range.
    """
    gaps = x.diff()
    gaps = gaps[gaps > 0]
    return 2 * len(gaps) * float(gaps.median()) if len(gaps) else 0.0


def _sums_from(terms: Tensor, middle: int) -> Tensor:
    """Prefix sums (rows, n + 1), 0 at row number ``middle``: they grow outwards from there.

    So differences among central rows do not lose their digits to rows far away on either side.
    """
    right = terms[:, middle:].cumsum(dim=1)
    left = -terms[:, :middle].flip(1).cumsum(dim=1).flip(1)
    return torch.cat([left, terms.new_zeros(len(terms), 1), right], dim=1)


def solve_tridiagonal(diagonal: Tensor, off: Tensor, right: Tensor) -> Tensor:
    """x with diagonal_i x_i + off_{i-1} x_{i-1} + off_i x_{i+1} = right_i; symmetric.

    Args:
        diagonal, right: (B, N); off: (B, N - 1).

    >>> ones = torch.ones(1, 3)
    >>> solve_tridiagonal(4 * ones, ones[:, :2], torch.tensor([[5.0, 6.0, 5.0]]))
    tensor([[1., 1., 1.]])
    """
    size = diagonal.shape[1]
    before, after = _pad(off, 1, 0), _pad(off, 0, 1)
    step = 1
    while step < size:
        table = torch.stack([before, after, right]) / diagonal
        # what neighbours at distance `step` contribute; beyond the ends there are none
        low, high = _shift(table, step), _shift(table, -step)
        diagonal = diagonal - before * low[1] - after * high[0]
        right = right - before * low[2] - after * high[2]
        before, after = -before * low[0], -after * high[1]
        step *= 2
    return right / diagonal


def solve_blocks(diagonal: Tensor, after: Tensor, right: Tensor) -> Tensor:
    """x with D_i x_i + U_{i-1}^T x_{i-1} + U_i x_{i+1} = right_i, in blocks of two; symmetric.

    Args:
        diagonal: (2, 2, B, N) symmetric blocks D_i.
        after: (2, 2, B, N) blocks U_i; the last one is not used.
        right: (2, B, N).

    Returns:
        (2, B, N).
    """
    size = diagonal.shape[3]
    after = after.clone()
    after[..., -1] = 0.0
    before = _shift(after, 1).transpose(0, 1)
    step = 1
    while step < size:
        # rows of D^-1 times everything a neighbour holds: blocks before and after, right-hand side
        table = torch.cat([before, after, right[:, None]], dim=1)
        table = _times(_inverse(diagonal), table)
        low, high = _shift(table, step), _shift(table, -step)
        update = _times(before, low), _times(after, high)
        diagonal = diagonal - update[0][:, 2:4] - update[1][:, 0:2]
        right = right - update[0][:, 4] - update[1][:, 4]
        before, after = -update[0][:, 0:2], -update[1][:, 2:4]
        step *= 2
    return _times(_inverse(diagonal), right[:, None])[:, 0]


def _times(left: Tensor, table: Tensor) -> Tensor:
    """(2, 2, ...) times (2, k, ...), block by block."""
    return left[:, :1] * table[:1] + left[:, 1:] * table[1:]


def _inverse(block: Tensor) -> Tensor:
    determinant = block[0, 0] * block[1, 1] - block[0, 1] * block[1, 0]
    swapped = torch.stack(
        [torch.stack([block[1, 1], -block[0, 1]]), torch.stack([-block[1, 0], block[0, 0]])]
    )
    return swapped / determinant


def _shift(table: Tensor, step: int) -> Tensor:
    """Entry i becomes entry i - step; zeros come in from outside."""
    if abs(step) >= table.shape[-1]:
        return torch.zeros_like(table)
    return _pad(table[..., :-step], step, 0) if step > 0 else _pad(table[..., -step:], 0, -step)


def _pad(tensor: Tensor, before: int, after: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (before, after))
