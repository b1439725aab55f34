"""Written ONNX files: checker clean, and onnxruntime computes what the network does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import networks

import relunorm as rn
from relunorm.io.graph.lower import Lowering
from relunorm.network import RELU
from relunorm.network.structure import Geometry


def runtime(path: Path, X: NDArray[np.float64], network: rn.Network, dtype: str) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    batch = X.reshape(len(X), *network.input_shape).astype(dtype)
    return np.asarray(session.run(None, {"input": batch})[0]).reshape(len(X), -1)


@given(network=networks(), seed=st.integers(0, 2**32 - 1))
def test_random_networks(
    network: rn.Network, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    X = np.random.default_rng(seed).normal(size=(6, network.input_size))
    # A step can jump where float32 rounds a pre-activation.
    safe = np.ones(len(X), dtype=bool)
    for z in network.preactivations(X):
        safe &= (abs(z) > 1e-4).all(axis=1)
    X = X[safe].astype(np.float32).astype(np.float64)
    expected = network(X)
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        path = tmp_path_factory.mktemp("onnx") / "net.onnx"
        rn.save(network, path, dtype=dtype)  # type: ignore[arg-type]
        onnx.checker.check_model(path, full_check=True)
        scale = max(1.0, *(abs(v).max() for v in network.values(X))) if len(X) else 1.0
        assert abs(runtime(path, X, network, dtype) - expected).max(initial=0) <= tolerance * scale
        back = rn.load(path)
        assert abs(back(X) - expected).max(initial=0) <= tolerance * scale


def test_convolutions_are_written_as_convolutions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    low = Lowering((1, 2, 9, 8))
    weight, bias = rng.normal(size=(4, 2, 3, 3)), rng.normal(size=4)
    geometry = Geometry((3, 3), [2, 1], [(1, 1)] * 2, [1, 1])
    x = low.convolve(low.input, weight, bias, geometry, 1)
    x = low.activate(x, RELU, "conv1")
    skip = low.convolve(x, rng.normal(size=(4, 1, 1, 1)), None, Geometry.plain((1, 1)), 4)
    network = low.finish(low.add(x, skip), input_shape=(2, 9, 8), origin="")
    rn.save(network, tmp_path / "conv.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "conv.onnx").graph.node]
    assert kinds.count("Conv") == 2
    assert "Gemm" not in kinds
    X = rng.normal(size=(5, 144)).astype(np.float32).astype(np.float64)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        rn.save(network, tmp_path / "net.onnx", dtype=dtype)  # type: ignore[arg-type]
        got = runtime(tmp_path / "net.onnx", X, network, dtype)
        assert abs(got - network(X)).max() <= tolerance * abs(network(X)).max()
    again = rn.load(tmp_path / "conv.onnx")
    assert [layer.shape for layer in again.layers] == [layer.shape for layer in network.layers]


def test_stages_are_kept_where_folding_would_fill(tmp_path: Path) -> None:
    """A bottleneck without activation stays two thin factors instead of one wide matrix."""
    rng = np.random.default_rng(0)
    low = Lowering((1, 600))
    thin = low.linear(low.input, rng.normal(size=(3, 600)), None)
    network = low.finish(
        low.linear(thin, rng.normal(size=(500, 3)), rng.normal(size=500)),
        input_shape=600,
        origin="",
    )
    assert [layer.activation.kind for layer in network.layers] == ["identity"]
    assert network.parameters < 5000
    assert network.folded().layers == ()
    X = rng.normal(size=(3, 600))
    np.testing.assert_allclose(network.folded()(X), network(X), rtol=1e-10, atol=1e-10)
    rn.save(network, tmp_path / "thin.onnx", dtype="float64")
    np.testing.assert_allclose(
        runtime(tmp_path / "thin.onnx", X, network, "float64"), network(X), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("slope", [0.1, 0.01, 0.25, -0.3, 1.5, 1.0, 0.0])
def test_leaky_units_come_back_as_they_were(slope: float, tmp_path: Path) -> None:
    """LeakyRelu's attribute is a float32; a float64 file keeps every bit of the slope."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(5, 2)), rng.normal(size=(4, 5)), rng.normal(size=(1, 4))]
    network = rn.Network.from_weights(weights, activation=rn.Activation("leaky", slope=slope))
    path = tmp_path / "leaky.onnx"
    rn.save(network, path, dtype="float64")
    onnx.checker.check_model(path, full_check=True)
    back = rn.load(path)
    assert back.digest == network.digest
    X = rng.normal(size=(20, 2))
    assert abs(runtime(path, X, network, "float64") - network(X)).max() < 1e-13
    rn.save(network, path, dtype="float32")
    slopes = {layer.activation.slope for layer in rn.load(path).layers}
    assert slopes == {float(np.float32(slope))}


@pytest.mark.parametrize("names", [("img", "score"), ("output", "input"), ("layer0_bias", "last")])
def test_names_of_the_file_that_was_read_are_kept(names: tuple[str, str], tmp_path: Path) -> None:
    weights = [np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([[1.0, -1.0]])]
    network = rn.Network.from_weights(weights, [np.ones(2), np.ones(1)])
    model = rn.to_onnx(network.replace(names=("img", "score")), "float64")
    assert (model.graph.input[0].name, model.graph.output[0].name) == ("img", "score")
    read = rn.load(model)
    assert read.names == ("img", "score")
    small = rn.normalize(read, "minimal", (-1, 1)).network.replace(names=names)
    rn.save(small, tmp_path / "small.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(
        tmp_path / "small.onnx", providers=["CPUExecutionProvider"]
    )
    assert rn.normalize(read, "minimal", (-1, 1)).network.names == ("img", "score")
    x = np.array([[0.25, -0.5]])
    (result,) = session.run(None, {session.get_inputs()[0].name: x})  # also where names clash
    np.testing.assert_allclose(result, read(x))
