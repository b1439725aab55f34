"""Bounds hold in real arithmetic, and only honest proofs replay."""

from __future__ import annotations

import copy
import dataclasses
import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import networks

from relunorm import Ball, Box, Network, Polytope
from relunorm.arithmetic.floats import grain
from relunorm.bounds.layers.linear import Slopes, linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.network import Activation
from relunorm.search.proofs.tape import VERSION
from relunorm.stability import Proofs, replay, stability
from relunorm.stability.bound_proofs import FractionProof, SearchedProof
from relunorm.stability.bound_replay import rule_bounds
from relunorm.stability.sides import cone_of


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


@settings(max_examples=40)
@given(networks(), st.integers(0, 2**20))
def test_a_cone_computes_its_unit(network: Network, seed: int) -> None:
    """What a unit reads, as a network of its own: the same value, from the same numbers."""
    if not network.layers:
        return
    rng = np.random.default_rng(seed)
    index = int(rng.integers(len(network.layers)))
    unit = int(rng.integers(network.layers[index].width))
    problem = Problem(network, reach_of(Box.cube(network.input_size)))
    cone = cone_of(problem, index, unit)
    points = rng.normal(size=(20, network.input_size))
    expected = _all_preactivations(network, points)[index][:, unit]
    assert np.allclose(cone.network(points[:, cone.inputs])[:, 0], expected, rtol=1e-9, atol=1e-9)
    for layer, units in cone.units.items():
        assert layer < index
        assert (np.diff(units) > 0).all()


def _all_preactivations(network: Network, points: np.ndarray) -> list[np.ndarray]:
    values, result = [points], []
    for layer in network.layers:
        z = layer.affine(values)
        result.append(z.copy())
        values.append(layer.activation.apply_(z))
    return result


def test_the_best_slopes_reach_the_triangle_relaxation() -> None:
    """LP multipliers give back the LP's value: weak duality is tight, and safe by at most 1e-9."""
    from relunorm.bounds.layers.lp import relaxation

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
    """A network whose verdicts need slopes and searches."""
    rng = np.random.default_rng(5)
    sizes = [4, 8, 8, 8, 1]
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=8) * 0.3 for _ in range(3)] + [np.zeros(1)]
    network, box = Network.from_weights(weights, biases), Box.cube(4)
    z = network.preactivations(box.sample(20000, 0))[2]
    biases[2] = biases[2] - np.where(np.arange(8) % 2, z.max(axis=0) + 0.3, z.min(axis=0) - 0.3)
    network = Network.from_weights(weights, biases)
    return network, box, stability(network, box).proofs


def test_a_search_proof_needs_all_of_its_tree() -> None:
    """Entries left out, a wrong unit, sign or claim: none of it replays."""
    network, box, proofs = proof_rich()
    items = [x for x in proofs.items if isinstance(x, SearchedProof) and len(x.tape) > 30]
    assert items
    item = items[0]
    before = proofs.items[: proofs.items.index(item)]

    def refused(**changes: Any) -> bool:
        damaged = dataclasses.replace(item, **changes)
        try:
            replay(network, box, dataclasses.replace(proofs, items=(*before, damaged)))
        except InvalidInputError:
            return True
        return False

    assert not refused()
    assert refused(tape=item.tape[:-1])
    assert refused(tape=item.tape[1:])  # of no version
    assert refused(tape=np.append(VERSION, item.tape[7:]))
    assert refused(tape=np.zeros(0))
    assert refused(tape=np.array([VERSION]))
    assert refused(sign=-item.sign)
    assert refused(unit=99)
    assert refused(limit=item.limit - 1e3)
    rng = np.random.default_rng(0)
    for _ in range(40):  # a changed number loosens a bound, or the tree no longer fits
        tape = item.tape.copy()
        at = rng.integers(len(tape))
        tape[at] = rng.choice([-tape[at], tape[at] + 1, tape[at] / 2, np.nan])
        if not refused(tape=tape):
            again = replay(
                network, box,
                dataclasses.replace(proofs, items=(*before, dataclasses.replace(item, tape=tape))),
            )  # fmt: skip
            z = network.preactivations(box.sample(2000, 1))[item.layer][:, item.unit]
            assert (z <= again.upper[item.layer][item.unit]).all()
            assert (z >= again.lower[item.layer][item.unit]).all()


def test_damaged_proofs_are_refused() -> None:
    network, box, proofs = proof_rich()
    data = json.loads(json.dumps(proofs.to_dict()))
    for break_it in (
        lambda d: d.pop("schema"),
        lambda d: d.update(schema="other"),
        lambda d: d.update(proofs=[{"kind": "magic", "layer": 0, "unit": 0, "sign": 1}]),
        lambda d: d.update(proofs=[1]),
        lambda d: d["proofs"][0].pop("layer"),
        lambda d: d["proofs"][0].update(also=1),
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


def test_a_tie_is_decided_in_fractions() -> None:
    """0.1 |x| - 0.1 <= 0 on [-1, 1], with 0 at both ends: no float says so, fractions do."""
    weights = [[[1.0], [-1.0]], [[0.1, 0.1]], [[1.0]]]
    network = Network.from_weights(weights, [[0.0, 0.0], [-0.1], [0.0]])
    box = Box([-1.0], [1.0])
    found = stability(network, box)
    assert found.layers[1].verdict.tolist() == ["dead"]
    data = json.loads(json.dumps(found.proofs.to_dict()))
    assert replay(network, box, Proofs.from_dict(data)).upper[1][0] <= 0
    above = Network.from_weights(weights, [[0.0, 0.0], [np.nextafter(-0.1, 0)], [0.0]])
    claim = FractionProof(1, 0, 1, 4)
    with pytest.raises(InvalidInputError, match="does not go through"):
        replay(above, box, Proofs((claim,), None, above.digest))


def test_an_older_schema_is_refused_by_name() -> None:
    _, _, proofs = proof_rich()
    with pytest.raises(InvalidInputError, match=r"schema 'relunorm\.bounds/1'"):
        Proofs.from_dict({**proofs.to_dict(), "schema": "relunorm.bounds/1"})


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
