"""`--style pieces` of two inputs: the affine pieces as the leaves of a tree of comparisons.

A node compares ``n . q >= t`` in integers and goes on to one of two others; a leaf holds

    y = start + slope . q ,

so that one evaluation costs two products a comparison and two an output, however wide the layers
are. Walls are rounded to integers, so near one the program may take the piece next door.

The bound replays without a solver. The real inputs that end in a leaf form a polygon, known
exactly from the integers on its path. Over it the network minus the leaf's map is bounded by
backward linear bounds: only units whose wall was rounded there are not settled, and by little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.domain import Box
from relunorm.domain.reach import Reach
from relunorm.embedded.arithmetic.integers import RANGES, size_of
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.embedded.c.c_file import CFile, Options, Tables, index_type, is_constant, table_of
from relunorm.embedded.pieces.one_input import Piecewise, numbers_from
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector
from relunorm.network import Network

Point = tuple[Fraction, Fraction]
#: Corners in order; none for the empty set.
Polygon = list[Point]


def rectangle(low: Sequence[Any], high: Sequence[Any]) -> Polygon:
    """The corners of a box with two sides."""
    (a, b), (c, d) = ([Fraction(v) for v in ends] for ends in (low, high))
    return [(a, b), (c, b), (c, d), (a, d)]


def clip(polygon: Polygon, normal: Sequence[int], offset: Fraction | int) -> Polygon:
    """The part with ``normal . p >= offset``, exactly (Sutherland and Hodgman, 1974)."""
    result: Polygon = []
    heights = [normal[0] * p[0] + normal[1] * p[1] - offset for p in polygon]
    for k, (p, h) in enumerate(zip(polygon, heights, strict=True)):
        q, other = polygon[k - 1], heights[k - 1]
        if (h >= 0) != (other >= 0):
            share = other / (other - h)
            result.append((q[0] + share * (p[0] - q[0]), q[1] + share * (p[1] - q[1])))
        if h >= 0:
            result.append(p)
    return list(dict.fromkeys(result))


@dataclass(frozen=True, eq=False)
class PolygonReach(Reach):
    """A polygon as the bounds see it: its corners, each rounded to the nearest floats."""

    corners: Array = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def operations(self) -> int:
        """Roundings in one value of `support_upper`, those of the corners included."""
        return 2 * self.size + 16

    def support_upper(self, rows: Any, multipliers: Any = None) -> tuple[Vector, Vector]:
        """max c.x over the corners for every row c, and the magnitude its error scales with."""
        del multipliers
        return (rows @ self.corners.T).max(axis=1), np.abs(rows) @ self.span


def reach_of_polygon(polygon: Polygon, powers: Sequence[int]) -> PolygonReach:
    """The reach of a polygon whose coordinates are in units of 2^-power."""
    units = [Fraction(2) ** -int(power) for power in powers]
    corners = np.array([[float(p[0] * units[0]), float(p[1] * units[1])] for p in polygon])
    lo = np.nextafter(corners.min(axis=0), -np.inf)
    hi = np.nextafter(corners.max(axis=0), np.inf)
    return PolygonReach(Box(lo, hi), lo, hi, None, corners)


@dataclass(frozen=True, eq=False, repr=False)
class PieceTree(Piecewise):
    """The pieces of a network with two inputs, in integers.

    Attributes:
        wall, threshold: per node n and t.
        follow: per node where to go if the comparison fails and if it holds; numbers from the
            count of nodes on are leaves.
    """

    wall: Integers
    threshold: Integers
    follow: Integers
    start: Integers
    slope: Integers
    output_exponent: int
    weight_type: str
    accumulator: str

    @property
    def multiplications(self) -> int:
        """Products in one evaluation, on the longest path."""
        depth, nodes = [0] * max(1, len(self.wall)), len(self.wall)
        for node, pair in enumerate(self.follow.tolist()):
            for child in pair:
                if child < nodes:
                    depth[child] = depth[node] + 1
        return 2 * (max(depth) + 1 if nodes else 0) + 2 * self.outputs

    def __call__(self, inputs: ArrayLike) -> Integers:
        """Integer inputs to integer outputs."""
        batch = np.asarray(inputs, dtype=np.int64)
        single = batch.ndim == 1
        q = np.clip(batch.reshape(-1, 2), self.input_low, self.input_high)
        nodes = len(self.wall)
        at = np.zeros(len(q), dtype=np.int64)
        while (inner := np.flatnonzero(at < nodes)).size:
            here = at[inner]
            sums = (self.wall[here] * q[inner]).sum(axis=1)
            at[inner] = self.follow[here, (sums >= self.threshold[here]).astype(np.int64)]
        leaf = at - nodes
        result = self.start[leaf] + (self.slope[leaf] * q[:, None, :]).sum(axis=2)
        return result[0] if single else result

    def tables(self, name: str) -> Tables:
        result: Tables = {}
        low, high = self.input_low, self.input_high
        if not (is_constant(low) and is_constant(high)):
            kind = self.input_type
            result |= {f"{name}_low": (kind, low), f"{name}_high": (kind, high)}
        if len(self.wall):
            most = len(self.wall) + len(self.start)
            result[f"{name}_wall"] = (self.weight_type, self.wall.ravel())
            result[f"{name}_threshold"] = (self.accumulator, self.threshold)
            result[f"{name}_follow"] = (index_type(most), self.follow.ravel())
        result[f"{name}_start"] = (self.accumulator, self.start.ravel())
        result[f"{name}_slope"] = (self.weight_type, self.slope.ravel())
        return result

    @property
    def ram(self) -> int:
        return 2 * size_of(self.input_type) + size_of(self.accumulator) + 4

    def file(self, options: Options) -> CFile:
        return TreeFile(options, self, self.outputs, self.tables(options.name))

    def structure(self) -> dict[str, Any]:
        return {**super().structure(), "arithmetic": "tree", "nodes": len(self.wall)}

    def overflow(self) -> str | None:
        """Why a sum could leave its type, or the nodes are no tree; None where all is well."""
        nodes, leaves = len(self.wall), len(self.start)
        low, high = self.input_low, self.input_high
        least, most = RANGES[self.input_type]
        if low.min() < least or high.max() > most or (low > high).any():
            return "the clamps of the inputs do not fit their type"
        named = np.sort(self.follow.ravel())
        rising = (self.follow > np.arange(nodes)[:, None]).all()
        if not rising or not np.array_equal(named, np.arange(1, nodes + leaves)):
            return "the nodes of the pieces are no tree"
        least, most = RANGES[self.weight_type]
        for table in (self.wall, self.slope):
            if table.size and (table.min() < least or table.max() > most):
                return f"a wall or a slope does not fit {self.weight_type}"
        size = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
        reach = [np.abs(self.wall) @ size, np.abs(self.threshold).astype(np.float64)]
        reach.append((np.abs(self.slope) @ size + np.abs(self.start)).ravel())
        limit = min(RANGES[self.accumulator][1], 2**61)
        if any(part.max(initial=0.0) >= limit for part in reach):
            return f"a sum could leave {self.accumulator}"
        return None

    def cells(self, *, wide: bool) -> Iterator[tuple[int, Reach]]:
        powers = self.input_exponent.tolist()
        for leaf, polygon in leaves_of(self, wide=wide):
            yield leaf, reach_of_polygon(polygon, powers)

    def constants(self, piece: int) -> list[int]:
        return self.start[piece].tolist()

    def borders(self) -> Array:
        """The corners of all leaves, and the integers around them."""
        exact = {point for _, polygon in leaves_of(self, wide=False) for point in polygon}
        corners = np.array([[float(v) for v in point] for point in exact])
        near = [np.floor(corners) + np.array([a, b]) for a in (0, 1) for b in (0, 1)]
        power = -self.input_exponent.astype(np.int32)
        return np.unique(np.ldexp(np.vstack([corners, *near]), power), axis=0)

    def __repr__(self) -> str:
        return f"PieceTree({len(self.start)} pieces, slopes {self.weight_type})"


def leaves_of(tree: PieceTree, *, wide: bool) -> Iterator[tuple[int, Polygon]]:
    """Every leaf that inputs can end in, with the polygon around them, in units of the integers.

    Args:
        wide: all real inputs that round to integers of the leaf, and not these alone.
    """
    half = Fraction(1, 2) if wide else Fraction(0)
    low = [int(v) - half for v in tree.input_low]
    high = [int(v) + half for v in tree.input_high]
    nodes = len(tree.wall)
    stack = [(0, rectangle(low, high))]
    while stack:
        place, polygon = stack.pop()
        if not polygon:
            continue
        if place >= nodes:
            yield place - nodes, polygon
            continue
        n = [int(v) for v in tree.wall[place]]
        slack = half * (abs(n[0]) + abs(n[1]))
        t = int(tree.threshold[place])
        fails, holds = (int(v) for v in tree.follow[place])
        stack.append((holds, clip(polygon, n, t - slack)))
        stack.append((fails, clip(polygon, [-n[0], -n[1]], 1 - t - slack)))


class TreeFile(CFile):
    """The program that walks down the tree."""

    def driver(self) -> list[str]:
        """Clamp, walk down, two products an output."""
        (kind, acc), nodes, index = self.kinds, len(self.program.wall), self.index
        lines = [
            f"int {self.name}_run(const {kind} *x, {acc} *y)",
            "{",
            f"    {kind} q[2];",
            *([f"    {index} at = 0;"] if nodes else []),
            "    int clamped = 0;",
            "",
            *self.clamp("q"),
        ]
        if nodes:
            sums = " + ".join(
                f"({acc}){self.read('wall', f'2 * at + {j}' if j else '2 * at')} * ({acc})q[{j}]"
                for j in range(2)
            )
            lines += [
                f"    while (at < {nodes}) {{",
                f"        const {acc} sum = ({acc})({sums});",
                f"        const int holds = sum >= {self.read('threshold', 'at')};",
                f"        at = ({index}){self.read('follow', '2 * at + holds')};",
                "    }",
                f"    at -= {nodes};",
            ]
        at = ("at" if self.outputs == 1 else f"at * {self.outputs} + i") if nodes else "i"
        part = f"2 * ({at})" if " " in at else f"2 * {at}"
        return [
            *lines,
            f"    for (int i = 0; i < {self.outputs}; i++) {{",
            f"        {acc} sum = {self.read('start', at)};",
            f"        sum = ({acc})(sum + ({acc}){self.read('slope', part)} * ({acc})q[0]);",
            f"        sum = ({acc})(sum + ({acc}){self.read('slope', f'{part} + 1')} * "
            f"({acc})q[1]);",
            "        y[i] = sum;",
            "    }",
            "    return clamped;",
            "}",
        ]


def tree_from(
    structure: dict[str, Any], tables: dict[str, Any], name: str, network: Network
) -> Any:
    """The program with this structure and these tables."""
    nodes, outputs = int(structure["nodes"]), int(structure["outputs"])
    start, slope = (table_of(tables, f"{name}_{part}") for part in ("start", "slope"))
    wall, threshold, follow = (
        table_of(tables, f"{name}_{part}") if nodes else np.zeros(0, dtype=np.int64)
        for part in ("wall", "threshold", "follow")
    )
    leaves = nodes + 1
    sizes = (len(start), len(slope), len(wall), len(threshold), len(follow))
    expected = (leaves * outputs, 2 * leaves * outputs, 2 * nodes, nodes, 2 * nodes)
    if outputs != network.output_size or network.input_size != 2 or sizes != expected:
        raise InvalidInputError("the tables of the pieces do not fit each other")
    return PieceTree(
        **numbers_from(structure, network),
        wall=wall.reshape(-1, 2),
        threshold=threshold,
        follow=follow.reshape(-1, 2),
        start=start.reshape(leaves, outputs),
        slope=slope.reshape(leaves, outputs, 2),
    )
