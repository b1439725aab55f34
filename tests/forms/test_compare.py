"""Comparing two networks: every verdict, with its proof or its witness."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import exact_value
from planted import disguised, networks
from torch import nn

import relunorm as rn
from relunorm.clock import Clock, Progress
from relunorm.errors import InvalidDomainError, InvalidInputError, InvalidNetworkError
from relunorm.forms.certificate.certificate import Certificate, seal
from relunorm.forms.certificate.verification import verify
from relunorm.forms.comparison.counterexample import Counterexample, scatter, uphill
from relunorm.forms.comparison.stepwise import same_steps, stepwise_difference
from relunorm.forms.relation.arrangement import same_arrangement
from relunorm.forms.relation.residual import residual
from relunorm.io.graph.structured import lower
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.structure import Structure


def random_net(seed: int, widths: list[int], scale: float = 1.0) -> Network:
    rng = np.random.default_rng(seed)
    pairs = list(pairwise(widths))
    return Network.from_weights(
        [scale * rng.normal(0, 1 / np.sqrt(a), (b, a)) for a, b in pairs],
        [rng.normal(0, 0.3, b) for _, b in pairs],
    )


@settings(max_examples=20)
@given(networks(max_depth=4), st.integers(0, 2**32 - 1), st.booleans())
def test_rewritten_copies_are_within(network: Network, seed: int, exact: bool) -> None:
    domain = rn.Box.cube(network.input_size)
    copy = disguised(network, np.random.default_rng(seed), exact=exact)
    found = rn.compare(network, copy, domain, tolerance=1e-7)
    assert found.verdict in ("equal", "within")
    assert found.certificate is not None
    assert rn.verify(found.certificate, network, copy).holds
    reduced = rn.normalize(copy, "l1", domain).network
    assert rn.compare(network, reduced, domain, tolerance=1e-7).verdict in ("equal", "within")


def test_permutation_and_powers_of_two_are_equal() -> None:
    network = random_net(0, [4, 9, 7, 2])
    (w0, w1, w2), (b0, b1, b2) = network.weights()
    rng = np.random.default_rng(1)
    p, q = rng.permutation(9), rng.permutation(7)
    s, t = 2.0 ** rng.integers(-5, 5, 9), 2.0 ** rng.integers(-5, 5, 7)
    copy = Network.from_weights(
        [w0[p] * s[:, None], (w1[q][:, p] / s) * t[:, None], w2[:, q] / t],
        [b0[p] * s, b1[q] * t, b2],
    )
    assert same_arrangement(network, copy)
    found = rn.compare(network, copy, rn.Box.cube(4))
    assert found.verdict == "equal"
    assert found.upper == 0
    changed = copy.replace(output=rn.Affine({2: w2[:, q] / t * 1.0000001}, b2))
    assert not same_arrangement(network, changed)


@pytest.mark.parametrize("kind", ["box", "ball", "polytope"])
def test_a_changed_weight_is_found(kind: str) -> None:
    network = random_net(3, [4, 12, 10, 3])
    weights, biases = network.weights()
    changed = [np.array(w) for w in weights]
    changed[1][2, 3] += 1e-3
    other = Network.from_weights(changed, biases)
    domain = {
        "box": rn.Box.cube(4),
        "ball": rn.Ball(np.zeros(4), 1.5),
        "polytope": rn.Polytope(np.vstack([np.eye(4), -np.eye(4)]), np.ones(8)),
    }[kind]
    found = rn.compare(network, other, domain)
    assert found.verdict == "different"
    assert domain.contains(found.witness)[0]
    gap = max(
        abs(p - q)
        for p, q in zip(
            exact_value(network, found.witness), exact_value(other, found.witness), strict=True
        )
    )
    assert gap >= found.lower > 1e-9
    assert found.lower <= found.upper
    np.testing.assert_array_equal(found.first, network(found.witness))


def test_upper_bound_never_lies() -> None:
    for seed in range(5):
        a, b = random_net(seed, [3, 6, 5, 1]), random_net(seed + 50, [3, 7, 2])
        b = Network.from_weights([*b.weights()[0][:-1], b.weights()[0][-1][:1]],
                                 [*b.weights()[1][:-1], b.weights()[1][-1][:1]])  # fmt: skip
        found = rn.compare(a, b, rn.Box.cube(3), tolerance=100.0, time_limit=5)
        x = rn.Box.cube(3).sample(2000, 0)
        assert np.abs(a(x) - b(x)).max() <= found.upper
        assert found.verdict == "within"


def test_residual_shares_units() -> None:
    """Two networks that differ in the last layer only: the residual holds the first layers once."""
    from relunorm.domain.reach import reach_of
    from relunorm.forms.outward import quick_bounds
    from relunorm.forms.relation.match import relate

    network = random_net(5, [4, 8, 6, 2])
    weights, biases = network.weights()
    last = np.array(weights[2])
    last[0, 0] += 0.1
    other = Network.from_weights([*weights[:2], last], biases)
    domain = rn.Box.cube(4)
    reach = reach_of(domain)
    walk = relate(network, other, reach, quick_bounds(network, reach), quick_bounds(other, reach))
    rest, error = residual(walk)
    assert rest.units <= network.units
    x = domain.sample(200, 0)
    assert (np.abs(network(x) - other(x) - rest(x)) <= error + 1e-14).all()


def test_branch_and_bound_closes_the_gap() -> None:
    """A changed row: the maximum of |f - g| is found and proved, not only bounded."""
    network = random_net(0, [3, 8, 8, 1])
    weights, biases = network.weights()
    changed = [np.array(w) for w in weights]
    changed[1][0] += 0.02
    other = Network.from_weights(changed, biases)
    domain = rn.Box.cube(3)
    found = rn.compare(network, other, domain)
    assert found.verdict == "different"
    tight = rn.compare(network, other, domain, tolerance=1.05 * found.lower, time_limit=None)
    assert tight.verdict == "within"
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 31)] * 3), axis=-1).reshape(-1, 3)
    assert np.abs(network(grid) - other(grid)).max() <= tight.upper


def test_stability_is_proved_when_needed() -> None:
    """A unit that is dead, but not by intervals or linear bounds, was removed in the copy."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        network = random_net(seed, [3, 10, 10, 10, 2])
        domain = rn.Box.cube(3)
        reduced = rn.normalize(network, "minimal", domain)
        methods = {r.method for r in reduced.removed}
        if methods - {"structure", "interval", "linear"}:
            copy = disguised(reduced.network, rng, exact=False)
            found = rn.compare(network, copy, domain, time_limit=None)
            assert found.verdict == "within"
            assert rn.verify(found.certificate, network, copy).holds
            return
    pytest.fail("no network with a unit that needs more than linear bounds")


def test_step_networks_are_equal_or_different() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_weights(
        [rng.normal(size=(5, 2)), rng.normal(size=(1, 5))], activation=Activation("step")
    )
    (w, v), (b, c) = network.weights()
    order = rng.permutation(5)
    copy = Network.from_weights([4 * w[order], v[:, order]], [4 * b[order], c], Activation("step"))
    assert rn.compare(network, copy, rn.Box.cube(2)).verdict == "equal"
    other = Network.from_weights([w, v + 0.1], [b, c], Activation("step"))
    assert rn.compare(network, other, rn.Box.cube(2)).verdict == "different"


def test_refusals() -> None:
    a = random_net(0, [2, 3, 1])
    with pytest.raises(InvalidInputError, match="outputs"):
        rn.compare(a, random_net(0, [2, 3, 2]), rn.Box.cube(2))
    with pytest.raises(InvalidInputError, match="inputs"):
        rn.compare(a, random_net(0, [3, 3, 1]), rn.Box.cube(2))
    with pytest.raises(InvalidDomainError):
        rn.compare(a, a, rn.Box.cube(3))
    with pytest.raises(InvalidInputError, match="tolerance"):
        rn.compare(a, a, rn.Box.cube(2), tolerance=-1.0)


def test_tolerance_zero_is_a_question() -> None:
    """No search shows that functions are equal; one that they differ needs no tolerance."""
    first = Network.from_weights(
        [[[1.0, 1], [1.0, -1]], [[1.0, 1.0]], [[1.0]]], [[0.1, 0.3], [-0.5], [0.0]]
    )
    second = Network.from_weights(
        [[[1.0, 1], [1.0, -1]], [[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5]]],
        [[0.1, 0.3], [-0.5, -0.5], [0.0]],
    )
    found = rn.compare(first, second, rn.Box.cube(2), tolerance=0.0)
    assert found.verdict in ("equal", "unknown")
    assert found.upper < 1e-12
    other = second.replace(output=rn.Affine({2: [[0.5, 0.5 + 2.0**-40]]}, [0.0]))
    assert rn.compare(first, other, rn.Box.cube(2), tolerance=0.0).verdict == "different"


@pytest.mark.parametrize("slope", [[np.inf, 0.0], [np.nan, 1.0], [1e308, -1e300]])
def test_gradients_that_overflow_over_a_polytope(slope: list[float]) -> None:
    """They reached a linear programming routine as they were."""
    diamond = rn.Polytope([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], [1.0] * 4)
    points = uphill(diamond, np.zeros((1, 2)), np.array([slope]))
    assert diamond.contains(points, 1e-9).all()


@pytest.mark.parametrize("size", [1e100, 1e200])
def test_linear_stages_that_overflow_raise_no_warning(size: float) -> None:
    def network(bias: float) -> rn.Network:
        stage = Layer(Affine({0: np.array([[size]])}, np.array([size])), rn.Activation("identity"))
        units = Layer(Affine({1: np.array([[size]])}, np.array([bias])))
        return rn.Network([stage, units], Affine({2: np.eye(1)}, np.zeros(1)), input_shape=1)

    try:
        found = rn.compare(network(0.0), network(1.0), rn.Box([-1.0], [1.0]), time_limit=2.0)
        assert found.certificate is None or np.isfinite(found.certificate.bound)
    except InvalidNetworkError:
        assert size == 1e200  # the product of the stages is no number


@pytest.mark.parametrize("kind", ["step", "relu"])
def test_equal_rows_do_not_hide_a_permutation(kind: str) -> None:
    """Which of two equal rows comes first shows in the weights that read them only."""
    activation = rn.Activation(kind)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=(6, 3)), rng.normal(size=(5, 6))
        first[3:], offsets = first[:3], np.tile(rng.normal(size=3) / 3, 2)
        last, bias = rng.normal(size=(2, 5)), rng.normal(size=5)
        net = rn.Network.from_weights(
            [first, second, last], [offsets, bias, np.zeros(2)], activation
        )
        p, q = rng.permutation(6), rng.permutation(5)
        scale = 2.0 ** rng.integers(-3, 4, 5)
        copy = rn.Network.from_weights(
            [
                first[p],
                scale[:, None] * second[q][:, p],
                last[:, q] / (1 if kind == "step" else scale),
            ],
            [offsets[p], scale * bias[q], np.zeros(2)],
            activation,
        )
        assert rn.compare(net, copy, rn.Box.cube(3)).verdict == "equal"
        moved = second[q][:, p].copy()
        moved[0, 0] += 1e-3
        other = rn.Network.from_weights(
            [first[p], moved, last[:, q]], [offsets[p], bias[q], np.zeros(2)], activation
        )
        assert rn.compare(net, other, rn.Box.cube(3), time_limit=1).verdict != "equal"


PLANE = rn.Polytope(  # a piece of x + y = 1/2
    [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, -1.0]], [0.24, 0.37, -0.13, -0.26, 0.5, -0.5]
)
NOTHING = Network([Layer(Affine({0: [[1.0, 0.0]]}, [0.0]))], Affine({1: [[0.0]]}, [0.0]),
                  input_shape=2)  # fmt: skip


def off_the_plane(activation: Activation, size: float) -> Network:
    """size * act(relu(x - 1/8) + relu(y - 1/4) - 1/8), which is act(x + y - 1/2) on `PLANE`."""
    first = Layer(Affine({0: np.eye(2)}, [-0.125, -0.25]))
    second = Layer(Affine({1: [[1.0, 1.0]]}, [-0.125]), activation)
    return Network([first, second], Affine({2: [[size]]}, [0.0]), input_shape=2)


@pytest.mark.parametrize(
    ("activation", "size"),
    [
        (Activation("relu"), 1e9),
        (Activation("relu"), 1e17),
        (Activation("leaky", slope=0.5), 1e17),
        (Activation("step", at_zero=0.0), 1.0),
    ],
)
def test_a_witness_lies_in_a_flat_polytope(activation: Activation, size: float) -> None:
    """Points a rounding error off the plane show a difference, and prove none."""
    network = off_the_plane(activation, size)
    found = rn.compare(network, NOTHING, PLANE, time_limit=2)
    assert found.verdict != "different"
    assert found.lower == 0
    if found.witness is not None:
        assert sum(Fraction(v) for v in found.witness.tolist()) == Fraction(1, 2)
    # a difference that is there is still found, at a point of the plane
    moved = network.replace(output=Affine(network.output.terms, [1e-3]))
    found = rn.compare(moved, NOTHING, PLANE, time_limit=2)
    assert found.verdict == "different"
    assert found.witness is not None
    assert sum(Fraction(v) for v in found.witness.tolist()) == Fraction(1, 2)
    assert PLANE.holds(found.witness).all()


@pytest.mark.parametrize("radius", [1e-3, 1e-9, 1e-170, 5e-324])
def test_a_witness_lies_in_a_tiny_ball(radius: float) -> None:
    """relu(S (|x| - r)) is 0 on the ball and large beside it."""
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8]]) / max(radius, 1e-300)
    network = Network.from_weights([rows, [[1.0] * 3]], [[-1.0] * 3, [0.0]])
    domain = rn.Ball([0.0, 0.0], radius)
    found = rn.compare(network, NOTHING, domain, tolerance=1e-30, time_limit=1)
    if found.verdict == "different":
        x = [Fraction(v) for v in found.witness.tolist()]
        assert sum(v * v for v in x) <= Fraction(radius) ** 2
        assert exact_value(network, x)[0] > Fraction(1e-30)


@pytest.mark.parametrize("kind", ["relu", "leaky"])
def test_equal_rows_that_are_read_with_opposite_signs(kind: str) -> None:
    """A permuted copy is equal exactly, also where weights differ by sign and powers of two."""
    activation = Activation("leaky", slope=0.25) if kind == "leaky" else Activation("relu")
    for seed in range(12):
        rng = np.random.default_rng(seed)
        weights = [rng.integers(-1, 2, size=shape).astype(float) for shape in ((6, 2), (5, 6))]
        offsets = [rng.integers(-1, 2, size=n).astype(float) for n in (6, 5)]
        last = rng.normal(size=(1, 5))
        weights[0][3:], offsets[0][3:] = weights[0][:3], offsets[0][:3]
        weights[1][:, 3:] = -weights[1][:, :3]
        weights[1][1], offsets[1][1] = weights[1][0], offsets[1][0]
        last[0, 1] = -last[0, 0]
        network = Network.from_weights([*weights, last], [*offsets, np.zeros(1)], activation)
        p, q = rng.permutation(6), rng.permutation(5)
        s, t = 2.0 ** rng.integers(-2, 3, 6), 2.0 ** rng.integers(-2, 3, 5)
        copy = Network.from_weights(
            [
                (s[:, None] * weights[0])[p],
                ((t[:, None] * weights[1])[q] / s)[:, p],
                (last / t)[:, q],
            ],
            [(s * offsets[0])[p], (t * offsets[1])[q], np.zeros(1)],
            activation,
        )
        assert rn.compare(network, copy, rn.Box.cube(2), tolerance=0).verdict == "equal"


def in_float32(network: Network) -> Network:
    weights, biases = network.weights()
    cast = [[np.float32(v).astype(float) for v in part] for part in (weights, biases)]
    return Network.from_weights(*cast)


def test_the_tolerance_follows_the_precision_of_the_models() -> None:
    network, domain = random_net(0, [3, 8, 6, 2]), rn.Box.cube(3)
    copy = in_float32(network)
    found = rn.compare(network, copy, domain, time_limit=None)
    assert (found.verdict, found.precision) == ("within", "float32")
    assert 0 < found.lower <= found.upper <= found.tolerance < 1e-4
    assert found.upper <= 3 * found.lower
    assert found.to_dict()["precision"] == "float32"
    assert "for float32" in repr(found)
    asked = rn.compare(network, copy, domain, tolerance=1e-9, time_limit=None)
    assert (asked.verdict, asked.precision, asked.tolerance) == ("different", "given", 1e-9)
    assert asked.upper <= 3 * asked.lower
    whole = Network.from_weights([[[1.0], [-3.0]], [[2.0, 5.0]]])  # written by hand
    double = rn.compare(whole, random_net(0, [1, 2, 1]), rn.Box.cube(1))
    assert (double.precision, double.tolerance) == ("float64", 1e-9)


@pytest.mark.parametrize("bits", [3, 7, 12])
def test_rounded_copies_get_both_ends(bits: int) -> None:
    """Against all corners and a grid, evaluated without rounding where they differ most."""
    network, domain = random_net(1, [2, 10, 8, 2]), rn.Box.cube(2)
    weights, biases = network.weights()
    rounded = [np.round(np.asarray(w) * 2**bits) / 2**bits for w in weights]
    copy = Network.from_weights(rounded, biases)
    found = rn.compare(network, copy, domain, factor=1.2, time_limit=None)
    assert found.verdict == "different"
    assert found.upper <= 1.2 * found.lower
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    gaps = np.abs(network(grid) - copy(grid)).max(axis=1)
    worst = grid[gaps.argmax()]
    exact = zip(exact_value(network, worst), exact_value(copy, worst), strict=True)
    assert max(abs(a - b) for a, b in exact) <= Fraction(found.upper)
    assert found.lower <= 1.2 * gaps.max()


@pytest.mark.parametrize("seed", range(4))
def test_random_steps_stay_in_the_box_and_claim_what_is_attained(seed: int) -> None:
    """One side of the box is flat; the claim is tight, and no random point is much better."""
    rng = np.random.default_rng(seed)
    pair = random_net(seed, [3, 6, 5, 2]), random_net(seed + 9, [3, 6, 5, 2])
    lo = rng.uniform(-1, 0, 3)
    hi = lo + np.array([0.3, 0.0, 1.0])
    point = scatter(*pair, rn.Box(lo, hi), 256, rng)
    assert ((lo <= point) & (point <= hi)).all()
    search = Counterexample(pair, rn.Box(lo, hi), 0.0, rng, Clock())
    search.offer(point)
    exact = zip(*(exact_value(network, point) for network in pair), strict=True)
    most = max(abs(a - b) for a, b in exact)
    assert Fraction(0.999) * most <= Fraction(search.lower) <= most
    others = rng.uniform(lo, hi, (2000, 3))
    assert np.abs(pair[0](others) - pair[1](others)).max() <= 1.001 * float(most)


def test_networks_that_differ_get_an_upper_end_whatever_their_layers() -> None:
    domain = rn.Box.cube(3)
    found = rn.compare(random_net(0, [3, 5, 2]), random_net(1, [3, 4, 4, 2]), domain)
    assert found.verdict == "different"
    assert found.lower <= found.upper < np.inf


def test_the_same_class_everywhere_or_where_not() -> None:
    network, domain = random_net(2, [3, 10, 8, 3]), rn.Box.cube(3)
    weights, biases = network.weights()
    copy = Network.from_weights([np.round(w * 256) / 256 for w in weights], biases)
    found = rn.compare(network, copy, domain, top1=True).top1
    assert found is not None
    assert found.verdict == "different"
    assert domain.holds(found.witness)[0]
    values = [exact_value(n, found.witness) for n in (network, copy)]
    classes = [max(range(3), key=lambda k: (v[k], -k)) for v in values]
    assert classes == [found.first, found.second]
    assert classes[0] != classes[1]
    ahead = [biases[0], biases[1], biases[2] + np.array([0.0, 30.0, 0.0])]
    sure = [Network.from_weights(w, ahead) for w in (weights, copy.weights()[0])]
    same = rn.compare(*sure, domain, top1=True).top1
    assert same is not None
    assert (same.verdict, same.first, same.second) == ("same", 1, 1)
    assert rn.compare(network, network, domain, top1=True).top1.verdict == "same"  # type: ignore[union-attr]
    assert rn.compare(network, copy, domain).top1 is None


def test_classes_of_one_output_are_its_signs() -> None:
    network = Network.from_weights([[[1.0]], [[1.0]]], [[0.0], [-0.5]])  # relu(x) - 1/2
    moved = Network.from_weights([[[1.0]], [[1.0]]], [[0.0], [-0.5625]])
    found = rn.compare(network, moved, rn.Box([0.0], [1.0]), top1=True).top1
    assert found is not None
    assert found.verdict == "different"
    assert 0.5 < float(found.witness[0]) <= 0.5625  # type: ignore[index]
    assert (found.first, found.second) == (1, 0)
    apart = rn.compare(network, moved, rn.Box([0.0], [0.4]), top1=True).top1
    assert apart is not None
    assert (apart.verdict, apart.first) == ("same", 0)


def test_a_lower_end_is_not_0_beside_a_witness_of_other_classes(monkeypatch):
    # rounding hides the difference, and of larger networks nothing is computed without it
    monkeypatch.setattr("relunorm.forms.comparison.counterexample.PARAMETERS", 0)
    high, low = (
        rn.Network.from_weights([[[1.0]], [[0.0], [0.0]]], [[0.0], [1e8, 1e8 + step]])
        for step in (2.0**-26, -(2.0**-26))
    )
    found = rn.compare(high, low, rn.Box([0.0], [1.0]), top1=True, time_limit=1)
    assert found.top1 is not None
    assert (found.top1.verdict, found.top1.first, found.top1.second) == ("different", 1, 0)
    assert found.lower == 2.0**-25 <= found.upper


@pytest.mark.parametrize("factor", [0.5, float("nan")])
def test_a_factor_below_one_is_refused(factor: float) -> None:
    network = random_net(0, [2, 3, 1])
    with pytest.raises(InvalidInputError, match="factor is"):
        rn.compare(network, network, rn.Box.cube(2), factor=factor)


def test_an_export_in_single_precision_is_within_the_usual_tolerance(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    net = rn.Network.from_weights([rng.normal(size=(6, 3)), 50 * rng.normal(size=(2, 6))])
    rn.save(net, tmp_path / "single.onnx")
    box = rn.Box.cube(3)
    found = rn.compare(net, tmp_path / "single.onnx", box)
    assert found.verdict == "within"
    assert 1e-7 < found.upper <= found.tolerance <= 1e-5 * 1000
    assert rn.compare(net, tmp_path / "single.onnx", box, tolerance=1e-9).verdict == "different"
    assert rn.compare(net, net, box).tolerance == 1e-9
    moved = net.replace(output=rn.Affine(net.output.terms, net.output.bias + np.array([0.5, 0.0])))
    rn.save(moved, tmp_path / "moved.onnx")
    assert rn.compare(net, tmp_path / "moved.onnx", box).verdict == "different"


def test_a_scaler_in_front_does_not_hide_single_precision():
    """A float32 file whose scaler was folded into the first map is a float32 file still."""
    rng = np.random.default_rng(3)
    single = [
        rng.normal(size=(6, 4)).astype(np.float32),
        rng.normal(size=(3, 6)).astype(np.float32),
    ]
    shift, scale = rng.normal(size=4), rng.uniform(0.3, 3.0, size=4)
    folded = single[0].astype(np.float64) / scale
    file = rn.Network.from_weights(
        [folded, single[1].astype(np.float64)], [-folded @ shift, np.zeros(3)]
    )
    exact = rn.Network.from_weights(
        [folded, single[1] + 1e-8 * rng.normal(size=(3, 6))], [-folded @ shift, np.zeros(3)]
    )
    found = rn.compare(exact, file, rn.Box.cube(4))
    assert found.verdict == "within"
    assert "for float32" in repr(found)


def _exported(padding: int, pool: type[nn.Module], last: nn.Module) -> tuple[Network, Network]:
    """A convolutional model with its batch norm folded in float64, and in float32."""
    rng = torch.Generator().manual_seed(padding)
    body = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=padding), nn.BatchNorm2d(3), nn.ReLU(), pool(2), last,
        nn.Flatten(), nn.LazyLinear(2),
    ).eval()  # fmt: skip
    body(torch.zeros(1, 1, 6, 6))
    with torch.no_grad():
        for value in body.state_dict().values():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=rng) + 0.1)
    fused = torch.nn.utils.fusion.fuse_conv_bn_eval(body[0], body[1])
    single = nn.Sequential(fused, *list(body)[2:])
    return rn.load(body, example=(1, 6, 6)), rn.load(single, example=(1, 6, 6))


@pytest.mark.parametrize("far", [0.0, 1e-9, 0.02])
@pytest.mark.parametrize("last", [nn.LeakyReLU(0.1), nn.Hardtanh(-0.1, 0.7)])
def test_slopes_and_ends_that_a_file_rounds(last: nn.Module, far: float) -> None:
    """ONNX holds them in float32, torch in Python's floats."""
    pooled = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    first = rn.load(nn.Sequential(nn.Conv2d(1, 3, 3), last, pooled), example=(1, 6, 6))
    structure = first.structure
    assert structure is not None
    at = next(k for k, s in enumerate(structure.steps) if s.kind in ("activation", "clip"))
    step = structure.steps[at]
    if step.activation is not None:
        slope = float(np.float32(0.1)) + far
        step = dataclasses.replace(step, activation=Activation("leaky", slope))
    else:
        step = dataclasses.replace(step, ends=(float(np.float32(-0.1)) - far, 0.7 + far))
    other = lower(Structure((*structure.steps[:at], step, *structure.steps[at + 1 :])), first)
    box = rn.Box.cube(36, -1, 1)
    found = rn.compare(first, other, box, time_limit=5)
    points = np.vstack([box.sample(300, 0), np.sign(box.sample(300, 1))])
    seen = np.abs(first(points) - other(points)).max()
    assert found.verdict == ("different" if far == 0.02 else "within")
    assert 0 < seen <= found.upper <= 60 * seen


@pytest.mark.parametrize(
    ("padding", "pool", "last"),
    [
        (0, nn.MaxPool2d, nn.Identity()),
        (1, nn.AvgPool2d, nn.LeakyReLU(0.2)),
        (1, nn.MaxPool2d, nn.Hardtanh(-1.0, 2.0)),
    ],
)
def test_two_exports_of_a_convolutional_model(padding: int, pool: Any, last: nn.Module) -> None:
    first, second = _exported(padding, pool, last)
    box = rn.Box.cube(36, -1, 1)
    found = rn.compare(first, second, box)
    assert found.verdict == "within"
    assert found.method == "following the difference step by step"
    points = np.vstack([box.sample(200, 0), np.sign(box.sample(200, 1))])
    seen = np.abs(first(points) - second(points)).max()
    assert 0 < seen <= found.upper <= found.tolerance
    assert found.certificate is not None
    assert found.certificate.bound == pytest.approx(found.upper, rel=0.06)
    assert verify(found.certificate, first, second).holds
    # a change that is no rounding, at one weight of the kernel
    structure = second.structure
    assert structure is not None
    steps = list(structure.steps)
    at = next(k for k, step in enumerate(steps) if step.kind == "conv")
    weight = np.array(steps[at].weight)
    weight[0, 0, 1, 1] *= 1.01
    steps[at] = dataclasses.replace(steps[at], weight=weight)
    moved = lower(Structure(tuple(steps)), second)
    # a large factor: only the verdict is asked for, not the upper end
    assert rn.compare(first, moved, box, factor=1e9).verdict == "different"
    bound, _ = stepwise_difference(first, moved, box, 0.0, Clock())
    assert np.abs(first(points) - moved(points)).max() <= bound
    # what was said of two exports is not so of others, whatever their certificate says
    forged = {**found.certificate.document, "bounds": [found.upper / 2] * first.output_size}
    forged["digest"] = seal(forged)
    assert not verify(Certificate(forged), first, second).holds
    networks = [{"digest": n.digest, "units": n.units} for n in (first, moved)]
    forged = {**found.certificate.document, "networks": networks}
    forged["digest"] = seal(forged)
    assert not verify(Certificate(forged), first, moved).holds


class _Residual(nn.Module):
    """Batch norm at the input, on both branches, and behind the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4),
        )  # fmt: skip
        self.last = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.out(self.last(x + self.body(x)).mean((2, 3)))


EXPORTED = {
    "norm before the activation": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 3),
    ),
    "norm behind it": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(4), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 3),
    ),
    "separable": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6(),
        nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 6, 1),
        nn.BatchNorm2d(6), nn.ReLU6(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    ),
    "residual": _Residual,
}  # fmt: skip


def _settled(name: str) -> nn.Module:
    """One of them with statistics as after training."""
    module, rng = EXPORTED[name](), torch.Generator().manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for value in part.state_dict().values():
                if value.is_floating_point():
                    value.copy_(torch.rand(value.shape, generator=rng) + 0.3)
    return module.eval()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own exporter
@pytest.mark.parametrize("name", EXPORTED)
def test_a_convolutional_model_and_its_export_are_followed(name: str, tmp_path: Path) -> None:
    module = _settled(name)
    torch.onnx.export(module, (torch.zeros(1, 1, 6, 6),), str(tmp_path / "a.onnx"), dynamo=False)
    first, second = rn.load(module, example=(1, 6, 6)), rn.load(tmp_path / "a.onnx")
    box = rn.Box.cube(36)
    found = rn.compare(first, second, box)
    assert (found.verdict, found.method) == ("within", "following the difference step by step")
    points = [box.sample(1, k)[0] for k in range(2)] + [np.ones(36)]
    for point in points:
        values = [exact_value(network, point) for network in (first, second)]
        assert max(abs(a - b) for a, b in zip(*values, strict=True)) <= found.upper
    assert found.certificate is not None
    assert verify(found.certificate, first, second).holds


def test_poolings_that_are_spelled_otherwise_are_the_same_step() -> None:
    """Where nothing is padded it is not counted, and one window makes no steps."""
    network = rn.load(_settled("norm behind it"), example=(1, 6, 6))
    assert network.structure is not None
    steps = list(network.structure.steps)
    at = next(k for k, step in enumerate(steps) if step.kind == "average_pool")
    geometry = dataclasses.replace(steps[at].geometry, stride=(2, 5))  # type: ignore[type-var]
    steps[at] = dataclasses.replace(steps[at], geometry=geometry, count_padding=True)
    other = lower(Structure(tuple(steps)), network)
    assert same_steps(network, other)
    padded = dataclasses.replace(geometry, pads=((1, 0), (0, 0)))
    steps[at] = dataclasses.replace(steps[at], geometry=padded)
    assert not same_steps(network, lower(Structure(tuple(steps)), network))


@pytest.mark.parametrize("name", ["norm behind it", "residual"])
def test_what_a_network_is_off_its_own_steps_is_counted(name: str) -> None:
    """The same steps twice, but the weights of one network are not quite those of its steps."""
    network = rn.load(_settled(name), example=(1, 6, 6))
    layers = list(network.layers)
    moved = {s: m * (1 + 1e-6) for s, m in layers[0].affine.terms.items()}
    layers[0] = dataclasses.replace(layers[0], affine=Affine(moved, layers[0].affine.bias))
    other = Network(
        layers, network.output, input_shape=network.input_shape, structure=network.structure
    )
    point = np.ones(36)
    apart = np.abs(network(point) - other(point)).max()
    assert apart > 1e-9
    bound, _ = stepwise_difference(network, other, rn.Box.cube(36), 0.0, Clock())
    assert apart <= bound


def test_the_stepwise_bound_is_attained() -> None:
    """One pixel, positive weights: the difference is largest at the corner of the box."""
    made = []
    for weight in (2.0, 2.5):
        net = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1, 1)).double()
        with torch.no_grad():
            for value, entry in zip(net.parameters(), (weight, 0.5, 3.0, 1.0), strict=True):
                value.fill_(entry)
        made.append(rn.load(net, example=(1, 1, 1)))
    bound, rounded = stepwise_difference(made[0], made[1], rn.Box([0.0], [4.0]), 2.0**-24, Clock())
    assert bound == pytest.approx(3 * 0.5 * 4, rel=1e-12)
    assert bound >= 6.0
    # eight roundings of 2 * 4 + 0.5, times 3, and of 3 * 8.5 + 1
    assert rounded == pytest.approx(8 * 2.0**-24 * (3 * 8.5 + 3 * 8.5 + 1), rel=1e-12)


@pytest.mark.parametrize(("tolerance", "verdict"), [(None, "within"), (0.0, "different")])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_keeps_the_verdict_and_what_proves_the_interval(
    tolerance: float | None, verdict: str, workers: int
) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 0.5, shape) for shape in ((12, 4), (12, 12), (2, 12))]
    network = rn.Network.from_weights(weights)
    copy = rn.Network.from_weights([w.astype(np.float32).astype(float) for w in weights])
    cutting = 0

    def press(said: Progress) -> None:
        nonlocal cutting
        cutting += "boxes" in said.message
        if cutting == 3:
            raise KeyboardInterrupt

    found = rn.compare(
        network, copy, rn.Box.cube(4), tolerance=tolerance, factor=1.001, progress=press,
        workers=workers,
    )  # fmt: skip
    assert found.verdict == verdict
    assert "interrupted" in found.method
    assert found.certificate is not None
    assert found.upper <= found.certificate.bound <= 1.001 * found.upper
    assert rn.verify(found.certificate, network, copy).holds
