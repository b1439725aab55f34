"""What a refusal says: which operation and where, why, and what to do instead."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import relunorm as rn
from relunorm.errors import SeveralTensorsError, UnsupportedOperationError
from relunorm.io.graph.walk import refused


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("aten.layer_norm.default in LayerNorm", "Batch normalization"),
        ("keras.src.layers.normalization.GroupNormalization", "Batch normalization"),
        ("aten.hardswish.default in Hardswish", "quadratic"),
        ("aten.elu.default in ELU", "Smooth activations"),
        ("Elu", "Smooth activations"),
        ("aten.gru.input in GRU", "recurrent"),
        ("LSTM", "recurrent"),
        ("aten.scaled_dot_product_attention.default", "Products"),
        ("aten.embedding.default in Embedding", "Encode the table first"),
        ("Gather: input 1 is not a constant", "of an embedding the layers behind it"),
        ("OneHotEncoder", "Encode the table first"),
        ("PowerTransformer", r"pipeline\[1:\]"),
        ("FunctionTransformer: with the function log1p", r"pipeline\[1:\]"),
        ("RandomForestClassifier", "perceptrons"),
        ("MultiOutputRegressor", "one by one"),
        ("QuantizeLinear", "floating point"),
        ("FakeQuantize", "floating point"),
        ("QuantileTransformer: to a normal distribution", r"pipeline\[1:\]"),
        ("aten.sort.default", "not supported yet"),
        ("aten.floor.default", "jumps"),
        ("Softmax: only known at the end of a model", "ends in logits"),
        ("com.acme.Mystery", "not known to be piecewise linear"),
    ],
)
def test_reasons(operation: str, reason: str) -> None:
    text = str(refused("net", [("place", operation)]))
    assert re.search(reason, text)
    assert text.startswith(f"net: 1 operation is not supported:\n  - place: {operation}\n")
    assert len(text.splitlines()) == 4  # no wall of names


def test_an_average_of_softmaxes_is_refused_for_its_softmaxes() -> None:
    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)) for _ in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([member(x) for member in self.members]).mean(0)

    with pytest.raises(UnsupportedOperationError, match="each on its own") as caught:
        rn.load(Ensemble())
    assert caught.value.operations[0][0] == "members.0.1"
    assert "softmax" in caught.value.operations[0][1]


def test_several_outputs_are_refused_under_a_public_name() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.linear(x), "p": self.linear(x).softmax(-1)}

    with pytest.raises(SeveralTensorsError, match="returns one of them"):
        rn.load(Two(), example=(4,))


@pytest.mark.parametrize("example", [None, (5,)])
def test_a_module_that_looks_up_is_told_so(example: tuple[int, ...] | None) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.words(x).mean(1)))

    with pytest.raises(UnsupportedOperationError, match="the layers behind it") as caught:
        rn.load(Words(), example)
    assert list(caught.value.operations) == [("words", "a lookup in Embedding")]
