"""A radius at which linear bounds alone prove that no output is wrong: cheap, and sound.

Around one input most units keep their sign, and over so little of the domain intervals for the
units and one backward pass for the outputs go far. A search that starts from such a radius has
something to show, whatever its time; of a network with thousands of units it is often all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relunorm.bounds.intervals import interval_bounds
from relunorm.bounds.linear import linear_upper
from relunorm.bounds.problem import Bounds, Problem
from relunorm.clock import Clock
from relunorm.domain import Domain
from relunorm.domain.reach import reach_of
from relunorm.network import IDENTITY, Affine, Layer, Network
from relunorm.questions.neighbourhood import Group

#: Radii that are tried, how many of them whatever the clock says, and how many times the smallest
#: is halved beneath the largest.
TRIES, SURE_TRIES, HALVINGS = 7, 4, 16


def quick_radius(
    network: Network,
    groups: Sequence[Group],
    around: Callable[[float], Domain],
    most: float,
    clock: Clock,
) -> float:
    """The largest of some radii below ``most`` at which no conjunction A f(x) <= b can hold.

    Args:
        around: the inputs within a radius.

    Returns:
        0 where none of those that were tried is proved.
    """
    goals = _goals(network, groups)
    below, above = -float(HALVINGS), 0.0  # exponents of two
    found = 0.0
    for attempt in range(TRIES):
        if attempt >= SURE_TRIES and clock.expired():
            break
        middle = (below + above) / 2
        radius = most * 2.0**middle
        if radius > 0 and _proved(goals, groups, around(radius)):
            found, below = radius, middle
        else:
            above = middle
    return found


def _goals(network: Network, groups: Sequence[Group]) -> Network:
    """A f(x) - b for all groups; the outputs are a linear stage, so that nothing is multiplied."""
    A = np.concatenate([a for a, _ in groups])
    b = np.concatenate([b for _, b in groups])
    layers = [*network.layers, Layer(network.output, IDENTITY, "outputs")]
    return Network(layers, Affine({len(layers): A}, -b), input_shape=network.input_shape)


def _proved(goals: Network, groups: Sequence[Group], domain: Domain) -> bool:
    """Whether in every group some row is positive everywhere."""
    problem = Problem(goals, reach_of(domain))
    bounds, last = Bounds(problem), len(goals.layers)
    for index in range(last):
        bounds.append(*interval_bounds(problem, bounds, index))
    rows = np.arange(goals.output_size)
    least = -linear_upper(problem, bounds, last, rows, -np.ones(len(rows)))
    ends = np.cumsum([len(b) for _, b in groups])[:-1]
    return all(part.max(initial=-np.inf) > 0 for part in np.split(least, ends))
