"""What each Keras layer means on lowered tensors; axis 0 is the batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.io.graph import heads, operations
from relunorm.io.graph.einsum import einsum
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.transposed import convolve_transposed
from relunorm.io.graph.windows import adaptive_windows, sliding_windows
from relunorm.network import RELU, Activation

#: Class name -> function(lowering, layer, tensors) -> tensor.
LAYERS: dict[str, Callable[[Lowering, Any, list[Any]], Any]] = {}

#: Activations and operations that may stand at the end, by Keras' names for them.
_ENTRY = {
    "sigmoid": "sigmoid",
    "log_sigmoid": "log_sigmoid",
    "tanh": "tanh",
    "softplus": "softplus",
    "exponential": "exp",
    "exp": "exp",
}
#: Layers that may follow a step of a head: moves of entries, and what does nothing at inference.
_MOVES = ("Identity", "Dropout", "Flatten", "Reshape", "Permute")


def layer(*names: str) -> Callable[[Any], Any]:
    """Register a function under class names."""

    def register(function: Any) -> Any:
        LAYERS.update((name, function) for name in names)
        return function

    return register


def as_constant(variable: Any) -> NDArray[np.float64]:
    from keras import ops  # pyright: ignore[reportMissingImports]

    with warnings.catch_warnings():
        # Keras converts torch tensors in a way that numpy 2 warns about.
        warnings.simplefilter("ignore", DeprecationWarning)
        return np.asarray(ops.convert_to_numpy(variable), dtype=np.float64)


@layer("InputLayer", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "AlphaDropout")
@layer("SpatialDropout3D", "GaussianDropout", "GaussianNoise", "ActivityRegularization")
@layer("RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation", "RandomContrast")
def _identity(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return tensors[0]


@layer("Identity")
def _stage(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """What it reads, as a linear stage: `to_keras` writes one so."""
    return low.keep(tensors[0])


@layer("Activation")
def _activation(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    return activate(low, op.activation, tensors[0], op.name)


def activate(low: Lowering, function: Any, x: Tensor, name: str) -> Tensor | Headed:
    """Apply an activation as Keras names it: a function of keras.activations, or a layer."""
    if function is None:
        return x
    own = str(getattr(function, "__module__", "")).startswith("keras.")
    kind = getattr(function, "__name__", type(function).__name__)
    if own and kind in LAYERS:
        return LAYERS[kind](low, function, [x])
    if not own:
        raise CannotLower(f"with the activation {kind!r}, which is not Keras' own")
    if kind == "linear":
        return x
    if kind == "relu":
        return low.activate(x, RELU, name)
    if kind == "leaky_relu":
        return low.activate(x, Activation("leaky", slope=0.2), name)
    if kind == "relu6":
        return low.clip(x, 0.0, 6.0, name)
    if kind == "hard_sigmoid":
        return operations.hard_sigmoid(low, x, name)
    if kind == "hard_tanh":
        return low.clip(x, -1.0, 1.0, name)
    if kind in ("soft_shrink", "hard_shrink"):
        return operations.shrink(low, x, 0.5, 0.5 if kind == "soft_shrink" else 0.0, name)
    return step(x, kind, -1, name)


def step(x: Tensor | Headed, kind: str, axis: int, name: str) -> Headed:
    """A step of a head by Keras' name for it."""
    shown = f"the activation {kind!r}"
    if kind in ("softmax", "log_softmax"):
        return heads.along(x, kind, axis, name, shown)
    if kind in _ENTRY:
        return heads.entry(x, _ENTRY[kind], name, shown)  # type: ignore[arg-type]
    raise CannotLower(f"with the activation {kind!r}")


@layer("Softmax", "LogSoftmax")
def _softmax(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if not isinstance(op.axis, int):
        raise CannotLower(f"over the axes {op.axis}")
    kind = "softmax" if type(op).__name__ == "Softmax" else "log_softmax"
    return step(tensors[0], kind, op.axis, op.name)


@layer("Sigmoid", "LogSigmoid", "Tanh", "Softplus", "Exp")
def _entry(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    kind = {"LogSigmoid": "log_sigmoid"}.get(type(op).__name__, type(op).__name__.lower())
    return step(tensors[0], kind, -1, op.name)


@layer("Argmax")
def _argmax(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if not isinstance(op.axis, int):
        raise CannotLower("over all entries")
    found = heads.along(tensors[0], "argmax", op.axis, op.name, "argmax")
    return found if op.keepdims else heads.without_axis(found, op.axis)


@layer("Round")
def _round(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    if getattr(op, "decimals", 0):
        raise CannotLower("to decimals")
    return heads.entry(tensors[0], "round", op.name, "round")


@layer("Clip")
def _clip(low: Lowering, op: Any, tensors: list[Any]) -> Tensor | Headed:
    ends = [float(op.x_min), float(op.x_max)]
    if isinstance(tensors[0], Headed):
        return heads.entry(tensors[0], "clip", op.name, "clip", ends)
    return low.clip(tensors[0], ends[0], ends[1], op.name)


def after_head(low: Lowering, op: Any, tensors: list[Any]) -> Headed:
    """A layer on values after a step of a head."""
    name, value = type(op).__name__, next(t for t in tensors if isinstance(t, Headed))
    if name == "Activation":
        kind = getattr(op.activation, "__name__", "")
        return value if kind == "linear" else step(value, kind, -1, op.name)
    if name in ("Softmax", "LogSoftmax", "Sigmoid", "LogSigmoid", "Tanh", "Softplus", "Exp"):
        return LAYERS[name](low, op, tensors)
    if name in ("Argmax", "Round", "Clip"):
        return LAYERS[name](low, op, tensors)
    if name == "Rescaling":
        return heads.scaled(low, value, np.asarray(op.scale), np.asarray(op.offset))
    if name == "Concatenate" and all(isinstance(t, Headed) for t in tensors):
        return heads.joined(low, tensors, op.axis)
    if name in _MOVES and name in LAYERS:
        return heads.moved(value, lambda tensor: LAYERS[name](low, op, [tensor]))
    raise Stuck(value)


@layer("ReLU")
def _relu(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """min(leaky(x), max_value) = leaky(x) - relu(x - max_value)."""
    slope, level = float(op.negative_slope), float(op.threshold)
    if level and (slope or op.max_value is not None):
        raise CannotLower("with a threshold and another slope or end")
    if level:
        return operations.threshold(low, tensors[0], level, 0.0, op.name)
    if op.max_value is not None and not slope:
        return low.clip(tensors[0], 0.0, float(op.max_value), op.name)
    result = low.activate(tensors[0], Activation("leaky", slope) if slope else RELU, op.name)
    if op.max_value is None:
        return result
    above = low.shift(tensors[0], np.array(-float(op.max_value)))
    return low.subtract(result, low.activate(above, RELU, op.name, piece=True))


@layer("LeakyReLU")
def _leaky_relu(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return low.activate(tensors[0], Activation("leaky", float(op.negative_slope)), op.name)


@layer("PReLU")
def _prelu(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return operations.prelu(low, tensors[0], as_constant(op.alpha), op.name)


@layer("Dense")
def _dense(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    bias = as_constant(op.bias) if op.use_bias else None
    return activate(
        low, op.activation, low.linear(tensors[0], as_constant(op.kernel).T, bias), op.name
    )


@layer("BatchNormalization")
def _batch_normalization(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    statistics = as_constant(op.moving_mean), as_constant(op.moving_variance)
    gain = as_constant(op.gamma) if op.scale else None
    offset = as_constant(op.beta) if op.center else None
    return operations.normalize(low, tensors[0], op.axis, statistics, op.epsilon, gain, offset)


@layer("Rescaling")
def _rescaling(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return low.shift(low.scale(tensors[0], np.asarray(op.scale)), np.asarray(op.offset))


@layer("Normalization")
def _normalization(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """(x - mean) / max(std, epsilon), or back again, by statistics that `adapt` stored."""
    if getattr(op, "mean", None) is None or getattr(op, "variance", None) is None:
        raise CannotLower("has no statistics yet; call its adapt method first")
    from keras import backend  # pyright: ignore[reportMissingImports]

    mean = as_constant(op.mean)
    deviation = np.maximum(np.sqrt(as_constant(op.variance)), backend.epsilon())
    if op.invert:
        return low.shift(low.scale(tensors[0], deviation), mean)
    return low.scale(low.shift(tensors[0], -mean), 1.0 / deviation)


@layer("Flatten", "Reshape", "Permute", "RepeatVector")
@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D", "Cropping3D")
def _move(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    """What only moves, drops or repeats entries or puts zeros; Keras says where each comes from."""
    return operations.moved(low, tensors, lambda places: computed(op.call, places))


@layer("UpSampling1D", "UpSampling2D", "UpSampling3D", "Resizing")
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

        x = operations.along(low, x, axis, run)
    return _channels_back(low, op, x)


def computed(function: Any, *values: Any, **named: Any) -> Any:
    """What a function of Keras gives on arrays, as arrays again; several as a list."""
    from keras import ops  # pyright: ignore[reportMissingImports]

    given = [ops.convert_to_tensor(v) if isinstance(v, np.ndarray) else v for v in values]
    found = function(*given, **named)
    return (
        [as_constant(each) for each in found]
        if isinstance(found, list | tuple)
        else as_constant(found)
    )


@layer("Add")
def _add(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = low.add(total, tensor)
    return total


@layer("Average")
def _average(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return low.scale(_add(low, op, tensors), np.array(1 / len(tensors)))


@layer("Subtract")
def _subtract(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    return low.subtract(*tensors)


@layer("Maximum")
def _maximum(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    best = tensors[0]
    for tensor in tensors[1:]:
        best = operations.maximum(low, best, tensor, op.name)
    return best


@layer("Minimum")
def _minimum(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    best = tensors[0]
    for tensor in tensors[1:]:
        best = operations.minimum(low, best, tensor, op.name)
    return best


@layer("Concatenate")
def _concatenate(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor:
    if op.axis % len(tensors[0].shape) == 0:
        raise CannotLower("along the batch axis")
    return low.concatenate(tensors, op.axis)


@layer("EinsumDense")
def _einsum_dense(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    product = einsum(low, op.equation, [tensors[0], as_constant(op.kernel)])
    if op.bias is not None:
        product = low.shift(product, as_constant(op.bias))
    return activate(low, op.activation, product, op.name)


@layer("TimeDistributed")
def _each_time(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    """A dense layer along the last axis works on every time step as it is."""
    if type(op.layer).__name__ != "Dense" or not type(op.layer).__module__.startswith("keras."):
        raise CannotLower("of a layer other than Dense")
    return _dense(low, op.layer, tensors)


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def _conv_transpose(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    weight = np.moveaxis(as_constant(op.kernel), (-2, -1), (0, 1))
    x, axes = _channels_first(low, op, tensors[0]), weight.ndim - 2
    strides, dilation = _spread(op.strides, axes), _spread(op.dilation_rate, axes)
    pads = _transposed_pads(op, x.shape, weight.shape[2:], strides, dilation)
    bias = as_constant(op.bias) if op.use_bias else None
    result = convolve_transposed(low, x, weight, bias, strides, pads, dilation, 1)
    return activate(low, op.activation, _channels_back(low, op, result), op.name)


def _transposed_pads(
    op: Any,
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int]]:
    """What is cut off before and behind, or added: Keras itself says it."""
    from keras import config  # pyright: ignore[reportMissingImports]
    from keras.src.backend.common import backend_utils as pads  # pyright: ignore

    given = (shape, (*kernel, 1, 1), tuple(strides), op.padding, op.output_padding, tuple(dilation))
    newer = hasattr(pads, "compute_conv_transpose_output_crops_for_torch")  # all backends agree
    if config.backend() == "torch" and not newer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that other backends would differ
            cut, extra = pads.compute_conv_transpose_padding_args_for_torch(*given)
        return [(int(n), int(n) - int(more)) for n, more in zip(cut, extra, strict=True)]
    around = pads.compute_conv_transpose_padding_args_for_jax(*given)
    sizes = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [(n - int(a), n - int(b)) for n, (a, b) in zip(sizes, around, strict=True)]


@layer("Conv1D", "Conv2D", "Conv3D")
def _conv(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    kernel = np.moveaxis(as_constant(op.kernel), (-1, -2), (0, 1))
    return _convolve(low, op, tensors[0], kernel, op.groups)


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def _depthwise(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
    return _convolve(low, op, tensors[0], *_one_a_channel(op.kernel))


@layer("SeparableConv1D", "SeparableConv2D")
def _separable(low: Lowering, op: Any, tensors: list[Tensor]) -> Tensor | Headed:
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
) -> Tensor | Headed:
    x, axes = _channels_first(low, op, x), weight.ndim - 2
    strides, dilation = _spread(op.strides, axes), _spread(op.dilation_rate, axes)
    pads = _pads(op.padding, x.shape[2:], weight.shape[2:], strides, dilation)
    bias = as_constant(op.bias) if op.use_bias else None
    if mixing is not None:
        x = low.convolve(x, weight, None, strides, pads, dilation, groups)
        ones = [1] * axes
        weight, strides, dilation, groups, pads = mixing, ones, ones, 1, [(0, 0)] * axes
    result = low.convolve(x, weight, bias, strides, pads, dilation, groups)
    return activate(low, op.activation, _channels_back(low, op, result), op.name)


def _pool(low: Lowering, op: Any, tensors: list[Tensor], largest: bool) -> Tensor:
    x = _channels_first(low, op, tensors[0])
    sizes = _spread(op.pool_size, len(x.shape) - 2)
    strides = _spread(op.strides, len(sizes))
    ones = [1] * len(sizes)
    pads = _pads(op.padding, x.shape[2:], sizes, strides, ones)
    windows = sliding_windows(x.shape[2:], sizes, strides, pads, ones)
    pooled = low.max_pool(x, windows, op.name) if largest else low.average(x, windows, False)
    return _channels_back(low, op, pooled)


def _global_pool(low: Lowering, op: Any, tensors: list[Tensor], largest: bool) -> Tensor:
    x = _channels_first(low, op, tensors[0])
    whole, ones = operations.one_window(x), (1,) * (len(x.shape) - 2)
    pooled = low.max_pool(x, whole, op.name) if largest else low.average(x, whole, False)
    shape = (1, x.shape[1])
    if op.keepdims:
        first = op.data_format == "channels_first"
        shape = (*shape, *ones) if first else (1, *ones, x.shape[1])
    return low.rearrange(pooled, pooled.index.reshape(shape))


def _adaptive_pool(low: Lowering, op: Any, tensors: list[Tensor], largest: bool) -> Tensor:
    x = _channels_first(low, op, tensors[0])
    windows = adaptive_windows(x.shape[2:], _spread(op.output_size, len(x.shape) - 2))
    pooled = low.max_pool(x, windows, op.name) if largest else low.average(x, windows, False)
    return _channels_back(low, op, pooled)


for _axes in (1, 2, 3):
    layer(f"AdaptiveAveragePooling{_axes}D")(partial(_adaptive_pool, largest=False))
    layer(f"AdaptiveMaxPooling{_axes}D")(partial(_adaptive_pool, largest=True))
    layer(f"AveragePooling{_axes}D")(partial(_pool, largest=False))
    layer(f"MaxPooling{_axes}D")(partial(_pool, largest=True))
    layer(f"GlobalAveragePooling{_axes}D")(partial(_global_pool, largest=False))
    layer(f"GlobalMaxPooling{_axes}D")(partial(_global_pool, largest=True))


def _spread(value: Any, axes: int) -> list[int]:
    return [int(value)] * axes if isinstance(value, int) else [int(n) for n in value]


def _pads(
    kind: str,
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int]]:
    """Padding in Keras' sense."""
    if kind == "same":
        return operations.same_padding(spatial, kernel, strides, dilation)
    causal = kind == "causal"
    return [(d * (k - 1) if causal else 0, 0) for k, d in zip(kernel, dilation, strict=True)]


def _channels_first(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if getattr(op, "data_format", "") == "channels_first":
        return x
    return low.rearrange(x, np.moveaxis(x.index, -1, 1))


def _channels_back(low: Lowering, op: Any, x: Tensor) -> Tensor:
    if getattr(op, "data_format", "") == "channels_first":
        return x
    return low.rearrange(x, np.moveaxis(x.index, 1, -1))
