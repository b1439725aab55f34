"""``relunorm fit`` on good and bad tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

import relunorm as rn
from relunorm.cli import main


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        main(["fit", *arguments])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.random((120, 2))
    y = np.abs(x[:, 0] - 0.4) + x[:, 1]

    def write(name: str = "data.csv", rows=slice(None), **columns) -> str:
        path = tmp_path / name
        data = {"a": x[:, 0], "b": x[:, 1], "y": y, **columns}
        lines = [
            ",".join(data),
            *(",".join(map(str, row)) for row in zip(*data.values(), strict=True)),
        ]
        path.write_text("\n".join([lines[0], *lines[1:][rows]]) + "\n")
        return str(path)

    return write


def test_document_and_written_model(table, tmp_path, capsys):
    out = str(tmp_path / "model.npz")
    code, shown, _ = run(capsys, table(), "--target", "y", "--hidden", "8", "-o", out, "--json")
    document = json.loads(shown)
    assert code == 0
    assert document["schema"] == "relunorm.fit/1"
    assert [row["model"] for row in document["errors"]] == [
        "relu network",
        "linear",
        "gradient boosting",
    ]
    network, linear, _ = (row["holdout_rmse"] for row in document["errors"])
    assert network < 0.2 * linear
    assert document["train_rows"] + document["holdout_rows"] == 120
    assert rn.load(out).input_size == 2


def test_page_and_certificate(tmp_path, capsys):
    x = np.linspace(0, 1, 150)
    np.savez(tmp_path / "d.npz", x=x[:, None], y=np.abs(x - 0.5) + x**2)
    code, shown, _ = run(capsys, str(tmp_path / "d.npz"), "--hidden", "5", "--quiet")
    assert code == 0
    assert "certified" in shown
    assert "gradient boosting" in shown


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        ({}, (), "Give --target"),
        ({}, ("--target", "z"), "no column 'z'"),
        ({"rows": slice(1)}, ("--target", "y"), "1 row of data"),
        ({"a": ["red"] * 120}, ("--target", "y"), "'red' is not a number"),
        ({"a": [np.nan] * 120}, ("--target", "y"), "NaN or infinite"),
        ({"y": [np.inf] * 120}, ("--target", "y"), "NaN or infinite"),
        ({}, ("--target", "y", "--hidden", "x"), "--hidden x"),
        ({}, ("--target", "y", "--alpha", "x"), "--alpha x"),
        ({}, ("--target", "y", "--holdout", "1"), "--holdout 1"),
        ({}, ("--target", "y", "--solver", "x"), "solver 'x'"),
        ({}, ("--target", "y", "--holdout", "0.999"), "leaves 0 to fit"),
        ({}, ("--target", "y", "-o", "m.foo"), "the endings are .onnx"),
        ({}, ("--target", "y", "-o", "m.keras"), "the endings are .onnx"),
        ({}, ("--target", "y", "-o", "no/such/m.npz"), "does not exist"),
    ],
)
def test_bad_input_is_one_clear_error(table, capsys, make, arguments, message):
    code, shown, error = run(capsys, table(**make), *arguments)
    assert code == 2
    assert not shown
    assert message in error


@pytest.mark.parametrize(
    ("make", "note"),
    [
        ({"y": [2.5] * 120}, "constant"),
        ({"rows": slice(4)}, ""),
        ({"rows": slice(0, 1)}, None),
    ],
)
def test_degenerate_tables_are_fitted_or_refused(table, capsys, make, note):
    code, shown, _ = run(capsys, table(**make), "--target", "y", "--json")
    if note is None:
        assert code == 2
        return
    assert code == 0
    assert note in " ".join(json.loads(shown)["notes"])


def test_time_limit_is_marked(table, capsys):
    arguments = ("--target", "y", "--time-limit", "0.001", "--json")
    code, shown, _ = run(capsys, table(), *arguments)
    document = json.loads(shown)
    assert (code, document["stopped"]) == (3, "time limit")
    assert "stopped early" in document["notes"][0]


def test_noise_is_reported_as_such(table, capsys):
    noise = np.random.default_rng(1).normal(size=120)
    _, shown, _ = run(capsys, table(y=noise), "--target", "y", "--json")
    row = json.loads(shown)["errors"][0]
    assert row["holdout_r2"] < 0.3


def test_a_network_without_a_bend_is_called_a_plane(table, capsys):
    x = np.random.default_rng(0).random((120, 2))
    straight = table("straight.csv", y=3 * x[:, 0] - x[:, 1] + 2)
    options = ("--target", "y", "--hidden", "3", "--json")
    notes = json.loads(run(capsys, straight, *options)[1])["notes"]
    said = [note for note in notes if "turned out to be a plane" in note]
    assert len(said) == 1
    assert said[0].endswith("a linear model says the same with fewer numbers")
    bent = json.loads(run(capsys, table(), *options)[1])["notes"]
    assert not any("plane" in note for note in bent)


def test_few_rows_are_no_plane(table, capsys):
    """Through so few points an affine function always goes."""
    code, shown, _ = run(capsys, table(rows=slice(4)), "--target", "y", "--json", "--hidden", "2")
    assert code == 0
    assert not any("plane" in note for note in json.loads(shown)["notes"])
