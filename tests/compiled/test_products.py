"""Products of matrices inside larger arrays, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from relunorm.compiled.jit import kernel
from relunorm.compiled.products import add_product


@kernel
def _multiply(a, b, c, m, k, n):  # type: ignore[no-untyped-def]
    add_product(a, 2, k + 1, b, 3, n + 2, c, 1, n + 3, m, k, n)


def _matrix(array: np.ndarray, at: int, wide: int, rows: int, columns: int) -> np.ndarray:
    one = array.itemsize
    return np.lib.stride_tricks.as_strided(array[at:], (rows, columns), (one * wide, one))


@pytest.mark.parametrize(("dtype", "off"), [(np.float64, 1e-13), (np.float32, 1e-4)])
def test_products_are_added_in_place_and_nothing_beside_them_changes(
    dtype: type, off: float
) -> None:
    rng = np.random.default_rng(0)
    sizes = (
        (3, 4, 5),
        (1, 1, 1),
        (7, 2, 1),
        (0, 2, 3),
        (2, 30, 40),
        (6, 9, 8),
        (5, 17, 31),
        (4, 0, 9),
    )
    for m, k, n in (*sizes, (9, 11, 16), (8, 8, 25), (13, 20, 7), (5, 9, 40)):
        a, b, c = (rng.normal(size=3000).astype(dtype) for _ in range(3))
        expected = c.copy()
        left, right = _matrix(a, 2, k + 1, m, k), _matrix(b, 3, n + 2, k, n)
        _matrix(expected, 1, n + 3, m, n)[:] += left @ right
        _multiply(a, b, c, m, k, n)
        np.testing.assert_allclose(c, expected, rtol=0, atol=off)
        untouched = np.ones(len(c), dtype=bool)
        _matrix(untouched, 1, n + 3, m, n)[:] = False
        assert (c[untouched] == expected[untouched]).all()
