"""What follows the last affine map: read, remembered, written back; against the frameworks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx_models import model, run
from strategies import ARCHIVES
from torch import Tensor, nn

import relunorm as rn
from relunorm.errors import InvalidNetworkError, ModelFileError, UnsupportedOperationError
from relunorm.network.head import Head, Step

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 4))


def network(outputs: int, *steps: Step, classes: tuple[Any, ...] = ()) -> rn.Network:
    rng = np.random.default_rng(outputs)
    net = rn.Network.from_weights(
        [rng.normal(size=(6, 4)), rng.normal(size=(outputs, 6))],
        [rng.normal(size=6), rng.normal(size=outputs)],
    )
    return net.replace(head=Head(steps, classes))


class Ending(nn.Module):
    """A perceptron with something behind it."""

    def __init__(self, outputs: int, ending: Callable[[Tensor], Tensor]):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, outputs))
        self.ending = ending

    def forward(self, x: Tensor) -> Tensor:
        return self.ending(self.body(x))


def both(chance: Tensor) -> Tensor:
    return torch.cat([1 - chance, chance], 1)


ENDINGS: dict[str, tuple[int, Callable[[Tensor], Tensor], str]] = {
    "temperature": (3, lambda z: (z / 0.7).softmax(1), "softmax"),
    "log of softmax": (3, lambda z: z.softmax(1).log(), "log-softmax"),
    "both classes": (1, lambda z: both(z.sigmoid()), "sigmoid of both classes"),
    "both, turned": (1, lambda z: both(1 - z.sigmoid()), "sigmoid of both classes"),
    "log of both": (1, lambda z: both(z.sigmoid()).log(), "log-sigmoid of both classes"),
    "opposite logits": (1, lambda z: torch.cat([-z, z], 1).softmax(1), "softmax of both classes"),
    "softmax, argmax": (3, lambda z: z.softmax(1).argmax(1), "softmax, then argmax"),
    "ranges": (
        2,
        lambda z: torch.sigmoid(z) * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0]),
        "sigmoid, then scaling of each output",
    ),
    "kept away from 0": (
        3, lambda z: z.softmax(1).clamp(0.01, 0.99), "softmax, then clip to [0.01, 0.99]",
    ),
    "softplus": (2, F.softplus, "softplus"),
    "log-sigmoid": (2, F.logsigmoid, "log-sigmoid"),
    "rounded": (1, lambda z: z.sigmoid().round(), "sigmoid, then round"),
    "reshaped": (3, lambda z: z.softmax(1).view(-1, 3, 1), "softmax"),
    "exp": (1, torch.exp, "exp"),
    "scaled and turned": (
        4,
        lambda z: (z.sigmoid().view(-1, 2, 2) * torch.tensor([1.0, 2.0])).transpose(1, 2)[:, :1],
        "sigmoid, then scaling of each output",
    ),
    "place of the largest": (3, lambda z: z.max(1)[1], "argmax"),
    "place of the smallest": (3, lambda z: z.min(1, keepdim=True).indices.double(), "argmax"),
    "scaled and clipped": (2, lambda z: (3 * z - 1).clamp(-0.5, 0.5), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_endings_of_torch_modules(name: str) -> None:
    outputs, ending, label = ENDINGS[name]
    torch.manual_seed(1)
    module = Ending(outputs, ending).double()
    net = rn.load(module)
    assert net.head.label == label
    expected = module(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(
        net.predict(X).reshape(expected.shape), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    "ending",
    [
        lambda z: torch.relu(torch.tanh(z)),
        lambda z: z.softmax(1) * z,
        lambda z: z.softmax(0),
        lambda z: torch.cat([z.sigmoid(), z], 1),
        lambda z: z.softmax(1)[:, :2],
        lambda z: z.argmax(1) + 1,
    ],
)
def test_what_may_not_follow_a_head_is_refused_where_it_began(ending: Any) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"tanh|softmax|sigmoid|argmax"):
        rn.load(Ending(3, ending))


HEADS: dict[str, rn.Network] = {
    "softmax": network(3, Step("softmax"), classes=("a", "b", "c")),
    "log-softmax": network(3, Step("log_softmax")),
    "sigmoid": network(1, Step("sigmoid"), classes=(5, 7)),
    "log-sigmoid": network(2, Step("log_sigmoid")),
    "tanh": network(2, Step("tanh"), Step("scale", 0, (2.0, 1.0))),
    "ranges": network(2, Step("sigmoid"), Step("scale", 0, (1.0, 2.0, 0.5, -1.0))),
    "argmax": network(3, Step("softmax"), Step("argmax")),
    "greater": network(1, Step("sigmoid"), Step("greater", 0, (0.25,))),
    "clip": network(3, Step("softmax"), Step("clip", 0, (0.125, np.inf))),
    "softplus": network(2, Step("softplus")),
    "exp": network(1, Step("exp")),
    "round": network(1, Step("sigmoid"), Step("round")),
    "opposite rows": network(2, Step("softmax")).replace(
        output=rn.Affine({1: np.outer([1.0, -1.0], np.arange(1.0, 7.0))}, np.array([0.5, -0.5]))
    ),
    "both classes": network(1, Step("pair"), Step("sigmoid"), classes=("no", "yes")),
    "class of both": network(1, Step("pair"), Step("softmax"), Step("argmax")),
    "labels only": network(3, classes=("x", "y", "z")),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_come_back_from_files_and_run_in_onnxruntime(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net = HEADS[name]
    for ending in ARCHIVES:
        rn.save(net, tmp_path / f"net.{ending}")
        again = rn.load(tmp_path / f"net.{ending}")
        assert (again, again.head) == (net, net.head)
    proto = rn.to_onnx(net, dtype="float64")
    again = rn.load(proto)
    assert (again, again.head) == (net, net.head)
    session = runtime.InferenceSession(rn.to_onnx(net).SerializeToString())
    answers = session.run(None, {"input": X.astype(np.float32)})[0]
    assert answers.shape == net.predict(X).shape
    np.testing.assert_allclose(answers, net.predict(X), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", HEADS)
def test_heads_come_back_from_torch(name: str) -> None:
    net = HEADS[name]
    module = rn.to_torch(net)
    np.testing.assert_allclose(module(torch.tensor(X)).detach().numpy(), net.predict(X), rtol=1e-12)
    again = rn.load(module)
    assert (again, again.head.steps) == (net, net.head.steps)


def test_a_head_behind_skips_comes_back_from_a_pt2_file(tmp_path: Path) -> None:
    net = HEADS["softmax"]
    skip = net.replace(
        output=rn.Affine({0: RNG.normal(size=(3, 4)), **net.output.terms}, net.output.bias)
    )
    rn.save(skip, tmp_path / "net.pt2")
    again = rn.load(tmp_path / "net.pt2")
    assert again == skip
    assert again.head.steps == skip.head.steps


@pytest.mark.parametrize("name", [
    "softmax", "sigmoid", "tanh", "ranges", "argmax", "clip", "exp", "both classes",
])  # fmt: skip
def test_heads_come_back_from_keras(name: str) -> None:
    pytest.importorskip("keras")
    net = HEADS[name]
    model = rn.to_keras(net)
    again = rn.load(model)
    assert again.head.steps == net.head.steps
    np.testing.assert_allclose(again.predict(X), net.predict(X), rtol=1e-12, atol=1e-12)


def test_a_classifier_comes_back_from_scikit_learn_as_one() -> None:
    for name in ("softmax", "sigmoid"):
        estimator = rn.to_sklearn(HEADS[name])
        assert estimator.classes_.tolist() == list(HEADS[name].head.classes)
        expected = HEADS[name].predict(X)
        given = estimator.predict_proba(X)
        np.testing.assert_allclose(given[:, -expected.shape[1] :], expected, rtol=1e-12)
        assert rn.load(estimator) == HEADS[name]
    with pytest.raises(InvalidNetworkError, match="ends in tanh"):
        rn.to_sklearn(HEADS["tanh"])


def test_two_probabilities_of_one_logit_are_one_output(tmp_path: Path) -> None:
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 1))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Tensor) -> Tensor:
            return both(self.body(x).sigmoid())

    pair, alone = rn.load(Both(), example=(1, 5, 5)), rn.load(body, example=(1, 5, 5))
    assert (pair.output_size, pair.structure is not None) == (1, True)
    assert pair.without_head() == alone
    assert rn.compare(pair, alone.replace(head=Head((Step("sigmoid"),))), (0, 1)).verdict == "equal"
    rn.save(pair.replace(head=Head(pair.head.steps, ("no", "yes"))), tmp_path / "both.pt2")
    assert rn.load(tmp_path / "both.pt2").head.classes == ("no", "yes")


def test_labels_in_the_metadata_of_onnx_files() -> None:
    for value in ('["a", "b", "c"]', "{0: 'a', 1: 'b', 2: 'c'}", "('a', 'b', 'c')"):
        proto = rn.to_onnx(network(3))
        onnx.helper.set_model_props(proto, {"names": value})
        assert rn.load(proto).head == Head((), ("a", "b", "c"))
    for value in ('["a", "b"]', "__import__('os')", "", '["a", "a", "b"]', "[[1], [2], [3]]"):
        proto = rn.to_onnx(network(3))
        onnx.helper.set_model_props(proto, {"labels": value})
        assert rn.load(proto).head == Head()


def test_labels_that_a_module_carries() -> None:
    module = nn.Sequential(nn.Linear(2, 3))
    module.class_names = ["a", "b", "c"]
    assert rn.load(module).head == Head((), ("a", "b", "c"))
    module.class_names = ["a", "b"]
    assert rn.load(module).head == Head()


def test_several_outputs_of_the_same_logits_are_one() -> None:
    proto = rn.to_onnx(HEADS["softmax"])
    logits = next(node.input[0] for node in proto.graph.node if node.op_type == "Softmax")
    proto.graph.output.append(onnx.helper.make_tensor_value_info(logits, 1, None))
    assert rn.load(proto).head == HEADS["softmax"].head
    hidden = next(node.output[0] for node in proto.graph.node if node.op_type == "Relu")
    proto.graph.output.append(onnx.helper.make_tensor_value_info(hidden, 1, None))
    with pytest.raises(ModelFileError, match="3 outputs"):
        rn.load(proto)


@pytest.mark.parametrize("opset", [9, 11, 13])
def test_a_softmax_over_channels_between_transposes(opset: int) -> None:
    """Before opset 13 exporters write a softmax over the channels of an image so."""
    rng = np.random.default_rng(3)
    proto = model(
        [
            ("Conv", ["x", "w"], {}),
            ("Transpose", ["n0"], {"perm": [0, 2, 3, 1]}),
            ("Softmax", ["n1"], {"axis": 3}),
            ("Transpose", ["n2"], {"perm": [0, 3, 1, 2]}),
        ],
        {"w": rng.normal(size=(3, 2, 1, 1)).astype(np.float32)},
        ["batch", 2, 4, 5],
        opset=opset,
    )
    images = rng.normal(size=(3, 2, 4, 5)).astype(np.float32)
    net = rn.load(proto)
    assert (net.output_shape, net.head.steps) == ((3, 4, 5), (Step("softmax", 0),))
    found = net.predict(images).reshape(3, -1)
    np.testing.assert_allclose(found, run(proto, images), rtol=1e-5, atol=1e-6)
