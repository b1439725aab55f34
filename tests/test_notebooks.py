"""The notebooks of examples/ run from top to bottom, and hold what they showed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples/notebooks").glob("*.ipynb"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    book = nbformat.read(path, as_version=4)
    kept = [[out.output_type for out in cell.get("outputs", [])] for cell in book.cells]
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, resources=where).execute()
    again = [[out.output_type for out in cell.get("outputs", [])] for cell in book.cells]
    assert again == kept


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_was_executed_and_names_no_folder(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    outputs = [out for cell in book.cells for out in cell.get("outputs", [])]
    assert any("text/html" in out.get("data", {}) for out in outputs)
    assert any("image/png" in out.get("data", {}) for out in outputs)
    texts = [str(out.get("data", {}).get(kind, "")) for out in outputs for kind in
             ("text/plain", "text/html")]  # fmt: skip
    assert not [text for text in texts if re.search(r"(^|[\s>'\"])(/[a-z]+/|[A-Z]:\\)", text)]


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4
