"""The case networks: digits classifiers, ACAS Xu and MNIST, checked with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relunorm as rn
from relunorm.network import Network

DIGITS = {
    "digits_100x100_prox_l1_0.0005": [(24, 23, 53), (28, 16, 56)],
    "digits_100x100_prox_l1_0.0002": [(10, 2, 88), (19, 2, 79)],
    "digits_100x100x100_prox_l1_0.0004": [(24, 19, 57), (28, 24, 48), (33, 13, 54)],
    "digits_400x400_prox_l1_0.0002": [(46, 18, 336), (83, 93, 224)],
}


def read(path: Path) -> Network:
    data = np.load(path)
    count = sum(name.startswith("W") for name in data.files)
    return Network.from_weights(
        [data[f"W{i}"] for i in range(count)], [data[f"b{i}"] for i in range(count)]
    )


def rescaled(network: Network, rng: np.random.Generator) -> Network:
    weights, biases = ([np.array(v) for v in part] for part in network.weights())
    for k in range(len(weights) - 1):
        order = rng.permutation(len(biases[k]))
        scale = np.exp(rng.normal(size=len(order)))
        weights[k] = weights[k][order] * scale[:, None]
        biases[k] = biases[k][order] * scale
        weights[k + 1] = weights[k + 1][:, order] / scale
    return Network.from_weights(weights, biases)


def onnx_outputs(path: Path, points: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    shape = [n if isinstance(n, int) and n > 0 else 1 for n in entry.shape]
    kind = np.float64 if entry.type == "tensor(double)" else np.float32
    rows = [
        session.run(None, {entry.name: x.astype(kind).reshape(shape)})[0].ravel() for x in points
    ]
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize("name", DIGITS)
def test_digits(cases: Path, tmp_path: Path, name: str) -> None:
    network = read(cases / "stability" / f"{name}.npz")
    domain = rn.Box.cube(64, 0, 1)
    result = rn.normalize(network, "minimal", domain, architecture="keep")
    counts = [
        tuple(x.counts[k] for k in ("dead", "active", "unstable")) for x in result.stability.layers
    ]
    assert counts == DIGITS[name]
    assert not result.undecided
    assert rn.verify(result.certificate, network, result.network).holds
    if name.endswith("0.0005"):
        assert result.network.parameters < network.parameters / 2
    copy = rescaled(result.network, np.random.default_rng(0))
    found = rn.compare(network, copy, domain)
    assert (found.verdict, found.method) == ("within", "related units")
    assert found.upper < 1e-9
    assert rn.verify(found.certificate, network, copy).holds
    weights, biases = copy.weights()
    changed = [np.array(w) for w in weights]
    changed[0][np.unravel_index(np.abs(changed[0]).argmax(), changed[0].shape)] += 1e-3
    other = Network.from_weights(changed, biases)
    found = rn.compare(network, other, domain, tolerance=1e-6)
    assert found.verdict == "different", found
    outputs = []
    for k, model in enumerate((network, other)):
        rn.save(model, tmp_path / f"{k}.onnx", dtype="float64")
        outputs.append(onnx_outputs(tmp_path / f"{k}.onnx", found.witness[None]))
    assert np.abs(outputs[0] - outputs[1]).max() >= 0.99 * found.lower > 1e-6


PROPERTY_3 = (
    [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
    [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
)


@pytest.mark.parametrize("name", ["1_9", "3_3"])
def test_acas_xu(cases: Path, tmp_path: Path, name: str) -> None:
    path = cases / "real" / f"ACASXU_run2a_{name}_batch_2000.onnx"
    network, domain = rn.load(path), rn.Box(*PROPERTY_3)
    result = rn.normalize(network, "minimal", domain)
    assert not result.undecided
    assert result.network.units < network.units / 4
    assert rn.verify(result.certificate, network, result.network).holds
    target = tmp_path / "small.onnx"
    rn.save(result.network, target, dtype="float32")
    x = domain.sample(50, 0)
    np.testing.assert_allclose(onnx_outputs(target, x), onnx_outputs(path, x), atol=2e-6)


def test_mnist(cases: Path, tmp_path: Path) -> None:
    path = cases / "real" / "mnist-net_256x2.onnx"
    network = rn.load(path)
    whole = rn.normalize(network, "minimal", rn.Box.cube(784, 0, 1))
    assert whole.network.units == 512
    middle = np.zeros((28, 28))
    middle[4:24, 12:16] = 0.8  # a stroke
    low, high = np.clip(middle - 0.02, 0, 1).ravel(), np.clip(middle + 0.02, 0, 1).ravel()
    domain = rn.Box(low, high)
    result = rn.normalize(network, "minimal", domain)
    assert not result.undecided
    assert result.network.units < 512
    assert rn.verify(result.certificate, network, result.network).holds
    target = tmp_path / "small.onnx"
    rn.save(result.network, target, dtype="float32")
    x = domain.sample(20, 0)
    np.testing.assert_allclose(onnx_outputs(target, x), onnx_outputs(path, x), atol=1e-4)
