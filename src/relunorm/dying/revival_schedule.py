"""Revival in a training loop: watch, and every so many updates renew the units that do nothing."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relunorm.arguments import real_number, whole_number
from relunorm.dying.init import RandomState, generator
from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.dying.revive import Revival, fresh_units, redo_, revive_live_, untouchable
from relunorm.dying.watch import check_batch
from relunorm.dying.wiring_trace import SiteWiring, outdated, wiring
from relunorm.errors import InvalidInputError

#: Share of the way back to their first values that hidden weights go at each update.
PULL = 5e-4


class Reviver:
    """Keeps a network able to learn: renews units that do nothing, every ``every`` updates.

    Three things made the difference on streams that change (docs/dying.md): scores are means over
    all batches since the last revival, not over one; new units have an age of their own in Adam;
    and hidden weights are pulled back a little towards where they began, which keeps them from
    growing from task to task.

    Args:
        model: the module to train. batch: one input of it, for tracing its layers.
        optimizer: the one that trains it, whose state is renewed along.
        rule: ``redo`` (dormant and dead units, drawn anew; for data that changes) or ``live`` (dead
            units only, made active on the batch, the function kept; for data that stays the same).
            Continual backprop has its own class, `ContinualBackprop`.
        every: updates between revivals. until: the last update at which one may happen.
        window: forward passes a unit must be silent for to count as dead.
        tau: a unit whose mean |activation| is at most tau times its layer's mean is dormant.
        pull: share of the way back to their first values that the weights of hidden layers go per
            update, taken every ``every`` updates at once; 0 for none. By default 5e-4 with
            ``redo`` and 0 with ``live``, which keeps the function. On a fixed data set it does
            harm: use ``live`` or 0 there.

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
        every: int = 50,
        until: int | None = None,
        window: int = 100,
        tau: float = 0.025,
        pull: float | None = None,
        random_state: RandomState = 0,
    ):
        if rule not in ("redo", "live"):
            raise InvalidInputError(f"rule {rule!r}: use redo or live")
        for name, value in (("every", every), ("window", window), ("until", until or 0)):
            whole_number(name, value, 0 if name == "until" else 1)
        pull = (PULL if rule == "redo" else 0.0) if pull is None else real_number("pull", pull)
        if not 0 <= pull < 1 or (pull and rule == "live"):
            raise InvalidInputError(
                f"pull is {pull} with rule {rule!r}, expected a share in [0, 1) with redo, and 0 "
                "with live, which keeps the function"
            )
        if not isinstance(model, nn.Module):
            raise InvalidInputError(f"model is {type(model).__name__}, expected a torch.nn.Module")
        check_batch(batch)
        self.model, self.batch, self.rule, self.tau = model, batch, rule, tau
        self.every, self.until, self.pull, self.updates = every, until, pull, 0
        self.fresh = fresh_units(model, optimizer)
        self.monitor = DeadUnitMonitor(model, window=min(window, every), tau=tau)
        self.history: list[tuple[int, Revival]] = []
        self._gen = generator(random_state)
        self._sites: list[SiteWiring] | None = None
        self._first: dict[Tensor, Tensor] = {}
        if pull:
            self._trace()

    def _trace(self) -> list[SiteWiring]:
        """The model's wiring, followed again where its layers have changed."""
        if self._sites is None or outdated(self.model, self._sites):
            self._sites = wiring(self.model, self.batch)
        if self.pull:
            weights = [_incoming(site) for site in self._sites if not untouchable(site)]
            known = self._first
            self._first = {w: known[w] if w in known else w.detach().clone() for w in weights}
        return self._sites

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
        found = self._revive(report)
        # What was seen before is of the units that are gone.
        self.monitor.reset()
        self.history.append((self.updates, found))
        return found

    @torch.no_grad()
    def _revive(self, report: Any) -> Revival:
        options: dict[str, Any] = {"report": report, "random_state": self._gen}
        if self.rule == "live":
            some = any(site.dead.any() for site in report.sites)
            options["sites"] = self._trace() if some else None
            return revive_live_(self.model, self.batch, self.fresh, **options)
        sites = options["sites"] = self._trace()
        share = 1 - (1 - self.pull) ** self.every
        for weight, first in self._first.items():
            weight.lerp_(first, share)
        found = redo_(self.model, self.batch, self.fresh, tau=self.tau, **options)
        for site in sites:
            units, weight = found.units.get(site.name), _incoming(site)
            if units and weight in self._first:  # a new unit began here
                self._first[weight][list(units)] = weight[list(units)]
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


def _incoming(site: SiteWiring) -> Any:
    """The weights that make a site's pre-activations, or None."""
    return None if site.source is None else site.source[1].weight
