"""State dicts: read into a module's copy, refused alone, and no code is ever run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import relunorm as rn
from relunorm.errors import ModelFileError, RelunormError, UnsupportedFormatError


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("wrapped", [False, True])
def test_state_dict_with_its_architecture(wrapped: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    saved, module = small(), small()
    state = saved.state_dict()
    torch.save({"state_dict": state, "epoch": 3} if wrapped else state, tmp_path / "weights.pt")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = rn.load(tmp_path / "weights.pt", architecture=module)
    X = torch.randn(5, 3, dtype=torch.float64)
    np.testing.assert_allclose(network(X.numpy()), saved(X).detach().numpy(), rtol=1e-12)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_state_dict_alone_asks_for_the_architecture(tmp_path: Path) -> None:
    torch.save(small().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(UnsupportedFormatError, match=r"0\.weight \(4, 3\).*architecture=module"):
        rn.load(tmp_path / "weights.pth")


def test_state_dict_of_another_module(tmp_path: Path) -> None:
    torch.save(small().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ModelFileError, match="does not fit"):
        rn.load(tmp_path / "weights.pt", architecture=nn.Linear(2, 2))


def test_pickled_module_is_refused(tmp_path: Path) -> None:
    torch.save(small(), tmp_path / "module.pt")
    with pytest.raises(ModelFileError, match=r"holds code.*\.onnx or .*\.pt2"):
        rn.load(tmp_path / "module.pt")


def test_bomb_does_not_go_off(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return Path.touch, (tmp_path / "exploded",)

    torch.save({"weight": Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(ModelFileError, match="never loaded"):
        rn.load(tmp_path / "bomb.pt", architecture=small())
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"hello", b"PK\x03\x04junk", b"\x80\x02}q\x00.", b"\x80\x04."])
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.pt").write_bytes(content)
    with pytest.raises(RelunormError, match=r"broken\.pt"):
        rn.load(tmp_path / "broken.pt", architecture=small())
