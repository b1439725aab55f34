"""Lint, format and types: the same checks a reviewer would run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [("check",), ("format", "--check")], ids=lambda command: command[0]
)
def test_ruff_is_content(command: tuple[str, ...]) -> None:
    run("ruff", *command, ".")


def everything_typed() -> str:
    """A digest of all that pyrefly's answer depends on: our files and the packages they use."""
    found = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    source = ROOT / "src"
    for file in sorted([*source.rglob("*.py"), *source.rglob("*.pyi")]):
        found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    packages = {f"{d.metadata['Name']} {d.version}" for d in importlib.metadata.distributions()}
    found.update("\n".join([sys.version, *sorted(packages)]).encode())
    return found.hexdigest()


@pytest.mark.long
def test_the_types_hold(request: pytest.FixtureRequest) -> None:
    """Most of a minute, so the same files are not checked a second time after they were clean.

    In one thread, for the types that pyrefly infers may depend on the order in which it goes.
    """
    cache = getattr(request.config, "cache", None)
    digest = everything_typed()
    if cache is None or cache.get("relunorm/typed", "") != digest:
        run("pyrefly", "check", "--threads", "1", "--python-interpreter-path", sys.executable)
        if cache is not None:
            cache.set("relunorm/typed", digest)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "exec ./test\n" in (ROOT / ".ci" / "run").read_text()
    assert "./test" in (ROOT / "README.md").read_text()


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert len(names["cells"]) == 745  # type: ignore[arg-type]
    assert (tmp_path / "moons-small.onnx").exists()
