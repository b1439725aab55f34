"""torch to Network to a file and back, and through onnxruntime: the same outputs throughout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch_models import MODELS, model

import relunorm as rn


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(abs(found - expected).max() / abs(expected).max())


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own word on its convolution
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_torch_to_onnxruntime(name: str, dtype: str, tolerance: float, tmp_path: Path) -> None:
    module = model(name, getattr(torch, dtype)).eval()
    shape = MODELS[name][1]
    inputs = torch.randn((16, *shape), generator=torch.Generator().manual_seed(1)).to(
        getattr(torch, dtype)
    )
    expected = module(inputs).detach().numpy().reshape(16, -1)
    network = rn.load(module, example=shape)
    assert relative(network(inputs.numpy()), expected) <= tolerance
    path = tmp_path / "net.onnx"
    rn.save(network, path, dtype=dtype)  # type: ignore[arg-type]
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path)
    ran = session.run(None, {"input": inputs.numpy()})[0].reshape(16, -1)
    assert relative(ran, expected) <= tolerance
    assert relative(rn.load(path)(inputs.numpy()), expected) <= tolerance


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_torch_to_own_files(name: str, ending: str, tmp_path: Path) -> None:
    network = rn.load(model(name).eval(), example=MODELS[name][1])
    rn.save(network, tmp_path / f"net.{ending}")
    assert rn.load(tmp_path / f"net.{ending}") == network
