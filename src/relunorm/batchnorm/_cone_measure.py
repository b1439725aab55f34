"""Gaussian measure of a polyhedral cone from its extreme rays, with an error bar to rely on.

The cone is cut into simplicial cones (pulling triangulation, combinatorial), and those again at
their widest edge until no two rays R_i, R_j of a piece are obtuse. The measure of a piece is

    |det R| 2^-k E |l R|^-k,   l uniform on the unit sphere's positive orthant,

and as all products of rays are non-negative, 1 <= |l R|^2 <= k: thinness sits in the determinant,
which is computed, and what is averaged lies between k^(-k/2) and 1 whatever the shape of the cone.
So a few thousand samples give a relative error of about a per cent, and the sample's standard error
means what it says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm._cone_cut import TooComplexError, in_time

if TYPE_CHECKING:
    from relunorm.batchnorm._cone_cut import Cone

#: A cone that would be cut into more pieces than this is not: in up to nine dimensions, ...
MAX_PIECES = 50_000
#: ... and beyond, where halving is hopeless, this over the square of the dimension.
MAX_NUMBERS = 500_000


class Measure(ABC):
    """A running estimate of a Gaussian measure, the mean of independent values."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start the estimate anew, so that what follows does not depend on what was seen."""
        self.samples, self.total, self.square = 0, 0.0, 0.0

    def sample(self, samples: int, rng: np.random.Generator) -> None:
        """Add samples to the estimate."""
        done = 0
        while done < samples:
            count = min(samples - done, 1 << 16)
            values = self.values(count, rng)
            self.total += float(values.sum())
            self.square += float((values**2).sum())
            done += count
        self.samples += samples

    @abstractmethod
    def values(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Independent values whose mean is the measure."""

    @property
    def value(self) -> float:
        return self.total / self.samples

    @property
    def error(self) -> float:
        """Standard error of `value`."""
        spread = max(self.square / self.samples - self.value**2, 0.0)
        return float(np.sqrt(spread / max(self.samples - 1, 1)))


class ConeMeasure(Measure):
    """The measure of a cone that is cut into acute simplicial ones."""

    def __init__(self, cone: Cone, late: Callable[[], bool]):
        super().__init__()
        pieces = _acute(cone.rays[np.array(simplices(cone.on, late))], late)
        k = pieces.shape[-1]
        size = np.abs(np.linalg.det(pieces)) / 2.0**k
        # sampled in proportion to a guess of their measures: the value at their middles
        middle = np.linalg.norm(pieces.mean(axis=1), axis=1) * np.sqrt(k)
        guess = size * middle**-k
        self.pieces, self.k = pieces, k
        self.chance = guess / guess.sum()
        self.ratio = size / self.chance

    def values(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        which = rng.choice(len(self.chance), count, p=self.chance)
        weights = np.abs(rng.standard_normal((count, self.k)))
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
        points = np.einsum("si,sij->sj", weights, self.pieces[which])
        return self.ratio[which] * np.einsum("sj,sj->s", points, points) ** (-self.k / 2)


def simplices(on: NDArray[np.bool_], late: Callable[[], bool]) -> list[tuple[int, ...]]:
    """Index sets of rays whose simplicial cones fill a cone, given its incidences (m, lines)."""
    facets = [_mask(np.flatnonzero(column)) for column in on.T]
    return _pull(_mask(np.arange(len(on))), facets, late)


def _pull(face: int, facets: list[int], late: Callable[[], bool]) -> list[tuple[int, ...]]:
    """Join the face's first ray to a triangulation of each of its facets that misses it."""
    members = _members(face)
    if len(members) <= 2:  # a ray, or the cone of two
        return [tuple(members)]
    parts = {face & facet for facet in facets} - {face}
    parts = [p for p in parts if not any(p != other and p & other == p for other in parts)]
    in_time(late)
    apex = members[0]
    found = []
    for part in sorted(parts):
        if not part >> apex & 1:
            found += [(apex, *rest) for rest in _pull(part, facets, late)]
            if len(found) > MAX_PIECES:
                raise TooComplexError(f"a cell has more than {MAX_PIECES} simplices")
    return found


def _acute(pieces: NDArray[np.float64], late: Callable[[], bool]) -> NDArray[np.float64]:
    """Halve widest edges until every two rays of a piece are at most 90 degrees apart."""
    k = pieces.shape[-1]
    limit = MAX_PIECES if k <= 9 else MAX_NUMBERS // k**2
    done = []
    while len(pieces):
        in_time(late)
        products = pieces @ pieces.transpose(0, 2, 1)
        widest = products.reshape(len(pieces), -1).argmin(axis=1)
        wide = products.reshape(len(pieces), -1)[np.arange(len(pieces)), widest] < -1e-9
        done.append(pieces[~wide])
        pieces, widest = pieces[wide], widest[wide]
        i, j, row = widest // k, widest % k, np.arange(len(pieces))
        middle = pieces[row, i] + pieces[row, j]
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        left, right = pieces.copy(), pieces.copy()
        left[row, i], right[row, j] = middle, middle
        pieces = np.concatenate([left, right])
        if len(pieces) + sum(map(len, done)) > limit:
            raise TooComplexError(f"a cell has more than {limit} acute pieces")
    return np.concatenate(done)


def _mask(members: NDArray[np.int64]) -> int:
    return sum(1 << int(i) for i in members)


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
