"""Gaussian measure of a simplicial cone in many dimensions: an orthant's probability.

k independent inner normals a_i: P(a_i.w > 0 for all i), where after a rotation a_i.w = sum over j
<= i of L_ij v_j with L lower triangular. v_1, v_2, ... are drawn one after the other from normal
distributions cut off at the values the conditions allow, and the product of what is left of each is
an unbiased estimate of the measure (Genz 1992), positive in every draw. The most demanding
condition comes first (Gibson, Glasbey & Elston 1994), which leaves little to chance. No closed form
is known beyond three dimensions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from relunorm.batchnorm._cone_measure import Measure


class OrthantMeasure(Measure):
    """The measure of the cone of all w with ``inner @ w > 0``, for a square regular ``inner``."""

    def __init__(self, inner: NDArray[np.float64]):
        super().__init__()
        self.factor = _most_demanding_first(inner)

    def values(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        k = len(self.factor)
        v = np.zeros((count, k))
        chance = np.ones(count)
        for i, row in enumerate(self.factor):
            at_most = v[:, :i] @ row[:i] / row[i]  # of -v_i
            left = ndtr(at_most)
            chance *= left
            # 1 - u lies in (0, 1]
            v[:, i] = -ndtri(np.maximum(left * (1 - rng.random(count)), 1e-300))
        return chance


def _most_demanding_first(inner: NDArray[np.float64]) -> NDArray[np.float64]:
    """The triangular factor, its rows in the order of what the ones before leave likely."""
    k = len(inner)
    rest = inner.copy()
    factor, means = np.zeros((k, k)), np.zeros(k)
    left = list(range(k))
    order = []
    for step in range(k):
        sizes = np.linalg.norm(rest[left], axis=1)
        bounds = factor[left] @ means / sizes
        best = int(np.argmin(bounds))
        row = left.pop(best)
        order.append(row)
        direction = rest[row] / sizes[best]
        factor[:, step] = inner @ direction
        rest -= np.outer(rest @ direction, direction)
        # the mean of a normal number above -b: density over what is left, phi(b) / Phi(b)
        b = bounds[best]
        means[step] = np.exp(-b * b / 2 - log_ndtr(b)) / np.sqrt(2 * np.pi)
    return np.tril(factor[order])
