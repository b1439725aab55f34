"""``relunorm sweep``: grids, scripts, exit codes, odd names."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from relunorm.cli import main
from relunorm.errors import InvalidInputError
from relunorm.sweep.function import grid, script_function

SCRIPT = """
from os import system
import dataclasses

@dataclasses.dataclass
class Thing:
    x: "float"

def product(a, b=1, random_state=0):
    print("noise")
    if a == "no":
        raise ValueError("[red]<b>no</b>[/red]")
    return {"y": Thing(a * b).x, "seed": random_state}

if __name__ == "__main__":
    raise SystemExit("not to be run")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a b;rm -rf [x].py"
    path.write_text(SCRIPT)
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main([str(argument) for argument in ("sweep", *arguments)])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


def test_an_interrupt_inside_a_run_ends_with_130(tmp_path: Path, capsys) -> None:
    path = tmp_path / "stops.py"
    path.write_text(
        "def f(a):\n    if a == 1:\n        raise KeyboardInterrupt\n    return {'a': a}\n"
    )
    code, out, _ = call(capsys, f"{path}:f", "--grid", "a=0:3", "--backend", "sequential", "--json")
    assert code == 130
    assert [row["a"] for row in json.loads(out)["rows"]] == [0]


def test_the_scheduler_waited_for_is_named(
    script: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="dask and distributed are optional")
    monkeypatch.setattr(import_module("relunorm.sweep.backends"), "ANSWER", 0.2)
    where = ["--backend", "dask", "--scheduler", "tcp://127.0.0.1:9"]
    code, out, err = call(capsys, f"{script}:product", "--grid", "a=1", *where, "--json")
    assert (code, out) == (2, "")
    first, *rest = err.splitlines()
    assert first == "relunorm: connecting to tcp://127.0.0.1:9 ..."
    assert "no Dask scheduler answers" in " ".join(rest)


def test_a_sweep_is_stored_exported_and_resumed(script: Path, tmp_path: Path, capsys) -> None:
    options = ["--store", tmp_path / "s.sqlite", "--backend", "sequential", "--json"]
    grid = ["--grid", "a=1,2.5,-3", "--grid", "b=0:2"]
    code, out, err = call(
        capsys, f"{script}:product", *grid, *options, "--export", tmp_path / "t.csv"
    )
    document = json.loads(out)
    assert code == 0
    assert err == "noise\n" * 6
    assert document["schema"] == "relunorm.sweep/1"
    assert [row["y"] for row in document["rows"]] == [0, 1, 0.0, 2.5, 0, -3]
    assert document["function"] == "a b;rm -rf [x]:product"
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 7
    code, out, _ = call(capsys, f"{script}:product", *grid, *options)
    assert json.loads(out)["resumed"] == 6
    code, out, _ = call(capsys, f"{script}:product", *grid, *options[:4], "--quiet")
    assert code == 0
    assert "6 from the store" in out


def test_a_failed_run_is_exit_code_one(script: Path, tmp_path: Path, capsys) -> None:
    options = ["--backend", "threading", "--jobs", "2", "--export", tmp_path / "t.parquet"]
    code, out, _ = call(capsys, f"{script}:product", "--grid", "a=1,no", *options)
    assert code == 1
    assert "1 failed" in out
    assert (tmp_path / "t.parquet").stat().st_size > 0


def test_work_left_undone_is_exit_code_three(tmp_path: Path, capsys) -> None:
    path = tmp_path / "slow.py"
    path.write_text("import time\ndef f(i):\n    time.sleep(0.05)\n    return {}\n")
    options = ["--backend", "sequential", "--time-limit", "0.1", "--json"]
    code, out, _ = call(capsys, f"{path}:f", "--grid", "i=0:50", *options)
    assert code == 3
    assert json.loads(out)["stopped"] == "time limit"


def test_nothing_but_the_named_function_is_run(script: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "neighbour.py").write_text("raise SystemExit('executed')")
    beside = tmp_path / "beside.py"
    beside.write_text("import neighbour\ndef f(): return {}\n")
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    leaving = tmp_path / "leaving.py"
    leaving.write_text("raise SystemExit(7)")
    for target, message in (
        (f"{script}:system", "defines no function 'system'; its functions are: product"),
        (f"{script}:Thing", "defines no function 'Thing'"),
        (f"{script}:os.system", "is not of the form SCRIPT.py:function"),
        (f"{script}:__import__('os')", "is not of the form"),
        (f"{script}", "is not of the form"),
        (f"{tmp_path}/none.py:f", "no such file"),
        ("../../etc/passwd:f", "is not of the form"),
        (f"{beside}:f", "ModuleNotFoundError: No module named 'neighbour'"),
        (f"{broken}:f", "SyntaxError"),
        (f"{leaving}:f", "SystemExit: 7"),
    ):
        with pytest.raises(InvalidInputError, match=message.replace("(", r"\(")):
            script_function(target)
    code, out, err = call(capsys, f"{script}:system", "--grid", "command=ls")
    assert (code, out) == (2, "")
    assert "defines no function" in err


def test_a_bad_export_is_said_before_the_work(script: Path, tmp_path: Path, capsys) -> None:
    target = f"{script}:product"
    assert call(capsys, target, "--export", tmp_path / "t.xlsx")[0] == 2
    assert call(capsys, target, "--export", tmp_path / "no" / "t.csv")[0] == 2
    assert call(capsys, target, "--grid", "a=1", "--store", tmp_path)[0] == 2


def test_grids() -> None:
    assert grid(['a=1,-2e3,.5,true,none,inf,"7",x y', "b=5:1:-2"])[:2] == [
        {"a": 1, "b": 5},
        {"a": 1, "b": 3},
    ]
    values = [run["a"] for run in grid(['a=1,-2e3,.5,1.,TRUE,None,"7",x y,1.2.3,tcp://h:1'])]
    assert values == [1, -2000.0, 0.5, 1.0, True, None, "7", "x y", "1.2.3", "tcp://h:1"]
    assert grid([]) == [{}]
    for axes, message in (
        (["a"], "expected name=value"),
        (["a="], "expected name=value"),
        (["a b=1"], "expected name=value"),
        (["a=1", "a=2"], "has been given before"),
        (["a=3:3"], "the range is empty"),
        (["a=0:5:0"], "not a range"),
        (["a=0:" + "9" * 30], "more than 1,000,000"),
        (["a=0:" + "9" * 5000], "not a range"),
        (["a=0:2000", "b=0:2000"], "4,000,000 runs; at most"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            grid(axes)
