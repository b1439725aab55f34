"""One vocabulary for all commands: options, examples in the help, exit codes."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import relunorm as rn
from relunorm import __main__ as start
from relunorm.cli import app, main


def commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(commands())

#: Long option -> the letter it goes with, and the other words for the same thing.
ONE_SPELLING = {
    "--out": ("-o", {"--outfile", "--output-file", "--file"}),
    "--jobs": ("-j", {"--workers", "--n-jobs", "--threads", "--processes"}),
    "--time-limit": (None, {"--limit", "--timeout", "--seconds"}),
    "--seed": (None, {"--random-state"}),
    "--quiet": (None, {"--progress", "--no-progress", "--silent"}),
    "--json": (None, set()),
}


@pytest.mark.parametrize("name", ALL)
def test_one_spelling_for_one_thing(name: str) -> None:
    spelled = [param.opts for param in ALL[name].params if param.opts[0].startswith("-")]
    every = {option for options in spelled for option in options}
    assert "--json" in every
    if "--time-limit" in every:
        assert "--quiet" in every or name in ("papers",)
    for long, (letter, others) in ONE_SPELLING.items():
        assert not every & others
        for options in spelled:
            if long in options or letter in options:
                assert set(options) == {long, letter} - {None}


@pytest.mark.parametrize("name", ALL)
def test_the_help_has_two_examples_that_parse(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).output
    examples = (ALL[name].epilog or "").split("\n\n")[1:]
    assert len(examples) == 2
    for example in examples:
        assert example in shown
        program, *words = shlex.split(example)
        assert program == "relunorm"
        assert words[: len(name.split())] == name.split()
        ALL[name].make_context(name, words[len(name.split()) :])  # raises what a user would see


def test_completion_is_offered() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def code_of(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


@pytest.fixture
def deep(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(40, 20)), rng.normal(size=(40, 40)), rng.normal(size=(2, 40))]
    rn.save(rn.Network.from_weights(weights), tmp_path / "deep.npz")
    return str(tmp_path / "deep.npz")


def test_a_list_without_end_is_refused_with_what_can_be_had(
    deep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(["regions", deep]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no two of 20,000 random points" in said
    assert "--slice 0,1" in said
    assert code_of(["regions", deep, "--max-regions", "3", "--quiet"]) == 3  # asked for a part


def test_a_small_domain_of_many_inputs_is_listed(deep: str) -> None:
    assert code_of(["regions", deep, "--domain", "box:0.5,0.5000001", "--json"]) == 0


def test_a_picture_of_many_inputs_takes_a_slice(
    deep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "plane.png"
    assert code_of(["regions", deep, "-o", str(picture)]) == 2
    assert "add --slice 0,1" in capsys.readouterr().err
    assert code_of(["regions", deep, "--slice", "3,1", "-o", str(picture), "--json"]) == 0
    assert picture.stat().st_size > 1000
    found = rn.on_plane(rn.load(deep), np.zeros(20), np.eye(20)[3], np.eye(20)[1])
    assert f'"regions": {len(found)}' in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["maximize", "--domain", "box:-1,1", "--direction", "1,-1", "--time-limit", "0"],
        ["lipschitz", "--domain", "box:-1,1", "--time-limit", "0"],
        ["sensitivity", "--domain", "box:-1,1", "--time-limit", "0"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_is_not_finished_ends_with_3(arguments: list[str], deep: str) -> None:
    name, *rest = arguments
    assert code_of([name, deep, *rest, "--json"]) == 3


def test_an_interrupt_that_was_caught_ends_with_130(
    deep: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from relunorm.extrema import maximize

    compute = maximize.maximize

    def interrupted(*arguments: Any, **options: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            options["progress"] = None
        return compute(arguments[0], arguments[1], arguments[2], 0)

    monkeypatch.setattr(maximize, "maximize", interrupted)
    asked = ["maximize", deep, "--domain", "box:-1,1", "--direction", "1,-1", "--json"]
    assert code_of(asked) == 130
    shown = capsys.readouterr()
    assert '"lower"' in shown.out  # what was found is printed all the same
    assert "interrupted" in shown.err


def test_an_interrupt_while_the_command_is_imported_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "relunorm.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "relunorm.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        start.main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "relunorm: interrupted\n"
