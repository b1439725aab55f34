"""What the Gram sampler is made of: its normals, its passes over a layer, its roots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from relunorm.batchnorm import propagate
from relunorm.batchnorm._layer_kernel import FEW, inner_products, normalize_and_respond
from relunorm.batchnorm._normals import BLOCK, fill_normals
from relunorm.batchnorm._random_layer import multiply_by_root, triangular_root

COUNT = 10_000_000


@pytest.fixture(scope="module")
def normals():
    """Ten million, in two calls of one generator, as two layers draw them."""
    out = np.empty((2, COUNT // 2))
    rng = np.random.default_rng(7)
    for half in out:
        fill_normals(rng, half)
    return out.ravel()


def test_normals_are_splitmix64_and_box_muller():
    """The same words through NumPy's logarithm, sine and cosine."""
    pairs = 4 * BLOCK
    out = np.empty(2 * pairs)
    fill_normals(np.random.default_rng(3), out)
    start = np.random.default_rng(3).integers(0, 1 << 64, dtype=np.uint64)
    z = start + np.arange(1, 2 * pairs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    one, other = z[::2], z[1::2]
    u = 1 - (one >> np.uint64(12)) / 2.0**52
    angle = ((other >> np.uint64(12)) / 2.0**52 - 0.5) * (np.pi / 2)
    eighth = (other & np.uint64(7)).astype(int)
    radius, sine, cosine = np.sqrt(-2 * np.log(u)), np.sin(angle), np.cos(angle)
    swap = eighth >= 4
    first = radius * np.where(swap, sine, cosine) * np.where(eighth % 4 >= 2, -1, 1)
    second = radius * np.where(swap, cosine, sine) * np.where(eighth % 2, -1, 1)
    blocks = np.stack([first.reshape(-1, BLOCK), second.reshape(-1, BLOCK)], axis=1)
    # radius near 0 is the root of a logarithm near 0: absolute, not relative
    np.testing.assert_allclose(out, blocks.ravel(), rtol=1e-14, atol=1e-14)


def test_normals_have_the_normal_distribution(normals):
    uniform = np.sort(ndtr(normals))
    steps = np.arange(COUNT + 1) / COUNT
    distance = max((steps[1:] - uniform).max(), (uniform - steps[:-1]).max())
    assert stats.kstwobign.sf(distance * np.sqrt(COUNT)) > 1e-3
    power = np.ones(COUNT)
    for order in range(1, 9):
        power *= normals
        mean, square = (stats.norm.moment(k) for k in (order, 2 * order))
        assert abs(power.mean() - mean) < 4.5 * np.sqrt((square - mean**2) / COUNT)
    size = np.abs(normals)
    for level in (3.0, 4.0, 4.5, 5.0):
        expected = COUNT * 2 * stats.norm.sf(level)
        beyond = int((size > level).sum())
        assert stats.poisson.sf(beyond - 1, expected) > 1e-4
        assert stats.poisson.cdf(beyond, expected) > 1e-4


@pytest.mark.parametrize("lag", [1, 2, BLOCK, 2 * BLOCK, 1000, COUNT // 2])
def test_normals_are_independent(normals, lag):
    """Neighbours, the two of a pair (a block apart), neurons, and two calls: a table of counts."""
    sides = 24
    a, b = normals[:-lag], normals[lag:]
    if lag < COUNT // 2:
        a, b = a[:2_000_000], b[:2_000_000]
    cell = (ndtr(a) * sides).astype(np.intp) * sides + (ndtr(b) * sides).astype(np.intp)
    counts = np.bincount(cell, minlength=sides * sides)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert abs(np.mean(a * b)) < 4.5 / np.sqrt(len(a))
    assert abs(np.mean(a * a * b * b) - 1) < 4.5 * np.sqrt(8 / len(a))


def test_normals_follow_the_random_state():
    whole, part, other = np.empty((3, 700)), np.empty(70), np.empty((3, 700))
    fill_normals(np.random.default_rng(7), whole)
    fill_normals(np.random.default_rng(7), part)  # not a whole block
    fill_normals(np.random.default_rng(8), other)
    np.testing.assert_array_equal(part, whole.ravel()[:70])
    assert not np.isin(whole, other).any()
    runs = [propagate(np.eye(5), 3, 30, random_state=s) for s in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0].grams, runs[1].grams)
    assert (runs[0].grams[1] != runs[2].grams[1]).any()


@given(
    st.integers(1, 9),
    st.sampled_from([1, 7, 256, 300]),
    st.sampled_from([0.0, 1.0, 0.1, -0.5]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10),
)
def test_normalization_against_its_definition(n, width, slope, recenter, rescale, std, seed):
    z = np.random.default_rng(seed).standard_normal((n, width)) + 1
    z[:, 0] = 0.0
    y = z - z.mean(axis=0) if recenter else z
    if rescale:
        spread = z.std(axis=0) if std or recenter else np.sqrt((z * z).mean(axis=0))
        y = np.divide(y, spread, out=np.zeros_like(y), where=spread > 0)
    expected = np.where(y > 0, y, slope * y)
    normalize_and_respond(z, np.ones(n), slope, recenter, rescale, std or recenter)
    if n > 1 or not rescale:  # the deviation of one point is 0 or rounding
        np.testing.assert_allclose(z, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 11, FEW - 1, FEW, FEW + 1])
def test_inner_products(n):
    state = np.random.default_rng(n).standard_normal((n, 137))
    found = inner_products(state)
    np.testing.assert_allclose(found, np.einsum("ik,jk->ij", state, state), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("dimensions", [1, 3, 6, 9])
def test_roots_are_triangular_and_add_no_noise(dimensions):
    """Also of dependent points, down to one dimension, and of points that are equal."""
    X = np.random.default_rng(0).standard_normal((6, dimensions))
    X[5] = X[0]
    root = triangular_root(X @ X.T, X)
    assert (np.triu(root, 1) == 0).all()
    np.testing.assert_allclose(root @ root.T, X @ X.T, atol=1e-13)
    np.testing.assert_allclose(root[5], root[0], atol=1e-14)


def test_few_inputs_and_many_have_one_law():
    """Fewer inputs than points go through weights first; zeros beside them do not."""
    X = np.random.default_rng(0).standard_normal((6, 3))
    more = np.hstack([X, np.zeros((6, 5))])
    a, b = (
        np.array([propagate(x, 1, 50, random_state=s).grams[-1][0, 1] for s in range(400)])
        for x in (X, more)
    )
    assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / 400)
    assert 0.8 < a.std() / b.std() < 1.25


def test_a_root_multiplies_in_place():
    rng = np.random.default_rng(0)
    root, state = np.tril(rng.standard_normal((7, 7))), rng.standard_normal((7, 20))
    expected = root @ state
    for given_root in (root, np.asfortranarray(root)):
        found = state.copy()
        multiply_by_root(given_root, found)
        np.testing.assert_allclose(found, expected, atol=1e-13)
