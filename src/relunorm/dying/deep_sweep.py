"""Figure 6 of seed 002: deeper networks at a small target scale, all seeds of a setting together.

One setting (architecture, depth, optimizer) after the other; batches come from a generator per
seed and stretch of updates, so a run that was killed goes on from its checkpoint to the same table.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relunorm.atomic import atomic_path
from relunorm.clock import Clock, Listener, Teller
from relunorm.dying.stacked import Stacked, mlp, residual
from relunorm.dying.target import TargetScaler
from relunorm.dying.watch.monitor import DeadUnitMonitor
from relunorm.errors import InvalidInputError

#: Updates whose batches are drawn at once; checkpoints fall on multiples.
STRETCH = 100
MODELS = {"mlp": mlp, "residual": residual}
Setting = tuple[str, str, int]


@dataclass(frozen=True)
class DeepPlan:
    """What to train: every network kind, optimizer and depth, with every seed."""

    kinds: tuple[str, ...] = ("mlp", "residual")
    optimizers: tuple[str, ...] = ("adam", "sgd")
    depths: tuple[int, ...] = (1, 2, 4, 8)
    seeds: tuple[int, ...] = tuple(range(8))
    width: int = 64
    batch: int = 64
    updates: int = 30_000
    gamma: float = 1e-4

    @property
    def settings(self) -> list[Setting]:
        """(kind, optimizer, depth), in the order of training."""
        return [(k, o, d) for k in self.kinds for o in self.optimizers for d in self.depths]


class DeepSweep:
    """The training behind figure 6.

    Args:
        plan: the grid. x, y: the data, raw; standardised here, the targets to scale gamma.
        device: ``cpu`` or ``cuda``; on cuda an update is captured in a graph.
        checkpoint: file to save to and to resume from. every: updates between saves.
    """

    def __init__(
        self,
        plan: DeepPlan,
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        *,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        every: int = 5000,
    ):
        if min(plan.width, plan.updates, every) < 1 or plan.batch < 2 or not plan.seeds:
            raise InvalidInputError(
                "width, updates and every must be at least 1, batch 2, and seeds not empty"
            )
        self.plan, self.device = plan, torch.device(device)
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.every = max(STRETCH, every // STRETCH * STRETCH)
        x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
        scaled = TargetScaler(plan.gamma).fit_transform(np.asarray(y, dtype=np.float64))
        self.x = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        self.y = torch.as_tensor(scaled, dtype=torch.float32, device=self.device)[:, None]
        self.found: list[tuple[list[float], list[float]]] = []
        self.done, self.state = 0, None
        if self.checkpoint is not None and self.checkpoint.exists():
            self._resume(self.checkpoint)

    def run(
        self, progress: Listener | None = None
    ) -> dict[Setting, tuple[list[float], list[float]]]:
        """Per setting the share of dead units in each seed's worst layer, at the start and end.

        ``progress`` is called with a `Progress` of the updates. An interrupt is passed on after a
        last save.
        """
        settings, each = self.plan.settings, self.plan.updates
        tell, first = Teller(progress, Clock()), len(self.found) * each + self.done
        for setting in settings[len(self.found) :]:
            member = _Training(self, setting)
            if self.state is not None:
                member.load_state_dict(self.state)
            try:
                while self.done < each:
                    self.done += member.advance(self.done)
                    at = len(self.found) * each + self.done
                    tell("updates", at, len(settings) * each, begun=first)
                    if self.done % self.every == 0:
                        self._save(member)
            except KeyboardInterrupt:
                self._save(member)
                raise
            self.found.append((member.born, member.worst(training=False)))
            self.done, self.state = 0, None
        return dict(zip(settings, self.found, strict=True))

    def picks(self, stretch: int) -> Tensor:
        """Row numbers (STRETCH, seeds, batch)."""
        groups = [
            np.random.default_rng([seed, stretch, 6]).integers(
                0, len(self.x), (STRETCH, self.plan.batch)
            )
            for seed in self.plan.seeds
        ]
        return torch.as_tensor(np.stack(groups, axis=1)).to(self.device)

    def _key(self) -> str:
        body = hashlib.sha256(json.dumps(asdict(self.plan), sort_keys=True).encode())
        for part in (self.x, self.y):
            body.update(f"{tuple(part.shape)}".encode())
            body.update(part.cpu().numpy().tobytes())
        return body.hexdigest()

    def _save(self, member: _Training) -> None:
        if self.checkpoint is None:
            return
        state = {
            "key": self._key(),
            "found": self.found,
            "done": self.done,
            "state": member.state_dict(),
        }
        with atomic_path(self.checkpoint) as path:
            torch.save(state, path)

    def _resume(self, path: Path) -> None:
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
        except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise InvalidInputError(
                f"{path} is no checkpoint that can be read ({type(error).__name__}); remove it"
            ) from None
        if not isinstance(state, dict) or state.get("key") != self._key():
            raise InvalidInputError(f"{path}: a checkpoint of another plan or data; remove it")
        self.found, self.done, self.state = state["found"], state["done"], state["state"]


class _Training:
    """All seeds of one setting, as one stack."""

    def __init__(self, sweep: DeepSweep, setting: Setting):
        kind, optimizer, depth = setting
        self.sweep, plan = sweep, sweep.plan
        members = [
            MODELS[kind](sweep.x.shape[1], plan.width, depth, torch.Generator().manual_seed(seed))
            for seed in plan.seeds
        ]
        self.stack = Stacked(members)
        self.born = self.worst(training=True)  # batch norm has no running statistics yet
        self.stack = Stacked(members).to(sweep.device)
        self.parameters = list(self.stack.parameters())
        graph = sweep.device.type == "cuda"
        self.rule: torch.optim.Optimizer = (
            torch.optim.Adam(self.parameters, lr=1e-3, capturable=graph)
            if optimizer == "adam"
            else torch.optim.SGD(self.parameters, lr=1e-2)
        )
        shape = (STRETCH, len(plan.seeds), plan.batch)
        self.pick = torch.zeros(shape, dtype=torch.int64, device=sweep.device)
        self.at = torch.zeros(1, dtype=torch.int64, device=sweep.device)
        self.replay: Callable[[], None] | None = None

    def advance(self, done: int) -> int:
        """A stretch of updates, or what is left of one."""
        count = min(STRETCH, self.sweep.plan.updates - done)
        self.pick.copy_(self.sweep.picks(done // STRETCH))
        self.at.zero_()
        for _ in range(count):
            if self.replay is not None:
                self.replay()
                continue
            self._once()
            if self.sweep.device.type == "cuda":
                self.replay = self._capture()
        return count

    def _once(self) -> None:
        rows = self.pick.index_select(0, self.at)[0]
        loss = (self.stack(self.sweep.x[rows]) - self.sweep.y[rows]).square().mean((1, 2)).sum()
        for parameter, slope in zip(
            self.parameters, torch.autograd.grad(loss, self.parameters), strict=True
        ):
            parameter.grad = slope
        self.rule.step()
        self.at += 1

    def _capture(self) -> Callable[[], None]:
        """One update as a CUDA graph. Capturing records the operations and runs none of them."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._once()
        return graph.replay

    def worst(self, training: bool) -> list[float]:
        """Per seed the largest share of dead units in a layer, on all rows."""
        found = []
        for member in self.stack.unstack():
            found.append(_worst(member.train(training), self.sweep.x.cpu()))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"stack": self.stack.state_dict(), "rule": self.rule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stack.load_state_dict(state["stack"])
        self.rule.load_state_dict(state["rule"])


def _worst(model: nn.Module, x: Tensor) -> float:
    with DeadUnitMonitor(model) as monitor, torch.no_grad():
        model(x)
    return max(float(site.dead.mean()) for site in monitor.report().sites)
