"""Proofs of searches: they replay, they survive a file, and a changed one is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope
from relunorm.best_first import Frontier
from relunorm.clock import Clock, Teller
from relunorm.errors import InvalidInputError
from relunorm.extrema.decide import decide_any
from relunorm.search.engine import Search
from relunorm.search.proofs import tape
from relunorm.search.proofs.entries import HEAD
from relunorm.search.proofs.entries import size as size_of_entry
from relunorm.search.proofs.proof import SearchProof
from relunorm.search.proofs.tape import CLOSED, CUT, FOLDED, TIGHTENED, VERSION, Tape


def network(seed: int, widths: tuple[int, ...] = (3, 8, 8, 2), slope: float = 0.0) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    biases = [rng.normal(size=b) for b in widths[1:]]
    kind = Activation("leaky", slope) if slope else Activation("relu")
    return Network.from_weights(weights, biases, kind)


def with_skips(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    layers = [
        Layer(Affine({0: rng.normal(size=(5, 3))}, rng.normal(size=5))),
        Layer(
            Affine({0: rng.normal(size=(4, 3)), 1: rng.normal(size=(4, 5))}, rng.normal(size=4)),
            Activation("identity"),
        ),
        Layer(Affine({1: rng.normal(size=(5, 5)), 2: rng.normal(size=(5, 4))}, np.zeros(5))),
    ]
    output = Affine({0: rng.normal(size=(2, 3)), 3: rng.normal(size=(2, 5))}, np.zeros(2))
    return Network(layers, output, input_shape=3)


DOMAINS = [
    Box.cube(3),
    Box([-1.0, 0.25, -1.0], [1.0, 0.25, 1.0]),
    Ball([0.2, -0.1, 0.0], 0.9),
    Polytope(np.vstack([np.eye(3), -np.eye(3), [[1.0, 1.0, 1.0]]]), [1.0] * 6 + [0.5]),
]


@pytest.mark.parametrize("in_memory", [1 << 26, 1])
def test_results_are_pickled_with_their_proofs(in_memory, monkeypatch):
    """In memory and on disk; the search itself stays where it is."""
    monkeypatch.setattr(tape, "IN_MEMORY", in_memory)
    net = network(1)
    top = rn.maximize(net, Box.cube(3), [1.0, 0.0])
    asked = rn.decide(net, Box.cube(3), [[-1.0, 0.0]], [-top.upper - 1.0])
    assert asked.verdict == "proved"
    for found in (top, asked):
        again = pickle.loads(pickle.dumps(found))
        assert repr(again) == repr(found)
        assert again.resume is None
        assert again.certificate.verify(net).holds
        assert not again.certificate.verify(network(7)).holds


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("kind", ["plain", "leaky", "steep", "skips"])
def test_a_maximum_has_a_proof_that_replays(kind, domain, tmp_path):
    nets = {
        "plain": network(1),
        "leaky": network(2, slope=-0.3),
        "steep": network(3, slope=1.8),
        "skips": with_skips(4),
    }
    net = nets[kind]
    found = rn.maximize(net, domain, [1.0, -0.5], time_limit=30)
    assert found.exact
    proof = found.certificate
    assert proof is not None
    again = proof.verify(net)
    assert again.holds, again
    assert again.upper <= found.upper
    proof.save(tmp_path / "p.json")
    assert SearchProof.load(tmp_path / "p.json").verify(net).holds
    # another network, or a claim that is too strong, is refused
    assert not proof.verify(network(7)).holds
    strong = SearchProof(**{**vars(proof), "limit": found.lower - 1e-6})
    assert not strong.verify(net).holds


def stopped(
    net: Network, domain: rn.Domain, nodes: int, rows: int = 1
) -> tuple[Search, SearchProof]:
    """A search that ended with open parts, and the proof of its upper end."""
    rng = np.random.default_rng(5)
    groups = [(-rng.normal(size=(k, 2)), rng.normal(size=k)) for k in range(1, rows + 1)]
    search = Search(net, domain, groups, proof=Tape())
    clock = Clock()
    search.run(clock, Teller(None, clock), nodes)
    assert not search.complete
    proof = SearchProof(
        net.digest, search.reach, tuple(groups), search.upper, False, search.unit_steps,
        search.record(),
    )  # fmt: skip
    return search, proof


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("nodes", [0, 6])
def test_a_search_that_was_stopped_proves_its_upper_end(domain, nodes, tmp_path):
    net = network(5, (3, 16, 16, 2))
    search, proof = stopped(net, domain, nodes, rows=2)
    upper = search.upper
    assert search.open.waiting
    again = proof.verify(net)
    assert again.holds, again
    assert again.upper == upper  # the end that is reported, no more
    proof.save(tmp_path / "p.json")
    # what the search does next belongs to another proof
    clock = Clock()
    search.run(clock, Teller(None, clock), 30)
    assert proof.verify(net).holds
    assert SearchProof.load(tmp_path / "p.json").verify(net).holds
    # the claim is the bound of some part, and nothing below it is shown
    less = replace(proof, limit=np.nextafter(upper, -np.inf))
    assert not less.verify(net).holds


def test_a_part_with_a_larger_bound_than_the_whole_is_closed_above_it():
    """Tuned anew, a part may come out above the one it was cut from: that one's bound counts."""
    net = network(5, (3, 16, 16, 2))
    search, proof = stopped(net, Box.cube(3), 0)
    (root,) = search.open
    clock = Clock()
    search.run(clock, Teller(None, clock), 6)
    assert search.upper < root.bound
    loose = [
        replace(task, key=root.key, numbers=np.full_like(task.numbers, 1e9), origin=root)
        for task in search.open
    ]
    search.open = Frontier(loose)
    again = replace(proof, tape=search.record()).verify(net)
    assert again.holds
    assert again.upper == root.bound


def test_open_parts_that_are_changed_are_refused():
    net = network(5, (10, 16, 16, 2))
    search, proof = stopped(net, Box.cube(10), 100)
    tape = np.concatenate(list(proof.tape))
    rng = np.random.default_rng(0)
    parts = entries(tape)
    leaves = [
        (at, size)
        for at, size in parts
        if tape[at] == CLOSED and tape[at + 1] in [task.number for task in search.open]
    ]
    cuts = [p for p in parts if tape[p[0]] == CUT]
    assert len(leaves) > 2
    for _ in range(200):
        numbers, way = tape.copy(), rng.integers(5)
        at, size = leaves[rng.integers(len(leaves))]
        units = int(numbers[at + 3])
        if way == 0:  # an open part is left out
            numbers = np.delete(numbers, slice(at, at + size))
        elif way == 1:  # its number is another one's
            numbers[at + 1] += 1e6
        elif way == 2:  # a slope of the wrong sign
            numbers[at + HEAD + units : at + HEAD + 2 * units] = -0.5
        elif way == 3:  # a goal that counts for nothing
            numbers[at + size - 1] = 0.0
        else:  # one of its halves is called empty
            at, _ = cuts[rng.integers(len(cuts))]
            side = 4 + int(numbers[at + 4] < 0 or rng.random() < 0.5)
            if numbers[at + side] < 0:
                continue
            numbers[at + side] = -1.0
        assert not changed(proof, numbers).verify(net).holds, (way, at)


def decided() -> tuple[Network, rn.Domain, SearchProof]:
    """A property with two groups, one of them a conjunction, that takes some cuts to prove."""
    net, box = network(11, (3, 10, 10, 2)), Box.cube(3)
    top = rn.maximize(net, box, 0).upper
    groups = [
        ([[-1.0, 0.0]], [-top - 1e-3]),
        ([[-1.0, 0.0], [0.0, 1.0]], [-top * 0.9 - 0.1, -50.0]),
    ]
    found = decide_any(net, box, groups)
    assert found.verdict == "proved"
    assert found.certificate is not None
    return net, box, found.certificate


def changed(proof: SearchProof, numbers: np.ndarray) -> SearchProof:
    tape = Tape()
    tape.write(numbers)
    return SearchProof(**{**vars(proof), "tape": tape})


def entries(tape: np.ndarray) -> list[tuple[int, int]]:
    found, at = [], 1
    while at < len(tape):
        size = HEAD
        if tape[at] in (CLOSED, FOLDED):
            size = size_of_entry(*map(int, tape[at + 3 : at + HEAD]))
        else:
            assert tape[at] in (CUT, TIGHTENED)
        found.append((at, size))
        at += size
    return found


def test_a_proof_with_something_missing_or_changed_is_refused():
    """Leaves and cuts left out, halves swapped or forgotten, numbers out of range: a thousand."""
    net, _, proof = decided()
    tape = np.concatenate(list(proof.tape))
    assert proof.verify(net).holds
    rng = np.random.default_rng(0)
    parts = entries(tape)
    cuts = [p for p in parts if tape[p[0]] == CUT]
    closed = [p for p in parts if tape[p[0]] in (CLOSED, FOLDED)]
    assert len(cuts) > 5
    refused = 0
    for _ in range(1000):
        numbers = tape.copy()
        way = rng.integers(6)
        at, size = closed[rng.integers(len(closed))]
        if way == 0:  # a leaf is gone
            numbers = np.delete(numbers, slice(at, at + size))
        elif way == 1:  # a cut is gone
            at, size = cuts[rng.integers(len(cuts))]
            numbers = np.delete(numbers, slice(at, at + size))
        elif way == 2:  # a half is called empty
            at, _ = cuts[rng.integers(len(cuts))]
            side = 4 + rng.integers(2)
            if numbers[at + side] < 0:
                continue
            numbers[at + side] = -1.0
        elif way == 3:  # slopes and multipliers that prove nothing
            units, known = int(numbers[at + 3]), int(numbers[at + 4])
            if not units:
                continue
            first = at + HEAD + units
            numbers[first : first + units] = 1.5 if rng.random() < 0.5 else -0.5
            del known
        elif way == 4:  # weights of the goals that are none
            numbers[at + size - 1] = -3.0
        else:  # a group that does not exist
            numbers[at + 2] = 7.0
        refused += 1
        result = changed(proof, numbers).verify(net)
        assert not result.holds, (way, at)
        assert result.reason
    assert refused > 700


def test_any_number_changed_is_refused_or_still_a_proof():
    """Whatever is changed, a proof that goes through proves something true."""
    net, box, proof = decided()
    tape = np.concatenate(list(proof.tape))
    rng = np.random.default_rng(1)
    seen = net(box.sample(20_000, 0))
    values = [(b - seen @ A.T).min(axis=1).max() for A, b in proof.groups]
    assert max(values) < 0
    for _ in range(300):
        numbers = tape.copy()
        at = rng.integers(len(numbers))
        numbers[at] = rng.choice([0.0, -1.0, 1.0, 0.5, 1e9, -1e9, numbers[at] + 1])
        result = changed(proof, numbers).verify(net)
        if result.holds:
            assert result.upper < 0
    # and what is not true has no proof: the claim below a value that is taken
    false = SearchProof(**{**vars(proof), "limit": max(values) - 1e-9})
    assert not false.verify(net).holds


def test_tapes_of_another_version_are_refused_by_number():
    net, _, proof = decided()
    tape = np.concatenate(list(proof.tape))
    assert tape[0] == VERSION
    for old, found in ((np.append(100.0, tape[1:]), "100"), (tape[1:], "version"), ([], "no")):
        result = changed(proof, np.array(old)).verify(net)
        assert not result.holds
        assert found in result.reason
        assert "make the proof again" in result.reason


def test_documents_with_surprises_are_refused(tmp_path):
    net, _, proof = decided()
    proof.save(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert SearchProof.from_dict(document).verify(net).holds
    for change in (
        {"extra": 1},
        {"tape": ["not base64!"]},
        {"tape": ["AAAA"]},
        {"unit_steps": -2},
        {"claim": {"limit": float("nan"), "strict": True}},
        {"groups": [{"A": [1.0], "b": [1.0]}]},
    ):
        with pytest.raises(InvalidInputError):
            SearchProof.from_dict({**document, **change})
    with pytest.raises(InvalidInputError, match=r"schema is 'relunorm\.proof/1'"):
        SearchProof.from_dict({**document, "schema": "relunorm.proof/1"})
    short = {k: v for k, v in document.items() if k != "claim"}
    with pytest.raises(InvalidInputError, match="claim"):
        SearchProof.from_dict(short)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"cannot be read|not a proof"):
        SearchProof.load(tmp_path / "broken.json")


def test_units_bounded_for_a_goal_are_part_of_the_proof():
    """A cut-off above the claim, or goals that are no group's, are refused."""
    net = network(0, (10, 16, 16, 2))
    _, proof = stopped(net, Box.cube(10), 400)
    assert proof.verify(net).holds
    tape = np.concatenate(list(proof.tape))
    tightened = [at for at, _ in entries(tape) if tape[at] == TIGHTENED]
    assert tightened
    for at in tightened[:20]:
        for place, value in ((2, proof.limit + 1e-3), (4, 2.0), (3, -1.0)):
            numbers = tape.copy()
            numbers[at + place] = value
            assert not changed(proof, numbers).verify(net).holds


@pytest.mark.parametrize("domain", ["box", "ball"])
def test_proofs_that_were_kept_replay(domain):
    """Of earlier code, with units bounded for a goal: other numbers would need another version."""
    folder = Path(__file__).parent / "kept"
    proof = SearchProof.load(folder / f"{domain}.json")
    tape = np.concatenate(list(proof.tape))
    assert any(tape[at] == TIGHTENED for at, _ in entries(tape))
    assert proof.verify(rn.load(folder / f"{domain}.npz")).holds
