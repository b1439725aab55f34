"""One page of plots for a `Geometry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from relunorm.batchnorm.probes import Geometry


def draw(probe: Geometry) -> Any:
    """Angles, ranks, norms and activity through depth, and the last layer's angles (a matplotlib
    figure).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 3)
    depth = np.arange(len(probe))
    _angles(axes[0, 0], probe, depth)
    _ranks(axes[0, 1], probe, depth)
    _norms(axes[0, 2], probe, depth)
    _activity(axes[1, 0], probe, depth)
    _histogram(axes[1, 1], probe)
    _pairs(axes[1, 2], probe)
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


def _angles(ax: Any, probe: Geometry, depth: np.ndarray) -> None:
    empty = (np.nan,) * 7
    quantiles = np.degrees([layer.angle_quantiles or empty for layer in probe.layers])
    ax.fill_between(depth, quantiles[:, 1], quantiles[:, 5], alpha=0.15, label="5-95 %")
    ax.fill_between(depth, quantiles[:, 2], quantiles[:, 4], alpha=0.3, label="25-75 %")
    ax.plot(depth, np.degrees(_column(probe, "mean_angle")), "o-", ms=3, label="mean")
    ax.plot(depth, np.degrees(_column(probe, "cluster_angle")), "--", label="without odd points")
    ax.set(title="pairwise angles (degrees)")
    ax.legend(fontsize=7)


def _ranks(ax: Any, probe: Geometry, depth: np.ndarray) -> None:
    ax.plot(depth, _column(probe, "rank"), "s-", ms=3, label="rank")
    ax.plot(depth, _column(probe, "soft_rank"), "o-", ms=3, label="soft rank")
    ax.set(title="rank of the batch")
    _log_if_wide(ax, np.concatenate([_column(probe, "rank"), _column(probe, "soft_rank")]))
    ax.legend(fontsize=7)


def _norms(ax: Any, probe: Geometry, depth: np.ndarray) -> None:
    ax.plot(depth, _column(probe, "norm_ratio_scaled"), "o-", ms=3)
    ax.axhline(1, color="grey", lw=0.8, ls=":")
    ax.set(title="(mean other norm / largest) x (n - 1)")
    _log_if_wide(ax, _column(probe, "norm_ratio_scaled"))


def _activity(ax: Any, probe: Geometry, depth: np.ndarray) -> None:
    width = _column(probe, "width")
    ax.plot(depth, 100 * _column(probe, "broad_share"), "o-", ms=3, label="broadly responding")
    ax.plot(depth, 100 * _column(probe, "dead") / width, "s-", ms=3, label="dead")
    ax.set(title="neurons (%)")
    ax.legend(fontsize=7)


def _histogram(ax: Any, probe: Geometry) -> None:
    last = probe.layers[-1]
    ax.bar(np.arange(36) * 5 + 2.5, last.angle_histogram, width=5)
    ax.set(title=f"angles after {_named(last.name)}", xlabel="degrees", ylabel="pairs")


def _pairs(ax: Any, probe: Geometry) -> None:
    last = probe.layers[-1]
    pairs = np.degrees(last.pairs)
    ax.plot(pairs[:, 0], pairs[:, 1], ".", ms=2)
    top = float(np.max(pairs, initial=1.0, where=np.isfinite(pairs)))
    ax.plot([0, top], [0, top], color="grey", lw=0.8, ls=":")
    ax.set(title="angle of a pair", xlabel="before the last layer", ylabel="after it")
