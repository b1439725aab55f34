"""Solver ``exact``: one input, one output, one hidden layer, with a certificate.

The network is a linear spline. Knots come from the dynamic programme behind the lower bound and are
polished by variable projection + Levenberg-Marquardt. Where a gap to the bound is left, the sharper
bound of `crossing` gives other knots to polish; then come a dynamic programme over (knot, value)
states in a tube around the fit and the exchange of knots, until the gap closes or the effort is
spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relunorm.clock import INTERRUPTED, TIME_LIMIT
from relunorm.errors import InvalidInputError
from relunorm.train.problem.levenberg_marquardt import Solution, minimize
from relunorm.train.problem.spline import SplineProblem, refit
from relunorm.train.problem.task import Fit, Task, assemble
from relunorm.train.solve.bound import CELLS, Pieces, SplineBound, spline_bound
from relunorm.train.solve.crossing import crossing_bound

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats, Floats]

#: Relative gap to the lower bound at which the search stops.
CLOSED = 1e-6

#: Inputs and values at each of them that a tube is made of, beside the knots.
GRID, LEVELS = 90, 7


def solve_exact(task: Task, give_up: Callable[[float, float], bool] | None = None) -> Fit:
    """The best linear spline with as many knots as there are units, and how far it can be from it.

    Upper bound by search, lower bound by `spline_bound`; `Fit.lower_bound` makes the gap a fact.
    A certificate needs no penalty: ``alpha`` other than 0 is refused.

    Args:
        give_up: asked after the first knots, with mean squared error and `spike`; if it says so the
            search ends there.
    """
    _check(task)
    order = torch.argsort(task.x[:, 0], stable=True).cpu()
    x, y = task.x[order, 0].cpu(), task.y[order, 0].cpu()
    weight = task.weight[order].cpu()
    knots = _knot_count(task)
    search = _Search(SplineProblem(x, y, weight), task)
    rows = search.rows
    wider: SplineBound | None = None
    given_up = False
    try:
        search.pieces = Pieces.of(*rows, _affordable_cells(task, knots), task.clock.until(0.9))
        bound = _start(search, rows, knots)
        given_up = give_up is not None and give_up(search.loss / search.total, search.spike)
        if not task.skip and search.pieces is not None and not given_up:
            # two units spent on the affine part could be knots of another network without bias
            wider = spline_bound(*rows, knots + 2, task.clock.until(0.95), search.pieces)
        if not given_up:
            search.sharpen()
            search.run()
        known = bound.complete if wider is None else wider.complete
    except KeyboardInterrupt:
        search.stopped = "interrupted"
        # before the bound is there, 0 would be true and worthless
        known = search.lower > 0 and (task.skip or wider is not None)
        if not search.curve:
            search.keep_anything(torch.from_numpy(_filled(np.empty(0), knots, rows[0])))
    lower = search.lower if wider is None else wider.value
    fit = _network(task, search, lower / float(weight.sum()) if known else None)
    return replace(fit, facts={"given_up": given_up, "spike": search.spike})


def _start(search: _Search, rows: Rows, knots: int) -> SplineBound:
    """The first bound and the first knots."""
    task, bound = search.task, SplineBound(0.0, np.empty(0), complete=False)
    if search.pieces is not None:
        bound = spline_bound(*rows, knots, task.clock.until(0.95), search.pieces)
    task.report("lower bound", 0.1, float("nan"))
    search.lower = bound.value
    search.improve(torch.from_numpy(_filled(bound.knots, knots, rows[0]))[None])
    if task.start is not None:
        w, b = task.start.layers[0]
        search.improve(torch.from_numpy(_filled(-b * w[:, 0], knots, rows[0]))[None])
    return bound


def _affordable_cells(task: Task, knots: int) -> int:
    """Cells for which the bound takes at most a third of the time limit; an estimate."""
    if not task.clock.limited:
        return CELLS
    # seconds for each pair of cells: its line, then one comparison a knot
    pair = 2e-7 + 2.5e-9 * knots
    return int(min(CELLS, max(2 * knots, (task.clock.limit / 3 / pair) ** 0.5)))


def _check(task: Task) -> None:
    if task.x.shape[1] != 1 or task.y.shape[1] != 1 or len(task.hidden) != 1:
        raise InvalidInputError(
            f"solver 'exact' fits one input, one output and one hidden layer; found "
            f"{task.x.shape[1]} inputs, {task.y.shape[1]} outputs and hidden={task.hidden}; use "
            "solver='greedy' or 'deep'"
        )
    if task.alpha:
        raise InvalidInputError(
            f"solver 'exact' certifies the squared error without penalty; alpha={task.alpha:g} was "
            "given: use alpha=0 or 'auto', or solver='greedy'"
        )
    if float(task.x.amax()) <= float(task.x.amin()):
        raise InvalidInputError("solver 'exact': the input has a single value, so there is no knot")


def _knot_count(task: Task) -> int:
    """Units left for knots; without skip and bias two of them carry the affine part (2.10)."""
    return task.hidden[0] if task.skip else task.hidden[0] - 2


def _filled(knots: NDArray[np.float64], count: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exactly ``count`` sorted knots inside the data's range: split the longest gaps if short."""
    inside = [float(t) for t in knots if x[0] < t < x[-1]][:count]
    edges = sorted([float(x[0]), *inside, float(x[-1])])
    while len(edges) < count + 2:
        at = int(np.argmax(np.diff(edges)))
        edges.insert(at + 1, (edges[at] + edges[at + 1]) / 2)
    return np.array(edges[1:-1])


class _Search:
    """The best knots so far, and the ways to better ones."""

    def __init__(self, problem: SplineProblem, task: Task):
        self.problem, self.task = problem, task
        self.rows: Rows = problem.x.numpy(), problem.y.numpy(), problem.weight.numpy()
        self.lower = 0.0
        self.pieces: Pieces | None = None
        self.rng = np.random.default_rng([task.seed, 17])
        self.loss, self.knots = float("inf"), torch.empty(0)
        self.curve: list[float] = []
        self.iterations, self.stopped = 0, ""
        self.total = problem.total

    @property
    def closed(self) -> bool:
        """Whether the gap, or the whole error, is down to rounding."""
        floor = 1e-13 * self.problem.energy
        return self.loss <= (1 + CLOSED) * self.lower + floor

    @property
    def spike(self) -> float:
        """How far the spline leaves the data between the rows."""
        return spike(*self.rows, *self.refitted(self.knots)[:2])

    def refitted(self, knots: Tensor) -> tuple[Floats, Floats, float]:
        """Ends and knots, the best values there, and the squared error, free of prefix sums."""
        edges = np.concatenate([[self.problem.low], knots.numpy(), [self.problem.high]])
        return edges, *refit(*self.rows, edges)

    def sharpen(self) -> None:
        """The bound that knows that the pieces meet, and a start from the knots it finds."""
        count = self.knots.numel()
        if self.closed or not count or self.task.spent or self.pieces is None:
            return
        upper = (1 + 1e-9) * self.loss
        found = crossing_bound(*self.rows, count, upper, self.task.clock, self.pieces)
        if found is not None:
            self.lower = max(self.lower, found.value)
            self.improve(torch.from_numpy(_filled(found.knots, count, self.rows[0]))[None])

    def run(self) -> None:
        """Tube rounds first, then dropping and inserting knots."""
        task = self.task
        wanted = 6 if task.rounds is None else task.rounds
        rounds = 10**9 if task.rounds is None and task.clock.limited else wanted
        idle = 0
        for done in range(rounds):
            if self.closed or self.stopped or not self.knots.numel() or idle > 200:
                return
            if task.spent:
                self.stopped = TIME_LIMIT if done < wanted else ""
                return
            before = self.loss
            tube = done < 3 and self._tube_seconds < task.clock.left()
            starts = self._tube(0.5**done) if tube else self._exchange()
            self.improve(starts)
            idle = idle + 1 if self.loss >= before * (1 - 1e-9) else 0
            task.report(
                "knots", float("nan") if rounds > 1e6 else done / rounds, self.loss / self.total
            )

    def improve(self, starts: Tensor) -> None:
        """Polish a batch of knots and keep the best."""
        if not starts.shape[1]:
            self.loss = float(self.problem.linearize((starts,)).loss[0])
            self.knots = starts[0]
            return
        starts = self.problem.move((starts,), torch.zeros_like(starts))[0]
        clock = self.task.clock
        found: Solution = minimize(self.problem, (starts,), iterations=40, clock=clock)
        self.iterations += found.iterations
        if found.interrupted:
            self.stopped = INTERRUPTED
        self._keep(found)
        if not self.knots.numel():
            self.keep_anything(starts[0])
        self.curve.append(self.loss / self.total)

    def keep_anything(self, knots: Tensor) -> None:
        """Some knots, where the search has none of its own."""
        self.loss, self.knots = self.refitted(knots)[2], knots

    def _keep(self, found: Solution, tries: int = 4) -> None:
        """The best member, if it is better: its error is computed again from the rows."""
        for member in found.loss.argsort()[:tries].tolist():
            if not float(found.loss[member]) < self.loss:
                return
            knots = found.point[0][member]
            loss = self.refitted(knots)[2]
            if loss < self.loss:
                self.loss, self.knots = loss, knots
                return

    def _exchange(self, members: int = 16) -> Tensor:
        """Copies that lose one to three knots and get new ones at random inputs."""
        knots = self.knots.numpy()
        starts = np.tile(knots, (members, 1))
        x = self.rows[0]
        for row in starts:
            count = int(self.rng.integers(1, min(3, len(knots)) + 1))
            drop = self.rng.choice(len(knots), count, replace=False)
            row[drop] = self.rng.choice(x[1:-1] if len(x) > 2 else x, count)
            row.sort()
        return torch.from_numpy(starts)

    @property
    def _tube_seconds(self) -> float:
        """About what a tube takes: a comparison for each pair of states and knot."""
        count = self.knots.numel()
        return 4e-9 * (LEVELS * (min(len(self.problem.x), GRID) + count)) ** 2 * count

    def _tube(self, width: float) -> Tensor:
        """One dynamic programme over knots on a grid and values near the current fit."""
        x, knots = self.rows[0], self.knots.numpy()
        count = min(len(x), GRID)
        grid = np.quantile(x, np.linspace(0, 1, count))
        grid = np.unique(np.concatenate([grid, knots, [self.problem.low, self.problem.high]]))
        edges = torch.from_numpy(np.concatenate([grid[:1], knots, grid[-1:]]))
        values = self.problem.values((self.knots[None],))[0]
        center = np.interp(grid, edges.numpy(), values.numpy())
        step = 2.0 * width * np.sqrt(self.loss / self.total)
        offsets = step * np.linspace(-1, 1, LEVELS)
        picked = tube_knots(self.problem, grid, center[:, None] + offsets, len(knots))
        return torch.from_numpy(_filled(picked, len(knots), x))[None]


def tube_knots(
    problem: SplineProblem, grid: NDArray[np.float64], values: NDArray[np.float64], knots: int
) -> NDArray[np.float64]:
    """Knots of the cheapest continuous spline through states (grid[g], values[g, v]).

    Exact over these states: a shortest path with at most ``knots`` inner stops from the first to
    the last grid position. Cost O(knots (G V)^2).
    """
    size, levels = values.shape
    a, b, c, left, right, energy = problem.pair_sums(grid)
    start, end = values[:, :, None, None], values[None, None, :, :]

    def wide(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        return matrix[:, None, :, None]

    cost = wide(a) * start * start + wide(2 * b) * start * end + wide(c) * end * end
    cost = cost - wide(2 * left) * start - wide(2 * right) * end + wide(energy)
    cost = cost.reshape(size * levels, size * levels)
    best = np.full(size * levels, np.inf)
    best[:levels] = 0.0
    back = []
    for _ in range(knots + 1):
        total = best[:, None] + cost
        at = total.argmin(axis=0)
        best = total[at, np.arange(len(at))]
        best[:levels] = 0.0
        at[:levels] = np.arange(levels)
        back.append(at)
    state = size * levels - levels + int(best[-levels:].argmin())
    stops = []
    for at in reversed(back):
        state = int(at[state])
        if state >= levels:
            stops.append(float(grid[state // levels]))
    return np.array(stops[::-1])


def _network(task: Task, search: _Search, lower: float | None) -> Fit:
    """The spline as units relu(x - t_j) beside its affine part."""
    edges, values, loss = search.refitted(search.knots)
    slopes = np.diff(values) / np.diff(edges)
    kinks, base = np.diff(slopes), values[0] - slopes[0] * edges[0]
    rest = {
        "curve": search.curve,
        "iterations": search.iterations,
        "lower_bound": lower,
        "stopped": search.stopped,
    }
    knots = search.knots
    w = torch.ones(len(knots), 1, dtype=torch.float64)
    if task.skip:
        weights = torch.from_numpy(np.concatenate([[base], slopes[:1], kinks]))
        return assemble([(w, -knots)], weights[:, None], task, loss, **rest)
    # base + slope x as two units active on the whole interval: relu(x - low), relu(high - x)
    low, high = edges[0], edges[-1]
    up, down = values[0] + slopes[0] * (high - low), values[0]
    w = torch.cat([w, w.new_tensor([[1.0], [-1.0]])])
    b = torch.cat([-knots, knots.new_tensor([-low, high])])
    pair = np.array([up, down]) / (high - low)
    weights = torch.from_numpy(np.concatenate([[0.0], kinks, pair]))
    return assemble([(w, b)], weights[:, None], task, loss, **rest)


def spike(x: Floats, y: Floats, weight: Floats, edges: Floats, values: Floats) -> float:
    """How far, at worst, a knot's value is outside the targets around it, over what is usual there.

    Between neighbouring inputs nothing holds a spline without penalty; two knots there, or one
    beside a piece of one row, can buy a little squared error with a spike of any height.

    Around knot j are the rows between knots j - 1 and j + 1, at least two on either side; usual is
    the range of their targets plus three root mean squared errors of the whole fit. Below 1 no knot
    stands out. O(n + K).

    >>> x, y = np.arange(6.0), np.array([0.0, 0, 0, 1, 1, 1])
    >>> edges = np.array([0, 2.0, 2.5, 3.0, 5])
    >>> spike(x, y, np.ones(6), edges, np.array([0, 0, 9.0, 1, 1])) > 1
    True
    >>> spike(x, y, np.ones(6), edges, np.array([0, 0, 0.5, 1, 1]))
    0.0
    """
    fitted = np.interp(x, edges, values)
    noise = np.sqrt(weight @ np.square(fitted - y) / weight.sum())
    scale = np.ptp(y)
    at = np.searchsorted(x, edges)
    worst = 0.0
    for j in range(1, len(edges) - 1):
        near = y[max(0, min(at[j - 1], at[j] - 2)) : max(at[j + 1], at[j] + 2)]
        low, high = near.min(), near.max()
        outside = max(values[j] - high, low - values[j], 0.0)
        usual = high - low + 3 * noise + 1e-9 * scale
        if outside > 0:
            worst = max(worst, float(outside / usual) if usual > 0 else np.inf)
    return worst
