"""Advice about idle units speaks of what a user of that framework has."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import relunorm as rn
from relunorm.dying.sentences import WORDS

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(40, 3))
FIRST = RNG.normal(size=(10, 3))
LAST = RNG.normal(size=(1, 10))
#: How many of the ten units are dead on the rows.
FEW, MANY, ALL = 0, 4, 10


def biases(dead: int) -> np.ndarray[Any, Any]:
    return np.where(np.arange(10) < dead, -99.0, 99.0)


def torch_model(dead: int) -> Any:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 10), torch.nn.ReLU(), torch.nn.Linear(10, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor(FIRST))
        model[0].bias.copy_(torch.tensor(biases(dead)))
    return model


def keras_model(dead: int) -> Any:
    keras = pytest.importorskip("keras")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(10, "relu"), keras.layers.Dense(1)]
    )
    model.layers[0].set_weights([FIRST.T, biases(dead)])
    return model


def sklearn_model(dead: int) -> Any:
    from sklearn.neural_network import MLPRegressor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPRegressor(hidden_layer_sizes=(10,), max_iter=1).fit(X, X[:, 0])
    model.coefs_, model.intercepts_ = [FIRST.T, LAST.T], [biases(dead), np.zeros(1)]
    return model


def plain_model(dead: int) -> Any:
    return rn.Network.from_weights([FIRST, LAST], [biases(dead), np.zeros(1)])


MODELS = {"torch": torch_model, "keras": keras_model, "sklearn": sklearn_model, "": plain_model}


def told(framework: str, dead: int) -> str:
    return " ".join(rn.diagnose(MODELS[framework](dead), X).advice)


@pytest.mark.parametrize("dead", [MANY, ALL])
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_each_framework_is_told_what_it_has(dead: int) -> None:
    found = {name: told(name, dead) for name in MODELS}
    assert len(set(found.values())) == len(found)
    counted = "Every unit of" if dead == ALL else "4 of 10 units are dead on the data"
    assert all(counted in text for text in found.values())
    assert re.search("relunorm.dying.(revive_)?live_", found["torch"])
    for name in ("keras", "sklearn"):
        assert not re.search(r"nn\.|live_|redo_|optimizer\)|Monitor", found[name]), found[name]
    assert "relunorm.dying.adapters.keras.Revive" in found["keras"]
    assert "random_state" in found["sklearn"]
    assert "trained" in found[""]


def test_what_the_words_name_exists() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("keras")
    for words in WORDS.values():
        text = " ".join(vars(words).values())
        for path in re.findall(r"relunorm(?:\.\w+)+", text):
            module, _, name = path.rpartition(".")
            assert hasattr(import_module(module), name), path


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_the_call_on_a_page_about_a_keras_model_is_of_keras() -> None:
    document = rn.report(keras_model(MANY), X, domain=rn.Box.cube(3, -400, 400), time_limit=5)
    calls = [i["call"] for i in document.to_dict()["advice"] if i["topic"] == "units"]
    assert any("callbacks=[Revive()]" in call for call in calls)
    assert not any("optimizer" in call for call in calls)
