"""NumPy archives: W0, b0, W1, b1, ... for a plain ReLU perceptron, a header for anything else.

The plain form is y = W x + b with relu between layers and none at the end; other arrays beside the
weights are passed over.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.atomic import atomic_path
from relunorm.errors import ModelFileError
from relunorm.io.archive import coarsest, decode, encode
from relunorm.matrix import narrowed
from relunorm.network import RELU, Network
from relunorm.network.head import NO_HEAD

HEADER = "relunorm"

#: Total size of the arrays an archive may claim, in bytes; and, past an easy size, how many times
#: the size of the file itself.
MAX_BYTES = 1 << 33
EASY = 1 << 28
MAX_RATIO = 50


def read_npz(path: Path, example: Any = None) -> Network:
    """Read a network from an .npz file; pickled entries are refused."""
    del example  # the file fixes every shape
    arrays = read_npz_arrays(path)
    if HEADER in arrays:
        header = arrays[HEADER]
        if header.dtype.kind != "U" or header.ndim != 0:
            raise ModelFileError(f"{path}: the entry {HEADER!r} is not a text header")

        def fetch(name: str) -> NDArray[Any]:
            return _numbers(arrays, name, path)

        return decode(str(header), fetch, str(path)).replace(precision=_precision(arrays))
    count = sum(name[:1] == "W" and name[1:].isdecimal() for name in arrays)
    expected = [f"{letter}{k}" for k in range(count) for letter in "Wb"]
    if not count or not set(expected) <= set(arrays):
        names = ", ".join(sorted(arrays)[:8]) or "nothing"
        raise ModelFileError(f"{path}: holds {names}; expected W0, b0, W1, b1, ...")
    weights = [_numbers(arrays, f"W{k}", path) for k in range(count)]
    biases = [_numbers(arrays, f"b{k}", path) for k in range(count)]
    held = _precision({str(k): array for k, array in enumerate((*weights, *biases))})
    return Network.from_weights(weights, biases, origin=str(path)).replace(precision=held)


def _precision(arrays: dict[str, NDArray[Any]]) -> str:
    """Of an archive's numbers; empty where it holds integers only."""
    return coarsest(array.dtype.name for array in arrays.values() if array.dtype.kind == "f")


def write_npz(network: Network, path: Path, dtype: str | None = None) -> None:
    """Write a network as .npz, in the plain form where it has one."""
    dtype = dtype or "float64"
    if _is_plain(network):
        weights, biases = network.weights()
        arrays = {f"W{k}": narrowed(w, dtype, f"W{k}") for k, w in enumerate(weights)}
        arrays |= {f"b{k}": narrowed(b, dtype, f"b{k}") for k, b in enumerate(biases)}
    else:
        header, arrays = encode(network, dtype)
        arrays[HEADER] = np.array(header)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an archive, after checking that it claims no more than it can hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            claimed = sum(member.file_size for member in members)
            if claimed > MAX_BYTES or (
                claimed > EASY and claimed > MAX_RATIO * path.stat().st_size
            ):
                raise ModelFileError(
                    f"{path}: {path.stat().st_size:,} bytes claim to hold {claimed:,}; refused"
                )
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise ModelFileError(f"{path}: holds two entries of the same name")
            for member in members:
                _check_member(archive, member, path)
        with np.load(path, allow_pickle=False) as loaded:
            return {name: np.asarray(loaded[name]) for name in loaded.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError) as error:
        if isinstance(error, ModelFileError | FileNotFoundError | PermissionError):
            raise
        raise ModelFileError(f"{path}: not a readable .npz archive ({error})") from None
    except (KeyError, SyntaxError, RuntimeError, zipfile.LargeZipFile, zlib.error) as error:
        raise ModelFileError(f"{path}: a damaged .npz archive ({error!r})") from None


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    """Refuse an entry whose header claims more numbers than the entry has bytes for."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ModelFileError(f"{path}: entry {member.filename} has .npy version {version}")
        shape, _, dtype = read(file)
    needed = dtype.itemsize
    for n in shape:
        needed *= int(n)
    if dtype.hasobject or needed > member.file_size:
        what = "a pickle" if dtype.hasobject else f"{needed:,} bytes in {member.file_size:,}"
        raise ModelFileError(f"{path}: entry {member.filename} claims to hold {what}")


def _numbers(arrays: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    array = arrays[name]
    if array.dtype.kind not in "fiub":
        raise ModelFileError(f"{path}: entry {name} has type {array.dtype}, expected numbers")
    return array


def _is_plain(network: Network) -> bool:
    """Whether matrices and biases say it all."""
    return (
        network.is_chain
        and network.head == NO_HEAD
        and not network.columns
        and not any(layer.piece or layer.unit_of is not None for layer in network.layers)
        and all(layer.activation == RELU for layer in network.layers)
        and len(network.input_shape) == len(network.output_shape) == 1
        and not any(sp.issparse(m) for a in network.maps for m in a.terms.values())
    )
