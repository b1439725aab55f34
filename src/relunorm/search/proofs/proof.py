"""The proof of a search as a file: a JSON document that holds the question, the claim and the tape.

The tape is written piece by piece as it was recorded, so that a proof of a million parts never lies
in memory as a whole while it is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

import numpy as np

from relunorm.bounds.nodes.form import fits, triangular
from relunorm.bounds.problem import Group
from relunorm.clock import NO_LIMIT, Teller
from relunorm.domain.documents import domain_to_dict, reach_from_dict
from relunorm.domain.reach import Reach
from relunorm.network import Network
from relunorm.search.folding import fold
from relunorm.search.proofs.document import Document, decoded, encoded, finite
from relunorm.search.proofs.replay import Replayed, replay, replay_whole, warm_up
from relunorm.search.proofs.tape import BrokenTape, Ended, Tape

#: What a claim leaves, relative, for a machine that adds in another order.
MARGIN = 1e-12


@dataclass(frozen=True, eq=False)
class SearchProof(Document):
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

    SCHEMA: ClassVar[str] = "relunorm.proof/2"
    KEYS: ClassVar[frozenset[str]] = frozenset(
        ("network", "domain", "groups", "claim", "unit_steps", "counts", "tape")
    )

    digest: str
    reach: Reach
    groups: tuple[Group, ...]
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
        Teller(None, NO_LIMIT).compile("the replay of its proofs", warm_up)
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

    def write(self, file: TextIO) -> None:
        """Write the document into an open file."""
        file.write(json.dumps(self._head())[:-1] + ', "tape": [')
        for number, piece in enumerate(encoded(self.tape)):
            file.write(("," if number else "") + json.dumps(piece))
        file.write("]}\n")

    def _head(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "network": self.digest,
            "domain": domain_to_dict(self.reach),
            "groups": [{"A": A.tolist(), "b": b.tolist()} for A, b in self.groups],
            "claim": {"limit": self.limit, "strict": self.strict},
            "unit_steps": self.unit_steps,
            "counts": None if self.counts is None else list(self.counts),
        }

    @classmethod
    def read(cls, document: dict[str, Any]) -> SearchProof:
        """See `Document`."""
        return cls(
            str(document["network"]),
            reach_from_dict(document["domain"]),
            tuple(_group(group) for group in document["groups"]),
            finite(document["claim"]["limit"]),
            bool(document["claim"]["strict"]),
            decoded_steps(document["unit_steps"]),
            decoded(document["tape"]),
            decoded_counts(document["counts"]),
        )


def _group(group: Any) -> Group:
    A, b = np.array(group["A"], dtype=np.float64), np.array(group["b"], dtype=np.float64)
    if A.ndim != 2 or b.shape != (len(A),) or not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise ValueError("a group of goals has the wrong shape")
    return A, b


def decoded_steps(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 1000:
        raise ValueError(f"unit_steps is {value!r}")
    return value


def decoded_counts(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        raise ValueError(f"counts is {value!r}")
    return tuple(value)
