"""Solver ``adam``: mini-batches for large data, any depth, memory bounded by the data itself.

Live start, unit rows kept by stepping in the tangent space and normalizing (the same path as the
parametrization w = u/|u| with |u| = 1), thresholds clipped into the support interval of what the
layer can receive, forward and backward passes written out, and at the end the output layer by least
squares over the rows (some hundred per unknown of them, evenly spread). With few rows per input the
rows held out also choose the penalties of that last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from relunorm.clock import TIME_LIMIT
from relunorm.train.holdout import CAUTIOUS, affine_ridge, ladder, spent_patience, strongest
from relunorm.train.problem.layered import live_start, revived_layers
from relunorm.train.problem.one_layer import ridge_diagonal, ridge_table
from relunorm.train.problem.task import Fit, Penalty, Task, assemble, row_losses
from relunorm.train.solve.logistic import stretch_of

#: Updates that the default number of epochs aims at, and how often thresholds are clipped.
UPDATES, CLIP_EVERY = 12_000, 16

#: Rows that the last least squares uses at most, also per unknown, and how many at a time.
FINISH_ROWS, FINISH_SHARE, SLICE = 100_000, 500, 8192


def solve_adam(task: Task, calibrate: bool = True) -> Fit:
    """Mini-batch Adam (Kingma & Ba 2015) with cosine decay in float32, best epoch by hold-out.

    Options: ``batch`` rows per update, ``epochs``, ``lr``. ``rounds`` is not used: one start. An
    estimate. The output layer at the end is optimal for the hidden layers found; that of a
    classifier is the trained one, stretched as the held-out rows ask for.
    """
    trainer = _Trainer(task)
    stopped = ""
    try:
        stopped = trainer.run()
    except KeyboardInterrupt:
        stopped = "interrupted"
    try:
        hidden, weights, loss = trainer.finish()
    except KeyboardInterrupt:
        # what was trained is not thrown away: the last step is done again
        stopped = "interrupted"
        hidden, weights, loss = trainer.finish()
    stretch = trainer.stretch() if task.logistic and calibrate else 1.0
    return assemble(
        hidden,
        stretch * weights,
        task,
        loss,
        curve=trainer.curve,
        iterations=max(1, trainer.updates),
        alpha=trainer.penalty.alpha,
        affine=trainer.penalty.affine,
        stopped=stopped,
        facts={"epochs": len(trainer.curve), "batch": trainer.batch, "stretch": stretch},
    )


class _Trainer:
    """Parameters in one flat buffer, so that one update is a handful of kernels."""

    def __init__(self, task: Task):
        self.task, n = task, len(task.x)
        self.batch = int(task.options.get("batch", min(1024, max(16, n // 50))))
        steps = math.ceil(n / self.batch)
        self.epochs = int(task.options.get("epochs", max(3, min(400, round(UPDATES / steps)))))
        self.lr = float(task.options.get("lr", 3e-3))
        self.penalty = self._first_penalty()
        self.open = task.alpha is None and not task.logistic and self.penalty.affine > 0
        stream = task.generator(8)
        self.stream = stream
        self.x, self.y = task.x.float(), task.y.float()
        weight = task.weight / task.weight.mean()
        self.weight = None if bool((weight == 1).all()) else weight.float()[:, None]
        self._allocate(self._first_layers())
        held = min(n // (5 if self.open else 10), 20_000)
        order = torch.randperm(n, generator=stream, device=self.x.device)
        self.held, self.kept = order[:held], order[held:]
        self.curve: list[float] = []
        self.updates, self.best = 0, float("inf")
        self.saved = self.flat.clone()

    def _first_penalty(self) -> Penalty:
        """What the updates use: the units' penalty matters at the end only, the slopes' always."""
        task, n = self.task, len(self.task.x)
        if task.alpha is not None:
            return Penalty(task.alpha, task.affine)
        if task.logistic:
            return Penalty(1e-5)
        affine = affine_ridge(task.x, task.y, task.weight) if task.skip else 0.0
        return Penalty(CAUTIOUS if n < 50 else 1e-6, affine)

    def _first_layers(self) -> tuple[Tensor, ...]:
        """The network to go on from, or live units."""
        task = self.task
        if task.start is None:
            return live_start(task.x[:4096].double(), task.hidden, 1, self.stream)
        return tuple(torch.from_numpy(part)[None] for pair in task.start.layers for part in pair)

    def _allocate(self, start: tuple[Tensor, ...]) -> None:
        m, d = self.y.shape[1], self.x.shape[1]
        last = start[-1].shape[1]
        shapes = [part.shape[1:] for part in start] + [(m, last), (m, d * self.task.skip), (m,)]
        sizes = [math.prod(shape) for shape in shapes]
        self.flat = self.x.new_zeros(sum(sizes))
        self.gradient = torch.zeros_like(self.flat)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)

        def views(flat: Tensor) -> list[Tensor]:
            parts = flat.split(sizes)
            return [p.view(shape) for p, shape in zip(parts, shapes, strict=True)]

        *self.hidden, self.v, self.s, self.c = views(self.flat)
        *self.ghidden, self.gv, self.gs, self.gc = views(self.gradient)
        for part, given in zip(self.hidden, start, strict=True):
            part.copy_(given[0])
        if self.task.start is not None:
            head = self.task.start
            self.v.copy_(torch.from_numpy(head.output))
            self.c.copy_(torch.from_numpy(head.bias))
            if self.task.skip:
                self.s.copy_(torch.from_numpy(head.skip))
        self.low, self.high = torch.aminmax(self.x, dim=0)

    def run(self) -> str:
        """All epochs, or until the time is spent; returns why it stopped early."""
        steps = math.ceil(len(self.kept) / self.batch)
        total = steps * self.epochs
        for epoch in range(self.epochs):
            order = self._epoch()
            for at in range(0, len(order), self.batch):
                self._update(order[at : at + self.batch], self.updates / total)
                if self.updates % CLIP_EVERY == 0:
                    self._constrain()
                    if self.task.spent:
                        self._score(epoch)
                        return TIME_LIMIT
            self._constrain()
            self._score(epoch)
            if spent_patience(self.task):
                break
        return ""

    def _epoch(self) -> Tensor:
        """The rows of one epoch in random order, each as often as its weight says.

        Weights w_i become floor or ceil of n w_i / sum(w) copies (systematic resampling), as if the
        table itself held the copies. Weights on the gradients have the same mean, but a heavy row
        that is met once an epoch throws Adam's running moments off.
        """
        n, device = len(self.kept), self.x.device
        order = torch.randperm(n, generator=self.stream, device=device)
        if self.weight is None:
            return self.kept[order]
        bounds = self.weight[self.kept, 0].double().cumsum(0)
        offset = torch.rand(1, generator=self.stream, device=device, dtype=torch.float64)
        marks = (torch.arange(n, device=device) + offset) * (bounds[-1] / n)
        drawn = torch.searchsorted(bounds, marks, right=True).clamp_max(n - 1)
        return self.kept[drawn[order]]

    def _score(self, epoch: int) -> None:
        if self.task.watch is not None:
            watch = self.task.watch
            watch.look(None, self._forward(watch.x.float())[1].to(watch.y.dtype))
            loss = watch.curve[-1]
        else:
            rows = self.held if len(self.held) else self.kept
            outputs = self._forward(self.x[rows])[1]
            losses = row_losses(outputs, self.y[rows], self.task.logistic)[:, None]
            loss = float((losses if self.weight is None else losses * self.weight[rows]).mean())
        self.curve.append(loss)
        if loss < self.best:
            self.best = loss
            self.saved.copy_(self.flat)
        self.task.report("epochs", (epoch + 1) / self.epochs, self.best)

    def _forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        values = [x]
        for w, b in zip(self.hidden[::2], self.hidden[1::2], strict=True):
            values.append(torch.addmm(b, values[-1], w.mT).relu_())
        output = torch.addmm(self.c, values[-1], self.v.mT)
        if self.task.skip:
            output.addmm_(x, self.s.mT)
        return values, output

    def _update(self, rows: Tensor, share: float) -> None:
        values, output = self._forward(self.x[rows])
        signal = self._signal(output, self.y[rows]).mul_(1.0 / len(rows))
        torch.mm(signal.mT, values[-1], out=self.gv)
        if self.task.logistic:
            self.gv.add_(self.v, alpha=2 * self.penalty.alpha)
        torch.sum(signal, 0, out=self.gc)
        if self.task.skip:
            torch.mm(signal.mT, values[0], out=self.gs)
            if self.penalty.affine:
                self.gs.add_(self.s, alpha=2 * self.penalty.affine)
        upstream = signal @ self.v
        for index in range(len(self.hidden) - 2, -1, -2):
            w = self.hidden[index]
            upstream.mul_(values[index // 2 + 1] > 0)
            gw = self.ghidden[index]
            torch.mm(upstream.mT, values[index // 2], out=gw)
            torch.sum(upstream, 0, out=self.ghidden[index + 1])
            if index:
                upstream = upstream @ w
            if self.task.constraint is not None:
                gw.addcmul_((gw * w).sum(dim=1, keepdim=True), w, value=-1)
        self.updates += 1
        rate = self.lr * 0.5 * (1 + math.cos(math.pi * min(share, 1.0))) + 1e-2 * self.lr
        t = self.updates
        self.first.lerp_(self.gradient, 0.1)
        self.second.mul_(0.999).addcmul_(self.gradient, self.gradient, value=1e-3)
        spread = self.second.sqrt().mul_(1 / math.sqrt(1 - 0.999**t)).add_(1e-8)
        self.flat.addcdiv_(self.first, spread, value=-rate / (1 - 0.9**t))

    def _signal(self, output: Tensor, y: Tensor) -> Tensor:
        """Derivative of a row's loss by its outputs."""
        if not self.task.logistic:
            return output.sub_(y).mul_(2.0)
        chance = output.sigmoid_() if y.shape[1] == 1 else output.softmax(dim=1)
        return chance.sub_(y)

    def _constrain(self) -> None:
        """Unit rows; thresholds into the support interval of the box the layer receives."""
        kind = self.task.constraint
        if kind is None:
            return
        low, high = self.low, self.high
        for w, b in zip(self.hidden[::2], self.hidden[1::2], strict=True):
            w /= w.norm(dim=1, keepdim=True).clamp_min(1e-30)
            middle, reach = w @ ((low + high) / 2), w.abs() @ ((high - low) / 2)
            if kind == "tight":
                b.copy_(torch.minimum(torch.maximum(b, -middle - reach), reach - middle))
            elif kind == "bounded":
                radius = float(torch.maximum(low.abs(), high.abs()).norm())
                b.clamp_(-radius, radius)
            low = (middle - reach + b).clamp_min(0)
            high = (middle + reach + b).clamp_min(0)

    def finish(self) -> tuple[list[tuple[Tensor, Tensor]], Tensor, float]:
        """The best epoch's hidden layers in float64, the output layer by least squares."""
        if self.curve:
            self.flat.copy_(self.saved)
        self._constrain()
        hidden = [part.double() for part in self.hidden]
        if self.task.constraint is not None:
            hidden[::2] = [w / w.norm(dim=1, keepdim=True).clamp_min(1e-30) for w in hidden[::2]]
        pairs = list(zip(hidden[::2], hidden[1::2], strict=True))
        if self.task.logistic:
            weights = torch.cat([self.c[None], self.s.mT, self.v.mT]).double()
            return pairs, weights, self.best * float(self.task.weight.sum())
        if self.task.constraint == "tight":
            # the rows are float32: less activity than its rounding is none
            pairs = revived_layers(pairs, self.task.x, self.task.generator(99), 1e-6)
        if self.open and len(self.held):
            self.penalty = self._choose(pairs)
        slices = range(0, len(self.task.x), SLICE)
        unknowns = 1 + self.x.shape[1] * self.task.skip + len(pairs[-1][1])
        stride = max(1, len(slices) * SLICE // max(FINISH_ROWS, FINISH_SHARE * unknowns))
        gram = self._accumulate(pairs, [slice(at, at + SLICE) for at in slices[::stride]])
        weights = self._output(gram, self.penalty)
        q = len(weights)
        inner, target = gram[:q, :q], gram[:q, q:]
        fit = float((weights * (inner @ weights - 2 * target)).sum() + gram.diagonal()[q:].sum())
        return pairs, weights, max(fit, 0.0) * float(self.task.weight.sum() / inner[0, 0])

    def stretch(self) -> float:
        """What held-out rows want the outputs multiplied by, to be log-odds."""
        watch, rows = self.task.watch, self.held
        x, y = (self.x[rows], self.y[rows]) if watch is None else (watch.x.float(), watch.y)
        weight = self.task.weight[rows] if watch is None else watch.weight
        if not len(x):
            return 1.0
        outputs = self._forward(x)[1]
        return stretch_of(*(part.double().cpu().numpy() for part in (outputs, y, weight)))

    def _choose(self, pairs: list[tuple[Tensor, Tensor]]) -> Penalty:
        """The penalty of the output layer on the kept rows that suits the rows held out."""
        tried = ladder(self.penalty.affine, len(self.kept), self.x.shape[1])
        gram = self._accumulate(pairs, list(self.kept.split(SLICE)))
        block, m = self._block(pairs, self.held), self.y.shape[1]
        errors = [
            (block[:, :-m] @ self._output(gram, penalty) - block[:, -m:]).square().mean(dim=1)
            for penalty in tried
        ]
        return tried[strongest(torch.stack(errors) * self.task.weight[self.held])]

    def _output(self, gram: Tensor, penalty: Penalty) -> Tensor:
        """The output layer (q, m), rows (a, [S], c), that is best for the features' Gram matrix."""
        q, slopes = gram.shape[0] - self.y.shape[1], self.x.shape[1] * self.task.skip
        inner = gram[:q, :q]
        table = ridge_table(inner[0, 0], penalty.alpha, penalty.affine)
        ridge = ridge_diagonal(table, slopes, q - 1 - slopes)
        ridge = ridge + 1e-12 * inner.diagonal().amax()
        return torch.linalg.solve(inner + torch.diag(ridge), gram[:q, q:])

    def _accumulate(
        self, pairs: list[tuple[Tensor, Tensor]], parts: Sequence[slice | Tensor]
    ) -> Tensor:
        """Gram matrix of [1, x, last hidden layer, y], summed over parts of the rows."""
        total = None
        for rows in parts:
            block = self._block(pairs, rows)
            part = (block * self.task.weight[rows, None]).mT @ block
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    def _block(self, pairs: list[tuple[Tensor, Tensor]], rows: slice | Tensor) -> Tensor:
        x, y = self.task.x[rows].double(), self.task.y[rows].double()
        h = x
        for w, b in pairs:
            h = torch.addmm(b, h, w.mT).clamp_min_(0)
        return torch.cat([torch.ones_like(x[:, :1]), *([x] if self.task.skip else []), h, y], dim=1)
