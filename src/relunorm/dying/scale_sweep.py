"""Figure 1 of seed 002 as one batched training: data sets x gamma x delta x optimizers x seeds.

All members are trained together on one `Ensemble`, with inputs padded by zero
columns to one width. A seed fixes a member's initial weights and its batches, which do not depend
on gamma, delta or the optimizer, on the device, or on where a run was interrupted: the batches of
each stretch of updates come from their own generator.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relunorm.clock import Clock, Listener, Teller
from relunorm.display.shown import plain
from relunorm.dying.ensemble import Ensemble
from relunorm.errors import InvalidInputError

#: Updates whose batches are drawn at once; checkpoints fall on multiples.
STRETCH = 100
#: Members trained in one piece on a CPU: fewer wait for calls, more for memory.
CACHED = 20


@dataclass(frozen=True)
class Rule:
    """An optimizer of the sweep. Momentum is that of eq. (6): m <- beta m + (1 - beta) g."""

    name: str
    method: str  # "adam" or "momentum"
    lr: float
    beta1: float


#: Adam as Kingma and Ba suggest, the same without momentum, and gradient descent.
RULES = (
    Rule("adam", "adam", 1e-3, 0.9),
    Rule("adam beta1=0", "adam", 1e-3, 0.0),
    Rule("sgd", "momentum", 1e-2, 0.0),
    Rule("sgd momentum 0.9", "momentum", 1e-2, 0.9),
    Rule("sgd momentum 0.99", "momentum", 1e-2, 0.99),
)
GAMMAS = tuple(10.0**k for k in range(-4, 3))


Member = tuple[str, float, float, Rule, int]


@dataclass(frozen=True)
class Plan:
    """What to train."""

    data: tuple[str, ...]
    gammas: tuple[float, ...] = GAMMAS
    deltas: tuple[float, ...] = (0.0,)
    rules: tuple[Rule, ...] = RULES
    seeds: tuple[int, ...] = tuple(range(8))
    hidden: int = 200
    batch: int = 64
    updates: int = 250_000

    @property
    def members(self) -> list[Member]:
        """Every run: (data set, gamma, delta, rule, seed)."""
        return [
            (d, g, shift, r, s)
            for d in self.data
            for g in self.gammas
            for shift in self.deltas
            for r in self.rules
            for s in self.seeds
        ]


@dataclass(frozen=True, repr=False)
class SweepResult:
    """One row per run: data, gamma, delta, rule, seed, mse (in units of gamma^2), dead share."""

    plan: Plan
    updates: int
    rows: tuple[tuple[Any, ...], ...]
    seconds: float = field(compare=False)

    COLUMNS = ("data", "gamma", "delta", "optimizer", "seed", "mse", "dead", "failed")

    def mean(self, what: str = "dead", **where: Any) -> float:
        """The mean of ``dead`` or ``mse`` over the rows that match, for example gamma=1e-4."""
        at = self.COLUMNS.index(what)
        names = {name: self.COLUMNS.index(name) for name in where}
        picked = [row[at] for row in self.rows if all(row[k] == where[n] for n, k in names.items())]
        if not picked:
            raise InvalidInputError(f"no run matches {where}")
        return float(np.mean(picked))

    def __repr__(self) -> str:
        return f"SweepResult({len(self.rows)} runs, {self.updates} updates, {self.seconds:.1f} s)"

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.dying.scale_sweep/1",
            "plan": asdict(self.plan),
            "updates": self.updates,
            "columns": list(self.COLUMNS),
            "rows": plain(self.rows),
            "seconds": self.seconds,
        }


class Sweep:
    """The training behind figure 1, in pieces that can be stopped, saved and taken up again.

    Args:
        plan: the grid. tables: name -> (x, y), raw; inputs and targets are standardised here.
        device: ``cpu`` or ``cuda``; on cuda a step is captured in a graph.
        checkpoint: file to save to and to resume from. every: updates between saves.
    """

    def __init__(
        self,
        plan: Plan,
        tables: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
        *,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        every: int = 5000,
    ):
        _check(plan, tables, every)
        self.plan, self.device = plan, torch.device(device)
        self.checkpoint = Path(checkpoint) if checkpoint is not None else None
        self.every = max(STRETCH, every // STRETCH * STRETCH)
        self.done = 0
        self.seconds = 0.0
        self._load(tables)
        self.parts = self._parts()
        self.key = self._key()
        if self.checkpoint is not None and self.checkpoint.exists():
            self._resume()

    def _parts(self) -> list[_Part]:
        """One ensemble per kind of update on a GPU; on a CPU, pieces whose values stay in cache."""
        parts = []
        for method in ("adam", "momentum"):
            members = [m for m in self.plan.members if m[3].method == method]
            size = len(members) if self.device.type == "cuda" else CACHED
            parts += [
                _Part(self, method, members[at : at + size])
                for at in range(0, len(members), size or 1)
            ]
        return parts

    def _load(self, tables: dict[str, Any]) -> None:
        self.rows: dict[str, tuple[int, int]] = {}
        xs, ys, start = [], [], 0
        self.widths = {name: np.shape(tables[name][0])[1] for name in self.plan.data}
        width = max(self.widths.values())
        for name in self.plan.data:
            x, y = (np.asarray(v, dtype=np.float64) for v in tables[name])
            spread = x.std(0)
            x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
            y = (y - y.mean()) / (y.std() or 1.0)
            xs.append(np.pad(x, ((0, 0), (0, width - x.shape[1]))))
            ys.append(y)
            self.rows[name] = (start, len(x))
            start += len(x)
        kind = {"dtype": torch.float32, "device": self.device}
        self.x = torch.as_tensor(np.concatenate(xs), **kind)
        self.y = torch.as_tensor(np.concatenate(ys), **kind)[:, None]

    def _key(self) -> str:
        """Identifies plan and data, so that a checkpoint of another run is refused."""
        text = json.dumps(asdict(self.plan), sort_keys=True).encode()
        body = hashlib.sha256(text)
        for part in (self.x, self.y):
            body.update(f"{tuple(part.shape)}".encode())
            body.update(part.cpu().numpy().tobytes())
        return body.hexdigest()

    def run(
        self, progress: Listener | None = None, time_limit: float | Clock | None = None
    ) -> SweepResult:
        """Train to the plan's end, or until the time is up or an interrupt comes; keeps the state.

        ``progress`` is called with a `Progress` of the updates.
        """
        clock, first = Clock(time_limit), self.done
        tell = Teller(progress, clock)
        try:
            while self.done < self.plan.updates:
                self._stretch()
                tell("updates", self.done, self.plan.updates, begun=first)
                if self.checkpoint is not None and self.done % self.every == 0:
                    self.save()
                if clock.expired():
                    break
        except KeyboardInterrupt:
            pass
        self.seconds += clock.elapsed()
        if self.checkpoint is not None:
            self.save()
        return self.result()

    def _stretch(self) -> None:
        count = min(STRETCH, self.plan.updates - self.done)
        picks = self._picks(self.done // STRETCH)
        for part in self.parts:
            part.advance(picks, count)
        self.done += count

    def _picks(self, stretch: int) -> Tensor:
        """Row numbers (STRETCH, data sets x seeds, batch): a generator per seed and stretch."""
        groups = []
        for k, name in enumerate(self.plan.data):
            start, count = self.rows[name]
            for seed in self.plan.seeds:
                rng = np.random.default_rng([seed, k, stretch, 1])
                groups.append(start + rng.integers(0, count, (STRETCH, self.plan.batch)))
        return torch.as_tensor(np.stack(groups, axis=1)).to(self.device)

    def result(self) -> SweepResult:
        """Error and dead share of every run on its whole training set, as the paper evaluates."""
        found: dict[tuple[Any, ...], tuple[float, float, bool]] = {}
        for part in self.parts:
            found.update(part.evaluate())
        rows = []
        for member in self.plan.members:
            name, gamma, delta, rule, seed = member
            mse, dead, failed = found[member]
            rows.append((name, gamma, delta, rule.name, seed, mse, dead, failed))
        return SweepResult(self.plan, self.done, tuple(rows), self.seconds)

    def save(self) -> None:
        """Write the whole state, atomically: a kill leaves the old or the new file, never half."""
        from relunorm.atomic import atomic_path

        assert self.checkpoint is not None
        state = {
            "key": self.key,
            "done": self.done,
            "seconds": self.seconds,
            "parts": [part.ensemble.state_dict() for part in self.parts],
        }
        with atomic_path(self.checkpoint) as path:
            torch.save(state, path)

    def _resume(self) -> None:
        assert self.checkpoint is not None
        try:
            state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise InvalidInputError(
                f"{self.checkpoint} is no checkpoint that can be read ({type(error).__name__}); "
                "remove it or name another file"
            ) from None
        if not isinstance(state, dict) or state.get("key") != self.key:
            raise InvalidInputError(
                f"{self.checkpoint}: a checkpoint of another sweep (other plan or data); remove it "
                "or name another file"
            )
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.ensemble.load_state_dict(saved)
        self.done, self.seconds = int(state["done"]), float(state["seconds"])


class _Part:
    """The members that share an update rule's form, as one ensemble."""

    def __init__(self, sweep: Sweep, method: str, members: list[Member]):
        self.sweep, self.members = sweep, members
        plan = sweep.plan
        groups = {(d, s): i for i, (d, s) in enumerate(
            (d, s) for d in plan.data for s in plan.seeds)}  # fmt: skip
        device = sweep.device
        self.group = torch.tensor([groups[m[0], m[4]] for m in self.members], device=device)
        rules = [m[3] for m in self.members]
        # Ensemble's momentum is v <- beta v + g; eq. (6) has (1 - beta) g.
        damp = [1 - r.beta1 if method == "momentum" else 1.0 for r in rules]
        own = {
            "lr": [r.lr * k for r, k in zip(rules, damp, strict=True)],
            "beta1": [r.beta1 for r in rules],
            "gamma": [m[1] for m in self.members],
            "delta": [m[2] for m in self.members],
        }
        self.ensemble = Ensemble(
            sweep.x.shape[1], plan.hidden, "adam" if method == "adam" else "momentum",
            **{name: torch.tensor(values, device=device) for name, values in own.items()},
        )  # fmt: skip
        self._initialize()
        self.pick = torch.zeros(STRETCH, len(groups), plan.batch, dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self._replay: Callable[[], None] | None = None

    def _initialize(self) -> None:
        """Uniform within 1/sqrt(fan-in) of the unpadded layer, one draw per data set and seed."""
        plan, hidden = self.sweep.plan, self.sweep.plan.hidden
        made: dict[tuple[str, int], list[Tensor]] = {}
        for k, name in enumerate(plan.data):
            d = self.sweep.widths[name]
            for seed in plan.seeds:
                rng = np.random.default_rng([seed, k, 0])
                shapes = ((hidden, d), (hidden,), (1, hidden), (1,))
                bounds = (d, d, hidden, hidden)
                made[name, seed] = [
                    torch.as_tensor(rng.uniform(-1, 1, s) / math.sqrt(f), dtype=torch.float32)
                    for s, f in zip(shapes, bounds, strict=True)
                ]
        w, b, v, c = self.ensemble.views()
        for i, member in enumerate(self.members):
            own = made[member[0], member[4]]
            w[i, :, : own[0].shape[1]] = own[0]
            b[i], v[i], c[i] = own[1], own[2], own[3]

    def _once(self) -> None:
        rows = self.pick.index_select(0, self.at)[0].index_select(0, self.group)
        self.ensemble.step(self.sweep.x[rows], self.sweep.y[rows])
        self.at += 1

    def advance(self, picks: Tensor, count: int) -> None:
        """``count`` updates on the given batches."""
        self.pick.copy_(picks)
        self.at.zero_()
        if self.sweep.device.type != "cuda":
            with torch.inference_mode():
                for _ in range(count):
                    self._once()
            return
        for _ in range(count):
            if self._replay is None:
                self._once()
                self._replay = self._capture()
            else:
                self._replay()
                self.ensemble.steps += 1

    def _capture(self) -> Callable[[], None]:
        """One update as a CUDA graph. Capturing records the operations and runs none of them."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        steps = self.ensemble.steps
        with torch.cuda.graph(graph):
            self._once()
        self.ensemble.steps = steps
        return graph.replay

    def evaluate(self) -> dict[tuple[Any, ...], tuple[float, float, bool]]:
        found = {}
        failed = self.ensemble.failed.cpu().numpy()
        for name in self.sweep.plan.data:
            start, count = self.sweep.rows[name]
            mine = [i for i, m in enumerate(self.members) if m[0] == name]
            if not mine:
                continue
            x, y = self.sweep.x[start : start + count], self.sweep.y[start : start + count]
            loss, dead = self._on_rows(mine, x, y)
            for k, i in enumerate(mine):
                found[self.members[i]] = (float(loss[k]), float(dead[k]), bool(failed[i]))
        return found

    def _on_rows(self, mine: list[int], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """MSE over gamma^2 and share of units never active, for members of one data set."""
        w, b, v, c = (part[mine] for part in self.ensemble.views())
        gamma, delta = self.ensemble.gamma[mine, None, None], self.ensemble.delta[mine, None, None]
        alive = torch.zeros(len(mine), w.shape[1], dtype=torch.bool, device=x.device)
        total = torch.zeros(len(mine), dtype=torch.float64, device=x.device)
        step = max(1, (1 << 24) // (len(mine) * w.shape[1]))
        for at in range(0, len(x), step):
            z = torch.baddbmm(b[:, None], x[at : at + step].expand(len(mine), -1, -1), w.mT)
            alive |= (z > 0).any(dim=1)
            error = torch.baddbmm(c[:, None], z.clamp_min(0), v.mT) - delta
            error = error / gamma - y[at : at + step]
            total += error.double().square().sum(dim=(1, 2))
        return total / len(x), (~alive).double().mean(dim=1)


def _check(plan: Plan, tables: dict[str, Any], every: int) -> None:
    missing = [name for name in plan.data if name not in tables]
    if missing or not plan.data:
        raise InvalidInputError(f"no data for {missing or 'an empty list of data sets'}")
    if min(plan.hidden, plan.batch, plan.updates, every) < 1:
        raise InvalidInputError("hidden, batch, updates and every must be at least 1")
    if not plan.seeds or not plan.rules or any(not g > 0 for g in plan.gammas):
        raise InvalidInputError("seeds and rules must not be empty, and every gamma above 0")
    if any(r.method not in ("adam", "momentum") for r in plan.rules):
        raise InvalidInputError("a rule's method is adam or momentum")
    for name in plan.data:
        x, y = np.shape(tables[name][0]), np.shape(tables[name][1])
        if len(x) != 2 or len(y) != 1 or x[0] != y[0] or not x[0]:
            raise InvalidInputError(f"{name}: x has shape {x} and y {y}, expected (n, d) and (n,)")


def by_name(names: Sequence[str]) -> tuple[Rule, ...]:
    """Rules of `RULES` by name."""
    known = {rule.name: rule for rule in RULES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(f"no optimizer {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in names)
