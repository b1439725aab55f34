"""One picture for every result: `draw` chooses by what it is given.

Functions take a result and the axes to draw on; nothing is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: Any, ax: Axes | None = None) -> Figure:
    """The picture of a result."""
    name = type(result).__name__
    if name == "Geometry" and ax is None:
        return result.figure()  # which draws more than fits into one pair of axes
    figure, axes = new_axes(ax, figsize=(6.4, 1.8 if name in FLAT else 3.6))
    PICTURES[name](result, axes)
    return figure


def new_axes(ax: Axes | None, **size: Any) -> tuple[Any, Any]:
    """The figure and the axes to draw on; new ones where none are given."""
    if ax is not None:
        return ax.get_figure(root=True), ax
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", **size)
    return figure, figure.add_subplot()


def _network(network: Any, axes: Any) -> None:
    """Units of every layer."""
    hidden = [network.layers[k] for k in network.hidden]
    names = ["input", *(layer.name or str(k + 1) for k, layer in enumerate(hidden)), "output"]
    sizes = [network.input_size, *(layer.width for layer in hidden), network.output_size]
    axes.barh([f"{k}  {name}" for k, name in enumerate(names)], sizes)
    axes.invert_yaxis()
    axes.set_xlabel("values")


def _normalized(found: Any, axes: Any) -> None:
    """Units of every layer before and after."""
    for network, shift, label in ((found.original, -0.2, "before"), (found.network, 0.2, "after")):
        widths = [network.layers[k].width for k in network.hidden]
        axes.bar(np.arange(1, len(widths) + 1) + shift, widths, 0.4, label=label)
    axes.set_xlabel("hidden layer")
    axes.set_ylabel("units")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)


def _interval(
    axes: Any, low: float, high: float, label: str, mark: tuple[float, str] | None = None
) -> None:
    """An interval as a bar; an end that is infinite is left open."""
    known = [value for value in (low, high) if math.isfinite(value)]
    near = known[0] if known else 0.0
    ends = [
        end if math.isfinite(end) else near + math.copysign(max(1.0, abs(near)), end)
        for end in (low, high)
    ]
    axes.plot(ends, [0, 0], linewidth=6, alpha=0.6)
    for value in known:
        axes.plot([value], [0], "|", color="black", markersize=14)
        axes.annotate(f"{value:.6g}", (value, 0), (0, 12), textcoords="offset points",
                      ha="center")  # fmt: skip
    if mark is not None:
        axes.axvline(mark[0], color="C3", linestyle="--", label=mark[1])
        axes.legend(frameon=False)
    axes.set_yticks([])
    axes.set_ylim(-1, 1)
    axes.set_xlabel(label)


def _comparison(found: Any, axes: Any) -> None:
    mark = (found.tolerance, "tolerance")
    _interval(axes, found.lower, found.upper, f"largest difference: {found.verdict}", mark)


def _maximum(found: Any, axes: Any) -> None:
    words = "maximum, exact" if found.exact else "maximum, between"
    _interval(axes, found.lower, found.upper, words)


def _decision(found: Any, axes: Any) -> None:
    low, high = found.margin
    _interval(axes, low, high, f"margin: {found.verdict}", (0.0, "violated beyond"))


def _lipschitz(found: Any, axes: Any) -> None:
    """Every bound, on a logarithmic scale."""
    known = [b for b in found.bounds if math.isfinite(b.value) and b.value > 0]
    names = [f"{bound.method} ({bound.side})" for bound in known]
    colors = ["C0" if bound.side == "upper" else "C2" for bound in known]
    axes.barh(range(len(known)), [bound.value for bound in known], color=colors)
    axes.set_yticks(range(len(known)), names)
    axes.invert_yaxis()
    if known:
        axes.set_xscale("log")
    axes.set_xlabel(f"bound on the Lipschitz constant (norm {found.to_dict()['norm']})")


def _robustness(found: Any, axes: Any) -> None:
    """Accuracy against how far inputs may move: steps, each on its sound side."""
    radius, sure, possible = zip(*found.curve(), strict=True)
    axes.step(radius, [100 * v for v in sure], where="pre", label="certified")
    axes.step(radius, [100 * v for v in possible], "--", where="post", label="not attacked")
    axes.set_xlabel(f"radius (norm {found.norm:g})")
    axes.set_ylabel("right, percent of rows")
    axes.set_ylim(0, 102)
    axes.legend(frameon=False)


def _check(found: Any, axes: Any) -> None:
    """How many of the parts of a property are settled."""
    parts, settled = found.parts
    axes.barh([0], [settled], label="settled")
    axes.barh([0], [parts - settled], left=[settled], color="0.8", label="open")
    axes.set_yticks([])
    axes.set_xlabel(f"parts of the property: {found.verdict}")
    axes.legend(frameon=False)


def _verification(found: Any, axes: Any) -> None:
    _interval(axes, 0.0, found.bound, f"largest difference: the certificate {found.verdict}")


def _stacked(axes: Any, names: list[str], counts: dict[str, list[int]]) -> None:
    left = np.zeros(len(names))
    for word, values in counts.items():
        if any(values):
            axes.barh(names, values, left=left, label=word)
            left += np.array(values)
    axes.invert_yaxis()
    axes.set_xlabel("units")
    axes.legend(frameon=False)


def _diagnosis(found: Any, axes: Any) -> None:
    """What every layer's units do."""
    status = [layer.status() for layer in found.layers]
    words = sorted({word for each in status for word in each}, key=lambda w: (w != "live", w))
    names = [f"{layer.layer + 1}  {layer.name}" for layer in found.layers]
    _stacked(axes, names, {word: [each.count(word) for each in status] for word in words})


def _stability(found: Any, axes: Any) -> None:
    """Verdicts of every layer's units."""
    words = sorted({str(word) for layer in found.layers for word in layer.verdict})
    counts = {w: [int((layer.verdict == w).sum()) for layer in found.layers] for w in words}
    _stacked(axes, [f"{layer.layer + 1}  {layer.name}" for layer in found.layers], counts)


def _monitor(found: Any, axes: Any) -> None:
    """Units of every site by what they did lately."""
    counts: dict[str, list[int]] = {"live": [], "dormant": [], "dead": []}
    for site in found.sites:
        dead, dormant = int(site.dead.sum()), int((site.dormant & ~site.dead).sum())
        for word, n in zip(counts, (site.units - dead - dormant, dormant, dead), strict=True):
            counts[word].append(n)
    _stacked(axes, [site.name for site in found.sites], counts)


def _line(found: Any, axes: Any) -> None:
    """The outputs along a line, with the ends of the pieces."""
    for k, values in enumerate(np.asarray(found.values).T[:6]):
        axes.plot(found.breakpoints, values, ".-", markersize=3, label=f"output {k}")
    axes.set_xlabel("position along the line")
    axes.legend(frameon=False)


def _region(found: Any, axes: Any) -> None:
    """The affine map of a region: one row for every output."""
    matrix = np.atleast_2d(found.affine[0])
    reach = float(np.abs(matrix).max(initial=0.0)) or 1.0
    image = axes.imshow(matrix, aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach)
    axes.set_xlabel("input")
    axes.set_ylabel("output")
    axes.get_figure(root=True).colorbar(image, ax=axes, label="slope in this region")


def _geometry(found: Any, axes: Any) -> None:
    """The median angle through depth; `figure` draws the rest, too."""
    angles = [math.nan if v.mean_angle is None else v.mean_angle for v in found.layers]
    axes.plot(np.degrees(angles), ".-")
    axes.set_xlabel("layer")
    axes.set_ylabel("mean angle, degrees")


def _export(found: Any, axes: Any) -> None:
    _interval(axes, found.found, found.epsilon, "largest error of the program: found, and proved")


#: Results whose picture is one bar.
FLAT = ("Check", "Comparison", "Decision", "Export", "Maximum", "Verification")

#: Name of a result's class -> what draws it.
PICTURES: dict[str, Callable[[Any, Any], Any]] = {
    "Check": _check,
    "Comparison": _comparison,
    "Decision": _decision,
    "Diagnosis": _diagnosis,
    "Export": _export,
    "Geometry": _geometry,
    "Line": _line,
    "LipschitzResult": _lipschitz,
    "Maximum": _maximum,
    "MonitorReport": _monitor,
    "Network": _network,
    "Normalized": _normalized,
    "Region": _region,
    "Robustness": _robustness,
    "Stability": _stability,
    "Verification": _verification,
}
