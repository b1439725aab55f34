"""What each Keras layer means on lowered tensors; axis 0 is the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.io.graph import heads
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.products import convolve_transposed, einsum
from relunorm.io.graph.windows import Windows, adaptive_windows, sliding_windows
from relunorm.network import RELU, Activation
from relunorm.network.structure import Geometry

#: Activations by Keras' names for them.
ACTIVATIONS: dict[str, meaning.Spelling] = {
    "relu": ("relu",),
    "leaky_relu": ("leaky", 0.2),
    "relu6": ("clip", 0.0, 6.0),
    "hard_sigmoid": ("hard_sigmoid", 1 / 6, 0.5),
    "hard_tanh": ("clip", -1.0, 1.0),
    "soft_shrink": ("shrink", 0.5, 0.5),
    "hard_shrink": ("shrink", 0.5, 0.0),
    "sigmoid": ("sigmoid",),
    "log_sigmoid": ("log_sigmoid",),
    "tanh": ("tanh",),
    "softplus": ("softplus",),
    "exponential": ("exp",),
    "exp": ("exp",),
}
#: Layers, and functions that are called like layers, that are units.
UNITS: dict[str, meaning.Spelling] = {
    "LeakyReLU": ("leaky", ("negative_slope", None)),
    "Clip": ("clip", ("x_min", None), ("x_max", None)),
    "Sigmoid": ("sigmoid",),
    "LogSigmoid": ("log_sigmoid",),
    "Tanh": ("tanh",),
    "Softplus": ("softplus",),
    "Exp": ("exp",),
}


def as_constant(variable: Any) -> NDArray[np.float64]:
    from keras import ops

    with warnings.catch_warnings():
        # Keras converts torch tensors in a way that numpy 2 warns about.
        warnings.simplefilter("ignore", DeprecationWarning)
        return mx.as_floats(ops.convert_to_numpy(variable))


def unit(spelled: meaning.Spelling, low: Lowering, op: Any, x: Any) -> Any:
    """A unit whose numbers are attributes of the layer or function."""
    return meaning.unit(low, x, op.name, spelled, lambda name, _: getattr(op, name))


def _stage(low: Lowering, op: Any, tensors: list[Any]) -> Any:
    """What it reads, as a linear stage: `to_keras` writes one so."""
    return tensors[0] if isinstance(tensors[0], Headed) else low.keep(tensors[0])


def listed_as(kind: Any) -> str:
    """The name of a class or function in the tables; one that is not Keras' own with its module,
    ``example.layers.Dead``."""
    module, name = str(getattr(kind, "__module__", "")), kind.__name__
    return name if module.startswith("keras.") else f"{module}.{name}"


def activate(low: Lowering, function: Any, x: Any, name: str) -> Any:
    """Apply an activation: a function, mostly one of keras.activations, or a layer."""
    kind = listed_as(function if hasattr(function, "__name__") else type(function))
    if kind in LAYERS:
        return LAYERS[kind](low, function, [x])
    if function is None or kind == "linear":
        return x
    if kind in ("softmax", "log_softmax"):
        return heads.along(x, kind, -1)
    if kind not in ACTIVATIONS:
        raise CannotLower("which is not Keras' own" if "." in kind else "")
    return meaning.unit(low, x, name, ACTIVATIONS[kind])


def _softmax(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if not isinstance(op.axis, int):
        raise CannotLower(f"over the axes {op.axis}")
    kind = "softmax" if type(op).__name__ == "Softmax" else "log_softmax"
    return heads.along(tensors[0], kind, op.axis)


def _argmax(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if not isinstance(op.axis, int):
        raise CannotLower("over all entries")
    return heads.along(tensors[0], "argmax", op.axis, bool(op.keepdims))


def _round(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if getattr(op, "decimals", 0):
        raise CannotLower("to decimals")
    return heads.entry(tensors[0], "round")


def _relu(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """min(leaky(x), max_value) = leaky(x) - relu(x - max_value); from a threshold on x above it,
    at most max_value, - slope relu(threshold - x)."""
    slope, level = float(op.negative_slope), float(op.threshold)
    if level:
        result = meaning.threshold(low, tensors[0], op.name, level, 0.0)
        if op.max_value is not None:
            result = low.clip(result, 0.0, float(op.max_value), op.name)
        if not slope:
            return result
        under = low.shift(meaning.negative(low, tensors[0]), np.array(level))
        below = low.activate(under, RELU, op.name, piece=True)
        return low.subtract(result, low.scale(below, np.array(slope)))
    if op.max_value is not None and not slope:
        return low.clip(tensors[0], 0.0, float(op.max_value), op.name)
    result = low.activate(tensors[0], Activation("leaky", slope) if slope else RELU, op.name)
    if op.max_value is None:
        return result
    above = low.shift(tensors[0], np.array(-float(op.max_value)))
    return low.subtract(result, low.activate(above, RELU, op.name, piece=True))


def _dense(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    bias = as_constant(op.bias) if op.use_bias else None
    product = low.linear(tensors[0], as_constant(op.kernel).T, bias)
    return activate(low, op.activation, product, op.name)


def _batch_normalization(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    statistics = as_constant(op.moving_mean), as_constant(op.moving_variance)
    gain = as_constant(op.gamma) if op.scale else None
    offset = as_constant(op.beta) if op.center else None
    return meaning.normalize(low, tensors[0], op.axis, statistics, op.epsilon, gain, offset)


def _rescaling(low: Lowering, op: Any, tensors: list[Any]) -> Any:
    factor, offset = np.asarray(op.scale), np.asarray(op.offset)
    if isinstance(tensors[0], Headed):
        return heads.scaled(low, tensors[0], factor, offset)
    return low.shift(low.scale(tensors[0], factor), offset)


def _normalization(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """(x - mean) / max(std, epsilon), or back again, by statistics that `adapt` stored."""
    if getattr(op, "mean", None) is None or getattr(op, "variance", None) is None:
        raise CannotLower("has no statistics yet; call its adapt method first")
    from keras import backend

    mean = as_constant(op.mean)
    deviation = np.maximum(np.sqrt(as_constant(op.variance)), backend.epsilon())
    if op.invert:
        return low.shift(low.scale(tensors[0], deviation), mean)
    return low.scale(low.shift(tensors[0], -mean), 1.0 / deviation)


def _move(low: Lowering, op: Any, tensors: list[Any]) -> Any:
    """What only moves, drops or repeats entries or puts zeros; Keras says where each comes from."""
    return meaning.moved(low, tensors, lambda places: computed(op.call, places))


def _resample(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """Finer or coarser along each axis, by the weights that Keras itself gives."""
    x = _channels_first(low, op, tensors[0])
    if getattr(op, "crop_to_aspect_ratio", False) or getattr(op, "pad_to_aspect_ratio", False):
        raise CannotLower("keeps the aspect ratio")
    rank = len(x.shape)
    for axis in range(2, rank):
        at = axis if getattr(op, "data_format", "") == "channels_first" else axis - 1

        def run(rows: NDArray[np.float64], at: int = at) -> NDArray[np.float64]:
            shape = [1] * rank
            shape[0], shape[at] = rows.shape
            found = computed(op.call, rows.reshape(shape))
            return found[tuple(slice(None) if a in (0, at) else 0 for a in range(rank))]

        x = meaning.along(low, x, axis, run)
    return _channels_back(low, op, x)


def computed(function: Any, *values: Any, **named: Any) -> Any:
    """What a function of Keras gives on arrays, as arrays again; several as a list."""
    from keras import ops

    given = [ops.convert_to_tensor(v) if isinstance(v, np.ndarray) else v for v in values]
    found = function(*given, **named)
    return (
        [as_constant(each) for each in found]
        if isinstance(found, list | tuple)
        else as_constant(found)
    )


def _concatenate(low: Lowering, op: Any, tensors: list[Any]) -> Any:
    if op.axis % len(tensors[0].shape) == 0:
        raise CannotLower("along the batch axis")
    return meaning.concatenate(low, tensors, op.axis)


def _einsum_dense(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    product = einsum(low, op.equation, [tensors[0], as_constant(op.kernel)])
    if op.bias is not None:
        product = low.shift(product, as_constant(op.bias))
    return activate(low, op.activation, product, op.name)


def _each_time(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    """A dense layer along the last axis works on every time step as it is."""
    if type(op.layer).__name__ != "Dense" or not type(op.layer).__module__.startswith("keras."):
        raise CannotLower("of a layer other than Dense")
    return _dense(low, op.layer, tensors)


def _conv_transpose(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    weight = np.moveaxis(as_constant(op.kernel), (-2, -1), (0, 1))
    x = _channels_first(low, op, tensors[0])
    geometry = _unpadded(weight.shape[2:], op.strides, op.dilation_rate)
    geometry = geometry.padded(_transposed_pads(op, x.shape, geometry))
    bias = as_constant(op.bias) if op.use_bias else None
    result = convolve_transposed(low, x, weight, bias, geometry, 1)
    return activate(low, op.activation, _channels_back(low, op, result), op.name)


def _transposed_pads(op: Any, shape: Sequence[int], g: Geometry) -> list[tuple[int, int]]:
    """What is cut off before and behind, or added: Keras itself says it."""
    from keras import config
    from keras.src.backend.common import backend_utils as pads

    given = (shape, (*g.kernel, 1, 1), g.stride, op.padding, op.output_padding, g.dilation)
    newer = hasattr(pads, "compute_conv_transpose_output_crops_for_torch")  # all backends agree
    if config.backend() == "torch" and not newer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that other backends would differ
            cut, extra = pads.compute_conv_transpose_padding_args_for_torch(*given)
        return [(int(n), int(n) - int(more)) for n, more in zip(cut, extra, strict=True)]
    around = pads.compute_conv_transpose_padding_args_for_jax(*given)
    sizes = [d * (k - 1) for k, _, _, d in g.axes]
    return [(n - int(a), n - int(b)) for n, (a, b) in zip(sizes, around, strict=True)]


def _conv(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    kernel = np.moveaxis(as_constant(op.kernel), (-1, -2), (0, 1))
    return _convolve(low, op, tensors[0], kernel, op.groups)


def _depthwise(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    return _convolve(low, op, tensors[0], *_one_a_channel(op.kernel))


def _separable(low: Lowering, op: Any, tensors: list[Tensor]) -> Any:
    """A depthwise convolution, then one of a single tap over all channels."""
    mixing = np.moveaxis(as_constant(op.pointwise_kernel), (-1, -2), (0, 1))
    return _convolve(low, op, tensors[0], *_one_a_channel(op.depthwise_kernel), mixing)


def _one_a_channel(kernel: Any) -> tuple[NDArray[np.float64], int]:
    """The weight of a depthwise convolution as grouped ones have it, and the groups."""
    kernel = np.moveaxis(as_constant(kernel), (-2, -1), (0, 1))
    channels, multiplier, *spatial = kernel.shape
    return kernel.reshape(channels * multiplier, 1, *spatial), channels


def _convolve(
    low: Lowering,
    op: Any,
    x: Tensor,
    weight: NDArray[np.float64],
    groups: int,
    mixing: NDArray[np.float64] | None = None,
) -> Any:
    x = _channels_first(low, op, x)
    geometry = _unpadded(weight.shape[2:], op.strides, op.dilation_rate)
    geometry = geometry.padded(_pads(op.padding, x.shape[2:], geometry))
    bias = as_constant(op.bias) if op.use_bias else None
    if mixing is not None:
        x = low.convolve(x, weight, None, geometry, groups)
        weight, geometry, groups = mixing, Geometry.plain(mixing.shape[2:]), 1
    result = low.convolve(x, weight, bias, geometry, groups)
    return activate(low, op.activation, _channels_back(low, op, result), op.name)


def _sliding(op: Any, x: Tensor) -> Windows:
    return sliding_windows(x.shape[2:], _pooling(op, x))


def _pooling(op: Any, x: Tensor) -> Geometry:
    geometry = _unpadded(_spread(op.pool_size, len(x.shape) - 2), op.strides)
    return geometry.padded(_pads(op.padding, x.shape[2:], geometry))


def _adaptive(op: Any, x: Tensor) -> Windows:
    return adaptive_windows(x.shape[2:], _spread(op.output_size, len(x.shape) - 2))


def _global(op: Any, x: Tensor) -> Windows:
    return meaning.one_window(x)


def _pool(
    windows: Callable[[Any, Tensor], Windows], low: Lowering, op: Any, tensors: list[Tensor]
) -> Tensor:
    x = _channels_first(low, op, tensors[0])
    if "Max" in type(op).__name__:
        pooled = low.max_pool(x, windows(op, x), op.name)
    elif windows is _sliding and _repeats(pooling := _pooling(op, x)):
        x = low.rearrange(x, np.pad(x.index, [(0, 0), (0, 0), *pooling.pads], "edge"))
        geometry = Geometry.plain(pooling.kernel, pooling.stride)
        pooled = low.average(x, sliding_windows(x.shape[2:], geometry), False)
    else:
        pooled = low.average(x, windows(op, x), False)
    if windows is _global and not op.keepdims:
        return meaning.reshaped(low, pooled, (1, x.shape[1]))
    return _channels_back(low, op, pooled)


def _repeats(geometry: Geometry) -> bool:
    """Whether Keras repeats the edge and counts it: on torch, unless the padding is the same before
    and behind. Other backends leave all padding out of an average."""
    from keras import config

    return config.backend() == "torch" and any(a != b for a, b in geometry.pads)


def _spread(value: Any, axes: int) -> list[int]:
    return [int(value)] * axes if isinstance(value, int) else [int(n) for n in value]


def _unpadded(kernel: Sequence[int], strides: Any, dilation: Any = 1) -> Geometry:
    axes = len(kernel)
    return Geometry(kernel, _spread(strides, axes), [(0, 0)] * axes, _spread(dilation, axes))


def _pads(kind: str, spatial: Sequence[int], geometry: Geometry) -> list[tuple[int, int]]:
    """Padding in Keras' sense."""
    if kind == "same":
        return meaning.same_padding(spatial, geometry)
    causal = kind == "causal"
    return [(d * (k - 1) if causal else 0, 0) for k, _, _, d in geometry.axes]


def _channels_first(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if getattr(op, "data_format", "") == "channels_first":
        return x
    return low.rearrange(x, np.moveaxis(x.index, -1, 1))


def _channels_back(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if getattr(op, "data_format", "") == "channels_first":
        return x
    return low.rearrange(x, np.moveaxis(x.index, 1, -1))


#: Class name -> function(lowering, layer, tensors) -> tensor.
LAYERS: dict[str, Callable[[Lowering, Any, list[Any]], Any]] = {
    **{
        name: lambda low, op, tensors, spelled=spelled: unit(spelled, low, op, tensors[0])
        for name, spelled in UNITS.items()
    },
    # what does nothing at inference
    **dict.fromkeys(
        (
            "InputLayer", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
            "AlphaDropout", "GaussianDropout", "GaussianNoise", "ActivityRegularization",
            "RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast",
        ),
        lambda low, op, tensors: tensors[0],
    ),
    **dict.fromkeys(("Flatten", "Reshape", "Permute", "RepeatVector"), _move),
    **{f"{kind}{axes}D": _move for kind in ("ZeroPadding", "Cropping") for axes in (1, 2, 3)},
    **dict.fromkeys(("UpSampling1D", "UpSampling2D", "UpSampling3D", "Resizing"), _resample),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), _conv),
    **{f"Conv{axes}DTranspose": _conv_transpose for axes in (1, 2, 3)},
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _depthwise),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _separable),
    **{
        f"{how}{kind}Pooling{axes}D": partial(_pool, windows)
        for how, windows in (("", _sliding), ("Global", _global), ("Adaptive", _adaptive))
        for kind in ("Average", "Max")
        for axes in (1, 2, 3)
    },
    "Identity": _stage,
    "Activation": lambda low, op, tensors: activate(low, op.activation, tensors[0], op.name),
    "Argmax": _argmax,
    "Round": _round,
    "ReLU": _relu,
    "PReLU": lambda low, op, xs: meaning.prelu(low, xs[0], as_constant(op.alpha), op.name),
    "Dense": _dense,
    "BatchNormalization": _batch_normalization,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
    "Add": lambda low, op, tensors: reduce(low.add, tensors),
    "Average": lambda low, op, xs: low.scale(reduce(low.add, xs), np.array(1 / len(xs))),
    "Subtract": lambda low, op, tensors: low.subtract(*tensors),
    "Maximum": lambda low, op, xs: reduce(lambda a, b: meaning.maximum(low, a, b, op.name), xs),
    "Minimum": lambda low, op, xs: reduce(lambda a, b: meaning.minimum(low, a, b, op.name), xs),
    "Concatenate": _concatenate,
    "EinsumDense": _einsum_dense,
    "TimeDistributed": _each_time,
}  # fmt: skip
#: Layers that can only be a step of a head, and those that may follow one.
OPENERS = meaning.curved(UNITS) | {"Softmax", "LogSoftmax", "Argmax", "Round"}
FOLLOWERS = OPENERS | {
    "Activation", "Clip", "Rescaling", "Concatenate", "Identity", "Dropout", "Flatten", "Reshape",
    "Permute",
}  # fmt: skip
