"""The atoms of a region (seed 003, Theorem 5 and eq. 12), by matrix products.

On a region the linear part of an L-layer network is

    A = sum over i in spt theta_{L-1}, j in spt theta_1 of  c_ij  w_{L,:i} (x) w_{1,j:}

with c_ij the sum over all paths from unit j of the first to unit i of the last hidden layer of the
products of weights, that is c = W_{L-1} D_{L-2} ... D_2 W_2 restricted to the supports. Paths are
never listed: c is a matrix product, and so is the number of paths (with ones for weights).
Leaky units weigh with their slope, so every unit is in the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.matrix import Array
from relunorm.network.patterns import slopes_under

if TYPE_CHECKING:
    from relunorm.regions.region import Region


@dataclass(frozen=True, eq=False, repr=False)
class Atoms:
    """Theorem 5 on one region.

    Args:
        coefficients: c, shape (|spt theta_{L-1}|, |spt theta_1|); the identity for one hidden layer
            (part (i): |spt theta_1| atoms).
        paths: how many paths contribute to each coefficient.
        outer: columns of W_L on spt theta_{L-1}, shape (outputs, |spt theta_{L-1}|).
        inner: rows of W_1 on spt theta_1 (times their slope), shape (|spt theta_1|, d).
        last, first: the units those columns and rows belong to.
        bias: the constant b of eq. (12), shape (outputs,).
        error: largest entry of |A - outer @ coefficients @ inner|, relative to A.
    """

    coefficients: Array
    paths: Array
    outer: Array
    inner: Array
    last: NDArray[np.intp]
    first: NDArray[np.intp]
    bias: Array
    error: float

    def __len__(self) -> int:
        """The number of atoms with a coefficient other than zero."""
        return int(np.count_nonzero(self.coefficients))

    def atom(self, i: int, j: int) -> Array:
        """w_{L,:i} (x) w_{1,j:}, the rank-one matrix coefficients[i, j] multiplies."""
        return self.outer[:, i, None] * self.inner[j]

    def alpha(self, x: ArrayLike) -> Array:
        """The coefficients alpha(x) of eq. (12): network(x) = outer @ alpha(x) + bias."""
        return np.asarray(x, dtype=np.float64) @ self.inner.T @ self.coefficients.T

    @property
    def linear(self) -> Array:
        """The sum of all atoms: the linear part A."""
        return self.outer @ self.coefficients @ self.inner

    def strongest(self, count: int = 10) -> list[tuple[int, int, float]]:
        """Atoms (i, j) by the norm of their contribution, largest first, with that norm."""
        weight = np.linalg.norm(self.outer, axis=0)[:, None] * np.abs(self.coefficients)
        weight = weight * np.linalg.norm(self.inner, axis=1)
        order = np.argsort(-weight, axis=None, kind="stable")[:count]
        return [
            (int(i), int(j), float(weight[i, j]))
            for i, j in zip(*np.unravel_index(order, weight.shape), strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.atoms/1",
            "atoms": len(self),
            **entries(self, "coefficients paths last first bias error"),
        }

    def __repr__(self) -> str:
        return (
            f"Atoms({len(self)} of {self.coefficients.size}, {self.paths.sum():.4g} paths, "
            f"reconstruction error {self.error:.1e})"
        )


def atoms_of(region: Region) -> Atoms:
    """The atoms of a region of a plain perceptron with at least one hidden layer."""
    network = region.network
    if not network.is_chain or not network.layers:
        raise InvalidNetworkError(
            f"{network!r}: Theorem 5 is about plain perceptrons with a hidden layer"
        )
    weights = [mx.dense(w) for w in network.weights()[0]]
    slopes = [*slopes_under(network.layers, region.pattern)]
    supports = [np.flatnonzero(slope) for slope in slopes]
    first, last = supports[0], supports[-1]
    inner = weights[0][first] * slopes[0][first, None]
    if len(network.layers) == 1:
        coefficients = paths = np.eye(len(first))
    else:
        coefficients = weights[1][:, first]
        paths = (coefficients != 0).astype(float)
        for k in range(1, len(network.layers) - 1):
            live = supports[k]
            block = weights[k + 1][:, live]
            coefficients = (block * slopes[k][live]) @ coefficients[live]
            paths = (block != 0).astype(float) @ paths[live]
        coefficients = coefficients[last] * slopes[-1][last, None]
        paths = paths[last]
    outer = weights[-1][:, last]
    A, c = region.affine
    size = float(np.abs(A).max(initial=0.0)) or 1.0
    error = float(np.abs(A - outer @ coefficients @ inner).max(initial=0.0)) / size
    return Atoms(coefficients, paths, outer, inner, last, first, c, error)


def atom_images(found: Atoms, shape: tuple[int, ...], count: int = 8) -> list[tuple[str, Array]]:
    """The input sides of the strongest atoms, in the input's shape, with a caption each."""
    if int(np.prod(shape)) != found.inner.shape[1]:
        raise InvalidInputError(
            f"shape {shape} does not have the {found.inner.shape[1]} entries of an input"
        )
    images, seen = [], set()
    for i, j, weight in found.strongest(found.coefficients.size):
        if j in seen:
            continue
        seen.add(j)
        caption = f"unit {found.first[j]} -> {found.last[i]}: {weight:.3g}"
        images.append((caption, found.inner[j].reshape(shape)))
        if len(images) == count:
            break
    return images
