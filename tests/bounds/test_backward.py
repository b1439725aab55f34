"""The walk of a linear bound, against forward passes in fractions that share no code with it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm import Activation, Affine, Box, Layer, Network
from relunorm.arithmetic.dyadic import fractions, objects
from relunorm.bounds.backward import LinearBound
from relunorm.bounds.layers import exact
from relunorm.bounds.layers.exact import exact_bound, exact_upper
from relunorm.bounds.layers.intervals import interval_bounds
from relunorm.bounds.layers.linear import linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.bounds.relaxation import Kink
from relunorm.domain.reach import reach_of

CONTINUOUS = (
    Activation("relu"),
    Activation("leaky", 0.1),
    Activation("leaky", 2.0),
    Activation("leaky", -0.5),
    Activation("identity"),
)
STEPS = (Activation("step", at_zero=0.25), Activation("step", at_zero=-0.5))


def rows_of(matrix):
    dense = matrix.toarray() if sp.issparse(matrix) else matrix
    return [[Fraction(float(w)) for w in row] for row in dense]


def mapped(affine, values):
    """An affine map of values in fractions."""
    total = [Fraction(float(b)) for b in affine.bias]
    for source, matrix in affine.terms.items():
        for i, row in enumerate(rows_of(matrix)):
            total[i] += sum(w * v for w, v in zip(row, values[source], strict=True))
    return total


def activated(kind, z):
    if kind.kind == "step":
        return Fraction(float(kind.at_zero)) if z == 0 else Fraction(int(z > 0))
    below, above = kind.slopes
    return z * Fraction(float(above if z > 0 else below))


def forward(net, x):
    """All values, the input first, the pre-activations, and the output."""
    values, before = [list(x)], []
    for layer in net.layers:
        before.append(mapped(layer.affine, values))
        values.append([activated(layer.activation, z) for z in before[-1]])
    return values, before, mapped(net.output, values)


def points(rng, size, count=6):
    corners = rng.choice([-1, 1], size=(count, size))
    inside = rng.integers(-7, 8, size=(count, size))
    return [[Fraction(int(c)) for c in x] for x in corners] + [
        [Fraction(int(c), 7) for c in x] for x in inside
    ]


def bounded(net):
    """Intervals of every layer over the cube."""
    problem = Problem(net, reach_of(Box.cube(net.input_size)))
    bounds = Bounds(problem)
    for index in range(len(net.layers)):
        bounds.append(*interval_bounds(problem, bounds, index))
    return problem, bounds


@given(networks(), st.integers(0, 99))
def test_given_lines_are_substituted_whatever_reads_what(net, seed):
    """v = s z + t in every layer: the same affine function as from the input up."""
    rng = np.random.default_rng(seed)
    lines = [rng.integers(-3, 4, size=(2, layer.width)) / 2 for layer in net.layers]
    row, x = rng.normal(size=net.output_size), rng.normal(size=net.input_size)
    values = [[Fraction(float(c)) for c in x]]
    for layer, (s, t) in zip(net.layers, lines, strict=True):
        z = mapped(layer.affine, values)
        pairs = zip(fractions(s), z, fractions(t), strict=True)
        values.append([a * b + c for a, b, c in pairs])
    truth = sum(w * f for w, f in zip(fractions(row), mapped(net.output, values), strict=True))

    def pulled(walk, row, cast):
        walk.pull(row, cast(net.output.bias), net.output.terms)
        for index, lam in walk.layers(len(net.layers)):
            affine, (s, t) = net.layers[index].affine, (cast(part) for part in lines[index])
            walk.pull(lam * s, cast(affine.bias), affine.terms, lam @ t)
        assert set(walk.on) <= {0}
        return walk.value + (walk.on[0] @ cast(x) if walk.on else 0)

    found = pulled(LinearBound(Fraction(0), {}, exact.product), fractions(row), fractions)
    assert isinstance(found, Fraction)
    assert found == truth
    scale = 1.0 + sum(float(max(map(abs, v))) for v in values)
    assert pulled(LinearBound(0.0, {}), row, np.asarray) == pytest.approx(
        float(truth), rel=1e-9, abs=1e-9 * scale * 100
    )


def test_differences_are_values_of_their_own():
    """z = W v + b and e = V d + D v + (c - b) of two linear networks, with a skip."""
    rng = np.random.default_rng(4)
    widths, reads = (3, 4, 2), ({0: None}, {0: None, 1: None})
    first, second = (
        [
            ({s: rng.normal(size=(widths[k + 1], widths[s])) for s in reads[k]}, rng.normal())
            for k in range(2)
        ]
        for _ in range(2)
    )
    x, w = rng.normal(size=3), rng.normal(size=2)
    ours, theirs = [x], [x + 0.5]
    for values, net in ((ours, first), (theirs, second)):
        for terms, bias in net:
            values.append(sum(m @ values[s] for s, m in terms.items()) + bias)
    walk = LinearBound(0.0, {2: w, ~2: w})  # w @ second
    for layer, lam in walk.layers(2):
        (W, b), (V, c) = first[layer], second[layer]
        gap = walk.on.pop(~(layer + 1))
        walk.pull(lam, np.full(len(lam), b), W)
        e = {s: V[s] - W[s] for s in W} | {~s: V[s] for s in V}
        walk.pull(gap, np.full(len(gap), c - b), e)
    assert walk.value + walk.on[0] @ x + walk.on[~0] @ np.full(3, 0.5) == pytest.approx(
        w @ theirs[2]
    )


@given(networks(activations=CONTINUOUS), st.integers(0, 99), st.integers(0, 4))
def test_a_bound_in_fractions_is_nowhere_below(net, seed, first):
    """On the values below the layers that are left out, at points of the cube, exactly."""
    rng = np.random.default_rng(seed)
    bounds = bounded(net)[1]
    first = min(first, len(net.layers))
    ends = [
        (fractions(bounds.lower[k]), fractions(bounds.upper[k])) for k in range(len(net.layers))
    ]
    kinks = [Kink.of(layer.activation).exact for layer in net.layers]
    row = [Fraction(int(c), 3) for c in rng.integers(-5, 6, size=net.output_size)]
    found = exact_bound(list(net.maps), kinks, ends[first:], row)
    for x in points(rng, net.input_size):
        values, before, output = forward(net, x)
        on = (w * v for k, some in found.on.items() for w, v in zip(some, values[k], strict=True))
        top, truth = found.value + sum(on), sum(w * f for w, f in zip(row, output, strict=True))
        assert isinstance(top, Fraction)
        assert top >= truth
        if first == len(net.layers):
            assert top == truth
    # where every sign is known nothing is lost, either
    if first < len(net.layers):
        sharp = [(objects(z), objects(z)) for z in before[first:]]
        found = exact_bound(list(net.maps), kinks, sharp, row)
        on = (w * v for k, some in found.on.items() for w, v in zip(some, values[k], strict=True))
        assert found.value + sum(on) == truth


@given(networks(activations=(*CONTINUOUS, *STEPS)), st.integers(0, 99))
def test_fractions_and_floats_find_the_same_bound(net, seed):
    problem, bounds = bounded(net)
    rng, index = np.random.default_rng(seed), len(net.layers)
    rows = np.arange(net.output_size)
    outputs = [forward(net, x)[2] for x in points(rng, net.input_size)]
    for sign in (1, -1):
        rounded = linear_upper(problem, bounds, index, rows, np.full(len(rows), float(sign)))
        for row in rows.tolist():
            found = exact_upper(problem, bounds, index, row, sign)
            assert max(sign * f[row] for f in outputs) <= Fraction(found)
            assert found <= rounded[row]
            assert found == pytest.approx(rounded[row], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_one_hidden_layer_is_a_maximum_over_corners(seed):
    """Lines by hand, and the best corner of the cube by trying all."""
    rng = np.random.default_rng(seed)
    hidden = Affine({0: rng.integers(-4, 5, size=(5, 3)) / 4}, rng.integers(-4, 5, size=5) / 4)
    output = Affine({1: rng.normal(size=(1, 5)), 0: rng.normal(size=(1, 3))}, rng.normal(size=1))
    net = Network([Layer(hidden)], output, input_shape=3)
    problem, bounds = bounded(net)
    best = None
    for x in product((Fraction(-1), Fraction(1)), repeat=3):
        total = mapped(Affine({0: output.terms[0]}, output.bias), [x])[0]
        ends = zip(bounds.lower[0].tolist(), bounds.upper[0].tolist(), strict=True)
        for w, z, (low, high) in zip(
            rows_of(output.terms[1])[0], mapped(hidden, [x]), ends, strict=True
        ):
            if low >= 0 or high <= 0:
                total += w * max(z, 0)
            elif w > 0:  # ends are quarters: a chord, rounded, goes through (high, high)
                s = Fraction(high / (high - low))
                total += w * (s * z + max(-s * Fraction(low), Fraction(high) * (1 - s)))
            else:
                total += w * (z if high > -low else 0)
        best = total if best is None else max(best, total)
    found = exact_upper(problem, bounds, 1, 0, 1)
    assert Fraction(np.nextafter(found, -np.inf)) < best <= Fraction(found)


def test_a_maximum_of_zero_is_zero():
    """relu(x) - x where x >= 0, over weights that floats cannot add up."""
    third = 1 / 3
    hidden = Layer(Affine({0: [[third, 0.1]]}, [0.0]))
    stage = Layer(Affine({0: [[third, 0.1]], 1: [[-1.0]]}, [0.0]))
    net = Network([hidden, stage], Affine({2: [[1.0]]}, [0.0]), input_shape=2)
    problem = Problem(net, reach_of(Box([0.0, 0.0], [1.0, 1.0])))
    bounds = Bounds(problem)
    bounds.append(*interval_bounds(problem, bounds, 0))
    for sign in (1, -1):
        assert exact_upper(problem, bounds, 1, 0, sign) == 0.0
        assert linear_upper(problem, bounds, 1, np.array([0]), np.array([float(sign)]))[0] > 0
