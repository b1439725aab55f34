"""Revival as a callback: watch, and every so many updates bring the dead units back."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from relunorm.batchnorm._arguments import whole_number
from relunorm.dying.init import RandomState, generator
from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.dying.revive import Revival, fresh_units, redo_, revive_live_
from relunorm.errors import InvalidInputError


class Reviver:
    """Calls `redo_` or `revive_live_` every ``every`` updates with a monitor's scores.

    Args:
        rule: ``redo`` (dormant and dead units, drawn anew) or ``live`` (dead units, made active on
            the batch, function kept). Continual backprop has its own class, `ContinualBackprop`.
        every: updates between revivals. until: the last update at which one may happen.
        window: forward passes a unit must be silent for to count as dead.

    Use as a context manager or call `close`; call `step` after every optimizer step.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> _ = model[0].bias.data.fill_(-9.0)
    >>> x, optimizer = torch.rand(32, 2), torch.optim.Adam(model.parameters())
    >>> with Reviver(model, x, optimizer, rule="live", every=5) as reviver:
    ...     for _ in range(5):
    ...         _ = model(x)
    ...         revival = reviver.step()
    >>> revival.count
    8
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        optimizer: Optimizer | None = None,
        *,
        rule: Literal["redo", "live"] = "redo",
        every: int = 1000,
        until: int | None = None,
        window: int = 100,
        tau: float = 0.025,
        random_state: RandomState = 0,
    ):
        if rule not in ("redo", "live"):
            raise InvalidInputError(f"rule {rule!r}: use redo or live")
        for name, value in (("every", every), ("window", window), ("until", until or 0)):
            whole_number(name, value, 0 if name == "until" else 1)
        self.model, self.batch, self.rule, self.tau = model, batch, rule, tau
        self.every, self.until, self.updates = every, until, 0
        self.fresh = fresh_units(model, optimizer)
        self.monitor = DeadUnitMonitor(model, window=min(window, every), tau=tau)
        self.history: list[tuple[int, Revival]] = []
        self._gen = generator(random_state)

    def step(self) -> Revival | None:
        """Count one update; revive when it is time, and say what was revived."""
        self.updates += 1
        late = self.until is not None and self.updates > self.until
        if self.updates % self.every or late:
            return None
        report = self.monitor.report()
        if not report.batches:
            raise InvalidInputError(
                f"no forward pass of the model was seen in {self.every} updates: passes of a "
                "compiled or copied model are not; train the model that was given"
            )
        if self.rule == "redo":
            found = redo_(
                self.model, self.batch, self.fresh, report=report, tau=self.tau,
                random_state=self._gen,
            )  # fmt: skip
        else:
            found = revive_live_(
                self.model, self.batch, self.fresh, report=report, random_state=self._gen
            )
        # What was seen before is of the units that are gone.
        self.monitor.reset()
        self.history.append((self.updates, found))
        return found

    def close(self) -> None:
        """Take all hooks off the model and the optimizer."""
        self.monitor.close()
        if self.fresh is not None:
            self.fresh.close()

    def __enter__(self) -> Reviver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
