"""scikit-learn multi-layer perceptrons, in and out.

A classifier's network computes what comes before its last softmax or logistic: one column for two
classes, one per class otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError, UnsupportedOperationError
from relunorm.network import IDENTITY, RELU, Activation, Network

SUPPORTED = "MLPRegressor and MLPClassifier with activation 'relu' or 'identity'"


def from_sklearn(estimator: Any, example: Any = None) -> Network:
    """The network of a fitted MLPRegressor or MLPClassifier."""
    del example  # the fitted estimator knows its number of features
    name = type(estimator).__name__
    if estimator.activation not in ("relu", "identity"):
        place = f"{name}.activation"
        raise UnsupportedOperationError(name, [(place, estimator.activation)], SUPPORTED)
    if not hasattr(estimator, "coefs_"):
        raise InvalidNetworkError(f"{name} is not fitted; call fit first")
    if getattr(estimator, "out_activation_", "identity") == "exp":
        place = f"{name}.out_activation_"
        raise UnsupportedOperationError(name, [(place, "exp (a Poisson loss)")], SUPPORTED)
    activation: Activation = RELU if estimator.activation == "relu" else IDENTITY
    weights = [np.asarray(w, dtype=np.float64).T for w in estimator.coefs_]
    return Network.from_weights(weights, estimator.intercepts_, activation, origin=name).folded()


def to_sklearn(network: Network, *, classes: ArrayLike | None = None, like: Any = None) -> Any:
    """A fitted scikit-learn estimator that computes the network.

    Args:
        network: a plain perceptron with relu everywhere, or an affine map.
        classes: class labels; gives an MLPClassifier whose scores before softmax (before the
            logistic, for two classes and one output) are the network's outputs.
        like: a fitted estimator whose class, parameters, labels and feature names are taken over.

    Returns:
        an MLPRegressor, or an MLPClassifier when classes are given or ``like`` is one.
    """
    from sklearn.base import clone
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    network = network.folded()
    if not network.is_chain or any(layer.activation != RELU for layer in network.layers):
        raise InvalidNetworkError(
            f"{network!r} is not a plain relu perceptron, which is all scikit-learn can hold"
        )
    estimator: Any = MLPRegressor() if classes is None else MLPClassifier()
    if like is not None:
        estimator = clone(like)
    hidden = tuple(layer.width for layer in network.layers)
    activation = "relu" if hidden else "identity"
    estimator.set_params(hidden_layer_sizes=hidden, activation=activation)
    _fill(estimator, network)
    if classes is not None:
        _set_classes(estimator, np.asarray(classes), network.output_size)
    elif hasattr(like, "classes_"):
        _copy_classes(estimator, like, network.output_size)
    else:
        estimator.out_activation_ = "identity"
    if like is not None and hasattr(like, "feature_names_in_"):
        estimator.feature_names_in_ = like.feature_names_in_
    return estimator


def _fill(estimator: Any, network: Network) -> None:
    """Set what fit would have set."""
    weights, biases = network.weights()
    estimator.coefs_ = [np.array(mx.dense(w).T, order="C") for w in weights]
    estimator.intercepts_ = [np.array(b) for b in biases]
    estimator.n_features_in_ = network.input_size
    estimator.n_layers_ = len(weights) + 1
    estimator.n_outputs_ = network.output_size
    estimator.n_iter_ = 0
    estimator.t_ = 0
    estimator.loss_ = float("nan")


def _set_classes(estimator: Any, classes: np.ndarray, outputs: int) -> None:
    from sklearn.preprocessing import LabelBinarizer

    expected = 1 if len(classes) == 2 else len(classes)
    if classes.ndim != 1 or len(classes) < 2 or outputs != expected:
        raise InvalidNetworkError(
            f"{len(classes)} classes need {expected} output{'s' * (expected != 1)}, but the "
            f"network has {outputs}"
        )
    estimator.classes_ = classes
    estimator._label_binarizer = LabelBinarizer().fit(classes)
    estimator.out_activation_ = "logistic" if outputs == 1 else "softmax"


def _copy_classes(estimator: Any, like: Any, outputs: int) -> None:
    if like.n_outputs_ != outputs:
        raise InvalidNetworkError(
            f"the classifier to follow has {like.n_outputs_} outputs, the network has {outputs}"
        )
    for name in ("classes_", "_label_binarizer", "out_activation_"):
        setattr(estimator, name, getattr(like, name))
