"""Seed 003, "Deep Representation with ReLU Neural Networks" (Heinecke, Hwang): figures 1 and 2, the
examples, and what the text says of density and of frames on the way."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, empty_figure
from relunorm.regions.partition import Regions

if TYPE_CHECKING:
    from relunorm.papers.pieces import Pieces

claim, exhibit = words_of("pieces")

Array = NDArray[np.float64]
#: A network as in figure 1 whose second layer cuts three of the four polygons of the first.
FIGURE1 = Network.from_weights(
    [[[1.0, 0.3], [-0.4, 1.0]], [[1.0, 1.0]], [[1.0]]], [[0.1, 0.0], [-0.6], [0.0]]
)
#: Networks as in figure 2: with biases, and the same without.
_WEIGHTS = [[[1.0, 0.3], [-0.4, 1.0]], [[1.0, -1.2], [0.7, 1.0]], np.eye(2)]
FIGURE2 = Network.from_weights(_WEIGHTS, [[0.1, 0.0], [-0.3, -0.7], [0.0, 0.0]])
CONES = Network.from_weights(_WEIGHTS)


#: The configurations that Example 2 lists.
SEVEN = {(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)}


def figures12(world: Pieces) -> Exhibit:
    """All regions of three networks of two inputs like those drawn, and of 20 random networks of
    each kind: how the second layer cuts the polygons of the first."""
    rng, count = world.rng, world.size(20, 100, 5)
    panels = {"figure 1": FIGURE1, "figure 2, left": FIGURE2, "figure 2, right": CONES}
    kinds = (((2, 2, 1, 1), 0.5), ((2, 2, 2, 2), 0.5), ((2, 2, 2, 2), 0.0))
    x = rng.normal(size=(200, 2))
    rows: list[Any] = []
    tilings: list[list[Tiling]] = []
    for (name, drawn), (widths, bias) in zip(panels.items(), kinds, strict=True):
        nets = [drawn, *(world.network(rng, widths, bias) for _ in range(count))]
        tilings.append([_tiling(world, net, x) for net in nets])
        found = tilings[-1][0]
        rows.append((name, *(getattr(found, column) for column in TILING)))
    one, left, right = tilings
    four = all(tiling.polygons == 4 and tiling.unbounded == 4 for tiling in one)
    once = all(tiling.zero_parts == 1 for tiling in one)
    claims = (
        claim(
            "Figure 1",
            (
                max(tiling.most_parts for tiling in one)
                if four and once and max(tiling.sine for tiling in one) < ROUNDING
                else math.inf
            ),
            count=count,
        ),
        claim("Figure 2, left", max(tiling.sine for tiling in left)),
        claim(
            "Figure 2, right",
            (
                max(tiling.cut for tiling in right)
                if right[0].cut == 1 and not any(tiling.leave for tiling in right)
                else math.inf
            ),
        ),
    )
    note = (
        "Solid: lines of the first layer. Dashed: where a unit of the second layer changes sign. "
        "Figure 2, right, has no biases."
    )
    columns = ("network", *(column.replace("_", " ") for column in TILING))
    return exhibit(
        world.settings(),
        "figures12",
        *claims,
        columns=columns,
        rows=rows,
        note=note,
        figure=_picture(world, panels),
    )


class Tiling(NamedTuple):
    """How the second layer cuts the polygons of the first.

    ``sine``: the largest one of the angle between the second layer's lines in a polygon with one
    unit on and that unit's line. ``leave``: points whose multiples lie in another region.
    """

    polygons: int
    unbounded: int
    regions: int
    most_parts: int
    zero_parts: int
    cut: int
    sine: float
    leave: int


TILING = Tiling._fields


def examples(world: Pieces) -> Exhibit:
    """20 networks whose first map is 0; patterns of ten random networks at 2,000 points, all 16
    configurations of Example 1; labels of five networks; all regions of 40 networks as in Example
    2; and three networks of five units without biases."""
    rng = world.rng
    nets = [world.network(rng, (2, 2, 1, 1)) for _ in range(world.size(40, 200, 25))]
    counts, lifted, others = [], 0, 0
    listed = True
    for net in nets:
        found = world.regions(net, None)
        patterns = {tuple(map(int, bits)) for bits in found.patterns}
        b2 = float(np.asarray(net.weights()[1][1])[0])
        counts.append(len(found))
        lifted += (0, 0, 1) in patterns
        others += {bits for bits in patterns if bits[:2] == (0, 0)} != {(0, 0, int(b2 > 0))}
        listed &= len(found) < 7 or b2 > 0 or patterns == SEVEN
    wrong_printed, wrong = _first_layer_labels(world, nets[:5], rng.normal(size=(40, 2)))
    on, elsewhere = _zero_first_map(world)
    closed, interior, sampled = np.transpose([_closed_definition(world, rng) for _ in range(3)])
    return exhibit(
        world.settings(),
        "examples",
        claim("Section 3.1: M1 = 0 has the zero configuration only", on, elsewhere),
        claim("Example 1", _example1(world)),
        claim("Example 2, regions of the first layer", wrong_printed, wrong),
        claim("Example 2, zero configuration", lifted, others, nets=len(nets)),
        claim("Example 2, number of regions", max(counts) if listed else math.inf),
        claim(
            "ours: configurations need an interior",
            int(np.abs(interior - sampled).max()) if closed.min() == 32 else math.nan,
            interior=", ".join(map(str, interior)),
            closed=closed.min(),
        ),
    )


def _zero_first_map(world: Pieces) -> tuple[int, int]:
    """Units that are on at a point, at most, and points with another pattern than the biases give,
    of networks whose first map is 0: one with b2 = 0.5, and random ones."""
    rng = world.rng
    nets = [Network.from_weights([np.zeros((2, 2)), [[1.0, 1.0]], [[1.0]]], [[0, 0], [0.5], [0]])]
    for _ in range(20):
        weights, biases = world.network(rng, (2, 2, 3, 2, 1)).weights()
        flat = [np.zeros((2, 2)), *weights[1:]], [np.zeros(2), *biases[1:]]
        nets.append(Network.from_weights(*flat))
    on = others = 0
    for net in nets:
        value, wanted = np.zeros(2), []
        for w, b in zip(*(part[1:] for part in net.weights()), strict=True):
            wanted.append(value > 0)
            value = np.maximum(np.asarray(w) @ (value * wanted[-1]) + np.asarray(b), 0.0)
        found = world.pattern(net, rng.normal(size=(100, 2)))
        on = max(on, int(found.sum(axis=1).max()))
        others += int((found != np.concatenate(wanted)).any(axis=1).sum())
    return on, others


def _tiling(world: Pieces, net: Network, x: Array) -> Tiling:
    found = world.regions(net, None)
    first, (coarse, parents) = np.asarray(net.weights()[0][0]), found.layer(1)
    counts = np.bincount(parents, minlength=len(coarse))
    sines = []
    for bits, lines in zip(coarse.patterns, coarse.affine()[0], strict=True):
        if bits.sum() == 1:
            row = first[int(bits.argmax())]
            areas = lines[:, 0] * row[1] - lines[:, 1] * row[0]
            sizes = np.linalg.norm(lines, axis=1) * np.linalg.norm(row)
            sines += list(np.abs(areas) / sizes)
    return Tiling(
        len(coarse),
        sum(not coarse.is_bounded(i) for i in range(len(coarse))),
        len(found),
        int(counts.max()),
        int(counts[~coarse.patterns.any(axis=1)].sum()),
        int((counts > 1).sum()),
        max(sines),
        leave(found, x),
    )


def leave(found: Regions, x: Array) -> int:
    """Points whose positive multiples lie in another region, or in none."""
    at = found.locate(x)
    moved = at < 0
    for s in (0.01, 0.5, 3.0, 100.0):
        moved |= found.locate(s * x) != at
    return int(moved.sum())


def _example1(world: Pieces) -> float:
    """Points whose pattern is a configuration against the printed inequalities, both ways, or where
    the network is not the printed product; NaN if no point has [0, 1, 1, 0]."""
    rng, wrong, seen = world.rng, 0, 0
    for _ in range(10):
        net, x = world.network(rng, (2, 2, 2, 1)), rng.normal(size=(2000, 2))
        (m1, m2, m3), (b1, b2, b3) = (list(map(np.asarray, part)) for part in net.weights())
        found, values = world.pattern(net, x), net(x)
        for theta in itertools.product((0, 1), repeat=4):
            z1 = x @ m1.T + b1
            z2 = (z1 * theta[:2]) @ m2.T + b2
            y = (z2 * theta[2:]) @ m3.T + b3
            inside = ((np.hstack([z1, z2]) > 0) == np.array(theta, dtype=bool)).all(axis=1)
            off = np.abs(y - values).max(axis=1) > ROUNDING
            wrong += int((inside != (found == theta).all(axis=1)).sum() + (off & inside).sum())
            seen += int(inside.sum()) if theta == (0, 1, 1, 0) else 0
    return float(wrong) if seen else math.nan


def _first_layer_labels(world: Pieces, nets: list[Network], x: Array) -> tuple[float, float]:
    """Share of points in the printed, and in the corrected, regions with another pattern."""
    misses: tuple[list[Any], list[Any]] = ([], [])
    for net in nets:
        one, two = (net.preactivations(x)[0] > 0).T
        bits = np.array([world.region_at(net, p).configuration[0] for p in x])
        printed = {(True, False): one & two, (False, True): one & ~two}
        corrected = {
            (False, False): ~one & ~two,
            (True, False): one & ~two,
            (False, True): ~one & two,
            (True, True): one & two,
        }
        for kept, sets in zip(misses, (printed, corrected), strict=True):
            kept += [(bits[where] != pattern).any(axis=1) for pattern, where in sets.items()]
    first, second = (float(np.concatenate(kept).mean()) for kept in misses)
    return first, second


def _closed_definition(world: Pieces, rng: np.random.Generator) -> tuple[int, int, int]:
    """Patterns whose closed polytope holds 0, regions with interior, patterns points have."""
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


def _picture(world: Pieces, panels: dict[str, Network]) -> Any:
    if world.tiny:
        return None
    figure, axes = empty_figure((12.6, 4.2), 1, 3)
    for ax, (name, net) in zip(axes, panels.items(), strict=True):
        found = world.regions(net, None)
        _draw(world, ax, net, f"{name}: {len(found.layer(1)[0])} polygons, then {len(found)}")
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


#: Slopes of the networks that approximate the indicator of [0, 1].
SLOPES = tuple(10.0**k for k in range(1, 7))


def background(world: Pieces) -> Exhibit:
    """Networks of four units that approximate the indicator of [0, 1], with slopes 10 to 1e6: their
    errors in L^1, L^2 and L^4 by quadrature and beside the jumps; and 20 tight frames of five
    vectors in three dimensions with bounds A = B between 0.2 and 3."""
    networks = [world.indicator(slope) for slope in SLOPES]
    beside = min(_error_beside_jumps(net) for net in networks)
    off = max(
        abs(_error(net, slope, p) / _classical(slope, p) - 1)
        for net, slope in zip(networks, SLOPES, strict=True)
        for p in (1, 2, 4)
    )
    falls = max(_classical(SLOPES[-1], p) / _classical(SLOPES[0], p) for p in (1, 2, 4))
    same, divided = _reconstructions(world)
    return exhibit(
        world.settings(),
        "background",
        claim("Introduction: dense in L^p", beside, off if falls < 0.1 else math.nan, falls=falls),
        claim("Section 2: the dual of a tight frame", same, divided),
    )


def _error_beside_jumps(net: Network) -> float:
    """The largest difference from the indicator of [0, 1] just left and right of 0 and of 1."""
    step = 1e-13
    x = np.array([[-step], [step], [1 - step], [1 + step]])
    return float(np.abs(net(x)[:, 0] - [0.0, 1.0, 1.0, 0.0]).max())


def _error(net: Network, slope: float, p: int) -> float:
    """The error in L^p: Gauss and Legendre on the four ramps, and the largest value elsewhere."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    ramp = 0.5 / slope
    total = 0.0
    for low, value in ((-ramp, 0.0), (0.0, 1.0), (1 - ramp, 1.0), (1.0, 0.0)):
        x = low + ramp * (nodes + 1) / 2
        total += ramp / 2 * float(weights @ np.abs(net(x[:, None])[:, 0] - value) ** p)
    x = np.array([-1.0, -2 * ramp, 2 * ramp, 0.5, 1 - 2 * ramp, 1 + 2 * ramp, 2.0])
    rest = np.abs(net(x[:, None])[:, 0] - ((x > 0) & (x < 1))).max()
    return math.inf if rest > 1e-6 else total ** (1 / p)


def _classical(slope: float, p: int) -> float:
    """The error of two ramps of this slope in L^p: 2 times the integral of (slope t)^p twice."""
    return float((2 * 2**-p / (slope * (p + 1))) ** (1 / p))


def _reconstructions(world: Pieces) -> tuple[float, float]:
    """How far F F* y, and F F* y / A^2, are from y, for tight frames; NaN unless (1) is met with
    equality."""
    rng, gaps = world.rng, []
    for bound in np.geomspace(0.2, 3.0, 20):
        F = world.tight_frame(rng, float(bound))
        y: NDArray[np.float64] = rng.normal(size=(3, 50))
        sizes = np.linalg.norm(F.T @ y, axis=0) / np.linalg.norm(y, axis=0)
        met = 1.0 if np.ptp(sizes) <= ROUNDING else math.nan
        back = F @ F.T @ y
        pair = [np.linalg.norm(v - y, axis=0) for v in (back, back / sizes.mean() ** 2)]
        gaps.append([met * float((gap / np.linalg.norm(y, axis=0)).max()) for gap in pair])
    same, divided = np.array(gaps).max(axis=0)
    return float(same), float(divided)
