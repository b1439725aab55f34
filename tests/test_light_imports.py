"""Importing the package and asking for help must not load the heavy packages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "onnx", "onnxruntime", "llvmlite", "sklearn", "matplotlib", "highspy", "pandas")
HEAVY += ("joblib", "dask", "distributed", "ray", "sqlite3")

CALL = "from relunorm.cli import main\ntry: main({})\nexcept SystemExit: pass"


@pytest.mark.parametrize(
    "code",
    [
        "import relunorm",
        "import relunorm; relunorm.Network; relunorm.Box; relunorm.load",
        CALL.format(["--help"]),
        CALL.format(["info", "example:moons"]),
        "import relunorm; relunorm.compare, relunorm.normalize, relunorm.verify",
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


WITHOUT_TORCH = """
import sys
from pathlib import Path

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import relunorm as rn

rows = np.random.default_rng(0).uniform(-1, 1, (12, 3))
net = rn.load(sys.argv[1])
small = rn.normalize(net, "canonical", (-1, 1))
assert rn.verify(small.certificate, net, small.network).holds
assert rn.compare(sys.argv[1], small.network, (-1, 1)).verdict == "within"
assert rn.certify(net, rows[:1], radius=1e-6).counts["robust"] == 1
page = rn.report(net, rows, net(rows).argmax(axis=1), time_limit=20)
assert all(entry["body"] is not None for entry in page.sections.values()), page.sections
rn.save(small.network, sys.argv[1] + ".small.onnx")
for needs in (lambda: rn.to_torch(net), lambda: rn.DeadUnitMonitor, lambda: rn.nn.constrain,
              lambda: rn.ReLURegressor().fit(rows, rows[:, 0])):
    try:
        needs()
    except rn.errors.MissingDependencyError as error:
        assert "relunorm[torch]" in str(error), error
    else:
        raise AssertionError("torch was there")
assert "torch" not in sys.modules
print("DONE")
"""


def test_torch_is_not_needed_for_onnx_files(tmp_path: Path) -> None:
    """Reads, normalizes, compares, certifies, reports and writes where torch is not installed."""
    import numpy as np

    import relunorm as rn

    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(5, 3)), rng.normal(size=(2, 5))])
    rn.save(net.replace(head=rn.Head((rn.Step("softmax"),))), tmp_path / "net.onnx")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "net.onnx")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["DONE"], done.stderr


def test_what_is_installed_by_default() -> None:
    """torch, which is large, is an extra; its extra and the pinned versions agree."""
    tomllib = pytest.importorskip("tomllib", reason="tomllib came with Python 3.11")
    root = Path(__file__).parent.parent
    fields = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pinned = {
        line.partition("==")[0].lower() for line in (root / "constraints.txt").read_text().split()
    }
    names = [re.split(r"[\[<>= ]", d)[0].lower() for d in fields["dependencies"]]
    assert "torch" not in names
    extras = fields["optional-dependencies"]
    every = {re.split(r"[\[<>= ]", d)[0].lower() for group in extras.values() for d in group}
    missing = {n.replace("-", "_") for n in {*names, *every} - {"relunorm"}} - {
        n.replace("-", "_") for n in pinned
    }
    assert not missing
