"""Arithmetic, products with constants, reductions, and normalization by stored statistics."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations
from relunorm.io.graph.einsum import einsum, matmul
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.torch.aten.site import Site, as_array, constant, operation, reshaped, value_of


@operation("add", entrywise=True)
def _add(site: Site, self: Any, other: Any, alpha: float = 1) -> Tensor:
    low, other = site.lowering, value_of(other)
    if alpha != 1:
        other = low.scale(other, as_array(alpha)) if isinstance(other, Tensor) else other * alpha
    return operations.add(low, value_of(self), other)


@operation("sub", "subtract", entrywise=True)
def _sub(site: Site, self: Any, other: Any, alpha: float = 1) -> Tensor:
    return _add(site, self, other, alpha=-alpha)


@operation("rsub", entrywise=True)
def _rsub(site: Site, self: Any, other: Any, alpha: float = 1) -> Tensor:
    return _sub(site, other, self, alpha)


@operation("mul", "multiply", entrywise=True)
def _mul(site: Site, self: Any, other: Any) -> Tensor:
    return operations.multiply(site.lowering, value_of(self), value_of(other))


@operation("div", "divide", "true_divide", entrywise=True)
def _div(site: Site, self: Any, other: Any, rounding_mode: None = None) -> Tensor:
    if rounding_mode is not None:
        raise CannotLower("the quotient is rounded")
    return operations.divide(site.lowering, value_of(self), value_of(other))


@operation("neg", "negative", entrywise=True)
def _negative(site: Site, self: Tensor) -> Tensor:
    return operations.negative(site.lowering, self)


@operation("sum")
def _sum(
    site: Site, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    return site.lowering.sum(self, site.reduced(self, dim, dtype), keepdim)


@operation("mean")
def _mean(
    site: Site, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    return operations.mean(site.lowering, self, site.reduced(self, dim, dtype), keepdim)


@operation("linalg_vector_norm")
def _norm(
    site: Site,
    self: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    axes = site.reduced(self, dim, dtype)
    if ord == 1:
        return operations.sizes(site.lowering, self, axes, keepdim, site.name)
    if ord != math.inf:
        raise CannotLower(f"the norm of order {ord} is not piecewise linear; 1 and inf are")
    size = operations.absolute(site.lowering, self, site.name)
    return operations.largest(site.lowering, size, axes, keepdim, site.name)


@operation("norm.ScalarOpt_dim", "norm.Scalar")
def _norm_of(
    site: Site, self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False
) -> Tensor:
    return _norm(site, self, 2 if p is None else p, dim, keepdim)


@operation("cumsum")
def _cumsum(site: Site, self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    site.reduced(self, dim, dtype)
    return operations.along(site.lowering, self, dim, lambda rows: rows.cumsum(axis=1))


@operation("diff")
def _diff(
    site: Site, self: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    if prepend is not None or append is not None:
        raise CannotLower("with values put before or behind")
    site.reduced(self, dim, None)
    return operations.along(site.lowering, self, dim, lambda rows: np.diff(rows, n, axis=1))


@operation("tensordot")
def _tensordot(
    site: Site, self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Tensor:
    a, b = value_of(self), value_of(other)
    first = list(string.ascii_lowercase[: len(a.shape)])
    second = list(string.ascii_uppercase[: len(b.shape)])
    for i, j in zip(dims_self, dims_other, strict=True):
        second[j] = first[i]
    result = [c for c in first if c not in second] + [c for c in second if c not in first]
    return einsum(site.lowering, f"{''.join(first)},{''.join(second)}->{''.join(result)}", [a, b])


@operation("lerp", entrywise=True)
def _lerp(site: Site, self: Any, end: Any, weight: Any) -> Tensor:
    """self + weight (end - self)."""
    low, first, share = site.lowering, value_of(self), constant(weight, "weight")
    parts = [value_of(end), operations.negative(low, first)]
    way = _add(site, *parts) if any(isinstance(v, Tensor) for v in parts) else sum(parts)
    return _add(site, first, _mul(site, way, share) if isinstance(way, Tensor) else way * share)


@operation("addcmul", entrywise=True)
def _addcmul(site: Site, self: Any, tensor1: Any, tensor2: Any, value: float = 1) -> Tensor:
    first, second = value_of(tensor1), value_of(tensor2)
    if not isinstance(first, Tensor) and not isinstance(second, Tensor):
        return _add(site, self, first * second, alpha=value)
    return _add(site, _mul(site, _mul(site, first, second), value), self)


@operation("index_add")
def _index_add(
    site: Site, self: Any, dim: int, index: Any, source: Tensor, alpha: float = 1
) -> Tensor:
    """Add the slices of ``source`` to those of ``self`` that ``index`` names."""
    shape = self.shape if isinstance(self, Tensor) else tuple(as_array(self).shape)
    places = np.arange(math.prod(shape)).reshape(shape)
    rows = np.take(places, constant(index, "index").astype(np.intp), axis=dim)
    if rows.shape != source.shape:
        raise InvalidNetworkError(f"source has shape {source.shape}, expected {rows.shape}")
    entries = (np.full(rows.size, float(alpha)), (rows.ravel(), np.arange(rows.size)))
    matrix = sp.csr_array(entries, shape=(places.size, rows.size))
    return _add(site, self, site.lowering.map(source, mx.as_matrix(matrix), None, shape))


@operation("linear")
def _linear(site: Site, input: Any, weight: Any, bias: Any = None) -> Tensor:
    matrix = constant(weight, "weight")
    if not isinstance(input, Tensor):
        raise CannotLower("the bias depends on the input")
    offset = None if bias is None else constant(bias, "bias")
    if matrix.ndim == 1:
        product = site.lowering.linear(input, matrix[None], offset)
        return reshaped(site, product, input.shape[:-1])
    return site.lowering.linear(input, matrix, offset)


@operation("mm", "matmul", "bmm", "mv", "dot")
def _matmul(
    site: Site,
    self: Any,
    other: Any = None,
    mat2: Any = None,
    vec: Any = None,
    tensor: Any = None,
) -> Tensor:
    other = next(v for v in (other, mat2, vec, tensor) if v is not None)
    return matmul(site.lowering, value_of(self), value_of(other))


@operation("einsum")
def _einsum(site: Site, equation: str, tensors: Sequence[Any], path: None = None) -> Tensor:
    return einsum(site.lowering, equation, [value_of(tensor) for tensor in tensors])


@operation("baddbmm")
def _baddbmm(
    site: Site, self: Any, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    return _addmm(site, self, batch1, batch2, beta, alpha)


@operation("addmm")
def _addmm(
    site: Site, self: Any, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1
) -> Tensor:
    if isinstance(mat1, Tensor) or isinstance(mat2, Tensor):
        product = site.lowering.scale(_matmul(site, mat1, mat2), as_array(alpha))
        if not isinstance(self, Tensor):
            return site.lowering.shift(product, as_array(self) * beta)
        return _add(site, product, self, alpha=beta)
    return site.lowering.shift(
        site.lowering.scale(self, as_array(beta)), as_array(mat1) @ as_array(mat2) * alpha
    )


@operation("batch_norm")
def _batch_norm(
    site: Site,
    input: Tensor,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, per channel."""
    if training or running_mean is None or running_var is None:
        raise CannotLower("takes its statistics from the batch, not from running averages")
    statistics = constant(running_mean, "mean"), constant(running_var, "variance")
    gain = None if weight is None else constant(weight, "weight")
    offset = None if bias is None else constant(bias, "bias")
    return operations.normalize(site.lowering, input, 1, statistics, eps, gain, offset)


@operation("instance_norm")
def _instance_norm(
    site: Site,
    input: Tensor,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    use_input_stats: bool = True,
    momentum: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: Any = None,
) -> Tensor:
    """By running averages it is a batch normalization."""
    if use_input_stats:
        raise CannotLower("divides by a deviation computed from its input; one with running "
                          "averages (track_running_stats=True) is read")  # fmt: skip
    return _batch_norm(site, input, weight, bias, running_mean, running_var, eps=eps)


@operation("_native_batch_norm_legit_no_training")
def _batch_norm_eval(
    site: Site,
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
    eps: float,
) -> list[Any]:
    result = _batch_norm(site, input, weight, bias, running_mean, running_var, eps=eps)
    return [result, None, None]
