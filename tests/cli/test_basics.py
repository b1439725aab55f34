"""The command line as a user or a script meets it: one process per call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relunorm as rn


def relunorm(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", "from relunorm.cli import main; main()"]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_info_as_page_and_as_json() -> None:
    page = relunorm("info", "example:moons")
    assert page.returncode == 0
    assert "48 units" in page.stdout
    document = json.loads(relunorm("info", "example:moons", "--json").stdout)
    assert document["schema"] == "relunorm.network/1"
    assert document["units"] == 48
    assert [layer["activation"] for layer in document["layers"]] == ["relu", "relu"]


@pytest.mark.parametrize("ending", ["onnx", "npz", "safetensors"])
def test_convert(ending: str, tmp_path: Path) -> None:
    target = tmp_path / f"moons.{ending}"
    done = relunorm("convert", "example:moons", target, "--dtype", "float64", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == "relunorm.convert/1"
    X = np.random.default_rng(0).normal(size=(20, 2))
    np.testing.assert_array_equal(rn.load(target)(X), rn.load("example:moons")(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "missing.onnx"), "missing.onnx: there is no such file"),
        (("info", "example:nothing"), "known are moons"),
        (("info", "model.pkl"), "pickle"),
        (("convert", "example:moons", "out.xyz"), "unknown ending"),
        (("convert", "example:moons", "/nonexistent/out.npz"), "No such file"),
        (("convert", "example:moons", "out.npz", "--dtype", "int8"), "float32 or float64"),
        (("info",), "Missing argument"),
        (("nonsense",), "No such command"),
    ],
)
def test_errors_are_one_paragraph_and_exit_code_two(
    arguments: tuple[str, ...], message: str
) -> None:
    done = relunorm(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    network = rn.load("example:moons")
    layers = [
        rn.Layer(layer.affine, layer.activation, "[red]x[/nope] \x1b[31m <b>")
        for layer in network.layers
    ]
    path = tmp_path / "[bold].safetensors"
    rn.save(network.replace(layers=layers), path)
    done = relunorm("info", path)
    assert done.returncode == 0, done.stderr
    assert "\x1b[31m" not in done.stdout


def test_version() -> None:
    assert relunorm("--version").stdout.strip() == f"relunorm {rn.__version__}"


def test_warm_up_names_what_it_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    from relunorm.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(["warm-up", "--json"])
    assert stopped.value.code == 0
    seconds = json.loads(capsys.readouterr().out)["cpu_seconds"]
    assert len(seconds) >= 6
    assert all(value >= 0 for value in seconds.values())
