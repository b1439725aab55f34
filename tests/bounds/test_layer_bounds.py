"""Bounds of all units of a network: sound, the same for sparse weights, and in a hurry."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope
from relunorm.bounds.layers import every_unit as subject
from relunorm.bounds.layers.every_unit import layer_bounds
from relunorm.bounds.nodes.form import triangular
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import reach_of
from relunorm.extrema.localize import localize

KINDS = (
    Activation("relu"),
    Activation("leaky", 0.1),
    Activation("leaky", 2.0),
    Activation("leaky", -0.5),
    Activation("step", at_zero=0.5),
)


def sparse_net(rng, width=60, inputs=12):
    def centred(rows, columns, density=0.06):
        m = sp.random_array((rows, columns), density=density, rng=rng, format="csr")
        m.data = 3 * m.data - 1.5
        return m

    layers = [
        Layer(Affine({0: centred(width, inputs, 0.2)}, rng.standard_normal(width) / 4)),
        Layer(Affine({1: centred(width, width)}, rng.standard_normal(width) / 4)),
        Layer(Affine({1: centred(width, width), 2: centred(width, width)}, np.zeros(width))),
    ]
    return Network(layers, Affine({3: rng.standard_normal((2, width))}, [0, 0]), input_shape=inputs)


def stored_dense(net):
    def dense(affine):
        terms = {k: m.toarray() if sp.issparse(m) else m for k, m in affine.terms.items()}
        return Affine(terms, affine.bias)

    layers = [Layer(dense(x.affine), x.activation) for x in net.layers]
    return net.replace(layers=layers, output=dense(net.output))


def exact_values(net, x):
    """Pre-activations and values of all layers, and the output, in fractions."""

    def through(affine):
        total = [Fraction(float(b)) for b in affine.bias]
        for source, matrix in affine.terms.items():
            rows = matrix.toarray() if sp.issparse(matrix) else matrix
            for i, row in enumerate(rows):
                pairs = zip(row, values[source], strict=True)
                total[i] += sum(Fraction(float(w)) * v for w, v in pairs if w)
        return total

    def activated(kind, z):
        if kind.kind == "step":
            return Fraction(float(kind.at_zero)) if z == 0 else Fraction(int(z > 0))
        below, above = kind.slopes
        return z * Fraction(float(above if z > 0 else below))

    values, before = [[Fraction(float(v)) for v in x]], []
    for layer in net.layers:
        before.append(through(layer.affine))
        values.append([activated(layer.activation, z) for z in before[-1]])
    return before, values, through(net.output)


@given(networks(activations=KINDS), st.integers(0, 99), st.sampled_from([0.01, 0.3, 2.0]))
def test_bounds_hold_and_a_folded_form_is_the_network(network, seed, width):
    rng = np.random.default_rng(seed)
    lo = rng.normal(size=network.input_size)
    box = Box(lo, lo + width * (rng.random(network.input_size) < 0.8))
    reach = reach_of(box)
    bounds, _ = layer_bounds(network, reach)
    A, rhs = rng.normal(size=(2, network.output_size)), rng.normal(size=2)
    form = triangular(network, reach, [(A, rhs)], bounds)
    hidden = [k for k, layer in enumerate(network.layers) if layer.has_units]
    for x in box.sample(3, seed):
        before, values, output = exact_values(network, x)
        for z, low, high in zip(before, bounds.lower, bounds.upper, strict=True):
            assert all(a <= v <= b for a, v, b in zip(low, z, high, strict=True))
        units = [z for k in hidden for z in before[k]]
        jumps = [v for k in hidden for v in values[k + 1]]
        point = [Fraction(float(v)) for v in x[form.free]]
        # a step that is neither 0 nor 1 at 0 has two coordinates, which are equal away from 0
        steps = form.jump[form.names] >= 0
        point += [jumps[k] for k in form.origin[steps]]
        point += [Fraction(max(units[k], 0)) for k in form.origin]
        goals = [
            Fraction(float(b))
            - sum(Fraction(float(a)) * y for a, y in zip(row, output, strict=True))
            for row, b in zip(A, rhs, strict=True)
        ]
        expected = [*(units[k] for k in form.origin), *goals]
        for row, const, err, true in zip(form.rows, form.const, form.err, expected, strict=True):
            value = sum(Fraction(float(w)) * v for w, v in zip(row, point, strict=True) if w)
            # goals are rounded once an entry, which the search allows for
            room = Fraction(float(err)) + Fraction(1, 10**13)
            assert abs(value + Fraction(float(const)) - true) <= room


@pytest.mark.parametrize("chunk", [1, 1 << 21])
def test_sparse_bounds_are_those_of_the_dense_network(monkeypatch, chunk):
    monkeypatch.setattr(subject, "CHUNK_DOUBLES", chunk)
    net = sparse_net(np.random.default_rng(0))
    reach = reach_of(Box(np.full(12, -0.4), np.full(12, 0.5)))
    (sparse, counts), (dense, same) = (
        layer_bounds(net, reach),
        layer_bounds(stored_dense(net), reach),
    )
    plain, none = layer_bounds(net, reach, Clock(0))
    assert counts == same
    assert none == (0, 0, 0)
    for k in range(3):
        np.testing.assert_allclose(sparse.lower[k], dense.lower[k], atol=1e-10)
        np.testing.assert_allclose(sparse.upper[k], dense.upper[k], atol=1e-10)
    assert (sparse.upper[2] < plain.upper[2] - 1e-3).any()
    again, repeated = layer_bounds(net, reach, counts=(0, counts[1] // 2, 0))
    assert repeated == (0, counts[1] // 2, 0)
    assert (again.upper[1] <= plain.upper[1]).all()
    assert (again.upper[1] >= sparse.upper[1]).all()


@pytest.mark.parametrize(
    "domain",
    [
        Box(np.full(12, -0.4), np.full(12, 0.5)),
        Ball(np.zeros(12), 0.6),
        Polytope(np.concatenate([np.eye(12), -np.eye(12)]), np.full(24, 0.5)),
    ],
)
def test_bounds_and_folding_are_sound_however_little_time_there_is(domain):
    net = sparse_net(np.random.default_rng(1))
    x = domain.sample(200, 0)
    for clock in (Clock(0), NO_LIMIT):
        bounds, _ = layer_bounds(net, reach_of(domain), clock, solve=True)
        for z, low, high in zip(net.preactivations(x), bounds.lower, bounds.upper, strict=True):
            assert (z >= low - 1e-9).all()
            assert (z <= high + 1e-9).all()
        local = localize(net, domain, clock)
        np.testing.assert_allclose(local.network(x), net(x), atol=1e-10)


def test_programmes_see_the_corners_that_a_polytope_lacks():
    """x + y <= 1 on the triangle of a square, where the box around it allows 2."""
    net = Network.from_weights([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0]]], [[-1.5, 0.0], [0.0]])
    triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]], [0.0, 0.0, 1.0])
    solved, _ = layer_bounds(net, reach_of(triangle), solve=True)
    around, _ = layer_bounds(net, reach_of(triangle))
    assert -0.5 <= solved.upper[0][0] <= -0.5 + 1e-9
    assert around.upper[0][0] >= 0.5
