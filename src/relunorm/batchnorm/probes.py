"""Probes: what each layer of a model does to the geometry of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arguments import real_number, whole_number
from relunorm.batchnorm.activations import (
    Raw,
    Settings,
    chosen,
    from_arrays,
    from_network,
    named_arrays,
)
from relunorm.batchnorm.gram import (
    OddTest,
    cluster_sizes,
    numeric_rank,
    odd_points,
    pair_angles,
    soft_rank,
)
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError
from relunorm.io.border import as_network
from relunorm.network import Network

#: Pairs whose angles are kept, before and after each layer.
MAX_PAIRS = 2000
ANGLE_BINS = np.linspace(0, np.pi, 37)
ACTIVITY_BINS = np.linspace(0, 1, 11)
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class LayerGeometry:
    """One layer's geometry of a batch. Angles are in radians.

    Attributes:
        rank, rank_tolerance: numeric rank and the relative tolerance it rests on.
        soft_rank: (tr G)^2 / |G|_F^2.
        angle_quantiles: pairwise angles at 0, 5, 25, 50, 75, 95 and 100 per cent.
        angle_histogram: counts in 36 bins of 5 degrees.
        pairs: (k, 2) angles of sampled pairs before and after the layer; empty for the first.
        norms: of the points used.
        norm_ratio_scaled: (mean norm of the others / largest norm) * (n - 1): near 1 beside an odd
            point.
        cluster_sizes: sizes of the groups linked by angles below the threshold.
        cluster_angle: mean angle among the points that are not odd.
        odd: one, two or no odd points, with the gap the verdict rests on.
        activity_histogram: neurons by the share of the batch they are active on, 10 bins.
        broad_share: share of neurons active on at least the threshold (0.9) of the batch.
        dead: neurons active on no point.
        zero_points: points all of whose activations are 0.
    """

    name: str
    shape: tuple[int, ...]
    points: int
    width: int
    rank: int
    rank_tolerance: float
    soft_rank: float
    mean_angle: float | None
    angle_quantiles: tuple[float, ...]
    angle_histogram: tuple[int, ...]
    pairs: NDArray[np.float64] = field(repr=False)
    norms: NDArray[np.float64] = field(repr=False)
    norm_ratio_scaled: float | None
    cluster_sizes: tuple[int, ...]
    cluster_angle: float | None
    odd: OddTest
    activity_histogram: tuple[int, ...]
    broad_share: float
    dead: int
    zero_points: int

    def to_dict(self) -> dict[str, Any]:
        return {
            **entries(
                self,
                "name shape points width rank rank_tolerance soft_rank mean_angle "
                "angle_quantiles angle_histogram norm_ratio_scaled",
            ),
            "cluster_count": len(self.cluster_sizes),
            "cluster_sizes": list(self.cluster_sizes[:20]),
            **entries(self, "cluster_angle odd activity_histogram broad_share dead zero_points"),
        }


@dataclass(frozen=True, eq=False)
class Geometry(Shown):
    """The geometry of a batch through a model, layer by layer."""

    layers: tuple[LayerGeometry, ...]
    points: int
    settings: Settings

    def __getitem__(self, key: int | str) -> LayerGeometry:
        if isinstance(key, int):
            return self.layers[key]
        for layer in self.layers:
            if layer.name == key:
                return layer
        names = ", ".join(layer.name for layer in self.layers)
        raise InvalidInputError(f"no layer {key!r}; probed were {names}")

    def __len__(self) -> int:
        return len(self.layers)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.geometry/1",
            "points": self.points,
            "settings": self.settings.__dict__,
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def figure(self) -> Any:
        """One page of plots (a matplotlib figure): angles, ranks, norms, activity."""
        from relunorm.batchnorm.probes_plot import draw

        return draw(self)

    def __repr__(self) -> str:
        return f"Geometry({len(self.layers)} layers, {self.points} points)"


def geometry(
    model: Any,
    batch: Any = None,
    layers: str | Sequence[str] | None = None,
    *,
    chunk: int | None = None,
    rank_tolerance: float | None = None,
    cluster_angle: float = math.radians(15),
    broad: float = 0.9,
    max_points: int = 512,
    random_state: int = 0,
) -> Geometry:
    """Measure what each layer of a model does to the geometry of a batch.

    Args:
        model: a torch module (probed by hooks, on its own device and in its own mode, and left as
            it was), a `Network`, one array of activations (n, ...), or several, as a list or by
            name.
        batch: the inputs (n, ...); None when ``model`` is activations. A torch module with several
            inputs takes a tuple of arrays or tensors, or a mapping by parameter name. Arrays become
            floats; whole numbers that index something are given as torch tensors.
        layers: name or names to probe. Default: every activation module of a torch model (every
            leaf module if it has none), every layer of a Network.
        chunk: send at most this many points through a torch model at once. Memory is then bounded
            by one chunk of activations, at the price of (points/chunk)^2 / 2 passes for the
            pairwise measures. The rank of a layer at most as wide as the points used comes from a
            QR factor updated chunk by chunk, as accurate as without chunks; that of a wider one
            from the Gram matrix, which resolves sqrt(width x 2^-52) of the largest singular value
            (``rank_tolerance`` of the result says so). Needs eval mode where the model normalizes
            by the batch.
        rank_tolerance, cluster_angle, broad, max_points, random_state: see `Settings`.

    Exact for the points used, up to rounding (float64 sums).

    >>> probe = geometry([np.eye(4), np.ones((4, 2))])
    >>> [(layer.rank, round(layer.soft_rank, 6)) for layer in probe.layers]
    [(4, 4.0), (1, 1.0)]
    """
    layers = _names(layers)
    settings = Settings(
        None if rank_tolerance is None else real_number("rank_tolerance", rank_tolerance),
        real_number("cluster_angle", cluster_angle),
        real_number("broad", broad),
        whole_number("max_points", max_points, 1),
        whole_number("random_state", random_state, 0),
    )
    if chunk is not None:
        chunk = whole_number("chunk", chunk, 1)
    _check_settings(settings)
    raws = _raws(model, batch, layers, chunk, settings)
    found, before = [], None
    for raw in raws:
        angles = pair_angles(raw.gram)
        found.append(_measure(raw, angles, before, settings))
        before = angles
    if not found:
        raise InvalidInputError(
            "no layer was probed: the model has no modules, none was called, or none gave one "
            "tensor with the batch first; name the modules to probe in layers"
        )
    return Geometry(tuple(found), raws[0].total, settings)


def _names(layers: Any) -> list[str] | None:
    if layers is None or isinstance(layers, str):
        return None if layers is None else [layers]
    if not isinstance(layers, Iterable):
        raise InvalidInputError(f"layers is {layers!r}, expected a name or a list of names")
    names = list(layers)
    if not names:
        raise InvalidInputError("layers names no layer; leave it out to probe the default ones")
    return names


def _raws(
    model: Any, batch: Any, layers: Sequence[str] | None, chunk: int | None, settings: Settings
) -> list[Raw]:
    if isinstance(model, Network):
        if batch is None:
            raise InvalidInputError("a network needs a batch of inputs: geometry(network, batch)")
        return from_network(model, batch, layers, settings)
    if _is_module(model):
        if batch is None:
            raise InvalidInputError("a module needs a batch of inputs: geometry(module, batch)")
        from relunorm.batchnorm.torch_activations import stream

        return stream(model, batch, layers, chunk, settings)
    if batch is not None and not isinstance(model, Mapping | list | tuple | np.ndarray):
        return from_network(as_network(model, batch), batch, layers, settings)
    if batch is not None:
        raise InvalidInputError(
            f"{type(model).__name__} is neither a torch module nor a Network; activations alone "
            "are given without a batch"
        )
    return from_arrays(chosen(named_arrays(model), layers), settings)


def _measure(
    raw: Raw, angles: NDArray[np.float64], before: NDArray[np.float64] | None, settings: Settings
) -> LayerGeometry:
    gram, n, width = raw.gram, len(raw.gram), len(raw.active)
    tolerance = settings.rank_tolerance
    if tolerance is None:
        tolerance = max(n, width) * raw.rounding
    tolerance = max(tolerance, raw.resolution)
    known = angles[~np.isnan(angles)]
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    odd = odd_points(gram)
    with np.errstate(over="ignore"):
        true_norms = np.ldexp(norms, raw.exponent)
    inside = np.setdiff1d(np.arange(n), odd.points)
    within = pair_angles(gram[np.ix_(inside, inside)])
    within = within[~np.isnan(within)]
    share = raw.active / raw.total
    pairs = np.empty((0, 2))
    if before is not None:
        picks = np.arange(len(angles))
        if len(picks) > MAX_PAIRS:
            rng = np.random.default_rng(settings.random_state)
            picks = np.sort(rng.choice(len(picks), MAX_PAIRS, replace=False))
        pairs = np.column_stack([before[picks], angles[picks]])
    ratio = None
    if n > 1 and norms.max() > 0:
        ratio = float((norms.sum() - norms.max()) / norms.max())
    return LayerGeometry(
        raw.name,
        raw.shape,
        n,
        width,
        numeric_rank(raw.singular_values, tolerance),
        float(tolerance),
        soft_rank(gram),
        float(known.mean()) if len(known) else None,
        tuple(np.quantile(known, QUANTILES).tolist()) if len(known) else (),
        tuple(np.histogram(known, ANGLE_BINS)[0].tolist()),
        pairs,
        true_norms,
        ratio,
        cluster_sizes(gram, settings.cluster_angle),
        float(within.mean()) if len(within) else None,
        odd,
        tuple(np.histogram(share, ACTIVITY_BINS)[0].tolist()),
        float((share >= settings.broad).mean()),
        int((raw.active == 0).sum()),
        int((norms == 0).sum()),
    )


def _is_module(model: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _check_settings(settings: Settings) -> None:
    if settings.rank_tolerance is not None and not 0 <= settings.rank_tolerance < 1:
        raise InvalidInputError(f"rank_tolerance is {settings.rank_tolerance}, expected 0 <= t < 1")
    if not 0 < settings.cluster_angle <= math.pi:
        raise InvalidInputError(
            f"cluster_angle is {settings.cluster_angle}, expected radians in (0, pi]"
        )
    if not 0 < settings.broad <= 1:
        raise InvalidInputError(f"broad is {settings.broad}, expected a share in (0, 1]")
