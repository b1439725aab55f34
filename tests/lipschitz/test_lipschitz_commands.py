"""The commands lipschitz and maximize: JSON, tables, errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import relunorm as rn
from relunorm.cli import app, main


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "absolute.npz"
    rn.save(rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [np.zeros(2), [0.5]]), path)
    return str(path)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_lipschitz_json(model):
    done = run("lipschitz", model, "--norm", "inf", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["schema"] == "relunorm.lipschitz/1"
    assert document["exact"]
    assert document["lower"] == pytest.approx(1.0)


def test_lipschitz_table(model):
    done = run("lipschitz", model, "--domain", "box:1,2")
    assert "exact by" in done.stdout
    assert "absolute paths" in done.stdout


def test_maximize(model):
    document = json.loads(run("maximize", model, "--domain", "box:-3,2", "--json").stdout)
    assert document["exact"]
    assert document["lower"] == pytest.approx(3.5)
    assert document["point"] == [-3.0]
    smallest = run("maximize", model, "--domain", "box:-3,2", "--direction", "-1")
    assert "maximum of -1 * output 0: -0.5 (exact)" in smallest.stdout


def test_bad_direction_is_one_paragraph_on_stderr(model, capsys):
    with pytest.raises(SystemExit) as done:
        main(["maximize", model, "--domain", "box:-1,1", "--direction", "up"])
    assert done.value.code == 2
    assert "--direction 'up' is not understood" in capsys.readouterr().err
