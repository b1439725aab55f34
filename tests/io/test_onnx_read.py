"""Every supported ONNX operation against onnxruntime; every unsupported one in one error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Nodes, model, run

import relunorm as rn
from relunorm.errors import (
    InvalidNetworkError,
    MissingFileError,
    ModelFileError,
    UnsupportedOperationError,
)

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


IMAGE = ["N", 2, 6, 6]
VECTOR = ["N", 6]

MODELS: dict[str, tuple[Nodes, dict[str, np.ndarray], list]] = {  # type: ignore[type-arg]
    "gemm": ([("Gemm", ["x", "W", "b"], {"transB": 1})], {"W": f32(3, 6), "b": f32(3)}, VECTOR),
    "gemm scaled": (
        [("Gemm", ["x", "W", "b"], {"alpha": 0.5, "beta": 2.0})],
        {"W": f32(6, 3), "b": f32(1, 3)},
        VECTOR,
    ),
    "matmul add": (
        [("MatMul", ["x", "W"], {}), ("Add", ["b", "n0"], {})],
        {"W": f32(6, 3), "b": f32(3)},
        VECTOR,
    ),
    "matmul on the left": ([("MatMul", ["W", "x"], {})], {"W": f32(3, 6)}, [1, 6, 1]),
    "matmul of a stack": ([("MatMul", ["x", "W"], {})], {"W": f32(6, 3)}, ["N", 2, 6]),
    "matmul vector": ([("MatMul", ["x", "w"], {})], {"w": f32(6)}, ["N", 2, 6]),
    "relu": ([("Relu", ["x"], {})], {}, VECTOR),
    "weights in eight bits": (
        [("DequantizeLinear", ["W", "s", "z"], {"axis": 0}), ("Gemm", ["x", "n0"], {"transB": 1})],
        {
            "W": RNG.integers(-128, 128, (3, 6)).astype(np.int8),
            "s": np.array([0.01, 0.02, 0.3], np.float32),
            "z": np.array([0, 5, -7], np.int8),
        },
        VECTOR,
    ),
    "leaky": ([("LeakyRelu", ["x"], {"alpha": 0.125})], {}, VECTOR),
    "leaky default": ([("LeakyRelu", ["x"], {})], {}, VECTOR),
    "prelu": ([("PRelu", ["x", "s"], {})], {"s": f32(6)}, VECTOR),
    "prelu scalar": ([("PRelu", ["x", "s"], {})], {"s": f32(1)}, VECTOR),
    "max zero": ([("Max", ["x", "z"], {})], {"z": np.zeros(1, np.float32)}, VECTOR),
    "max of three": ([("Neg", ["x"], {}), ("Max", ["x", "c", "n0"], {})], {"c": f32(6)}, VECTOR),
    "min": ([("Neg", ["x"], {}), ("Min", ["c", "n0"], {})], {"c": f32(6)}, VECTOR),
    "clip below": ([("Clip", ["x", "z"], {})], {"z": np.array(0, np.float32)}, VECTOR),
    "clip both": (
        [("Clip", ["x", "l", "h"], {})],
        {"l": np.array(-0.3, np.float32), "h": np.array(0.5, np.float32)},
        VECTOR,
    ),
    "clip above": ([("Clip", ["x", "", "h"], {})], {"h": np.array(0.5, np.float32)}, VECTOR),
    "clip crossed": (
        [("Clip", ["x", "l", "h"], {})],
        {"l": np.array(1, np.float32), "h": np.array(0, np.float32)},
        VECTOR,
    ),
    "abs": ([("Abs", ["x"], {})], {}, VECTOR),
    "sign": ([("Sign", ["x"], {})], {}, VECTOR),
    "sub": ([("Sub", ["x", "c"], {}), ("Sub", ["c", "n0"], {})], {"c": f32(6)}, VECTOR),
    "sub tensors": ([("Relu", ["x"], {}), ("Sub", ["x", "n0"], {})], {}, VECTOR),
    "mul div": ([("Mul", ["c", "x"], {}), ("Div", ["n0", "c"], {})], {"c": f32(1)}, VECTOR),
    "broadcast": ([("Add", ["x", "c"], {}), ("Mul", ["n0", "c"], {})], {"c": f32(3, 6)}, [1, 1, 6]),
    "sum of three": ([("Relu", ["x"], {}), ("Sum", ["x", "n0", "c"], {})], {"c": f32(6)}, VECTOR),
    "residual": ([("Relu", ["x"], {}), ("Add", ["x", "n0"], {})], {}, VECTOR),
    "residual broadcast": (
        [("ReduceMean", ["x"], {"axes": [1]}), ("Add", ["x", "n0"], {})],
        {},
        VECTOR,
    ),
    "concat": (
        [("Relu", ["x"], {}), ("Concat", ["n0", "x", "n0"], {"axis": 1})],
        {},
        VECTOR,
    ),
    "concat channels": (
        [("Relu", ["x"], {}), ("Concat", ["x", "n0"], {"axis": -3})],
        {},
        IMAGE,
    ),
    "concat constant": ([("Concat", ["x", "c"], {"axis": 1})], {"c": f32(1, 2)}, [1, 6]),
    "flatten": ([("Flatten", ["x"], {"axis": 1})], {}, IMAGE),
    "flatten negative": ([("Flatten", ["x"], {"axis": -3})], {}, IMAGE),
    "reshape": ([("Reshape", ["x", "s"], {})], {"s": ints(-1, 72)}, IMAGE),
    "reshape zero": ([("Reshape", ["x", "s"], {})], {"s": ints(0, -1)}, IMAGE),
    "transpose": (
        [("Transpose", ["x"], {"perm": [0, 2, 3, 1]}), ("Flatten", ["n0"], {})],
        {},
        IMAGE,
    ),
    "squeeze": (
        [("Unsqueeze", ["x", "a"], {}), ("Squeeze", ["n0", "a"], {})],
        {"a": ints(1)},
        VECTOR,
    ),
    "slice": (
        [("Slice", ["x", "s", "e", "a", "t"], {})],
        {"s": ints(-1, 0), "e": ints(-100, 1), "a": ints(2, 1), "t": ints(-2, 1)},
        IMAGE,
    ),
    "gather": ([("Gather", ["x", "i"], {"axis": 1})], {"i": ints(3, 0, -1, 0)}, VECTOR),
    "split": (
        [
            ("Split", ["x", "s"], {"axis": 1, "more": ["second"]}),
            ("MatMul", ["second", "W"], {}),
            ("Add", ["n0", "n1"], {}),
        ],
        {"s": ints(2, 4), "W": f32(4, 2)},
        VECTOR,
    ),
    "expand": ([("Expand", ["x", "s"], {})], {"s": ints(1, 4, 6)}, ["N", 1, 6]),
    "pad": ([("Pad", ["x", "p"], {})], {"p": ints(0, 0, 1, 2, 0, 1, 0, 3)}, IMAGE),
    "shape arithmetic": (
        [
            ("Shape", ["x"], {}),
            ("Gather", ["n0", "first"], {"axis": 0}),
            ("Unsqueeze", ["n1", "zero"], {}),
            ("Concat", ["n2", "rest"], {"axis": 0}),
            ("Reshape", ["x", "n3"], {}),
        ],
        {"first": np.array(0), "zero": ints(0), "rest": ints(-1)},
        IMAGE,
    ),
    "reduce": (
        [
            ("ReduceSum", ["x", "a"], {"keepdims": 0}),
            ("ReduceMean", ["n0"], {"axes": [-1]}),
        ],
        {"a": ints(2)},
        IMAGE,
    ),
    "conv": (
        [("Conv", ["x", "W", "b"], {"pads": [1, 0, 2, 1], "strides": [2, 1]})],
        {"W": f32(3, 2, 3, 2), "b": f32(3)},
        IMAGE,
    ),
    "conv groups": (
        [("Conv", ["x", "W"], {"group": 2, "dilations": [2, 1]})],
        {"W": f32(4, 1, 2, 3)},
        IMAGE,
    ),
    "conv same upper": (
        [("Conv", ["x", "W"], {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
        {"W": f32(2, 2, 3, 3)},
        IMAGE,
    ),
    "conv same lower": (
        [("Conv", ["x", "W"], {"auto_pad": "SAME_LOWER"})],
        {"W": f32(2, 2, 2, 2)},
        IMAGE,
    ),
    "conv one axis": ([("Conv", ["x", "W"], {})], {"W": f32(3, 2, 3)}, ["N", 2, 8]),
    "max pool": (
        [("MaxPool", ["x"], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]})],
        {},
        IMAGE,
    ),
    "max pool ceil": (
        [("MaxPool", ["x"], {"kernel_shape": [4, 4], "strides": [3, 3], "ceil_mode": 1})],
        {},
        IMAGE,
    ),
    "average pool": (
        [("AveragePool", ["x"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})],
        {},
        IMAGE,
    ),
    "average pool counting": (
        [
            (
                "AveragePool",
                ["x"],
                {"kernel_shape": [2, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
            )
        ],
        {},
        IMAGE,
    ),
    "global pools": (
        [
            ("GlobalAveragePool", ["x"], {}),
            ("GlobalMaxPool", ["x"], {}),
            ("Add", ["n0", "n1"], {}),
        ],
        {},
        IMAGE,
    ),
    "batch norm": (
        [("BatchNormalization", ["x", "s", "b", "m", "v"], {"epsilon": 1e-3})],
        {"s": f32(2), "b": f32(2), "m": f32(2), "v": f32(2) ** 2},
        IMAGE,
    ),
    "functions of a sign": (
        [
            ("Sign", ["x"], {}),
            ("Abs", ["n0"], {}),
            ("Mul", ["n1", "c"], {}),
            ("Add", ["n0", "n2"], {}),
            ("Relu", ["n3"], {}),
            ("Sub", ["d", "n4"], {}),
            ("Add", ["n5", "x"], {}),
        ],
        {"c": np.float32(0.25), "d": np.float32(0.5)},
        VECTOR,
    ),
    "identity dropout cast": (
        [
            ("Identity", ["x"], {}),
            ("Dropout", ["n0"], {}),
            ("Cast", ["n1"], {"to": TensorProto.FLOAT}),
            ("Relu", ["n2"], {}),
        ],
        {},
        VECTOR,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_operation_equals_onnxruntime(name: str) -> None:
    nodes, constants, shape = MODELS[name]
    proto = model(
        [(op, inputs, dict(attributes)) for op, inputs, attributes in nodes],
        constants,
        shape,
    )
    network = rn.load(proto)
    one = [n if isinstance(n, int) else 1 for n in shape]
    X = np.random.default_rng(1).normal(size=(7, *one[1:])).astype(np.float32)
    if "sign" in name:
        X[0] = 0.0
    expected = run(proto, X)
    difference = abs(network(X) - expected).max()
    assert difference <= 1e-6 * max(1.0, abs(expected).max())


def test_every_unsupported_operation_is_listed() -> None:
    proto = model(
        [
            ("Tanh", ["x"], {}),
            ("Relu", ["x"], {}),
            ("Mul", ["n1", "x"], {}),
            ("Exp", ["x"], {}),
            ("Sum", ["n0", "n2", "n3"], {}),
        ],
        {},
        VECTOR,
    )
    with pytest.raises(UnsupportedOperationError) as caught:
        rn.load(proto)
    assert [place for place, _ in caught.value.operations] == ["node0", "node2", "node3"]
    assert "Tanh" in str(caught.value)
    assert "two computed values" in str(caught.value)
    assert "docs/formats.md" in str(caught.value)


def test_input_shapes() -> None:
    gemm: Nodes = [("Gemm", ["x", "W"], {})]
    W = {"W": f32(6, 3)}
    assert rn.load(model(gemm, W, ["N", "M"])).input_shape == (6,)
    assert rn.load(model(gemm, W, [1, 6])).input_shape == (6,)
    assert rn.load(model(gemm, W, [8, 6])).input_shape == (6,)  # a fixed batch of eight
    conv = model([("Conv", ["x", "W"], {})], {"W": f32(2, 1, 3, 3)}, ["N", 1, "H", "W"])
    with pytest.raises(ModelFileError, match=r"example=\(1, 28, 28\)"):
        rn.load(conv)
    assert rn.load(conv, example=(1, 5, 5)).output_shape == (2, 3, 3)
    assert rn.load(conv, example=np.zeros((4, 1, 5, 5))).input_shape == (1, 5, 5)
    column = model([("MatMul", ["V", "x"], {})], {"V": f32(3, 6)}, [6, 1])
    assert rn.load(column).input_shape == (6, 1)


def _damage(change) -> onnx.ModelProto:  # type: ignore[no-untyped-def]
    proto = model(
        [("Gemm", ["x", "W", "b"], {}), ("Relu", ["n0"], {}), ("Neg", ["n1"], {})],
        {"W": f32(6, 3), "b": f32(3)},
        VECTOR,
    )
    change(proto.graph)
    return proto


def _cycle(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "n1"


def _huge(graph: onnx.GraphProto) -> None:
    graph.initializer[0].dims[0] = 10**12


def _nan(graph: onnx.GraphProto) -> None:
    graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(3, np.nan, np.float32), "b"))


def _zero_width(graph: onnx.GraphProto) -> None:
    graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((6, 0), np.float32), "W"))


def _two_inputs(graph: onnx.GraphProto) -> None:
    _unused_input(graph)
    graph.node.insert(0, helper.make_node("Add", ["z", "x"], ["zx"]))
    graph.node[1].input[0] = "zx"


def _unused_input(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 6]))


def _leaving(graph: onnx.GraphProto) -> None:
    tensor = graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cycle, "cycle"),
        (_huge, "claims"),
        (_nan, "NaN"),
        (_zero_width, "node0"),
        (_two_inputs, r"2 inputs \('x', 'z'\).*FloatTensorType"),
        (_leaving, "external|pass the path"),
        (lambda g: g.initializer[0].dims.append(2), "claims"),
        (lambda g: g.output.pop(), "0 outputs"),
        (lambda g: g.node[0].input.pop(1), "node0"),
        (lambda g: setattr(g.output[0], "name", "nothing"), "nothing computes"),
        (lambda g: setattr(g.output[0], "name", "W"), "does not depend"),
        (lambda g: g.node[2].output.__setitem__(0, "n0"), "defined twice|nothing computes"),
        (lambda g: setattr(g.initializer[0], "data_type", 8), "element type STRING"),
        (lambda g: setattr(g.initializer[0], "data_type", 99), "number 99"),
        (lambda g: g.initializer[0].dims.__setitem__(0, 3), "do not fill"),
        (lambda g: g.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", 5), "node0"),
        (lambda g: g.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", -5), "negat"),
    ],
)
def test_damaged_graphs_are_explained(change, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "damaged.onnx"
    path.write_bytes(_damage(change).SerializeToString())
    with pytest.raises((ModelFileError, InvalidNetworkError), match=message) as caught:
        rn.load(path)
    assert "damaged.onnx" in str(caught.value)


def test_an_input_that_nothing_reads_is_passed_over() -> None:
    proto = _damage(lambda graph: None)
    before = rn.load(proto).digest
    _unused_input(proto.graph)
    assert rn.load(proto).digest == before


def test_unnamed_nodes_work() -> None:
    def strip(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.ClearField("name")

    assert rn.load(_damage(strip)).layers[0].name == "n1"


def test_external_data_in_the_folder(tmp_path: Path) -> None:
    proto = _damage(lambda graph: None)
    X = f32(5, 6)
    expected = run(proto, X)
    onnx.save(
        proto, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    np.testing.assert_allclose(rn.load(tmp_path / "net.onnx")(X), expected, atol=1e-5)
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(ModelFileError, match="does not hold"):
        rn.load(tmp_path / "net.onnx")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelFileError, match="does not exist"):
        rn.load(tmp_path / "net.onnx")
    outside = tmp_path.parent / "outside.bin"
    outside.write_bytes(b"\0" * 1000)
    (tmp_path / "w.bin").symlink_to(outside)  # a link that leaves the folder
    with pytest.raises(ModelFileError, match="leaves the model's folder"):
        rn.load(tmp_path / "net.onnx")


def test_not_onnx_at_all(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("hello")
    with pytest.raises(ModelFileError, match="not an ONNX file"):
        rn.load(path)
    with pytest.raises(MissingFileError, match=r"missing\.onnx: there is no such file") as caught:
        rn.load(tmp_path / "missing.onnx")
    assert isinstance(caught.value, FileNotFoundError)


def test_caller_model_is_not_changed() -> None:
    proto = _damage(lambda graph: None)
    before = proto.SerializeToString()
    rn.load(proto)
    assert proto.SerializeToString() == before


def test_a_file_in_bfloat16_says_so() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="onnx older than 1.18 comes without it")
    weight = f32(6, 2).astype(ml_dtypes.bfloat16)
    proto = model([("MatMul", ["x", "W"], {})], {"W": weight}, VECTOR, kind=TensorProto.BFLOAT16)
    network = rn.load(proto)
    assert network.precision == "bfloat16"
    np.testing.assert_array_equal(network(np.eye(6)), weight.astype(np.float64))


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("cast", [False, True])
def test_files_in_half_precision_say_so(kind: str, cast: bool) -> None:
    """Also where the input is cast, as converters write it that keep the types of both ends."""
    number = onnx.TensorProto.DataType.Value(kind)
    weight = np.random.default_rng(0).normal(size=(3, 2))
    flat = onnx.helper.make_tensor("w", number, (3, 2), weight.ravel())
    ends = onnx.TensorProto.FLOAT if cast else number
    nodes = [onnx.helper.make_node("MatMul", ["h" if cast else "x", "w"], ["z" if cast else "y"])]
    if cast:
        nodes.insert(0, onnx.helper.make_node("Cast", ["x"], ["h"], to=number))
        nodes.append(onnx.helper.make_node("Cast", ["z"], ["y"], to=ends))
    graph = onnx.helper.make_graph(
        nodes,
        "half",
        [onnx.helper.make_tensor_value_info("x", ends, ["n", 3])],
        [onnx.helper.make_tensor_value_info("y", ends, ["n", 2])],
        [flat],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    network = rn.load(proto)
    assert network.precision == kind.lower()
    torch = pytest.importorskip("torch")
    rounded = torch.from_numpy(weight).to(getattr(torch, kind.lower())).double().numpy()
    np.testing.assert_array_equal(network(np.eye(3)), rounded)
    full = rn.Network.from_weights([weight.T], [np.zeros(2)])
    found = rn.compare(full, network, (-1, 1))
    assert found.precision == kind.lower()
    assert found.verdict == "within"


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_constants_of_old_files_have_their_axes_and_ends_as_attributes(opset: int) -> None:
    nodes: Nodes = [
        ("Shape", ["x"], {}),
        ("Gather", ["n0", "first"], {"axis": 0}),
        ("Unsqueeze", ["n1"], {"axes": [0]}),
        ("Concat", ["n2", "rest"], {"axis": 0}),
        ("Reshape", ["x", "n3"], {}),
        ("Unsqueeze", ["b"], {"axes": [0]}),
        ("Add", ["n4", "n5"], {}),
    ]
    constants = {"first": np.array(0), "rest": ints(-1), "b": f32(72)}
    if opset < 11:  # the ends of a clip became inputs
        nodes[5:] = [("Clip", ["b"], {"min": -0.5, "max": 0.5}), *nodes[5:]]
        nodes[6:] = [("Unsqueeze", ["n5"], {"axes": [0]}), ("Add", ["n4", "n6"], {})]
    proto = model(nodes, constants, ["N", 2, 6, 6], opset=opset)
    x = f32(3, 2, 6, 6)
    np.testing.assert_allclose(rn.load(proto)(x.reshape(3, -1)), run(proto, x), rtol=1e-6)


@pytest.mark.parametrize("place", [-(2**62), 2**62, 6, -7])
def test_a_wild_place_is_refused_at_once(place: int) -> None:
    proto = model([("GatherElements", ["x", "i"], {"axis": 1})], {"i": ints(place)[None]}, VECTOR)
    with pytest.raises(ModelFileError, match="outside of the 6 entries along axis 1"):
        rn.load(proto)


def test_a_reduction_over_no_axes_still_takes_absolute_values() -> None:
    nodes: Nodes = [("ReduceL1", ["x", "axes"], {"noop_with_empty_axes": 1})]
    proto = model(nodes, {"axes": ints()}, VECTOR, opset=18)
    X = f32(5, 6)
    np.testing.assert_allclose(rn.load(proto)(X), run(proto, X).reshape(5, -1), atol=1e-6)


WHOLE = ("Div", ["x", "two"], {}), ("Cast", ["n0"], {"to": TensorProto.FLOAT})


@pytest.mark.parametrize(
    ("nodes", "constants", "message"),
    [
        ([("Gather", ["x", "i"], {"axis": 0})], {"i": ints(0)}, "Gather: mixes the inputs"),
        ([("Slice", ["x", "s", "e", "a", "t"], {})],
         {"s": ints(-1), "e": ints(-99), "a": ints(0), "t": ints(-1)}, "Slice: mixes"),
        ([("Concat", ["x", "x"], {"axis": 0})], {}, "Concat: mixes"),
        ([("Tile", ["x", "i"], {})], {"i": ints(2, 1)}, "Tile: mixes"),
        ([("Expand", ["x", "i"], {})], {"i": ints(3, 1)}, "Expand: mixes"),
        ([("Add", ["x", "c"], {})], {"c": f32(2, 6)}, "Add: mixes"),
        ([("Einsum", ["x"], {"equation": "bi->i"})], {}, "Einsum: mixes"),
        ([("Relu", ["x"], {}), ("Where", ["m", "n0", "c"], {})],
         {"m": np.array([[True], [False]]), "c": f32(1)}, "Where: mixes"),
    ],
)  # fmt: skip
def test_what_mixes_a_batch_of_any_size_is_refused(nodes, constants, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedOperationError, match=message):
        rn.load(model(nodes, constants, VECTOR))


def test_a_batch_may_be_turned_and_turned_back() -> None:
    nodes = [
        ("Transpose", ["x"], {"perm": [1, 0]}),
        ("MatMul", ["W", "n0"], {}),
        ("Transpose", ["n1"], {"perm": [1, 0]}),
    ]
    proto = model(nodes, {"W": f32(3, 6)}, VECTOR)
    X = f32(5, 6)
    np.testing.assert_allclose(rn.load(proto)(X), run(proto, X), rtol=1e-5, atol=1e-6)


def test_whole_numbers_are_read_where_they_are_cast_first() -> None:
    constants = {"two": np.array(2)}
    with pytest.raises(UnsupportedOperationError, match="Div: computes with whole numbers"):
        rn.load(model([*WHOLE], constants, VECTOR, kind=TensorProto.INT64))
    nodes = [("Reshape", ["x", "s"], {}), ("Cast", ["n0"], {"to": TensorProto.FLOAT})]
    nodes += [("Div", ["n1", "half"], {})]
    held = {"s": ints(0, 6), "half": np.float32(0.5).reshape(())}
    network = rn.load(model(nodes, held, VECTOR, kind=TensorProto.INT64))
    np.testing.assert_array_equal(network([1, 2, 3, 4, 5, 6]), [2, 4, 6, 8, 10, 12])
