"""Weights far from 1: the constant of the same network at ordinary size, or an interval that holds.

The oracle is the plain network: a positive factor on a unit that its readers divide by leaves the
function as it is.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import relunorm as rn
from relunorm import Affine, Layer, Network
from relunorm.arithmetic.floats import scaled_down, scaled_up
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError
from relunorm.lipschitz.methods.sdp import lipsdp
from relunorm.regions.balance import to_size

MOST, LEAST = np.finfo(float).max, 5e-324


def plain() -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=size) for size in ((3, 2), (4, 3), (2, 4))]
    return weights, [rng.normal(size=len(w)) for w in weights]


def rescaled(factors: list[np.ndarray], last: float = 1.0) -> Network:
    """`plain` with every unit multiplied by its factor, and the output by ``last``."""
    weights, biases = plain()
    f = [np.ones(2), *factors, np.full(2, last)]
    weights = [b[:, None] * (w / a) for w, a, b in zip(weights, f[:-1], f[1:], strict=True)]
    return Network.from_weights(weights, [b * c for b, c in zip(biases, f[1:], strict=True)])


@pytest.mark.parametrize(
    ("norm", "domain", "size", "last"),
    [
        (1, None, 200, 1.0),
        (2, None, -200, 1.0),
        (2, rn.Box.cube(2), 150, 1e150),
        (np.inf, rn.Box.cube(2), 150, 1e-250),
    ],
)
def test_the_constant_does_not_depend_on_the_scale_of_units(norm, domain, size, last):
    factors = [np.array([1.0, 10.0**size, 3.0]), np.array([1.0, 10.0 ** (size // 2), 1e-100, 1.0])]
    told: list[Progress] = []
    found = rn.lipschitz(rescaled(factors, last), domain, norm, progress=told.append)
    expected = rn.lipschitz(Network.from_weights(*plain()), domain, norm)
    assert found.exact
    assert expected.exact
    assert found.upper == pytest.approx(last * expected.upper, rel=1e-9)
    assert told[-1].facts == {"lower": found.lower, "upper": found.upper}
    uppers = [bound.value for bound in found.bounds if bound.side == "upper"]
    assert min(uppers) == found.upper


@pytest.mark.parametrize("size", [-140, -104, -30, 30, 104, 140])
def test_lipsdp_does_not_depend_on_the_scale_of_units(size):
    """Units and outputs at any scale: the bound of the plain network, times that of the outputs."""
    plainly = lipsdp(Network.from_weights(*plain()))
    far = 10.0**size
    factors = [np.array([far, 1.0, 3.0]), np.array([1.0, 10.0 ** (size // 2), 1 / far, 1.0])]
    assert lipsdp(rescaled(factors)) == pytest.approx(plainly, rel=1e-5)
    assert lipsdp(rescaled([np.ones(3), np.ones(4)], far)) == pytest.approx(far * plainly, rel=1e-5)
    found = rn.lipschitz(rescaled(factors, far), method="sdp")
    assert found.lower <= found.upper == pytest.approx(far * plainly, rel=1e-5)


def test_lipsdp_of_weights_that_no_scale_brings_together_is_told():
    apart = Network.from_weights([[[1e60, 1e-300], [1.0, 2.0]], [[1.0, 1.0]]])
    with pytest.raises(InvalidInputError, match="float64"):
        lipsdp(apart)
    found = rn.lipschitz(apart, time_limit=5)
    told = [bound.note for bound in found.bounds if bound.method == "LipSDP"]
    assert all("float64" in note for note in told)
    assert found.lower <= found.upper < np.inf
    alone = rn.lipschitz(apart, method="sdp")
    assert ["float64" in bound.note for bound in alone.bounds if bound.method == "LipSDP"] == [True]


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_constants_beyond_float64_have_an_interval(norm):
    weights = [[[1.0], [-1.0]], [[1.0, 1.0]]]
    large = Network.from_weights([np.multiply(w, 1e200) for w in weights])
    assert (found := rn.lipschitz(large, norm=norm)).to_dict()["upper"] is None
    assert (found.lower, found.upper, found.exact) == (MOST, np.inf, False)
    small = Network.from_weights([np.multiply(w, 1e-200) for w in weights])
    found = rn.lipschitz(small, norm=norm)
    assert (found.lower, found.upper, found.exact) == (0.0, LEAST, False)


def test_theorem6_bounds_beyond_float64_are_infinite():
    large = Network.from_weights([[[1e200], [-1e200]], [[1e200, 1e200]]])
    found = rn.theorem6(large)
    assert (found.count, found.paths, found.spectral, found.weight) == (*[np.inf] * 3, 1e200)
    assert found.to_dict()["gradients"][0] is None
    nothing = Network.from_weights([[[1e200]], [[1e200]], [[0.0]]])
    assert rn.theorem6(nothing).gradients == (0.0, 0.0, 0.0, pytest.approx(1.0))
    deep = Network.from_weights([np.eye(8)] * 400)
    assert rn.theorem6(deep).printed_gradients[0] == np.inf
    assert rn.theorem6(deep).gradients[0] == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-160, 1e160, 1e300])
def test_theorem6_keeps_its_bounds_at_any_size(size):
    """Against the same network at ordinary size; each bound has a first and a last matrix."""
    first, last = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.ones((1, 3))
    plain = rn.theorem6(Network.from_weights([first, last]))
    found = rn.theorem6(Network.from_weights([first * size, last]))
    for name in ("count", "paths"):
        assert getattr(found, name) == pytest.approx(size * getattr(plain, name), rel=1e-12)
    assert found.gradients[0] == pytest.approx(size * plain.gradients[0], rel=1e-12)
    both = rn.theorem6(Network.from_weights([first * size, np.eye(3), last / size]))
    assert both.paths == pytest.approx(plain.paths, rel=1e-12)
    assert both.gradients[0] == pytest.approx(plain.gradients[0], rel=1e-12)


def test_theorem6_bounds_below_float64_are_not_zero():
    found = rn.theorem6(Network.from_weights([[[1e-200]], [[1e-200]]]))
    assert (found.count, found.paths, found.spectral) == (LEAST, LEAST, LEAST)
    thin = rn.theorem6(Network.from_weights([np.diag([1.0, 1e-200]), [[0.0, 1e-200]]]))
    assert thin.paths > 0.0


@pytest.mark.parametrize("sparse", [False, True])
def test_scaling_is_exact(sparse):
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(3, 2)) * [[1e200], [1e-200], [0.0]], np.array([1e250, 0.0, 1.0])
    v = np.array([[1e-290, 3e5, 0.0]])
    store = sp.csr_array if sparse else np.asarray
    net = Network(
        [Layer(Affine({0: store(w)}, b))], Affine({1: store(v)}, np.array([1e300])), input_shape=2
    )
    small, exponent = to_size(net)
    first, last = small.layers[0].affine, small.output
    assert sp.issparse(first.terms[0]) == sp.issparse(net.layers[0].affine.terms[0])
    first_w = sp.csr_array(first.terms[0]).toarray()
    last_w = sp.csr_array(last.terms[1]).toarray()
    assert np.abs(first_w).max() <= 1
    assert np.abs(last_w).max() <= 1
    for unit in range(3):
        for new, old in ((first_w, w), (first.bias[:, None], b[:, None])):
            for x, y in zip(new[unit], old[unit], strict=True):
                path = Fraction(x) * Fraction(last_w[0, unit]) * Fraction(2) ** exponent
                assert path == Fraction(y) * Fraction(v[0, unit])


def test_ordinary_networks_are_left_alone_and_impossible_ones_refused():
    net = Network.from_weights(*plain())
    assert to_size(net) == (net, 0)
    apart = Network.from_weights([[[1e300], [1e-300]], [[1e300, 1e-300]]])
    with pytest.raises(InvalidInputError, match=r"the output .* too far apart"):
        rn.lipschitz(apart)


@pytest.mark.parametrize("value", [1.0, 1.1, 0.7])
@pytest.mark.parametrize("exponent", [0, 10, 1023, 1024, -1022, -1060, -1074, -1100])
def test_rounding_outward(value, exponent):
    true = Fraction(value) * Fraction(2) ** exponent
    low, high = scaled_down(value, exponent), scaled_up(value, exponent)
    assert Fraction(low) <= true
    assert high == np.inf or true <= Fraction(high)
    assert high in (low, math.nextafter(low, math.inf))


@pytest.mark.parametrize("exponent", [-390, -200, -150, 150, 380])
@pytest.mark.parametrize("sparse", [False, True])
def test_rough_norms_hold_at_every_size(exponent, sparse):
    """Without time norms are bounded by products of products; the oracle is the plain matrix."""
    matrix = np.maximum(np.random.default_rng(0).normal(size=(12, 9)), 0.0)
    first = matrix * 2.0**exponent
    net = Network.from_weights([sp.csr_array(first) if sparse else first, np.eye(12)])
    found = rn.lipschitz(net, rn.Box([0.5] * 9, [1.0] * 9), 2, time_limit=0, method="product")
    true = float(np.linalg.norm(matrix, 2))
    assert true * (1 - 1e-12) <= found.upper * 2.0**-exponent <= true * (1 + 1e-6)
