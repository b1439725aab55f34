"""The flat pieces of a level set, region by region: points, segments or polygons.

What is listed is the boundary of S = {x : f(x) = level} within the domain: S without the interior
of its plateaus, as far as it has dimension d - 1. On a region where f is not the level throughout,
S is one flat section of the cell. It goes through the cell's interior, or it is a facet, and then
the region across sees the same facet: such a wall is listed once, for the first of the two.

A corner is on the level when it is nearer than the tolerance of the search (1e-10 of the domain's
half-width, or the rounding of f there if that is more), so nothing depends on the scale of f.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain.base import lengths
from relunorm.matrix import Array
from relunorm.network import Affine, Layer, Network
from relunorm.regions.enumerate import regions
from relunorm.regions.kernels.pack import TOLERANCE, affine_maps
from relunorm.regions.partition import Regions

Numbers = NDArray[np.int64]

#: Facets seen from both sides have the same middle to this share of the domain's half-width.
SAME = 0.5 * TOLERANCE


class _Forms(NamedTuple):
    """f - level on every region, and how far from zero it has to be to have a sign."""

    gradient: Array  # (n, d)
    constant: Array  # (n,)
    band: Array  # (n,)

    def at(self, points: Array, owner: Numbers) -> tuple[Array, NDArray[np.int8]]:
        """Values and signs at points, each under the form of its owner."""
        value = np.einsum("nd,nd->n", self.gradient[owner], points) + self.constant[owner]
        sign = np.where(np.abs(value) <= self.band[owner], 0, np.sign(value))
        return value, sign.astype(np.int8)


def level_pieces(found: Regions, level: float, output: int) -> tuple[list[Array], Numbers]:
    """The pieces of {f = level} and the region each lies in; see the module."""
    if not len(found):
        return [], np.zeros(0, np.int64)
    forms = _forms(found, level, output)
    solid = found.network.input_size == 3
    seen = _sections(found, forms, level, output) if solid else _flat_sections(found, forms)
    pieces, owners, on_wall = seen
    keep = _first_of_each(found, pieces, on_wall)
    return [pieces[k] for k in keep], np.array([owners[k] for k in keep], np.int64)


def _forms(found: Regions, level: float, output: int) -> _Forms:
    from relunorm.arithmetic.rounding import roundings

    A, c = found.affine()
    gradient, constant = A[:, output], c[:, output] - level
    box = found.geometry.window
    length = lengths(gradient @ box.embedding)
    noise = roundings(_only(found.network, output), found.domain)[0] if found.domain else 0.0
    return _Forms(gradient, constant, np.maximum(TOLERANCE * length, noise + abs(level) * 2**-50))


def _only(network: Network, output: int) -> Network:
    """The network with one of its outputs."""
    row = slice(output, output + 1)
    terms = {s: mx.dense(m)[row] for s, m in network.output.terms.items()}
    return network.replace(output=Affine(terms, network.output.bias[row]))


def _flat_sections(found: Regions, forms: _Forms) -> tuple[list[Array], list[int], list[bool]]:
    """Points of intervals and segments of polygons: corners on the level, and edges across it."""
    flat, ptr = found.polygons
    d = flat.shape[1]
    owner = np.repeat(np.arange(len(found)), np.diff(ptr))
    value, sign = forms.at(flat, owner)
    above = np.logical_or.reduceat(sign > 0, ptr[:-1])
    below = np.logical_or.reduceat(sign < 0, ptr[:-1])
    after = np.arange(len(flat)) + 1
    after[ptr[1:] - 1] = ptr[:-1]
    cross = np.flatnonzero(sign * sign[after] < 0)
    if d == 1:
        cross = cross[cross < after[cross]]  # an interval is one edge, not two
    share = value[cross] / (value[cross] - value[after[cross]])
    points = flat[cross] + share[:, None] * (flat[after[cross]] - flat[cross])
    on = np.flatnonzero((sign == 0) & (above | below)[owner])
    points = np.concatenate([points, flat[on]])
    owners = np.concatenate([owner[cross], owner[on]])
    order = np.argsort(owners, kind="stable")
    points, owners = points[order], owners[order]
    numbers, first, count = np.unique(owners, return_index=True, return_counts=True)
    pieces, kept, on_wall = [], [], []
    for i, begin, size in zip(numbers.tolist(), first.tolist(), count.tolist(), strict=True):
        if size < d:
            continue  # the level meets the polygon in a corner
        mine = points[begin : begin + size]
        pieces.append(mine[:1] if d == 1 else _ends(mine))
        kept.append(i)
        on_wall.append(not (above[i] and below[i]))
    return pieces, kept, on_wall


def _ends(points: Array) -> Array:
    """The two of some points on a line that lie farthest apart."""
    if len(points) == 2:
        return points
    steps = points[:, None] - points[None]
    gaps = np.linalg.norm(steps / (np.abs(steps).max() or 1.0), axis=2)
    return points[list(np.unravel_index(gaps.argmax(), gaps.shape))]


def _sections(
    found: Regions, forms: _Forms, level: float, output: int
) -> tuple[list[Array], list[int], list[bool]]:
    """Polygons in cells of three inputs, of those cells the level can meet in one."""
    from relunorm.regions.kernels.corners import box_corners, clip_all, section

    window = found.geometry.window
    start = box_corners(window.lo, window.hi)
    pieces, owners, on_wall = [], [], []
    for i in _met(found, forms, level, output).tolist():
        rows, rhs, _ = found.geometry.rows(found.pattern(i))
        corners, walls = clip_all(*start, rows, rhs, 1e-13)
        inputs = window.points(corners)
        value, sign = forms.at(inputs, np.full(len(inputs), i))
        above, below = bool((sign > 0).any()), bool((sign < 0).any())
        if not (above or below):
            continue  # a plateau
        cut = section(inputs, walls, value, float(forms.band[i]))
        if len(cut) >= 3:
            pieces.append(_around(cut, forms.gradient[i]))
            owners.append(i)
            on_wall.append(not (above and below))
    return pieces, owners, on_wall


def _met(found: Regions, forms: _Forms, level: float, output: int) -> Numbers:
    """Regions the level cuts (a further unit f - level would), or has a wall in common with."""
    split = regions(_with_level_unit(found.network, level, output), found.domain)
    bits = split.patterns
    base = found.find(bits[:, :-1])
    cut = np.intersect1d(base[bits[:, -1]], base[~bits[:, -1]])
    return np.union1d(cut[cut >= 0], np.flatnonzero(_has_level_wall(found, forms)))


def _with_level_unit(network: Network, level: float, output: int) -> Network:
    """The network with one more hidden unit, f[output] - level, in a layer of its own."""
    only = _only(network, output).output
    unit = Layer(Affine(only.terms, only.bias - level))
    last = Affine({len(network.layers) + 1: np.ones((1, 1))}, np.zeros(1))
    return network.replace(layers=[*network.layers, unit], output=last)


def _has_level_wall(found: Regions, forms: _Forms) -> NDArray[np.bool_]:
    """Whether f - level is a multiple of the form behind a wall (to 1e-8: a first selection)."""
    window, network = found.geometry.window, found.network
    mine = _unit_planes(forms.gradient @ window.embedding,
                        forms.gradient @ window.offset + forms.constant)  # fmt: skip
    rows, rhs, _ = found.geometry.domain_rows
    near = _parallel(mine, _unit_planes(rows, -rhs)[None])
    begin = 0
    for k, layer in enumerate(network.layers):
        part = network.replace(layers=network.layers[:k], output=layer.affine)
        step = max(1, 2**16 // max(layer.width, 1))
        for a in range(0, len(found), step):
            some = slice(a, a + step)
            G, g = affine_maps(part, found.patterns[some, :begin])
            planes = _unit_planes(G @ window.embedding, G @ window.offset + g)
            near[some] |= _parallel(mine[some], planes)
        begin += layer.width
    return near


def _unit_planes(gradient: Array, constant: Array) -> Array:
    """Affine forms scaled to unit gradient, the constant last; NaN for constant forms."""
    length = lengths(gradient.reshape(-1, gradient.shape[-1])).reshape(constant.shape)
    length = np.where(length > 0, length, np.nan)
    return np.concatenate([gradient, constant[..., None]], axis=-1) / length[..., None]


def _parallel(mine: Array, planes: Array) -> NDArray[np.bool_]:
    gap = np.minimum(
        np.abs(planes - mine[:, None]).max(axis=2), np.abs(planes + mine[:, None]).max(axis=2)
    )
    return (gap < 1e-8).any(axis=1)


def _around(points: Array, normal: Array) -> Array:
    """Corners of a planar convex polygon in order, counter-clockwise seen against the normal."""
    centre = points.mean(axis=0)
    first = np.eye(3)[np.argmin(np.abs(normal))]
    unit = normal / lengths(normal[None])
    u = np.cross(unit, first)
    u /= np.linalg.norm(u)
    w = np.cross(unit, u)
    angle = np.arctan2((points - centre) @ w, (points - centre) @ u)
    return points[np.argsort(angle)]


def _first_of_each(found: Regions, pieces: list[Array], on_wall: list[bool]) -> list[int]:
    """The pieces to keep: those with extent, and of a wall's two copies the first."""
    if not pieces:
        return []
    half = found.geometry.window.embedding.diagonal()
    spread = np.array([float((np.ptp(p, axis=0) / half).max()) for p in pieces])
    keep = (spread > 1e-12) | (found.network.input_size == 1)
    walls = np.flatnonzero(np.array(on_wall) & keep)
    middle = np.array([pieces[k].mean(axis=0) for k in walls]).reshape(len(walls), len(half))
    keep[walls[repeated(middle / half)]] = False
    return np.flatnonzero(keep).tolist()


def repeated(points: Array) -> Numbers:
    """Numbers of the points that an earlier one is closer to than `SAME`."""
    from scipy.spatial import KDTree

    if len(points) < 2:
        return np.zeros(0, np.int64)
    pairs = KDTree(points).query_pairs(SAME, output_type="ndarray")
    return np.unique(pairs.max(axis=1)) if len(pairs) else np.zeros(0, np.int64)
