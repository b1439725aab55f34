"""`ReLUClassifier`: scikit-learn's contract, log-loss and its gradient, weights, calibration."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.train.classifier import ReLUClassifier
from relunorm.train.problem.task import Task, row_losses
from relunorm.train.solve.descent import descend
from relunorm.train.solve.logistic import LogisticPerceptron, log_losses, stretch_of

CHEAP = {"hidden": 3, "alpha": 1e-2, "n_init": 1, "random_state": 0}


@parametrize_with_checks([ReLUClassifier(hidden=2, n_init=1, alpha=1e-2)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def task_of(x: np.ndarray, y: np.ndarray, hidden: tuple[int, ...], **rest) -> Task:
    tensors = {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}
    weight = rest.pop("weight", np.ones(len(x)))
    return Task(**tensors, weight=torch.from_numpy(weight), hidden=hidden, logistic=True, **rest)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 1))
def test_objective_and_gradient_are_those_of_torch(seed, outputs, depth):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, max(2, outputs), 15)
    y = label[:, None].astype(float) if outputs == 1 else np.eye(outputs)[label % outputs]
    x, weight = rng.normal(size=(15, 2)), rng.integers(1, 4, 15).astype(float)
    widths = (4, 3)[: 1 + depth]
    net = LogisticPerceptron(task_of(x, y, widths, weight=weight, alpha=0.03, affine=0.2))
    theta = rng.normal(size=net.size)
    found, gradient = net.loss_and_gradient(theta)
    flat = torch.tensor(theta, requires_grad=True)
    parts = [p.view(s) for p, s in zip(flat.split(np.diff([0, *net.ends]).tolist()), net.shapes)]  # noqa: B905
    *hidden, v, s, c = parts
    h = torch.from_numpy(x)
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        h = torch.relu(h @ w.T + b)
    f = h @ v.T + torch.from_numpy(x) @ s.T + c
    if outputs == 1:
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            f[:, 0], torch.from_numpy(y[:, 0]), reduction="none"
        )
    else:
        losses = torch.nn.functional.cross_entropy(
            f, torch.from_numpy(y.argmax(axis=1)), reduction="none"
        )
    squares = sum(w.square().sum() for w in (*hidden[::2], v))
    share = torch.from_numpy(weight / weight.sum())
    expected = share @ losses + 0.03 * squares + 0.2 * s.square().sum()
    expected.backward()
    assert found == pytest.approx(expected.item(), rel=1e-10)
    assert flat.grad is not None
    assert gradient == pytest.approx(flat.grad.numpy(), abs=1e-10)
    outside = log_losses(f.detach().numpy(), y)
    assert outside == pytest.approx(losses.detach().numpy(), abs=1e-12)
    assert row_losses(f.detach(), torch.from_numpy(y), True).numpy() == pytest.approx(outside)


def test_without_units_it_is_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = (x[:, 0] + rng.normal(size=80) > 0).astype(float)[:, None]
    task = task_of(x, y, (2,), alpha=1e6, affine=0.05)
    net = LogisticPerceptron(task)
    theta, *_ = descend(net, np.zeros(net.size), task, "L-BFGS-B", options={"gtol": 1e-9})
    # 1/n sum losses + 0.05 |S|^2 = (C sum losses + |S|^2 / 2) / (n C) for n C = 10
    plane = LogisticRegression(C=10 / 80, tol=1e-9).fit(x, y[:, 0])
    assert net.split(theta)[-2][0] == pytest.approx(plane.coef_[0], abs=1e-4)


def test_margins_are_log_odds_of_the_network():
    x, y = make_moons(150, noise=0.2, random_state=0)
    model = ReLUClassifier(**CHEAP).fit(x, np.where(y == 1, "up", "down"))
    margin = model.decision_function(x)
    assert model.classes_.tolist() == ["down", "up"]
    assert np.array_equal(margin, model.network_(x)[:, 0])
    chances = model.predict_proba(x)
    assert np.log(chances[:, 1] / chances[:, 0]) == pytest.approx(margin)
    assert np.array_equal(model.predict(x) == "up", margin > 0)
    rows = model.network_.layers[0].affine.terms[0]
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(x), chances)


@pytest.mark.parametrize("hidden", [6, (5, 4)])
def test_circles_need_units(hidden):
    x, y = make_circles(300, noise=0.08, factor=0.5, random_state=1)
    model = rn.ReLUClassifier(hidden=hidden, alpha=1e-3, n_init=2, random_state=0)
    model.fit(x[:200], y[:200])
    assert model.score(x[200:], y[200:]) > 0.95
    assert log_loss(y[200:], model.predict_proba(x[200:])) < 0.2


def test_three_classes_with_the_penalty_chosen():
    x, y = load_iris(return_X_y=True)
    model = ReLUClassifier(hidden=4, n_init=1, random_state=0).fit(x[::2], y[::2])
    chances = model.predict_proba(x[1::2])
    assert chances.shape == (75, 3)
    assert chances.sum(axis=1) == pytest.approx(np.ones(75))
    assert log_loss(y[1::2], chances) < 0.25
    assert model.alpha_ > 0
    assert model.solver_ == "logistic"


def test_weights_are_copies_and_classes_can_be_weighted():
    x, y = make_moons(60, noise=0.3, random_state=2)
    count = np.random.default_rng(0).integers(0, 3, 60)
    model = ReLUClassifier(**CHEAP)
    weighted = clone(model).fit(x, y, sample_weight=count)
    copied = clone(model).fit(np.repeat(x, count, 0), np.repeat(y, count))
    assert weighted.network_.digest == copied.network_.digest
    tripled = clone(model).set_params(class_weight={0: 1.0, 1: 3.0}).fit(x, y)
    by_hand = clone(model).fit(x, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    assert tripled.predict_proba(x) == pytest.approx(by_hand.predict_proba(x), abs=1e-6)
    assert tripled.predict_proba(x)[:, 1].mean() > model.fit(x, y).predict_proba(x)[:, 1].mean()


def test_balanced_classes_move_the_border():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(180, 1)), rng.normal(1.5, 1, size=(20, 1))])
    y = np.repeat([0, 1], [180, 20])
    plain, balanced = (
        ReLUClassifier(**CHEAP, class_weight=how).fit(x, y) for how in (None, "balanced")
    )
    assert balanced.predict(x).mean() > 1.5 * plain.predict(x).mean()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 3.0))
def test_the_stretch_of_known_log_odds_is_found(seed, factor):
    rng = np.random.default_rng(seed)
    odds = 2 * rng.normal(size=(20_000, 1))
    y = (rng.random((20_000, 1)) < 1 / (1 + np.exp(-odds))).astype(float)
    found = stretch_of(odds / factor, y, np.full(20_000, 1 / 20_000))
    assert found == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("rare", [6, 60, 2000])
def test_rows_that_are_all_right_stretch_no_further_than_their_number_allows(rare):
    y = (np.arange(rare + 2000) < rare).astype(float)[:, None]
    weight = np.full(len(y), 1 / len(y))
    sure = (rare * (rare + 1) / (rare + 2) + 2000 * 2001 / 2002) / len(y)  # by Laplace's rule
    found = stretch_of(3.0 * (2 * y - 1), y, weight)
    assert found == pytest.approx(np.log(sure / (1 - sure)) / 3, rel=1e-3)
    # the others are beyond doubt: it is the rare ones that are to say how far
    allowed = max(1.0, np.log(rare + 1) / 3)
    assert stretch_of(np.where(y > 0, 3.0, -40.0), y, weight) <= allowed
    both = np.hstack([y, 1 - y])
    assert stretch_of(np.hstack([3.0 * y, 40.0 * (1 - y)]), both, weight) <= allowed


def test_outputs_are_stretched_where_the_penalty_holds_them_back():
    x, y = make_circles(400, noise=0.08, factor=0.5, random_state=3)
    loss = {}
    for calibrate in (False, True):
        model = ReLUClassifier(hidden=8, alpha=8e-3, n_init=1, calibrate=calibrate, random_state=0)
        model.fit(x[:200], y[:200])
        loss[calibrate] = log_loss(y[200:], model.predict_proba(x[200:]))
    assert model.stretch_ > 1.2
    assert loss[True] < 0.9 * loss[False]


def test_mini_batches():
    x, y = make_moons(1000, noise=0.2, random_state=0)
    model = ReLUClassifier(hidden=16, solver="adam", options={"epochs": 60}, random_state=0)
    model.fit(x[:600], y[:600])
    assert log_loss(y[600:], model.predict_proba(x[600:])) < 0.2
    assert model.solver_ == "adam"
    patient = {"early_stopping": True, "n_iter_no_change": 5, "options": {"epochs": 400}}
    curve = model.set_params(**patient).fit(x[:600], y[:600]).validation_curve_
    assert len(curve) < 400
    assert len(curve) - 1 - int(np.argmin(curve)) == 5


def test_early_stopping_and_warm_start():
    x, y = make_moons(200, noise=0.4, random_state=0)
    model = ReLUClassifier(
        hidden=10, alpha=1e-6, calibrate=False, early_stopping=True, n_iter_no_change=5,
        validation_fraction=0.25, random_state=0,
    ).fit(x, y)  # fmt: skip
    curve = model.validation_curve_
    assert len(curve) >= 6
    assert min(curve) == min(curve[:-5])
    short = ReLUClassifier(**CHEAP, calibrate=False, warm_start=True)
    short.fit(x, y)
    first = log_loss(y, short.predict_proba(x))
    short.fit(x, y)
    assert log_loss(y, short.predict_proba(x)) <= first + 1e-3
    with pytest.raises(InvalidInputError, match="classes were"):
        short.fit(x, y + 1)


def test_gaps_and_time_and_pandas():
    pandas = pytest.importorskip("pandas")
    x, y = make_moons(80, noise=0.2, random_state=0)
    table = pandas.DataFrame(x, columns=["a", "b"])
    table.loc[3, "b"] = np.nan
    with pytest.raises(InvalidInputError, match=r"missing values .NaN.: b; .*median"):
        ReLUClassifier(**CHEAP).fit(table, y)
    model = ReLUClassifier(**CHEAP, missing="median", time_limit=20).fit(table, y)
    assert model.imputed_[1] == pytest.approx(np.median(np.delete(x[:, 1], 3)))
    filled = table.fillna({"b": model.imputed_[1]})
    assert np.array_equal(model.predict_proba(table), model.predict_proba(filled))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"solver": "greedy"}, "use auto, logistic, adam"),
        ({"class_weight": "heavy"}, "class_weight='heavy'"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, "weights >= 0"),
        ({"class_weight": {0: "a", 1: 1.0}}, "weights >= 0"),
        ({"calibrate": "yes"}, "calibrate='yes'"),
        ({"missing": "mean"}, "'refuse' or 'median'"),
        ({"early_stopping": 1}, "early_stopping=1"),
        ({"validation_fraction": 1.5}, "validation_fraction=1.5"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    x, y = make_moons(30, random_state=0)
    with pytest.raises(InvalidInputError, match=message):
        ReLUClassifier(**wrong).fit(x, y)


def test_labels_that_make_no_classes_are_refused():
    with pytest.raises(InvalidInputError, match="one class only"):
        ReLUClassifier().fit([[0.0], [1.0]], [1, 1])
    with pytest.raises(InvalidInputError, match=r"label type: continuous.*ReLURegressor"):
        ReLUClassifier().fit([[0.0], [1.0]], [0.25, 0.75])
    with pytest.raises(InvalidInputError, match="labels of several kinds"):
        ReLUClassifier().fit([[0.0], [1.0]], np.array(["a", None], dtype=object))


@pytest.mark.parametrize("names", [("no", "yes"), ("ash", "elm", "oak")])
def test_the_network_knows_what_follows_its_outputs(names):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.array(names)[np.digitize(x[:, 0], [-0.4, 0.4][: len(names) - 1])]
    model = ReLUClassifier(hidden=3, random_state=0).fit(x, y)
    assert model.network_.head == rn.load(model).head
    assert model.network_.head.classes == names
    assert model.network_.head.label == ("sigmoid" if len(names) == 2 else "softmax")
    outputs = model.decision_function(x).reshape(len(x), -1)
    np.testing.assert_array_equal(model.network_(x), outputs)
    np.testing.assert_allclose(model.to_torch()(torch.from_numpy(x)).detach(), outputs, atol=1e-12)


def test_first_units_are_scored_on_a_sample_of_many_rows(monkeypatch):
    """Candidates times rows do not fit into memory, nor into a time limit, for a million rows."""
    from relunorm.train.solve import greedy, logistic

    seen = []

    def watched(x, *rest, **options):
        seen.append((len(x), options["clock"]))
        return greedy.greedy_units(x, *rest, **options)

    monkeypatch.setattr(logistic, "greedy_units", watched)
    monkeypatch.setattr(greedy, "SCORED_ROWS", 400)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5 * greedy.SCORED_ROWS, 2))
    y = (np.abs(x[:, 0]) + x[:, 1] > 0.5).astype(int)
    model = ReLUClassifier(hidden=6, alpha=1e-4, random_state=0, time_limit=20).fit(x, y)
    assert seen
    assert all(rows == greedy.SCORED_ROWS and clock.limited for rows, clock in seen)
    assert model.score(x, y) > 0.97
