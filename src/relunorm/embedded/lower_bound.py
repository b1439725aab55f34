"""The largest difference that can be found between a program and its network: a lower bound.

Random inputs and corners first, and the borders of affine pieces where they are known; then ascent
on the difference of the two real networks, whose gradient is known, corner by corner; then small
random steps around the best, because what a program rounds is not smooth. What was found can be
evaluated exactly, so that it is a fact and not a guess.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relunorm.arithmetic.certain import exact_output
from relunorm.domain import Box
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.matrix import Array
from relunorm.network import Affine, Network

#: Ascent is tried for the outputs that differ most at random inputs, so many at most.
OUTPUTS = 16
#: Points between pieces that are tried, at most.
BORDERS = 100_000


@dataclass(frozen=True)
class Found:
    """The largest |program - network| found over all outputs."""

    difference: float
    inputs: Array
    tried: int


def largest_difference(
    network: Network,
    program: Callable[[Array], Array],
    smooth: Network,
    box: Box,
    *,
    samples: int = 20_000,
    borders: Array | None = None,
    snap: Callable[[Array], Array] | None = None,
    random_state: int = 0,
) -> Found:
    """Search for inputs at which the program is far from the network.

    Args:
        smooth: the program without its roundings of values, whose gradient guides the ascent.
        snap: moves inputs to where they are wanted, such as the program's own grid.
    """
    rng = np.random.default_rng(random_state)
    tried = 0

    def gap(points: Array) -> tuple[Array, Array]:
        nonlocal tried
        points = np.clip(points, box.lo, box.hi)
        points = points if snap is None else snap(points)
        tried += len(points)
        return points, np.abs(program(points) - network(points))

    corners = np.where(rng.random((samples // 4, box.dimension)) < 0.5, box.lo, box.hi)
    starts = [box.sample(samples, rng), corners]
    if borders is not None and len(borders):
        chosen = rng.permutation(len(borders))[:BORDERS]
        starts.append(borders[chosen])
    points, gaps = gap(np.vstack(starts))
    width = box.hi - box.lo
    worst = np.argsort(-gaps.max(axis=0))[:OUTPUTS]
    for output in worst.tolist():
        ours, theirs = _one(smooth, output), _one(network, output)
        best = points[np.argsort(-gaps[:, output])[:8]]
        for round_ in range(12):
            slope = ours.jacobian(best)[:, 0] - theirs.jacobian(best)[:, 0]
            sign = np.sign(ours(best) - theirs(best))
            share = rng.random((len(best), 1)) if round_ % 3 else np.ones((len(best), 1))
            corner = np.where(sign * slope > 0, box.hi, box.lo)
            step = best + share * (corner - best)
            reach = 0.25 * 0.5**round_ * width
            near = best + rng.uniform(-1, 1, (24, *best.shape)) * reach
            one = rng.random(near.shape) < max(0.1, 2 / box.dimension)
            near = np.where(one, near, best).reshape(-1, box.dimension)
            more, more_gaps = gap(np.vstack([best, step, near]))
            keep = np.argsort(-more_gaps[:, output])[:8]
            best = more[keep]
            points, gaps = np.vstack([points, best]), np.vstack([gaps, more_gaps[keep]])
    place = np.unravel_index(np.argmax(gaps), gaps.shape)
    return Found(float(gaps[place]), points[place[0]], tried)


def around(points: Array, exponent: Integers) -> Array:
    """Points, and the outermost real numbers that round to the same integers as they do.

    Between two of these the difference of a piece and its network is affine.
    """
    step = np.ldexp(1.0, -exponent.astype(np.int32))
    whole = np.floor(points / step + 0.5)
    # the upper half belongs to the next integer, so the number before it
    ends = (whole - 0.5) * step, whole * step, np.nextafter((whole + 0.5) * step, -np.inf)
    columns = range(points.shape[1])
    mixed = [
        np.stack([ends[pick][:, j] for j, pick in zip(columns, picks, strict=True)], axis=1)
        for picks in itertools.product(range(3), repeat=len(columns))
    ]
    return np.vstack([points, *mixed])


def thresholds(network: Network, box: Box, random_state: int) -> Array:
    """Points beside the thresholds of step units, both sides: by bisection between random points.

    A program that rounds may be on the other side there, and its output jumps.
    """
    rng = np.random.default_rng(random_state)
    ends = box.sample(64, rng), box.sample(64, rng)
    found = []
    kinds = [x.activation.kind for x in network.layers if x.activation.kind != "identity"]
    for index in (k for k, kind in enumerate(kinds) if kind == "step"):
        signs = [network.preactivations(side)[index] > 0 for side in ends]
        line, unit = np.nonzero(signs[0] != signs[1])
        off, on = (
            np.where(signs[1][line, unit][:, None], *pair)
            for pair in ((ends[0][line], ends[1][line]), (ends[1][line], ends[0][line]))
        )
        rows = np.arange(len(line))
        for _ in range(60):
            middle = off / 2 + on / 2
            above = (network.preactivations(middle)[index][rows, unit] > 0)[:, None]
            off, on = np.where(above, off, middle), np.where(above, middle, on)
        found += [off, on]
    return np.vstack([np.zeros((0, box.dimension)), *found])


def difference_at(network: Network, program: Any, inputs: ArrayLike) -> float:
    """|program - network| at one real input, the largest output: exact, then rounded down."""
    ours = program.exact(inputs)
    theirs = exact_output(network, np.asarray(inputs, dtype=np.float64))
    largest = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    found = float(min(largest, Fraction(sys.float_info.max)))
    return found if Fraction(found) <= largest else float(np.nextafter(found, 0.0))


def _one(network: Network, output: int) -> Network:
    """The network with one of its outputs."""
    terms = {s: m[[output]] for s, m in network.output.terms.items()}
    return network.replace(output=Affine(terms, network.output.bias[[output]]))
