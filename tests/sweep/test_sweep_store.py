"""The store: what it keeps, what it refuses, and what it survives."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from survivor import RUNS
from sweep_functions import slow

import relunorm as rn
from relunorm.errors import StoreError
from relunorm.sweep.record import Run

SCRIPT = Path(__file__).with_name("survivor.py")


def run(key: str, status="done", outcome='{"y":1}', text='{"a":1}') -> Run:
    return Run(key, "m:f", "1", text, status, outcome, 0.5)


def survivor(what: str, store: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), what, str(store)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    said = survivor("kill", tmp_path / "broken.sqlite")
    whole = rn.sweep(slow, RUNS, store=tmp_path / "whole.sqlite")
    assert whole.complete
    with rn.Store(tmp_path / "broken.sqlite") as broken, rn.Store(tmp_path / "whole.sqlite") as w:
        assert broken.runs() == w.runs(), said
        assert len(broken) == len(RUNS)
        broken.to_csv(tmp_path / "broken.csv")
        w.to_csv(tmp_path / "whole.csv")
    assert (tmp_path / "broken.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_two_drivers_at_once_record_every_run_once(tmp_path: Path) -> None:
    survivor("two", tmp_path / "s.sqlite")
    with rn.Store(tmp_path / "s.sqlite") as store:
        assert store.runs() == list(rn.sweep(slow, RUNS).runs)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    assert "every run recorded before is kept" in survivor("full", path)
    with rn.Store(path) as store:
        kept = len(store)
        assert 10 < kept < 2_000
    found = rn.sweep(slow, [{"i": i} for i in range(150)], store=path)
    assert found.resumed == min(kept, 150)
    assert [r.result["square"] for r in found.runs if r.result] == [i * i for i in range(150)]


def test_sqlites_own_full_error_is_explained(tmp_path: Path) -> None:
    with rn.Store(tmp_path / "s.sqlite") as store:
        store.put(run("first"))
        store._open.execute("PRAGMA max_page_count = 4")
        with pytest.raises(StoreError, match="disk is full; every run recorded before is kept"):
            for k in range(100):
                store.put(run(f"{k}", outcome='{"y":"' + "x" * 500 + '"}'))
        assert store.find(["first"])


def test_done_is_never_overwritten_and_failed_is(tmp_path: Path) -> None:
    with rn.Store(tmp_path / "s.sqlite") as store:
        store.put(run("k", "failed", "no"))
        store.put(run("k", "done", '{"y":1}'))
        store.put(run("k", "done", '{"y":2}'))
        store.put(run("k", "failed", "no"))
        assert [r.result for r in store.runs()] == [{"y": 1}]
        assert "1 runs" in repr(store)


def test_discarded_runs_are_done_again(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    first = rn.sweep(slow, RUNS[:3], store=path)
    with rn.Store(path) as store:
        store.discard([first.runs[1].key, "unknown"])
        assert len(store) == 2
    again = rn.sweep(slow, RUNS[:3], store=path)
    assert again.resumed == 2
    assert again.runs == first.runs


def test_rows_are_ordered_by_value_not_by_time(tmp_path: Path) -> None:
    texts = [
        '{"a":10}',
        '{"a":2}',
        '{"a":"x"}',
        '{"a":{"$float":"nan"}}',
        '{"a":-1.5}',
        '{"a":null}',
    ]
    with rn.Store(tmp_path / "s.sqlite") as store:
        for text in texts:
            store.put(run(text, text=text))
        found = [r.text for r in store.runs()]
        assert found == [texts[i] for i in (4, 1, 0, 3, 2, 5)]
        assert store.runs("other:f") == []


def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, foreign, cut = (tmp_path / name for name in ("text.db", "foreign.db", "cut.db"))
    text.write_text("not a database, but longer than the header of one " * 20)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE runs (x)")
    connection.close()
    with rn.Store(cut) as store:
        for k in range(200):
            store.put(run(f"{k:064}"))
    content = bytearray(cut.read_bytes())
    content[5000:9000] = b"\xff" * 4000
    cut.write_bytes(content)
    for path, message in (
        (text, "not a store of runs"),
        (foreign, "a database, but not a store"),
        (cut, "damaged"),
        (tmp_path, "check that the folder exists"),
        (tmp_path / "no" / "s.db", "check that the folder exists"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(StoreError, match=message):
            rn.Store(path)
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_later_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with rn.Store(path) as store:
        store._open.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match="layout 7, this version of relunorm reads 1"):
        rn.Store(path)


def test_read_only_neither_makes_nor_changes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "odd name?mode=rwc#.sqlite"
    with pytest.raises(StoreError):
        rn.Store(path, read_only=True)
    assert not path.exists()
    with rn.Store(path) as store:
        store.put(run("k"))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with rn.Store(path, read_only=True) as store:
        assert len(store) == 1
        with pytest.raises(StoreError, match="may not be written"):
            store.put(run("l"))
    with pytest.raises(StoreError, match="has been closed"):
        store.put(run("l"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_write_protected_file_is_an_error_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    rn.Store(path).close()
    path.chmod(0o444)
    with pytest.raises(StoreError, match="may not be written"):
        rn.Store(path)


def test_a_waiting_writer_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("relunorm.sweep.store"), "PATIENCE", 0.05)
    with rn.Store(tmp_path / "s.sqlite") as store:
        store._open.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has held it"):
            rn.Store(tmp_path / "s.sqlite")
        store._open.execute("ROLLBACK")


def test_exports_keep_every_digit(tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    third, tiny = 1 / 3, 5e-324
    with rn.Store(tmp_path / "s.sqlite") as store:
        outcomes = (
            f'{{"a":9,"big":{2**70},"n":{2**70},"f":{third!r},"m":1,"l":[1,{{"$float":"inf"}}],"s":"=1,\\n\\"ü"}}',
            f'{{"a":8,"big":1,"f":{tiny!r},"m":"t","l":null,"s":"t"}}',
            '{"a":7,"big":1,"n":{"$float":"nan"},"f":{"$float":"nan"},"m":true,"l":{},"s":null}',
            '{"a":6,"big":1,"n":0.1,"f":2,"m":null,"l":[],"s":null}',
        )
        for k, outcome in enumerate(outcomes):
            store.put(run(f"{k}", outcome=outcome, text=f'{{"a":{k}}}'))
        store.put(run("5", "failed", "ValueError: no", text='{"a":5}'))
        table = store.table()
        frame = store.to_pandas()
        text = store.to_csv(tmp_path / "t.csv").read_text(encoding="utf-8")
        read = parquet.read_table(store.to_parquet(tmp_path / "t.parquet")).to_pydict()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(table[0]) == ["a", "status", "message", "result.a", "big", "n", "f", "m", "l", "s"]
    assert isinstance(frame, pandas.DataFrame)
    assert frame["status"].tolist() == ["done"] * 4 + ["failed"]
    assert [float(row["f"]) for row in rows[:2]] == [third, tiny]
    assert (rows[0]["big"], rows[0]["s"]) == (str(2**70), '=1,\n"ü')
    assert read["f"][:2] == [third, tiny]
    assert read["f"][2] != read["f"][2]
    assert read["f"][3:] == [2.0, None]
    assert read["result.a"] == [9, 8, 7, 6, None]
    assert read["big"][:2] == [str(2**70), "1"]
    assert read["l"][:2] == ['[1,"inf"]', None]
    assert rows[0]["l"] == '[1,"inf"]'
    assert read["n"] == [str(2**70), None, "nan", "0.1", None]
    assert [row["n"] for row in rows] == [text or "" for text in read["n"]]
    assert read["m"] == ["1", '"t"', "true", None, None]
    assert read["message"][-1] == "ValueError: no"
