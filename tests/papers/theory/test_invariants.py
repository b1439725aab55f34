import json

import numpy as np
import pytest

from relunorm.batchnorm import check_invariant, invariant_alpha, invariant_gram, theorem14
from relunorm.errors import InvalidInputError


def sampled_gram(X, alpha, layers=400, width=2000, seed=0):
    """Mean Gram matrix of ReLU(WX - mean), variance 2 alpha / width, by sampling."""
    rng = np.random.default_rng(seed)
    moved = X - X.mean(axis=0)
    total = np.zeros((len(X), len(X)))
    for _ in range(layers):
        z = moved @ rng.standard_normal((X.shape[1], width)) * np.sqrt(2 * alpha / width)
        y = np.maximum(z, 0)
        total += y @ y.T
    return total / layers


def test_theorem13_by_sampling():
    n = 6
    X = np.zeros((n, 2))
    X[0, 0], X[1:, 1] = 1, 1 / (n - 1)
    mean = sampled_gram(X, invariant_alpha(n))
    np.testing.assert_allclose(mean, invariant_gram(n), atol=0.01)


def spread_batch(n, radius, spread, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12))
    X[1:] = 0.1 + spread * X[1:] / np.linalg.norm(X[1:], axis=1, keepdims=True)
    center = X[1:].mean(axis=0)
    direction = rng.standard_normal(12)
    X[0] = center + radius * direction / np.linalg.norm(direction)
    return X


@pytest.mark.parametrize("n", [3, 8, 30])
def test_theorem14_items(n):
    X = spread_batch(n, 1.1 * n / (n - 1), 0.3 / n**2)
    found = theorem14(X @ X.T)
    assert found.hypothesis
    assert found.holds
    assert 0 < found.contraction < 1
    json.dumps(found.to_dict())


def test_theorem14_by_sampling():
    X = spread_batch(5, 1.6, 0.3)
    found = theorem14(X @ X.T)
    mean = sampled_gram(X, found.alpha)
    assert mean[0, 0] == pytest.approx(found.odd_norm, abs=0.01)


def test_checks_report_the_item_that_fails():
    gram = invariant_gram(5)
    gram[0, 0] = 2
    assert check_invariant(gram).odd_norm == 1
    assert not check_invariant(gram).holds


def test_bad_input():
    with pytest.raises(InvalidInputError, match="n >= 2"):
        invariant_gram(1)
    with pytest.raises(InvalidInputError, match="n >= 3"):
        theorem14(np.eye(2))
    with pytest.raises(InvalidInputError, match="centre"):
        theorem14(np.ones((4, 4)))
    with pytest.raises(InvalidInputError, match="two points"):
        check_invariant([[1.0]])
