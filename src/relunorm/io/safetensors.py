"""Safetensors files: the arrays of `archive`, the architecture in the file's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from relunorm.atomic import atomic_path
from relunorm.errors import ModelFileError
from relunorm.io.archive import coarsest, decode, encode
from relunorm.network import Network

METADATA = "relunorm"


def read_safetensors(path: Path, example: Any = None) -> Network:
    """Read a network from a .safetensors file written by `write_safetensors`."""
    del example  # the file fixes every shape
    try:
        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(METADATA)
            if header is None:
                raise ModelFileError(
                    f"{path}: holds tensors but no architecture (no {METADATA!r} in its metadata). "
                    "Load the tensors into your module and pass the module to relunorm.load"
                )

            kinds: set[str] = set()

            def fetch(name: str) -> NDArray[Any]:
                array = np.asarray(file.get_tensor(name))
                kinds.add(array.dtype.name)
                return array

            network = decode(header, fetch, str(path))
            return network.replace(precision=coarsest(kinds))
    except SafetensorError as error:
        raise ModelFileError(f"{path}: not a readable .safetensors file ({error})") from None


def write_safetensors(network: Network, path: Path, dtype: str | None = None) -> None:
    """Write a network as .safetensors."""
    header, arrays = encode(network, dtype or "float64")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_path(path) as temporary:
        save_file(contiguous, temporary, metadata={METADATA: header})
