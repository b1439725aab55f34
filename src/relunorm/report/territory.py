"""Where each class wins: every linear region cut along the lines where two outputs are equal.

Where the regions are too many to list, the classes at the points of a grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box, Domain
from relunorm.network import Network
from relunorm.regions.partition import Regions
from relunorm.report.numbers import rounded
from relunorm.report.plane import Plane

Array = NDArray[np.float64]

#: Pieces thinner than this share of the window's size are not listed.
THIN = 1e-9
#: Cells of a grid along each side, from and to, and multiplications all of them may cost.
GRID, GRID_COST = (24, 120), 3e8


def winners(
    network: Network, plane: Plane | None, domain: Domain, drawn: Regions | None
) -> dict[str, Any]:
    """Which class wins where: exactly, region by region, or at the points of a grid.

    Outputs are affine on a region, so a class that wins at every corner wins inside, too, and the
    part of a region where a class wins is convex.

    Args:
        domain: the window of the plane, in its coordinates.
        drawn: its regions; None where they are too many to list.
    """
    box = domain.bounding_box
    if drawn is None:
        return _grid(network, plane, box)
    span = float(2 * box.halfwidth.max())
    shapes = [_corners(drawn, k) for k in range(len(drawn))]
    ends = np.cumsum([len(corners) for corners in shapes])[:-1]
    outputs = _scores(network, plane, np.concatenate(shapes))
    whole: list[int] = []
    cut: list[dict[str, Any]] = []
    for corners, values in zip(shapes, np.split(outputs, ends), strict=True):
        best = values.argmax(axis=1)
        if (best == best[0]).all():
            whole.append(int(best[0]))
            continue
        whole.append(-1)
        for winner in range(values.shape[1]):
            part = _part(corners, values, winner)
            if len(part) > 2 and np.ptp(part, axis=0).max() > THIN * span:
                cut.append({"class": winner, "corners": rounded(part, span)})
    return {"kind": "exact", "whole": whole, "cut": cut, "grid": None}


def _grid(network: Network, plane: Plane | None, box: Box) -> dict[str, Any]:
    """The winners at the middles of the cells of a grid."""
    count = int(np.clip((GRID_COST / network.parameters) ** 0.5, *GRID))
    shares = (np.arange(count) + 0.5) / count
    axes = [lo + shares * (hi - lo) for lo, hi in zip(box.lo, box.hi, strict=True)]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    classes = [int(k) for k in _scores(network, plane, points).argmax(axis=1)]
    window = [float(v) for v in (box.lo[0], box.hi[0], box.lo[1], box.hi[1])]
    grid = {"count": count, "window": window, "classes": classes}
    return {"kind": "estimate", "whole": [], "cut": [], "grid": grid}


def _scores(network: Network, plane: Plane | None, points: Array) -> Array:
    """One column for each class; a single output speaks for the second of two."""
    lifted = points if plane is None else plane.origin + points @ np.stack([plane.u, plane.v])
    outputs = network(lifted)
    return np.hstack([-outputs, outputs]) if outputs.shape[1] == 1 else outputs


def _corners(drawn: Regions, k: int) -> Array:
    assert drawn.domain is not None
    if drawn.network.units:
        return np.asarray(drawn.vertices(k))
    (x0, y0), (x1, y1) = drawn.domain.bounding_box.lo, drawn.domain.bounding_box.hi
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])


def _part(corners: Array, values: Array, winner: int) -> Array:
    """The part of a polygon where one output is the largest: cut by one rival after the other.

    Values at a cut lie on the straight line between those of its ends, so they are carried along
    and nothing is evaluated again (Sutherland and Hodgman's clipping).
    """
    both = np.hstack([corners, values[:, [winner]] - np.delete(values, winner, axis=1)])
    for rival in range(2, both.shape[1]):
        gap = both[:, rival]
        if (gap >= 0).all():
            continue
        kept: list[Array] = []
        for i in range(len(both)):
            j = (i + 1) % len(both)
            if gap[i] >= 0:
                kept.append(both[i])
            if (gap[i] >= 0) != (gap[j] >= 0):
                t = gap[i] / (gap[i] - gap[j])
                kept.append(both[i] + t * (both[j] - both[i]))
        if len(kept) < 3:
            return np.zeros((0, 2))
        both = np.array(kept)
    return both[:, :2]
