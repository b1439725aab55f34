"""scikit-learn perceptrons in and out, against their own predictions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_digits, make_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    SGDClassifier,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)
from strategies import ARCHIVES

import relunorm as rn
from relunorm.errors import InvalidNetworkError, UnsupportedOperationError
from relunorm.io.border import as_domain
from relunorm.io.table import read_table


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


def test_a_search_without_a_best_estimator_says_so() -> None:
    search = GridSearchCV(LinearRegression(), {"positive": [False]}, cv=2, refit=False)
    with pytest.raises(InvalidNetworkError, match="GridSearchCV is not fitted; call fit first"):
        rn.load(search)
    with pytest.raises(InvalidNetworkError, match="TransformedTargetRegressor is not fitted"):
        rn.load(TransformedTargetRegressor(MLPRegressor()))
    x = np.arange(8.0)[:, None]
    with pytest.raises(InvalidNetworkError, match="has no best estimator; search with refit=True"):
        rn.load(search.fit(x, x[:, 0]))


@pytest.mark.parametrize("ending", ["", "onnx", *ARCHIVES])
def test_the_columns_of_a_dataframe_are_found_by_name(ending: str, tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    names = ["height", "weight", "age"]
    frame = pandas.DataFrame(rng.normal(size=(60, 3)) * [1.0, 20.0, 0.1], columns=names)
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    pipeline.fit(frame, frame["height"] - frame["age"])
    network = rn.load(pipeline)
    if ending:
        rn.save(network, tmp_path / f"m.{ending}", dtype="float64")
        network = rn.load(tmp_path / f"m.{ending}")
    assert [column.name for column in network.columns] == names
    assert rn.load(pipeline.fit(frame.to_numpy(), frame["age"])).columns == ()
    turned = frame[names[::-1]].assign(more=1.0)
    np.testing.assert_array_equal(network(turned), network(frame.to_numpy()))
    asked = [rn.certify(network, rows[:1], delta=0.1).rows[0].radius for rows in (turned, frame)]
    assert asked[0] == asked[1]
    assert repr(as_domain(turned, network)) == repr(rn.Box.around(frame.to_numpy()))
    with pytest.raises(rn.errors.InvalidInputError, match="no weight; it has height, wieght, age"):
        rn.certify(network, frame.rename(columns={"weight": "wieght"}), delta=0.1)
    words = turned.assign(
        patient="p7", seen="2024-01-01"
    )  # columns that nobody reads hold anything
    words.to_csv(tmp_path / "turned.csv", index=False)
    frame.rename(columns={"weight": "wieght"}).to_csv(tmp_path / "typo.csv", index=False)
    table = read_table(tmp_path / "turned.csv", columns=network.columns)
    np.testing.assert_allclose(table.x, frame.to_numpy(), rtol=1e-12)
    with pytest.raises(rn.errors.InvalidInputError, match="Did you mean 'wieght'"):
        read_table(tmp_path / "typo.csv", columns=network.columns)


@pytest.mark.parametrize("kind", ["perceptron", "logistic", "three classes", "regression"])
def test_a_pipeline_is_comparable_with_its_own_onnx(kind: str) -> None:
    convert = pytest.importorskip("skl2onnx").to_onnx
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 3)) * [1.0, 20.0, 0.1] + [0.0, 5.0, 0.0]
    y: Any = np.where(x[:, 0] + x[:, 1] / 20 > 0, "yes", "no")
    last: Any = LogisticRegression()
    if kind == "perceptron":
        last = MLPClassifier((4,), max_iter=20, random_state=0)
    elif kind == "three classes":
        y = np.digitize(x[:, 0], [-0.5, 0.5])
    elif kind == "regression":
        last, y = LinearRegression(), x[:, 0] - x[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(StandardScaler(), last).fit(x, y)
        exported = convert(pipeline, x[:1].astype(np.float32))
    read = rn.load(exported)
    assert read.precision == "float32"
    if kind != "regression":
        assert read.head.classes == tuple(pipeline.classes_.tolist())
        given = read.predict(x)
        np.testing.assert_allclose(given, pipeline.predict_proba(x), rtol=1e-4, atol=1e-6)
    found = rn.compare(pipeline, exported, x)
    assert found.verdict == "within"
    assert found.precision == "float32"
    if kind == "perceptron":  # the others keep their weights in attributes, which are float32
        assert rn.load(convert(pipeline, x[:1])).precision == "float64"


def test_an_export_with_an_input_for_every_column_is_read_as_a_table() -> None:
    convert = pytest.importorskip("skl2onnx").to_onnx
    ort = pytest.importorskip("onnxruntime")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(60, 3)).astype(np.float32), columns=["b", "a", "c"])
    steps = ColumnTransformer([("s", StandardScaler(), ["a", "b"]), ("m", MinMaxScaler(), ["c"])])
    last = MLPRegressor(hidden_layer_sizes=(4,), max_iter=20, random_state=0)
    pipeline = fitted(make_pipeline(steps, last), frame, frame["a"] * frame["c"])
    exported = convert(pipeline, frame[:1])
    assert len(exported.graph.input) == 3
    network = rn.load(exported)
    assert [column.name for column in network.columns] == ["b", "a", "c"]
    session = ort.InferenceSession(exported.SerializeToString())
    (own,) = session.run(None, {name: frame[[name]].to_numpy() for name in frame})
    np.testing.assert_allclose(network(frame[["b", "a", "c"]].to_numpy()), own, atol=1e-5)
    np.testing.assert_allclose(network.predict(frame[["c", "b", "a"]]), own, atol=1e-5)


def _counts(rows: int = 200) -> np.ndarray:
    """Columns with many repeated values, with few and with none."""
    rng = np.random.default_rng(5)
    columns = [rng.poisson(1.0, rows), rng.integers(0, 40, rows), rng.normal(size=rows)]
    return np.stack([*columns, np.full(rows, 3.0)], axis=1).astype(np.float64)


@pytest.mark.parametrize(
    "step",
    [
        QuantileTransformer(n_quantiles=12),
        QuantileTransformer(n_quantiles=200),
        Binarizer(threshold=1.0),
        make_union(StandardScaler(), MinMaxScaler(clip=True)),
        FeatureUnion([("a", MinMaxScaler()), ("b", "drop")], transformer_weights={"a": 3.0}),
        ColumnTransformer(
            [("a", StandardScaler(), [2, 0]), ("b", "passthrough", [1])],
            transformer_weights={"a": 0.5},
        ),
        "passthrough",
    ],
    ids=lambda step: type(step).__name__,
)
def test_piecewise_linear_steps_are_read_as_they_are(step: Any) -> None:
    x = _counts()
    pipeline = make_pipeline(step, LinearRegression()).fit(x, x @ [1.0, 2.0, 3.0, 0.0])
    network = rn.load(pipeline)
    nearby = np.concatenate([x, x + 1e-9, x - 1e-9, 3 * x - 5])  # on its jumps and beside them
    # slopes of a quantile are large where its data lie close together
    np.testing.assert_allclose(network(nearby)[:, 0], pipeline.predict(nearby), atol=1e-8)


def test_a_normal_distribution_of_quantiles_is_refused_for_what_it_is() -> None:
    x = _counts()
    step = QuantileTransformer(n_quantiles=12, output_distribution="normal")
    with pytest.raises(
        UnsupportedOperationError, match="output_distribution='uniform' is read"
    ) as e:
        rn.load(make_pipeline(step, LinearRegression()).fit(x, x[:, 0]))
    assert "quantized" not in str(e.value)


def test_the_parts_of_a_column_transformer_that_cannot_be_read_are_named() -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "city": list("aba"), "size": list("sml")})
    parts = [("cat", OneHotEncoder(), ["city"]), ("num", StandardScaler(), ["age"])]
    parts.append(("order", OrdinalEncoder(), ["size"]))
    pipeline = make_pipeline(ColumnTransformer(parts), LinearRegression()).fit(x, [1.0, 2.0, 3.0])
    with pytest.raises(UnsupportedOperationError, match="Encode the table first") as caught:
        rn.load(pipeline)
    place = "Pipeline.columntransformer"
    found = [(f"{place}.cat", "OneHotEncoder"), (f"{place}.order", "OrdinalEncoder")]
    assert list(caught.value.operations) == found


def test_a_column_that_a_pipeline_drops_is_no_input(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame(rng.normal(size=(40, 3)), columns=["age", "income", "visits"])
    frame.insert(1, "city", np.array(["Oslo", "Rome"])[np.arange(40) % 2])
    kept = ColumnTransformer([("n", StandardScaler(), ["visits", "age"])], remainder="drop")
    pipeline = make_pipeline(
        kept, MLPRegressor(hidden_layer_sizes=(4,), max_iter=5, random_state=0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(frame, frame["age"])
    network = rn.load(pipeline)
    assert [column.name for column in network.columns] == ["age", "visits"]
    np.testing.assert_allclose(network(frame)[:, 0], pipeline.predict(frame), atol=1e-12)
    frame.to_csv(tmp_path / "people.csv", index=False)
    table = read_table(tmp_path / "people.csv", columns=network.columns)
    np.testing.assert_allclose(network(table.x), network(frame), rtol=1e-12)
    array = frame[["age", "income", "visits"]].to_numpy()  # without names every column is an input
    kept.set_params(transformers=[("n", StandardScaler(), [2, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(array, array[:, 0])
    assert rn.load(pipeline).input_size == 3


@pytest.mark.parametrize("functions", [(np.log, np.exp), (np.log1p, np.expm1), (None, None)])
def test_the_inverse_of_a_target_s_function_is_the_head(functions: Any) -> None:
    x = np.random.default_rng(4).normal(size=(30, 2))
    y = np.exp(x[:, 0] / 2)
    forth, back = functions
    model = TransformedTargetRegressor(LinearRegression(), func=forth, inverse_func=back)
    network = rn.load(model.fit(x, y))
    np.testing.assert_allclose(network.predict(x)[:, 0], model.predict(x), rtol=1e-12)
    model = TransformedTargetRegressor(LinearRegression(), func=np.sqrt, inverse_func=np.square)
    with pytest.raises(UnsupportedOperationError, match="with the inverse square"):
        rn.load(model.fit(x, y))


@pytest.mark.parametrize("power", [0, 1.5])
def test_the_link_of_a_generalized_linear_model_is_its_head(power: float) -> None:
    x = np.random.default_rng(4).normal(size=(30, 2))
    model = TweedieRegressor(power=power).fit(x, np.exp(x[:, 0]))
    np.testing.assert_allclose(rn.load(model).predict(x)[:, 0], model.predict(x), rtol=1e-12)


@pytest.mark.parametrize(("loss", "head"), [("log_loss", "sigmoid"), ("hinge", "")])
def test_a_logistic_classifier_gives_probabilities(loss: str, head: str) -> None:
    x = np.random.default_rng(4).normal(size=(60, 3))
    model = SGDClassifier(loss=loss, random_state=0).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    network = rn.load(model)
    assert (network.head.label, network.head.classes) == (head, ("no", "yes"))
    wanted = model.predict_proba(x)[:, 1] if head else model.decision_function(x)
    np.testing.assert_allclose(network.predict(x)[:, 0], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parts", [False, True])
def test_gaps_of_a_named_column_are_filled_as_its_imputer_does(parts: bool, tmp_path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan, 9.0], "b": [np.nan, 3.0, 4.0, -1.0]})
    step: Any = SimpleImputer(strategy="median")
    if parts:
        scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        step = ColumnTransformer([("b", scaled, ["b"]), ("a", SimpleImputer(), [0])])
    model = make_pipeline(step, LinearRegression()).fit(frame, [1.0, 2.0, 4.0, 3.0])
    network = rn.load(model)
    assert [column.fill for column in network.columns] == ([4.0, 3.0] if parts else [2.0, 3.0])
    np.testing.assert_allclose(network(frame[["b", "a"]])[:, 0], model.predict(frame))
    assert np.isnan(network(frame.to_numpy())[0, 0])
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    rows = read_table(tmp_path / "gaps.csv", columns=network.columns).x
    np.testing.assert_allclose(network(rows)[:, 0], model.predict(frame))


def test_an_imputer_of_a_number_is_refused() -> None:
    """It changes complete rows, too: a network that passed them on was another function."""
    x = np.array([[-1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    model = make_pipeline(SimpleImputer(missing_values=-1), LinearRegression()).fit(x, x[:, 1])
    with pytest.raises(UnsupportedOperationError, match="replaces a number, not what is missing"):
        rn.load(model)


def test_several_labels_and_an_imputer_from_their_own_onnx() -> None:
    convert = pytest.importorskip("skl2onnx").to_onnx
    x = np.random.default_rng(6).normal(size=(60, 3))
    model = make_pipeline(SimpleImputer(), MLPClassifier((4,), max_iter=20, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, (x > 0).astype(int))
        exported = convert(model, x[:1].astype(np.float32))
    network = rn.load(exported)
    assert network.head.classes == ()  # no label excludes another
    probable = model.predict_proba(x)
    np.testing.assert_allclose(network.predict(x), probable, rtol=1e-4, atol=1e-6)
    assert rn.compare(model, exported, x).verdict == "within"
