"""What aten operations mean, but for those that move entries or slide windows (`shapes`).

The functions take the arguments of aten's schema by name; a first argument ``site`` says where.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import heads
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.products import einsum, matmul
from relunorm.io.torch.program import Site, as_array, check_floating, constant, value_of
from relunorm.io.torch.shapes import SHAPES

#: Units, as aten spells them.
UNITS: dict[str, meaning.Spelling] = {
    "relu": ("relu",),
    "leaky_relu": ("leaky", ("negative_slope", 0.01)),
    "relu6": ("clip", 0.0, 6.0),
    "clamp": ("clip", ("min", None), ("max", None)),
    "clip": ("clip", ("min", None), ("max", None)),
    "clamp_min": ("clip", ("min", None), None),
    "clamp_max": ("clip", None, ("max", None)),
    "hardtanh": ("clip", ("min_val", -1.0), ("max_val", 1.0)),
    "hardsigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "threshold": ("threshold", ("threshold", None), ("value", None)),
    "softshrink": ("shrink", ("lambd", 0.5), ("lambd", 0.5)),
    "hardshrink": ("shrink", ("lambd", 0.5), 0.0),
    "heaviside": ("step", ("values", None)),
    "sign": ("sign",),
    "sgn": ("sign",),
    "abs": ("absolute",),
    "absolute": ("absolute",),
    "sigmoid": ("sigmoid",),
    "special_expit": ("sigmoid",),
    "log_sigmoid": ("log_sigmoid",),
    "tanh": ("tanh",),
    "exp": ("exp",),
    "expm1": ("expm1",),
    "round": ("round",),
    "gt": ("greater", ("other", None)),
}
_ALONG = {
    "softmax": "softmax",
    "_softmax": "softmax",
    "special_softmax": "softmax",
    "log_softmax": "log_softmax",
    "_log_softmax": "log_softmax",
    "special_log_softmax": "log_softmax",
}


def _unit(spelled: meaning.Spelling, site: Site, **arguments: Any) -> Any:
    x, *_ = arguments.values()
    wanted = {n[0] for n in spelled if isinstance(n, tuple)}
    if unknown := set(list(arguments)[1:]) - wanted:
        raise CannotLower(f"in its form with {', '.join(sorted(unknown))}")

    def argument(key: str, default: Any) -> Any:
        given = arguments.get(key, default)
        return None if given is None else constant(given, key)

    return meaning.unit(site.low, x, site.name, spelled, argument)


def _prelu(site: Site, self: Tensor, weight: Any) -> Tensor:
    """One slope for each channel, or one for all."""
    slope = constant(weight, "weight")
    if slope.ndim == 1 and len(self.shape) > 1:
        slope = slope.reshape(-1, *(1,) * (len(self.shape) - 2))
    return meaning.prelu(site.low, self, slope, site.name)


def _rrelu(
    site: Site, self: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False
) -> Any:
    if training:
        raise CannotLower("is random in training mode")
    return _unit(("leaky", (lower + upper) / 2), site, self=self)


def _softplus(site: Site, self: Any, beta: float = 1, threshold: float = 20) -> Headed:
    if beta != 1:
        raise CannotLower("with another factor than 1")
    if threshold < 20:
        raise CannotLower("is a line from a threshold on where it is not yet one")
    return heads.entry(self, "softplus")


def _along(kind: Any, site: Site, self: Any, dim: int, dtype: Any = None, **_: Any) -> Headed:
    check_floating(dtype)
    return heads.along(self, kind, dim)


def _argmax(site: Site, self: Any, dim: Any = None, keepdim: bool = False) -> Headed:
    if not isinstance(dim, int):
        raise CannotLower("over all entries")
    return heads.along(self, "argmax", dim, keepdim)


def _add(site: Site, self: Any, other: Any, alpha: float = 1) -> Any:
    return meaning.add(site.low, value_of(self), _times(site, other, alpha))


def _sub(site: Site, self: Any, other: Any, alpha: float = 1) -> Any:
    return meaning.subtract(site.low, value_of(self), _times(site, other, alpha))


def _times(site: Site, value: Any, factor: float) -> Any:
    value = value_of(value)
    return value if factor == 1 else meaning.multiply(site.low, value, as_array(factor))


def _mul(site: Site, self: Any, other: Any) -> Any:
    return meaning.multiply(site.low, value_of(self), value_of(other))


def _div(site: Site, self: Any, other: Any, rounding_mode: None = None) -> Any:
    if rounding_mode is not None:
        raise CannotLower("the quotient is rounded")
    return meaning.divide(site.low, value_of(self), value_of(other))


def _lerp(site: Site, self: Any, end: Any, weight: Any) -> Any:
    """self + weight (end - self)."""
    way = meaning.subtract(site.low, value_of(end), value_of(self))
    return _add(site, self, meaning.multiply(site.low, way, constant(weight, "weight")))


def _extreme(extreme: Callable[..., Tensor], site: Site, self: Any, other: Any) -> Tensor:
    return extreme(site.low, value_of(self), value_of(other), site.name)


def _reduced(
    kind: str, site: Site, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    check_floating(dtype)
    return meaning.reduced(site.low, kind, self, site.axes(self, dim), keepdim, site.name)


def _with_places(kind: str, site: Site, self: Any, dim: int, keepdim: bool = False) -> list[Any]:
    signed = self if kind == "max" else meaning.negative(site.low, self)
    places = heads.along(signed, "argmax", dim, keepdim)
    return [_reduced(kind, site, self, dim, keepdim), places]


def _aminmax(site: Site, self: Any, dim: Any = None, keepdim: bool = False) -> list[Any]:
    return [_reduced(kind, site, self, dim, keepdim) for kind in ("min", "max")]


def _norm(
    site: Site, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    if ord == 1:
        return _reduced("l1", site, self, dim, keepdim, dtype)
    if ord != math.inf:
        raise CannotLower(f"the norm of order {ord} is not piecewise linear; 1 and inf are")
    size = meaning.absolute(site.low, self, site.name)
    return _reduced("max", site, size, dim, keepdim, dtype)


def _norm_of(site: Site, self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _norm(site, self, 2 if p is None else p, dim, keepdim)


def _cumsum(site: Site, self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    check_floating(dtype)
    (axis,) = site.axes(self, dim)
    return meaning.along(site.low, self, axis, lambda rows: rows.cumsum(axis=1))


def _diff(
    site: Site, self: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    if prepend is not None or append is not None:
        raise CannotLower("with values put before or behind")
    (axis,) = site.axes(self, dim)
    return meaning.along(site.low, self, axis, lambda rows: np.diff(rows, n, axis=1))


def _tensordot(
    site: Site, self: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Tensor:
    a, b = value_of(self), value_of(other)
    first = list(string.ascii_lowercase[: len(a.shape)])
    second = list(string.ascii_uppercase[: len(b.shape)])
    for i, j in zip(dims_self, dims_other, strict=True):
        second[j] = first[i]
    result = [c for c in first if c not in second] + [c for c in second if c not in first]
    return einsum(site.low, f"{''.join(first)},{''.join(second)}->{''.join(result)}", [a, b])


def _index_add(
    site: Site, self: Any, dim: int, index: Any, source: Tensor, alpha: float = 1
) -> Any:
    """Add the slices of ``source`` to those of ``self`` that ``index`` names."""
    shape = self.shape if isinstance(self, Tensor) else tuple(as_array(self).shape)
    places = np.arange(math.prod(shape)).reshape(shape)
    rows = np.take(places, constant(index, "index").astype(np.intp), axis=dim)
    if rows.shape != source.shape:
        raise InvalidNetworkError(f"source has shape {source.shape}, expected {rows.shape}")
    entries = (np.full(rows.size, float(alpha)), (rows.ravel(), np.arange(rows.size)))
    matrix = sp.csr_array(entries, shape=(places.size, rows.size))
    return _add(site, self, site.low.map(source, mx.as_matrix(matrix), None, shape))


def _linear(site: Site, input: Any, weight: Any, bias: Any = None) -> Tensor:
    matrix = constant(weight, "weight")
    if not isinstance(input, Tensor):
        raise CannotLower("the bias depends on the input")
    offset = None if bias is None else constant(bias, "bias")
    product = site.low.linear(input, np.atleast_2d(matrix), offset)
    return product if matrix.ndim > 1 else meaning.reshaped(site.low, product, input.shape[:-1])


def _product(site: Site, a: Any, b: Any) -> Any:
    return matmul(site.low, value_of(a), value_of(b))


def _matmul(site: Site, self: Any, **other: Any) -> Any:
    """The second factor has another name in each of its forms."""
    (factor,) = other.values()
    return _product(site, self, factor)


def _addmm(site: Site, self: Any, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1) -> Any:
    product = _times(site, _product(site, mat1, mat2), alpha)
    return meaning.add(site.low, product, _times(site, self, beta))


def _baddbmm(
    site: Site, self: Any, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1
) -> Any:
    return _addmm(site, self, batch1, batch2, beta, alpha)


def _batch_norm(
    site: Site,
    input: Tensor,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, per channel."""
    if training or running_mean is None or running_var is None:
        raise CannotLower("takes its statistics from the batch, not from running averages")
    statistics = constant(running_mean, "mean"), constant(running_var, "variance")
    gain = None if weight is None else constant(weight, "weight")
    offset = None if bias is None else constant(bias, "bias")
    return meaning.normalize(site.low, input, 1, statistics, eps, gain, offset)


def _instance_norm(site: Site, use_input_stats: bool = True, **arguments: Any) -> Tensor:
    """By running averages it is a batch normalization."""
    if use_input_stats:
        raise CannotLower("divides by a deviation computed from its input; one with running "
                          "averages (track_running_stats=True) is read")  # fmt: skip
    return _batch_norm(site, **arguments)


#: Operation without its overload (or with it, where overloads differ) -> what it does on values
#: that depend on the input.
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_unit, spelled) for name, spelled in UNITS.items()},
    **{name: partial(_along, kind) for name, kind in _ALONG.items()},
    **{
        name: partial(_reduced, kind)
        for name, kind in {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}.items()
    },
    **dict.fromkeys(("prelu", "_prelu_kernel"), _prelu),
    **dict.fromkeys(("sub", "subtract"), _sub),
    **dict.fromkeys(("mul", "multiply"), _mul),
    **dict.fromkeys(("div", "divide", "true_divide"), _div),
    **dict.fromkeys(("neg", "negative"), lambda site, self: meaning.negative(site.low, self)),
    **dict.fromkeys(("maximum", "max.other"), partial(_extreme, meaning.maximum)),
    **dict.fromkeys(("minimum", "min.other"), partial(_extreme, meaning.minimum)),
    **dict.fromkeys(("norm.ScalarOpt_dim", "norm.Scalar"), _norm_of),
    **dict.fromkeys(("mm", "matmul", "bmm", "mv", "dot"), _matmul),
    **SHAPES,
    "add": _add,
    "rsub": lambda site, self, other, alpha=1: _sub(site, other, self, alpha),
    "lerp": _lerp,
    "addcmul": lambda site, self, tensor1, tensor2, value=1: _add(
        site, self, _mul(site, tensor1, tensor2), value
    ),
    "rrelu": _rrelu,
    "softplus": _softplus,
    "argmax": _argmax,
    "aminmax": _aminmax,
    "max.dim": partial(_with_places, "max"),
    "min.dim": partial(_with_places, "min"),
    "linalg_vector_norm": _norm,
    "cumsum": _cumsum,
    "diff": _diff,
    "tensordot": _tensordot,
    "index_add": _index_add,
    "linear": _linear,
    "einsum": lambda site, equation, tensors: einsum(
        site.low, equation, [value_of(tensor) for tensor in tensors]
    ),
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "_native_batch_norm_legit_no_training": lambda site, **arguments: [
        _batch_norm(site, **arguments), None, None
    ],
}  # fmt: skip
#: What is only known behind a step of a head.
AFTER: dict[str, Callable[..., Headed]] = {"log": lambda site, self: heads.logarithm(self)}
#: Operations on piecewise affine values that can only be a step of a head.
OPENERS = meaning.curved(UNITS) | frozenset(_ALONG) | {"softplus", "argmax"}
#: Operations that may stand after a step of a head.
FOLLOWERS = OPENERS.union(AFTER, {
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "dropout",
    "alpha_dropout", "detach", "clone", "contiguous", "alias", "to", "_to_copy", "permute",
    "transpose", "t", "slice", "select", "index_select", "mul", "add", "sub", "rsub", "div", "neg",
    "true_divide", "clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "cat",
})  # fmt: skip
#: Those that work on each entry alone, and so leave the length of a vector as it is.
ENTRYWISE = frozenset(UNITS).union({
    "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide", "neg",
    "negative", "lerp", "addcmul", "rrelu", "prelu", "_prelu_kernel", "maximum", "minimum",
}) - OPENERS  # fmt: skip
