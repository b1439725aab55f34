"""The page as a file: one self-contained file, and everything it is made of is in the wheel."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import relunorm as rn
from relunorm.report.report import SCRIPTS, STYLES, embed

ROOT = Path(__file__).resolve().parents[2]


class Reader(HTMLParser):
    """Collects the elements, and what stands in scripts and styles."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.inside: list[tuple[str, dict[str, Any], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag in ("script", "style") and data.strip():
            self.inside.append((tag, attributes, data))


def test_the_page_holds_the_document_and_refers_to_nothing(moons: rn.Report) -> None:
    page = moons.html()
    assert len(page.encode()) < 2e6
    reader = Reader(page)
    found = [text for _, attributes, text in reader.inside if attributes.get("id") == "report"]
    assert json.loads(found[0]) == moons.to_dict()
    for tag, attributes in reader.tags:
        assert tag not in ("img", "iframe", "object", "embed", "form", "base")
        assert "src" not in attributes
        assert attributes.get("href", "data:,") == "data:,"
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    code = re.sub(r"<script type.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", code)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                 "fetch(", "XMLHttpRequest", "@import", "@font-face"):  # fmt: skip
        assert word not in code


def test_the_policy_allows_these_scripts_and_no_others(moons: rn.Report) -> None:
    reader = Reader(moons.html())
    policy = next(a["content"] for t, a in reader.tags if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes, text in reader.inside:
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy, f"a {tag} that would not run"


@pytest.mark.parametrize("text", ["</script>", "<!--", "a&b", "\u2028", "\u2029", "\ud800", '"\\'])
def test_embedded_text_comes_back_and_cannot_end_the_script(text: str) -> None:
    embedded = embed({"name": text})
    assert json.loads(embedded) == {"name": text}
    assert not set("<>&\u2028\u2029\ud800") & set(embedded)


def test_saving_replaces_a_page_whole(moons: rn.Report, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    moons.save(path)
    assert path.read_text(encoding="utf-8") == moons.html()
    assert list(tmp_path.iterdir()) == [path]


def test_every_asset_is_used_and_in_order() -> None:
    folder = files("relunorm.report") / "assets"
    there = {item.name for item in folder.iterdir() if not item.name.startswith("_")}
    assert there == {*SCRIPTS, *STYLES}
    assert SCRIPTS[-1] == "main.js"


def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the wheel is built where hatchling is installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    wanted = {f"assets/{name}" for name in (*SCRIPTS, *STYLES)} | {"schema.json"}
    assert {f"relunorm/report/{name}" for name in wanted} <= names
    assert "relunorm/examples/data/moons.npz" in names
