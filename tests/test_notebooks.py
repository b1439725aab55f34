"""The notebooks of examples/ run from top to bottom, and hold what they showed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples/notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """One process for all notebooks: they take most of their time to import the same packages."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    from jupyter_client import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


def run(book: Any, kernel: Any, folder: Path) -> None:
    """Run a notebook in a folder, with no names left from one before it."""
    fresh = nbformat.v4.new_code_cell(f"import os\nos.chdir({str(folder)!r})\n%reset -f")
    book.cells.insert(0, fresh)
    client = nbclient.NotebookClient(book, km=kernel, timeout=600)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    assert book.cells.pop(0) is fresh


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's machinery
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, kernel: Any, tmp_path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    kept = [[out.output_type for out in cell.get("outputs", [])] for cell in book.cells]
    run(book, kernel, tmp_path)
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
