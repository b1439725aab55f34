"""Seed 003, Proposition 3 and Corollary 4: the pieces."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit
from relunorm.papers.pieces.examples import leave
from relunorm.regions.partition import Regions
from relunorm.regions.views.plot import plot_refinement

if TYPE_CHECKING:
    from relunorm.papers.pieces import Pieces

claim, exhibit = words_of("pieces")

Array = NDArray[np.float64]


def partition(world: Pieces) -> Exhibit:
    """All regions in a square of a random network of three hidden layers, layer by layer, with
    their maps, volumes, edges and neighbours; and of the same network without biases."""
    rng = world.rng
    box = Box.cube(2, -2, 2)
    net = world.network(rng, world.size((2, 8, 8, 6, 1), (2, 12, 12, 8, 1), (2, 7, 7, 5, 1)))
    found = world.regions(net, box)
    depth = len(net.layers)
    x = box.sample(world.size(20_000, 20_000, 2000), 0)
    errors = [_layer_errors(world, net, found, k) for k in range(1, depth)]
    maps, volumes, printed = (max(column) for column in zip(*errors, strict=True))
    strays = sum(_strays(found, k, x[:1000]) for k in range(1, depth + 1))
    at = found.locate(x)
    A, c = found.affine()
    gap = np.abs(np.einsum("nod,nd->no", A[at], x) + c[at] - net(x)).max()
    doubled = len(found) - len(np.unique(found.patterns, axis=0)) + int((at < 0).sum())
    cones = Network.from_weights(net.weights()[0])
    conic = world.regions(cones, None)
    leave, not_linear = _cones(cones, conic, x)
    one_bit, touching, mistaken = _one_bit(found)
    jump, edges = _jumps(found)
    not_empty, open_ = _surplus(world, rng)
    return exhibit(
        world.settings(),
        "partition",
        claim("Proposition 3 (i)", maps),
        claim("Proposition 3 (ii)", volumes if strays == 0 else math.inf),
        claim("Proposition 3, index of Theta", printed, maps),
        claim("footnote 1: pieces agree on their boundaries", jump, edges=edges),
        claim(
            "Corollary 4 (i)",
            not_empty,
            open_ if doubled == 0 and gap <= ROUNDING else math.inf,
            x=len(x),
        ),
        claim(
            "Corollary 4 (ii)",
            leave if not_linear <= ROUNDING else math.inf,
            x=len(x),
            conic=len(conic),
        ),
        claim(
            "ours: one bit apart is not adjacent", one_bit - touching if mistaken == 0 else math.nan
        ),
        note=f"The network {net.widths} has {len(found)} regions in [-2, 2]^2.",
        figure=None if world.tiny else plot_refinement(found),
    )


def _cones(net: Network, found: Regions, x: Array) -> tuple[int, float]:
    """Points that leave their cone; and the largest constant of a region's map, or distance of the
    network from the map's linear part."""
    at = found.locate(x)
    A, c = found.affine()
    gap = np.abs(np.einsum("nod,nd->no", A[at], x) - net(x)).max()
    return leave(found, x), float(max(np.abs(c).max(), gap))


def _surplus(world: Pieces, rng: np.random.Generator) -> tuple[int, int]:
    """By how much the patterns whose polytope with (9) is not empty exceed the polytopes, and those
    with an interior exceed or miss them, at most; networks of five units with biases, and without
    until the tip {0} is a polytope of its own (20 networks at most)."""
    not_empty = with_interior = 0
    for k in range(world.size(3, 20, 1) + 20):
        bias = 0.5 if k < world.size(3, 20, 1) else 0.0
        net = world.network(rng, (2, 3, 2, 1), bias)
        (m1, m2, _), (b1, b2, _) = (list(map(np.asarray, part)) for part in net.weights())
        count, some, thick = len(world.regions(net, None)), 0, 0
        for bits in itertools.product((0.0, 1.0), repeat=5):
            on, signs = np.diag(bits[:3]), 2 * np.array(bits) - 1
            rows = signs[:, None] * np.vstack([m1, m2 @ on @ m1])
            shifts = signs * np.r_[b1, m2 @ on @ b1 + b2]
            if _margin(rows, shifts, signs > 0) <= 0:  # (9): a unit at 0 is off
                continue  # empty, and so without an interior
            some += 1
            zero = ~rows.any(axis=1) & (shifts == 0) & (signs < 0)
            thick += _margin(rows[~zero], shifts[~zero]) > 0
        not_empty = max(not_empty, some - count)
        with_interior = max(with_interior, abs(thick - count))
        if bias == 0 and some > thick:
            break
    return not_empty, with_interior


def _margin(rows: Array, shifts: Array, strict: NDArray[np.bool_] | bool = True) -> float:
    """The largest t <= 1 with rows x + shifts >= t for some x, in the rows that are not strict >= 0
    alone; 0 if it is rounding, -inf if no x meets these."""
    from relunorm.bounds.layers.highs import maximization

    size = rows.shape[1]
    free, below = np.full(size, np.inf), np.full(len(rows), -np.inf)
    columns = np.append(-free, -np.inf), np.append(free, 1.0)
    matrix = np.c_[-rows, strict * np.ones(len(rows))]
    solver = maximization(columns, matrix, (below, shifts))
    solver.changeColCost(size, 1.0)
    solver.run()
    if solver.modelStatusToString(solver.getModelStatus()) == "Infeasible":
        return -math.inf
    best = float(solver.getObjectiveValue())
    return best if abs(best) > 1e-7 else 0.0


def _layer_errors(
    world: Pieces, net: Network, found: Regions, k: int
) -> tuple[float, float, float]:
    """Errors of Prop. 3 after k layers: the map, as a product of matrices and as the package has
    it, the volumes, and the map by the printed index."""
    coarse, parents = found.layer(k)
    x, wanted = found.points, net.preactivations(found.points)[k]
    cuts = np.cumsum(net.widths[1:k])
    pairs = [world.product(coarse.network, np.split(bits, cuts)) for bits in coarse.patterns]
    products, constants = (np.array(part) for part in zip(*pairs, strict=True))
    A, c = coarse.affine()
    values = np.einsum("nod,nd->no", products[parents], x) + constants[parents]
    maps = max(np.abs(gap).max() for gap in (values - wanted, A - products, c - constants))
    inner = np.bincount(parents, weights=found.volume())
    volumes = max(np.abs(inner - coarse.volume()).max(), abs(coarse.volume().sum() - 16))
    # As printed: one map for all regions that agree on the first k - 1 layers.
    _, above = found.layer(k - 1)
    _, first = np.unique(above, return_index=True)
    chosen = parents[first][above]
    printed = np.abs(np.einsum("nod,nd->no", A[chosen], x) + c[chosen] - wanted).max()
    return float(maps), float(volumes), float(printed)


def _strays(found: Regions, k: int, x: Array) -> int:
    """Points that are not in exactly one region of k layers, and corners of such regions outside
    the region of k - 1 layers that they belong to."""
    fine, _ = found.layer(k)
    coarse, parents = fine.layer(k - 1)
    cells = [fine.polytope(i) for i in range(len(fine))]
    times, near = (np.sum([c.contains(x, t) for c in cells], axis=0) for t in (-1e-9, 1e-9))
    stray = int(((times > 1) | (near < 1)).sum())
    for i, parent in enumerate(parents):
        stray += int((~coarse.polytope(int(parent)).contains(fine.vertices(i), 1e-7)).sum())
    return stray


def _jumps(found: Regions) -> tuple[float, int]:
    """The largest difference of the maps on both sides of an edge, at its ends, and the number of
    inner edges, each seen from both sides."""
    starts, ends, own = [], [], []
    for i in range(len(found)):
        corners = found.vertices(i)
        starts.append(corners)
        ends.append(np.roll(corners, -1, axis=0))
        own += [i] * len(corners)
    a, b, here = np.vstack(starts), np.vstack(ends), np.array(own)
    middle, along = (a + b) / 2, b - a
    long = np.linalg.norm(along, axis=1) > 1e-6
    a, b, middle, along = (v[long] for v in (a, b, middle, along))
    here = here[long]
    normal = np.column_stack([along[:, 1], -along[:, 0]])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    normal *= np.sign(((middle - found.points[here]) * normal).sum(axis=1, keepdims=True))
    there = found.locate(middle + 1e-8 * normal)
    inner = (there >= 0) & (there != here)
    A, c = found.affine()
    A, c = (part[here[inner]] - part[there[inner]] for part in (A, c))
    gaps = [np.einsum("nod,nd->no", A, end[inner]) + c for end in (a, b)]
    return float(max(np.abs(gap).max(initial=0.0) for gap in gaps)), int(inner.sum())


def _one_bit(found: Regions) -> tuple[int, int, int]:
    """Pairs one bit apart, those of them that touch, and touching pairs further apart."""
    bits = found.patterns.astype(np.int16)
    apart = (bits[:, None] != bits[None]).sum(axis=2)
    touching = found.adjacency().toarray().astype(bool)
    close = apart == 1
    upper = np.triu(np.ones_like(close), 1)
    return (
        int((close & upper).sum()),
        int((close & touching & upper).sum()),
        int((touching & ~close & upper).sum()),
    )
