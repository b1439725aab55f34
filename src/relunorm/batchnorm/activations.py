"""What the probes measure from, and where it comes from when activations fit in memory.

`Raw` is all that a layer is reduced to; arrays and networks are reduced here, torch modules in
`relunorm.batchnorm.torch_activations`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import real_numbers
from relunorm.errors import InvalidInputError
from relunorm.network import Network

#: One layer's activations (n, ...), and the rounding unit of the type they came in.
Activations = tuple[NDArray[Any], float]


@dataclass(frozen=True)
class Settings:
    """Thresholds of the probes.

    Attributes:
        rank_tolerance: singular values below this share of the largest count as 0; None: max(n,
            width) times the rounding unit of the activations' type. Raised to what can be resolved
            where a chunked batch leaves the Gram matrix alone; the result states what was used.
        cluster_angle: points closer than this (radians) are linked into one cluster.
        broad: a neuron responds broadly if it is active (> 0) on at least this share of the batch.
        max_points: pairwise measures use at most this many points, drawn without replacement.
    """

    rank_tolerance: float | None = None
    cluster_angle: float = math.radians(15)
    broad: float = 0.9
    max_points: int = 512
    random_state: int = 0


@dataclass(frozen=True, eq=False)
class Raw:
    """What a stream has to deliver for one layer; everything else follows from it.

    Attributes:
        gram: (m, m) over the points used for pairwise measures, whose activations were divided by
            2**exponent first, so that squares stay within the range of floats.
        singular_values: of the activations of those points, min(m, width) of them.
        rounding: unit of the type the activations came in.
        active: how many of the batch's points each neuron is positive on.
        resolution: share of the largest singular value below which the others are rounding,
            whatever the tolerance; more than 0 where they come from the Gram matrix.
    """

    name: str
    shape: tuple[int, ...]
    gram: NDArray[np.float64]
    singular_values: NDArray[np.float64]
    rounding: float
    active: NDArray[np.int64]
    total: int
    exponent: int = 0
    resolution: float = 0.0


def from_arrays(named: dict[str, Activations], settings: Settings) -> list[Raw]:
    total = {len(values) for values, _ in named.values()}
    if len(total) > 1:
        raise InvalidInputError(
            f"the layers hold different numbers of points ({sorted(total)}); the first "
            "axis is the batch"
        )
    picks = pick_points(total.pop(), settings)
    return [raw_of(name, values, picks, unit) for name, (values, unit) in named.items()]


def pick_points(n: int, settings: Settings) -> NDArray[np.int64]:
    """The points used for pairwise measures: all of them, or a random subset in order."""
    if n <= settings.max_points:
        return np.arange(n)
    rng = np.random.default_rng(settings.random_state)
    return np.sort(rng.choice(n, settings.max_points, replace=False))


def raw_of(name: str, array: NDArray[Any], picks: NDArray[np.int64], rounding: float) -> Raw:
    """The raw measures of one layer's activations (n, ...)."""
    shape = array.shape[1:]
    flat = np.asarray(array, dtype=np.float64).reshape(len(array), -1)
    if not np.isfinite(flat).all():
        raise InvalidInputError(f"{name}: the activations hold NaN or infinite entries")
    exponent = int(np.frexp(np.abs(flat).max())[1])
    used = np.ldexp(flat[picks], -exponent)
    gram = used @ used.T
    singular: NDArray[Any] = np.linalg.svd(used, compute_uv=False)
    active = (flat > 0).sum(axis=0)
    return Raw(name, shape, gram, singular, rounding, active, len(flat), exponent)


def named_arrays(given: Any) -> dict[str, Activations]:
    if isinstance(given, Mapping):
        items = {str(name): value for name, value in given.items()}
    elif isinstance(given, (list, tuple)):
        items = {f"layer {k}": value for k, value in enumerate(given)}
    else:
        items = {"activations": given}
    arrays = {}
    for name, value in items.items():
        array = real_numbers(name, value)
        if array.ndim < 2 or not array.size:
            hint = "; a list holds one array for each layer" if isinstance(given, list) else ""
            raise InvalidInputError(
                f"{name} has shape {array.shape}, expected (points, ...) with at least one of "
                f"each{hint}"
            )
        arrays[name] = array, _rounding(value, array)
    if not arrays:
        raise InvalidInputError("no activations were given")
    return arrays


def _rounding(value: Any, array: NDArray[np.floating[Any]]) -> float:
    """The rounding unit of the type the activations came in, also where NumPy does not have it."""
    if hasattr(value, "detach") and value.is_floating_point():
        import torch

        return torch.finfo(value.dtype).eps
    return float(np.finfo(array.dtype).eps)


def from_network(
    network: Network, batch: Any, layers: Sequence[str] | None, settings: Settings
) -> list[Raw]:
    """Pairwise measures from one pass over the chosen points, activity in slices of the batch."""
    batch = real_numbers("the batch", batch).astype(np.float64, copy=False)
    if batch.ndim < 2:
        raise InvalidInputError(
            f"the batch has shape {batch.shape}, expected (points, {network.input_size})"
        )
    if not batch.size:
        raise InvalidInputError(f"the batch is empty: shape {batch.shape}")
    if not np.isfinite(batch).all():
        raise InvalidInputError("the batch holds NaN or infinite entries")
    names = ["input", *(f"{i + 1} {x.name}".strip() for i, x in enumerate(network.layers))]
    index = {name: k for k, name in enumerate(names)}
    wanted = chosen(index, layers)
    picks = pick_points(len(batch), settings)
    values = network.values(batch[picks])
    everyone = np.arange(len(picks))
    raws = [raw_of(name, values[k], everyone, 2.0**-52) for name, k in wanted.items()]
    if len(picks) == len(batch):
        return raws
    del values
    active = [np.zeros(len(raw.active), np.int64) for raw in raws]
    step = max(1, settings.max_points)
    for start in range(0, len(batch), step):
        part = network.values(batch[start : start + step])
        for count, k in zip(active, wanted.values(), strict=True):
            count += (part[k] > 0).sum(axis=0)
    return [
        replace(raw, active=count, total=len(batch))
        for raw, count in zip(raws, active, strict=True)
    ]


def chosen(
    named: dict[str, Any], layers: Sequence[str] | None, what: str = "layer"
) -> dict[str, Any]:
    if layers is None:
        return named
    missing = [name for name in layers if name not in named]
    if missing:
        raise InvalidInputError(f"no {what} {missing[0]!r}; there are {', '.join(named)}")
    return {name: named[name] for name in layers}
