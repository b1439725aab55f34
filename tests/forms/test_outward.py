"""Bounds that hold in real arithmetic: norms are never below what rational arithmetic gives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import relunorm as rn
from relunorm.forms.outward import Range, euclidean, row_lengths, spectral_norm


def squared(values: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in values), Fraction(0))


@pytest.mark.parametrize("seed", range(20))
def test_lengths_are_upper_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, 2))
    matrix = rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30, size=shape)
    for row, length in zip(matrix, row_lengths(matrix), strict=True):
        exact = squared(row)
        assert exact <= Fraction(float(length)) ** 2 <= exact * Fraction(1 + 1e-12)
    size = np.abs(matrix).ravel()
    exact = squared(size)
    assert exact <= Fraction(euclidean(size)) ** 2 <= exact * Fraction(1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_spectral_norm_is_a_tight_upper_bound(seed: int) -> None:
    """Never below |M v| / |v|, never far above the singular value."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 40, 2)
    matrix = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-8, 8)
    found = spectral_norm(matrix)
    # |M v| / |v| for the best v known is below the norm, here without rounding
    v = np.linalg.svd(matrix)[2][0]
    image = [
        sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, v, strict=True)),
            Fraction(0))
        for row in matrix
    ]  # fmt: skip
    below = sum((x**2 for x in image), Fraction(0)) / squared(v)
    assert below <= Fraction(found) ** 2
    assert found <= 1.15 * np.linalg.norm(matrix, 2)


def test_norms_of_nothing_and_of_too_much() -> None:
    assert euclidean(np.zeros(3)) == 0
    assert euclidean(np.array([np.inf, 1.0])) == np.inf
    assert spectral_norm(np.zeros((2, 3))) < 1e-280
    assert spectral_norm(np.diag([1.0, 2.0, 4.0])) >= 4
    assert spectral_norm(np.full((2, 2), 1e200)) >= 2e200


def test_a_range_without_a_number_is_endless() -> None:
    found = Range(np.array([np.nan, 0.0]), np.array([1.0, np.nan]))
    assert found.lo.tolist() == [-np.inf, 0.0]
    assert found.hi.tolist() == [1.0, np.inf]
    assert found.after(rn.Activation("relu")).hi.tolist() == [1.0, np.inf]
