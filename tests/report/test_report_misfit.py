"""A model and rows that do not fit together: told first, with the change that makes them fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report.validation import check, random_network

import relunorm as rn
from relunorm.network.head import Head, Step

pytestmark = pytest.mark.usefixtures("few_rows_certified")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
NET = random_network(4, 9, 3, seed=3)
ONE = random_network(4, 9, 1, seed=5)
KINDS = np.array(["ant", "bee", "cat"])


def found(net: rn.Network, x: Any, y: Any, **options: Any) -> rn.Report:
    one = rn.report(net, x, y, time_limit=8, **options)
    check(one.to_dict())
    return one


def topics(report: rn.Report) -> list[str]:
    return [item["topic"] for item in report.to_dict()["advice"]]


def test_columns_in_another_order_are_told_before_anything_else() -> None:
    y = ONE(X)[:, 0]
    order = [1, 3, 0, 2]
    names = ["age", "size", "rooms", "year"]
    report = found(ONE, X[:, order], y, feature_names=[names[k] for k in order])
    first = report.advice[0]
    assert first.startswith("Worse than always answering the mean of the target (R² = -")
    assert "the columns stand in the order age, size, rooms, year, R² would be" in first
    assert set(topics(report)) <= {"misfit", "time", "open"}
    few = found(ONE, X[:6][:, order], y[:6])  # among so many orders one fits by chance
    assert few.sections["quality"]["body"]["misfit"] == {
        "kind": "estimate", "whole": True, "remedy": None,
    }  # fmt: skip


def test_inputs_that_were_scaled_in_training_are_told() -> None:
    labels = KINDS[NET((X - X.mean(axis=0)) / X.std(axis=0)).argmax(axis=1)]
    wide = 1e3 + X * [100.0, 3.0, 10.0, 50.0]
    report = found(NET, wide, labels, classes=list(KINDS))
    body = report.sections["quality"]["body"]
    assert body["accuracy"]["right"] <= body["baseline"]["right"]
    assert "each input is standardized (mean 0, deviation 1), 100 % of the rows" in report.advice[0]
    assert topics(report)[0] == "misfit"
    assert not {"robustness", "removal", "units"} & set(topics(report))


def test_a_guessed_order_is_not_made_of_one_answer_for_all_rows() -> None:
    weights, (first, last) = NET.weights()
    always = rn.Network.from_weights(weights, [first, np.add(last, [0.0, 1e6, 0.0])])
    labels = np.repeat(KINDS, [70, 20, 30])  # "ant" for output 1 would make 70 rows right
    report = found(always, X, labels)
    classes = report.to_dict()["data"]["classes"]
    assert (classes["names"], classes["from"]) == (list(KINDS), "sorted")
    told = report.advice[0]
    assert told.startswith("Every row gets the same answer. No better than always answering ant")
    assert "in this order: ant, bee, cat (sorted" in told
    assert "--classes" in report.to_dict()["advice"][0]["command"]


def test_one_bad_output_of_several_holds_nothing_back() -> None:
    y = NET(X)
    y[:, 1] = 100 + RNG.normal(size=120)
    report = found(NET, X, y, target_name="u, v, w")
    assert report.advice[0].startswith("Worse than always answering the mean of the target: v (R²")
    body = report.sections["quality"]["body"]
    assert body["misfit"]["whole"] is False


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_model_that_is_better_than_no_model_fits(noise: float) -> None:
    y = ONE(X)[:, 0]
    fits = found(ONE, X, y + noise * y.std() * RNG.normal(size=120))
    assert fits.sections["quality"]["body"]["misfit"] is None
    assert "misfit" not in topics(fits)


def test_a_class_that_is_mostly_missed_is_told() -> None:
    score = ONE(X)[:, 0]
    rare = score > np.quantile(score, 0.8)
    weights, (first, last) = ONE.weights()
    shifted = rn.Network.from_weights(weights, [first, last - np.quantile(score, 0.97)])
    report = found(shifted, X, np.where(rare, "rare", "usual"), classes=["usual", "rare"])
    assert report.sections["quality"]["body"]["misfit"] is None
    missed = int((rare & (shifted(X)[:, 0] <= 0)).sum())
    assert report.advice[0].startswith(
        f"{missed} of the {rare.sum()} rows of class rare are missed; always answering usual would "
        "be right on 80 % of all rows"
    )


def test_units_of_a_file_are_not_to_be_revived() -> None:
    """Of a module they are, unless the network without them is advised."""
    torch = pytest.importorskip("torch")
    weights = [np.vstack([np.eye(4), -np.eye(4)]), np.ones((1, 8))]
    biases = [np.full(8, -1.0), np.zeros(1)]  # active outside the rows, so nothing can be removed
    net = rn.Network.from_weights(weights, biases)
    x = RNG.uniform(-0.5, 0.5, size=(50, 4))
    domain = rn.Box.cube(4, -3, 3)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        for layer, weight, bias in zip((module[0], module[2]), weights, biases, strict=True):
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
    calls = {
        name: " ".join(item["call"] for item in rn.report(model, x, domain=domain, time_limit=8)
                       .to_dict()["advice"])
        for name, model in (("file", net), ("module", module))
    }  # fmt: skip
    assert "dying" not in calls["file"]
    assert "rn.dying." in calls["module"]
    tighter = rn.report(module, x, time_limit=8).to_dict()["advice"]  # now they can go
    assert "rn.normalize" in " ".join(item["call"] for item in tighter)
    assert "dying" not in " ".join(item["call"] for item in tighter)


def test_a_classifier_without_a_target_is_no_regression() -> None:
    net = ONE.replace(head=Head((Step("sigmoid"),)))
    entry = rn.report(net, X, time_limit=3).sections["robustness"]
    assert entry["status"] == "not asked"
    assert entry["why"].startswith("no target was given: for a classifier name the column")


def test_the_radius_of_the_command_is_the_one_that_is_told() -> None:
    labels = KINDS[NET(X).argmax(axis=1)]
    item = next(
        item
        for item in found(NET, X, labels, classes=list(KINDS)).to_dict()["advice"]
        if item["topic"] == "robustness"
    )
    radius = item["text"].partition("moving its inputs by ")[2].split(" ")[0]
    assert f"--eps {radius}" in item["command"]
    assert f"radius={radius}," in item["call"]


def test_classes_and_targets_in_another_order_or_other_units_are_named() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(80, 3))
    net = rn.Network.from_weights([np.eye(3), rng.normal(size=(2, 3))])
    said = net(x)
    words = np.array(["no", "yes"])[said.argmax(axis=1)]
    first = rn.report(net, x, words, classes=["yes", "no"], time_limit=5).to_dict()["advice"][0]
    assert "the classes stand in the order no, yes, 100 % of the rows" in first["text"]
    first = rn.report(net, x, said[:, ::-1], target_name="v, u", time_limit=5)
    assert "the targets stand in the order u, v" in first.to_dict()["advice"][0]["text"]
    one = rn.Network.from_weights([np.eye(3), rng.normal(size=(1, 3))])
    first = rn.report(one, x, 1000 * one(x)[:, 0], time_limit=5).to_dict()["advice"][0]
    assert "about 1e+03 times the output" in first["text"]
    noise = rn.report(one, x, rng.normal(size=80), time_limit=5).to_dict()["advice"][0]
    assert "other units" not in noise["text"]


def test_a_rare_class_that_is_given_up_is_a_weakness_and_no_misfit() -> None:
    weights, (first, last) = ONE.weights()
    always = rn.Network.from_weights(weights, [first, last - 1e6])
    rare = np.arange(120) % 12 == 0  # ten rows, whatever the inputs
    names = np.where(rare, "fraud", "fine")
    weak = found(always, X, names, classes=["fine", "fraud"])
    assert weak.sections["quality"]["body"]["misfit"] is None
    assert weak.advice[0].startswith(
        "10 of the 10 rows of class fraud are missed (no row gets that answer); always answering "
        "fine would be right on 91.7 % of all rows. If that class matters"
    )
    half = np.where(np.arange(120) % 2 == 0, "fraud", "fine")  # nothing is rare here
    assert found(always, X, half, classes=["fine", "fraud"]).sections["quality"]["body"]["misfit"]


def test_a_model_that_finds_a_rare_class_at_the_cost_of_the_common_one_fits() -> None:
    score = ONE(X)[:, 0]
    rare = score > np.quantile(score, 0.9)
    weights, (first, last) = ONE.weights()
    eager = rn.Network.from_weights(weights, [first, last - np.quantile(score, 0.75)])
    report = found(eager, X, np.where(rare, "fraud", "fine"), classes=["fine", "fraud"])
    body = report.sections["quality"]["body"]
    assert body["accuracy"]["right"] < body["baseline"]["right"]
    assert body["recall"]["balanced"] > 0.9
    assert body["misfit"] is None
    assert "misfit" not in topics(report)
