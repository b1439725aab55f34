"""Seed 003, "Deep Representation with ReLU Neural Networks" (Heinecke, Hwang), re-run: the pieces.

Figures 1 and 2, the examples, Proposition 3 and Corollary 4. Theorems 5 and 6 and equations (10) to
(12) live in `relunorm.papers.pieces.maps`, (13) to (15) in `relunorm.papers.pieces.gradients`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, costs, empty_figure, from_claims
from relunorm.papers.pieces.laws import ROUNDING, Pieces
from relunorm.regions.result import Regions

Array = NDArray[np.float64]
#: A network as in figure 1 whose second layer cuts three of the four polygons of the first.
FIGURE1 = Network.from_weights(
    [[[1.0, 0.3], [-0.4, 1.0]], [[1.0, 1.0]], [[1.0]]], [[0.1, 0.0], [-0.6], [0.0]]
)
#: Networks as in figure 2: with biases, and the same without.
_WEIGHTS = [[[1.0, 0.3], [-0.4, 1.0]], [[1.0, -1.2], [0.7, 1.0]], np.eye(2)]
FIGURE2 = Network.from_weights(_WEIGHTS, [[0.1, 0.0], [-0.3, -0.7], [0.0, 0.0]])
CONES = Network.from_weights(_WEIGHTS)


def figures12(world: Pieces) -> Exhibit:
    """All regions of three networks of two inputs like those drawn: how the second layer cuts the
    polygons of the first."""
    panels = {
        "figure 1": FIGURE1,
        "figure 2, left": FIGURE2,
        "figure 2, right": CONES,
    }
    rows = []
    for name, net in panels.items():
        found = world.regions(net, None)
        parts = _parts(found)
        rows.append((name, len(parts), len(found), *_summary(net, found, parts)))
    columns = (
        "network", "after layer 1", "after layer 2", "most parts of a polygon",
        "parts of the zero polygon", "polygons cut", "parallel within",
    )  # fmt: skip
    found = Exhibit("figures12", "Figures 1 and 2: polygon tilings", columns, tuple(rows))
    one, left, right = panels
    layer1 = found.column("after layer 1") == [4, 4, 4]
    once = found.value("parts of the zero polygon", network=one) == 1
    claims = (
        Claim(
            "Figure 1",
            "four polygons; the second layer cuts each at most once, parallel to the first layer "
            "where one unit is on, and never the zero polygon",
            Check(
                "most parts of a polygon",
                found.value("most parts of a polygon", network=one)
                if layer1 and once and found.value("parallel within", network=one) < ROUNDING
                else math.inf,
                "=",
                2,
            ),
        ),
        Claim(
            "Figure 2, left",
            "where one unit is on, the second layer's lines are parallel to the first's",
            Check(
                "largest sine of the angle between them",
                found.value("parallel within", network=left),
                "<=",
                ROUNDING,
            ),
        ),
        Claim(
            "Figure 2, right",
            "without biases the tiling is into cones, only one of which the second layer cuts",
            Check("polygons cut", found.value("polygons cut", network=right), "=", 1),
        ),
    )
    note = (
        "Solid: lines of the first layer. Dashed: where a unit of the second layer changes sign. "
        "Figure 2, right, has no biases."
    )
    return Exhibit(
        found.name, found.title, columns, found.rows, note, _picture(world, panels), {}, claims
    )


def examples(world: Pieces) -> Exhibit:
    """Patterns of random networks at 20,000 points; all regions of 40 networks as in Example 2; a
    network with b2 = 0.5, and one of five units without biases."""
    rng = world.rng
    x = rng.normal(size=(world.size(20_000, 20_000, 3000), 2))
    counts, lifted = [], []
    for _ in range(world.size(40, 200, 25)):
        net = world.network(rng, (2, 2, 1, 1))
        found = world.regions(net, None)
        counts.append(len(found))
        lifted.append(int((found.patterns == [False, False, True]).all(axis=1).sum()))
    lift = Network.from_weights([np.eye(2), [[1.0, 1.0]], [[1.0]]], [[0, 0], [0.5], [0]])
    z = lift.preactivations(np.array([[-1.0, -1.0]]))[1].item()
    wrong_printed, wrong = _first_layer_labels(world, FIGURE1, x)
    on, others = _zero_first_map(world)
    closed, interior, sampled = _closed_definition(world)
    return from_claims(
        "examples",
        "Examples 1 and 2: configurations and their regions",
        (
            Claim(
                "Section 3.1: M1 = 0 has the zero configuration only",
                "if M1 = 0 every theta_k is the zero vector",
                Check("units on with M1 = 0 and b2 = 0.5", on, "=", 0),
                "with (9) there is one configuration, and its later layers follow the biases: "
                "[0, 0, 1]",
                Check("points of 100 with another configuration than [0, 0, 1]", others, "=", 0),
            ),
            Claim(
                "Example 1",
                "the polytope of [0, 1, 1, 0] is cut out by the four printed inequalities",
                Check("points on the wrong side", _example1(world, x), "=", 0),
            ),
            Claim(
                "Example 2, regions of the first layer",
                "(1, 0) is where both entries are positive, (0, 1) where the first alone is",
                Check("share of points there with another pattern", wrong_printed, "<=", 0),
                "(1, 0): first positive, second not; (0, 1): second positive, first not",
                Check("share of points there with another pattern", wrong, "<=", 0),
            ),
            Claim(
                "Example 2, zero configuration",
                "M2 diag(0) M1 = 0, so (0, 0) is followed by 0 only",
                Check("random networks with [0, 0, 1]", sum(lifted), "=", 0),
                "it is b2: with b2 > 0 the configuration is [0, 0, 1]",
                Check("M2 diag(0) M1 x with b2 = 0.5", z, "=", 0.5),
            ),
            Claim(
                "Example 2, number of regions",
                "up to 7 regions",
                Check("most regions of a random network", max(counts), "=", 7),
            ),
            Claim(
                "ours: configurations need an interior",
                "(in no paper) without biases every pattern of five units has a closed polytope "
                "that is not empty, and only those of points have one with an interior",
                Check(
                    f"regions with an interior (of {closed} patterns)",
                    interior if closed == 32 else math.nan,
                    "=",
                    sampled,
                ),
            ),
        ),
        settings=world.settings(),
    )


@costs(3)
def partition(world: Pieces) -> Exhibit:
    """All regions in a square of a random network of three hidden layers, layer by layer, with
    their maps, volumes, edges and neighbours; and of the same network without biases."""
    rng = world.rng
    box = Box.cube(2, -2, 2)
    net = world.network(rng, world.size((2, 8, 8, 6, 1), (2, 12, 12, 8, 1), (2, 7, 7, 5, 1)))
    found = world.regions(net, box)
    depth = len(net.layers)
    errors = [_layer_errors(net, found, k) for k in range(1, depth)]
    maps, volumes, printed = (max(column) for column in zip(*errors, strict=True))
    x = box.sample(world.size(20_000, 20_000, 2000), 0)
    at = found.locate(x)
    A, c = found.affine()
    gap = np.abs(np.einsum("nod,nd->no", A[at], x) + c[at] - net(x)).max()
    doubled = len(found) - len(np.unique(found.patterns, axis=0)) + int((at < 0).sum())
    cones = Network.from_weights(net.weights()[0])
    conic = world.regions(cones, None)
    leave, not_linear = _cones(cones, conic, x)
    one_bit, touching, mistaken = _one_bit(found)
    jump, edges = _jumps(found)
    closed, open_ = _surplus(world, rng)
    return from_claims(
        "partition",
        "Proposition 3 and Corollary 4: partitions that refine",
        (
            Claim(
                "Proposition 3 (i)",
                "on a region of the first k layers the next pre-activation is the affine map",
                Check("largest difference", maps, "<=", ROUNDING),
            ),
            Claim(
                "Proposition 3 (ii)",
                "the regions of k + 1 layers partition space and refine those of k",
                Check("largest difference of volumes", volumes, "<=", 1e-8),
            ),
            Claim(
                "Proposition 3, index of Theta",
                "Theta_k is the set of configurations of M_k",
                Check("how far M_(k+1) is from affine on their regions", printed, "<=", ROUNDING),
                "of M_(k+1), as the text before says",
                Check("how far from affine then", maps, "<=", ROUNDING),
            ),
            Claim(
                "footnote 1: pieces agree on their boundaries",
                "the affine maps of two neighbours coincide on the boundary between them",
                Check(f"largest difference on {edges:,} edges", jump, "<=", ROUNDING),
            ),
            Claim(
                "Corollary 4 (i)",
                "a partition into convex polytopes, affine on each, as many as configurations: "
                "patterns whose closed polytope is not empty",
                Check("configurations more than polytopes, five units, at most", closed, "=", 0),
                "patterns whose polytope has an interior",
                Check(
                    "largest difference, with and without biases (affine within 1e-10 at "
                    f"{len(x):,} points)",
                    open_ if doubled == 0 and gap <= ROUNDING else math.inf,
                    "=",
                    0,
                ),
            ),
            Claim(
                "Corollary 4 (ii)",
                "without biases the regions are cones and the map is linear on each",
                Check(
                    f"points of {len(x):,} that leave their region (of {len(conic)}) when "
                    "multiplied by 0.01 to 100 (largest constant of a map, and distance from it, "
                    "within 1e-10)",
                    leave if not_linear <= ROUNDING else math.inf,
                    "=",
                    0,
                ),
            ),
            Claim(
                "ours: one bit apart is not adjacent",
                "(in no paper) later layers fold: neighbours differ in one bit, and patterns one "
                "bit apart need not be neighbours",
                Check(
                    "pairs one bit apart that do not touch (no neighbours differ in more)",
                    one_bit - touching if mistaken == 0 else math.nan,
                    ">",
                    0,
                ),
            ),
        ),
        note=f"The network {net.widths} has {len(found)} regions in [-2, 2]^2.",
        figure=None if world.tiny else _refinement(found),
        settings=world.settings(),
    )


def _cones(net: Network, found: Regions, x: Array) -> tuple[int, float]:
    """Points whose positive multiples lie in another region, or in none; and the largest constant
    of a region's map, or distance of the network from the map's linear part."""
    at = found.locate(x)
    moved = at < 0
    for s in (0.01, 0.5, 3.0, 100.0):
        moved |= found.locate(s * x) != at
    A, c = found.affine()
    gap = np.abs(np.einsum("nod,nd->no", A[at], x) - net(x)).max()
    return int(moved.sum()), float(max(np.abs(c).max(), gap))


def _zero_first_map(world: Pieces) -> tuple[int, int]:
    """Units that are on at a point, at most, and points without the pattern [0, 0, 1], of a network
    whose first map is 0 and whose b2 is 0.5."""
    net = Network.from_weights([np.zeros((2, 2)), [[1.0, 1.0]], [[1.0]]], [[0, 0], [0.5], [0]])
    found = world.pattern(net, world.rng.normal(size=(100, 2)))
    others = (found != [False, False, True]).any(axis=1)
    return int(found.sum(axis=1).max()), int(others.sum())


def _parts(found: Regions) -> dict[tuple[bool, ...], int]:
    """How many regions of the second layer lie in each polygon of the first."""
    coarse, parents = found.layer(1)
    counts = np.bincount(parents, minlength=len(coarse))
    return {tuple(map(bool, p)): int(n) for p, n in zip(coarse.patterns, counts, strict=True)}


def _summary(
    net: Network, found: Regions, parts: dict[tuple[bool, ...], int]
) -> tuple[int, int, int, float]:
    """(most parts, parts of the zero polygon, polygons cut, largest sine of the angle between the
    second layer's lines in a polygon with one unit on and that unit's line)."""
    first, coarse = np.asarray(net.weights()[0][0]), found.layer(1)[0]
    sines = []
    for bits, lines in zip(coarse.patterns, coarse.affine()[0], strict=True):
        if bits.sum() == 1:
            row = first[int(bits.argmax())]
            areas = lines[:, 0] * row[1] - lines[:, 1] * row[0]
            sizes = np.linalg.norm(lines, axis=1) * np.linalg.norm(row)
            sines += list(np.abs(areas) / sizes)
    cut = sum(n > 1 for n in parts.values())
    return max(parts.values()), parts.get((False, False), 0), cut, max(sines)


def _example1(world: Pieces, x: Array) -> int:
    """Points whose pattern is [0, 1, 1, 0] against the printed inequalities, both ways."""
    net = world.network(world.rng, (2, 2, 2, 1))
    (m1, m2, _), (b1, b2, _) = (list(map(np.asarray, part)) for part in net.weights())
    z1 = x @ m1.T + b1
    z2 = (z1 * [0, 1]) @ m2.T + b2
    inside = (z1[:, 0] <= 0) & (z1[:, 1] > 0) & (z2[:, 0] > 0) & (z2[:, 1] <= 0)
    return int((inside != (world.pattern(net, x) == [False, True, True, False]).all(axis=1)).sum())


def _first_layer_labels(world: Pieces, net: Network, x: Array) -> tuple[float, float]:
    """Share of points in the printed, and in the corrected, regions with another pattern."""
    z = net.preactivations(x)[0] > 0
    bits = np.array([world.region_at(net, p).configuration[0] for p in x[:200]])
    z = z[:200]
    printed = {(True, False): z[:, 0] & z[:, 1], (False, True): z[:, 0] & ~z[:, 1]}
    corrected = {(True, False): z[:, 0] & ~z[:, 1], (False, True): ~z[:, 0] & z[:, 1]}

    def wrong(sets: dict[tuple[bool, bool], Any]) -> float:
        misses = [(bits[where] != pattern).any(axis=1) for pattern, where in sets.items()]
        return float(np.concatenate(misses).mean())

    return wrong(printed), wrong(corrected)


def _closed_definition(world: Pieces) -> tuple[int, int, int]:
    """Patterns whose closed polytope holds 0, regions with interior, patterns points have."""
    rng = world.rng
    net = Network.from_weights([rng.normal(size=(3, 2)), rng.normal(size=(2, 3)), [[1.0, 1.0]]])
    first, second = (np.asarray(w) for w in net.weights()[0][:2])
    closed = 0
    for bits in itertools.product((0, 1), repeat=5):
        y1 = first @ np.zeros(2)
        y2 = second @ (np.array(bits[:3]) * y1)
        y, theta = np.concatenate([y1, y2]), np.array(bits)
        closed += bool((theta * y >= 0).all() and ((1 - theta) * y <= 0).all())
    sampled = np.unique(world.pattern(net, rng.normal(size=(50_000, 2))), axis=0)
    return closed, len(world.regions(net, None)), len(sampled)


def _surplus(world: Pieces, rng: np.random.Generator) -> tuple[int, int]:
    """By how much the patterns with a closed polytope, and those of (9) with an interior, exceed or
    miss the polytopes, at most, over networks of five units with and without biases."""
    closed = with_interior = 0
    for bias in (0.5,) * world.size(3, 20, 1) + (0.0,):
        net = world.network(rng, (2, 3, 2, 1), bias)
        (m1, m2, _), (b1, b2, _) = (list(map(np.asarray, part)) for part in net.weights())
        patterns = list(itertools.product((0.0, 1.0), repeat=5))
        count, empty, thick = len(world.regions(net, None)), 0, 0
        for bits in patterns:
            on, signs = np.diag(bits[:3]), 2 * np.array(bits) - 1
            rows = signs[:, None] * np.vstack([m1, m2 @ on @ m1])
            shifts = signs * np.r_[b1, m2 @ on @ b1 + b2]
            empty += _margin(rows, shifts) < -1e-9
            zero = ~rows.any(axis=1) & (shifts == 0)  # y = 0 everywhere: (9) takes d = 0
            thick += not signs[zero].max(initial=-1) > 0 and _margin(rows[~zero], shifts[~zero]) > 0
        closed = max(closed, len(patterns) - empty - count)
        with_interior = max(with_interior, abs(thick - count))
    return closed, with_interior


def _margin(rows: Array, shifts: Array) -> float:
    """The largest t <= 1 with rows x + shifts >= t for some x; 0 if it is rounding."""
    from scipy.optimize import linprog

    columns = np.c_[-rows, np.ones(len(rows))]
    bounds = [(None, None)] * rows.shape[1] + [(None, 1)]
    best: Any = linprog([0] * rows.shape[1] + [-1], columns, shifts, bounds=bounds)
    return -best.fun if abs(best.fun) > 1e-7 else 0.0


def _layer_errors(net: Network, found: Regions, k: int) -> tuple[float, float, float]:
    """Errors of Prop. 3 after k layers: the map, the volumes, and the map by the printed index."""
    coarse, parents = found.layer(k)
    x, wanted = found.points, net.preactivations(found.points)[k]
    A, c = coarse.affine()
    maps = np.abs(np.einsum("nod,nd->no", A[parents], x) + c[parents] - wanted).max()
    inner = np.bincount(parents, weights=found.volume())
    volumes = max(np.abs(inner - coarse.volume()).max(), abs(coarse.volume().sum() - 16))
    # As printed: one map for all regions that agree on the first k - 1 layers.
    _, above = found.layer(k - 1)
    _, first = np.unique(above, return_index=True)
    chosen = parents[first][above]
    printed = np.abs(np.einsum("nod,nd->no", A[chosen], x) + c[chosen] - wanted).max()
    return float(maps), float(volumes), float(printed)


def _jumps(found: Regions) -> tuple[float, int]:
    """The largest difference of the maps on both sides of an edge, at its middle, and the number of
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
    middle, along, here = middle[long], along[long], here[long]
    normal = np.column_stack([along[:, 1], -along[:, 0]])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    normal *= np.sign(((middle - found.points[here]) * normal).sum(axis=1, keepdims=True))
    there = found.locate(middle + 1e-8 * normal)
    inner = (there >= 0) & (there != here)
    middle, here, there = middle[inner], here[inner], there[inner]
    A, c = found.affine()
    sides = [np.einsum("nod,nd->no", A[k], middle) + c[k] for k in (here, there)]
    return float(np.abs(sides[0] - sides[1]).max(initial=0.0)), int(inner.sum())


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


def _refinement(found: Regions) -> Any:
    from relunorm.regions.views.plot import plot_refinement

    return plot_refinement(found)


def _picture(world: Pieces, panels: dict[str, Network]) -> Any:
    if world.tiny:
        return None
    figure, axes = empty_figure((12.6, 4.2), 1, 3)
    for ax, (name, net) in zip(axes, panels.items(), strict=True):
        found = world.regions(net, None)
        _draw(world, ax, net, f"{name}: {len(_parts(found))} polygons, then {len(found)}")
    return figure


def _draw(world: Pieces, ax: Any, net: Network, title: str) -> None:
    """The plane in the colours of the first layer's polygons, with the lines of both layers."""
    found = world.regions(net, Box.cube(2, -2, 2))
    coarse, parents = found.layer(1)
    for i in range(len(found)):
        corners = found.vertices(i)
        ax.fill(*corners.T, facecolor=f"C{parents[i]}", alpha=0.12 + 0.1 * (i % 2), lw=0)
    ticks = np.linspace(-2, 2, 401)
    mesh = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    for values in net.preactivations(mesh.reshape(-1, 2))[1].T:
        values = values.reshape(401, 401)
        ax.contour(ticks, ticks, values, [0.0], colors="black", linestyles="dashed", linewidths=1)
    for i in range(len(coarse)):
        corners = coarse.vertices(i)
        ax.plot(*np.vstack([corners, corners[:1]]).T, color="black", lw=1.8)
    for i in range(len(found)):
        text = "".join(str(int(bit)) for bit in found.pattern(i))
        ax.text(*found.vertices(i).mean(axis=0), text, ha="center", va="center", fontsize=8)
    ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xlabel="$x_1$", ylabel="$x_2$")
    ax.set_title(title, fontsize=10)
