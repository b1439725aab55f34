"""Labels that a model lacks: refused, with the `--classes` that read them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import relunorm as rn
from relunorm.cli import app, main

#: Answers oak above 1, elm below -1 and ash between.
OAK, ASH, ELM = "2,{}\n3,{}\n", "0,{}\n0.5,{}\n", "-2,{}\n-3,{}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(classes: tuple[str | float, ...], *rows: str) -> None:
    net = rn.Network.from_weights([[[1.0], [0.0], [-1.0]]], [[0.0, 1.0, 0.0]])
    rn.save(net.replace(head=rn.Head((), classes)), "net.npz")
    Path("rows.csv").write_text("x,kind\n" + "".join(rows))


def told(command: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([command, "net.npz", "--data", "rows.csv", "--target", "kind", *options])
    assert stop.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def accuracy(classes: str) -> tuple[int, int]:
    ask = ["report", "net.npz", "--data", "rows.csv", "--target", "kind", "--json"]
    done = CliRunner().invoke(app, [*ask, "--time-limit", "1", "--classes", classes])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["sections"]["quality"]["body"]["accuracy"]
    return found["right"], found["rows"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # one label of three is foreign; the model answers ash on its rows
        ((OAK.format("oak", "oak"), ASH.format("Esche", "Esche"), ELM.format("elm", "elm")),
         "holds Esche, but the model's classes are oak, ash, elm; correct or drop such rows, or, "
         "if Esche is ash (which makes most rows right, a guess), say --classes oak,Esche,elm"),
        # the table has one class only
        ((ELM.format("Ulme", "Ulme"),),
         "if Ulme is elm (which makes most rows right, a guess), say --classes oak,ash,Ulme"),
        # spelled alike: no guess, whatever the model answers there
        ((OAK.format("ELM", "ELM"), ASH.format("ash", "ash")),
         "correct or drop such rows, or, if ELM is elm, say --classes oak,ash,ELM"),
    ],
)  # fmt: skip
def test_a_foreign_label_is_told_the_classes_that_read_it(
    rows: tuple[str, ...], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(("oak", "ash", "elm"), *rows)
    found = told("report", capsys)
    assert says in found
    right, all_rows = accuracy(*shlex.split(found.split("--classes ")[1]))
    assert all_rows == sum(part.count("\n") for part in rows)
    assert right == all_rows - 2 * ("ELM" in says)


def test_numbers_that_are_shifted_are_matched_as_a_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write((1, 2, 3), OAK.format(0, 0), ASH.format(1, 1), ELM.format(2, 2))
    assert "if 0 is 1, 1 is 2, 2 is 3" in (found := told("report", capsys))
    assert accuracy(found.split("--classes ")[1]) == (6, 6)


def test_numbers_are_the_same_however_they_are_written(folder: Path) -> None:
    for classes, cells in (
        ((1.0, 2.0, 3.0), ("1", "2", "3")),
        ((5, 7, 9), ("5.0", "7.0", "9.0")),
        ((0.5, 1.0, 2.0), ("0.5", "1.0", "2")),
    ):
        rows = [part.format(c, c) for part, c in zip((OAK, ASH, ELM), cells, strict=True)]
        write(classes, *rows)
        ask = ["report", "net.npz", "--data", "rows.csv", "--target", "kind", "--json"]
        done = CliRunner().invoke(app, [*ask, "--time-limit", "1"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["sections"]["quality"]["body"]["accuracy"]["right"] == 6


def test_a_label_beyond_all_classes_has_no_such_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(("oak", "ash", "elm"), OAK.format("oak", "fir"), ASH.format("ash", "ash"),
          ELM.format("elm", "elm"))  # fmt: skip
    found = told("report", capsys)
    assert "holds 'fir', which is none of the classes 'oak', 'ash', 'elm'; correct or drop" in found


def test_certify_answers_the_other_rows_and_says_what_reads_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(("oak", "ash", "elm"), OAK.format("oak", "oak"), ASH.format("Esche", "Esche"))
    with pytest.raises(SystemExit) as stop:
        main(["certify", "net.npz", "--data", "rows.csv", "--target", "kind", "--eps", "0.1",
              "--json"])  # fmt: skip
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["counts"]["robust"] == 2
    assert "say --classes oak,Esche,elm" in " ".join(err.split())
