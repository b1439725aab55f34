"""The search for the largest slope, against every region of the list; its proofs replay."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, NormBall, Polytope
from relunorm.clock import NO_LIMIT, Clock
from relunorm.errors import InvalidInputError
from relunorm.lipschitz.search import slopes as search
from relunorm.lipschitz.search.cells import (
    FORMS,
    LOW,
    NEED,
    NO_MARK,
    NOTHING,
    REACH,
    SHUT,
    SPLIT,
    TOUCH,
    in_ball,
)
from relunorm.lipschitz.search.proof import SlopeProof
from relunorm.lipschitz.search.setting import Setting
from relunorm.lipschitz.search.slopes import Slopes, new_place
from relunorm.lipschitz.search.windows import bounded
from relunorm.search.proofs.tape import Tape

SHAPES = [(5, 6, 5, 1), (3, 4, 4, 4, 2)]


def random_net(seed: int, widths: tuple[int, ...], below: float = 0.0, bias=True) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    biases = [bias * rng.normal(size=b) for b in widths[1:]]
    kind = Activation("leaky", below) if below else Activation("relu")
    return Network.from_weights(weights, biases, kind)


def slopes(setting: Setting, output: int, axis: int, sign: float, size: float) -> Slopes:
    """A search whose points count as they are."""
    network, window = setting.local.network, setting.windows[0]

    def check(x: np.ndarray) -> float:
        return sign * float(network.jacobian(x)[output, axis] / window.rates[axis])

    goal = (output, axis, sign)
    return Slopes(window, goal, setting.margin, size, setting.contacts, check)


@pytest.mark.parametrize("below", [0.0, 0.2, -0.4, 1.7])
@pytest.mark.parametrize("widths", SHAPES)
def test_the_largest_slope_is_that_of_the_steepest_region(widths, below):
    network, box = random_net(len(widths), widths, below), Box.cube(widths[0], -1, 2)
    setting = Setting.of(network, box)
    listed = rn.regions(network, box)
    assert listed.complete
    regions = listed.affine()[0] / setting.windows[0].rates  # per coordinate of the window
    size = np.abs(regions).max()
    for (output, axis), sign in zip(
        np.ndindex(*regions.shape[1:]), np.resize([1.0, -1.0], regions[0].size), strict=True
    ):
        search = slopes(setting, output, axis, sign, 10 * size)
        search.run(-np.inf, NO_LIMIT)
        assert search.finished
        top = (sign * regions[:, output, axis]).max()
        assert top * (1 - 1e-12) <= search.bound <= top + 1e-8 * size
        assert search.best == pytest.approx(top, abs=1e-9 * size)


def test_a_search_broken_off_goes_on_and_has_a_proof_at_any_time():
    network, box = random_net(0, (4, 10, 10, 1)), Box.cube(4)
    setting = Setting.of(network, box)
    whole = slopes(setting, 0, 1, 1.0, 100.0)
    whole.run(-np.inf, NO_LIMIT)
    parts = slopes(setting, 0, 1, 1.0, 100.0)
    parts.run(-np.inf, Clock(0.0))
    assert not parts.finished
    assert parts.bound >= whole.bound
    parts.run(-np.inf, NO_LIMIT)
    assert parts.finished
    assert parts.bound == whole.bound
    found = rn.sensitivity(random_net(0, (6, 20, 20, 2)), Box.cube(6), time_limit=0.5)
    if found.certificate is not None:  # time may have run out before
        assert found.certificate.verify(random_net(0, (6, 20, 20, 2))).holds


def test_a_region_that_no_float_lies_in_keeps_the_bound_up():
    """relu(x) + relu(-x - 1e-300): both are zero on a sliver."""
    network = Network.from_weights([[[1.0], [-1.0]], [[-1.0, 1.0]]], [[0.0, -1e-300], [0.0]])
    search = slopes(Setting.of(network, Box([-1.0], [1.0])), 0, 0, 1.0, 1.0)
    search.run(-np.inf, NO_LIMIT)
    assert search.finished
    assert search.bound >= 0.0


def test_kinks_that_meet_are_told_from_regions():
    """Without biases all kinks meet in one point, and so do all cells of signs no region has."""
    network, box = random_net(3, (2, 6, 5, 2), bias=False), Box.cube(2)
    regions = rn.regions(network, box).affine()[0]
    found = rn.sensitivity(network, box, time_limit=None)
    assert found.exact.all()
    assert np.allclose(found.upper, regions.max(axis=0), rtol=1e-7)
    assert found.certificate is not None
    assert marks(found.certificate, TOUCH)
    assert found.certificate.verify(network).holds


def with_skips() -> Network:
    rng = np.random.default_rng(5)
    first = Layer(Affine({0: rng.normal(size=(5, 3))}, np.zeros(5)), Activation("leaky", -0.2))
    stage = Layer(Affine({1: rng.normal(size=(4, 5))}, rng.normal(size=4)), Activation("identity"))
    terms = {0: rng.normal(size=(4, 3)), 2: rng.normal(size=(4, 4))}
    second = Layer(Affine(terms, rng.normal(size=4)))
    output = Affine({0: rng.normal(size=(2, 3)), 3: rng.normal(size=(2, 4))}, np.zeros(2))
    return Network([first, stage, second], output, input_shape=3)


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
@pytest.mark.parametrize(
    "domain", [None, Box.cube(3), Box([-1.0, 0.25, -1.0], [1.0, 0.25, 1.0])], ids=repr
)
def test_a_constant_has_a_proof_that_replays(domain, norm, tmp_path):
    for network in (random_net(1, (3, 7, 6, 2)), with_skips()):
        found = rn.lipschitz(network, domain, norm, time_limit=None, method="branch")
        assert found.exact
        proof = found.certificate
        assert proof is not None
        again = proof.verify(network)
        assert again.holds, again
        assert found.lower <= again.upper <= found.upper
        proof.save(tmp_path / "p.json")
        assert SlopeProof.load(tmp_path / "p.json").verify(network).holds
        assert not proof.verify(random_net(7, (3, 7, 6, 2))).holds
        claim = replace(proof.claims[0], upper=found.lower * (1 - 1e-6))
        assert not replace(proof, claims=(claim,)).verify(network).holds


CUT = Polytope([[-1.0, 0, 0], [0, -1, 0], [0, 0, -1], [1, 1, 1.5], [1, -1, 0]], [1, 1, 1, 0.7, 0.6])


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_a_constant_on_a_polytope_has_a_proof_that_replays_without_a_solver(norm, monkeypatch):
    # without biases all regions meet in one point of the polytope
    for network, cut in (
        (random_net(1, (3, 7, 6, 2)), True),
        (random_net(2, (3, 5, 4, 1), bias=False), False),
    ):
        regions = rn.regions(network, CUT)
        assert regions.complete
        top = max(np.linalg.norm(J, norm) for J in regions.affine()[0])
        found = rn.lipschitz(network, CUT, norm, time_limit=None)
        assert found.exact
        assert found.lower == pytest.approx(top, rel=1e-9)
        assert found.certificate is not None
        proof = SlopeProof.from_dict(found.certificate.to_dict())
        whole = rn.lipschitz(network, Box.cube(3, -1, 4), norm, time_limit=None)
        assert (whole.lower > found.lower * (1 + 1e-6)) == cut
        with monkeypatch.context() as alone:
            alone.setattr("scipy.optimize.linprog", None)
            again = proof.verify(network)
        assert again.holds, again
        assert top * (1 - 1e-9) <= again.upper <= found.upper
        claim = replace(proof.claims[0], upper=top * (1 - 1e-6))
        assert not replace(proof, claims=(claim,)).verify(network).holds


def test_a_proof_on_a_polytope_with_other_half_spaces_or_multipliers_is_refused():
    network = random_net(1, (3, 7, 6, 2))
    found = rn.lipschitz(network, CUT, np.inf, time_limit=None)
    assert found.certificate is not None
    document = found.certificate.to_dict()
    wider = {**document, "domain": {**document["domain"], "b": [1, 1, 1, 4.0, 4.0]}}
    assert not SlopeProof.from_dict(wider).verify(network).holds
    duals = np.array(document["domain"]["box_duals"])
    for wrong in (None, [], (-duals).tolist(), duals[:-1].tolist(), (0.0 * duals).tolist()):
        with pytest.raises(InvalidInputError):
            SlopeProof.from_dict({**document, "domain": {**document["domain"], "box_duals": wrong}})
    rng = np.random.default_rng(0)
    for _ in range(20):  # any multipliers that prove some box prove no less than is true
        box = (duals * rng.uniform(0.7, 1.3, duals.shape)).tolist()
        domain = {**document["domain"], "box_duals": box}
        claim = {**document["claims"][0], "upper": found.lower * (1 - 1e-6)}
        try:
            proof = SlopeProof.from_dict({**document, "domain": domain, "claims": [claim]})
        except InvalidInputError:
            continue
        assert not proof.verify(network).holds


def test_slopes_on_a_polytope_have_a_proof():
    network = random_net(5, (3, 6, 5, 2))
    regions = rn.regions(network, CUT).affine()[0]
    found = rn.sensitivity(network, CUT, time_limit=None)
    assert found.exact.all()
    assert np.allclose(found.upper, regions.max(axis=0), rtol=1e-7, atol=1e-7)
    assert np.allclose(found.lower, regions.min(axis=0), rtol=1e-7, atol=1e-7)
    assert found.certificate is not None
    assert SlopeProof.from_dict(found.certificate.to_dict()).verify(network).holds


def test_a_large_network_in_the_plane_is_searched_in_parts():
    network, box = random_net(2, (2, 90, 20, 1)), Box.cube(2, -2, 2)
    setting = Setting.of(network, box)
    assert len(setting.parts(box)) > 1
    found = rn.lipschitz(network, box, time_limit=None, method="branch")
    norms = np.linalg.norm(rn.regions(network, box).affine()[0], axis=(1, 2))
    assert found.exact
    assert found.lower == pytest.approx(norms.max(), rel=1e-9)
    assert found.certificate is not None
    assert found.certificate.verify(network).holds


@pytest.mark.parametrize("widths", [(1, 6, 5, 1), (2, 6, 5, 2), (3, 6, 5, 1), (4, 6, 4, 1)])
def test_slopes_on_a_ball_are_those_of_its_regions(widths):
    for seed in range(4):
        network = random_net(20 + seed, widths)
        ball = Ball(np.linspace(-0.3, 0.4, widths[0]), 0.9)
        listed = rn.regions(network, ball)
        assert listed.complete
        jacobians = listed.affine()[0]
        found = rn.sensitivity(network, ball, time_limit=None)
        assert found.exact.all()
        size = np.abs(jacobians).max()
        assert np.allclose(found.lower, jacobians.min(axis=0), atol=1e-7 * size)
        assert np.allclose(found.upper, jacobians.max(axis=0), atol=1e-7 * size)
        assert ball.contains(found.points).all()
        assert found.certificate is not None
        assert found.certificate.verify(network).holds


@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_a_constant_on_a_ball_has_a_proof_that_replays_without_a_solver(norm, monkeypatch):
    network, ball = random_net(7, (3, 6, 5, 2)), Ball([0.1, 0.0, -0.2], 0.9)
    found = rn.lipschitz(network, ball, norm, time_limit=None)
    values = np.linalg.norm(rn.regions(network, ball).affine()[0], norm, axis=(1, 2))
    assert found.exact
    assert found.upper == pytest.approx(values.max(), rel=1e-9)
    around = rn.lipschitz(network, ball.bounding_box, norm, time_limit=None)
    assert found.upper < around.lower  # else the box would do
    proof = found.certificate
    assert proof is not None
    document = json.loads(json.dumps(proof.to_dict()))
    monkeypatch.setattr("scipy.optimize.linprog", None)
    monkeypatch.setattr(search, "explore", None)
    result = SlopeProof.from_dict(document).verify(network)
    assert result.holds
    assert result.upper <= found.upper
    larger = {**document, "domain": {**document["domain"], "radius": 1.8}}
    assert not SlopeProof.from_dict(larger).verify(network).holds


@pytest.mark.parametrize("norm", [1, 2])
def test_slopes_on_a_clipped_ball_are_bounded_there(norm):
    network = random_net(8, (3, 6, 5, 1))
    box = Box.cube(3, -0.5, 0.7)
    ball = NormBall([0.1, 0.0, 0.6], 0.4, norm, box)
    found, around = rn.sensitivity(network, ball), rn.sensitivity(network, ball.bounding_box)
    slopes = network.jacobian(ball.sample(3000, 0))
    assert (found.lower <= slopes.min(axis=0)).all()
    assert (slopes.max(axis=0) <= found.upper).all()
    assert (found.upper - found.lower < around.upper - around.lower - 0.01).any()
    assert found.certificate is not None
    assert found.certificate.verify(network).holds


def test_bounds_on_a_ball_hold_in_rational_arithmetic():
    """Forms over the ball of a window: above what exact points of the ball attain."""
    rng = np.random.default_rng(3)
    triples = [(3, 4, 5), (5, 12, 13), (8, 15, 17), (20, 21, 29)]  # points of the circle
    for trial in range(40):
        middle = rng.normal(size=2) * 10.0 ** rng.integers(-3, 4)
        radius = 10.0 ** rng.uniform(-3, 2)
        window = bounded(random_net(trial, (2, 3, 1)), Ball(middle, radius))
        place = new_place(window, (0, 0, 1.0), 1e-14)
        assert place.norm == 2.0
        form = rng.normal(size=2)
        top = Fraction(float(in_ball.py_func(form, 1.0, place)))
        best = Fraction(-(10**9))
        for a, b, c in triples:
            for x, y in ((a, b), (b, a), (-a, b), (a, -b), (-a, -b), (b, -a), (-b, a), (-b, -a)):
                value = Fraction(0)
                for k, step in enumerate((Fraction(x, c), Fraction(y, c))):
                    at = Fraction(float(middle[k])) + Fraction(radius) * step
                    t = (at - Fraction(float(window.shift[k]))) / Fraction(float(window.scale[k]))
                    value += Fraction(float(form[k])) * t
                best = max(best, value)
        assert best <= top
        assert float(top) <= 1.2 * float(np.linalg.norm(form))


def numbers(tape: Tape) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(pairs.view(np.float32) for pairs in tape)])


def entries(tape: np.ndarray, inputs: int) -> list[tuple[float, int, int]]:
    """Mark, place and length of everything on a tape."""
    found, at = [], 0
    while at < len(tape):
        mark = tape[at]
        if mark in (NO_MARK, FORMS, SHUT):
            size = 1
        elif mark == LOW:
            size = 2
        elif mark == NOTHING:
            size = 2 + 2 * int(tape[at + 1])
        elif mark == REACH:
            size = 4 + 2 * int(tape[at + 3])
        elif mark == TOUCH:
            size = 3 + inputs
        else:
            assert mark in (NEED, SPLIT)
            size = 3
        found.append((mark, at, size))
        at += size
    return found


def marks(proof: SlopeProof, mark: float) -> int:
    inputs = len(proof.domain.center) if proof.domain is not None else 0
    tapes = [numbers(tape) for claim in proof.claims for tape in claim.tapes]
    return sum(kind == mark for tape in tapes for kind, _, _ in entries(tape, inputs))


def changed(proof: SlopeProof, tape: np.ndarray) -> SlopeProof:
    new = Tape()
    new.write(np.append(tape, [NO_MARK] * (len(tape) % 2)).astype(np.float32).view(float))
    return replace(proof, claims=(replace(proof.claims[0], tapes=(new,)),))


@pytest.mark.parametrize("domain", [Box.cube(3), Ball(np.zeros(3), 1.4)])
def test_a_proof_with_something_missing_or_changed_is_refused(domain):
    """Changes of a proof: entries left out, other units, multipliers spoilt."""
    network = random_net(11, (3, 7, 6, 1))
    found = rn.lipschitz(network, domain, np.inf, time_limit=None, method="branch")
    proof = found.certificate
    assert proof is not None
    claim = replace(proof.claims[0], upper=found.lower * (1 + 1e-9))  # no room for weaker proofs
    proof = replace(proof, claims=(claim,))
    assert proof.verify(network).holds
    tape = numbers(claim.tapes[0])
    parts = entries(tape, 3)
    splits = [part for part in parts if part[0] == SPLIT]
    closed = [part for part in parts if part[0] in (SHUT, NOTHING)]
    reached = [part for part in parts if part[0] == REACH and part[2] > 4]
    assert min(len(splits), len(closed), len(reached)) > 5
    rng = np.random.default_rng(0)
    for _ in range(60):
        for way in range(4):
            new = tape.copy()
            chosen = (closed, splits, splits, reached)[way]
            _, at, size = chosen[rng.integers(len(chosen))]
            if way in (0, 1):  # a leaf or a split is gone
                new = np.delete(new, slice(at, at + size))
            elif way == 2:  # another unit is split
                new[at + 1] = network.units + rng.integers(3)
            else:  # multipliers that are none
                new[at + size - 1] = (-1.0, np.nan)[rng.integers(2)]
            result = changed(proof, new).verify(network)
            assert not result.holds, (way, at)
            assert result.reason


@pytest.mark.parametrize("domain", [Box.cube(2), Ball(np.zeros(2), 1.2)])
def test_changes_that_leave_a_proof_prove_nothing_wrong(domain):
    """Any number changed: what replays all the same claims no less than is true."""
    network = random_net(12, (2, 5, 4, 1))
    top = np.abs(rn.regions(network, domain).affine()[0]).sum(axis=2).max()
    proof = rn.lipschitz(network, domain, np.inf, time_limit=None, method="branch").certificate
    assert proof is not None
    tape = numbers(proof.claims[0].tapes[0])
    weak = replace(proof, claims=(replace(proof.claims[0], upper=top * (1 - 1e-6)),))
    rng = np.random.default_rng(1)
    for _ in range(240):
        new, at = tape.copy(), rng.integers(len(tape))
        new[at] = rng.choice([new[at] + 1, new[at] - 1, 0.0, 1.0, 7.0, 1e3 * new[at], rng.normal()])
        assert not changed(weak, new).verify(network).holds


def test_a_limit_that_bounds_exceed_is_refused():
    """Slopes that bounds with further signs close: other limits prove less, or nothing."""
    network, box = random_net(15, (4, 12, 10, 1)), Box.cube(4)
    found = rn.sensitivity(network, box, time_limit=None)
    regions = rn.regions(network, box).affine()[0]
    assert found.exact.all()
    assert found.certificate is not None
    seen = 0
    for claim in found.certificate.claims:
        output, axis, sign = claim.goal
        if not claim.tapes:
            continue
        true = (sign * regions[:, output, axis]).max()
        proof = replace(found.certificate, claims=(replace(claim, upper=true + 1e-6),))
        assert proof.verify(network).holds
        tape = numbers(claim.tapes[0])
        lows = [at for mark, at, _ in entries(tape, 4) if mark == LOW]
        seen += len(lows)
        for at in lows[:3]:
            for limit in (1.01 * abs(tape[at + 1]) + 1.0, -1e3, np.nan):
                new = tape.copy()
                new[at + 1] = limit
                assert not changed(proof, new).verify(network).holds
    assert seen > 3


def test_a_side_that_is_not_empty_is_not_excluded():
    """The contacts of kinks that meet, with another unit, side or wall."""
    network, box = random_net(3, (2, 4, 1), bias=False), Box.cube(2)
    top = np.abs(rn.regions(network, box).affine()[0]).sum(axis=2).max()
    proof = rn.lipschitz(network, box, np.inf, time_limit=None, method="branch").certificate
    assert proof is not None
    weak = replace(proof, claims=(replace(proof.claims[0], upper=top * (1 - 1e-6)),))
    tape = numbers(proof.claims[0].tapes[0])
    touched = [at for mark, at, _ in entries(tape, 2) if mark == TOUCH]
    assert touched
    for at in touched[:4]:
        for place, step in ((1, 1), (1, -1), (2, 1), (2, -1), (3, 1), (3, -1), (4, 1), (4, -1)):
            new = tape.copy()
            new[at + place] += step
            assert not changed(weak, new).verify(network).holds


def test_damaged_documents_are_refused():
    network, box = random_net(1, (2, 4, 1)), Box.cube(2)
    proof = rn.lipschitz(network, box, method="branch").certificate
    assert proof is not None
    document = json.loads(json.dumps(proof.to_dict(), allow_nan=False))
    assert SlopeProof.from_dict(document).verify(network).holds
    claim = document["claims"][0]
    for wrong in (
        {**document, "schema": "relunorm.slopes/9"},
        {**document, "more": 1},
        {**document, "claims": [{**claim, "goal": "3.0"}]},
        {**document, "claims": [{**claim, "upper": None}]},
        {**document, "claims": [{**claim, "tapes": [["AAAA"]]}]},
        {**document, "domain": {"kind": "sphere"}},
        [],
    ):
        with pytest.raises(InvalidInputError):
            SlopeProof.from_dict(wrong)
    for goal in ([5, 0, 1.0], [0, 9, 1.0], [0, 0, 2.0], [-1, 0, 1.0]):
        wrong = {**document, "claims": [{**claim, "goal": goal}]}
        assert not SlopeProof.from_dict(wrong).verify(network).holds
    assert (
        not SlopeProof.from_dict({**document, "claims": [{**claim, "tapes": []}]})
        .verify(network)
        .holds
    )
