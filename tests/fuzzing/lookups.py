"""One region: `region_at`, `Regions.locate`, and the regions of all of space at their points."""

from __future__ import annotations

from typing import Any

import numpy as np
from exact_answers import at_point, inside
from exact_oracle import ExactNetwork, Piece, pieces, read

import relunorm as rn
from fuzzing.nets import Kind, Rng, network
from fuzzing.outcome import Case, Outcome, short
from fuzzing.places import place_for
from fuzzing.regions import NOISE, sizes
from relunorm import Network

#: Points asked about in one case.
POINTS = 4


def draw(rng: Rng) -> Case:
    """A network on a domain; in a third of the cases its regions in all of space."""
    net = network(rng, Kind())
    where = place_for(rng, net, balls=False, flat=False)
    return Case((net,), where, {"everywhere": bool(rng.random() < 0.33)})


def judge(case: Case, out: Outcome) -> None:
    """Patterns and maps at points that are clear of every kink."""
    (net,), where = case.networks, case.place
    assert where is not None
    exact = read(net)
    if case.options["everywhere"]:
        found = rn.regions(net, None, time_limit=20)
        for i in range(len(found)):
            point = found.interior_point(i)
            far = np.maximum(np.abs(point), 1.0)
            _check(net, exact, point, far, found.pattern(i), found.affine(i), f"{found!r} {i}", out)
        return
    found = rn.regions(net, where.domain, time_limit=20)
    box = where.domain.bounding_box
    far = np.maximum(np.abs(box.lo), np.abs(box.hi))
    parts = sorted(pieces(exact, where.inner), key=lambda p: _spread(p), reverse=True)
    for piece in parts[:POINTS]:
        point = np.array([float(x) for x in piece.cell.middle()])
        if not inside(where.domain, point.tolist()):
            continue
        region = rn.region_at(net, point, where.domain)
        _check(net, exact, point, far, region.pattern, region.affine, "region_at", out)
        number = int(found.locate(point[None])[0])
        if number >= 0:
            maps = found.affine(number)
            _check(net, exact, point, far, found.pattern(number), maps, "locate", out)
        elif _clear(net, at_point(exact, point.tolist()), far):
            out.claim(not found.complete or found.hidden > 0, f"locate finds nothing at {point}")


def _spread(piece: Piece) -> float:
    points = np.array([[float(x) for x in p] for p in piece.cell.points()])
    return float((points.max(axis=0) - points.min(axis=0)).min())


def _clear(net: Network, there: Piece, far: np.ndarray) -> bool:
    """Whether every unit is surely away from its kink at a point, or has no terms there."""
    limit = sizes(net, there.signs, far, far).forms
    heights = [h for rows in there.forms for h in rows.values(there.cell.corners[0])]
    return all(abs(float(h)) > NOISE * n for h, n in zip(heights, limit, strict=True) if n)


def _check(
    net: Network,
    exact: ExactNetwork,
    point: np.ndarray,
    far: np.ndarray,
    pattern: Any,
    maps: tuple[np.ndarray, np.ndarray],
    words: str,
    out: Outcome,
) -> None:
    there = at_point(exact, point.tolist())
    if not _clear(net, there, far):
        return
    bits = tuple(map(bool, pattern))
    out.claim(
        bits == there.pattern,
        f"{words} at {point.tolist()}: pattern {''.join(str(int(b)) for b in bits)}, exactly "
        f"{''.join(str(int(b)) for b in there.pattern)}",
    )
    if bits != there.pattern:
        return
    size = sizes(net, there.signs, np.abs(point), np.ones(len(point)))
    for k, row in enumerate(there.output.fractions()):
        for j, slope in enumerate(row[:-1]):
            out.claim(
                abs(float(maps[0][k, j] - slope)) <= NOISE * size.output_slopes[k, j],
                f"{words} at {point.tolist()}: slope {maps[0][k, j]!r}, exactly {short(slope)}",
            )
