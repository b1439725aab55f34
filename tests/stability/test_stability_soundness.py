"""Verdicts and proofs that were wrong once: each test failed before it was mended."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import relunorm as rn
from relunorm.bounds.highs import scaled
from relunorm.bounds.problem import Bounds, Kink, Problem
from relunorm.clock import Clock
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.stability import engine, replay, stability
from relunorm.stability.milp import Answer, decide
from relunorm.stability.proof import Proofs, SplitProof, TrustedProof
from relunorm.stability.replay import rule_bounds
from relunorm.stability.split import BoxTree

CUBE = np.vstack([np.eye(4), -np.eye(4)])
NORMAL = np.array([[2.0, -2, -1, 2]])
FLAT = rn.Polytope(np.vstack([CUBE, NORMAL, -NORMAL]), [1.0] * 8 + [0, 0])  # holds 0
W = np.array([[3.0, -1, -2, 1], [0, 0, 0, 0], [0, 0, -2, -3], [1, 3, 0, 0], [0, 0, 0, -2.1]])
B = np.array([0, -2, 3, -3, 1.4])
V = np.array([-3.0, -2, 1, 0, 3])


def asked(network: rn.Network, domain: rn.Polytope) -> list[Answer]:
    """What the solver says of both sides of the second layer's only unit, nothing else tried."""
    problem = Problem(network, reach_of(domain))
    bounds = Bounds(problem)
    for index in range(2):
        bounds.append(*rule_bounds(problem, bounds, index))
    sides = np.array([0, 0]), np.array([1.0, -1.0])
    return decide(problem, bounds, 1, *sides, clock=Clock(60), workers=1)


def highest(weights, bias, row, A, b) -> float:
    """max row.relu(W x + bias) over A x <= b: one linear programme per sign pattern."""
    from scipy.optimize import linprog

    best = -np.inf
    for signs in product([False, True], repeat=len(bias)):
        on = np.array(signs)
        turn = np.where(on, -1.0, 1.0)
        rows, ends = np.vstack([A, turn[:, None] * weights]), np.append(b, -turn * bias)
        found = linprog(-(row[on] @ weights[on]), A_ub=rows, b_ub=ends, bounds=(None, None))
        if found.status == 0:
            best = max(best, -found.fun + float(row[on] @ bias[on]))
    return best


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6, 1e9, 1.7e9, 1e11])
def test_the_solver_is_not_misled_by_large_weights(size: float) -> None:
    """At 0, a point of the domain, z is 7.2 size - 3; both sides were called impossible."""
    network = rn.Network.from_weights([W * size, [V], [[1.0]]], [B * size, [-3.0 * size], [0.0]])
    assert not any(answer.excluded for answer in asked(network, FLAT))
    layer = stability(network, FLAT).layers[1]
    assert layer.verdict.tolist() == ["unstable"]
    assert layer.lower[0] <= layer.upper[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_solver_alone_is_right_at_any_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, row = rng.integers(-3, 4, (3, 4)) * 1.0, rng.integers(-3, 4, 3) * 1.0
    bias, shift = rng.integers(-3, 4, 3) * 1.0, float(rng.choice([-9, -3, 3, 9]))
    plane = rng.integers(-2, 3, (1, 4)) * 1.0
    A, b = np.vstack([CUBE, plane, -plane]), np.array([1.0] * 8 + [0, 0])
    size = 10.0 ** rng.uniform(-9, 11)
    network = rn.Network.from_weights(
        [weights * size, [row], [[1.0]]], [bias * size, [shift * size], [0.0]]
    )
    answers = asked(network, rn.Polytope(A, b))
    for answer, sign in zip(answers, (1.0, -1.0), strict=True):
        assert answer.excluded == (highest(weights, bias, sign * row, A, b) + sign * shift < -1e-4)


def test_a_scaled_programme_has_every_solution() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        low = rng.normal(size=4) * 10.0 ** rng.uniform(-12, 12, 4)
        high = low + np.abs(rng.normal(size=4)) * 10.0 ** rng.uniform(-12, 12, 4)
        x = low + (high - low) * rng.random(4)
        matrix = rng.normal(size=(3, 4)) * 10.0 ** rng.uniform(-12, 12, (3, 4))
        exact = [sum(Fraction(a) * Fraction(v) for a, v in zip(r, x, strict=True)) for r in matrix]
        ends = np.array([float(v) for v in exact])
        found = scaled((low, high), matrix, (ends, ends), np.zeros(4, dtype=bool))
        if found is None:
            continue
        y = (x - found.middle) / found.radius
        assert ((found.low <= y) & (y <= found.high)).all()
        value = found.matrix @ y
        assert (found.least - 1e-12 <= value).all()
        assert (value <= found.most + 1e-12).all()


SLANTED = np.array([[0.1, 0.3, 0.7]])  # few floats lie in this plane, and no point is a witness
THIN = rn.Polytope(
    np.vstack([np.eye(3), -np.eye(3), SLANTED, -SLANTED]), [1.0] * 6 + [0.1234, -0.1234]
)
LIED_ABOUT = rn.Network.from_weights(
    [[[1.0, -1, 0.5], [-1, 2, 0.3]], [[1.0, -1.0]], [[1.0]]], [[0.1, 0.2], [0.05], [0.0]]
)


def liar(*signs: float):
    """A solver that calls the given sides impossible."""

    def say(problem, bounds, index, units, given, **_):
        return [Answer(sign in signs, 1e-3) for sign in given]

    return say


def test_a_unit_excluded_on_both_sides_stays_undecided(monkeypatch) -> None:
    monkeypatch.setattr(engine, "decide", liar(1.0, -1.0))
    found = stability(LIED_ABOUT, THIN)
    assert found.layers[1].verdict.tolist() == ["undecided"]
    assert not found.proofs.trusted


def test_removal_on_a_false_word_is_undone(monkeypatch) -> None:
    monkeypatch.setattr(engine, "decide", liar(1.0))
    assert stability(LIED_ABOUT, THIN).layers[1].verdict.tolist() == ["dead"]
    found = rn.normalize(LIED_ABOUT, "minimal", THIN)
    points = THIN.sample(50, 0)
    assert np.abs(found.network(points) - LIED_ABOUT(points)).max() < 1e-12
    assert (1, 0) in found.undecided
    assert found.certificate is not None
    assert found.certificate.trusted == 0


def test_contradicting_proofs_are_refused() -> None:
    items = tuple(TrustedProof(1, 0, sign, 1e-3) for sign in (1, -1))
    with pytest.raises(InvalidInputError, match="contradict"):
        replay(LIED_ABOUT, THIN, Proofs(items, reach_of(THIN).box_duals, LIED_ABOUT.digest))


RAMP = rn.Network.from_weights([[[1.0], [2.0]], [[1.0, 0.0]], [[1.0]]], [[2.0, 3.0], [-2.0], [0.0]])


@pytest.mark.parametrize(
    ("axis", "cut", "children", "closed"),
    [
        ([0, -1], [-1.0, 0.0], [(1, 1), (0, 0)], [1]),  # the same child twice
        ([0, 0, -1], [-1.0, -1.0, 0.0], [(1, 2), (2, 2), (0, 0)], [2]),
        ([0, -1, -1], [-5.0, 0.0, 0.0], [(1, 2), (0, 0), (0, 0)], [1, 2]),  # outside the box
        ([0, -1, -1], [np.nan, 0.0, 0.0], [(1, 2), (0, 0), (0, 0)], [1, 2]),
        ([0, -1, -1, -1], [0.0] * 4, [(1, 2), (0, 0), (0, 0), (0, 0)], [1, 2]),  # an orphan
        ([], [], [], []),
    ],
)
def test_a_split_proof_must_be_a_tree(axis, cut, children, closed) -> None:
    """With one child twice {-1} passed for all of [-1, 1]."""
    tree = BoxTree(axis, cut, children, {(0, 1): closed})
    proofs = Proofs((SplitProof(1, tree, ((0, 1),)),), None, RAMP.digest)
    with pytest.raises(InvalidInputError, match="split proof"):
        replay(RAMP, rn.Box([-1.0], [1.0]), proofs)


@pytest.mark.parametrize("margin", [np.nan, np.inf, -1.0])
def test_margins_are_finite(margin: float) -> None:
    document = Proofs((TrustedProof(1, 0, 1, 1.0),), None, RAMP.digest).to_dict()
    document["proofs"][0]["margin"] = float(margin).hex()
    with pytest.raises(InvalidInputError, match="margin"):
        Proofs.from_dict(document)


@pytest.mark.parametrize("slope", [0.01, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("z", [-5e-324, -1e-323, -1.5e-323])
def test_a_leaky_value_that_underflows_is_no_zero(slope: float, z: float) -> None:
    at = np.array([z])
    low, high = Kink(slope, 1.0, False).image(at, at)
    true = Fraction(slope) * Fraction(z)
    assert Fraction(float(low[0])) <= true <= Fraction(float(high[0]))
    leaky = rn.Activation("leaky", slope=slope)
    bias = float(-true * Fraction(1e308) / 2)  # of which twice as much is taken away
    deep = rn.Network.from_weights([[[0.0]], [[1e308]], [[1.0]]], [[z], [bias], [0.0]], leaky)
    assert stability(deep, rn.Box([0.0], [1.0])).layers[1].verdict.tolist() != ["active"]


def test_points_of_a_flat_polytope_are_witnesses() -> None:
    """Its centre 0 lies inside exactly, but no margin for rounding is left there."""
    rows, bias = W[[0, 2, 4]], B[[0, 2, 4]]
    network = rn.Network.from_weights([rows, [[-3.0, 1, 3]], [[1.0]]], [bias, [-3.0], [0.0]])
    layer = stability(network, FLAT, milp=False).layers[1]
    assert layer.verdict.tolist() == ["unstable"]
    for point in (layer.witness_active[0], layer.witness_inactive[0]):
        x = [Fraction(float(v)) for v in point]
        assert sum(Fraction(a) * v for a, v in zip(NORMAL[0], x, strict=True)) == 0
        assert max(map(abs, x)) <= 1
