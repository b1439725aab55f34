"""A map of basins drawn, on ``ax`` if given."""

from __future__ import annotations

from typing import Any

from relunorm.dying.basins import BasinMap
from relunorm.dying.cones import dead_below

#: Optimum, dead, other.
COLORS = ("#e8b53a", "#3b5b92", "#9a9a9a")
#: The mark of the optimum.
OPTIMUM: dict[str, Any] = {"marker": "o", "color": "white", "mec": "black", "ms": 6}


def plot_basin(found: BasinMap, ax: Any = None) -> Any:
    """Starts coloured by where they end; black dots where the dead ones stop; the optimum white."""
    from matplotlib.colors import ListedColormap

    alone = ax is None
    if alone:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(4.6, 5.0), layout="constrained").subplots()
    e = found.extent
    ax.imshow(
        found.classes, origin="lower", extent=(-e, e, -e, e), cmap=ListedColormap(COLORS),
        vmin=0, vmax=2, interpolation="nearest", aspect="equal",
    )  # fmt: skip
    dead = found.classes == 1
    ax.plot(found.w[dead], found.b[dead], ",", color="black", alpha=0.6, rasterized=True)
    draw_cone(ax, e)
    ax.plot(found.gamma, found.delta, **OPTIMUM)
    ax.set(xlim=(-e, e), ylim=(-e, e), xlabel="w", ylabel="b")
    ax.set_title(
        f"$\\gamma$={found.gamma:g}, $\\beta$={found.beta:g}\n{found.optimum:.1f}% optimum, "
        f"{found.dead:.1f}% dead",
        fontsize=9,
    )
    if alone:
        basin_legend(ax.figure, columns=2)
    return ax.figure


def basin_legend(figure: Any, columns: int = 6) -> None:
    """What the colours of the starts and the marks stand for, once, below all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = zip(COLORS, ("reaches the optimum", "dies", "neither"), strict=True)
    keys: list[Any] = [Patch(color=color, label=label) for color, label in named]
    keys.append(Line2D([], [], ls="", label="the optimum", **OPTIMUM))
    keys.append(Line2D([], [], ls=":", color="0.4", label="edge of the dead cone"))
    keys.append(Line2D([], [], ls="", marker=".", color="black", label="where dead ones stop"))
    figure.legend(
        handles=keys, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def draw_cone(ax: Any, extent: float) -> None:
    """The dead cone's edge at a firing probability of 1e-4."""
    slope = dead_below(1e-4)
    reach = extent / abs(slope)
    ax.plot([-reach, 0, reach], [-extent, 0, -extent], ":", color="white", lw=1)
