"""Where a search writes what it did: compressed pieces of an array, on disk once there are many."""

from __future__ import annotations

import tempfile
import weakref
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

#: Bytes kept in memory.
IN_MEMORY = 1 << 26

#: Marks of entries: a cut, a group closed on a node, or on the node folded whole, and a node whose
#: units were bounded under what is known there.
CUT, CLOSED, FOLDED, TIGHTENED = 1.0, 2.0, 3.0, 4.0


class BrokenTape(ValueError):
    """The tape does not hold what a search writes."""


class Tape:
    """Pieces of a float array, appended and read back in order.

    >>> tape = Tape()
    >>> tape.write(np.array([1.0, 2.0]))
    >>> [part.tolist() for part in tape]
    [[1.0, 2.0]]
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._sizes: list[int] = []
        weakref.finalize(self, self._file.close)

    def write(self, numbers: NDArray[np.float64]) -> None:
        """Append a piece."""
        piece = zlib.compress(np.ascontiguousarray(numbers).tobytes(), 1)
        self._file.seek(0, 2)
        self._file.write(piece)
        self._sizes.append(len(piece))

    def pieces(self) -> Iterator[bytes]:
        """The compressed pieces."""
        at = 0
        for size in self._sizes:
            self._file.seek(at)
            yield self._file.read(size)
            at += size

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        for piece in self.pieces():
            yield np.frombuffer(zlib.decompress(piece))

    @property
    def bytes(self) -> int:
        """Length of all pieces."""
        return sum(self._sizes)
