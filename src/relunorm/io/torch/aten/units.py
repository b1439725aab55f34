"""Operations with kinks: activations, maxima, minima."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.windows import Windows
from relunorm.io.torch.aten.affine import negated
from relunorm.io.torch.aten.site import Site, as_array, constant, operation
from relunorm.network import RELU, Activation


@operation("relu")
def _relu(site: Site, self: Tensor) -> Tensor:
    return site.lowering.activate(self, RELU, site.name)


def _piece(site: Site, self: Tensor) -> Tensor:
    """A relu that is no unit of the model, only part of an operation."""
    return site.lowering.activate(self, RELU, site.name, piece=True)


@operation("leaky_relu")
def _leaky_relu(site: Site, self: Tensor, negative_slope: float = 0.01) -> Tensor:
    return site.lowering.activate(self, Activation("leaky", slope=float(negative_slope)), site.name)


@operation("rrelu")
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


@operation("prelu", "_prelu_kernel")
def _prelu(site: Site, self: Tensor, weight: Any) -> Tensor:
    """w x + (1 - w) relu(x), with one w for each channel: leaky where all w are the same."""
    slope = constant(weight, "weight")
    if slope.size and (slope == slope.flat[0]).all():
        return _leaky_relu(site, self, float(slope.flat[0]))
    if slope.ndim == 1 and len(self.shape) > 1:
        slope = slope.reshape(-1, *(1,) * (len(self.shape) - 2))
    above = site.lowering.scale(_piece(site, self), 1.0 - slope)
    return site.lowering.add(site.lowering.scale(self, slope), above)


@operation("clamp", "clip")
def _clamp(site: Site, self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    low, high = _end(min), _end(max)
    return site.lowering.clip(self, low, high, site.name)


@operation("clamp_min")
def _clamp_min(site: Site, self: Tensor, min: Any) -> Tensor:
    return _clamp(site, self, min=min)


@operation("clamp_max")
def _clamp_max(site: Site, self: Tensor, max: Any) -> Tensor:
    return _clamp(site, self, max=max)


@operation("hardtanh")
def _hardtanh(site: Site, self: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return _clamp(site, self, min_val, max_val)


@operation("relu6")
def _relu6(site: Site, self: Tensor) -> Tensor:
    return _clamp(site, self, 0, 6)


@operation("hardsigmoid")
def _hardsigmoid(site: Site, self: Tensor) -> Tensor:
    line = site.lowering.shift(site.lowering.scale(self, as_array(1 / 6)), as_array(0.5))
    return _clamp(site, line, 0, 1)


@operation("threshold")
def _threshold(site: Site, self: Tensor, threshold: float, value: float) -> Tensor:
    if threshold != value:
        raise CannotLower(f"jumps from {value} to {threshold}")
    return _clamp(site, self, min=threshold)


@operation("abs", "absolute")
def _abs(site: Site, self: Tensor) -> Tensor:
    """2 relu(x) - x."""
    twice = site.lowering.scale(_piece(site, self), as_array(2))
    return site.lowering.subtract(twice, self)


@operation("softshrink")
def _softshrink(site: Site, self: Tensor, lambd: float = 0.5) -> Tensor:
    """x - clip(x, -lambda, lambda) = x + lambda - relu(x + lambda) + relu(x - lambda)."""
    low, end = site.lowering, as_array(lambd)
    below = low.subtract(low.shift(self, end), _piece(site, low.shift(self, end)))
    return low.add(below, _piece(site, low.shift(self, -end)))


@operation("heaviside")
def _heaviside(site: Site, self: Tensor, values: Any) -> Tensor:
    at_zero = np.unique(constant(values, "value at 0"))
    if at_zero.size != 1:
        raise CannotLower("with several values at 0")
    return site.lowering.activate(self, Activation("step", at_zero=float(at_zero[0])), site.name)


@operation("maximum", "max.other")
def _maximum(site: Site, self: Any, other: Any) -> Tensor:
    """max(x, y) = y + relu(x - y); a constant y only moves the bias."""
    low = site.lowering
    if isinstance(self, Tensor) and isinstance(other, Tensor):
        shape = np.broadcast_shapes(self.shape, other.shape)
        return low.maximum(low.broadcast(self, shape), low.broadcast(other, shape), site.name)
    tensor, level = (self, as_array(other)) if isinstance(self, Tensor) else (other, as_array(self))
    return low.shift(_relu(site, low.shift(tensor, -level)), level)


@operation("minimum", "min.other")
def _minimum(site: Site, self: Any, other: Any) -> Tensor:
    """min(x, y) = -max(-x, -y)."""

    def negative(value: Any) -> Any:
        return negated(site, value) if isinstance(value, Tensor) else -as_array(value)

    return negated(site, _maximum(site, negative(self), negative(other)))


@operation("amax")
def _amax(site: Site, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest entry along some axes, as a knockout of pairs."""
    axes = site.reduced(self, dim, None)
    rest = [a for a in range(len(self.shape)) if a not in axes]
    outer = math.prod(self.shape[a] for a in rest)
    index = self.index.transpose(*rest, *axes).reshape(1, outer, -1)
    line = site.lowering.rearrange(self, index)
    taps = index.shape[2]
    whole = Windows((1,), np.arange(taps)[None], np.ones((1, taps), dtype=bool), np.array([taps]))
    best = site.lowering.max_pool(line, whole, site.name)
    kept = tuple(1 if a in axes else n for a, n in enumerate(self.shape))
    return replace(best, shape=kept if keepdim else tuple(self.shape[a] for a in rest))


@operation("amin")
def _amin(site: Site, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return negated(site, _amax(site, negated(site, self), dim, keepdim))


@operation("max.dim")
def _max_dim(site: Site, self: Tensor, dim: int, keepdim: bool = False) -> list[Any]:
    return [_amax(site, self, [dim], keepdim), None]


@operation("min.dim")
def _min_dim(site: Site, self: Tensor, dim: int, keepdim: bool = False) -> list[Any]:
    return [_amin(site, self, [dim], keepdim), None]


def _end(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        raise CannotLower("an end depends on the input")
    numbers: NDArray[Any] = np.unique(as_array(value))
    if numbers.size != 1:
        raise CannotLower("with different ends for different entries")
    return float(numbers[0])
