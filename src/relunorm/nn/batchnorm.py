"""Batch normalization with recentering and rescaling as separate switches.

With both on it is torch.nn.BatchNorm (the same kernel, so the same bits), with the same state dict,
for inputs (N, C), (N, C, L), (N, C, H, W) and (N, C, D, H, W).
"""

import copy
from typing import Any, Literal, Optional

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from relunorm.arguments import real_number, resolve_statistic, whole_number
from relunorm.errors import InvalidInputError

Statistic = Literal["auto", "rms", "std"]


class DecomposedBatchNorm(_NormBase):
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
        momentum, eps, affine, track_running_stats, bias: as in torch.nn.BatchNorm1d.

    The buffers are torch's whatever the parts: ``running_mean``, ``running_var`` (the unbiased
    variance) and ``num_batches_tracked``. So every state dict fits every variant, and parts may be
    switched on a trained model. In eval mode the second moment is running_var + running_mean^2, and
    every variant is one ``batch_norm`` operation with fixed statistics: an affine map, which
    `relunorm.load` folds. Half precision is summed in float32; the output has the input's type.

    >>> x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    >>> torch.equal(DecomposedBatchNorm(3)(x), nn.BatchNorm1d(3)(x))
    True
    """

    # not ``Tensor | None``: torch.jit.script reads these
    weight: Optional[Tensor]  # noqa: UP045  # pyrefly: ignore[bad-override-mutable-attribute]
    bias: Optional[Tensor]  # noqa: UP045  # pyrefly: ignore[bad-override-mutable-attribute]
    running_mean: Optional[Tensor]  # noqa: UP045
    running_var: Optional[Tensor]  # noqa: UP045
    num_batches_tracked: Optional[Tensor]  # noqa: UP045
    __jit_unused_properties__ = ("resolved_statistic",)

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
        bias: bool = True,
    ):
        features = whole_number("features", features, 1)
        momentum = None if momentum is None else real_number("momentum", momentum)
        if real_number("eps", eps) < 0:
            raise InvalidInputError(f"eps is {eps}, expected at least 0: it is added to a variance")
        super().__init__(features, float(eps), momentum, affine, track_running_stats, device, dtype)
        if not bias:
            self.register_parameter("bias", None)
        self.recenter = bool(recenter)
        self.rescale = bool(rescale)
        self.statistic = statistic
        resolve_statistic(statistic, self.recenter)

    @property
    def resolved_statistic(self) -> Literal["rms", "std"]:
        """The statistic rescaling divides by, with "auto" decided."""
        return resolve_statistic(self.statistic, self.recenter)

    def forward(self, x: Tensor) -> Tensor:
        # two conditions, for the compiler of torch.jit skips the inner one only so
        if not torch.jit.is_scripting():  # noqa: SIM102
            if isinstance(x, Proxy):
                return self._as_leaf(x)
        self._check(x)
        mean, var = self.running_mean, self.running_var
        if not self.training and mean is not None and var is not None:
            return self._fixed(x, mean, var)
        update = self.training and self.track_running_stats
        factor = self._count_batch() if update else 0.0
        if self.recenter and self.rescale:
            return F.batch_norm(
                x,
                mean if update else None,
                var if update else None,
                self.weight,
                self.bias,
                True,
                factor,
                self.eps,
            )
        return self._by_batch(x, factor, update)

    @torch.jit.unused
    def _as_leaf(self, x: Any) -> Any:
        """One node of a `torch.fx` graph, as torch's own BatchNorm: it follows train and eval."""
        path = x.tracer.path_of_module(self)
        if not path:
            raise InvalidInputError(
                "DecomposedBatchNorm is one node of a torch.fx graph, so trace a model that holds "
                "it, not the layer alone"
            )
        return x.tracer.create_proxy("call_module", path, (x,), {})

    def _fixed(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        if not self.rescale:
            square = torch.ones_like(var)
        elif self.recenter or self.statistic == "std":
            square = var
        else:
            square = var + mean * mean
        return F.batch_norm(
            x,
            mean if self.recenter else torch.zeros_like(mean),
            square,
            self.weight,
            self.bias,
            False,
            0.0,
            self.eps if self.rescale else 0.0,
        )

    def _by_batch(self, x: Tensor, factor: float, update: bool) -> Tensor:
        count = x.numel() // x.shape[1]
        if (self.recenter or self.rescale) and count == 1:
            # torch's words, so that code which handles its error handles ours
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {x.size()}"
            )
        axes, shape = [0], [1, -1]
        for axis in range(2, x.dim()):
            axes.append(axis)
            shape.append(1)
        # half precision neither holds squares nor sums many of them
        half = x.dtype == torch.float16 or x.dtype == torch.bfloat16
        y = x.float() if half else x
        weight, bias = self.weight, self.bias
        scale = None if weight is None else weight.view(shape)
        if count > 0:
            mean = y.mean(axes)
            about_mean = self.recenter or self.statistic == "std"
            centred = y - mean.view(shape) if about_mean else y
            if self.rescale:
                inverse = torch.rsqrt((centred * centred).mean(axes) + self.eps).view(shape)
                scale = inverse if scale is None else inverse * scale
            if update:
                # not the difference of two moments, which would be rounding beside a large mean
                spread = centred.detach() if about_mean else y.detach() - mean.detach().view(shape)
                self._track(mean.detach(), (spread * spread).mean(axes), count, factor)
            if self.recenter:
                y = centred
        # one pass over the batch for both, and one less to remember for the gradient
        if scale is not None and bias is not None:
            y = torch.addcmul(bias.view(shape), y, scale)
        elif scale is not None:
            y = y * scale
        elif bias is not None:
            y = y + bias.view(shape)
        return y.to(x.dtype)

    def _count_batch(self) -> float:
        """Count this batch; the factor with which it enters the running statistics."""
        factor = 0.0 if self.momentum is None else self.momentum
        counted = self.num_batches_tracked
        if counted is not None:
            counted.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(counted)
        return factor

    def _track(self, mean: Tensor, var: Tensor, count: int, factor: float) -> None:
        running_mean, running_var = self.running_mean, self.running_var
        if running_mean is not None and running_var is not None:
            bessel = count / max(count - 1, 1)
            running_mean.lerp_(mean.to(running_mean.dtype), factor)
            running_var.lerp_((var * bessel).to(running_var.dtype), factor)

    def _check(self, x: Tensor) -> None:
        if not x.is_floating_point():
            raise InvalidInputError(
                f"DecomposedBatchNorm: input has type {x.dtype}, expected real floats"
            )
        if not 2 <= x.dim() <= 5:
            raise InvalidInputError(
                f"DecomposedBatchNorm: input has {x.dim()} axes, expected (N, C) up to "
                "(N, C, D, H, W)"
            )
        if x.shape[1] != self.num_features:
            raise InvalidInputError(
                f"DecomposedBatchNorm: input has {x.shape[1]} channels on axis 1, "
                f"expected {self.num_features}"
            )

    def extra_repr(self) -> str:
        parts = f"recenter={self.recenter}, rescale={self.rescale}, statistic={self.statistic!r}"
        return f"{parts}, {super().extra_repr()}"


def decompose(
    module: nn.Module,
    *,
    recenter: bool = True,
    rescale: bool = True,
    statistic: Statistic = "auto",
    inplace: bool = False,
) -> nn.Module:
    """A copy of a model with every BatchNorm replaced by a `DecomposedBatchNorm` with these parts.

    Weights (the same Parameter objects where ``inplace``, so optimizers and tied weights keep
    working), running statistics, momentum, eps, mode and hooks are kept; a BatchNorm that occurs
    twice is replaced by one module that occurs twice. A module that is itself a BatchNorm is
    replaced as a whole, a `DecomposedBatchNorm` gets the new parts. A SyncBatchNorm becomes local
    to its process. Subclasses with a forward of their own and parametrized ones are refused: what
    they compute is not known here.

    Args:
        inplace: change ``module`` instead of a copy.

    >>> model = decompose(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), recenter=False)
    >>> model[1].resolved_statistic
    'rms'
    """
    resolve_statistic(statistic, recenter)
    if not isinstance(module, nn.Module):
        raise InvalidInputError(f"the model is {module!r}, expected a torch module")
    _refuse_unknown(module)
    root = module if inplace else copy.deepcopy(module)
    made: dict[int, DecomposedBatchNorm] = {}

    def replacement(old: nn.Module) -> DecomposedBatchNorm | None:
        if not isinstance(old, (_BatchNorm, DecomposedBatchNorm)):
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


def _refuse_unknown(module: nn.Module) -> None:
    known = (_BatchNorm.forward, nn.SyncBatchNorm.forward, DecomposedBatchNorm.forward)
    for path, part in module.named_modules():
        if not isinstance(part, (_BatchNorm, DecomposedBatchNorm)):
            continue
        where = f"{path or 'the module'} ({type(part).__name__})"
        tensors = (*part.parameters(recurse=False), *part.buffers(recurse=False))
        if any(map(is_lazy, tensors)):
            raise InvalidInputError(f"{where} is a lazy BatchNorm without data; run a batch first")
        if is_parametrized(part):
            raise InvalidInputError(
                f"{where} has parametrized weights; call "
                "torch.nn.utils.parametrize.remove_parametrizations first"
            )
        if type(part).forward not in known:
            raise InvalidInputError(
                f"{where} is a BatchNorm with a forward of its own, which switched parts would "
                "not follow; replace it yourself"
            )


def _convert(
    old: _BatchNorm | DecomposedBatchNorm, recenter: bool, rescale: bool, statistic: Statistic
) -> DecomposedBatchNorm:
    new = DecomposedBatchNorm(
        old.num_features, recenter, rescale, statistic, old.momentum, old.eps, False, False
    )
    new.affine, new.track_running_stats = old.affine, old.track_running_stats
    for name in ("weight", "bias"):
        new.register_parameter(name, getattr(old, name))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        setattr(new, name, getattr(old, name))
    # the same dictionaries, so that handles given out before still remove their hooks
    hooks = {name: value for name, value in vars(old).items() if "hooks" in name}
    vars(new).update(hooks)
    return new.train(old.training)
