"""The documentation builds without a warning, which runs every gallery script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
def test_the_documentation_builds_and_its_scripts_run(tmp_path: Path) -> None:
    pytest.importorskip("sphinx_gallery", reason="sphinx-gallery is not installed")
    for name in ("docs", "examples", "benchmarks"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns("_build", "gallery", "__pycache__"),
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
    scripts = sorted((ROOT / "examples").glob("plot_*.py"))
    assert len(scripts) >= 7
    for script in scripts:
        page = (built / "gallery" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert "sphx-glr-script-out" in page, f"{script.name} printed nothing"
    for seed in ("000", "001", "002", "003", "004"):
        page = (built / "papers" / f"{seed}.html").read_text(encoding="utf-8")
        assert "Errata" in page
        assert "viewcode-link" in page, "no way from the seed's page to the code of its figures"
    # Nothing on a page is fetched from elsewhere.
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text
