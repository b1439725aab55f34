"""Bounds of sparse networks: those of the same network stored dense, and sound in a hurry."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from relunorm import Affine, Ball, Box, Layer, Network, Polytope
from relunorm.clock import NO_LIMIT, Clock
from relunorm.extrema import relaxation, sparse_backward
from relunorm.extrema.localize import localize
from relunorm.extrema.relaxation import unit_bounds


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


@pytest.mark.parametrize("chunk", [1, 1 << 21])
def test_sparse_bounds_are_those_of_the_dense_network(monkeypatch, chunk):
    monkeypatch.setattr(sparse_backward, "CHUNK", chunk)
    monkeypatch.setattr(relaxation, "CHUNK", chunk)
    net = sparse_net(np.random.default_rng(0))
    lo, hi = np.full((1, 12), -0.4), np.full((1, 12), 0.5)
    sparse, dense = unit_bounds(net, lo, hi), unit_bounds(stored_dense(net), lo, hi)
    plain = unit_bounds(net, lo, hi, linear=False)
    for k in range(3):
        np.testing.assert_allclose(sparse.lows[k], dense.lows[k], atol=1e-10)
        np.testing.assert_allclose(sparse.highs[k], dense.highs[k], atol=1e-10)
    assert (sparse.highs[2] < plain.highs[2] - 1e-3).any()


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
    box = domain.bounding_box
    x = domain.sample(200, 0)
    for clock in (Clock(0), NO_LIMIT):
        bounds = unit_bounds(net, box.lo[None], box.hi[None], domain, clock=clock)
        for z, low, high in zip(net.preactivations(x), bounds.lows, bounds.highs, strict=True):
            assert (z >= low - 1e-9).all()
            assert (z <= high + 1e-9).all()
        local = localize(net, domain, clock)
        np.testing.assert_allclose(local.network(x), net(x), atol=1e-10)
