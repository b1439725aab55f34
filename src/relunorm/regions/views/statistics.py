"""What people ask about a list of regions: sizes, degrees, counts per layer and per line.

And bounds on how many regions networks of given widths can have:

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
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries
from relunorm.domain import Domain, RandomState
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.lines import along
from relunorm.regions.partition import Regions


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Numbers about a list of regions.

    Args:
        per_layer: regions of the partition after each layer (Prop. 3).
        volumes, inradii: one number a region, or of the regions that were measured.
        measured: numbers of the measured regions.
        mean_degree: mean number of neighbours across facets; at most 2 d for all regions of R^d
            or of a convex domain. None when not asked for.
        upper, lower: bounds by widths alone (`counting`); ``serra`` is None for leaky units.
    """

    count: int
    complete: bool
    dimension: int
    per_layer: tuple[int, ...]
    volumes: Array
    inradii: Array
    measured: NDArray[np.int64]
    mean_degree: float | None
    montufar_lower: int | None
    montufar_upper: int | None
    serra_upper: int | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; distributions as quantiles."""

        def spread(values: Array) -> dict[str, float | None]:
            finite = values[np.isfinite(values)]
            if not len(finite):
                return {}
            levels = (0.0, 0.25, 0.5, 0.75, 1.0)
            names = ("min", "q25", "median", "q75", "max")
            found = {n: float(np.quantile(finite, q)) for n, q in zip(names, levels, strict=True)}
            return {**found, "mean": float(finite.mean()), "infinite": len(values) - len(finite)}

        return {
            "schema": "relunorm.region_statistics/1",
            "regions": self.count,
            "complete": self.complete,
            "per_layer": list(self.per_layer),
            "volume": spread(self.volumes),
            "inradius": spread(self.inradii),
            "measured": len(self.measured),
            "mean_degree": self.mean_degree,
            "mean_degree_bound": 2 * self.dimension,
            **entries(self, "montufar_lower montufar_upper serra_upper"),
        }

    def __repr__(self) -> str:
        degree = "" if self.mean_degree is None else f", mean degree {self.mean_degree:.3f}"
        return f"Statistics({self.count:,} regions, per layer {self.per_layer}{degree})"


def statistics(
    found: Regions, *, degree: bool = True, measure: int = 2000, random_state: RandomState = None
) -> Statistics:
    """Sizes, degrees, counts per layer and the bounds by widths, for a list of regions.

    Args:
        degree: compute the adjacency (about one small linear programme per region and unit).
        measure: volumes and inradii of at most so many regions, drawn at random.
    """
    rng = np.random.default_rng(random_state)
    network, n = found.network, len(found)
    take = np.arange(n) if n <= measure else np.sort(rng.choice(n, measure, replace=False))
    areas = found.volume() if found.stored_polygons is not None else None
    volumes = [areas[i] if areas is not None else found.volume(int(i)) for i in take]
    inradii = [found.inradius(int(i)) for i in take]
    per_layer = [len(found.layer(k)[0]) for k in range(1, len(network.layers) + 1)]
    widths, d = [layer.width for layer in network.layers], network.input_size
    chain = network.is_chain and bool(widths)
    relu = all(layer.activation.kind == "relu" for layer in network.layers)
    return Statistics(
        n,
        found.complete,
        d,
        tuple(per_layer),
        np.array(volumes, dtype=float),
        np.array(inradii, dtype=float),
        take.astype(np.int64),
        float(found.adjacency().sum() / n) if degree and n else None,
        montufar_lower(d, widths) if chain and relu and min(widths) >= d else None,
        montufar_upper(d, widths) if chain else None,
        serra_upper(d, widths) if chain and relu else None,
    )


def pieces_along_random_lines(
    network: Network, domain: Domain, lines: int = 100, random_state: RandomState = None
) -> NDArray[np.int64]:
    """How many regions random segments of a domain pass through: one number a line.

    Each segment joins two points drawn from the domain.
    """
    domain.check_dimension(network.input_size)
    if lines < 1:
        raise InvalidInputError(f"lines is {lines}; expected at least 1")
    ends = domain.sample(2 * lines, random_state)
    return np.array([len(along(network, a, b)) for a, b in zip(ends[::2], ends[1::2], strict=True)])


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
