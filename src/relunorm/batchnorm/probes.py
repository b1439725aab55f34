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
        """One page of plots (a matplotlib figure): angles, ranks, norms and activity through
        depth, and the last layer's angles.
        """
        return _page(self)

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


def _page(probe: Geometry) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 3)
    depth = np.arange(len(probe))
    _draw_angles(axes[0, 0], probe, depth)
    ranks = {"rank": _column(probe, "rank"), "soft rank": _column(probe, "soft_rank")}
    _draw_curves(axes[0, 1], "rank of the batch", ranks, log=True)
    norms = {"": _column(probe, "norm_ratio_scaled")}
    _draw_curves(axes[0, 2], "(mean other norm / largest) x (n - 1)", norms, log=True)
    axes[0, 2].axhline(1, color="grey", lw=0.8, ls=":")
    broad, dead = (_column(probe, name) for name in ("broad_share", "dead"))
    shares = {"broadly responding": 100 * broad, "dead": 100 * dead / _column(probe, "width")}
    _draw_curves(axes[1, 0], "neurons (%)", shares)
    _draw_last(axes[1, 1], axes[1, 2], probe.layers[-1])
    for ax in (axes[0, 0], axes[0, 1], axes[0, 2], axes[1, 0]):
        _name_layers(ax, [layer.name for layer in probe.layers])
    if probe.points < 2:
        for ax in (axes[0, 0], axes[0, 2], axes[1, 1], axes[1, 2]):
            _say(ax, "needs at least two points")
    odd = [layer.name for layer in probe.layers if layer.odd.count]
    verdict = f"odd point from {_named(odd[0])} on" if odd else "no odd point"
    points = f"{probe.points} point{'s' if probe.points != 1 else ''}"
    figure.suptitle(f"Geometry of {points} {_where(probe)}: {verdict}")
    return figure


def _name_layers(ax: Any, names: list[str]) -> None:
    """The layers' own names on the axis: at most twelve, evenly spaced, the first among them."""
    step = -(-len(names) // 12)
    shown = names[::step]
    crowded = sum(map(len, shown)) > 40
    ax.set_xticks(range(0, len(names), step), shown)
    ax.tick_params(axis="x", labelsize=7, labelrotation=60 if crowded else 0)
    ax.set_xlabel("layer")


def _say(ax: Any, text: str) -> None:
    """Words where there is nothing to draw."""
    ax.set(xticks=[], yticks=[])
    for line in list(ax.lines):
        line.remove()
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes, color="grey")


def _where(probe: Geometry) -> str:
    """The input of a network is the first row of a probe, but not a layer."""
    layers = len(probe) - (probe.layers[0].name == "input")
    through = f"through {layers} layer{'s' if layers != 1 else ''}"
    return through if layers else "at the input"


def _named(name: str) -> str:
    return "the input" if name == "input" else f"layer {name}"


def _column(probe: Geometry, name: str) -> np.ndarray:
    values = [getattr(layer, name) for layer in probe.layers]
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def _log_if_wide(ax: Any, values: np.ndarray) -> None:
    """A logarithmic axis where a linear one would hide the small values, in plain numbers."""
    if np.isfinite(values).all() and values.min() > 0 and values.max() > 20 * values.min():
        from matplotlib.ticker import LogLocator

        ax.set_yscale("log")
        # a factor of 20 may hold a single power of ten
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")


def _draw_angles(ax: Any, probe: Geometry, depth: np.ndarray) -> None:
    empty = (np.nan,) * 7
    quantiles = np.degrees([layer.angle_quantiles or empty for layer in probe.layers])
    ax.fill_between(depth, quantiles[:, 1], quantiles[:, 5], alpha=0.15, label="5-95 %")
    ax.fill_between(depth, quantiles[:, 2], quantiles[:, 4], alpha=0.3, label="25-75 %")
    ax.plot(depth, np.degrees(_column(probe, "mean_angle")), "o-", ms=3, label="mean")
    ax.plot(depth, np.degrees(_column(probe, "cluster_angle")), "--", label="without odd points")
    ax.set(title="pairwise angles (degrees)")
    ax.legend(fontsize=7)


def _draw_curves(ax: Any, title: str, curves: dict[str, np.ndarray], log: bool = False) -> None:
    """Numbers of the layers by name; on a logarithmic axis where a linear one hides small ones."""
    for (name, values), marker in zip(curves.items(), "so", strict=False):
        ax.plot(values, f"{marker}-", ms=3, label=name)
    ax.set(title=title)
    if log:
        _log_if_wide(ax, np.concatenate(list(curves.values())))
    if len(curves) > 1:
        ax.legend(fontsize=7)


def _draw_last(left: Any, right: Any, last: LayerGeometry) -> None:
    """The last layer's angles, and those of pairs before and after it."""
    left.bar(np.arange(36) * 5 + 2.5, last.angle_histogram, width=5)
    left.set(title=f"angles after {_named(last.name)}", xlabel="degrees", ylabel="pairs")
    pairs = np.degrees(last.pairs)
    right.plot(pairs[:, 0], pairs[:, 1], ".", ms=2)
    top = float(np.max(pairs, initial=1.0, where=np.isfinite(pairs)))
    right.plot([0, top], [0, top], color="grey", lw=0.8, ls=":")
    right.set(title="angle of a pair", xlabel="before the last layer", ylabel="after it")
