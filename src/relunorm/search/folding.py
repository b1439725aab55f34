"""Networks too large for one form: bounded layer by layer and folded, and what is left is searched.

On a small domain most units of a large network keep their sign. Bounds of all units
(`bounds.layers.every_unit`) say which, the form has only the others, and the search begins there.
Where even those are too many the goals are bounded once, by slopes that are tuned for them, and
nothing is cut. Either way a proof holds how many units of each layer were bounded, from which the
same form is made again, and a tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.layers.every_unit import layer_bounds
from relunorm.bounds.layers.linear import Slopes, linear_upper
from relunorm.bounds.layers.slopes import optimize
from relunorm.bounds.nodes.form import Form, TooLarge, fits, triangular
from relunorm.bounds.problem import Bounds, Group, few_threads
from relunorm.bounds.relaxation import default_tilt
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain.reach import Reach
from relunorm.matrix import Array, Vector
from relunorm.network import IDENTITY, Affine, Layer, Network
from relunorm.search.proofs.entries import HEAD, entry
from relunorm.search.proofs.tape import BrokenTape


@dataclass(frozen=True, eq=False)
class Start:
    """A form made before, and bounds of its units that were proved elsewhere.

    ``tune`` if the search may bound the units again before it begins.
    """

    form: Form
    low: Vector
    high: Vector
    tune: bool = False

    @staticmethod
    def of(form: Form, network: Network, bounds: Bounds, tune: bool = False) -> Start | None:
        """From bounds of all layers; None where numbers overflow."""
        hidden = [k for k, layer in enumerate(network.layers) if layer.has_units]
        low, high = (
            np.concatenate([np.zeros(0), *(ends[k] for k in hidden)])[form.origin]
            for ends in (bounds.lower, bounds.upper)
        )
        parts = (form.rows, form.const, form.err, low, high)
        return Start(form, low, high, tune) if all(np.isfinite(x).all() for x in parts) else None


@dataclass(frozen=True, eq=False)
class Folded:
    """A network with goals on a domain, bounded.

    Args:
        groups: the goals.
        counts: how many units of each layer the linear rule has bounded.
        bounds: of every layer, the last one being the output.
        start: where a search begins; None where what is left is too large.
    """

    groups: Sequence[Group]
    counts: tuple[int, ...]
    bounds: Bounds
    start: Start | None


def fold(
    network: Network,
    reach: Reach,
    groups: Sequence[Group],
    clock: Clock = NO_LIMIT,
    counts: Sequence[int] | None = None,
) -> Folded:
    """Bound all units of a network, and fold those that keep their sign on the domain.

    Args:
        counts: how many units to bound by the linear rule, to repeat what a clock has cut short.
    """
    with few_threads(network):
        bounds, counts = layer_bounds(with_goals(network, groups), reach, clock, counts)
        start = None
        if fits(network, bounds):
            try:
                form = triangular(network, reach, groups, bounds)
            except TooLarge:
                return Folded(groups, counts, bounds, None)
            start = Start.of(form, network, bounds, tune=True)
    return Folded(groups, counts, bounds, start)


def with_goals(network: Network, groups: Sequence[Group]) -> Network:
    """The rows of all groups, rhs - A f, as a network that reads the output as it is."""
    layers = [*network.layers, Layer(network.output, IDENTITY)]
    A, rhs = (np.concatenate(part) for part in zip(*groups, strict=True))
    output = Affine({len(layers): -A}, rhs)
    return network.replace(layers=layers, output=output, output_shape=(len(rhs),))


def _firsts(groups: Sequence[Group]) -> list[int]:
    return np.cumsum([0] + [len(rhs) for _, rhs in groups]).tolist()


def bound_goals(folded: Folded, steps: int, clock: Clock) -> tuple[float, Array]:
    """An upper bound of the least row of every group, and the tape that proves it.

    An entry (`search.proofs.entries`) is that of a group closed on the whole domain: the units
    whose sign is open and their tilts, and a weight of 1 for the row that was bounded.
    """
    problem, firsts = folded.bounds.problem, _firsts(folded.groups)
    index, rows = len(problem.network.layers), np.arange(firsts[-1])
    ones = np.ones(len(rows))
    found = optimize(
        problem, folded.bounds, index, rows, ones, iterations=steps, goal=None, clock=clock
    )
    value = linear_upper(problem, folded.bounds, index, rows, ones, found.slopes)
    widths = [len(lower) for lower in folded.bounds.lower]
    tilt = [
        found.slopes.tilt.get(layer, np.zeros((len(rows), width)))
        for layer, width in enumerate(widths)
    ]
    lower, upper = np.concatenate(folded.bounds.lower), np.concatenate(folded.bounds.upper)
    units = np.flatnonzero((lower < 0) & (upper > 0))
    tilts = np.concatenate(tilt, axis=1)[:, units]
    none = np.zeros(0)
    tape = []
    for q, (first, last) in enumerate(pairwise(firsts)):
        row = first + int(value[first:last].argmin())
        weights = np.eye(last - first)[row - first]
        tape.append(entry(0, q, units, tilts[row], none, none, weights))
    whole, starts = np.concatenate(tape), np.cumsum([0, *map(len, tape[:-1])])
    return proved_goals(folded, whole, starts), whole


def proved_goals(folded: Folded, tape: Array, entries: NDArray[np.int64]) -> float:
    """The bound of `bound_goals` from its tape; infinite if nothing is said of some group.

    Args:
        entries: where the groups begin.
    """
    bounds, problem = folded.bounds, folded.bounds.problem
    firsts, index = _firsts(folded.groups), len(problem.network.layers)
    ends = np.cumsum([len(lower) for lower in bounds.lower])
    rule = default_tilt(np.concatenate(bounds.lower), np.concatenate(bounds.upper))
    best = np.full(len(folded.groups), np.inf)
    for at in entries.tolist():
        _, number, q, units, known, goals = tape[at : at + HEAD]
        group, count = int(q), int(units)
        sizes = np.cumsum([count, count, int(goals)])
        names, tilt, weights, _ = np.split(tape[at + HEAD :], sizes)
        fine = number == known == 0 and group == q and 0 <= group < len(best)
        fine = fine and goals == firsts[group + 1] - firsts[group]
        fine = fine and sorted(weights) == [0.0] * (len(weights) - 1) + [1.0]
        fine = fine and ((names >= 0) & (names < len(rule)) & (names % 1 == 0)).all()
        if not (fine and ((tilt >= 0) & (tilt <= 1)).all()):
            raise BrokenTape("a group is closed by numbers that are not allowed")
        chosen = rule.copy()
        chosen[names.astype(np.intp)] = tilt
        parts = enumerate(np.split(chosen, ends[:-1]))
        slopes = Slopes({layer: part[None] for layer, part in parts})
        row = np.array([firsts[group] + int(weights.argmax())])
        value = linear_upper(problem, bounds, index, row, np.ones(1), slopes)[0]
        best[group] = min(best[group], value)
    return float(best.max())
