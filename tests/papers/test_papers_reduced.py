"""Seed 001 re-run: small versions of its figures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relunorm.papers.reduced import EXHIBITS, Experiment, Reduced
from relunorm.papers.reduced.constrained_runs import compare, spread_test, table
from relunorm.papers.run import what_ran


def test_figures_have_picture_and_table(tmp_path):
    exhibit = EXHIBITS["figure5.4"](Reduced(tiny=True))
    labels = [row[0] for row in exhibit.rows]
    assert labels == ["unconstrained", "constrained (2.10)"]
    json.dumps(exhibit.to_dict(), allow_nan=False)
    assert {p.suffix for p in exhibit.save(tmp_path)} == {".json", ".csv"}


def test_the_three_figures_are_three_sets_of_starts():
    exhibit = EXHIBITS["figure5.1-3"](Reduced(tiny=True))
    sets = exhibit.settings["sets"]
    assert len({start for part in sets for start in part}) == sum(map(len, sets))
    assert exhibit.columns[:3] == ("figure", "run", "train MSE median")
    medians = [[row[2] for row in exhibit.rows if row[0] == f"5.{k}"] for k in (1, 2, 3)]
    assert medians[0] != medians[1] != medians[2]


def test_every_exhibit_of_the_section_is_there():
    names = {"figure5.1-3", *(f"figure5.{k}" for k in range(4, 9))}
    assert names <= set(EXHIBITS)


def test_each_figure_says_what_it_ran():
    said = what_ran(EXHIBITS["figure5.6"])
    for part in ("{1,5,5,5,5,1}", "BFGS", "SLSQP", "8 starts", "100 steps", "validation"):
        assert part in said
    assert len({what_ran(make) for make in EXHIBITS.values()}) == len(EXHIBITS)


def test_runs_start_from_the_same_function():
    experiment = Experiment(1, (6,), {"constrained": "unit"}, 1)
    x, y, _, _ = experiment.data(0)
    models = experiment.models(3)
    first = [models[k].fit(x, y).loss_curve_[0] for k in ("unconstrained", "constrained")]
    assert first[0] == pytest.approx(first[1], rel=1e-9)


def test_table_counts_wins_failures_and_quartiles():
    results = {
        "errors": {
            "unconstrained": [(1.0, 1.0), (0.5, 1.0), (0.001, 1.0)],
            "other": [(0.1, 0.2), (0.1, 0.4), (0.1, 0.3)],
        },
        "variance": 1.0,
    }
    free, other = table(results)
    assert free[1] == 0.5
    assert (free[5], other[5]) == (2, 3)
    assert (other[7], other[8]) == (3, 0.25)  # by validation; two of three by training
    assert other[4] == 0.3


def test_the_spread_test_sees_spread_and_not_size():
    rng = np.random.default_rng(0)
    base = np.exp(rng.normal(size=(100, 40)))
    assert all(spread_test(row**0.2, row)[1] < 0.05 for row in base[:10])
    other = 100 * np.exp(rng.normal(size=(100, 40)))
    wrong = [spread_test(a, b)[1] < 0.05 for a, b in zip(other, base, strict=True)]
    assert sum(wrong) <= 12  # of 100 at the 5 % level: 1 in 1,000 by chance


def test_compare_returns_one_error_per_start():
    experiment = Experiment(2, (5,), {}, 5)
    results = compare(Reduced(), experiment, [0, 1])
    assert all(len(pairs) == 2 for pairs in results["errors"].values())
