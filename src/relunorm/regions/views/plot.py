"""Pictures of regions. Functions take data, accept ``ax``, return the figure and never show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from relunorm.display.pictures import new_axes
from relunorm.domain import Box
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Network
from relunorm.regions.geometry.atoms import Atoms, atom_images
from relunorm.regions.geometry.boundaries import LevelSet, decision_cells
from relunorm.regions.geometry.polytopes import Geometry
from relunorm.regions.lines import Line, along
from relunorm.regions.partition import Regions
from relunorm.regions.planes import Slice
from relunorm.regions.search.window import open_window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("value", "gradient", "layer", "pattern", "class")

#: Sides of a picture that differ by more than this factor get scales of their own.
LONGEST = 5.0
#: Classes that the legend of a picture names, at most.
LISTED = 20
#: How far away a corner may be to have a say in the window of a picture of all of R^2, in distances
#: of the first layer's lines from 0.
FAR = 1e4


def plot_regions(
    found: Regions | Slice,
    *,
    color: str | None = None,
    output: int = 0,
    layer: int = 1,
    classes: Sequence[str] = (),
    ax: Axes | None = None,
) -> Figure:
    """The regions of a network of two inputs, or of a slice, as polygons.

    Regions of all of R^2 are drawn in a window around their corners (`view_of`); the title says
    how many of them it shows. The marks of a slice are drawn as points with their names.

    Args:
        color: ``value`` (of an output, at the interior point), ``gradient`` (its norm), ``layer``
            (which region of the partition after ``layer`` layers), ``pattern`` (number of active
            units) or ``class`` (which output is the largest, exactly). By default ``class`` for a
            classifier of several outputs, else ``value``.
        classes: what the outputs stand for; by default what the model says.
    """
    plane, found = (found, found.regions) if isinstance(found, Slice) else (None, found)
    if found.network.input_size != 2:
        raise InvalidInputError(
            f"a picture of regions needs two inputs, the network has {found.network.input_size}; "
            "use on_plane for a slice"
        )
    figure, axes = new_axes(ax, figsize=(6.4, 5.6))
    title = f"{len(found):,} regions"
    if found.domain is None:
        whole, found = found, view_of(found)
        title = f"{len(whole):,} regions of the plane, {len(found):,} in this window"
    width = min(0.5, 20 / max(len(found), 1) ** 0.5)
    outputs = found.network.output_size
    own = found.network.head.class_names(found.network.output_shape)
    known = classes or (own if plane is None else plane.classes)
    if (color or ("class" if known and _has_area(found) else "value")) == "class":
        _draw_classes(axes, found, known or [f"output {k}" for k in range(outputs)], width)
    else:
        _draw_values(axes, found, _colors(found, color or "value", output, layer), width)
    axes.autoscale_view()
    axes.set_aspect(_aspect(axes))
    names = ("x0", "x1") if plane is None else ("s", "t")
    axes.set(xlabel=names[0], ylabel=names[1], title=title)
    if plane is not None:
        _draw_marks(axes, plane)
    return figure


def _has_area(found: Regions) -> bool:
    return bool(len(found) and found.domain and (found.domain.bounding_box.halfwidth > 0).all())


def _draw_values(axes: Axes, found: Regions, colors: tuple[Any, str, str], width: float) -> None:
    from matplotlib.collections import PolyCollection

    values, cmap, label = colors
    shapes = PolyCollection(
        _polygons(found), array=values, cmap=cmap, edgecolors="black", linewidths=width
    )
    axes.add_collection(shapes)
    if label:
        beside = axes.inset_axes((1.03, 0.0, 0.04, 1.0))
        axes.get_figure(root=True).colorbar(shapes, cax=beside, label=label)  # type: ignore[union-attr]


def _draw_classes(axes: Axes, found: Regions, names: Sequence[str], width: float) -> None:
    """Where each output is the largest, with the regions' walls and the lines between classes."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.patches import Patch

    cells = decision_cells(found)
    many = colormaps["tab10" if len(names) <= 10 else "turbo"]
    fills = many(np.arange(len(names)) if len(names) <= 10 else np.linspace(0, 1, len(names)))
    fills[:, :3] += 0.45 * (1 - fills[:, :3])  # lighter, so that walls and marks show
    axes.add_collection(PolyCollection(cells.polygons, facecolors=fills[cells.classes]))
    walls = PolyCollection(_polygons(found), facecolors="none", edgecolors="black")
    walls.set(linewidths=width, alpha=0.6)
    axes.add_collection(walls)
    axes.add_collection(LineCollection(list(cells.segments), colors="black", linewidths=1.4))
    seen, pieces = np.unique(cells.classes, return_counts=True)
    largest = sorted(seen[np.argsort(-pieces, kind="stable")[:LISTED]])
    patches = [Patch(color=fills[k], label=names[k]) for k in largest]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)


def _draw_marks(axes: Axes, plane: Slice) -> None:
    from matplotlib.patheffects import withStroke

    if not plane.marks:
        return
    places = plane.coordinates([point for _, point in plane.marks])
    axes.plot(*places.T, "o", color="white", markeredgecolor="black", markersize=7)
    middle = sum(axes.get_xlim()) / 2
    for (name, _), at in zip(plane.marks, places, strict=True):
        side, align = (6, "left") if at[0] < middle else (-6, "right")  # not across the frame
        text = axes.annotate(name, at, xytext=(side, 6), textcoords="offset points", ha=align)
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _polygons(found: Regions) -> list[Array]:
    corners, ptr = found.polygons
    return np.split(corners, ptr[1:-1]) if len(found) else []


def _aspect(axes: Axes) -> Literal["equal", "auto"]:
    """Equal scales, but for sides that are much longer than each other: inputs in other units."""
    sides = sorted(abs(high - low) for low, high in (axes.get_xlim(), axes.get_ylim()))
    return "equal" if sides[1] <= LONGEST * sides[0] else "auto"


def view_of(found: Regions) -> Regions:
    """Regions of all of R^2, cut to a window that shows what there is to see.

    The window reaches from the 5 % to the 95 % quantile of the regions' corners in each coordinate
    and half its width beyond: lines that are nearly parallel meet far away, and a window around all
    corners would show nothing but those. Without corners, around the interior points.
    """
    if not len(found):
        raise InvalidInputError("no region was found, so there is nothing to draw")
    seen = _corners_near(found)
    seen = seen if len(seen) else found.points
    low, high = np.quantile(seen, 0.05, axis=0), np.quantile(seen, 0.95, axis=0)
    reach = np.maximum(high - low, 0.1 * max(float((high - low).max()), 1e-3))
    return _cut(found, Box(low - reach / 2, high + reach / 2))


def _corners_near(found: Regions) -> Array:
    """Corners of regions of R^2, but for those far away from all that there is to see."""
    scale = max(float(found.geometry.window.embedding[0, 0]), *np.median(abs(found.points), axis=0))
    far = FAR * scale
    corners, _ = _cut(found, Box.cube(2, -far, far)).polygons
    return corners[(abs(corners) < (1 - 1e-6) * far).all(axis=1)]


def _cut(found: Regions, box: Box) -> Regions:
    """What a box leaves of regions of R^2."""
    corners, ptr = Geometry(found.network, open_window(found.network, box)).outlines(found.packed)
    inside = replace(found, domain=box, stored_polygons=(corners, ptr))
    inside = inside.select(np.diff(ptr) > 2)
    corners, ptr = inside.polygons
    sums = np.add.reduceat(corners, ptr[:-1]) if len(inside) else np.zeros((0, 2))
    return replace(inside, points=sums / np.diff(ptr)[:, None])


def _colors(found: Regions, color: str, output: int, layer: int) -> tuple[Any, str, str]:
    if color == "value":
        A, c = found.affine()
        value = np.einsum("nd,nd->n", A[:, output], found.points) + c[:, output]
        return value, "viridis", f"output {output}"
    if color == "gradient":
        return np.linalg.norm(found.affine()[0][:, output], axis=1), "magma", "|gradient|"
    if color == "layer":
        _, parents = found.layer(layer)
        # A fixed shuffle, so that neighbours differ.
        mixed = np.random.default_rng(0).permutation(int(parents.max(initial=0)) + 1)[parents]
        return mixed, "tab20", ""
    if color == "pattern":
        return found.patterns.sum(axis=1), "cividis", "active units"
    raise InvalidInputError(f"color {color!r} is not known; use one of {', '.join(COLORS)}")


def plot_refinement(found: Regions | Slice) -> Figure:
    """One panel a layer: how each layer refines the partition (seed 003, figures 1 and 2)."""
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    found = found.regions if isinstance(found, Slice) else found
    depth = len(found.network.layers)
    if found.network.input_size != 2 or not depth:
        raise InvalidInputError("refinement panels are for two inputs and at least one layer")
    found = view_of(found) if found.domain is None else found
    figure = Figure(figsize=(3.2 * depth, 3.4), layout="constrained")
    panels = figure.subplots(1, depth, squeeze=False)[0]
    coarser: list[Any] = []
    for k, ax in enumerate(panels, start=1):
        part, _ = found.layer(k)
        shapes = _polygons(part)
        # Old walls no wider than new ones: where many are close they must not cover them.
        width = min(0.6, 12 / max(len(shapes), 1) ** 0.5)
        for walls, color in ((shapes, "tab:blue"), (coarser, "black")):
            ax.add_collection(
                PolyCollection(walls, facecolors="none", edgecolors=color, linewidths=width)
            )
        coarser = shapes
        ax.autoscale_view()
        ax.set_aspect("equal")
        ax.set(xlabel="x0", ylabel="x1", title=f"layer {k}: {len(part):,} regions")
    return figure


def plot_line(
    line: Line | Network, domain: Box | None = None, *, output: int = 0, ax: Axes | None = None
) -> Figure:
    """An output along a line, or of a network of one input on an interval, with its knots."""
    if isinstance(line, Network):
        if line.input_size != 1 or domain is None:
            raise InvalidInputError("give a Line, or a network of one input and its interval")
        line = along(line, domain.lo, domain.hi)
    figure, axes = new_axes(ax, figsize=(6.4, 3.6))
    one = line.vertices.shape[1] == 1
    at = line.points()[:, 0] if one else line.breakpoints
    axes.plot(at, line.values[:, output], color="tab:blue")
    cuts = np.cumsum([line.network.layers[i].width for i in line.network.hidden])
    for k in range(len(cuts)):
        mine = [
            i + 1
            for i, units in enumerate(line.crossings())
            if len(units) and np.searchsorted(cuts, units[0], side="right") == k
        ]
        if mine:
            axes.plot(at[mine], line.values[mine, output], ".", label=f"knots of layer {k + 1}")
    axes.set(xlabel="x" if one else "position", ylabel=f"output {output}")
    axes.set_title(f"{len(line):,} pieces")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    return figure


def plot_level_set(level: LevelSet, *, ax: Axes | None = None) -> Figure:
    """The segments of a level set of two inputs."""
    from matplotlib.collections import LineCollection

    if level.dimension != 2:
        raise InvalidInputError(
            f"the level set has {level.dimension} dimensions; 3-D: write a mesh"
        )
    figure, axes = new_axes(ax, figsize=(5.6, 5.6))
    axes.add_collection(LineCollection(level.pieces, colors="tab:red", linewidths=1.2))
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_title(f"output {level.output} = {level.level:g}")
    return figure


def plot_atoms(atoms: Atoms, shape: tuple[int, ...], count: int = 8) -> Figure:
    """The input sides of a region's strongest atoms as images.

    Args:
        shape: (height, width) or (channels, height, width) of one input.
    """
    from matplotlib.figure import Figure

    images = atom_images(atoms, shape, count)
    if not images:
        raise InvalidInputError("the region has no atoms: no unit is active")
    columns = min(4, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(2.2 * columns, 2.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in panels:
        ax.axis("off")
    for ax, (caption, image) in zip(panels, images, strict=False):
        reach = float(np.abs(image).max()) or 1.0
        if image.ndim == 3 and image.shape[0] == 3:
            ax.imshow(np.moveaxis(image, 0, -1) / (2 * reach) + 0.5)
        else:
            ax.imshow(image.squeeze(), cmap="RdBu", vmin=-reach, vmax=reach)
        ax.set_title(caption, fontsize="small")
    return figure
