"""The documentation builds without a warning; its tutorials and commands are the current ones."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tutorials, commands, operations = map(_script, ("tutorials", "commands", "operations"))


def test_the_page_of_commands_is_current() -> None:
    """`python scripts/commands.py` writes it."""
    assert commands.PAGE.read_text(encoding="utf-8") == commands.text()


def test_the_list_of_operations_is_current() -> None:
    """`python scripts/operations.py` writes it."""
    assert operations.PAGE.read_text(encoding="utf-8") == operations.text()


@pytest.mark.parametrize("name", tutorials.scripts())
def test_a_tutorial_shows_its_script_as_it_is(name: str) -> None:
    """`python scripts/tutorials.py NAME` runs it and writes the page."""
    path = tutorials.scripts()[name]
    page, at = (tutorials.PAGES / f"{name}.md").read_text(encoding="utf-8"), 0
    pieces = list(tutorials.blocks(path.read_text(encoding="utf-8")))
    assert sum(kind == "code" for kind, _ in pieces) >= 3
    for kind, content in pieces:
        piece = tutorials.shown(kind, content)
        at = page.index(piece, at) + len(piece)
    outputs = page.count("```text")
    assert outputs >= 2, "the page shows nothing that the script printed"
    for picture in re.findall(r"\]\((\S+\.png)\)", page):
        assert (tutorials.PAGES / picture).is_file()
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert f"tutorials/{name}" in index


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # as where a reader runs them
@pytest.mark.parametrize("path", tutorials.scripts().values(), ids=lambda path: path.stem)
def test_the_scripts_of_the_tutorials_run(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As ``python SCRIPT`` would, in names of its own, but with the packages loaded already."""
    import matplotlib
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    before = matplotlib.get_backend()
    matplotlib.use("agg")
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        plt.close("all")
        matplotlib.use(before)
    assert capsys.readouterr().out.strip()


@pytest.mark.long
def test_the_documentation_builds(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser", reason="myst-parser is not installed")
    for name in ("docs", "examples", "benchmarks"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns("_build", "__pycache__"),
        )
    built = tmp_path / "html"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(built)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in tutorials.scripts():
        assert (built / "tutorials" / f"{name}.html").is_file()
    for seed in ("000", "001", "002", "003", "004"):
        page = (built / "papers" / f"{seed}.html").read_text(encoding="utf-8")
        assert "Errata" in page
        assert "viewcode-link" in page, "no way from the seed's page to the code of its figures"
    # Nothing on a page is fetched from elsewhere.
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text
