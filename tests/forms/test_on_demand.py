"""Bounds on demand, thresholds of steps, linear stages, evaluation errors, flat polytopes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import disguised, networks

import relunorm as rn
from relunorm.arithmetic.certain import exact_output
from relunorm.domain.inside import onto_plane
from relunorm.domain.reach import reach_of
from relunorm.forms.comparison.counterexample import spread
from relunorm.forms.outward import quick_bounds
from relunorm.forms.precision import evaluation_error
from relunorm.forms.relation.match import folding_error
from relunorm.forms.relation.on_demand import Asking, relate_on_demand
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.stability import replay, stability
from relunorm.stability.query import Query


def branching(seed: int) -> tuple[Network, rn.Box, rn.Stability]:
    """A network one of whose units only a search proves dead or active."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, 1 / np.sqrt(a), (b, a)) for a, b in ((6, 14), (14, 14), (14, 3))]
    biases = [rng.normal(0, 0.2, 14), rng.normal(0, 1.1, 14), rng.normal(size=3)]
    network, domain = Network.from_weights(weights, biases), rn.Box.cube(6, 0, 1)
    return network, domain, stability(network, domain)


def hard_case() -> tuple[Network, rn.Box, rn.Stability]:
    for seed in range(60):
        network, domain, found = branching(seed)
        methods = {m for x in found.layers for m in x.method[x.verdict != "unstable"].tolist()}
        if methods & {"branch", "lp", "split", "slopes"}:
            return network, domain, found
    pytest.fail("no network with a unit that needs more than the fixed rule")


def test_removed_units_are_proved_without_an_analysis() -> None:
    network, domain, found = hard_case()
    small = rn.normalize(network, "minimal", domain, analysis=found).network
    assert small.units < network.units
    for pair in ((network, small), (small, network)):
        answer = rn.compare(*pair, domain)
        assert (answer.verdict, answer.method) == ("within", "related units")
        assert rn.verify(answer.certificate, *pair).holds
        assert not rn.verify(answer.certificate, *pair[::-1]).holds


def test_only_what_has_no_partner_is_proved() -> None:
    """A disguised copy has a partner for every unit, so that no bound is asked for."""
    network, domain, _ = hard_case()
    copy = disguised(network, np.random.default_rng(0), exact=False)
    reach = reach_of(domain)
    points = spread(domain, 64, np.random.default_rng(0))
    asked = [Asking.about(net, reach, points) for net in (network, copy)]
    assert relate_on_demand(asked, 1e-9, reach).walk.largest < 1e-11
    assert not any(asking.query.bounds.lower for asking in asked)


@settings(max_examples=25, deadline=None)
@given(networks(max_depth=4), st.integers(0, 2**31), st.sampled_from([0.0, 1e-13, 1e-6, 1e-2]))
def test_bound_on_demand_is_sound(network: Network, seed: int, size: float) -> None:
    """At random points the two differ by no more than was proved, rounding (1e-12) aside."""
    rng = np.random.default_rng(seed)
    small = rn.normalize(network, "minimal", rn.Box.cube(network.input_size, -1, 1)).network
    moved = [
        Layer(Affine(x.affine.terms, x.affine.bias + size * rng.normal(size=x.width)), x.activation)
        for x in small.layers
    ]
    other = small.replace(layers=moved)
    domain = rn.Box.cube(network.input_size, -1, 1)
    reach, points = reach_of(domain), spread(domain, 32, rng)
    asked = [Asking.about(net, reach, points) for net in (other, network)]
    walk = relate_on_demand(asked, 1e-9, reach).walk
    x = domain.sample(300, seed)
    gap = np.abs(network(x) - other(x)).max(axis=0)
    scale = max(1.0, np.abs(network(x)).max())
    assert (gap <= walk.difference.largest + 1e-12 * scale).all()
    if size == 0.0:
        assert walk.largest <= 1e-9 * scale


def test_query_replays_and_forgets_what_rests_on_improved_bounds() -> None:
    network, domain, found = hard_case()
    query = Query(network, reach_of(domain))
    query.rule(1)
    for layer in found.layers:
        dead, active = layer.units("dead"), layer.units("active")
        units = np.concatenate([dead, active])
        signs = np.repeat([1.0, -1.0], [len(dead), len(active)])
        lower, upper = query.exclude(layer.layer, units, signs, nodes=2000)
        assert (upper[dead] <= 0).all()
        assert (lower[active] >= 0).all()
    again = replay(network, domain, query.proofs)
    for k, (lower, upper) in enumerate(zip(again.lower, again.upper, strict=True)):
        np.testing.assert_array_equal(lower, query.rule(k)[0])
        np.testing.assert_array_equal(upper, query.rule(k)[1])


STEP = Activation("step")


@pytest.mark.parametrize("shift", [1e-3, 1e-9, 1e-13])
def test_steps_that_jump_elsewhere_are_different(shift: float) -> None:
    """Thresholds a hair apart: between them the outputs differ by the whole jump."""
    first, second = (
        Network.from_weights([[[1.0]], [[1.0]]], [[0.5 + s], [0.0]], STEP) for s in (0.0, shift)
    )
    answer = rn.compare(first, second, rn.Box.cube(1))
    assert answer.verdict == "different"
    assert answer.lower == pytest.approx(1.0)
    a, b = (exact_output(net, answer.witness)[0] for net in (first, second))
    assert abs(a - b) == 1


def test_steps_rescaled_agree_away_from_thresholds() -> None:
    rng = np.random.default_rng(3)
    w, v, b = rng.normal(size=(5, 2)), rng.normal(size=(2, 5)), 0.3 * rng.normal(size=5)
    scale = np.exp(rng.normal(size=5))
    first = Network.from_weights([w, v], [b, np.zeros(2)], STEP)
    second = Network.from_weights([w * scale[:, None], v], [b * scale, np.zeros(2)], STEP)
    answer = rn.compare(first, second, rn.Box.cube(2))
    assert answer.verdict in ("different", "unknown")
    assert answer.apart < 1e-14
    assert rn.verify(answer.certificate, first, second).holds
    assert answer.certificate.threshold_margin < 1e-13


def stages(rng: np.random.Generator) -> Network:
    """x -> linear stage -> relu -> linear stage -> relu -> output, with weights that round."""
    sizes = [3, 4, 5, 4, 5, 2]
    kinds = ["identity", "relu", "identity", "relu"]
    maps = [
        Affine({k: rng.normal(size=(b, a)) / 3}, rng.normal(size=b) / 7)
        for k, (a, b) in enumerate(pairwise(sizes))
    ]
    layers = [Layer(a, Activation(kind)) for a, kind in zip(maps, kinds, strict=False)]
    return Network(layers, maps[-1], input_shape=3)


def test_folding_linear_stages_is_counted() -> None:
    network = stages(np.random.default_rng(1))
    domain = rn.Box.cube(3)
    bound = folding_error(network, reach_of(domain))
    folded = network.folded()
    worst = max(
        abs(a - b)
        for x in domain.sample(40, 0)
        for a, b in zip(exact_output(network, x), exact_output(folded, x), strict=True)
    )
    assert 0 < worst <= Fraction(float(bound.max()))
    assert bound.max() < 1e-13
    answer = rn.compare(network, folded, domain)
    assert answer.verdict == "within"  # not equal: folding rounds
    assert answer.upper >= worst
    assert rn.compare(network, rn.normalize(network, "pow2").network, domain).verdict == "equal"
    result = rn.normalize(network, "unit", domain)
    assert result.certificate.bound >= worst / 2
    assert rn.verify(result.certificate, network, result.network).holds


@settings(max_examples=20, deadline=None)
@given(networks(max_depth=4), st.integers(0, 2**31))
def test_float32_evaluation_stays_within_its_bound(network: Network, seed: int) -> None:
    """Against the exact rational output, evaluated in float32 layer by layer."""
    domain = rn.Box.cube(network.input_size, -1, 1)
    reach = reach_of(domain)
    bound = evaluation_error(network, quick_bounds(network, reach), reach, "float32")
    for x in domain.sample(3, seed):
        values = [x.astype(np.float32)]
        for layer in network.layers:
            z = _single(layer.affine, values)
            slope = np.float32(layer.activation.slope)
            values.append(np.where(z > 0, z, slope * z if slope else np.float32(0)))
        computed = _single(network.output, values)
        exact = [float(v) for v in exact_output(network, x)]
        assert (np.abs(computed - exact) <= bound * (1 + 1e-9)).all()


def _single(affine: Affine, values: list[np.ndarray]) -> np.ndarray:
    total = affine.bias.astype(np.float32)
    for source, matrix in affine.terms.items():
        total = total + np.asarray(matrix).astype(np.float32) @ values[source]
    return total


def test_evaluation_bound_uses_what_cancels() -> None:
    """relu(x + 9) - relu(x + 9) has derivative 0: errors below it do not reach the output."""
    weights = [[[1.0], [1.0]], [[1e6, -1e6]]]
    network = Network.from_weights(weights, [[9.0, 9.0], [0.0]])
    reach = reach_of(rn.Box.cube(1))
    third = Network(
        [network.layers[0], Layer(network.output)], Affine({2: [[1.0]]}, [0.0]), input_shape=1
    )
    wide = quick_bounds(third, reach)
    assert evaluation_error(third, wide, reach, "float64")[0] < 1e-7


@pytest.mark.parametrize("value", [0.3, 0.1, 1.0])
def test_points_of_a_plane_are_exact(value: float) -> None:
    d = 6
    rows = np.vstack([np.eye(d), -np.eye(d), np.ones((1, d)), -np.ones((1, d))])
    plane = rn.Polytope(rows, [1.0] * (2 * d) + [value, -value])
    for x in plane.sample(10, 0):
        found = onto_plane(plane, x)
        assert found is not None
        assert plane.holds(found).all()
        assert np.abs(found - x).max() < 0.2
        assert sum(Fraction(float(v)) for v in found) == Fraction(value)


def test_a_plane_without_floats_has_no_witness() -> None:
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(1, 3))
    rows = np.vstack([np.eye(3), -np.eye(3), normal, -normal])
    plane = rn.Polytope(rows, [1.0] * 6 + [0.2, -0.2])
    assert onto_plane(plane, plane.center) is None
