"""The search: disjunctions, resuming, and bounds that hold in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from brute_force import maximum
from hypothesis import given, settings
from hypothesis import strategies as st

import relunorm as rn
from relunorm import Activation, Affine, Box, Layer, Network, Polytope
from relunorm.bounds.nodes.node import node_of
from relunorm.bounds.nodes.tighten import tighten
from relunorm.clock import Clock, Teller
from relunorm.compiled.jit import kernel
from relunorm.extrema.decide import decide_any
from relunorm.search.chunk import Space
from relunorm.search.engine import Search

#: The part of a kernel by itself.
tightened = kernel(tighten.py_func)


def random_net(seed: int, widths: tuple[int, ...]) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    return Network.from_weights(weights, [rng.normal(size=b) for b in widths[1:]])


def exact(network: Network, x: list[Fraction]) -> list[Fraction]:
    """A relu or leaky perceptron in fractions, without the package's evaluation."""
    values = x
    for layer in [*network.layers, None]:
        affine = network.output if layer is None else layer.affine
        (matrix,) = affine.terms.values()
        z = [
            sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(np.asarray(matrix).tolist(), affine.bias.tolist(), strict=True)
        ]
        slope = Fraction(1) if layer is None else Fraction(layer.activation.slopes[0])
        values = [v if v > 0 else slope * v for v in z]
    return values


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_a_disjunction_is_each_of_its_parts(seed):
    network, box = random_net(seed, (2, 6, 6, 2)), Box.cube(2)
    rng = np.random.default_rng(seed)
    groups = [(rng.normal(size=(k, 2)), rng.normal(size=k) - 1.0) for k in (1, 2, 3)]
    together = decide_any(network, box, groups).verdict
    apart = [rn.decide(network, box, A, b).verdict for A, b in groups]
    assert "unknown" not in [together, *apart]
    assert (together == "counterexample") == ("counterexample" in apart)


def test_resume_goes_on_where_the_search_stopped():
    network, box = random_net(0, (6, 12, 12, 1)), Box.cube(6)
    found = rn.maximize(network, box, [1.0], time_limit=0)
    assert not found.complete
    first = found
    while not found.complete:
        later = found.resume(2.0)
        assert later.lower >= found.lower
        assert later.upper <= found.upper
        assert later.nodes >= found.nodes
        found = later
    assert first.certificate.verify(network).holds  # whatever was written since
    assert found.exact
    again = found.certificate.verify(network)
    assert again.holds, again
    direct = rn.maximize(network, box, [1.0], time_limit=None)
    assert found.lower == pytest.approx(direct.lower, abs=1e-8)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e-6, 1e6]), st.sampled_from([0.0, 0.1, 3.0]))
def test_both_ends_hold_in_rational_arithmetic(seed, scale, slope):
    rng = np.random.default_rng(seed)
    kind = Activation("leaky", slope) if slope else Activation("relu")
    weights = [scale * rng.normal(size=(5, 2)), rng.normal(size=(4, 5)), rng.normal(size=(1, 4))]
    biases = [scale * rng.normal(size=5), rng.normal(size=4), rng.normal(size=1)]
    network = Network.from_weights(weights, biases, kind)
    found = rn.maximize(network, Box.cube(2), [1.0])
    (value,) = exact(network, [Fraction(float(v)) for v in found.point])
    assert Fraction(found.lower) <= value <= Fraction(found.upper)
    for x in Box.cube(2).sample(40, seed):
        assert exact(network, [Fraction(float(v)) for v in x])[0] <= Fraction(found.upper)
    assert found.exact
    assert found.lower == pytest.approx(maximum(network, [1.0], -np.ones(2), np.ones(2)), rel=1e-6)


@pytest.mark.parametrize("scale", [1e6, 1e12, 1e20])
def test_cancellation_is_inside_the_interval(scale):
    """f = S (relu(.1 h + .2 h + 5) - relu(.3 h + 5)), h = relu(x) on [1, 2]"""
    first = Layer(Affine({0: [[1.0], [1.0], [1.0]]}, [0, 0, 0]))
    second = Layer(Affine({1: [[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]]}, [5.0, 5.0]))
    third = Layer(Affine({0: [[1.0]]}, [-1.5]))
    output = Affine({2: [[scale, -scale]], 3: [[0.0]]}, [0.0])
    network = Network([first, second, third], output, input_shape=1)
    slope = Fraction(0.1) + Fraction(0.2) - Fraction(0.3)
    top, bottom = 2 * slope * Fraction(scale), slope * Fraction(scale)
    highest = rn.maximize(network, Box([1.0], [2.0]), [1.0])
    lowest = rn.maximize(network, Box([1.0], [2.0]), [-1.0])
    assert Fraction(highest.lower) <= top <= Fraction(highest.upper)
    assert Fraction(lowest.lower) <= -bottom <= Fraction(lowest.upper)


def test_deep_narrow_networks_are_decided_whatever_their_path_sums():
    """Sixteen layers of large weights and small values: errors follow the bounds, not the norms."""
    rng = np.random.default_rng(4)
    weights, biases = [rng.normal(size=(6, 1)) * 40], [rng.normal(size=6)]
    for _ in range(15):
        mixed = rng.normal(size=(6, 6)) * 40
        weights.append(mixed)
        biases.append(-np.abs(mixed) @ np.full(6, 3.0))  # most units are off
    weights.append(rng.normal(size=(1, 6)))
    biases.append(np.array([-105.0]))
    network = Network.from_weights(weights, biases)
    box = Box([-1.0], [1.0])
    top = network(np.linspace(-1, 1, 20001)[:, None]).max()
    assert rn.decide(network, box, [[-1.0]], [-(top + 1.0 + abs(top) * 1e-3)]).verdict == "proved"


def test_counterexamples_are_points_in_single_precision():
    network, box = random_net(5, (4, 10, 10, 2)), Box([-1 / 3] * 4, [1 / 7] * 4)
    top = rn.maximize(network, box, 0).lower
    found = rn.decide(network, box, [[-1.0, 0.0]], [-(top - 0.01)])
    assert found.verdict == "counterexample"
    assert (found.point == found.point.astype(np.float32)).all()
    assert box.holds(found.point)[0]


@pytest.mark.parametrize("seed", range(6))
def test_units_bounded_under_a_goal_hold_wherever_the_goal_is_reached(seed):
    network = random_net(seed, (3, 8, 8, 1))
    sides = np.random.default_rng(seed).normal(size=(2, 3))
    domain = Polytope(np.vstack([np.eye(3), -np.eye(3), sides]), [1.0] * 6 + [0.3, 0.2])
    search = Search(network, domain, [(-np.eye(1), np.zeros(1))])
    clock = Clock()
    search._begin(clock, Teller(None, clock))
    search._root(clock, Teller(None, clock))
    (task,) = search.open
    node = node_of(task.numbers, task.units, task.known, 3, 1, 1)
    before = np.array([node.low, node.high])
    points = domain.sample(20_000, seed)
    goal = network(points)[:, 0]
    cut = float(np.quantile(goal, 0.98))
    space = Space(search.form, search.whole.units)
    n, never = task.units, np.zeros(1, np.uint8)
    found = tightened(node, search.form.ball, 3, n, task.known, 0, 1, cut, n, never, space.memory)
    assert found[0] > 0
    assert found[1] == n
    (first, second), (b1, b2) = (a[:2] for a in network.weights())
    z = points @ first.T + b1
    units = np.column_stack([z, np.maximum(z, 0.0) @ second.T + b2])[goal >= cut]
    units = units[:, node.units.astype(int)]
    assert (units >= node.low).all()
    assert (units <= node.high).all()
    assert (node.low >= before[0]).all()
    assert (node.high <= before[1]).all()
