"""Seed 001 re-run: small versions of its figures."""

from __future__ import annotations

import json

import pytest

from relunorm.papers.reduced import EXHIBITS, Experiment, compare, table


def test_figures_have_picture_and_table(tmp_path):
    exhibit = EXHIBITS["figure5.1"](None)
    labels = [row[0] for row in exhibit.rows]
    assert labels == ["unconstrained", "constrained (5.2)", "constrained (5.3)", "relunorm, auto"]
    assert exhibit.rows[-1][1] < 5e-5
    assert exhibit.rows[-1][1] < min(row[1] for row in exhibit.rows[:-1])
    json.dumps(exhibit.to_dict(), allow_nan=False)
    assert {p.suffix for p in exhibit.save(tmp_path)} == {".json", ".csv", ".png", ".svg"}


def test_every_exhibit_of_the_section_is_there():
    assert set(EXHIBITS) == {f"figure5.{k}" for k in range(1, 9)} | {"universality"}


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
    assert (other[7], other[8]) == (2, 1.0)
    assert other[4] == 0.3


def test_universality_rate_of_splines():
    exhibit = EXHIBITS["universality"](None)
    rates = {row[0]: row[3] for row in exhibit.rows}
    assert rates["sin(4πx)"] == pytest.approx(-2, abs=0.35)
    assert rates["Franke"] < -1


def test_compare_returns_one_error_per_start():
    experiment = Experiment(2, (5,), {}, 5)
    results = compare(experiment, [0, 1], 0)
    assert all(len(pairs) == 2 for pairs in results["errors"].values())
