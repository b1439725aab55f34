"""Lint, format and types: the same checks a reviewer would run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["pyright", "--pythonpath", sys.executable],
    ],
    ids=["lint", "format", "types"],
)
def test_clean(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "exec ./test\n" in (ROOT / ".ci" / "run").read_text()
    assert "./test" in (ROOT / "README.md").read_text()
