"""Importing the package and asking for help must not load the heavy packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "onnx", "onnxruntime", "numba", "sklearn", "matplotlib", "highspy", "pandas")
HEAVY += ("joblib", "dask", "distributed", "ray", "sqlite3")

CALL = "from relunorm.cli import main\ntry: main({})\nexcept SystemExit: pass"


@pytest.mark.parametrize(
    "code",
    [
        "import relunorm",
        "import relunorm; relunorm.Network; relunorm.Box; relunorm.load",
        CALL.format(["--help"]),
        CALL.format(["info", "example:moons"]),
    ],
)
def test_heavy_packages_are_not_imported(code: str) -> None:
    check = f"{code}\nimport sys\nprint('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_every_public_name_resolves() -> None:
    import relunorm

    for name in relunorm._HOME:
        assert getattr(relunorm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = relunorm.nonsense
