"""Running exhibits: saved, resumed, in parallel, failures apart; and the page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from relunorm.cli import main
from relunorm.papers import Exhibit, rescaling
from relunorm.papers.results_page import COLUMNS, counts, write_page
from relunorm.papers.run import FAILED, STORE, Task, run_tasks
from relunorm.sweep.store import Store

TASKS = [Task("rescaling", name) for name in ("lemma1", "uniqueness", "several_outputs")]


def cli(*arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code


def rows(outcomes):
    return [row for outcome in outcomes for row in outcome.rows]


@pytest.fixture
def broken(monkeypatch):
    def fails(world):
        raise ValueError("no <b>luck</b>")

    monkeypatch.setitem(rescaling.EXHIBITS, "uniqueness", fails)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which the tasks were run, and their outcomes."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, run_tasks(TASKS, folder)


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the folder that a test may change."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_results_are_saved_and_not_run_again(finished, copy, monkeypatch):
    tmp_path, first = copy, finished[1]
    assert [o.reused for o in first] == [False] * 3
    assert {p.suffix for p in (tmp_path / "rescaling").glob("lemma1.*")} == {
        ".csv", ".json", ".png", ".svg",
    }  # fmt: skip
    seen = []
    again = run_tasks(TASKS, tmp_path, progress=seen.append)
    assert [o.reused for o in again] == [True] * 3
    assert [said.facts["outcome"] for said in seen] == again
    assert rows(again) == rows(first)
    other = run_tasks([Task("rescaling", "uniqueness", random_state=1)], tmp_path)
    assert not other[0].reused  # other settings are another run
    monkeypatch.setattr("relunorm.papers.run.code_version", lambda: "another version")
    assert not run_tasks(TASKS[1:2], tmp_path)[0].reused


def test_one_exhibit_is_one_row_of_the_store_which_moves_with_its_folder(copy):
    with Store(copy / STORE, read_only=True) as store:
        found = store.runs()
    assert [run.parameters["name"] for run in found] == ["lemma1", "several_outputs", "uniqueness"]
    assert {run.status for run in found} == {"done"}
    assert all(o.reused for o in run_tasks(TASKS, copy))


def test_data_counts_by_its_content(tmp_path):
    table = tmp_path / "d.csv"
    table.write_text("a,b\n1,2\n")
    task = Task("batchnorm", "figure1", data=str(table), target="b")
    before = task.parameters
    assert task.parameters == before
    table.write_text("a,b\n1,3\n")
    assert task.parameters != before


@pytest.mark.parametrize("damage", ["broken json", "no svg", "no csv"])
def test_a_damaged_result_is_run_again(copy, damage):
    task = TASKS[0] if damage == "no svg" else TASKS[1]
    files = [file for file in (copy / "rescaling").iterdir() if file.stem == task.name]
    before = [file.read_bytes() for file in files]
    ending = damage[-4:].replace(" ", ".").replace("json", ".json")
    victim = (copy / "rescaling" / task.name).with_suffix(ending)
    if damage == "broken json":
        victim.write_text("{")
    else:
        victim.unlink()
    assert not run_tasks([task], copy)[0].reused
    assert run_tasks([task], copy)[0].reused
    assert [file.read_bytes() for file in files] == before


def test_a_failed_exhibit_is_a_failed_row_and_tried_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(rescaling.EXHIBITS, "uniqueness", lambda *_, **__: 1 / 0)
        run_tasks(TASKS[1:2], tmp_path)
    with Store(tmp_path / STORE, read_only=True) as store:
        assert [run.status for run in store.runs()] == ["failed"]
        assert "ZeroDivisionError" in str(store.runs()[0].message)
    again = run_tasks(TASKS[1:2], tmp_path)
    assert not again[0].error
    assert not again[0].reused
    assert run_tasks(TASKS[1:2], tmp_path)[0].reused


def test_files_that_a_worker_wrote_elsewhere_are_a_failure(tmp_path, monkeypatch):
    save = Exhibit.save
    elsewhere = lambda self, folder, **more: save(self, tmp_path / "elsewhere", **more)  # noqa: E731
    monkeypatch.setattr(Exhibit, "save", elsewhere)
    assert "must see the folder" in run_tasks(TASKS[1:2], tmp_path / "a")[0].error


def test_an_interrupt_keeps_what_is_finished(tmp_path):
    def stop(outcome):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(TASKS[1:], tmp_path, progress=stop)
    assert sum(o.reused for o in run_tasks(TASKS[1:], tmp_path)) == 1


def test_one_failure_is_a_row_and_stops_nothing(tmp_path, broken):
    outcomes = run_tasks(TASKS, tmp_path)
    assert [bool(o.error) for o in outcomes] == [False, True, False]
    assert "ValueError" in outcomes[1].error
    failed = [row for row in rows(outcomes) if row["verdict"] == FAILED]
    assert [row["item"] for row in failed] == ["Lemma 1, uniqueness"]
    assert not (tmp_path / "rescaling" / "uniqueness.json").exists()
    page, _ = write_page(outcomes, tmp_path, "test")
    assert "no &lt;b&gt;luck&lt;/b&gt;" in page.read_text()
    assert "<b>luck" not in page.read_text()


def test_claims_that_were_not_promised_are_a_failure(monkeypatch):
    def silent(world):
        return Exhibit("uniqueness", "t", ("a",), ((1,),))

    monkeypatch.setitem(rescaling.EXHIBITS, "uniqueness", silent)
    assert "promised" in run_tasks(TASKS[1:2])[0].error


def test_statements_of_no_paper_are_counted_apart():
    found = [("Lemma 1", "holds"), ("ours: more", "holds"), ("ours: less", "does not hold")]
    assert counts([{"item": item, "verdict": verdict} for item, verdict in found]) == {
        "holds": 1, "ours: holds": 1, "ours: does not hold": 1,
    }  # fmt: skip


def test_parallel_runs_give_the_same_rows(finished, tmp_path):
    two = run_tasks(TASKS, tmp_path, jobs=2, backend="loky")
    one = finished[1]
    assert rows(two) == rows(one)
    for first, second in zip(one, two, strict=True):
        pairs = zip(first.document["files"], second.document["files"], strict=True)
        assert all(Path(a).read_bytes() == Path(b).read_bytes() for a, b in pairs)


def test_the_page_is_self_contained(copy):
    tmp_path, outcomes = copy, run_tasks(TASKS, copy)
    page, table = write_page(outcomes, tmp_path, "quick <sizes>")
    text = page.read_text()
    assert "quick &lt;sizes&gt;" in text
    assert "http" not in text
    assert "<script" not in text
    assert 'src="data:image/png;base64,' in text
    assert set(re.findall(r'src="(.{4})', text)) == {"data"}
    for row in rows(outcomes):
        assert row["item"].split(",")[0] in text
    anchors = set(re.findall(r' id="([\w-]+)"', text))
    assert set(re.findall(r'href="#([\w-]+)"', text)) <= anchors
    assert "def lemma1(" in text  # the code, one click from the exhibit
    for link in set(re.findall(r'href="(rescaling/[^"]+)"', text)):
        assert (tmp_path / link).is_file()
    head, *body = table.read_text().splitlines()
    assert tuple(head.split(",")) == COLUMNS
    assert len(body) == len(rows(outcomes))


def test_command(tmp_path, capsys):
    assert cli("papers", "rescaling", "uniqueness", "-o", tmp_path, "-j", "1") == 0
    out = capsys.readouterr()
    assert "holds corrected" in out.out
    assert "uniqueness: done in" in out.err
    assert (tmp_path / "index.html").stat().st_size > 1000
    assert cli("papers", "rescaling", "uniqueness", "-o", tmp_path, "-j", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"holds corrected": 1}
    assert document["rows"][0]["code"].startswith("src/relunorm/papers/rescaling/lemma.py:")


def test_a_failed_exhibit_exits_with_one(tmp_path, capsys, broken):
    assert cli("papers", "rescaling", "-o", tmp_path, "-j", "1") == 1
    assert "failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("all",),
        ("all", "figure1", "-o", "x"),
        ("all", "--data", "d.csv", "-o", "x"),
        ("nothing",),
        ("rescaling", "--backend", "nothing"),
        ("rescaling", "--scheduler", "tcp://nowhere:1"),
    ],
)
def test_bad_calls(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("papers", *arguments) == 2
    assert capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_seed_s_number_names_its_paper(capsys):
    assert cli("papers", "000", "lemma1", "--backend", "sequential", "--json") == 0
    assert json.loads(capsys.readouterr().out)["paper"] == "rescaling"
    assert cli("papers", "005") == 2
    assert "pieces (003)" in " ".join(capsys.readouterr().err.split())
