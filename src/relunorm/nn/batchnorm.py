"""Batch normalization with recentering and rescaling as separate switches.

With both on it is torch.nn.BatchNorm (the same kernel, so the same bits), with the same state dict,
for inputs (N, C), (N, C, L), (N, C, H, W) and (N, C, D, H, W).
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from relunorm.batchnorm.gram import resolve_statistic
from relunorm.errors import InvalidInputError

Statistic = Literal["auto", "rms", "std"]


class DecomposedBatchNorm(nn.Module):
    """Normalize each channel over the batch: y = ((x - mean) / s) * weight + bias, each part on its
    own.

    Args:
        features: channels C, the size of axis 1.
        recenter: subtract the mean.
        rescale: divide by the statistic.
        statistic: "std" (deviation about the mean), "rms" (root of the second moment), or "auto":
            rms without recentering, std with it (where both are the same). Dividing by std without
            recentering (seed 004's eq. 2 with the mean left in) collapses deep batches; see
            docs/errata.md.
        momentum, eps, affine, track_running_stats: as in torch.nn.BatchNorm1d.

    The buffers are torch's: ``running_mean``, ``running_var`` (the running second moment where the
    statistic is rms; else the unbiased variance) and ``num_batches_tracked``. In eval mode every
    variant is one ``batch_norm`` operation with fixed statistics: an affine map, which
    `relunorm.load` folds.

    >>> x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    >>> torch.equal(DecomposedBatchNorm(3)(x), nn.BatchNorm1d(3)(x))
    True
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _zero: Tensor
    _one: Tensor

    def __init__(
        self,
        features: int,
        recenter: bool = True,
        rescale: bool = True,
        statistic: Statistic = "auto",
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if not isinstance(features, int) or features < 1:
            raise InvalidInputError(f"features is {features!r}, expected a positive whole number")
        self.features = features
        self.recenter = bool(recenter)
        self.rescale = bool(rescale)
        self.statistic = statistic
        resolve_statistic(statistic, self.recenter)
        self.momentum = momentum
        self.eps = eps
        self.affine = affine
        self.track_running_stats = track_running_stats
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        if affine:
            self.weight = nn.Parameter(torch.ones(features, **where))
            self.bias = nn.Parameter(torch.zeros(features, **where))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(features, **where) if tracked else None)
        self.register_buffer("running_var", torch.ones(features, **where) if tracked else None)
        count = torch.tensor(0, dtype=torch.long, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        # what eval mode puts in the place of a part that is off; not in the state dict
        self.register_buffer("_zero", torch.zeros(features, **where), persistent=False)
        self.register_buffer("_one", torch.ones(features, **where), persistent=False)

    @property
    def resolved_statistic(self) -> Literal["rms", "std"]:
        """The statistic rescaling divides by, with "auto" decided."""
        return resolve_statistic(self.statistic, self.recenter)

    def reset_running_stats(self) -> None:
        """Running mean 0, running variance 1, no batches seen."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Running statistics as new; weight 1, bias 0."""
        self.reset_running_stats()
        if self.affine:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        use_batch = self.training or self.running_mean is None
        if not use_batch:
            return self._fixed(x)
        factor = self._count_batch()
        if self.recenter and self.rescale and self.resolved_statistic == "std":
            update = self.training and self.track_running_stats
            return F.batch_norm(
                x,
                self.running_mean if update else None,
                self.running_var if update else None,
                self.weight,
                self.bias,
                True,
                factor,
                self.eps,
            )
        return self._by_batch(x, factor)

    def _fixed(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x,
            self.running_mean if self.recenter else self._zero,
            self.running_var if self.rescale else self._one,
            self.weight,
            self.bias,
            False,
            0.0,
            self.eps if self.rescale else 0.0,
        )

    def _by_batch(self, x: Tensor, factor: float) -> Tensor:
        axes = (0, *range(2, x.dim()))
        count = x.numel() // x.shape[1]
        if (self.recenter or self.rescale) and count <= 1:
            # torch's words, so that code which handles its error handles ours
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {x.size()}"
            )
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean = x.mean(axes)
        deviation = x - mean.view(shape) if self.resolved_statistic == "std" else x
        square = (deviation**2).mean(axes)
        self._track(mean, square, count, factor)
        y = x - mean.view(shape) if self.recenter else x
        if self.rescale:
            y = y * torch.rsqrt(square + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y

    def _count_batch(self) -> float:
        """Count this batch; the factor with which it enters the running statistics."""
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        return factor

    def _track(self, mean: Tensor, square: Tensor, count: int, factor: float) -> None:
        if not self.training or self.running_mean is None or self.running_var is None:
            return
        with torch.no_grad():
            bessel = count / max(count - 1, 1) if self.resolved_statistic == "std" else 1.0
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            self.running_var.lerp_((square * bessel).to(self.running_var.dtype), factor)

    def _check(self, x: Tensor) -> None:
        if not 2 <= x.dim() <= 5:
            raise InvalidInputError(
                f"DecomposedBatchNorm: input has {x.dim()} axes, expected (N, C) up to "
                "(N, C, D, H, W)"
            )
        if x.shape[1] != self.features:
            raise InvalidInputError(
                f"DecomposedBatchNorm: input has {x.shape[1]} channels on axis 1, "
                f"expected {self.features}"
            )

    def extra_repr(self) -> str:
        parts = f"recenter={self.recenter}, rescale={self.rescale}, statistic={self.statistic!r}"
        rest = f"eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{self.features}, {parts}, {rest}"

    # BatchNorm version 2 stores num_batches_tracked; older state dicts lack it, as in torch
    _version = 2

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        old = (version is None or version < 2) and self.num_batches_tracked is not None
        if old and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def decompose(
    module: nn.Module,
    *,
    recenter: bool = True,
    rescale: bool = True,
    statistic: Statistic = "auto",
    inplace: bool = False,
) -> nn.Module:
    """A copy of a model with every BatchNorm replaced by a `DecomposedBatchNorm` with these parts.

    Weights, running statistics, momentum, eps, mode, device, dtype and requires_grad are kept; a
    BatchNorm that occurs twice is replaced by one module that occurs twice. A module that is itself
    a BatchNorm is replaced as a whole. A SyncBatchNorm becomes local to its process.

    Args:
        inplace: change ``module`` instead of a copy (parameters are then shared with nobody else).

    >>> model = decompose(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), recenter=False)
    >>> model[1].resolved_statistic
    'rms'
    """
    for path, part in module.named_modules():
        tensors = (*part.parameters(recurse=False), *part.buffers(recurse=False))
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and any(map(is_lazy, tensors)):
            raise InvalidInputError(
                f"{path or 'the module'} is a lazy BatchNorm without data; run a batch first"
            )
    root = module if inplace else copy.deepcopy(module)
    made: dict[int, DecomposedBatchNorm] = {}

    def replacement(old: nn.Module) -> DecomposedBatchNorm | None:
        if not isinstance(old, nn.modules.batchnorm._BatchNorm):
            return None
        if id(old) not in made:
            made[id(old)] = _convert(old, recenter, rescale, statistic)
        return made[id(old)]

    whole = replacement(root)
    if whole is not None:
        return whole
    for parent in list(root.modules()):
        # not named_children, which names a module that occurs twice only once
        for name, child in list(parent._modules.items()):
            new = None if child is None else replacement(child)
            if new is not None:
                setattr(parent, name, new)
    return root


def _convert(
    old: nn.modules.batchnorm._BatchNorm, recenter: bool, rescale: bool, statistic: Statistic
) -> DecomposedBatchNorm:
    example = old.weight if old.affine else old.running_mean
    new = DecomposedBatchNorm(
        old.num_features,
        recenter,
        rescale,
        statistic,
        old.momentum,
        old.eps,
        old.affine,
        old.track_running_stats,
        device=None if example is None else example.device,
        dtype=None if example is None else example.dtype,
    )
    new.load_state_dict(old.state_dict())
    if old.affine:
        new.weight.requires_grad_(old.weight.requires_grad)
        new.bias.requires_grad_(old.bias.requires_grad)
    return new.train(old.training)
