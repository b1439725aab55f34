"""Files of every own format: round trips, damage, and writing that never loses the old file."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import ARCHIVES, networks

import relunorm as rn
from relunorm import io
from relunorm.atomic import atomic_path, write_bytes
from relunorm.errors import MissingFileError, ModelFileError, RelunormError, UnsupportedFormatError

SMALL = rn.Network.from_weights([[[1.0, -2.0], [0.5, 1.0]], [[1.0, 1.0]]], [[0.1, 0.2], [0.3]])


@pytest.mark.parametrize("ending", ARCHIVES)
@given(network=networks())
def test_round_trip_is_exact(
    network: rn.Network, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / f"net.{ending}"
    rn.save(network, path)
    back = rn.load(path)
    assert back == network
    assert [layer.name for layer in back.layers] in (
        [layer.name for layer in network.layers],
        [""] * len(network.layers),
    )


@pytest.mark.parametrize("ending", ARCHIVES)
def test_float32_rounds_once(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"net.{ending}"
    rn.save(SMALL, path, dtype="float32")
    expected = np.float64(np.float32(0.1))
    assert rn.load(path).layers[0].affine.bias[0] == expected


def test_plain_npz_is_the_documented_form(tmp_path: Path) -> None:
    rn.save(SMALL, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as arrays:
        assert sorted(arrays.files) == ["W0", "W1", "b0", "b1"]
        np.testing.assert_array_equal(arrays["W0"], [[1.0, -2.0], [0.5, 1.0]])


@pytest.mark.parametrize("ending", [*ARCHIVES, "onnx"])
@given(cut=st.floats(0, 1), noise=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255))))
def test_damaged_files_give_our_errors(
    cut: float, noise: list[tuple[float, int]], ending: str, tmp_path_factory
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("files") / f"net.{ending}"
    rn.save(SMALL, path)
    content = bytearray(path.read_bytes())
    for where, value in noise:
        content[int(where * (len(content) - 1))] = value
    path.write_bytes(content[: int(cut * len(content))] if not noise else content)
    try:
        loaded = rn.load(path)
    except RelunormError as error:
        assert str(path) in str(error)  # noqa: PT017 - loading may also succeed
    else:
        assert isinstance(loaded, rn.Network)


def test_npz_that_lies_about_its_size(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    header = b"\x93NUMPY\x01\x00"
    fields = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    fields += b" " * (118 - len(fields) - 1) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("W0.npy", header + len(fields).to_bytes(2, "little") + fields)
    with pytest.raises(ModelFileError, match="claims to hold"):
        rn.load(path)


def test_npz_with_a_pickle_is_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return Path.touch, (tmp_path / "exploded",)

    np.savez(tmp_path / "pickle.npz", W0=np.array([Bomb()], dtype=object), b0=np.zeros(1))
    with pytest.raises(ModelFileError, match="pickle"):
        rn.load(tmp_path / "pickle.npz")
    assert not (tmp_path / "exploded").exists()


def test_other_contents_are_explained(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", kernel=np.ones(2))
    with pytest.raises(ModelFileError, match="expected W0, b0"):
        rn.load(tmp_path / "a.npz")
    np.savez(tmp_path / "more.npz", W0=np.ones((1, 2)), b0=np.zeros(1), accuracy=0.9)
    assert rn.load(tmp_path / "more.npz").widths == (2, 1)
    np.savez(tmp_path / "b.npz", W0=np.array([["a"]]), b0=np.zeros(1))
    with pytest.raises(ModelFileError, match="expected numbers"):
        rn.load(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", W0=np.ones((2, 3)), b0=np.zeros(2), W1=np.ones((1, 5)), b1=[0.0])
    with pytest.raises(RelunormError, match=r"c\.npz"):
        rn.load(tmp_path / "c.npz")
    (tmp_path / "empty.npz").touch()
    with pytest.raises(ModelFileError, match="empty"):
        rn.load(tmp_path / "empty.npz")
    with pytest.raises(ModelFileError, match="folder"):
        (tmp_path / "dir.npz").mkdir()
        rn.load(tmp_path / "dir.npz")
    with pytest.raises(UnsupportedFormatError, match="unknown ending"):
        rn.load(tmp_path / "model.foo")
    with pytest.raises(UnsupportedFormatError, match="object of type"):
        rn.load(3.0)


def test_a_format_that_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(io.READERS, ".read", io.READERS[".npz"])
    rn.save(SMALL, tmp_path / "net.npz")
    path = (tmp_path / "net.npz").rename(tmp_path / "net.read")
    assert rn.load(path) == SMALL
    with pytest.raises(UnsupportedFormatError, match=r"no network is written as '\.read'"):
        rn.save(SMALL, path)


def test_safetensors_without_architecture(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weight": np.ones((2, 2))}, tmp_path / "plain.safetensors")
    with pytest.raises(ModelFileError, match="no architecture"):
        rn.load(tmp_path / "plain.safetensors")


def test_tampered_headers(tmp_path: Path) -> None:
    """Every single field of a header replaced by something else: our error or a network."""
    net = rn.Network(
        [rn.Layer(rn.Affine({0: rn.load(SMALL).layers[0].affine.terms[0]}, [0.0, 0.0]))],
        rn.Affine({0: np.ones((1, 2)), 1: sp.csr_array([[1.0, 0.0]])}, [0]),
        input_shape=2,
    )
    from relunorm.io.archive import decode, encode

    text, arrays = encode(net, "float64")

    def paths(value, here=()):  # type: ignore[no-untyped-def]
        yield here
        items = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for key, inner in items:
            yield from paths(inner, (*here, key))

    count = 0
    for path in list(paths(json.loads(text)))[1:]:
        for junk in (None, -1, 10**12, "x", [], {}, [[1]], 1e400):
            header = json.loads(text)
            spot = header
            for key in path[:-1]:
                spot = spot[key]
            spot[path[-1]] = junk
            try:
                decode(json.dumps(header), arrays.__getitem__, "file")
            except RelunormError:
                count += 1
    assert count > 100


def test_writing_is_atomic(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    write_bytes(target, b"old")
    os.chmod(target, 0o640)
    with pytest.raises(RuntimeError, match="midway"), atomic_path(target) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError("midway")
    assert target.read_bytes() == b"old"
    with pytest.raises(KeyboardInterrupt), atomic_path(target) as temporary:
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["file.bin"]
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640
    link = tmp_path / "link.bin"
    link.symlink_to(target)
    write_bytes(link, b"through")
    assert link.is_symlink()
    assert target.read_bytes() == b"through"


def test_a_folder_is_no_place_to_write_to(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="folder") as caught:
        write_bytes(tmp_path, b"new")
    assert caught.value.filename == str(tmp_path)
    assert not list(tmp_path.parent.glob(".*.tmp"))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none: there is no such folder"):
        rn.save(rn.Network.from_weights([[[1.0]]]), tmp_path / "none" / "net.npz")


def test_a_failed_save_keeps_the_old_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    rn.save(SMALL, path)
    before = path.read_bytes()
    huge = rn.Network.from_weights([[[1e300]]])
    with pytest.raises(UnsupportedFormatError, match="does not fit float32"):
        rn.save(huge, path)
    assert path.read_bytes() == before
    with pytest.raises(UnsupportedFormatError, match="float16"):
        rn.save(SMALL, path, dtype="float16")  # type: ignore[arg-type]
