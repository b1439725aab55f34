"""Verdicts and proofs that were wrong once: each test failed before it was mended."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import relunorm as rn
from relunorm.bounds.relaxation import Kink
from relunorm.stability import stability

CUBE = np.vstack([np.eye(4), -np.eye(4)])
NORMAL = np.array([[2.0, -2, -1, 2]])
FLAT = rn.Polytope(np.vstack([CUBE, NORMAL, -NORMAL]), [1.0] * 8 + [0, 0])  # holds 0
W = np.array([[3.0, -1, -2, 1], [0, 0, 0, 0], [0, 0, -2, -3], [1, 3, 0, 0], [0, 0, 0, -2.1]])
B = np.array([0, -2, 3, -3, 1.4])
V = np.array([-3.0, -2, 1, 0, 3])


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
def test_large_weights_mislead_nobody(size: float) -> None:
    """At 0, a point of the domain, z is 7.2 size - 3; a solver called both sides impossible."""
    network = rn.Network.from_weights([W * size, [V], [[1.0]]], [B * size, [-3.0 * size], [0.0]])
    layer = stability(network, FLAT).layers[1]
    assert layer.verdict.tolist() == ["unstable"]
    assert layer.lower[0] <= layer.upper[0]


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_are_right_at_any_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, row = rng.integers(-3, 4, (3, 4)) * 1.0, rng.integers(-3, 4, 3) * 1.0
    bias, shift = rng.integers(-3, 4, 3) * 1.0, float(rng.choice([-9, -3, 3, 9]))
    plane = rng.integers(-2, 3, (1, 4)) * 1.0
    A, b = np.vstack([CUBE, plane, -plane]), np.array([1.0] * 8 + [0, 0])
    size = 10.0 ** rng.uniform(-9, 11)
    network = rn.Network.from_weights(
        [weights * size, [row], [[1.0]]], [bias * size, [shift * size], [0.0]]
    )
    verdict = stability(network, rn.Polytope(A, b)).layers[1].verdict[0]
    for sign, name in ((1.0, "dead"), (-1.0, "active")):
        excluded = highest(weights, bias, sign * row, A, b) + sign * shift < -1e-4
        assert (verdict == name) == excluded


SLANTED = np.array([[0.1, 0.3, 0.7]])  # few floats lie in this plane, and no point is a witness
THIN = rn.Polytope(
    np.vstack([np.eye(3), -np.eye(3), SLANTED, -SLANTED]), [1.0] * 6 + [0.1234, -0.1234]
)
OPEN = rn.Network.from_weights(
    [[[1.0, -1, 0.5], [-1, 2, 0.3]], [[1.0, -1.0]], [[1.0]]], [[0.1, 0.2], [0.05], [0.0]]
)


def test_a_unit_without_witnesses_stays_undecided() -> None:
    """It changes sign, but no float lies in the plane to show it: nothing may be proved of it."""
    assert stability(OPEN, THIN).layers[1].verdict.tolist() == ["undecided"]


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
    layer = stability(network, FLAT).layers[1]
    assert layer.verdict.tolist() == ["unstable"]
    for point in (layer.witness_active[0], layer.witness_inactive[0]):
        x = [Fraction(float(v)) for v in point]
        assert sum(Fraction(a) * v for a, v in zip(NORMAL[0], x, strict=True)) == 0
        assert max(map(abs, x)) <= 1
