"""scikit-learn perceptrons in and out, against their own predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_regression
from sklearn.neural_network import MLPClassifier, MLPRegressor

import relunorm as rn
from relunorm.errors import InvalidNetworkError, UnsupportedOperationError


def fitted(estimator, X, y):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations do not converge
        return estimator.fit(X, y)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16, y[:400]


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_regressor_round_trip(activation: str, outputs: int) -> None:
    X, y = make_regression(80, 5, n_targets=outputs, random_state=0)
    model = fitted(
        MLPRegressor(hidden_layer_sizes=(7, 4), activation=activation, max_iter=5, random_state=0),
        X,
        y,
    )
    network = rn.load(model)
    expected = model.predict(X).reshape(len(X), -1)
    np.testing.assert_allclose(network(X), expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    back = rn.to_sklearn(network, like=model)
    np.testing.assert_allclose(
        back.predict(X), model.predict(X), rtol=1e-12, atol=1e-12 * abs(expected).max()
    )
    assert rn.load(back) == network


@pytest.mark.parametrize("kind", ["many", "two", "labels"])
def test_classifier_round_trip(kind: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    target = {"many": y, "two": y > 4, "labels": np.stack([y > 4, y % 2 == 0], axis=1)}[kind]
    model = fitted(MLPClassifier(hidden_layer_sizes=(12, 6), max_iter=4, random_state=0), X, target)
    back = rn.to_sklearn(rn.load(model), like=model)
    np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_classes_without_a_template(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    model = fitted(MLPClassifier(hidden_layer_sizes=(6,), max_iter=3, random_state=0), X, y)
    back = rn.to_sklearn(rn.load(model), classes=model.classes_)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    with pytest.raises(InvalidNetworkError, match="3 classes need 3 outputs"):
        rn.to_sklearn(rn.load(model), classes=[0, 1, 2])


def test_what_scikit_learn_cannot_hold() -> None:
    leaky = rn.Network.from_weights([[[1.0]], [[1.0]]], activation=rn.Activation("leaky", 0.1))
    with pytest.raises(InvalidNetworkError, match="plain relu perceptron"):
        rn.to_sklearn(leaky)
    with pytest.raises(InvalidNetworkError, match="not fitted"):
        rn.load(MLPRegressor())
    with pytest.raises(UnsupportedOperationError, match="tanh"):
        rn.load(MLPRegressor(activation="tanh"))
