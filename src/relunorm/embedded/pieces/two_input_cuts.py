"""The tree of a network's affine pieces: cells are cut by the walls of units, layer by layer.

A cell is a polygon, known exactly, on which all units of the layers before are settled; there the
units of the next layer are affine. One whose wall crosses the cell cuts it in two, the wall that
runs nearest to the middle first. Where none is left, the next layer follows, and after the last one
the cell is a piece of the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from relunorm.domain import Box
from relunorm.embedded.arithmetic.integers import RANGES, IntegerInputs
from relunorm.embedded.arithmetic.scales import start_of
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.embedded.pieces.two_inputs import PieceTree, Polygon, clip, rectangle
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Affine, Network

#: More pieces than this are refused: the tables would take tens of thousands of bytes.
MOST_PIECES = 4096


@dataclass
class _Node:
    wall: tuple[int, int]
    threshold: int
    follow: list[_Node | _Leaf] = field(default_factory=list)


@dataclass
class _Leaf:
    slope: Array  # per step of the inputs
    middle: Array
    height: Array  # the outputs at the middle


def build_tree(network: Network, box: Box, bits: int, input_exponent: Integers | None) -> PieceTree:
    """The tree of a network with two inputs, walls and slopes of so many bits."""
    inputs = start_of(network, box, bits, input_exponent)
    builder = _Builder(network, inputs, bits)
    root = builder.run()
    nodes: list[_Node] = []
    leaves: list[_Leaf] = []
    stack = [root]
    while stack:  # parents come before their children, so that every walk goes on
        here = stack.pop()
        if isinstance(here, _Leaf):
            leaves.append(here)
        else:
            nodes.append(here)
            stack += reversed(here.follow)
    place = {id(n): k for k, n in enumerate([*nodes, *leaves])}
    follow = [[place[id(child)] for child in node.follow] for node in nodes]
    wall = np.array([n.wall for n in nodes], dtype=np.int64).reshape(-1, 2)
    threshold = np.array([n.threshold for n in nodes], dtype=np.int64)
    table = np.array(follow, dtype=np.int64).reshape(-1, 2)
    for exponent in range(200, -201, -1):
        start, slope = _tables(leaves, exponent)
        kinds = f"int{bits}_t", builder.accumulator
        made = PieceTree(
            **vars(inputs),
            wall=wall,
            threshold=threshold,
            follow=table,
            start=start,
            slope=slope,
            output_exponent=exponent,
            weight_type=kinds[0],
            accumulator=kinds[1],
        )
        if start.size and made.overflow() is None:
            return made
    raise InvalidInputError(
        f"no power of two fits the pieces into {bits} bits; use more bits, or style layers"
    )


def _tables(leaves: list[_Leaf], exponent: int) -> tuple[Integers, Integers]:
    """Starts and slopes at a scale; rounded slopes are right in the middle of a piece."""
    slope = np.ldexp(np.array([leaf.slope for leaf in leaves]), exponent)
    height = np.ldexp(np.array([leaf.height for leaf in leaves]), exponent)
    middle = np.array([leaf.middle for leaf in leaves])
    if not max(np.abs(slope).max(), np.abs(height).max()) < 2.0**60:
        return np.zeros((0, 0), np.int64), np.zeros((0, 0, 2), np.int64)
    slope = np.rint(slope)
    start = np.rint(height - (slope * middle[:, None, :]).sum(axis=2))
    if not np.abs(start).max() < 2.0**60:
        return np.zeros((0, 0), np.int64), np.zeros((0, 0, 2), np.int64)
    return start.astype(np.int64), slope.astype(np.int64)


class _Builder:
    def __init__(self, network: Network, inputs: IntegerInputs, bits: int):
        self.network, self.inputs = network, inputs
        self.most = 2 ** (bits - 1) - 1
        self.accumulator = "int64_t" if bits > 16 else "int32_t"
        self.limit = min(RANGES[self.accumulator][1], 2**60)
        self.size = np.maximum(np.abs(inputs.input_low), np.abs(inputs.input_high))
        self.leaves = 0

    def run(self) -> _Node | _Leaf:
        """Cut the domain until every cell is a piece."""
        step = np.ldexp(1.0, -self.inputs.input_exponent.astype(np.int32))
        cell = rectangle(self.inputs.input_low.tolist(), self.inputs.input_high.tolist())
        first = [(np.diag(step), np.zeros(2))]
        top: list[_Node | _Leaf] = []
        stack = [(cell, first, top)]
        while stack:
            cell, values, into = stack.pop()
            made = self._cell(cell, values)
            into.append(made[0])
            if isinstance(made[0], _Node):
                _, parts, known = made
                # the part where the comparison fails is made, and appended, first
                stack += [(part, known, made[0].follow) for part in reversed(parts)]
        return top[0]

    def _cell(
        self, cell: Polygon, values: list[tuple[Array, Array]]
    ) -> tuple[_Node | _Leaf, list[Polygon], list[tuple[Array, Array]]]:
        """The node that cuts a cell with both parts and what is known there, or its leaf."""
        corners = np.array([[float(v) for v in p] for p in cell])
        middle = corners.mean(axis=0)
        while len(values) <= len(self.network.layers):
            layer = self.network.layers[len(values) - 1]
            slope, height = _affine(layer.affine, values)
            below, above = layer.activation.slopes
            if layer.activation.kind == "step" or below != above:
                cut = self._cut(cell, corners, slope, height)
                if cut is not None:
                    return cut[0], cut[1], values
            on = slope @ middle + height > 0
            if layer.activation.kind == "step":
                values = [*values, (np.zeros_like(slope), on.astype(np.float64))]
            else:
                factor = np.where(on, above, below)
                values = [*values, (factor[:, None] * slope, factor * height)]
        slope, height = _affine(self.network.output, values)
        self.leaves += 1
        if self.leaves > MOST_PIECES:
            raise InvalidInputError(
                f"the network has more than {MOST_PIECES:,} affine pieces on the domain; use style "
                "layers, a smaller domain, or a smaller network"
            )
        return _Leaf(slope, middle, slope @ middle + height), [], values

    def _cut(
        self, cell: Polygon, corners: Array, slope: Array, height: Array
    ) -> tuple[_Node, list[Polygon]] | None:
        """The most even cut by a unit's wall, if one crosses the cell."""
        at = corners @ slope.T + height
        length = np.linalg.norm(slope, axis=1)
        even = np.minimum(at.max(axis=0), -at.min(axis=0)) / np.where(length > 0, length, 1.0)
        for unit in np.argsort(-even):
            if not even[unit] > 0:
                return None
            wall = self._wall(slope[unit], float(height[unit]))
            if wall is None:
                continue
            n, t = wall
            heights = [n[0] * p[0] + n[1] * p[1] for p in cell]
            if max(heights) >= t and min(heights) <= t - 1:
                fails = clip(cell, (-n[0], -n[1]), Fraction(1 - t))
                return _Node(n, t), [fails, clip(cell, n, Fraction(t))]
        return None

    def _wall(self, slope: Array, height: float) -> tuple[tuple[int, int], int] | None:
        """n and t with ``n . q >= t`` where ``slope . q + height > 0``, as finely as they fit."""
        reach = float(np.abs(slope) @ self.size)
        largest = float(np.abs(slope).max())
        if not (np.isfinite(reach) and largest > 0 and np.isfinite(height)):
            return None
        power = int(np.floor(min(np.log2(self.most / largest), np.log2(self.limit / 2 / reach))))
        n = np.rint(np.ldexp(slope, power))
        t = float(np.ceil(np.ldexp(-height, power)))
        fits = np.abs(n).max() <= self.most and np.abs(n) @ self.size < self.limit
        if not n.any() or not fits or not abs(t) < self.limit:
            return None
        return (int(n[0]), int(n[1])), int(t)


def _affine(affine: Affine, values: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """An affine map of values that are affine in the inputs."""
    slope, height = np.zeros((affine.size, 2)), affine.bias
    for source, matrix in affine.terms.items():
        slope = slope + np.asarray(matrix @ values[source][0])
        height = height + matrix @ values[source][1]
    return slope, height
