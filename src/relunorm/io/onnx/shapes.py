"""ONNX operations that move entries, slide windows or make constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from relunorm.errors import InvalidNetworkError, ModelFileError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.heads import Headed
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.graph.products import convolve_transposed, outputs_first
from relunorm.io.graph.windows import Windows, sliding_windows
from relunorm.io.onnx.file import STAGE, Array, Node, check_count, reference
from relunorm.io.onnx.resize import resize
from relunorm.network.structure import Geometry

#: Conversions between these are taken as exact, as they are in torch.
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
_FLOATS += (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _identity(node: Node) -> Any:
    """What it reads, as a linear stage where the node is noted to be one."""
    x = node.inputs[0]
    if isinstance(x, Tensor) and node.proto.doc_string == STAGE:
        return node.low.keep(x)
    return x


def _dropout(node: Node) -> Any:
    training = node.input(2)
    if node.extra_output_used() or (training is not None and np.any(training)):
        raise CannotLower("in training mode")
    return node.inputs[0]


def _cast(node: Node) -> Any:
    target = node.attribute("to")
    value = node.input(0)
    if isinstance(value, np.ndarray):
        return value.astype(onnx.helper.tensor_dtype_to_np_dtype(target))
    value = node.tensor()
    if target not in _FLOATS and not (isinstance(value, Headed) and value.jumps):
        raise CannotLower("to whole numbers, which rounds")
    return value


def _moved(node: Node) -> Any:
    """What ONNX's own reference makes of the places of the entries: each comes from one of them."""
    values, run = _move(node)
    if any(isinstance(value, Tensor | Headed) for value in values):
        return meaning.moved(node.low, values, run)
    return run(*values)


def _move(node: Node) -> tuple[list[Any], Callable[..., Any]]:
    """The values whose entries are moved, and the function that moves them."""
    data = _DATA.get(node.kind, (0,))
    others = {k: node.constant(k) for k, each in enumerate(node.inputs)
              if k not in data and each is not None}  # fmt: skip
    if node.attribute("reduction", b"none") not in (b"none", "none"):
        raise CannotLower("adds up or compares what it scatters")

    def run(*places: Array) -> Any:
        given = {**others, **dict(zip(data, places, strict=True))}
        check_count(_grown(node, places[0].shape))
        found = reference(node, [given.get(k) for k in range(len(node.inputs))])
        return found if len(found) > 1 else found[0]

    return [node.inputs[k] for k in data], run


def keeps_batch(node: Node) -> bool:
    """Whether each input of a batch is moved alone, of a node among `MOVES`."""
    try:
        return meaning.keeps_batch(*_move(node))
    except (ModelFileError, ValueError):  # works for a batch of one only
        return False


#: The inputs whose entries come out again, where it is not the first alone.
_DATA = {"Where": (1, 2), "ScatterElements": (0, 2), "Scatter": (0, 2), "ScatterND": (0, 2)}


def _depth_to_space(node: Node) -> Any:
    x, size = node.tensor(), int(node.attribute("blocksize"))
    if node.attribute("mode", b"DCR") == b"DCR" and len(x.shape) == 4:
        grid = x.shape[2:]
        x = node.low.rearrange(x, x.index.reshape(1, size * size, -1, *grid))
        x = node.low.rearrange(x, x.index.transpose(0, 2, 1, 3, 4))
        x = node.low.rearrange(x, x.index.reshape(1, -1, *grid))
    return meaning.woven(node.low, x, [size, size])


def _grown(node: Node, shape: tuple[int, ...]) -> Sequence[int]:
    """The shape, or one with as many entries, that repeated entries make; the file names it."""
    if node.kind == "Expand":
        return np.broadcast_shapes(shape, tuple(int(n) for n in node.constant(1)))
    if node.kind == "Tile":
        return [n * int(k) for n, k in zip(shape, node.constant(1), strict=True)]
    if node.kind in ("Gather", "GatherND"):
        return (math.prod(shape) // max(shape[node.attribute("axis", 0)], 1), node.constant(1).size)
    if node.kind == "Where":
        return np.broadcast_shapes(*(value.shape for value in node.inputs))
    return ()


def _gather_elements(node: Node) -> Any:
    """Entries by their place along one axis. (The reference wraps a wild place by adding up.)"""
    value, chosen = node.inputs[0], node.constant(1)
    if value is None or len(value.shape) != chosen.ndim or not chosen.ndim:
        raise InvalidNetworkError(f"indices of {chosen.ndim} axes do not fit its input")
    axis = int(node.attribute("axis", 0)) % chosen.ndim
    length = value.shape[axis]
    if ((chosen < -length) | (chosen >= length)).any():
        raise InvalidNetworkError(f"an index is outside of the {length} entries along axis {axis}")
    met = tuple(slice(None if a == axis else n) for a, n in enumerate(chosen.shape))

    def run(places: Array) -> Array:
        return np.take_along_axis(places[met], chosen.astype(np.intp), axis)

    if isinstance(value, Tensor):
        return meaning.moved(node.low, [value], run)
    return run(node.constant(0))


def _pad(node: Node) -> Any:
    """Zeros where nothing is, then what it is filled with."""
    pads = node.integers(1, "pads")
    if pads is None:
        raise InvalidNetworkError("pads are missing")
    x = node.tensor()
    rank = len(x.shape)
    axes = [a % rank for a in node.integers(3, "axes") or range(rank)]
    if len(pads) != 2 * len(axes):
        raise InvalidNetworkError(f"{len(pads)} pads for {len(axes)} axes")
    width = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    check_count([n + max(a, 0) + max(b, 0) for n, (a, b) in zip(x.shape, width, strict=True)])
    mode = node.attribute("mode", b"constant").decode()

    def run(places: Array) -> Array:
        cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in
                    zip(x.shape, width, strict=True))  # fmt: skip
        return np.pad(places[cut], [(max(a, 0), max(b, 0)) for a, b in width], mode)  # type: ignore[call-overload]

    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise InvalidNetworkError(f"the mode {mode!r} is not known")
    padded = meaning.moved(node.low, [x], run)
    fill = node.attribute("value", 0.0) if node.input(2) is None else node.constant(2).item()
    if mode != "constant" or fill == 0:
        return padded
    return node.low.shift(padded, np.where(run(np.ones(x.shape)) == 0, float(fill), 0.0))


def _concat(node: Node) -> Any:
    axis = node.attribute("axis")
    if all(isinstance(value, np.ndarray) for value in node.inputs):
        return np.concatenate(node.inputs, axis=axis)
    return meaning.concatenate(node.low, node.inputs, axis)


def _constant(node: Node) -> Any:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = node.attribute(name)
        if value is not None:
            return np.asarray(value)
    raise CannotLower("only numbers are known")


def _constant_of_shape(node: Node) -> Any:
    shape = [int(n) for n in node.constant(0)]
    check_count(shape)
    fill = node.attribute("value", np.zeros(1, dtype=np.float32))
    return np.full(shape, fill.ravel()[0])


def _conv(node: Node) -> Any:
    x, weight, bias, geometry = _weights(node)
    if bias is not None and bias.shape != (len(weight),):
        raise InvalidNetworkError(f"the bias has shape {bias.shape}, expected ({len(weight)},)")
    geometry = geometry.padded(_pads(node, x.shape[2:], geometry))
    return node.low.convolve(x, weight, bias, geometry, node.attribute("group", 1))


def _weights(node: Node) -> tuple[Tensor, Array, Array | None, Geometry]:
    """What a convolution reads, its weight and bias, and its windows without padding."""
    x, weight = node.tensor(0), node.constant(1)
    bias = None if node.input(2) is None else node.constant(2)
    if weight.ndim != len(x.shape) or not x.shape[2:]:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    return x, weight, bias, _unpadded(node, x.shape[2:], weight.shape[2:])


def _conv_transpose(node: Node) -> Any:
    x, weight, bias, geometry = _weights(node)
    spatial, stride = x.shape[2:], geometry.stride
    extra = [int(n) for n in node.attribute("output_padding", [0] * len(spatial))]
    mode = node.attribute("auto_pad", b"NOTSET").decode()
    wanted = node.attribute("output_shape")
    if mode in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = [n * s for n, s in zip(spatial, stride, strict=True)]
    if wanted is None:
        pads = _pads(node, spatial, geometry)
    else:
        pads = []
        for n, (k, s, _, d), more, size in zip(
            spatial, geometry.axes, extra, wanted[-len(spatial) :], strict=True
        ):
            total = (n - 1) * s + d * (k - 1) + 1 + more - int(size)
            if total < 0 and node.attribute("output_shape") is None:
                raise CannotLower(f"with auto_pad {mode} and gaps, of which runtimes differ")
            ends = (total // 2, total - total // 2)
            pads.append(ends if mode == "SAME_UPPER" else ends[::-1])
    pads = [(a, b - more) for (a, b), more in zip(pads, extra, strict=True)]
    groups = int(node.attribute("group", 1))
    ends = (n * s + k * d for n, (k, s, _, d) in zip(spatial, geometry.axes, strict=True))
    check_count([groups * weight.shape[1], *ends])
    outward, geometry = outputs_first(weight, groups), geometry.padded(pads)
    return convolve_transposed(node.low, x, outward, bias, geometry, groups)


def _unpadded(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> Geometry:
    ones = [1] * len(spatial)
    stride, dilation = (node.attribute(name, ones) for name in ("strides", "dilations"))
    none, ceil = [(0, 0)] * len(spatial), node.attribute("ceil_mode", 0)
    return Geometry(kernel, stride, none, dilation, ceil)


def _pads(node: Node, spatial: Sequence[int], geometry: Geometry) -> list[tuple[int, int]]:
    mode = node.attribute("auto_pad", b"NOTSET").decode()
    axes = len(spatial)
    if mode == "VALID":
        return [(0, 0)] * axes
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip(spatial, geometry.axes, strict=True)
        left_over = [(n - 1) % s - d * (k - 1) for n, (k, s, _, d) in sizes]
        if max(left_over) > 1 or (node.kind not in _KERNELS and max(geometry.dilation) > 1):
            raise CannotLower(f"with auto_pad {mode}, strides and dilations of which runtimes "
                              "differ; give pads")  # fmt: skip
        pads = meaning.same_padding(spatial, geometry)
        return pads if mode == "SAME_UPPER" else [(large, small) for small, large in pads]
    pads = [int(n) for n in node.attribute("pads", [0] * (2 * axes))]
    if mode != "NOTSET" or len(pads) != 2 * axes:
        raise InvalidNetworkError(f"auto_pad {mode!r} with pads {pads} over {axes} axes")
    return list(zip(pads[:axes], pads[axes:], strict=True))


#: What multiplies with weights in its windows.
_KERNELS = ("Conv", "ConvTranspose")


def _windows(node: Node) -> Windows:
    x = node.tensor()
    spatial = x.shape[2:]
    if not spatial:
        raise InvalidNetworkError(f"pooling of shape {x.shape} has no axis to pool")
    geometry = _unpadded(node, spatial, node.attribute("kernel_shape", []))
    return sliding_windows(spatial, geometry.padded(_pads(node, spatial, geometry)))


def _max_pool(node: Node) -> Tensor:
    if node.extra_output_used():
        raise CannotLower("its indices are used")
    return node.low.max_pool(node.tensor(), _windows(node), node.name)


def _average_pool(node: Node) -> Tensor:
    count_padding = bool(node.attribute("count_include_pad", 0))
    return node.low.average(node.tensor(), _windows(node), count_padding)


def _global_pool(node: Node) -> Tensor:
    x = node.tensor()
    if node.kind == "GlobalMaxPool":
        return node.low.max_pool(x, meaning.one_window(x), node.name)
    return node.low.average(x, meaning.one_window(x), False)


#: What only moves, drops or repeats entries or puts zeros.
MOVES = (
    "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Expand", "Gather",
    "GatherND", "Tile", "Compress", "Trilu", "SpaceToDepth", "Where", "ScatterElements", "Scatter",
    "ScatterND", "ReverseSequence",
)  # fmt: skip

SHAPES: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(("Resize", "Upsample"), resize),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "Identity": _identity,
    "Dropout": _dropout,
    "Cast": _cast,
    "DepthToSpace": _depth_to_space,
    "GatherElements": _gather_elements,
    "Pad": _pad,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": lambda n: np.array(n.inputs[0].shape)[n.attribute("start", 0) : n.attribute("end")],
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
}
