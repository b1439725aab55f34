"""Solver ``greedy``: one hidden layer, any number of inputs.

The reduced parameter space is compact, so a sample of live units covers it; one after the other,
the unit that lowers the squared error most after refitting all weights joins the network
(orthogonal matching pursuit, least-squares variant). Then all are moved together by variable
projection + Levenberg-Marquardt, and then exchanged in rounds: drop a few that contribute little,
grow others on what is left, move all, keep what is better.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relunorm.clock import INTERRUPTED, NO_LIMIT, TIME_LIMIT, Clock
from relunorm.errors import InvalidInputError
from relunorm.train.holdout import SHARE, Clean, decide, spent_patience, watching
from relunorm.train.problem.layered import live_thresholds
from relunorm.train.problem.levenberg_marquardt import minimize
from relunorm.train.problem.one_layer import Bounds, ShallowProblem
from relunorm.train.problem.task import Fit, Penalty, Task, assemble

#: Candidates sampled per greedy run, rows they are scored on, exchanges tried per round.
CANDIDATES, SCORED_ROWS, EXCHANGES = 300, 4000, 4


def solve_greedy(task: Task) -> Fit:
    """A shallow network by greedy growth, joint refinement and exchange of units.

    An estimate (local search). Cost per round about O(n (K d)^2); no cost grows faster than the
    rows. Without ``alpha`` the penalty is chosen by hold-out.
    """
    if len(task.hidden) != 1:
        raise InvalidInputError(
            f"solver 'greedy' fits one hidden layer, but hidden={task.hidden}; use solver='deep'"
        )
    units = min(_free_units(task), max(1, len(task.x) // 2))
    task, stopped = decide(task, _predictions, Clean(), slopes=True)
    search = _Search(task, units)
    search.stopped = stopped
    try:
        task.report("penalty", 0.2, float("nan"))
        search.start()
        search.run()
    except KeyboardInterrupt:
        search.interrupt()
    return search.fit()


def _free_units(task: Task) -> int:
    """Units that are not spent on the affine part; without a skip it takes d + 1 (2.10)."""
    spent = 0 if task.skip else task.x.shape[1] + 1
    free = task.hidden[0] - spent
    if free < 1:
        raise InvalidInputError(
            f"hidden={task.hidden[0]} leaves no unit beside the {spent} that carry the affine part "
            f"of {task.x.shape[1]} inputs; use more units, or skip=True"
        )
    return free


def _problem(task: Task, ridge: float | Tensor, affine: float | Tensor) -> ShallowProblem:
    bounds = Bounds.around(task.x, task.constraint or "unit")
    return ShallowProblem(task.x, task.y, bounds, task.weight, ridge, affine)


def _grow(
    task: Task, count: int, stream: torch.Generator, kept=None, until: float = 0.8
) -> tuple[Tensor, Tensor]:
    """Greedy choice, scored on a subsample of the rows where there are many.

    Args:
        until: share of the time limit after which the units that are missing are random ones.
    """
    x, y, root = scored_rows(task.x, task.y, task.weight.sqrt(), stream)
    candidates = CANDIDATES + 2 * count
    return greedy_units(
        x, y, root, count, candidates, stream, kept, task.affine, task.clock.until(until)
    )


def scored_rows(
    x: Tensor, y: Tensor, root: Tensor, stream: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """The rows, or a sample of them where they are more than candidates can be scored on."""
    if len(x) <= SCORED_ROWS:
        return x, y, root
    pick = torch.randint(len(x), (SCORED_ROWS,), generator=stream, device=x.device)
    return x[pick], y[pick], root[pick]


def _predictions(task: Task, tried: tuple[Penalty, ...], x: Tensor) -> Tensor:
    """Held-out predictions of one start refined under every penalty at once.

    One start for every penalty of the affine part: what a free plane leaves is not what a
    penalized one does.
    """
    units = min(_free_units(task), max(1, len(task.x) // 2))
    affine = [penalty.affine for penalty in tried]
    grown = {
        value: _grow(replace(task, affine=value), units, task.generator(5), until=SHARE)
        for value in set(affine)
    }
    ridge = task.x.new_tensor([penalty.alpha for penalty in tried])
    problem = _problem(task, ridge, task.x.new_tensor(affine))
    start = tuple(torch.stack([grown[value][k] for value in affine]) for k in (0, 1))
    found = minimize(problem, start, iterations=6, clock=task.clock.until(SHARE))
    if found.interrupted:
        raise KeyboardInterrupt
    return problem.predict(found.point, x)


class _Search:
    """The best units so far."""

    def __init__(self, task: Task, units: int):
        self.task, self.units = task, units
        self.problem = _problem(task, task.alpha or 0.0, task.affine)
        self.stream = task.generator(6)
        self.curve: list[float] = []
        self.iterations, self.stopped, self.loss = 0, "", float("inf")
        #: Seconds of one step of one member.
        self.pace = 0.0
        self.w = self.b = torch.empty(0)

    def start(self) -> None:
        """Greedy growth and the first refinement."""
        w, b = self._first_units()
        # interrupted before there was any network: a few steps only
        self._refine(w[None], b[None], 3 if self.stopped else 30)

    def _first_units(self) -> tuple[Tensor, Tensor]:
        """Those of the network to go on from, filled up; else all by greedy choice."""
        if self.task.start is None:
            return _grow(self.task, self.units, self.stream)
        device = self.task.x.device
        w, b = (
            torch.from_numpy(part[: self.units]).to(device) for part in self.task.start.layers[0]
        )
        if len(w) < self.units:
            more = _grow(self.task, self.units - len(w), self.stream, (w, b))
            w, b = torch.cat([w, more[0]]), torch.cat([b, more[1]])
        return w, b

    def interrupt(self) -> None:
        """Stop with what there is; if that is nothing, with random live units."""
        self.stopped = INTERRUPTED
        if not self.curve:
            w, b = sample_units(self.task.x, self.units, self.stream)
            self._refine(w[None], b[None], 0)

    def run(self) -> None:
        """Exchange rounds until the rounds or the time are spent.

        Where the penalty leaves the units no say, the usual number of rounds is enough for any
        time limit; and only where time leaves fewer than that, the search was stopped by it.
        """
        usual = 4 if self.w.numel() <= 120 else 2
        rounds = wanted = usual if self.task.rounds is None else self.task.rounds
        has_say = (self.task.alpha or 0.0) < 1
        if self.task.rounds is None and self.task.clock.limited and has_say:
            rounds = 10**9
        for done in range(rounds):
            done_early = self.stopped or spent_patience(self.task)
            if done_early or self.loss <= 1e-14 * self.problem.energy:
                return
            # fewer exchanges where so many could not even take two steps
            left = self.task.clock.left()
            members = int(min(EXCHANGES, left / (3 * self.pace)))
            if members < 1:
                self.stopped = TIME_LIMIT if done < wanted else ""
                return
            starts = [self._exchange() for _ in range(members)]
            self._refine(
                torch.stack([s[0] for s in starts]), torch.stack([s[1] for s in starts]), 15
            )
            share = float("nan") if rounds > 1e6 else (done + 1) / rounds
            self.task.report("exchange", share, self.curve[-1])

    def _refine(self, w: Tensor, b: Tensor, iterations: int) -> None:
        b = self.problem.bounds.clip(w, b)
        clock = Clock(self.task.clock)
        found = minimize(
            self.problem,
            (w, b),
            iterations=iterations,
            clock=clock,
            watch=watching(self.task, self.problem),
        )
        self.pace = (clock.elapsed() + 1e-9) / (len(w) * (found.iterations + 1))
        self.iterations += found.iterations
        if found.interrupted:
            self.stopped = INTERRUPTED
        best = int(found.loss.argmin())
        if float(found.loss[best]) < self.loss or not self.curve:
            self.loss = float(found.loss[best])
            self.w, self.b = found.point[0][best], found.point[1][best]
        self.curve.append(self.loss / float(self.task.weight.sum()))

    def _exchange(self) -> tuple[Tensor, Tensor]:
        """Drop a few units, rather those that contribute little, and grow as many others."""
        most = max(1, min(6, self.units // 2))
        count = 1 + int(torch.randint(most, (), generator=self.stream, device=self.w.device))
        share = self.problem.contributions((self.w[None], self.b[None]))[0]
        odds = 1 / (share + 0.1 * share.median() + 1e-300)
        drop = torch.multinomial(odds / odds.amax(), count, generator=self.stream)
        keep = torch.ones(self.units, dtype=torch.bool, device=self.w.device)
        keep[drop] = False
        kept = self.w[keep], self.b[keep]
        w, b = _grow(self.task, count, self.stream, kept)
        return torch.cat([kept[0], w]), torch.cat([kept[1], b])

    def fit(self) -> Fit:
        """The answer, every unit live, with the affine part as units where there is no skip.

        A unit may leave the data, though not their box, while others gain. Back among the rows it
        cannot raise the penalized loss, whatever it does there: its weight is fitted anew.
        """
        if self.task.watch is not None and self.task.watch.best is not None:
            self.w, self.b = (part[0] for part in self.task.watch.best)
        self.b = revived(self.task.x, self.w, self.b, self.stream)
        weights, loss = self.problem.output((self.w[None], self.b[None]))
        table, layer = weights[0], (self.w, self.b)
        if not self.task.skip:
            table, layer = _affine_as_units(table, layer, self.problem.bounds)
        return assemble(
            [layer],
            table,
            self.task,
            float(loss[0]),
            curve=self.curve,
            iterations=self.iterations,
            alpha=float(self.task.alpha or 0.0),
            affine=self.task.affine,
            stopped=self.stopped,
        )


def _affine_as_units(
    table: Tensor, layer: tuple[Tensor, Tensor], bounds: Bounds
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """a + S x on the box as d + 1 always-active units and no bias.

    With directions e_1, .., e_d and -(1, .., 1)/sqrt(d) and thresholds at the end of their
    interval the d + 1 affine functions are independent, so they span all of them.
    """
    w, b = layer
    d = w.shape[1]
    spread = torch.cat([torch.eye(d, dtype=w.dtype, device=w.device), -w.new_ones(1, d) / d**0.5])
    tight = Bounds("tight", bounds.center, bounds.halfwidth.clamp_min(1e-3))
    top = tight.interval(spread)[1]
    # column k of `span` holds unit k as (constant, slopes)
    span = torch.cat([top[:, None], spread], dim=1).mT
    extra = torch.linalg.solve(span, table[: 1 + d])
    weights = torch.cat([torch.zeros_like(table[:1]), table[1 + d :], extra])
    return weights, (torch.cat([w, spread]), torch.cat([b, top]))


def sample_units(x: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random live units: directions uniform on the sphere, hyperplanes between two data points.

    b = -w . x for a random x on the segment between two rows, which the unit then tells apart.
    Where the two rows project to the same value the unit might be active on no row; its threshold
    is then that of `live_thresholds`. Only where no two rows differ a unit cannot be live.

    Args:
        x: (n, d) inputs.

    Returns:
        w (count, d) of unit rows, b (count,).
    """
    options = {"generator": generator, "device": x.device, "dtype": x.dtype}
    w = torch.randn(count, x.shape[1], **options)
    w = w / w.norm(dim=1, keepdim=True).clamp_min(1e-300)
    first = torch.randint(len(x), (count,), generator=generator, device=x.device)
    second = torch.randint(len(x), (count,), generator=generator, device=x.device)
    mix = torch.rand(count, 1, **options)
    anchor = mix * x[first] + (1 - mix) * x[second]
    return w, revived(x, w, -(w * anchor).sum(dim=1), generator)


def revived(x: Tensor, w: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """The thresholds b, those of units that no row activates replaced by live ones.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> w, b = torch.ones(2, 1), torch.tensor([-3.0, -1.0])
    >>> revived(x, w, b, torch.Generator().manual_seed(0)) > -3
    tensor([True, True])
    """
    z = x @ w.mT
    size = x.norm(dim=1).amax()
    # a unit that is active by rounding alone is dead
    dead = (z + b).amax(dim=0) <= 64 * torch.finfo(x.dtype).eps * size
    if not bool(dead.any()):
        return b
    live = b.clone()
    live[dead] = live_thresholds(z[:, dead], size, generator)
    return live


class Deflated:
    """Candidate features kept orthogonal to everything chosen so far.

    Args:
        columns: (n, N) candidate features, weighted by the root of the row weights; overwritten.
        basis: (n, q) columns that are always there (1, x, kept units).
        target: (n, m) weighted targets.
    """

    def __init__(self, columns: Tensor, basis: Tensor, target: Tensor):
        q, r = torch.linalg.qr(basis)
        size = r.diagonal().abs()
        q = q[:, size > 1e-10 * size.max()]
        self.columns = columns
        self.norms = columns.square().sum(dim=0)
        self.columns -= q @ (q.mT @ columns)
        self.residual = target - q @ (q.mT @ target)

    def best(self) -> int:
        """The candidate whose addition lowers the squared error most; -1 if none helps."""
        left = self.columns.square().sum(dim=0)
        # a candidate within rounding of the chosen span has no direction of its own
        sound = left > 1e-8 * self.norms
        gain = (self.residual.mT @ self.columns).square().sum(dim=0) / left.clamp_min(1e-300)
        gain = torch.where(sound, gain, -1.0)
        at = int(gain.argmax())
        return at if float(gain[at]) > 0 else -1

    def choose(self, at: int) -> None:
        """Take a candidate: deflate the residual and all candidates by it."""
        direction = self.columns[:, at] / self.columns[:, at].norm()
        self.residual -= torch.outer(direction, direction @ self.residual)
        self.columns -= torch.outer(direction, direction @ self.columns)


def greedy_units(
    x: Tensor,
    y: Tensor,
    root: Tensor,
    count: int,
    candidates: int,
    generator: torch.Generator,
    kept: tuple[Tensor, Tensor] | None = None,
    affine: float = 0.0,
    clock: Clock = NO_LIMIT,
) -> tuple[Tensor, Tensor]:
    """``count`` units added one by one to ``kept`` and the affine part; cost O(n N count).

    Args:
        x, y: (n, d) and (n, m).
        root: (n,) square roots of the row weights.
        kept: units (w, b) that stay.
        affine: penalty affine * sum(weight) * |S|^2 on the slopes of the affine part.
        clock: no unit is looked for after its end.

    Returns:
        w (count, d), b (count,): fewer distinct gains than ``count`` are filled with random units,
        live like the others.
    """
    w, b = sample_units(x, candidates, generator)
    column = root[:, None]
    affine *= float(root.square().sum())
    basis = torch.cat([torch.ones_like(column), x], dim=1)
    if kept is not None:
        basis = torch.cat([basis, (x @ kept[0].mT + kept[1]).clamp_min(0)], dim=1)
    parts = (x @ w.mT + b).clamp_min(0) * column, basis * column, y * column
    pool = Deflated(*(_with_slopes(parts, x.shape[1], affine) if affine else parts))
    chosen: list[int] = []
    while len(chosen) < count and not clock.expired() and (at := pool.best()) >= 0:
        pool.choose(at)
        chosen.append(at)
    if len(chosen) < count:
        taken = set(chosen)
        chosen += [i for i in range(candidates) if i not in taken][: count - len(chosen)]
    return w[chosen], b[chosen]


def _with_slopes(
    parts: tuple[Tensor, Tensor, Tensor], slopes: int, ridge: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Least squares with ridge |S|^2 as plain least squares: one further row for each slope."""
    columns, basis, target = (torch.cat([p, p.new_zeros(slopes, p.shape[1])]) for p in parts)
    basis[-slopes:, 1 : 1 + slopes] = ridge**0.5 * torch.eye(
        slopes, dtype=basis.dtype, device=basis.device
    )
    return columns, basis, target
