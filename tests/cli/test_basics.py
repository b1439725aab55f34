"""The command line as a user or a script meets it: one process per call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import relunorm as rn
from relunorm.cli import app
from relunorm.cli.output import either
from relunorm.clock import overhearing
from relunorm.embedded.arithmetic.integers import WIDTHS
from relunorm.embedded.c.c_file import TARGETS
from relunorm.errors import InvalidInputError
from relunorm.forms.shapes import FORMS
from relunorm.io import READERS
from relunorm.lipschitz.front import METHODS
from relunorm.lipschitz.norms import NORMS
from relunorm.sweep.backends import BACKENDS


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
        (("convert", "example:moons", "out.xyz"), "no network is written as '.xyz'"),
        (("convert", "example:moons", "/nonexistent/out.npz"), "does not exist"),
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


def test_warm_up_says_once_that_it_compiles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from relunorm import clock, kernels
    from relunorm.cli import main

    monkeypatch.setattr(clock, "FIRST_LINE", -1.0)
    monkeypatch.setattr(kernels, "_GROUPS", {"one": lambda: None, "another": lambda: None})
    with pytest.raises(SystemExit):
        main(["warm-up"])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "relunorm: warm-up: compiling one"


#: Every option that names a file to write: the command up to it, and an ending that it takes.
BOX = ("--domain", "box:-1,1")
WRITING = {
    ("report", "out"): (("example:moons", "-o"), ".html"),
    ("convert", "target"): (("example:moons",), ".npz"),
    ("normalize", "out"): (("example:moons", *BOX, "-o"), ".npz"),
    ("normalize", "certificate"): (("a.npz", *BOX, "-o", "m.npz", "--certificate"), ".json"),
    ("export", "out"): (("example:moons", *BOX, "-o"), ".c"),
    ("export", "certificate"): (("example:moons", *BOX, "-o", "m.c", "--certificate"), ".json"),
    ("export", "header"): (("example:moons", *BOX, "-o", "m.c", "--header"), ".h"),
    ("compare", "certificate"): (("a.npz", "b.npz", *BOX, "--certificate"), ".json"),
    ("check", "proof"): (("example:moons", "p.vnnlib", "--proof"), ".json"),
    ("check", "result"): (("example:moons", "p.vnnlib", "--result"), ".txt"),
    ("sensitivity", "out"): (("example:moons", *BOX, "-o"), ".png"),
    ("sensitivity", "proof"): (("example:moons", *BOX, "--proof"), ".json"),
    ("regions", "out"): (("example:moons", "-o"), ".npz"),
    ("lipschitz", "proof"): (("example:moons", *BOX, "--proof"), ".json"),
    ("maximize", "proof"): (("example:moons", *BOX, "--proof"), ".json"),
    ("geometry", "out"): (("example:moons", "--data", "d.csv", "-o"), ".png"),
    ("fit", "out"): (("d.csv", "-o"), ".npz"),
    ("fit", "plot"): (("d.csv", "--plot"), ".png"),
    ("sweep", "export"): (("f.py:f", "--export"), ".csv"),
    ("dying map", "out"): (("-o",), ".png"),
    ("papers", "out"): (("rescaling", "-o"), ""),
}


def test_every_option_that_writes_is_listed() -> None:
    named = {"out", "proof", "certificate", "plot", "export", "header", "result"}

    def walk(command: Any, name: str = "") -> set[tuple[str, str]]:
        if hasattr(command, "commands"):
            parts = ((k, f"{name} {word}".strip()) for word, k in command.commands.items())
            return {pair for part in parts for pair in walk(*part)}
        return {(name, p.name) for p in command.params if p.name in named}

    found = walk(typer.main.get_command(app)) - {("verify", "certificate")}  # which reads one
    assert found | {("convert", "target")} == set(WRITING)


@pytest.mark.parametrize(
    ("folder", "why"), [("/nowhere", "not exist"), ("/proc", "can be written")]
)
@pytest.mark.parametrize("option", WRITING)
def test_a_folder_that_takes_no_file_is_told_before_the_work(
    option: tuple[str, str], folder: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder == "/proc" and not Path("/proc/self").exists():
        pytest.skip("no folder here that refuses every file")
    if option[0] == "papers" and folder == "/nowhere":
        pytest.skip("it makes its folder")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    for work in ("io.load", "cli.training.fit_table.read", "dying.basins.basin"):
        monkeypatch.setattr(f"relunorm.{work}", never)
    arguments, ending = WRITING[option]
    done = CliRunner().invoke(app, [*option[0].split(), *arguments, f"{folder}/file{ending}"])
    assert isinstance(done.exception, InvalidInputError | OSError)
    assert f"{folder}/file{ending}" in str(done.exception)
    if option[0] != "papers":
        assert why in str(done.exception)


def test_an_answer_without_a_proof_is_printed_all_the_same(tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    arguments = ["lipschitz", "example:moons", "--method", "product", "--proof", str(proof)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 3
    assert "there is no proof to write" in done.stderr
    assert json.loads(done.stdout)["proof"] is None
    assert not proof.exists()


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("info", READERS),
        ("normalize", FORMS),
        ("export", TARGETS),
        ("lipschitz", NORMS),
        ("lipschitz", METHODS),
        ("sweep", BACKENDS),
        ("maximize", BACKENDS),
        ("export", WIDTHS),
    ],
    ids=["readers", "forms", "targets", "norms", "methods", "runs", "backends", "widths"],
)
def test_a_help_lists_what_a_registry_holds(command: str, listed: Iterable[object]) -> None:
    page = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert either(map(str, listed)) in " ".join(page.split())


def test_a_command_tells_of_loading_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in calls that take no ``progress``, such as the walls of a region."""
    heard: list[str] = []
    monkeypatch.setattr("relunorm.clock._compiled", set())
    network = rn.load("example:moons")
    region = rn.region_at(network, np.array([0.1, 0.2]), rn.Box.cube(2))
    found = rn.maximize(network, rn.Box.cube(2), [1.0])
    with overhearing(lambda said: heard.append(said.message)):
        region.vertices()
        assert found.certificate is not None
        assert found.certificate.verify(network).holds
    for what in ("the walls of a region", "the corners of a region", "the replay of its proofs"):
        assert f"loading {what}" in heard
    heard.clear()
    with overhearing(lambda said: heard.append(said.message)):
        region.vertices()
    assert not heard
