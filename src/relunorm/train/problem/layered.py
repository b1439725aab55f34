"""Any depth: variable projection for ReLU perceptrons, many at once.

Every hidden row has unit length and every threshold lies between the extremes of w.h over the
training data, so no unit is dead on them (docs/errata, seed 001: the data-driven interval replaces
eq. 4.5, which is wrong as printed). The output layer is eliminated by least squares; the Jacobian
of the rest is one backward pass, projected off the rows and off the output features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relunorm.train.problem.levenberg_marquardt import Model, Point, dense_step
from relunorm.train.problem.one_layer import SLICE_DOUBLES, factor, ridge_diagonal, ridge_table

#: Rows at a time.
PART = 8192


def live_thresholds(z: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
    """b = -t with t strictly between two neighbouring values of z, unit by unit.

    A value of z is drawn uniformly, rows that share it counting each, and t is the middle of the
    gap above it; above the largest value there is none, and the gap below it is taken. So every
    unit is active on a row and inactive on another. Gaps that rounding could close are passed over
    while there are wider ones. Where all values of a unit coincide no such t exists, and b = -z.

    Args:
        z: (..., n, units) projections w . h of the rows.
        size: |h| at most, for the rounding of z; broadcasts against (..., 1, units).
        generator: for the draw.

    >>> z = torch.tensor([[0.0], [1.0], [4.0]])
    >>> b = live_thresholds(z, torch.tensor(4.0), torch.Generator().manual_seed(0))
    >>> float(b) in (-0.5, -2.5)
    True
    """
    *batch, n, units = z.shape
    shape = (*batch, 1, units)
    pick = torch.randint(n, shape, generator=generator, device=generator.device).to(z.device)
    if n == 1:
        return -z[..., 0, :]
    values = z.sort(dim=-2).values
    gaps = values.diff(dim=-2)
    rounding = 64 * torch.finfo(z.dtype).eps * size
    wide = gaps > torch.minimum(rounding, gaps.amax(dim=-2, keepdim=True) / 2)
    index = torch.arange(n - 1, device=z.device)[:, None]
    above = torch.where(wide & (index >= pick), index, n).amin(dim=-2, keepdim=True)
    below = torch.where(wide & (index < pick), index, -1).amax(dim=-2, keepdim=True)
    at = torch.where(above < n, above, below).clamp_min(0)
    low, high = values.gather(-2, at), values.gather(-2, at + 1)
    return -(low + (high - low) / 2)[..., 0, :]


def revived_layers(
    pairs: list[tuple[Tensor, Tensor]], x: Tensor, generator: torch.Generator, rounding: float
) -> list[tuple[Tensor, Tensor]]:
    """Hidden layers (w, b) in which units that no row activates have a live threshold instead.

    Nothing read such a unit on the rows, so its columns in the next layer become 0 and the values
    of all other units stay as they are; behind the last layer its weight is to be fitted anew.

    Args:
        x: (n, d) the rows, looked at a part at a time.
        rounding: activity, relative to order one, that does not count.
    """
    top: list[Tensor] = []
    for rows in x.split(PART):
        h, found = rows.double(), []
        for w, b in pairs:
            h = torch.addmm(b, h, w.mT)
            found.append(h.amax(dim=0))
            h = h.clamp_min(0)
        top = [torch.maximum(a, z) for a, z in zip(top, found, strict=True)] if top else found
    dead = [peak <= rounding for peak in top]
    if not any(bool(mask.any()) for mask in dead):
        return pairs
    h, result = x[:PART].double(), []
    before = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    for (w, b), mask in zip(pairs, dead, strict=True):
        w, b = w.masked_fill(before, 0.0), b.clone()
        z = h @ w.mT
        if bool(mask.any()):
            b[mask] = live_thresholds(z[:, mask], h.norm(dim=1).amax(), generator)
        h, before = (z + b).clamp_min(0), mask
        result.append((w, b))
    return result


class LayeredProblem:
    """Least squares over the hidden layers of a perceptron, the output layer eliminated.

    Args:
        x: (n, d) inputs, scaled to order one.
        y: (n, m) targets.
        weight: (n,) non-negative row weights; ones if omitted.
        ridge: penalty ridge * sum(weight) * |c|^2 on the output weights of the last hidden layer;
            one number, or one per member.
        affine: the same for the slopes S that read x directly.
        skip: whether the output also reads x.
        clip: whether thresholds stay within their data-driven interval.

    A point is ``(w_1, b_1, w_2, b_2, ...)`` with w_l (B, K_l, K_{l-1}) of unit rows, b_l (B, K_l).
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        ridge: float | Tensor = 0.0,
        skip: bool = True,
        clip: bool = True,
        affine: float | Tensor = 0.0,
    ):
        self.x, self.y, self.skip, self.clip = x, y, skip, clip
        self.root = torch.ones_like(x[:, 0]) if weight is None else weight.sqrt()
        self.energy = float(((y * self.root[:, None]) ** 2).sum())
        self.ridges = ridge_table(self.root.square().sum(), ridge, affine)

    def linearize(self, point: Point) -> Model:
        """Loss and normal equations in all hidden parameters, layer by layer, weights first."""
        output, root, scale, top, info = self._project(point)
        loss = self.energy - top.square().sum(dim=(1, 2))
        q, hessian, descent = output.shape[1], 0.0, 0.0
        for k in range(self.y.shape[1]):
            gram = self._gram(point, output, k)
            half = torch.linalg.solve_triangular(
                root, gram[:, :q, q:-1] * scale[:, :, None], upper=False
            )
            hessian = hessian + gram[:, q:-1, q:-1] - half.mT @ half
            descent = descent + gram[:, q:-1, -1]
        sound = (info == 0) & loss.isfinite()
        loss = torch.where(sound, loss.clamp_min(0), torch.inf)
        return Model(loss, (torch.as_tensor(hessian), torch.as_tensor(descent)))

    def step(self, model: Model, factor: Tensor) -> Tensor:
        return dense_step(model.parts[0], model.parts[1], factor)

    def move(self, point: Point, step: Tensor) -> Point:
        """Rows back to unit length, thresholds back into their interval, first layer first."""
        moved: list[Tensor] = []
        h, at = self.x.expand(len(step), -1, -1), 0
        for w, b in layers(point):
            size = w[0].numel()
            w = w + step[:, at : at + size].view_as(w)
            w = w / w.norm(dim=2, keepdim=True).clamp_min(1e-300)
            b = b + step[:, at + size : at + size + b.shape[1]]
            at += size + b.shape[1]
            z = h @ w.mT
            if self.clip:
                b = torch.minimum(torch.maximum(b, -z.amax(dim=1)), -z.amin(dim=1))
            h = (z + b[:, None]).clamp_min(0)
            moved += [w, b]
        return tuple(moved)

    def output(self, point: Point) -> tuple[Tensor, Tensor]:
        """Best output layer (B, q, m), rows (a, [S], c), and the loss without penalty."""
        weights = self._project(point)[0]
        total = torch.zeros(len(weights), dtype=weights.dtype, device=weights.device)
        for rows in self._slices(point, 4):
            features = self._features(self._forward(point, rows)[-1], rows)
            fit = features @ weights - self.y[rows]
            total = total + (fit * self.root[rows, None]).square().sum(dim=(1, 2))
        return weights, total

    def predict(self, point: Point, x: Tensor) -> Tensor:
        """Outputs (B, rows, m) of every member with its best output layer on other inputs."""
        weights = self._project(point)[0]
        other = LayeredProblem(x, x.new_zeros(len(x), 1), skip=self.skip)
        everything = slice(None)
        return other._features(other._forward(point, everything)[-1], everything) @ weights

    def _project(self, point: Point) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Output weights by least squares, with the factor they came from."""
        gram = None
        for rows in self._slices(point, 4):
            features = self._features(self._forward(point, rows)[-1], rows)
            block = torch.cat([features, self.y[rows].expand(len(features), -1, -1)], dim=2)
            block = block * self.root[rows, None]
            gram = block.mT @ block if gram is None else gram + block.mT @ block
        assert gram is not None
        m = self.y.shape[1]
        slopes = self.x.shape[1] * self.skip
        ridge = ridge_diagonal(self.ridges, slopes, gram.shape[1] - m - 1 - slopes)
        root, scale, info = factor(gram[:, :-m, :-m], ridge)
        top = torch.linalg.solve_triangular(
            root, gram[:, :-m, -m:] * scale[:, :, None], upper=False
        )
        output = torch.linalg.solve_triangular(root.mT, top, upper=True) * scale[:, :, None]
        return output, root, scale, top, info

    def _gram(self, point: Point, output: Tensor, k: int) -> Tensor:
        """Gram matrix of [output features | hidden Jacobian | residual] for output k."""
        total = None
        for rows in self._slices(point, sum(part[0].numel() for part in point)):
            values = self._forward(point, rows)
            features = self._features(values[-1], rows)
            weights = output[:, :, k]
            residual = self.y[rows, k] - (features @ weights[..., None])[..., 0]
            columns = self._jacobian(point, values, weights[:, -values[-1].shape[2] :])
            block = torch.cat([features, columns, residual[..., None]], dim=2)
            block = block * self.root[rows, None]
            total = block.mT @ block if total is None else total + block.mT @ block
        assert total is not None
        return total

    def _jacobian(self, point: Point, values: list[Tensor], c: Tensor) -> Tensor:
        """d output / d (w_1, b_1, w_2, ...), weights projected on the tangent of their row."""
        parts: list[Tensor] = []
        signal = c[:, None].expand_as(values[-1])
        for index in range(len(point) // 2 - 1, -1, -1):
            w, h = point[2 * index], values[index]
            delta = signal * (values[index + 1] > 0)
            along = (h @ w.mT)[..., None] * w[:, None]
            columns = delta[..., None] * (h[:, :, None] - along)
            parts += [delta, columns.flatten(2)]
            signal = delta @ w
        return torch.cat(parts[::-1], dim=2)

    def _forward(self, point: Point, rows: slice) -> list[Tensor]:
        values = [self.x[rows].expand(len(point[0]), -1, -1)]
        for w, b in layers(point):
            values.append(torch.baddbmm(b[:, None], values[-1], w.mT).clamp_min(0))
        return values

    def _features(self, last: Tensor, rows: slice) -> Tensor:
        x = self.x[rows] if self.skip else self.x[rows, :0]
        shared = torch.cat([torch.ones_like(self.x[rows, :1]), x], dim=1)
        return torch.cat([shared.expand(len(last), -1, -1), last], dim=2)

    def _slices(self, point: Point, columns: int) -> list[slice]:
        width = columns + max(w.shape[1] for w in point[::2]) + self.x.shape[1]
        step = max(64, SLICE_DOUBLES // (len(point[0]) * width))
        return [slice(at, at + step) for at in range(0, len(self.x), step)]


def layers(point: Point) -> list[tuple[Tensor, Tensor]]:
    """The (w, b) pairs of a point, first layer first."""
    return list(zip(point[::2], point[1::2], strict=True))


def live_start(
    x: Tensor, widths: tuple[int, ...], members: int, generator: torch.Generator
) -> Point:
    """Random layers whose every unit has its hyperplane between training points.

    w uniform on the sphere, -b between two neighbouring values of w . h on the data, h what the
    layer reads: no unit is dead and none active everywhere, at any depth (constant data aside).
    """
    options = {"generator": generator, "device": x.device, "dtype": x.dtype}
    h, parts = x.expand(members, -1, -1), []
    for width in widths:
        w = torch.randn(members, width, h.shape[2], **options)
        w = w / w.norm(dim=2, keepdim=True).clamp_min(1e-300)
        z = h @ w.mT
        size = h.norm(dim=2).amax(dim=1)[:, None, None]
        b = live_thresholds(z, size, generator)
        h = (z + b[:, None]).clamp_min(0)
        parts += [w, b]
    return tuple(parts)
