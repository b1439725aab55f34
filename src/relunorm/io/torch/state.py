"""State dicts: weights without an architecture, read without running code."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from relunorm.errors import SENSELESS, ModelFileError, UnsupportedFormatError
from relunorm.io.torch.read import detached_copy, from_torch
from relunorm.network import Network

_WAY_OUT = (
    "Export the module instead: torch.onnx.export(...) to .onnx or torch.export.save(...) to .pt2, "
    "or load it yourself and pass the nn.Module to relunorm.load"
)

#: What the restricted unpickler raises on files that are not what they claim to be.
_DAMAGE = (*SENSELESS, AssertionError, EOFError, RuntimeError, UnpicklingError, struct.error)


def read_state(path: Path, example: Any = None, architecture: nn.Module | None = None) -> Network:
    """Read a state dict into a copy of ``architecture``.

    The file is opened with ``weights_only=True``: a pickle that holds code is refused. A state dict
    alone says nothing about how its tensors are connected, so the module is needed.
    """
    state = _tensors(path)
    if architecture is None:
        shown = ", ".join(f"{name} {tuple(t.shape)}" for name, t in list(state.items())[:4])
        more = f" and {len(state) - 4} more" if len(state) > 4 else ""
        raise UnsupportedFormatError(
            f"{path}: a state dict ({shown}{more}) has weights but no architecture; pass the "
            f"module they belong to, relunorm.load(path, architecture=module). {_WAY_OUT}"
        )
    if not isinstance(architecture, nn.Module):
        raise UnsupportedFormatError(
            f"architecture is a {type(architecture).__qualname__}, expected a torch.nn.Module"
        )
    twin = detached_copy(architecture)
    try:
        twin.load_state_dict(state, assign=True)
    except (RuntimeError, ValueError) as error:
        raise ModelFileError(f"{path}: does not fit the architecture: {error}") from None
    return from_torch(twin, example).replace(origin=str(path))


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what cannot be read comes as an exception
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE:
        # torch's own text advises to switch the protection off, so it is not repeated here.
        raise ModelFileError(
            f"{path}: not a plain state dict; it is damaged, or it holds code (a pickled object), "
            f"which is never loaded. {_WAY_OUT}"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):  # training checkpoints
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()
    ):
        raise ModelFileError(f"{path}: not a state dict (names to tensors). {_WAY_OUT}")
    return state
