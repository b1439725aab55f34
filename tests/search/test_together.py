"""A search by several workers, threads or processes: the same answers, sound whenever it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Box, Network, Polytope
from relunorm.cli import app, main
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError
from relunorm.extrema.decide import decide_any
from relunorm.questions.vnnlib import parse_vnnlib
from relunorm.search.proofs.entries import HEAD
from relunorm.search.proofs.entries import size as size_of_entry
from relunorm.search.proofs.proof import SearchProof
from relunorm.search.proofs.tape import CLOSED, CUT, FOLDED, Tape
from relunorm.sweep import tasks
from relunorm.sweep.backends import Placement
from relunorm.sweep.tasks import WorkerDiedError

#: Tasks travel all the same, without the seconds that processes take to start.
NEAR = {"backend": "threading", "workers": 2}


@pytest.fixture(autouse=True)
def soon_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few open nodes are dealt out, and come back soon."""
    monkeypatch.setattr("relunorm.search.engine.FIRST_CHUNK", 2)
    monkeypatch.setattr("relunorm.search.engine.DIVISION", 3)
    monkeypatch.setattr("relunorm.search.together.FIRST_ROUND", 0.1)
    monkeypatch.setattr("relunorm.search.together.GROWTH", 1.0)


def random_net(seed: int, widths: tuple[int, ...]) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    return Network.from_weights(weights, [rng.normal(size=b) for b in widths[1:]])


def solved(network: Network, box: Box) -> float:
    """The maximum of the first output by HiGHS: big-M from intervals, no code of the package."""
    lo, hi = np.array(box.lo), np.array(box.hi)
    low, high, kinds = [*lo], [*hi], [0] * len(lo)
    rows, ends = [], []  # of rows . variables <= end, rows as dictionaries
    before = list(range(len(lo)))
    for layer in network.layers:
        W, b = np.asarray(next(iter(layer.affine.terms.values()))), layer.affine.bias
        z_lo = np.maximum(W, 0) @ lo + np.minimum(W, 0) @ hi + b
        z_hi = np.maximum(W, 0) @ hi + np.minimum(W, 0) @ lo + b
        units = []
        for w, c, under, over in zip(W, b, z_lo, z_hi, strict=True):
            y, on = len(low), len(low) + 1
            low, high, kinds = [*low, 0, 0], [*high, max(over, 0), 1], [*kinds, 0, 1]
            z = dict(zip(before, w.tolist(), strict=True))
            rows.append({**z, y: -1.0})
            ends.append(-c)  # y >= z
            rows.append({**{k: -v for k, v in z.items()}, y: 1.0, on: -min(under, 0)})
            ends.append(c - min(under, 0))  # y <= z - under (1 - on)
            rows.append({y: 1.0, on: -max(over, 0)})
            ends.append(0.0)  # y <= over on
            units.append(y)
        before, lo, hi = units, np.maximum(z_lo, 0), np.maximum(z_hi, 0)
    matrix = np.zeros((len(rows), len(low)))
    for i, row in enumerate(rows):
        matrix[i, list(row)] = list(row.values())
    cost = np.zeros(len(low))
    cost[before] = -np.asarray(next(iter(network.output.terms.values())))[0]
    found = milp(
        cost, constraints=LinearConstraint(matrix, ub=ends), bounds=Bounds(low, high),
        integrality=kinds, options={"mip_rel_gap": 1e-9},
    )  # fmt: skip
    return float(network.output.bias[0] - found.fun)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks were spread, round by round."""
    seen: list[int] = []
    real = tasks.spread

    def noted(function: Any, shares: Any, **options: Any) -> Any:
        seen.append(len(shares))
        return real(function, shares, **options)

    monkeypatch.setattr(tasks, "spread", noted)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_the_maximum_is_that_of_a_solver(seed, rounds):
    network, box = random_net(seed, (5, 9, 9, 1)), Box.cube(5)
    found = rn.maximize(network, box, 0, time_limit=None, **NEAR)
    assert found.exact
    assert found.lower == pytest.approx(solved(network, box), abs=1e-6)
    assert found.certificate.verify(network).holds
    assert rounds


def test_threads_find_the_same_maximum():
    network, box = random_net(1, (6, 12, 12, 1)), Box.cube(6)
    alone = rn.maximize(network, box, 0)
    both = rn.maximize(network, box, 0, workers=2)
    for found in (alone, both):
        assert found.exact
        assert found.stopped == ""
        assert found.certificate.verify(network).holds
    assert both.lower == pytest.approx(alone.lower, abs=1e-8)


def test_an_ambient_backend_is_used(rounds):
    network, box = random_net(1, (6, 12, 12, 1)), Box.cube(6)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert rn.maximize(network, box, 0, workers=2).exact  # threads were asked for
        assert not rounds
        assert rn.maximize(network, box, 0).exact
    assert rounds


@pytest.mark.parametrize("seed", range(2))
def test_alternatives_are_decided_as_in_one_thread(seed, rounds):
    network = random_net(seed, (4, 12, 12, 2))
    domain = Polytope(np.concatenate([np.eye(4), -np.eye(4), np.ones((1, 4))]), [1.0] * 9)
    top = rn.maximize(network, domain, 0).upper
    bottom = rn.maximize(network, domain, [0.0, -1.0]).upper
    place = Placement(**NEAR)
    above = [([[-1.0, 0.0]], [-top - 1e-4]), ([[0.0, 1.0]], [-bottom - 1e-4])]
    found = decide_any(network, domain, above, None, place=place)
    assert found.verdict == "proved"
    assert found.certificate.verify(network).holds
    assert rounds
    below = [above[0], ([[0.0, 1.0], [1.0, 0.0]], [-bottom + 1e-3, 1e3])]
    found = decide_any(network, domain, below, None, place=place)
    assert found.verdict == "counterexample"
    assert network(found.point)[1] <= -bottom + 1e-3
    assert domain.holds(found.point)[0]


def without(proof: SearchProof, at: int, size: int) -> SearchProof:
    tape = Tape()
    tape.write(np.delete(np.concatenate(list(proof.tape)), slice(at, at + size)))
    return SearchProof(**{**vars(proof), "tape": tape})


def test_no_entry_of_any_task_can_be_left_out():
    network, box = random_net(2, (5, 9, 9, 1)), Box.cube(5)
    proof = rn.maximize(network, box, 0, time_limit=None, **NEAR).certificate
    tape = np.concatenate(list(proof.tape))
    assert proof.verify(network).holds
    at, entries = 1, []
    while at < len(tape):
        size = HEAD
        if tape[at] in (CLOSED, FOLDED):
            size = size_of_entry(*map(int, tape[at + 3 : at + HEAD]))
        if tape[at] in (CUT, CLOSED, FOLDED):
            entries.append((at, size))
        at += size
    numbers = {float(tape[at + 1]) for at, _ in entries}
    assert max(numbers) > 1 << 30  # nodes that tasks have made
    for at, size in entries[:: max(1, len(entries) // 50)]:
        assert not without(proof, at, size).verify(network).holds


def test_a_time_limit_keeps_what_was_found_and_resume_goes_on():
    network, box = random_net(3, (8, 16, 16, 1)), Box.cube(8)
    found = rn.maximize(network, box, 0, time_limit=0.3, **NEAR)
    first = found
    for _ in range(1000):
        assert found.lower <= found.upper
        assert found.certificate is None or found.certificate.verify(network).holds
        if found.exact:
            break
        assert found.stopped == "time limit"
        later = found.resume(1.0)
        assert later.upper <= found.upper
        assert later.lower >= found.lower
        assert later.nodes >= found.nodes
        found = later
    assert first.lower <= found.lower <= found.upper <= first.upper
    alone = rn.maximize(network, box, 0, time_limit=None)
    assert found.lower == pytest.approx(alone.lower, abs=1e-8)


def test_ctrl_c_keeps_what_was_found(rounds):
    network, box = random_net(1, (6, 12, 12, 1)), Box.cube(6)

    def stop(progress: Progress) -> None:
        if rounds:
            raise KeyboardInterrupt

    found = rn.maximize(network, box, 0, progress=stop, time_limit=None, **NEAR)
    if rounds and not found.complete:
        assert found.stopped == "interrupted"
    assert found.certificate.verify(network).holds
    again = found.resume(None)
    assert again.exact
    assert found.lower <= again.lower <= again.upper <= found.upper
    assert again.certificate.verify(network).holds


def test_tasks_that_kill_their_workers_stay_open(monkeypatch):
    network, box = random_net(1, (6, 12, 12, 1)), Box.cube(6)
    truth = rn.maximize(network, box, 0)
    with monkeypatch.context() as patch:

        def deadly(explorer: Any, shares: Any, **options: Any) -> Iterator[tuple[int, Any]]:
            yield 1, WorkerDiedError("its worker process died")
            yield 0, tasks.unpack(tasks.pack(explorer))(shares[0])

        patch.setattr(tasks, "spread", deadly)
        found = rn.maximize(network, box, 0, time_limit=None, **NEAR)
        goal = [[-1.0]], [-truth.upper - 1e-6]  # no point has so much, which takes cuts to prove
        decided = rn.decide(network, box, *goal, time_limit=None, **NEAR)
    assert not found.complete
    assert not found.exact
    assert found.stopped == "worker processes died"
    assert decided.verdict == "unknown"
    assert decided.stopped == "worker processes died"
    assert found.lower <= truth.lower <= truth.upper <= found.upper
    assert found.certificate.verify(network).holds
    again = found.resume(None)
    assert again.exact
    assert again.lower == pytest.approx(truth.lower, abs=1e-8)
    assert again.certificate.verify(network).holds


def test_questions_are_answered_as_in_one_thread(rounds):
    network, box = random_net(1, (6, 12, 12, 2)), Box.cube(6)
    top = rn.maximize(network, box, 0).upper
    sides = "".join(
        f"(declare-const X_{i} Real)(assert (<= X_{i} 1))(assert (>= X_{i} -1))" for i in range(6)
    )
    said = f"{sides}(declare-const Y_0 Real)(declare-const Y_1 Real)"
    prop = parse_vnnlib(f"{said}(assert (>= Y_0 {top + 1e-3}))")
    answer = rn.check(network, prop, None, **NEAR)
    assert answer.verdict == "unsat"
    assert answer.proof.verify(network, prop).holds
    assert rounds
    rows = box.sample(3, 0)
    here = rn.certify(network, rows, 0.2)
    near = rn.certify(network, rows, 0.2, **NEAR)
    assert [row.verdict for row in near.rows] == [row.verdict for row in here.rows]


def test_wrong_places_are_refused_before_any_work():
    network, box = random_net(1, (2, 3, 2)), Box.cube(2)
    prop = parse_vnnlib("(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)")
    asked = [
        lambda **where: rn.maximize(network, box, 0, **where),
        lambda **where: rn.decide(network, box, [[1.0, 0.0]], [0.0], **where),
        lambda **where: rn.check(network, prop, **where),
        lambda **where: rn.certify(network, [[0.0, 0.0]], 0.1, **where),
    ]
    for ask in asked:
        with pytest.raises(InvalidInputError, match="backend 'spark' is not known"):
            ask(backend="spark")
        with pytest.raises(InvalidInputError, match="needs backend='dask' or 'ray'"):
            ask(scheduler="tcp://x:1")
        for workers in (0, -2, 1.5, True):
            with pytest.raises(InvalidInputError, match="expected at least 1, or -1"):
                ask(workers=workers)


def test_the_command_line_takes_the_same_words(tmp_path, rounds):
    network = random_net(1, (6, 12, 12, 1))
    model, proof = str(tmp_path / "m.npz"), str(tmp_path / "p.json")
    rn.save(network, model)
    words = ["--domain", "box:-1,1", "--backend", "threading", "--jobs", "2", "--proof", proof]
    done = CliRunner().invoke(app, ["maximize", model, *words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["lower"] == pytest.approx(rn.maximize(network, Box.cube(6), 0).lower, abs=1e-8)
    assert rounds
    assert CliRunner().invoke(app, ["verify", proof, model]).exit_code == 0
    with pytest.raises(SystemExit) as ended:
        main(["maximize", model, "--domain", "box:-1,1", "--jobs", "0"])
    assert ended.value.code == 2
