"""Where a search writes what it did: compressed pieces of an array, on disk once there are many."""

from __future__ import annotations

import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relunorm.matrix import Array

#: Bytes kept in memory, and numbers of a piece that is put together.
IN_MEMORY, PIECE = 1 << 26, 1 << 16

#: Marks of entries: a cut, a group closed on a node, or on the node folded whole, and a node whose
#: units were bounded under what is known there.
CUT, CLOSED, FOLDED, TIGHTENED = 1.0, 2.0, 3.0, 4.0


#: The first number of every tape of a search, wherever it is kept. It counts up when entries change
#: or what a replay makes of them, and is larger than any mark: a tape without it is not misread.
VERSION = 103.0


class BrokenTape(ValueError):
    """The tape does not hold what a search writes."""


class Tape:
    """Pieces of a float array, appended and read back in order.

    Args:
        later: whether pieces are compressed when they are asked for, not when they are written:
            for numbers that hardly repeat, of which few tapes are ever read.

    >>> tape = Tape()
    >>> tape.write(np.array([1.0, 2.0]))
    >>> [part.tolist() for part in tape]
    [[1.0, 2.0]]
    """

    def __init__(self, later: bool = False) -> None:
        self._later = later
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._sizes: list[int] = []
        weakref.finalize(self, self._file.close)

    def __reduce__(self) -> tuple[Any, ...]:
        return _tape, (self._later, [*self._kept()])  # the file may be on disk

    def write(self, numbers: Array) -> None:
        """Append a piece."""
        self._keep(np.ascontiguousarray(numbers).tobytes() if self._later else packed(numbers))

    def append(self, piece: bytes) -> None:
        """Append a piece that is compressed already, by another thread or process."""
        self._keep(zlib.decompress(piece) if self._later else piece)

    def _keep(self, piece: bytes) -> None:
        self._file.seek(0, 2)
        self._file.write(piece)
        self._sizes.append(len(piece))

    def ended(self, last: Callable[[], Iterable[Array]]) -> Ended:
        """What was written until now, and ``last`` behind it."""
        return Ended(self, len(self._sizes), last)

    def pieces(self, count: int | None = None) -> Iterator[bytes]:
        """The compressed pieces, or the first of them."""
        kept = self._kept(count)
        return (packed(np.frombuffer(piece)) for piece in kept) if self._later else kept

    def _kept(self, count: int | None = None) -> Iterator[bytes]:
        at = 0
        for size in self._sizes[:count]:
            self._file.seek(at)
            yield self._file.read(size)
            at += size

    def __iter__(self) -> Iterator[Array]:
        return map(np.frombuffer if self._later else _unpacked, self._kept())

    @property
    def bytes(self) -> int:
        """Length of all pieces, as they are kept."""
        return sum(self._sizes)


def _tape(later: bool, kept: Iterable[bytes]) -> Tape:
    """A tape of pieces as they were kept."""
    tape = Tape(later)
    for piece in kept:
        tape._keep(piece)
    return tape


@dataclass(frozen=True, eq=False)
class Ended:
    """The first ``count`` pieces of a tape that may go on, and others made when they are read."""

    tape: Tape
    count: int
    last: Callable[[], Iterable[Array]]

    def pieces(self) -> Iterator[bytes]:
        """The compressed pieces."""
        yield from self.tape.pieces(self.count)
        gathered: list[Array] = []
        for numbers in self.last():
            gathered.append(numbers)
            if sum(map(len, gathered)) > PIECE:
                yield packed(np.concatenate(gathered))
                gathered = []
        if gathered:
            yield packed(np.concatenate(gathered))

    def __iter__(self) -> Iterator[Array]:
        return map(_unpacked, self.pieces())

    @property
    def bytes(self) -> int:
        """Length of all pieces."""
        return sum(map(len, self.pieces()))


def packed(numbers: Array) -> bytes:
    """A piece, compressed."""
    return zlib.compress(np.ascontiguousarray(numbers).tobytes(), 1)


def _unpacked(piece: bytes) -> Array:
    return np.frombuffer(zlib.decompress(piece))
