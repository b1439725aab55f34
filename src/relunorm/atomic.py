"""Writing that never leaves a broken file: temporary file beside the target, fsync, rename."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; it replaces the target if the block succeeds.

    An exception or an interrupt inside the block leaves the old file as it was. The mode of an
    existing target is kept; a symbolic link is followed, not replaced.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder, expected a file", str(path))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:  # name the file the caller knows, not the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, _mode(target))
        _sync(temporary)
        os.replace(temporary, target)
        with suppress(OSError):  # not every file system lets a folder be synced
            _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
