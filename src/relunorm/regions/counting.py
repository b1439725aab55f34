"""Bounds on how many regions networks of given widths can have.

- Lower bound on the maximum, Montúfar, Pascanu, Cho, Bengio 2014 (Cor. 5): for widths n_k >= d,
  prod_{k<L} floor(n_k / d)^d * sum_{j<=d} C(n_L, j).
- Upper bound, Montúfar 2017: prod_k sum_{j <= d_k} C(n_k, j), d_k = min(d, n_1, ..., n_{k-1}).
- Upper bound, Serra, Tjandraatmadja, Ramalingam 2018 (Thm. 1): the sum of prod_k C(n_k, j_k) over
  0 <= j_k <= min(d, n_1 - j_1, ..., n_{k-1} - j_{k-1}, n_k). For relu only: it uses that inactive
  units drop a dimension.

All are integers, computed exactly. They count patterns with interior in R^d, whatever the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod

from relunorm.errors import InvalidInputError


def montufar_lower(inputs: int, widths: Sequence[int]) -> int:
    """So many regions some relu network of these widths has.

    >>> montufar_lower(2, [4, 4])
    44
    """
    _check(inputs, widths)
    if not widths:
        return 1
    folds = prod((n // inputs) ** inputs for n in widths[:-1])
    return max(folds, 1) * sum(comb(widths[-1], j) for j in range(inputs + 1))


def montufar_upper(inputs: int, widths: Sequence[int]) -> int:
    """No network of these widths has more regions.

    >>> montufar_upper(2, [16, 16])
    18769
    """
    _check(inputs, widths)
    total, dimension = 1, inputs
    for width in widths:
        total *= sum(comb(width, j) for j in range(min(dimension, width) + 1))
        dimension = min(dimension, width)
    return total


def serra_upper(inputs: int, widths: Sequence[int]) -> int:
    """No relu network of these widths has more regions.

    >>> serra_upper(1, [2, 2]), montufar_upper(1, [2, 2])
    (9, 9)
    >>> serra_upper(3, [2, 3]) < montufar_upper(3, [2, 3])
    True
    """
    _check(inputs, widths)
    # ways[m]: the sum over choices so far that leave at most m dimensions.
    ways = {inputs: 1}
    for width in widths:
        after: dict[int, int] = {}
        for dimension, count in ways.items():
            for j in range(min(dimension, width) + 1):
                left = min(dimension, width - j)
                after[left] = after.get(left, 0) + count * comb(width, j)
        ways = after
    return sum(ways.values())


def _check(inputs: int, widths: Sequence[int]) -> None:
    if inputs < 1 or any(n < 1 for n in widths):
        raise InvalidInputError(f"inputs {inputs} and widths {list(widths)} must be at least 1")
