"""`check`: does a network have the property of a VNN-LIB file?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

import numpy as np

from relunorm.arithmetic.certain import satisfied
from relunorm.clock import Clock, Listener, Progress, Teller
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError
from relunorm.extrema.decide import decide_any
from relunorm.extrema.result import Decision
from relunorm.io.border import Model, accepts, as_network
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.questions.cases import Case, make_cases
from relunorm.questions.vnnlib import Assertions, parse_vnnlib, read_vnnlib
from relunorm.search.engine import warm_up
from relunorm.search.proofs.document import Document
from relunorm.search.proofs.proof import SearchProof
from relunorm.search.proofs.replay import Replayed
from relunorm.sweep.backends import Placement

Answer = Literal["sat", "unsat", "unknown", "timeout"]


@dataclass(frozen=True, eq=False, repr=False)
class Check(Shown):
    """Whether some input satisfies all assertions of a property file.

    Args:
        verdict: ``sat`` (``point`` does: the property is violated), ``unsat`` (none does: it
            holds), ``timeout``, or ``unknown`` where floats cannot tell or worker processes died.
        point: the input, for ``sat``; exact in real arithmetic, in float32 where possible.
        outputs: what the network computes there.
        parts: how many questions there were (boxes of inputs), and how many were settled.
        nodes, seconds: the effort, wall time without compiling.
        proof: for ``unsat``, what `CheckProof.verify` replays; None where there is none.
    """

    verdict: Answer
    point: Vector | None
    outputs: Vector | None
    parts: tuple[int, int]
    nodes: int
    seconds: float
    proof: CheckProof | None = None

    def result(self) -> str:
        """The answer as VNN-COMP wants it: a word, then for ``sat`` the assignment.

        >>> Check("sat", np.array([0.5]), np.array([2.0]), (1, 1), 0, 0.0).result()
        'sat\\n((X_0 0.5)\\n (Y_0 2.0))\\n'
        """
        if self.point is None or self.outputs is None:
            return f"{self.verdict}\n"
        named = [f"(X_{i} {float(v)!r})" for i, v in enumerate(self.point)]
        named += [f"(Y_{i} {float(v)!r})" for i, v in enumerate(self.outputs)]
        return "sat\n(" + "\n ".join(named) + ")\n"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.check/1",
            **entries(self, "verdict point outputs"),
            "parts": self.parts[0],
            "settled": self.parts[1],
            **entries(self, "nodes seconds"),
            "proved": self.proof is not None,
        }

    def __repr__(self) -> str:
        return f"Check({self.verdict}, {self.nodes} nodes, {self.seconds:.2f} s)"


@accepts("model")
def check(
    model: Model,
    prop: str | Path | Assertions,
    time_limit: float | Clock | None = 60.0,
    random_state: int = 0,
    progress: Listener | None = None,
    workers: int | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
) -> Check:
    """Decide a property file: is there an input that satisfies its assertions?

    A property file describes what must not happen, so ``unsat`` means that the property holds.
    ``sat`` comes with an input that lies in the domain and satisfies the assertions in real
    arithmetic; ``unsat`` with a proof that replays. Numbers in the file are read as the nearest
    float64.

    Args:
        model: a `Network`, or anything `load` reads.
        prop: a .vnnlib file (1.0, or 2.0 about one network; may be gzipped), or the result of
            `parse_vnnlib`. Linear constraints on inputs and outputs, also mixed; and, or, not.
        time_limit: wall seconds for all parts together; None for no limit.
        random_state: seed of the first points tried.
        progress: called with a `Progress`.
        workers, backend, scheduler: threads, or processes here or on a cluster, that search side by
            side, as for `maximize`.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> prop = parse_vnnlib('''
    ... (declare-const X_0 Real) (declare-const Y_0 Real)
    ... (assert (<= X_0 2)) (assert (>= X_0 -1)) (assert (>= Y_0 2.5))''')
    >>> check(net, prop).verdict
    'unsat'
    """
    network: Network = _plain(model)
    place = Placement(workers, backend, scheduler)
    assertions = prop if isinstance(prop, Assertions) else read_vnnlib(prop)
    asked, cases = make_cases(assertions, network)
    clock = Clock(time_limit)
    Teller(progress, clock).compile("the search", warm_up)
    questions = [_Question(asked, case, random_state, place) for case in cases]
    with place.entered():
        _ask(questions, clock, progress)
    verdicts = [q.verdict for q in questions]
    verdict: Answer = "unsat"
    for word in ("unknown", "timeout", "sat"):
        if word in verdicts:
            verdict = word
    asked_of = [q.found for q in questions if q.found is not None]
    sat = [q.found for q in questions if q.verdict == "sat" and q.found is not None]
    point = sat[0].point if sat else None
    proof, proofs = None, [found.certificate for found in asked_of]
    if verdict == "unsat" and None not in proofs:
        proof = CheckProof(_fingerprint(assertions), tuple(p for p in proofs if p is not None))
    return Check(
        verdict,
        point,
        None if point is None else network(point),
        (len(questions), sum(word in ("sat", "unsat") for word in verdicts)),
        sum(found.nodes for found in asked_of),
        clock.elapsed(),
        proof,
    )


def _ask(questions: list[_Question], clock: Clock, progress: Listener | None) -> None:
    """One question after the other, in turns, until one says sat or all are answered."""
    open_ = questions
    while open_ and not clock.expired():
        for turn, question in enumerate(open_):
            share = clock.part(share=1 / (len(open_) - turn))
            tell = _counted(progress, len(questions) - len(open_), len(questions))
            question.go_on(share, tell)
            if question.verdict == "sat":
                return
        open_ = [question for question in open_ if question.verdict == "timeout"]


def _counted(progress: Listener | None, done: int, total: int) -> Listener | None:
    """A listener that also hears how many parts are settled."""
    if progress is None:
        return None

    def tell(heard: Progress) -> None:
        text = heard.message if total == 1 else f"{heard.message}, part {done + 1} of {total}"
        progress(Progress(text, done, total, heard.elapsed, heard.left, heard.at_most, heard.facts))

    return tell


class _Question:
    """One case, asked in several turns if need be."""

    def __init__(self, network: Network, case: Case, random_state: int, place: Placement):
        self.network, self.case, self.random_state = network, case, random_state
        self.place = place
        self.verdict: Answer = "timeout"
        self.found: Decision | None = None
        self.asked = case

    def go_on(self, clock: Clock, progress: Listener | None) -> None:
        """Search for so long; leaves the verdict."""
        if self.found is None or self.found.resume is None:
            self.found = self._decide(self.asked, clock, progress)
        else:
            self.found = self.found.resume(clock, progress)
        inner = self.case.inner
        strict = inner is not None and self.asked is self.case
        if self.found.verdict == "counterexample" and strict and not self._inside(self.found):
            assert inner is not None
            if not inner.groups:
                self.verdict = "unknown"
                return
            self.asked = inner  # only a point that satisfies what is strict will do
            self.found = self._decide(inner, clock, progress)
        if self.found.verdict == "counterexample":
            self.verdict = "sat"
        elif self.found.verdict == "proved":  # of what is strict, only up to one float
            self.verdict = "unsat" if self.asked is self.case else "unknown"
        else:
            self.verdict = "timeout" if clock.expired() else "unknown"

    def _decide(self, case: Case, clock: Clock, progress: Listener | None) -> Decision:
        return decide_any(
            self.network, case.domain, case.groups, clock, self.random_state, progress, self.place
        )  # fmt: skip

    def _inside(self, found: Decision) -> bool:
        inner = self.case.inner
        assert inner is not None
        return bool(inner.domain.holds(found.point)[0]) and any(
            satisfied(self.network, found.point, A, b) for A, b in inner.groups
        )


def _plain(network: Network) -> Network:
    """The network, if its outputs are what a property file calls Y."""
    if network.head:
        raise InvalidInputError(
            f"the model ends in {network.head.label}, and a property speaks of its outputs, which "
            "are then not piecewise affine; for a property of what comes before, pass "
            "relunorm.load(model).without_head()"
        )
    return network


@dataclass(frozen=True, eq=False)
class CheckProof(Document):
    """That no input satisfies the assertions of a property file: one proof for every part.

    Args:
        fingerprint: of the assertions.
        parts: the proofs, in the order of the parts.
    """

    SCHEMA: ClassVar[str] = "relunorm.check-proof/1"
    KEYS: ClassVar[frozenset[str]] = frozenset(("property", "parts"))

    fingerprint: str
    parts: tuple[SearchProof, ...]

    def verify(self, model: Model, prop: str | Path | Assertions) -> Replayed:
        """Compute every bound again, from the model, the property and the proof alone."""
        network = _plain(as_network(model))
        assertions = prop if isinstance(prop, Assertions) else read_vnnlib(prop)
        if _fingerprint(assertions) != self.fingerprint:
            return Replayed(False, np.inf, 0, "the proof is about another property")
        asked, cases = make_cases(assertions, network)
        if len(cases) != len(self.parts):
            return Replayed(False, np.inf, 0, "the proof has parts too many or too few")
        upper, nodes = -np.inf, 0
        for number, (case, part) in enumerate(zip(cases, self.parts, strict=True)):
            if not _same(case, part):
                reason = f"part {number} is about another domain or other goals"
                return Replayed(False, np.inf, nodes, reason)
            if not (part.limit < 0.0 or (part.limit == 0.0 and part.strict)):
                return Replayed(False, np.inf, nodes, f"part {number} claims too little")
            found = part.verify(asked)
            nodes, upper = nodes + found.nodes, max(upper, found.upper)
            if not found.holds:
                return Replayed(False, found.upper, nodes, f"part {number}: {found.reason}")
        return Replayed(True, upper, nodes, "")

    def write(self, file: TextIO) -> None:
        """See `Document`."""
        head = {"schema": self.SCHEMA, "property": self.fingerprint}
        file.write(json.dumps(head)[:-1] + ', "parts": [')
        for number, part in enumerate(self.parts):
            file.write("," if number else "")
            part.write(file)
        file.write("]}\n")

    @classmethod
    def read(cls, document: dict[str, Any]) -> CheckProof:
        """See `Document`."""
        parts = tuple(SearchProof.from_dict(part) for part in document["parts"])
        return cls(str(document["property"]), parts)


def _same(case: Case, part: SearchProof) -> bool:
    """Whether a proof is about a case."""
    if len(case.groups) != len(part.groups) or case.domain.digest != part.reach.domain.digest:
        return False
    return all(
        np.array_equal(A, own) and np.array_equal(b, end)
        for (A, b), (own, end) in zip(case.groups, part.groups, strict=True)
    )


def _fingerprint(assertions: Assertions) -> str:
    """A hash of what the file says, whatever its layout."""

    def atom(a: Any) -> list[Any]:
        weights = [[kind, number, str(w)] for (kind, number), w in sorted(a.weights.items())]
        return [weights, str(a.constant), a.strict]

    said = [
        assertions.inputs,
        assertions.outputs,
        [atom(a) for a in assertions.common],
        [[atom(a) for a in part] for part in assertions.alternatives],
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


__all__ = ["Check", "CheckProof", "check", "parse_vnnlib"]
