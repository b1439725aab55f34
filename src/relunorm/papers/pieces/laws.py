"""What seed 003's claims rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.lipschitz.theorem6 import theorem6
from relunorm.network import Network
from relunorm.papers.random_networks import he_network
from relunorm.papers.world import World
from relunorm.regions.enumerate import regions
from relunorm.regions.region import region_at

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10


def pattern(network: Network, x: Array) -> NDArray[np.bool_]:
    """(6): which units are on at each point, all layers side by side."""
    return network.pattern(x)


def torch_relu(z: Any) -> Any:
    import torch

    return torch.relu(z)


def norm_factor(rows: int, columns: int) -> float:
    """Before (14): |B| is at most this times |B|_max."""
    return float(np.sqrt(rows * columns))


def constant_bound(weight: float, width: int, layers: int) -> float:
    """Theorem 6 (i), global: (C N)^(L-2) N."""
    return float((weight * width) ** (layers - 2) * width)


@dataclass(frozen=True)
class Pieces(World):
    """Random networks, their regions, patterns and bounds; a rectifier with its derivative; the
    large weight of the last layer that (14) and (15) overlook."""

    network: Callable[..., Network] = he_network
    regions: Callable[..., Any] = regions
    region_at: Callable[..., Any] = region_at
    pattern: Callable[[Network, Array], NDArray[np.bool_]] = pattern
    theorem6: Callable[..., Any] = theorem6
    global_bound: Callable[[float, int, int], float] = constant_bound
    relu: Callable[[Any], Any] = torch_relu
    norm_factor: Callable[[int, int], float] = norm_factor
    last_weight: float = 50.0
