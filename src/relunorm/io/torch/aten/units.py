"""Operations with kinks: activations, maxima, minima."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.io.graph import operations
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.torch.aten.site import Site, constant, operation, value_of
from relunorm.network import RELU, Activation


@operation("relu", entrywise=True)
def _relu(site: Site, self: Tensor) -> Tensor:
    return site.lowering.activate(self, RELU, site.name)


@operation("leaky_relu", entrywise=True)
def _leaky_relu(site: Site, self: Tensor, negative_slope: float = 0.01) -> Tensor:
    return site.lowering.activate(self, Activation("leaky", slope=float(negative_slope)), site.name)


@operation("rrelu", entrywise=True)
def _rrelu(
    site: Site,
    self: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> Tensor:
    if training:
        raise CannotLower("is random in training mode")
    return _leaky_relu(site, self, (lower + upper) / 2)


@operation("prelu", "_prelu_kernel", entrywise=True)
def _prelu(site: Site, self: Tensor, weight: Any) -> Tensor:
    """One slope for each channel, or one for all."""
    slope = constant(weight, "weight")
    if slope.ndim == 1 and len(self.shape) > 1:
        slope = slope.reshape(-1, *(1,) * (len(self.shape) - 2))
    return operations.prelu(site.lowering, self, slope, site.name)


@operation("clamp", "clip", entrywise=True)
def _clamp(site: Site, self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    low, high = (None if end is None else constant(end, "end") for end in (min, max))
    return operations.clip(site.lowering, self, low, high, site.name)


@operation("clamp_min", entrywise=True)
def _clamp_min(site: Site, self: Tensor, min: Any) -> Tensor:
    return _clamp(site, self, min=min)


@operation("clamp_max", entrywise=True)
def _clamp_max(site: Site, self: Tensor, max: Any) -> Tensor:
    return _clamp(site, self, max=max)


@operation("hardtanh", entrywise=True)
def _hardtanh(site: Site, self: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return _clamp(site, self, min_val, max_val)


@operation("relu6", entrywise=True)
def _relu6(site: Site, self: Tensor) -> Tensor:
    return _clamp(site, self, 0, 6)


@operation("hardsigmoid", entrywise=True)
def _hardsigmoid(site: Site, self: Tensor) -> Tensor:
    return operations.hard_sigmoid(site.lowering, self, site.name)


@operation("threshold", entrywise=True)
def _threshold(site: Site, self: Tensor, threshold: float, value: float) -> Tensor:
    return operations.threshold(site.lowering, self, float(threshold), float(value), site.name)


@operation("sign", "sgn", entrywise=True)
def _sign(site: Site, self: Tensor) -> Tensor:
    return site.lowering.sign(self, site.name)


@operation("abs", "absolute", entrywise=True)
def _abs(site: Site, self: Tensor) -> Tensor:
    return operations.absolute(site.lowering, self, site.name)


@operation("softshrink", entrywise=True)
def _softshrink(site: Site, self: Tensor, lambd: float = 0.5) -> Tensor:
    return operations.shrink(site.lowering, self, float(lambd), float(lambd), site.name)


@operation("hardshrink", entrywise=True)
def _hardshrink(site: Site, self: Tensor, lambd: float = 0.5) -> Tensor:
    return operations.shrink(site.lowering, self, float(lambd), 0.0, site.name)


@operation("heaviside", entrywise=True)
def _heaviside(site: Site, self: Tensor, values: Any) -> Tensor:
    at_zero = np.unique(constant(values, "value at 0"))
    if at_zero.size != 1:
        raise CannotLower("with several values at 0")
    return site.lowering.activate(self, Activation("step", at_zero=float(at_zero[0])), site.name)


@operation("maximum", "max.other", entrywise=True)
def _maximum(site: Site, self: Any, other: Any) -> Tensor:
    return operations.maximum(site.lowering, value_of(self), value_of(other), site.name)


@operation("minimum", "min.other", entrywise=True)
def _minimum(site: Site, self: Any, other: Any) -> Tensor:
    return operations.minimum(site.lowering, value_of(self), value_of(other), site.name)


@operation("amax")
def _amax(site: Site, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    axes = site.reduced(self, dim, None)
    return operations.largest(site.lowering, self, axes, keepdim, site.name)


@operation("amin")
def _amin(site: Site, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    axes = site.reduced(self, dim, None)
    return operations.smallest(site.lowering, self, axes, keepdim, site.name)


@operation("aminmax")
def _aminmax(site: Site, self: Tensor, dim: Any = None, keepdim: bool = False) -> list[Any]:
    return [_amin(site, self, dim, keepdim), _amax(site, self, dim, keepdim)]


@operation("max.dim")
def _max_dim(site: Site, self: Tensor, dim: int, keepdim: bool = False) -> list[Any]:
    return [_amax(site, self, [dim], keepdim), None]


@operation("min.dim")
def _min_dim(site: Site, self: Tensor, dim: int, keepdim: bool = False) -> list[Any]:
    return [_amin(site, self, [dim], keepdim), None]
