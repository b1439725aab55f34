"""Figures of the single-unit theory: each draws on ``ax`` if given and returns a figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.dying.basins import BasinMap
from relunorm.dying.cones import dead_below
from relunorm.dying.trajectories import vector_field

#: Optimum, dead, other.
COLORS = ("#e8b53a", "#3b5b92", "#9a9a9a")
_OPTIMUM: dict[str, Any] = {"marker": "o", "color": "white", "mec": "black", "ms": 6}


def _axes(ax: Any, size: tuple[float, float] = (4.6, 4.2)) -> tuple[Any, Any]:
    if ax is not None:
        return ax.figure, ax
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def plot_basin(found: BasinMap, ax: Any = None, ends: bool = True) -> Any:
    """Starts coloured by where they end; black dots where the dead ones stop; the optimum white."""
    from matplotlib.colors import ListedColormap

    alone = ax is None
    figure, ax = _axes(ax, (4.6, 5.0))
    e = found.extent
    ax.imshow(
        found.classes, origin="lower", extent=(-e, e, -e, e), cmap=ListedColormap(COLORS),
        vmin=0, vmax=2, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    if ends:
        dead = found.classes == 1
        ax.plot(found.w[dead], found.b[dead], ",", color="black", alpha=0.6, rasterized=True)
    _cone(ax, e)
    ax.plot(found.gamma, found.delta, **_OPTIMUM)
    ax.set(xlim=(-e, e), ylim=(-e, e), xlabel="w", ylabel="b")
    ax.set_title(
        f"$\\gamma$={found.gamma:g}, $\\beta$={found.beta:g}\n{found.optimum:.1f}% optimum, "
        f"{found.dead:.1f}% dead",
        fontsize=9,
    )
    if alone:
        basin_legend(figure, ends, columns=2)
    return figure


def basin_legend(figure: Any, ends: bool = True, columns: int = 6) -> None:
    """What the colours of the starts and the marks stand for, once, below all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = zip(COLORS, ("reaches the optimum", "dies", "neither"), strict=True)
    keys: list[Any] = [Patch(color=color, label=label) for color, label in named]
    keys.append(Line2D([], [], ls="", label="the optimum", **_OPTIMUM))
    keys.append(Line2D([], [], ls=":", color="0.4", label="edge of the dead cone"))
    if ends:
        keys.append(Line2D([], [], ls="", marker=".", color="black", label="where dead ones stop"))
    figure.legend(
        handles=keys, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def plot_field(gamma: float, ax: Any = None, extent: float = 2.0, delta: float = 0.0) -> Any:
    """Streamlines of gradient descent over the size of the gradient (figure 3)."""
    alone = ax is None
    figure, ax = _axes(ax)
    axis = np.linspace(-extent, extent, 161)
    w, b = np.meshgrid(axis, axis)
    dw, db = vector_field(w, b, gamma, delta)
    size = np.log10(np.maximum(np.hypot(dw, db), 1e-9))
    ax.imshow(
        size, origin="lower", extent=(-extent, extent, -extent, extent), cmap="viridis",
        vmin=-5, vmax=0.5, aspect="equal",
    )  # fmt: skip
    ax.streamplot(axis, axis, dw, db, color="white", density=0.9, linewidth=0.5, arrowsize=0.6)
    _cone(ax, extent)
    ax.plot(gamma, delta, zorder=5, **_OPTIMUM)
    ax.set(xlim=(-extent, extent), ylim=(-extent, extent), xlabel="w", ylabel="b")
    ax.set_title(f"$\\gamma$={gamma:g}", fontsize=9)
    if alone:
        field_bar(figure, [ax])
    return figure


def field_bar(figure: Any, axes: Any) -> None:
    """The colour bar that all panels of `plot_field` share."""
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label="log10 |gradient|")


def _cone(ax: Any, extent: float) -> None:
    """The dead cone's edge at a firing probability of 1e-4."""
    slope = dead_below(1e-4)
    reach = extent / abs(slope)
    ax.plot([-reach, 0, reach], [-extent, 0, -extent], ":", color="white", lw=1)
