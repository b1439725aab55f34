"""Networks with sparse weights: packed sparse or dense, the regions are the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from relunorm import Affine, Box, Layer, Network, along, on_plane, region_at, regions
from relunorm.errors import InvalidInputError
from relunorm.regions import lines, region
from relunorm.regions.kernels import pack, polygons


def pooled_net(rng, inputs=6, width=40, slope=0.0):
    """Two sparse layers, one of them reading both earlier values, and a dense output."""
    first = rng.standard_normal((width, inputs))
    second = sp.random_array((width, width), density=0.06, rng=rng, format="csr") * 3
    third = sp.random_array((width, width), density=0.05, rng=rng, format="csr") * 3
    layers = [
        Layer(Affine({0: first}, rng.standard_normal(width) / 2)),
        Layer(Affine({1: second}, rng.standard_normal(width) / 4)),
        Layer(Affine({1: third, 2: second.T.tocsr()}, rng.standard_normal(width) / 4)),
    ]
    output = Affine({3: rng.standard_normal((2, width)), 2: second.toarray()[:2]}, np.zeros(2))
    return Network(layers, output, input_shape=inputs)


@pytest.mark.parametrize(("inputs", "method"), [(2, "polygons"), (3, "cells"), (2, "tree")])
def test_sparse_packing_gives_the_same_bits(monkeypatch, inputs, method):
    net = pooled_net(np.random.default_rng(inputs), inputs, 24)
    box = Box(-np.full(inputs, 0.7), np.full(inputs, 0.7))
    dense = regions(net, box, method=method, max_regions=3000)
    monkeypatch.setattr(pack, "SPARSE_FROM", 0)
    net = net.replace()  # without the arrays kept from the call before
    found = regions(net, box, method=method, max_regions=3000)
    assert len(found) > 100
    assert (found.packed == dense.packed).all()
    assert (found.points == dense.points).all()
    A, c = found.affine()
    value = np.einsum("nod,nd->no", A, found.points) + c
    np.testing.assert_allclose(value, net(found.points), atol=1e-11)
    assert (net.pattern(found.points) == found.patterns).all()


def test_packed_arrays_of_a_sparse_matrix(monkeypatch):
    monkeypatch.setattr(pack, "SPARSE_FROM", 0)
    net = pooled_net(np.random.default_rng(0), 2, 24)
    for by_columns in (False, True):
        packed = pack.pack(net, None, None, by_columns, sparse=True)
        assert (packed.start[:6] < 0).tolist() == [False, True, True, True, True, False]
        at = -1 - int(packed.start[1])
        matrix = net.layers[1].affine.terms[1].toarray()
        matrix = matrix.T if by_columns else matrix
        for j in range(len(matrix)):
            p = np.arange(packed.start[at + 1 + j], packed.start[at + 2 + j])
            row = np.zeros(matrix.shape[1])
            row[packed.start[p + packed.start[at]]] = packed.weights[p]
            assert (row == matrix[j]).all()
        plain = pack.pack(net, None, None, by_columns)
        assert (plain.start >= 0).all()
        size = matrix.size
        block = plain.weights[plain.start[1] : plain.start[1] + size]
        assert (block.reshape(matrix.shape) == matrix).all()


def test_a_stack_that_grows_finds_the_same_polygons(monkeypatch):
    net = pooled_net(np.random.default_rng(3), 2, 24)
    whole = regions(net, Box.cube(2))
    monkeypatch.setattr(polygons, "FIRST_DEPTH", 1)
    for workers, rounding in ((1, 0.0), (2, 1e-14)):  # shares are divided at other places
        grown = regions(net, Box.cube(2), workers=workers)
        assert (grown.packed == whole.packed).all()
        assert np.abs(grown.points - whole.points).max() <= rounding


def test_planes_of_sparse_networks(monkeypatch):
    monkeypatch.setattr(pack, "SPARSE_FROM", 0)
    rng = np.random.default_rng(5)
    net = pooled_net(rng, 6, 24)
    origin, u, v = rng.standard_normal((3, 6)) / 2
    cut = on_plane(net, origin, u, v)
    assert abs(cut.regions.volume().sum() - 4) < 1e-9
    samples = Box.cube(2).sample(5000, 0)
    assert (cut.regions.find(net.pattern(cut.embed(samples))) >= 0).all()


def test_a_long_line_in_parts(monkeypatch):
    rng = np.random.default_rng(6)
    net = pooled_net(rng, 6, 40)
    vertices = rng.standard_normal((3, 6)) * 3
    whole = along(net, vertices)
    monkeypatch.setattr(lines, "ROOM", 1500)
    parts = along(net, vertices)
    assert parts.complete
    assert (parts.packed == whole.packed).all()
    np.testing.assert_allclose(parts.breakpoints, whole.breakpoints, atol=1e-9)
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-9)


def test_a_line_that_a_limit_ends_says_so_and_is_right_as_far_as_it_goes(monkeypatch):
    rng = np.random.default_rng(7)
    net = pooled_net(rng, 6, 40)
    vertices = rng.standard_normal((3, 6)) * 3
    whole = along(net, vertices)
    monkeypatch.setattr(lines, "ROOM", 1500)
    line = along(net, vertices, time_limit=1e-9)
    assert not line.complete
    assert line.reason == "time limit"
    assert "partial" in repr(line)
    assert line.to_dict()["complete"] is False
    assert 0 < len(line) < len(whole)
    assert (line.packed == whole.packed[: len(line)]).all()
    t = np.linspace(0, len(line.vertices) - 1, 200)
    np.testing.assert_allclose(line(t), net(line.points(t)), atol=1e-9)
    with pytest.raises(InvalidInputError, match="time_limit"):
        along(net, vertices, time_limit=-1)


def test_facets_that_would_take_thousands_of_programmes_are_refused(monkeypatch):
    monkeypatch.setattr(region, "FACET_ENTRIES", 100)
    rng = np.random.default_rng(8)
    net = Network.from_weights([rng.standard_normal((40, 30)), rng.standard_normal((1, 40))])
    found = region_at(net, rng.standard_normal(30))
    assert found.affine[0].shape == (1, 30)
    with pytest.raises(InvalidInputError, match="linear programmes"):
        _ = found.polytope
