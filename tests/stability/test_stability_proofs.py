"""Bounds hold in real arithmetic, and only honest proofs replay."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import networks

from relunorm import Ball, Box, Network, Polytope
from relunorm.bounds.linear import Slopes, linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.floats import grain
from relunorm.network import Activation
from relunorm.stability import Proofs, replay, stability
from relunorm.stability.branch import part_of
from relunorm.stability.replay import covers, rule_bounds


def exact_preactivations(network: Network, point: np.ndarray) -> list[list[Fraction]]:
    """Every pre-activation at a point in rational arithmetic."""
    values = [[Fraction(float(x)) for x in point]]
    result = []
    for layer in network.layers:
        rows = []
        for i in range(layer.width):
            z = Fraction(float(layer.affine.bias[i]))
            for source, matrix in layer.affine.terms.items():
                row = matrix.toarray()[i] if hasattr(matrix, "toarray") else matrix[i]
                z += sum(Fraction(float(w)) * v for w, v in zip(row, values[source], strict=True))
            rows.append(z)
        result.append(rows)
        below, above = (Fraction(s) for s in layer.activation.slopes)
        if layer.activation.kind == "step":
            jump = (Fraction(0), Fraction(layer.activation.at_zero), Fraction(1))
            values.append([jump[(z > 0) - (z < 0) + 1] for z in rows])
        else:
            values.append([z * (above if z > 0 else below) for z in rows])
    return result


@settings(max_examples=40)
@given(networks(), st.integers(0, 2**20), st.floats(0, 1e-3))
def test_bounds_hold_in_real_arithmetic(network: Network, seed: int, size: float) -> None:
    """On domains as small as a point the bounds have no room, and still hold the exact value."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=network.input_size)
    box = Box(middle - size, middle + size)
    found = stability(network, box, time_limit=1.0)
    for point in (*box.sample(3, rng), box.lo, box.hi):
        exact = exact_preactivations(network, point)
        for layer in found.layers:
            for z, low, high in zip(exact[layer.layer], layer.lower, layer.upper, strict=True):
                assert Fraction(float(low)) <= z <= Fraction(float(high))


@settings(max_examples=40)
@given(networks(), st.integers(0, 2**20))
def test_any_slopes_are_sound(network: Network, seed: int) -> None:
    """Random tilts and offsets bound from above wherever one looks: there is nothing to trust."""
    if not network.layers:
        return
    rng = np.random.default_rng(seed)
    d = network.input_size
    rows = np.vstack([np.eye(d), -np.eye(d), rng.normal(size=(2, d))])
    domains = (
        Box.cube(d),
        Ball(np.zeros(d), 1.0),
        Polytope(rows, np.append(np.ones(2 * d), [1, 2])),
    )
    for domain in domains:
        problem = Problem(network, reach_of(domain))
        bounds = Bounds(problem)
        index = len(network.layers) - 1
        for layer in range(index):
            bounds.append(*rule_bounds(problem, bounds, layer))
        width = network.layers[index].width
        units, signs = np.arange(width), np.where(rng.random(width) < 0.5, 1.0, -1.0)
        shapes = {k: (width, network.layers[k].width) for k in range(index)}
        many = np.abs(rng.normal(size=(width, problem.reach.rows))) if problem.reach.rows else None
        slopes = Slopes(
            {k: rng.random(s) * 2 - 0.5 for k, s in shapes.items()},
            {k: rng.normal(size=s) for k, s in shapes.items()},
            many,
        )
        upper = linear_upper(problem, bounds, index, units, signs, slopes)
        z = _all_preactivations(network, domain.sample(500, rng))[index]
        assert (signs * z <= upper).all()


def test_parts_hold_every_point_that_takes_their_decisions() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_weights(
        [rng.normal(size=(4, 2)), rng.normal(size=(4, 4)), np.ones((1, 4))]
    )
    problem = Problem(network, reach_of(Box.cube(2)))
    bounds = Bounds(problem)
    for layer in range(2):
        bounds.append(*rule_bounds(problem, bounds, layer))
    z = _all_preactivations(network, Box.cube(2).sample(4000, 0))
    for layer, unit in ((0, 1), (0, 3), (1, 2)):
        for sign in (1, -1):
            part = part_of(problem, bounds, 2, [((layer, unit, sign),)])
            here = sign * z[layer][:, unit] >= 0
            for k in range(2):
                assert (z[k][here] >= part.lower[k]).all()
                assert (z[k][here] <= part.upper[k]).all()
            ends = part.lower if sign > 0 else part.upper
            assert ends[layer][0, unit] == 0


def _all_preactivations(network: Network, points: np.ndarray) -> list[np.ndarray]:
    values, result = [points], []
    for layer in network.layers:
        z = layer.affine(values)
        result.append(z.copy())
        values.append(layer.activation.apply_(z))
    return result


def test_the_best_slopes_reach_the_triangle_relaxation() -> None:
    """LP multipliers give back the LP's value: weak duality is tight, and safe by at most 1e-9."""
    from relunorm.bounds.lp import relaxation

    rng = np.random.default_rng(3)
    sizes = [3, 6, 6, 5, 1]
    for activation in (
        Activation("relu"),
        Activation("leaky", slope=0.2),
        Activation("leaky", slope=2.0),
    ):
        network = Network.from_weights(
            [rng.normal(size=(b, a)) for a, b in pairwise(sizes)],
            activation=activation,
        )
        problem = Problem(network, reach_of(Box.cube(3)))
        bounds = Bounds(problem)
        for layer in range(2):
            bounds.append(*rule_bounds(problem, bounds, layer))
        model = relaxation(problem, bounds, 2)
        z = network.preactivations(Box.cube(3).sample(2000, 0))[2]
        for unit in range(5):
            for sign in (1.0, -1.0):
                best = model.maximize(unit, sign)
                assert best is not None
                safe = linear_upper(
                    problem, bounds, 2, np.array([unit]), np.array([sign]), best.slopes
                )[0]
                assert best.value - 1e-9 <= safe <= best.value + 1e-9
                assert safe >= (sign * z[:, unit]).max()


def proof_rich() -> tuple[Network, Box, Proofs]:
    """A network whose verdicts need slopes, a tree of signs and a tree of cuts."""
    rng = np.random.default_rng(5)
    sizes = [4, 8, 8, 8, 1]
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=8) * 0.3 for _ in range(3)] + [np.zeros(1)]
    network, box = Network.from_weights(weights, biases), Box.cube(4)
    z = network.preactivations(box.sample(20000, 0))[2]
    biases[2] = biases[2] - np.where(np.arange(8) % 2, z.max(axis=0) + 0.3, z.min(axis=0) - 0.3)
    network = Network.from_weights(weights, biases)
    return network, box, stability(network, box).proofs


def proof_by_branching(monkeypatch) -> tuple[Network, Box, Proofs]:
    from relunorm.stability import engine

    monkeypatch.setattr(engine, "FEW_INPUTS", 0)
    return proof_rich()


def test_a_split_proof_needs_every_box() -> None:
    network, box, proofs = proof_rich()
    data = json.loads(json.dumps(proofs.to_dict()))
    at = [k for k, item in enumerate(data["proofs"]) if item["kind"] == "split"]
    assert at
    good = replay(network, box, Proofs.from_dict(data))
    damaged = copy.deepcopy(data)
    side = damaged["proofs"][at[0]]["closed"][0]
    side["boxes"] = side["boxes"][1:]
    with pytest.raises(InvalidInputError, match="leaves part of the domain out"):
        replay(network, box, Proofs.from_dict(damaged))
    damaged = copy.deepcopy(data)
    damaged["proofs"][at[0]]["children"][0] = [0, 0]
    with pytest.raises(InvalidInputError, match="not a tree"):
        replay(network, box, Proofs.from_dict(damaged))
    damaged = copy.deepcopy(data)
    layer = damaged["proofs"][at[0]]["layer"]
    cuts = damaged["proofs"][at[0]]["cut"]
    damaged["proofs"][at[0]]["cut"] = [(-0.99).hex() for _ in cuts]
    worse = replay(network, box, Proofs.from_dict(damaged))
    assert (worse.upper[layer] >= good.upper[layer] - 1e-12).all()
    assert not np.array_equal(worse.upper[layer], good.upper[layer]) or not np.array_equal(
        worse.lower[layer], good.lower[layer]
    )


def test_a_branch_proof_needs_every_leaf(monkeypatch) -> None:
    network, box, proofs = proof_by_branching(monkeypatch)
    data = json.loads(json.dumps(proofs.to_dict()))
    at = [k for k, x in enumerate(data["proofs"]) if x["kind"] == "branch" and len(x["paths"]) > 2]
    assert at
    replay(network, box, Proofs.from_dict(data))
    damaged = copy.deepcopy(data)
    step = damaged["proofs"][at[0]]["paths"][0][-1]
    step[2] = -step[2]
    with pytest.raises(InvalidInputError, match="leaves part of the domain out"):
        replay(network, box, Proofs.from_dict(damaged))
    damaged = copy.deepcopy(data)
    damaged["proofs"][at[0]]["paths"][0][0][0] = damaged["proofs"][at[0]]["layer"]
    with pytest.raises(InvalidInputError, match="decides unit"):
        replay(network, box, Proofs.from_dict(damaged))


def test_damaged_proofs_are_refused() -> None:
    network, box, proofs = proof_rich()
    data = json.loads(json.dumps(proofs.to_dict()))
    for break_it in (
        lambda d: d.pop("schema"),
        lambda d: d.update(schema="other"),
        lambda d: d.update(proofs=[{"kind": "magic", "layer": 0, "unit": 0, "sign": 1}]),
        lambda d: d.update(proofs=[1]),
        lambda d: d["proofs"][0].pop("layer"),
        lambda d: d["proofs"][0].update(units=[99], signs=[1]),
        lambda d: d["proofs"][0].update(signs=[2] * len(d["proofs"][0]["units"])),
        lambda d: next(iter(d["proofs"][0]["tilt"].values())).update(data="@@"),
        lambda d: next(iter(d["proofs"][0]["tilt"].values())).update(shape=[1, 1]),
    ):
        damaged = copy.deepcopy(data)
        break_it(damaged)
        with pytest.raises(InvalidInputError):
            replay(network, box, Proofs.from_dict(damaged))
    other = network.replace(output=network.layers[-1].affine, output_shape=())
    with pytest.raises(InvalidInputError, match="another network"):
        replay(other, box, proofs)


def test_trusted_verdicts_can_be_left_out() -> None:
    from relunorm.stability.proof import TrustedProof

    network = Network.from_weights([[[1.0]], [[1.0]]])
    proofs = Proofs((TrustedProof(0, 0, 1, 1e-6),))
    assert replay(network, Box.cube(1), proofs).upper[0][0] == -1e-6
    assert replay(network, Box.cube(1), proofs).trusted == ((0, 0),)
    assert replay(network, Box.cube(1), proofs, trust=False).upper[0][0] == 1.0
    assert proofs.to_dict()["solver_trusted"] == 1


def test_covers() -> None:
    a, b = (0, 0, 1), (0, 0, -1)
    assert covers([()])
    assert covers([(a,), (b,)])
    assert covers([(a, (1, 2, 1)), (a, (1, 2, -1)), (b,)])
    assert not covers([(a,)])
    assert not covers([(a,), (a,)])
    assert not covers([(), (a,)])
    assert not covers([(a, (1, 2, 1)), (b, (1, 2, -1))])
    assert not covers([(a,), ((0, 1, -1),)])


def test_a_polytope_that_the_solver_rounded_is_bounded_from_outside() -> None:
    rng = np.random.default_rng(2)
    A = np.vstack([rng.normal(size=(12, 3)), np.eye(3), -np.eye(3)])
    polytope = Polytope(A, np.concatenate([np.ones(12) * 0.7, np.ones(6)]))
    reach = reach_of(polytope)
    points = polytope.sample(2000, 0)
    assert (points >= reach.lo).all()
    assert (points <= reach.hi).all()
    assert np.allclose(reach.lo, polytope.bounding_box.lo, atol=1e-8)
    assert np.allclose(reach.hi, polytope.bounding_box.hi, atol=1e-8)


def test_grain() -> None:
    assert grain(np.array([3.0, 5.0])) == 1.0
    assert grain(np.array([0.0])) == np.inf
    assert grain(np.array([0.1])) == 2.0**-55
    assert grain(np.array([[1.5], [4.0]]), axis=1).tolist() == [0.5, 4.0]
