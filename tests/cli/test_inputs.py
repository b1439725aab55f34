"""What commands read beside models: points, slices, numbers of outputs, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relunorm as rn
from relunorm.cli import main

#: Files that a test may name, by what is in them.
FILES = {
    "zip.npy": b"PK\x03\x04 and nothing of an archive",
    "empty.npy": b"",
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("region", "--at", "zip.npy"), "zip.npy is not an array file"),
        (("region", "--at", "empty.npy"), "empty.npy is not an array file"),
        (("regions", "--slice", "@zip.npy"), "zip.npy is not an array file"),
        (("regions", "--slice", "@several.npz"), "several.npz is not an array file (.npy)"),
        (("regions", "--slice", "\N{SUPERSCRIPT TWO},1"), "no input is called"),
        (("regions", "--output", "2", "-o", "r.png"), "output 2 does not exist; there are 2"),
        (("regions", "--output", "-1", "-o", "r.png"), "output -1 does not exist"),
        (("maximize", "--domain", "box:-1,1", "--direction", "nan"), "has 1 entries, expected 2"),
        (("maximize", "--domain", "box:-1,1", "--direction", "-inf"), "has 1 entries, expected 2"),
        (("lipschitz", "--seed", "-1"), "greater than or equal to 0"),
        (("sensitivity", "--domain", "box:-1,1", "--seed", "-1"), "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    np.savez("several.npz", a=np.zeros(2), b=np.zeros(2))
    rng = np.random.default_rng(0)
    rn.save(rn.Network.from_weights([rng.normal(size=(3, 2)), rng.normal(size=(2, 3))]), "net.npz")
    command, *rest = arguments
    with pytest.raises(SystemExit) as stop:
        main([command, "net.npz", *rest])
    assert stop.value.code == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in told
    assert not Path("r.png").exists()
