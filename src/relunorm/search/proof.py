"""The proof of a search as a file: a JSON document that holds the question, the claim and the tape.

The tape is written piece by piece as it was recorded, so that a proof of a million parts never lies
in memory as a whole while it is written.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relunorm.atomic import atomic_path
from relunorm.bounds.form import fits, triangular
from relunorm.domain.documents import domain_to_dict, reach_from_dict
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.search.folding import fold
from relunorm.search.replay import Replayed, replay, replay_whole
from relunorm.search.tape import BrokenTape, Ended, Tape

Array = NDArray[np.float64]

SCHEMA = "relunorm.proof/1"

KEYS = ("schema", "network", "domain", "groups", "claim", "unit_steps", "counts", "tape")


@dataclass(frozen=True, eq=False)
class SearchProof:
    """That no point of a domain gives a group of goals rhs - A f more than a limit.

    Args:
        digest: of the network.
        reach: the domain, with what proves its box.
        groups: the goals; the value of a group is its least row.
        limit: the largest value; with ``strict`` every value is below it.
        unit_steps: descent steps of the root's units.
        tape: cuts, and the numbers behind the bound of every part.
        counts: of a network too large for one form, how many units of each layer the linear rule
            has bounded before it was folded.
    """

    digest: str
    reach: Reach
    groups: tuple[tuple[Array, Vector], ...]
    limit: float
    strict: bool
    unit_steps: int
    tape: Tape | Ended
    counts: tuple[int, ...] | None = None

    def verify(self, network: Network) -> Replayed:
        """Compute every bound again, from the network and the tape alone."""
        if network.digest != self.digest:
            return Replayed(False, np.inf, 0, "the proof is about another network")
        if (self.counts is None) != fits(network):
            return Replayed(False, np.inf, 0, "the proof is about a network of another size")
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._replayed(network)
        except BrokenTape as error:
            return Replayed(False, np.inf, 0, f"the tape is damaged: {error}")

    def _replayed(self, network: Network) -> Replayed:
        if self.counts is None:
            form = triangular(network, self.reach, self.groups)
            return replay(form, self.unit_steps, self.tape, self.limit, self.strict)
        if len(self.counts) != len(network.layers) + 1:
            raise BrokenTape("it counts the units of another number of layers")
        folded = fold(network, self.reach, self.groups, counts=self.counts)
        start = folded.start
        if start is None:
            return replay_whole(folded, self.tape, self.limit, self.strict)
        return replay(start.form, self.unit_steps, self.tape, self.limit, self.strict, start)

    def save(self, path: str | Path) -> None:
        """Write the document."""
        with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            self.write(file)

    def write(self, file: TextIO) -> None:
        """Write the document into an open file."""
        file.write(json.dumps(self._head())[:-1] + ', "tape": [')
        for number, piece in enumerate(self.tape.pieces()):
            file.write("," if number else "")
            file.write(json.dumps(base64.b64encode(piece).decode("ascii")))
        file.write("]}\n")

    def _head(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "network": self.digest,
            "domain": domain_to_dict(self.reach),
            "groups": [{"A": A.tolist(), "b": b.tolist()} for A, b in self.groups],
            "claim": {"limit": self.limit, "strict": self.strict},
            "unit_steps": self.unit_steps,
            "counts": None if self.counts is None else list(self.counts),
        }

    @classmethod
    def load(cls, path: str | Path) -> SearchProof:
        """Read a document."""
        return cls.from_dict(read(path))

    @classmethod
    def from_dict(cls, document: Any) -> SearchProof:
        """The proof of a document; anything unexpected in it is refused."""
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise InvalidInputError(f"not a proof: the schema is not {SCHEMA}")
        document = {"counts": None, **document}  # not in the first proofs
        if set(document) != set(KEYS):
            odd = sorted(set(document) ^ set(KEYS))
            raise InvalidInputError(f"the proof has keys too many or too few: {', '.join(odd)}")
        try:
            return cls(
                str(document["network"]),
                reach_from_dict(document["domain"]),
                tuple(_group(group) for group in document["groups"]),
                _finite(document["claim"]["limit"]),
                bool(document["claim"]["strict"]),
                _steps(document["unit_steps"]),
                decoded(document["tape"]),
                _counts(document["counts"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the proof is damaged: {error}") from None


def read(path: str | Path) -> Any:
    """The document of a proof, whatever it proves."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path}: not a proof that can be read: {error}") from None


def _group(group: Any) -> tuple[Array, Vector]:
    A, b = np.array(group["A"], dtype=np.float64), np.array(group["b"], dtype=np.float64)
    if A.ndim != 2 or b.shape != (len(A),) or not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise ValueError("a group of goals has the wrong shape")
    return A, b


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not np.isfinite(float(value)):
        raise ValueError("the limit is not a finite number")
    return float(value)


def _steps(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 1000:
        raise ValueError(f"unit_steps is {value!r}")
    return value


def _counts(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        raise ValueError(f"counts is {value!r}")
    return tuple(value)


def decoded(pieces: Any) -> Tape:
    """The tape of a document."""
    tape = Tape()
    for numbers in _numbers(pieces):
        tape.write(numbers)
    return tape


def _numbers(pieces: Any) -> Iterator[Array]:
    for piece in pieces:
        try:
            raw = zlib.decompress(base64.b64decode(piece, validate=True))
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"a piece of the tape cannot be read: {error}") from None
        if len(raw) % 8:
            raise ValueError("a piece of the tape is cut short")
        yield np.frombuffer(raw)
