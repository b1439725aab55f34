"""Proofs as files: JSON documents that say what they claim and hold the tapes behind it.

Anything unexpected in a document is refused, so that no part of it means more than a replay looks
at.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TextIO, TypeVar

import numpy as np

from relunorm.atomic import atomic_path
from relunorm.errors import InvalidInputError
from relunorm.search.proofs.tape import Ended, Tape

Proof = TypeVar("Proof", bound="Document")


class Document:
    """A proof that is written and read; its class says how.

    Attributes:
        SCHEMA: what the document calls itself.
        KEYS: what it holds, apart from the schema.
    """

    SCHEMA: ClassVar[str]
    KEYS: ClassVar[frozenset[str]]

    def write(self, file: TextIO) -> None:
        """Write the document into an open file."""
        raise NotImplementedError

    @classmethod
    def read(cls: type[Proof], document: dict[str, Any]) -> Proof:
        """The proof of a document with the right keys; raises ValueError for a damaged one."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the document, atomically."""
        with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            self.write(file)

    @classmethod
    def load(cls: type[Proof], path: str | Path) -> Proof:
        """Read a document."""
        return cls.from_dict(read(path))

    @classmethod
    def from_dict(cls: type[Proof], document: Any) -> Proof:
        """The proof of a document; anything unexpected in it is refused."""
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != cls.SCHEMA:
            raise InvalidInputError(
                f"not a proof that can be read: its schema is {schema!r:.60}, and this version "
                f"reads {cls.SCHEMA!r} only; make it again with it"
            )
        odd = sorted(set(document) ^ {"schema", *cls.KEYS})
        if odd:
            raise InvalidInputError(f"the proof has keys too many or too few: {', '.join(odd)}")
        try:
            return cls.read(document)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the proof is damaged: {error}") from None


def read(path: str | Path) -> Any:
    """The document of a proof, whatever it proves."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path}: not a proof that can be read: {error}") from None


def finite(value: Any) -> float:
    """A finite number of a document."""
    if isinstance(value, bool) or not np.isfinite(float(value)):
        raise ValueError(f"the claim {value!r:.40} is not a finite number")
    return float(value)


def encoded(tape: Tape | Ended) -> Iterator[str]:
    """The pieces of a tape as text."""
    return (base64.b64encode(piece).decode("ascii") for piece in tape.pieces())


def decoded(pieces: Any) -> Tape:
    """The tape of a document."""
    tape = Tape()
    for piece in pieces:
        try:
            raw = zlib.decompress(base64.b64decode(piece, validate=True))
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"a piece of the tape cannot be read: {error}") from None
        if len(raw) % 8:
            raise ValueError("a piece of the tape is cut short")
        tape.write(np.frombuffer(raw))
    return tape
