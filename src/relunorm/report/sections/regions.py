"""The linear regions on a plane as polygons with their maps, how many there are, and who wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.clock import Clock
from relunorm.display.shown import plain
from relunorm.domain import Box, Domain
from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Network
from relunorm.regions.enumerate import regions
from relunorm.regions.geometry.boundaries import decision_cells
from relunorm.regions.partition import Regions
from relunorm.regions.planes import on_plane, restrict
from relunorm.report.case import Case, first_outputs
from relunorm.report.numbers import quantity, rounded
from relunorm.report.plane import Plane, choose_plane
from relunorm.report.registry import COUNTED_INPUTS
from relunorm.report.spelling import regions_again

#: Regions that are drawn, at most, and characters of the document they may take.
MAX_DRAWN, MAX_CHARACTERS = 6000, 900_000
#: Numbers the outlines of coarser partitions may take.
MAX_OUTLINES = 40_000
#: Patterns are listed up to this many units.
MAX_PATTERN = 4096
#: Regions that are counted, at most.
MAX_COUNTED = 2_000_000
#: How often the window is made smaller until it holds few enough regions to draw.
SHRINKS = 12
#: Bits of patterns that are sorted to count the regions after each layer, at most.
MAX_BITS = 20_000_000

#: Classes whose territories are drawn, at most.
MAX_CLASSES = 100

#: Of what classes win, pieces thinner than this share of the window's size are not listed.
THIN = 1e-9
#: Cells of a grid along each side, from and to, and multiplications all of them may cost.
GRID, GRID_COST = (24, 120), 3e8

#: Seconds a window that is to be drawn gets at least.
LEAST = 0.05

#: After this share of the time the regions after further layers are not counted.
COUNTING = 0.75


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`regions` of two inputs, `on_plane` of more; one input has the profile instead."""
    clock = Clock(seconds)
    network = case.few_outputs.folded()
    if network.input_size == 1:
        found = _listed(network, None, case.domain, clock, MAX_COUNTED)
        return {**_counts(found, clock), "type": "interval", "cells": None, "plane": None}
    half = clock.part(share=0.4)
    plane = None if network.input_size == 2 else choose_plane(case)
    window = case.domain if plane is None else plane.window
    found = _listed(network, plane, window, half, MAX_COUNTED)
    if not len(found):
        raise InvalidInputError(f"no region was found in {seconds / 2:.3g} s")
    body = {**_counts(found, clock), "type": "plane" if plane is None else "slice"}
    body["again"] = regions_again(case, plane)
    assert found.domain is not None
    if not found.domain.bounding_box.halfwidth.all():  # a line: there is no area to draw
        return {**body, "cells": None, "plane": None}
    whole = None
    if plane is not None and network.input_size <= COUNTED_INPUTS:
        every = _listed(network, None, case.domain, clock.part(share=0.5), MAX_COUNTED)
        whole = _count(every)
    body["whole"] = whole
    drawn = _drawable(network, plane, found, clock)
    body["plane"] = _view(case, plane, drawn)
    body["cells"] = _cells(drawn)
    body["outlines"] = _outlines(drawn, clock)
    body["outputs"] = {"kind": "exact", "shown": network.output_size,
                       "of": case.network.output_size}  # fmt: skip
    body["layers"] = {
        "kind": "exact",
        "rows": [{"name": x.name, "width": x.width} for x in network.layers],
    }
    body["winners"] = None
    if _decides(case):
        listed = drawn if found.complete and len(drawn) == len(found) else None
        body["winners"] = _winners(case.network, plane, found.domain, listed)
    if case.x is not None:
        body["points"] = _points(case, plane)
    return body


def _decides(case: Case) -> bool:
    """Whether the outputs name a class, of not too many."""
    if case.classes is None or len(case.classes.names) > MAX_CLASSES:
        return False
    return (
        case.network.decides_plainly
        and case.classes.decided(case.network(case.inputs[:1])) is not None
    )


def _counts(found: Regions, clock: Clock) -> dict[str, Any]:
    few = found.complete and len(found) * found.network.units <= MAX_BITS
    per_layer: list[int | None] = []
    counting = clock.until(COUNTING)
    for k in range(1, len(found.network.layers)):
        counted = few and not counting.expired()
        per_layer.append(len(found.layer(k)[0]) if counted else None)
    per_layer += [len(found)] if found.network.layers else []
    return {
        "count": _count(found),
        "per_layer": {"kind": _count(found)["kind"], "values": per_layer},
        "method": found.method,
        "partial": "" if found.complete else f"the search was stopped: {found.reason}",
    }


def _count(found: Regions) -> dict[str, Any]:
    """How many there are; at least so many where some were not looked for or are too thin."""
    if found.complete and not found.hidden:
        return quantity(len(found), "exact")
    note = "at least so many"
    if found.complete:
        note += ": regions thinner than 1e-10 of the domain are not counted"
    return quantity(len(found), "bound", note, "lower")


def _drawable(network: Network, plane: Plane | None, found: Regions, clock: Clock) -> Regions:
    """The regions themselves, or those of a window around the middle that holds few enough."""
    each = (
        100 + 60 * network.output_size + (network.units // 4 if network.units <= MAX_PATTERN else 0)
    )
    most = max(1, min(MAX_DRAWN, MAX_CHARACTERS // each))
    assert found.domain is not None
    box = found.domain.bounding_box
    shrink = (most / len(found)) ** 0.5
    for _ in range(SHRINKS):
        if len(found) <= most:
            return found
        half = box.halfwidth * max(0.9 * shrink, 0.01)
        box, shrink = Box(box.center - half, box.center + half), 0.7
        found = _listed(network, plane, box, _moment(clock), most + 1)
    return found.select(np.arange(min(len(found), most)))


def _listed(
    network: Network, plane: Plane | None, window: Any, seconds: float | Clock, most: int
) -> Regions:
    """The regions in a window, which is one of the plane where there is one."""
    limits: dict[str, Any] = {"time_limit": seconds, "max_regions": most}
    if plane is None:
        return regions(network, window, **limits)
    return on_plane(network, plane.origin, plane.u, plane.v, window, **limits).regions


def _moment(clock: Clock) -> float:
    """What is left, but enough to draw something."""
    return max(clock.left(), LEAST)


def _view(case: Case, plane: Plane | None, drawn: Regions) -> dict[str, Any]:
    assert drawn.domain is not None
    box = drawn.domain.bounding_box
    window = plain((box.lo[0], box.hi[0], box.lo[1], box.hi[1]))
    if plane is None:
        names = list(case.names)
        return {"kind": "exact", "window": window, "words": "", "labels": names, "names": names,
                "marks": []}  # fmt: skip
    return {"kind": "exact", **plane.to_dict(), "window": window}


def _cells(drawn: Regions) -> dict[str, Any]:
    A, c = drawn.affine()
    packed = drawn.packed if drawn.network.units <= MAX_PATTERN else None
    return {
        "kind": "exact",
        "corners": _polygons(drawn),
        "patterns": None if packed is None else [row.tobytes().hex() for row in packed],
        "active": [int(n) for n in drawn.patterns.sum(axis=1)],
        "A": plain(A),
        "c": plain(c),
    }


def _polygons(found: Regions) -> list[list[float | None]]:
    assert found.domain is not None
    box = found.domain.bounding_box
    span = float(2 * box.halfwidth.max())
    corners, ptr = found.polygons
    return [rounded(part, span) for part in np.split(corners, ptr[1:-1])] if len(found) else []


def _outlines(drawn: Regions, clock: Clock) -> dict[str, Any]:
    """The partitions after each layer but the last, coarsest first (Prop. 3 of seed 003).

    None stands for one that was not listed in time or has too many corners.
    """
    layers: list[list[list[float | None]] | None] = []
    numbers = 0
    for k in range(1, len(drawn.network.layers)):
        shapes = None
        if numbers < MAX_OUTLINES and not clock.expired():
            coarse = first_outputs(drawn.layer(k)[0].network, 1)  # its outputs are not looked at
            found = _listed(coarse, None, drawn.domain, _moment(clock), MAX_DRAWN)
            shapes = _polygons(found) if found.complete else None
            numbers += sum(map(len, shapes or ()))
        layers.append(shapes if numbers <= MAX_OUTLINES else None)
    return {"kind": "exact", "layers": layers}


def _points(case: Case, plane: Plane | None, most: int = 400) -> dict[str, Any]:
    """Some of the data, as dots: on the plane, or next to it (projected)."""
    assert case.x is not None
    picks = np.unique(np.linspace(0, len(case.x) - 1, min(len(case.x), most)).astype(int))
    rows = case.x[picks]
    if plane is not None:
        rows = (rows - plane.origin) @ np.stack([plane.u, plane.v]).T
    span = float(np.ptp(rows, axis=0).max())
    labels = None
    if case.classes is not None and case.y is not None:
        labels = case.y[picks].astype(int).tolist()
    elif case.y is not None and case.y.ndim == 1 and len(np.unique(case.y)) <= 8:
        labels = np.unique(case.y, return_inverse=True)[1][picks].tolist()
    return {
        "kind": "exact" if plane is None else "estimate",
        "xy": rounded(rows, span),
        "labels": labels,
        "words": "" if plane is None else "projected onto the slice",
    }


def _winners(
    network: Network, plane: Plane | None, domain: Domain, drawn: Regions | None
) -> dict[str, Any]:
    """Which class wins where: exactly, region by region, or at the points of a grid.

    Args:
        domain: the window of the plane, in its coordinates.
        drawn: its regions; None where they are too many to list.
    """
    box = domain.bounding_box
    if drawn is None:
        return _grid(network, plane, box)
    span = float(2 * box.halfwidth.max())
    found = decision_cells(replace(drawn, network=_scored(network, plane)))
    pieces, whole = np.bincount(found.owners, minlength=len(drawn)), [-1] * len(drawn)
    cut: list[dict[str, Any]] = []
    for part, winner, owner in zip(found.polygons, found.classes, found.owners, strict=True):
        if pieces[owner] == 1:
            whole[owner] = int(winner)
        elif np.ptp(part, axis=0).max() > THIN * span:
            cut.append({"class": int(winner), "corners": rounded(part, span)})
    return {"kind": "exact", "whole": whole, "cut": cut, "grid": None}


def _grid(network: Network, plane: Plane | None, box: Box) -> dict[str, Any]:
    """The winners at the middles of the cells of a grid."""
    count = int(np.clip((GRID_COST / network.parameters) ** 0.5, *GRID))
    shares = (np.arange(count) + 0.5) / count
    axes = [lo + shares * (hi - lo) for lo, hi in zip(box.lo, box.hi, strict=True)]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    classes = [int(k) for k in _scored(network, plane)(points).argmax(axis=1)]
    window = [float(v) for v in (box.lo[0], box.hi[0], box.lo[1], box.hi[1])]
    grid = {"count": count, "window": window, "classes": classes}
    return {"kind": "estimate", "whole": [], "cut": [], "grid": grid}


def _scored(network: Network, plane: Plane | None) -> Network:
    """On the plane, one output for each class; a single one speaks for the second of two."""
    network = network.folded()
    if plane is not None:
        network = restrict(network, np.stack([plane.u, plane.v]).T, plane.origin)
    if network.output_size > 1:
        return network
    both, output = np.array([[-1.0], [1.0]]), network.output
    terms = {source: both * mx.dense(matrix) for source, matrix in output.terms.items()}
    return network.replace(output=Affine(terms, both[:, 0] * output.bias))
