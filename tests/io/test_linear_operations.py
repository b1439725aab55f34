"""Operations that are linear or piecewise linear, each against its framework's own forward pass.

Every case is read alone, for one input, and evaluated on points some of which are whole numbers, so
that kinks and jumps are met.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import relunorm as rn
from relunorm.errors import ModelFileError, UnsupportedOperationError
from relunorm.io.onnx import operations as onnx_operations
from relunorm.io.torch import operations as torch_operations

POINTS = 5
#: Both sides compute in float64; what is summed in another order differs in the last digits.
CLOSE = 1e-12


def _points(shape, seed=0):
    points = np.random.default_rng(seed).normal(size=(POINTS, *shape))
    points[:2] = points[:2].round()
    return points


class Function(nn.Module):
    """A module that is one function, with a matrix and a vector to compute with."""

    def __init__(self, function):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.function = function
        self.k = nn.Parameter(torch.randn(4, 4, generator=generator))
        self.p = nn.Parameter(torch.randn(5, generator=generator))

    def forward(self, x):
        return self.function(self, x)


def f(function):
    return lambda: Function(function)


MASK = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]]).bool()
CHOSEN = torch.tensor([[0, 2]])

TORCH = {
    "conv_transpose k2s2": (lambda: nn.ConvTranspose2d(3, 2, 2, stride=2), (3, 3, 4)),
    "conv_transpose k3s2p1o1": (lambda: nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), (2, 3, 4)),
    "conv_transpose groups": (lambda: nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2), (4, 3, 3)),
    "conv_transpose k3s2": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2), (3, 3, 3)),
    "conv_transpose dilated": (
        lambda: nn.ConvTranspose2d(3, 2, (3, 2), (3, 1), (2, 1), dilation=(2, 3), bias=False),
        (3, 4, 4),
    ),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(3, 2, 5, 3, 1, 1), (3, 4)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 2, 2, stride=2), (2, 2, 3, 2)),
    "nearest": (lambda: nn.Upsample(scale_factor=2), (2, 3, 4)),
    "nearest to a size": (f(lambda s, x: F.interpolate(x, size=(7, 3))), (2, 4, 4)),
    "nearest-exact": (
        f(lambda s, x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact")),
        (2, 4, 4),
    ),
    "bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4)),
    "bilinear aligned": (
        f(lambda s, x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True)),
        (2, 4, 5),
    ),
    "bilinear antialiased": (
        f(lambda s, x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True)),
        (2, 4, 5),
    ),
    "bilinear, coarser": (
        f(lambda s, x: F.interpolate(x, scale_factor=(0.75, 0.4), mode="bilinear")),
        (2, 4, 5),
    ),
    "antialiased by a scale": (
        f(lambda s, x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)),
        (2, 6, 7),
    ),
    "bicubic": (f(lambda s, x: F.interpolate(x, scale_factor=1.7, mode="bicubic")), (1, 4, 5)),
    "linear": (f(lambda s, x: F.interpolate(x, scale_factor=2, mode="linear")), (3, 4)),
    "trilinear": (f(lambda s, x: F.interpolate(x, size=4, mode="trilinear")), (1, 2, 3, 2)),
    "cumsum": (f(lambda s, x: x.cumsum(2)), (3, 4)),
    "diff": (f(lambda s, x: torch.diff(x)), (5,)),
    "einsum": (f(lambda s, x: torch.einsum("bij,kj->bki", x, s.k)), (3, 4)),
    "einsum diagonal": (f(lambda s, x: torch.einsum("...ii->...i", x)), (4, 4)),
    "matmul stack": (f(lambda s, x: x @ s.k.reshape(2, 4, 2)), (2, 3, 4)),
    "stack matmul": (f(lambda s, x: s.k.reshape(2, 2, 4) @ x), (2, 4, 3)),
    "tensordot": (f(lambda s, x: torch.tensordot(x, s.k, dims=1)), (3, 4)),
    "baddbmm": (f(lambda s, x: torch.baddbmm(s.k[None, :3], x, s.k.expand(len(x), 4, 4))), (3, 4)),
    "where": (f(lambda s, x: torch.where(MASK, x, 2 * x - 1)), (3, 4)),
    "where a number": (f(lambda s, x: torch.where(MASK, x, 0.5)), (3, 4)),
    "masked_fill": (f(lambda s, x: x.masked_fill(MASK, -3.0)), (3, 4)),
    "gather": (f(lambda s, x: x.gather(1, CHOSEN.expand(len(x), 2))), (4,)),
    "scatter": (f(lambda s, x: x.scatter(1, CHOSEN.expand(len(x), 2), 5.0)), (4,)),
    "scatter values": (
        f(lambda s, x: x.scatter(1, CHOSEN.expand(len(x), 2), x[:, 2:] * 3)),
        (4,),
    ),
    "slice_scatter": (f(lambda s, x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3)), (4,)),
    "index_copy": (f(lambda s, x: x.index_copy(1, CHOSEN[0], x[:, 2:] * 3)), (4,)),
    "index_fill": (f(lambda s, x: x.index_fill(1, CHOSEN[0], 3.0)), (4,)),
    "tril": (f(lambda s, x: x.tril()), (4, 4)),
    "repeat_interleave": (f(lambda s, x: x.repeat_interleave(2, 1)), (3, 2)),
    "unfold": (lambda: nn.Unfold(2, padding=1), (2, 3, 3)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (8, 2, 3)),
    "channel_shuffle": (lambda: nn.ChannelShuffle(2), (4, 2, 2)),
    "reflect": (f(lambda s, x: F.pad(x, (1, 2), mode="reflect")), (3, 4)),
    "circular": (f(lambda s, x: F.pad(x, (1, 1), mode="circular")), (3, 4)),
    "pad a number": (f(lambda s, x: F.pad(x, (-1, 2), value=2.0)), (3, 4)),
    "hsplit": (f(lambda s, x: torch.cat(torch.hsplit(x, 2)[::-1], 1)), (6,)),
    "tensor_split": (f(lambda s, x: torch.cat(torch.tensor_split(x, 3, 1)[::-1], 1)), (7,)),
    "expand_as": (f(lambda s, x: x[:, :1].expand_as(x) + x), (4,)),
    "hardshrink": (lambda: nn.Hardshrink(1.0), (5,)),
    "softshrink": (lambda: nn.Softshrink(1.0), (5,)),
    "threshold": (lambda: nn.Threshold(1.0, 20.0), (5,)),
    "sign": (f(lambda s, x: torch.sign(x) + x), (5,)),
    "clamp by tensors": (f(lambda s, x: torch.clamp(x, s.p - 0.5, s.p + 0.5)), (5,)),
    "norm 1": (f(lambda s, x: x.norm(p=1, dim=-1)), (5,)),
    "norm inf": (f(lambda s, x: torch.linalg.vector_norm(x, ord=float("inf"), dim=-1)), (5,)),
    "aminmax": (f(lambda s, x: torch.aminmax(x, dim=1)[1] - torch.aminmax(x, dim=1)[0]), (3,)),
    "lerp": (f(lambda s, x: torch.lerp(x, s.p, 0.3)), (5,)),
    "addcmul": (f(lambda s, x: torch.addcmul(x, s.p, x, value=2)), (5,)),
    "mean of planes": (f(lambda s, x: x.mean((2, 3))), (3, 2, 4)),
    "mean of channels": (f(lambda s, x: x.mean(1, keepdim=True)), (3, 2, 4)),
    "instance_norm stored": (lambda: nn.InstanceNorm2d(2, track_running_stats=True), (2, 3, 3)),
    "expm1": (f(lambda s, x: torch.expm1(x)), (3,)),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    make, shape = TORCH[name]
    torch.manual_seed(0)
    module = make().double().eval()
    points = _points(shape)
    with torch.no_grad():
        wanted = module(torch.from_numpy(points)).numpy().reshape(POINTS, -1)
    found = rn.load(module, example=shape).predict(points.reshape(POINTS, -1))
    np.testing.assert_allclose(found.reshape(POINTS, -1), wanted, rtol=CLOSE, atol=CLOSE)


def single(nodes, shape, constants, opset):
    """A graph from x to y, in float32."""
    kind = TensorProto.FLOAT
    floats = {n: v.astype(np.float32) for n, v in constants.items() if v.dtype == np.float64}
    constants = constants | floats
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info("x", kind, [1, *shape])],
        [helper.make_tensor_value_info("y", kind, None)],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(kind, inputs="x", opset=17, shape=(2, 3, 4), constants=None, **attributes):
    """One node that gives y, as a case."""
    names = inputs.split(" ")
    made = helper.make_node(kind, ["" if n == "-" else n for n in names], ["y"], **attributes)
    return [made], shape, constants or {}, opset


RANDOM = np.random.default_rng(1)
I64 = np.int64
KERNEL = {"w": RANDOM.normal(size=(2, 3, 3, 2)), "b": RANDOM.normal(size=3)}
DOUBLE = {"s": np.array([1, 1, 2, 2], dtype=np.float32)}
UNEVEN = {"z": np.array([1, 2, 7, 3], dtype=I64)}
FRACTIONS = {"s": np.array([1, 1, 1.5, 0.7], dtype=np.float32)}
HALVES = {"s": np.array([1, 1, 0.5, 1.5], dtype=np.float32)}

ONNX = {
    "ConvTranspose": node("ConvTranspose", "x w b", constants=KERNEL, strides=[2, 2]),
    "ConvTranspose pads": node(
        "ConvTranspose", "x w", constants={"w": KERNEL["w"]}, strides=[2, 1], pads=[1, 0, 1, 1],
        output_padding=[1, 0], dilations=[1, 2],
    ),
    "ConvTranspose same": node(
        "ConvTranspose", "x w", constants={"w": KERNEL["w"]}, strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "ConvTranspose shape": node(
        "ConvTranspose", "x w", constants={"w": KERNEL["w"]}, strides=[2, 2], output_shape=[6, 8]
    ),
    "Resize nearest": node("Resize", "x - s", constants=DOUBLE, mode="nearest"),
    "Resize linear": node("Resize", "x - s", constants=DOUBLE, mode="linear"),
    "Resize sizes": node("Resize", "x - - z", constants=UNEVEN, mode="linear",
                         coordinate_transformation_mode="align_corners"),
    "Resize cubic": node("Resize", "x - - z", constants=UNEVEN, mode="cubic"),
    "Resize cubic, cut": node("Resize", "x - - z", constants=UNEVEN, mode="cubic",
                              cubic_coeff_a=-0.5, exclude_outside=1),
    "Resize antialiased": node("Resize", "x - - z", 18, (2, 7, 6), UNEVEN, mode="linear",
                               antialias=1),
    **{
        f"Resize {mode} by {place}": node(
            "Resize", "x - s", 19, (2, 5, 10), FRACTIONS, mode=mode,
            coordinate_transformation_mode=place,
        )
        for mode in ("nearest", "linear", "cubic")
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                      "half_pixel_symmetric")
    },
    **{
        f"Resize to one {mode}": node("Resize", "x - s", 13, (2, 3, 3), HALVES, mode=mode,
                                      coordinate_transformation_mode="pytorch_half_pixel")
        for mode in ("nearest", "linear", "cubic")
    },
    **{
        f"Resize {rule}": node("Resize", "x - s", 13, (2, 5, 10), FRACTIONS, mode="nearest",
                               nearest_mode=rule)
        for rule in ("round_prefer_ceil", "floor", "ceil")
    },
    "Resize 10": node("Resize", "x s", 10, constants=DOUBLE, mode="linear"),
    "Resize 10, coarser": node("Resize", "x s", 10, (2, 5, 10), FRACTIONS, mode="nearest"),
    "Upsample": node("Upsample", "x s", 9, constants=DOUBLE, mode="nearest"),
    "Pad reflect": node("Pad", "x p", constants={"p": np.array([0, 0, 1, 2, 0, 0, 0, 1])},
                        mode="reflect"),
    "Pad edge": node("Pad", "x p", constants={"p": np.array([0, 0, 1, 2, 0, 0, 0, 1])},
                     mode="edge"),
    "Pad a number": node("Pad", "x p v", constants={"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
                                                    "v": np.array(2.5)}),
    "Pad 2": node("Pad", "x", 2, pads=[0, 0, 1, 2, 0, 0, 0, 1], value=1.0),
    "CumSum": node("CumSum", "x a", constants={"a": np.array(2)}, exclusive=1, reverse=1),
    "Einsum": node("Einsum", "x m", constants={"m": RANDOM.normal(size=(4, 5))},
                   equation="bcij,jk->bkic"),
    "MatMul stack": node("MatMul", "x m", constants={"m": RANDOM.normal(size=(2, 4, 3))}),
    "stack MatMul": node("MatMul", "m x", constants={"m": RANDOM.normal(size=(2, 2, 3))}),
    "Mean": node("Mean", "x c", constants={"c": RANDOM.normal(size=4)}),
    "ReduceL1": node("ReduceL1", "x", axes=[2, 3]),
    "ReduceMean": node("ReduceMean", "x", axes=[1], keepdims=0),
    "Where": node("Where", "c x v", constants={"c": np.array([True, False, True, False]),
                                               "v": np.array(3.0)}),
    "GatherElements": node("GatherElements", "x i", shape=(3, 4),
                           constants={"i": np.array([[[1, 0], [2, 2], [3, 0]]])}, axis=2),
    "GatherND": node("GatherND", "x i", constants={"i": np.array([[0, 1, 2], [0, 0, 1]])}),
    "ScatterND": node("ScatterND", "x i u", shape=(5,), constants={
        "i": np.array([[0, 1], [0, 3]]), "u": np.array([7.0, 8.0])}),
    "ScatterElements": node("ScatterElements", "x i u", shape=(5,), constants={
        "i": np.array([[1, 3]]), "u": np.array([[7.0, 8.0]])}, axis=1),
    "Scatter": node("Scatter", "x i u", 9, (5,), {
        "i": np.array([[1, 3]]), "u": np.array([[7.0, 8.0]])}, axis=1),
    "Squeeze of one axis": node("Squeeze", "x", 11, (1, 4, 1), axes=[1]),
    "Gemm from the left": node("Gemm", "m x c", 17, (3,), {
        "m": RANDOM.normal(size=(1, 2)), "c": np.array([[0.5]])}, transA=1, alpha=0.5, beta=2.0),
    "Gemm turned": node("Gemm", "x m", 17, (3,), {"m": RANDOM.normal(size=(2, 1))},
                        transA=1, transB=1),
    "PRelu": node("PRelu", "x m", constants={"m": RANDOM.normal(size=(3, 1))}),
    "Conv with a stride past its kernel": node(
        "Conv", "x w", constants={"w": RANDOM.normal(size=(3, 2, 1, 1))}, strides=[2, 2],
        auto_pad="SAME_UPPER",
    ),
    "Compress": node("Compress", "x c", constants={"c": np.array([True, False, True])}, axis=2),
    "Trilu": node("Trilu", "x", shape=(3, 3), upper=0),
    "DepthToSpace DCR": node("DepthToSpace", "x", shape=(8, 2, 3), blocksize=2),
    "DepthToSpace CRD": node("DepthToSpace", "x", shape=(8, 2, 3), blocksize=2, mode="CRD"),
    "HardSigmoid": node("HardSigmoid", "x", alpha=0.3, beta=0.2),
    "ThresholdedRelu": node("ThresholdedRelu", "x", alpha=1.0),
    "Shrink": node("Shrink", "x", lambd=1.0, bias=0.25),
}  # fmt: skip


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name):
    nodes, shape, constants, opset = ONNX[name]
    points = _points(shape, seed=2).astype(np.float32)
    model = single(nodes, shape, constants, opset)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.stack([session.run(None, {"x": p[None]})[0] for p in points]).reshape(POINTS, -1)
    found = rn.load(model).predict(points.reshape(POINTS, -1)).reshape(POINTS, -1)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


OLD = np.arange(24.0, dtype=np.float32).reshape(1, 2, 3, 4) - 11
TALL = np.array([[[2.0]], [[-3.0]]])
SIDE = {"c": np.array([2.0, -3.0], np.float32), "r": np.array([[1.0], [2.0], [3.0]], np.float32)}


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        (node("Add", "x c", 6, constants=SIDE, broadcast=1, axis=1), OLD + TALL),
        (node("Mul", "x c", 6, (3, 4, 2), SIDE, broadcast=1), OLD.reshape(1, 3, 4, 2) * [2, -3]),
        (node("Sub", "x r", 6, constants=SIDE, broadcast=1, axis=2), OLD - SIDE["r"]),
        (node("Div", "x x", 6, constants=SIDE), None),
        (node("Add", "x c", 6, constants=SIDE), None),
        (node("Add", "x c", 6, constants=SIDE, broadcast=1, axis=2), None),
        (node("PRelu", "x c", 6, constants=SIDE), OLD * np.where(OLD < 0, TALL, 1)),
    ],
)
def test_broadcasting_before_opset_7(case, wanted):
    """By hand: onnxruntime begins with opset 7."""
    nodes, shape, constants, opset = case
    model = single(nodes, shape, constants, opset)
    if wanted is None:
        with pytest.raises((ModelFileError, UnsupportedOperationError), match=r"does not fit|divi"):
            rn.load(model)
        return
    np.testing.assert_array_equal(rn.load(model)(OLD.reshape(1, -1)).ravel(), wanted.ravel())


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (node("MaxPool", "x", shape=(2, 6, 6), kernel_shape=[2, 2], dilations=[2, 2],
              auto_pad="SAME_UPPER"), "runtimes differ"),
        (node("Conv", "x w", shape=(1, 4), constants={"w": np.ones((1, 1, 1))}, strides=[4],
              auto_pad="SAME_UPPER"), "runtimes differ"),
        (node("ConvTranspose", "x w", shape=(1, 4), constants={"w": np.ones((1, 1, 2))},
              strides=[3], auto_pad="SAME_LOWER"), "runtimes differ"),
        (node("Resize", "x - s", 13, constants=DOUBLE,
              coordinate_transformation_mode="tf_half_pixel_for_nn"), "tf_half_pixel_for_nn"),
        (node("PRelu", "x m", shape=(1,), constants={"m": np.full((1, 3), 0.5)}), "do not fit"),
        (node("Concat", "x x"), "'axis' is missing"),
        (node("Add", "x x", axis=1), "knows no attribute 'axis'"),
        (([helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
           helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[2])], (3, 4), {}, 17), "window"),
    ],
)  # fmt: skip
def test_onnx_refusals(case, message):
    with pytest.raises((ModelFileError, UnsupportedOperationError), match=message):
        rn.load(single(*case))


def _sequential(layer):
    return lambda keras: [layer(keras.layers)]


def g(function):
    """A function of keras.ops and a tensor, as a case."""
    return lambda keras: lambda x: function(keras.ops, x)


VALUES = np.random.default_rng(3).normal(size=(3, 4)).astype(np.float32)

KERAS = {
    **{
        f"Conv2DTranspose k{k}s{s} {padding}": (
            _sequential(lambda L, k=k, s=s, p=padding: L.Conv2DTranspose(2, k, s, padding=p)),
            (3, 4, 2),
        )
        for k, s, padding in [(2, 2, "valid"), (3, 2, "same"), (3, 2, "valid"), (2, 3, "valid"),
                              (4, 2, "same"), (3, 1, "same"), (2, 3, "same")]
    },
    "Conv1DTranspose": (_sequential(lambda L: L.Conv1DTranspose(3, 3, strides=2)), (4, 2)),
    "UpSampling1D": (_sequential(lambda L: L.UpSampling1D(3)), (3, 2)),
    "UpSampling2D": (_sequential(lambda L: L.UpSampling2D((2, 3))), (3, 4, 2)),
    "UpSampling2D bilinear": (
        _sequential(lambda L: L.UpSampling2D(2, interpolation="bilinear")), (3, 4, 2),
    ),
    "Resizing": (_sequential(lambda L: L.Resizing(5, 3)), (3, 4, 2)),
    "Cropping2D": (_sequential(lambda L: L.Cropping2D(((1, 0), (0, 2)))), (3, 4, 2)),
    "ZeroPadding2D": (_sequential(lambda L: L.ZeroPadding2D(((1, 0), (0, 2)))), (3, 4, 2)),
    "RepeatVector": (_sequential(lambda L: L.RepeatVector(3)), (4,)),
    "EinsumDense": (
        _sequential(lambda L: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")),
        (3, 4),
    ),
    "TimeDistributed": (_sequential(lambda L: L.TimeDistributed(L.Dense(5))), (3, 4)),
    "AdaptiveAveragePooling2D": (
        _sequential(lambda L: L.AdaptiveAveragePooling2D((2, 3))), (3, 5, 2),
    ),
    **{
        f"AveragePooling2D k{k}s{s} over {shape}": (
            _sequential(lambda L, k=k, s=s: L.AveragePooling2D(k, s, padding="same")), shape,
        )
        for k, s, shape in [((3, 3), 1, (4, 4, 2)), ((2, 3), (1, 2), (4, 5, 2)), (4, 3, (5, 6, 1))]
    },
    "RandomFlip": (_sequential(lambda L: L.RandomFlip()), (3, 4, 2)),
    "RandomRotation": (_sequential(lambda L: L.RandomRotation(0.3)), (3, 4, 2)),
    "RandomZoom": (_sequential(lambda L: L.RandomZoom(0.3)), (3, 4, 2)),
    "RandomTranslation": (_sequential(lambda L: L.RandomTranslation(0.3, 0.3)), (3, 4, 2)),
    "RandomContrast": (_sequential(lambda L: L.RandomContrast(0.3)), (3, 4, 2)),
    "ReLU from a threshold": (_sequential(lambda L: L.ReLU(threshold=1.0)), (5,)),
    "ReLU of every option": (_sequential(lambda L: L.ReLU(1.0, 0.1, 0.2)), (5,)),
    "ReLU between two ends": (_sequential(lambda L: L.ReLU(max_value=1.0, threshold=0.2)), (5,)),
    "slices": (g(lambda ops, x: x[:, 1:3] - x[:, ::2]), (4,)),
    "arithmetic": (g(lambda ops, x: 2 - (x + VALUES) * VALUES / 3), (3, 4)),
    "maximum": (g(lambda ops, x: ops.maximum(x, 0.5) - ops.minimum(VALUES, x)), (3, 4)),
    "matmul": (g(lambda ops, x: ops.matmul(x, VALUES.T)), (3, 4)),
    "einsum": (g(lambda ops, x: ops.einsum("bij,kj->bki", x, VALUES)), (3, 4)),
    "where": (g(lambda ops, x: ops.where(VALUES > 0, x, 0.5)), (3, 4)),
    "concatenate": (g(lambda ops, x: ops.concatenate([x, 2 * x], axis=1)), (3, 4)),
    "stack": (g(lambda ops, x: ops.stack([x, 2 * x], axis=2)), (3, 4)),
    "split": (g(lambda ops, x: ops.split(x, 2, axis=2)[1] * 2), (3, 4)),
    "reductions": (g(lambda ops, x: ops.mean(x, axis=1) - ops.sum(x, axis=1)), (3, 4)),
    "max and min": (g(lambda ops, x: ops.max(x, axis=2) - ops.min(x, axis=(2,))), (3, 4)),
    "moves": (g(lambda ops, x: ops.flip(ops.roll(ops.transpose(x, (0, 2, 1)), 1, 1), 2)), (3, 4)),
    "repeats": (g(lambda ops, x: ops.repeat(ops.tile(x, (1, 2, 1)), 2, axis=2)), (3, 4)),
    "shapes": (g(lambda ops, x: ops.expand_dims(ops.reshape(x, (-1, 2, 6)), 1)), (3, 4)),
    "pad": (g(lambda ops, x: ops.pad(x, ((0, 0), (1, 2), (0, 1)), mode="reflect")), (3, 4)),
    "cumsum": (g(lambda ops, x: ops.cumsum(x, axis=2)), (3, 4)),
    "activations": (
        g(lambda ops, x: ops.relu(x) + ops.relu6(x) + ops.leaky_relu(x) + ops.abs(x)), (5,),
    ),
    "hard": (g(lambda ops, x: ops.hard_sigmoid(x) + ops.hard_tanh(x) - ops.sign(x)), (5,)),
    "shrinking": (g(lambda ops, x: ops.soft_shrink(x, 1.0) + ops.hard_shrink(x, 1.0)), (5,)),
    "threshold": (g(lambda ops, x: ops.threshold(x, 1.0, 7.0)), (5,)),
    "one minus a probability": (g(lambda ops, x: 1 - ops.sigmoid(x)), (3,)),
    "probabilities that move": (
        g(lambda ops, x: ops.transpose(ops.sigmoid(x) * VALUES[0], (0, 2, 1))[:, 1:]), (3, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERAS)
def test_keras(name):
    keras = pytest.importorskip("keras")
    make, shape = KERAS[name]
    keras.utils.set_random_seed(0)
    made, inputs = make(keras), keras.Input(shape)
    model = keras.Model(inputs, made[0](inputs) if isinstance(made, list) else made(inputs))
    for weight in model.weights:  # biases are zeros otherwise
        weight.assign(np.random.default_rng(4).normal(size=weight.shape))
    points = _points(shape, seed=5).astype(np.float32)
    wanted = model(points, training=False).detach().numpy().reshape(POINTS, -1)
    found = rn.load(model).predict(points.reshape(POINTS, -1)).reshape(POINTS, -1)
    # Keras computes in float32.
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_keras_constants_are_not_taken_for_places():
    keras = pytest.importorskip("keras")
    inputs = keras.Input((3,))
    padded = keras.ops.pad(inputs, ((0, 0), (1, 2)), constant_values=2.0)
    with pytest.raises(UnsupportedOperationError, match="another constant than 0"):
        rn.load(keras.Model(inputs, padded))
    joined = keras.ops.concatenate([inputs, np.ones((1, 2), dtype=np.float32)], axis=1)
    network = rn.load(keras.Model(inputs, joined))
    np.testing.assert_array_equal(network([2.0, 3.0, 4.0]), [2.0, 3.0, 4.0, 1.0, 1.0])


def dead(x):
    """What the operations below compute, which are nobody's but ours: a soft shrink by 1/2."""
    return x - np.clip(x, -0.5, 0.5)


#: How a table spells it.
DEAD = ("shrink", 0.5, 0.5)


def test_an_onnx_operation_of_another_domain_has_its_full_name(monkeypatch):
    nodes, *rest = node("Dead", shape=(5,))
    model = single(nodes, *rest)
    nodes[0].domain = model.graph.node[0].domain = "com.example"
    with pytest.raises(UnsupportedOperationError, match=r"com\.example\.Dead"):
        rn.load(model)
    for table, value in (("UNITS", DEAD), ("OPERATIONS", onnx_operations._unit)):
        monkeypatch.setitem(getattr(onnx_operations, table), "com.example.Dead", value)
    points = _points((5,))
    np.testing.assert_array_equal(rn.load(model)(points), dead(points))
    model.graph.node[0].domain = ""
    with pytest.raises(UnsupportedOperationError, match="Dead"):
        rn.load(model)


def test_a_torch_operation_of_another_namespace_has_its_full_name(monkeypatch):
    @torch.library.custom_op("relunorm_test::dead", mutates_args=())
    def operation(x: torch.Tensor) -> torch.Tensor:
        return x - x.clamp(-0.5, 0.5)

    operation.register_fake(torch.empty_like)
    module = Function(lambda s, x: operation(x) @ s.k.T).double().eval()
    with pytest.raises(UnsupportedOperationError, match=r"relunorm_test\.dead"):
        rn.load(module, example=(4,))
    known = partial(torch_operations._unit, DEAD)
    monkeypatch.setitem(torch_operations.OPERATIONS, "relunorm_test::dead", known)
    points = _points((4,))
    wanted = dead(points) @ module.k.detach().numpy().T
    found = rn.load(module, example=(4,))(points)
    np.testing.assert_allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


def test_keras_layers_and_activations_of_others_have_their_full_names(monkeypatch):
    keras = pytest.importorskip("keras")
    from relunorm.io.keras import layers

    def activation(x):
        return x - keras.ops.clip(x, -0.5, 0.5)

    class Dead(keras.layers.Layer):
        def call(self, inputs):
            return activation(inputs)

    class Reshape(Dead):
        """Not Keras' layer of that name, not even behind a step of a head."""

    def model(*made):
        return keras.Sequential([keras.Input((5,)), *made])

    named = [model(Dead()), model(keras.layers.Activation(activation))]
    for each in (*named, model(keras.layers.Activation("sigmoid"), Reshape())):
        with pytest.raises(UnsupportedOperationError):
            rn.load(each)
    monkeypatch.setitem(
        layers.LAYERS, f"{__name__}.Dead", lambda low, op, xs: layers.unit(DEAD, low, op, xs[0])
    )
    monkeypatch.setitem(layers.ACTIVATIONS, f"{__name__}.activation", DEAD)
    points = _points((5,))
    for each in named:
        np.testing.assert_array_equal(rn.load(each)(points), dead(points))
