"""scikit-learn estimators in, perceptrons out.

A classifier's network computes what comes before its last softmax or logistic: one column for two
classes, one per class otherwise. Scalers and other affine steps of a pipeline are folded into the
first layer, so that the network reads the user's own units. The columns of the DataFrame it was
fitted on are the network's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.border import Model, accepts
from relunorm.io.graph.heads import finished
from relunorm.io.graph.lower import Lowering, Tensor
from relunorm.io.graph.walk import refused
from relunorm.io.sklearn_transforms import fills, transformed, unscaled
from relunorm.network import IDENTITY, RELU, Network
from relunorm.network.columns import Column
from relunorm.network.head import NO_HEAD, Head, Step, StepKind

#: Linear models, and the head of those whose prediction is not linear.
LINEAR: dict[str, tuple[Step, ...]] = {
    **dict.fromkeys(("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet"), ()),
    **dict.fromkeys(("ElasticNetCV", "HuberRegressor", "SGDRegressor", "LinearSVR"), ()),
    **dict.fromkeys(("LinearSVC", "RidgeClassifier", "SGDClassifier", "Perceptron"), ()),
    **dict.fromkeys(("PoissonRegressor", "GammaRegressor"), (Step("exp"),)),
    "TweedieRegressor": (),
}
LOGISTIC = ("LogisticRegression", "LogisticRegressionCV")


def from_sklearn(estimator: Any, example: Any = None) -> Network:
    """The network of a fitted perceptron or linear model, alone or in a pipeline."""
    del example  # the fitted estimator knows its number of features
    origin = type(estimator).__name__
    before, last, after = _taken_apart(estimator, origin)
    network = _last_step(last, origin)
    names, gaps = list(getattr(last, "feature_names_in_", ())), {}
    if before:
        lowering, tensor, names = _transformed(before, origin)
        first = before[0][1]
        gaps = fills(first, list(map(str, getattr(first, "feature_names_in_", ()))))
        if tensor.size != network.input_size:
            raise InvalidNetworkError(
                f"{origin}: its steps give {tensor.size} columns, but {type(last).__name__} was "
                f"fitted on {network.input_size}"
            )
        for number, layer in enumerate(network.layers):
            (matrix,) = layer.affine.terms.values()
            tensor = lowering.linear(tensor, mx.dense(matrix), layer.affine.bias)
            tensor = lowering.activate(tensor, layer.activation, f"hidden {number + 1}")
        (matrix,) = network.output.terms.values()
        tensor = lowering.linear(tensor, mx.dense(matrix), network.output.bias)
        folded = finished(
            lowering, tensor, input_shape=(lowering.input.size,), origin=origin
        ).folded()
        network = folded.replace(head=network.head)
    if after is not None:
        network = unscaled(network, after)
    if len(names) != network.input_size or network.columns:
        return network
    return network.replace(columns=[Column(str(n), fill=gaps.get(str(n))) for n in names])


def _taken_apart(estimator: Any, origin: str) -> tuple[list[tuple[str, Any]], Any, Any]:
    """The transformers in front, the predictor, and the transformer of its target, if any."""
    before: list[tuple[str, Any]] = []
    after, last = None, estimator
    while True:
        if hasattr(last, "best_estimator_"):
            last = last.best_estimator_
        elif hasattr(last, "steps"):
            if not last.steps:
                raise InvalidNetworkError(f"{origin}: a pipeline without steps")
            before += [(n, s) for n, s in last.steps[:-1] if s is not None and s != "passthrough"]
            last = last.steps[-1][1]
        elif hasattr(last, "regressor_") and hasattr(last, "transformer_"):
            if after is not None:
                raise refused(origin, [(origin, "two targets")])
            after, last = last.transformer_, last.regressor_
        elif type(last).__name__.endswith(("SearchCV", "TransformedTargetRegressor")):
            reason = "is not fitted; call fit first"
            if hasattr(last, "cv_results_"):  # of a search with refit=False
                reason = "has no best estimator; search with refit=True"
            raise InvalidNetworkError(f"{type(last).__name__} {reason}")
        else:
            return before, last, after


def _transformed(before: list[tuple[str, Any]], origin: str) -> tuple[Lowering, Tensor, list[str]]:
    """What the steps in front give, and the names of the columns that they read, where known.

    A named column that a ColumnTransformer drops, which may hold text, is no input of the network.
    """
    first = before[0][1]
    count = _features(first, origin)
    names = [str(name) for name in getattr(first, "feature_names_in_", ())]
    lowering = Lowering((1, count))
    tensor = transformed(lowering, lowering.input, before, origin)
    terms = [
        a.terms[0] for a in (*(u.affine for u in lowering.layers), tensor.affine) if 0 in a.terms
    ]
    read = np.any([abs(mx.dense(abs(t))).sum(axis=0) > 0 for t in terms], axis=0)
    chosen = names and type(first).__name__ == "ColumnTransformer"
    if not chosen or read.all() or not read.any():
        return lowering, tensor, names
    kept = np.flatnonzero(read)
    places = np.full(count, -1)
    places[kept] = np.arange(len(kept))
    lowering = Lowering((1, len(kept)))
    spread = lowering.rearrange(lowering.input, places[None])
    return lowering, transformed(lowering, spread, before, origin), [names[k] for k in kept]


def _features(first: Any, origin: str) -> int:
    found = getattr(first, "n_features_in_", None)
    if found is None:
        raise InvalidNetworkError(f"{origin} is not fitted, or its first step has no features")
    return int(found)


def _last_step(estimator: Any, origin: str) -> Network:
    name = type(estimator).__name__
    if isinstance(getattr(estimator, "network_", None), Network):  # relunorm's own estimators
        return _own(estimator)
    if hasattr(estimator, "hidden_layer_sizes"):
        return _perceptron(estimator, name)
    if name in LINEAR or name in LOGISTIC:
        return _linear(estimator, name)
    raise refused(origin, [(origin, f"{name}")])


def _own(estimator: Any) -> Network:
    network: Network = estimator.network_
    classes = getattr(estimator, "classes_", None)
    if classes is None or network.head != NO_HEAD:
        return network
    kind = "sigmoid" if network.output_size == 1 else "softmax"
    return network.replace(head=Head((Step(kind),), tuple(classes)))


def _perceptron(estimator: Any, name: str) -> Network:
    if estimator.activation not in ("relu", "identity"):
        place = f"{name}.activation"
        raise refused(name, [(place, estimator.activation)])
    if not hasattr(estimator, "coefs_"):
        raise InvalidNetworkError(f"{name} is not fitted; call fit first")
    ends: dict[str, tuple[StepKind, ...]]
    ends = {"identity": (), "logistic": ("sigmoid",), "softmax": ("softmax",), "exp": ("exp",)}
    last = getattr(estimator, "out_activation_", "identity")
    if last not in ends:
        raise refused(name, [(f"{name}.out_activation_", last)])
    weights = [mx.as_floats(w).T for w in estimator.coefs_]
    activation = RELU if estimator.activation == "relu" else IDENTITY
    network = Network.from_weights(weights, estimator.intercepts_, activation, origin=name).folded()
    classes = getattr(estimator, "classes_", ())
    if last == "logistic" and network.output_size > 1:
        classes = ()  # several labels at once: no output excludes another
    return network.replace(head=Head(tuple(Step(k) for k in ends[last]), tuple(classes)))


def _linear(estimator: Any, name: str) -> Network:
    if not hasattr(estimator, "coef_"):
        raise InvalidNetworkError(f"{name} is not fitted; call fit first")
    weight = np.atleast_2d(mx.as_floats(estimator.coef_))
    bias = np.broadcast_to(mx.as_floats(estimator.intercept_), len(weight))
    network = Network.from_weights([weight], [bias.copy()], origin=name)
    steps = LINEAR.get(name, ())
    if name == "TweedieRegressor" and (
        estimator.link == "log" or (estimator.link == "auto" and estimator.power > 0)
    ):
        steps = (Step("exp"),)
    if name == "SGDClassifier" and estimator.loss == "log_loss" and len(weight) == 1:
        steps = (Step("sigmoid"),)
    if name in LOGISTIC:
        if getattr(estimator, "multi_class", "auto") == "ovr" and len(weight) > 1:
            raise refused(name, [(f"{name}.multi_class", "ovr")])
        steps = (Step("sigmoid" if len(weight) == 1 else "softmax"),)
    return network.replace(head=Head(steps, tuple(getattr(estimator, "classes_", ()))))


@accepts("network")
def to_sklearn(network: Model, *, classes: ArrayLike | None = None, like: Any = None) -> Any:
    """A fitted scikit-learn estimator that computes the network.

    Args:
        network: a plain perceptron with relu everywhere, or an affine map. Linear stages are
            multiplied out, which rounds.
        classes: class labels; gives an MLPClassifier whose scores before softmax (before the
            logistic, for two classes and one output) are the network's outputs. By default the
            classes of the network's head, where a model named them.
        like: a fitted estimator whose class, parameters, labels and feature names are taken over.

    Returns:
        an MLPRegressor, or an MLPClassifier when classes are given or ``like`` is one.
    """
    from sklearn.base import clone
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    network = network.folded()
    if classes is None and like is None and network.head.classes:
        classes = np.asarray(network.head.classes)
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
        estimator.out_activation_ = _out_activation(network.head)
    if like is not None and hasattr(like, "feature_names_in_"):
        estimator.feature_names_in_ = like.feature_names_in_
    return estimator


def _out_activation(head: Head) -> str:
    kinds = tuple(step.kind for step in head.steps)
    if kinds not in ((), ("exp",)):
        raise InvalidNetworkError(
            f"a network that ends in {head.label} is a classifier to scikit-learn: pass its "
            "classes, or network.replace(head=relunorm.Head()) for the values before it"
        )
    return "exp" if kinds else "identity"


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
