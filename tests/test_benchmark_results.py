"""The page of results is made of the tables that were kept."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def recorder():
    spec = importlib.util.spec_from_file_location("record", ROOT / "benchmarks" / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_the_tables(recorder):
    assert recorder.PAGE.read_text("utf-8") == recorder.page()


def test_every_table_says_when_and_is_one(recorder):
    for path in recorder.FOLDER.glob("*.json"):
        table = json.loads(path.read_text("utf-8"))
        assert path.stem == recorder.slug(table["title"])
        assert table["date"]
        assert table["rows"]
        assert all(len(row) == len(table["header"]) for row in table["rows"])


def test_a_table_is_kept_from_a_clean_tree_only(recorder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recorder, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(recorder, "PAGE", tmp_path / "RESULTS.md")
    monkeypatch.setattr(recorder, "_commit", lambda: "abc-dirty")
    recorder.record("a: b", ["x"], [[1.0]], "note")
    assert "not kept" in capsys.readouterr().out
    assert not recorder.PAGE.exists()
    monkeypatch.setattr(recorder, "_commit", lambda: "abc")
    recorder.record("a: b", ["x", "y"], [[1.23456, "z"]], "note")
    assert json.loads((tmp_path / "results" / "a-b.json").read_text())["rows"] == [[1.23456, "z"]]
    assert "| 1.235 | z |" in recorder.PAGE.read_text()
