"""What the Gram sampler is made of: its passes over a layer, its roots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relunorm.batchnorm import propagate
from relunorm.batchnorm.random_layer import (
    multiply_by_root,
    normalize_and_respond,
    triangular_root,
)


def test_layers_follow_the_random_state():
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
