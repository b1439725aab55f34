"""Files and modules that are hostile, too large for their format, or mix a batch."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_models import Nodes, model, run
from sklearn.neural_network import MLPRegressor
from torch import nn

import relunorm as rn
from relunorm import io
from relunorm.errors import (
    InvalidInputError,
    InvalidNetworkError,
    ModelFileError,
    UnsupportedFormatError,
    UnsupportedOperationError,
)

NET = rn.load("example:moons")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_poisson_regressor_ends_in_exp() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    fitted = MLPRegressor(loss="poisson", hidden_layer_sizes=(3,), max_iter=3).fit(X, abs(X[:, 0]))
    network = rn.load(fitted)
    assert network.head.label == "exp"
    np.testing.assert_allclose(network.predict(X)[:, 0], fitted.predict(X), rtol=1e-12)


@pytest.mark.parametrize("ending", [ending.removeprefix(".") for ending in io.WRITERS])
def test_what_does_not_fit_float32_is_never_written(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"net.{ending}"
    huge = rn.Network.from_weights([[[1e200]], [[1.0]]])
    with pytest.raises(UnsupportedFormatError, match="does not fit float32"):
        rn.save(huge, path, dtype="float32")
    assert not path.exists()


def test_a_compressed_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("W0.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(300):
            member.write(bytes(1 << 20))
    with pytest.raises(ModelFileError, match="claim to hold"):
        rn.load(path)


def test_a_graph_of_cheap_steps_cannot_add_up_to_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a hundredth of the limit, which is a matter of seconds: one step is fine, 40 are not."""
    monkeypatch.setattr("relunorm.io.graph.lower.MAX_TOTAL", (1 << 28) // 100)

    def steps(count: int) -> Any:
        nodes: Nodes = [
            ("MaxPool", [f"n{k - 1}" if k else "x"], {"kernel_shape": [15, 15], "pads": [7] * 4})
            for k in range(count)
        ]
        return model(nodes, {}, ["N", 1, 24, 24])

    assert rn.load(steps(1)).input_size == 576
    with pytest.raises(ModelFileError, match="in all"):
        rn.load(steps(40))


@pytest.mark.parametrize(
    "forward",
    [
        lambda h: h.flatten().mean(),
        lambda h: h.T.mean(1),
        lambda h: h[0],
        lambda h: torch.cat([h, h], 0),
    ],
)
def test_modules_that_mix_a_batch_are_refused(forward) -> None:  # type: ignore[no-untyped-def]
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(self.a(x))

    with pytest.raises((UnsupportedFormatError, UnsupportedOperationError)):
        rn.load(Mixing())


def test_unsupported_operations_behind_others_are_listed_too() -> None:
    chain: Nodes = [("Sin", ["x"], {}), ("Cos", ["n0"], {}), ("Erf", ["n1"], {})]
    with pytest.raises(UnsupportedOperationError) as caught:
        rn.load(model(chain, {}, ["N", 3]))
    assert [op for _, op in caught.value.operations] == ["Sin", "Cos", "Erf"]


def test_functions_of_weights_are_evaluated() -> None:
    w = np.random.default_rng(0).normal(size=4).astype(np.float32)
    nodes: Nodes = [
        ("Softplus", ["w"], {}),
        ("Sqrt", ["n0"], {}),
        ("Relu", ["w"], {}),
        ("Add", ["n1", "n2"], {}),
        ("Mul", ["x", "n3"], {}),
    ]
    proto = model(nodes, {"w": w}, ["N", 4])
    X = np.ones((2, 4), dtype=np.float32)
    np.testing.assert_allclose(rn.load(proto)(X), run(proto, X), rtol=1e-6)


def test_nodes_off_the_path_to_the_output_do_not_matter() -> None:
    proto = model([("Sigmoid", ["x"], {}), ("Relu", ["x"], {})], {}, ["N", 3])
    assert rn.load(proto).units == 3


def test_the_true_cause_of_a_failed_export_is_told() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("the key that is missing")

    with pytest.raises(UnsupportedFormatError, match="the key that is missing"):
        rn.load(Failing())


def test_nan_weights_are_named_where_they_are() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    module[0].weight.data[0, 0] = float("nan")
    with pytest.raises(InvalidNetworkError, match=r"0 \(aten.linear.*NaN"):
        rn.load(module)


def test_a_bias_with_two_axes(tmp_path: Path) -> None:
    np.savez(tmp_path / "net.npz", W0=np.ones((6, 2)), b0=np.ones((6, 1)))
    with pytest.raises(InvalidNetworkError, match=r"net\.npz.*shape \(6, 1\)"):
        rn.load(tmp_path / "net.npz")


def test_nonsense_arguments_get_our_errors(tmp_path: Path) -> None:
    conv = nn.Conv2d(1, 1, 3)
    for example in ((1, -6, 6), (1, 10**6, 10**6), "abc", 3.5):
        with pytest.raises(UnsupportedFormatError, match="example"):
            rn.load(conv, example=example)
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "state.pt")
    with pytest.raises(UnsupportedFormatError, match=r"torch\.nn\.Module"):
        rn.load(tmp_path / "state.pt", architecture=3)
    with pytest.raises(UnsupportedFormatError, match="cannot read an object"):
        rn.save(None, tmp_path / "x.npz")  # type: ignore[arg-type]
    with pytest.raises(ModelFileError, match="null character"):
        rn.load("a\0.onnx")
    with pytest.raises(UnsupportedFormatError, match="not the example's"):
        rn.load("example:moons", example=(3,))
    for inputs in ("ab", [[1, 2], [3]]):
        with pytest.raises(InvalidInputError):
            NET(inputs)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="NaN"):
        NET.jacobian([float("nan"), 0.0])
    with pytest.raises(UnsupportedFormatError, match="to_keras"):
        rn.save(NET, tmp_path / "x.keras")
    with pytest.raises(OSError, match="nodir: there is no such folder"):
        rn.save(NET, tmp_path / "nodir" / "x.npz")


def test_refusals_do_not_repeat_bad_advice(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(ModelFileError) as caught:
        rn.load(tmp_path / "module.pt")
    assert "weights_only=False" not in str(caught.value)
    torch.save({"model": nn.Linear(2, 2).state_dict()}, tmp_path / "checkpoint.pt")
    assert rn.load(tmp_path / "checkpoint.pt", architecture=nn.Linear(2, 2)).widths == (2, 2)
