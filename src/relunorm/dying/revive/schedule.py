"""Revival in a training loop: watch, and every so many updates renew the units that do nothing, or
replace the least useful ones, slowly and for ever (continual backprop, Dohare et al. 2024)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relunorm.arguments import real_number, whole_number
from relunorm.dying.revive.initial import RandomState, evaluating, generator
from relunorm.dying.revive.kept_function import ReaderMode
from relunorm.dying.revive.replace import (
    Revival,
    fresh_units,
    redo_,
    replace_,
    revive_live_,
    untouchable,
)
from relunorm.dying.revive.wiring import SiteWiring, outdated, wiring
from relunorm.dying.watch.monitor import DeadUnitMonitor
from relunorm.dying.watch.passes import Watch, call, check_batch, unwrapped
from relunorm.errors import InvalidInputError

#: Share of the way since the last revival that hidden weights go back towards their first values.
PULL = 0.3


class Reviver:
    """Keeps a network able to learn: renews units that do nothing, every ``every`` updates.

    Three things made the difference on streams that change (docs/dying.md): scores are means over
    all batches since the last revival, not over one; new units have an age of their own in Adam;
    and hidden weights are pulled back towards where they began, by a share of the way they went,
    which keeps them from growing from task to task.

    Args:
        model: the module to train. batch: one input of it, for tracing its layers.
        optimizer: the one that trains it, whose state is renewed along.
        rule: ``redo`` (dormant and dead units, drawn anew; for data that changes) or ``live`` (dead
            units only, made active on the batch, the function kept; for data that stays the same).
            Continual backprop has its own class, `ContinualBackprop`.
        every: updates between revivals. until: the last update at which one may happen.
        window: forward passes a unit must be silent for to count as dead.
        tau: a unit whose mean |activation| is at most tau times its layer's mean is dormant.
        pull: of the way that a unit's incoming weights went since the last revival, this share is
            taken back, towards where they began (at most to there); 0 for none. Weights that have
            come to rest are not moved, so the optima of a fixed data set are the same with and
            without. By default 0.3 with ``redo`` and 0 with ``live``, which keeps the function.

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
        self._ways: dict[Tensor, tuple[Tensor, Tensor]] = {}  # where weights began, and were last
        if pull:
            self._trace()

    def _trace(self) -> list[SiteWiring]:
        """The model's wiring, followed again where its layers have changed."""
        if self._sites is None or outdated(self.model, self._sites):
            self._sites = wiring(self.model, self.batch)
        if self.pull:
            weights = [_incoming(site) for site in self._sites if not untouchable(site)]
            new = [(w, (w.detach().clone(), w.detach().clone())) for w in weights]
            self._ways = {w: self._ways.get(w, begun) for w, begun in new}
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
        for weight, (first, last) in self._ways.items():
            back = first - weight
            went = (weight - last).flatten(1).norm(dim=1)
            share = self.pull * went / back.flatten(1).norm(dim=1).clamp_min(1e-30)
            weight += share.clamp_max(1.0).reshape(-1, *[1] * (weight.ndim - 1)) * back
        found = redo_(self.model, self.batch, self.fresh, tau=self.tau, **options)
        for site in sites:
            units, weight = found.units.get(site.name), _incoming(site)
            if units and weight in self._ways:  # a new unit begins here
                self._ways[weight][0][list(units)] = weight[list(units)]
        for weight, (_, last) in self._ways.items():
            last.copy_(weight)
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


class ContinualBackprop:
    """Replaces a small share of units per update: those of least utility among the mature.

    The utility of unit i is a running mean over its life, with ``decay``, of
    mean |h_i| sum_k |w_ki| over the layers that read it. Each update ``rate`` times the number of
    units older than ``maturity`` (summed up until it makes whole units) are replaced as in ReDo:
    fresh incoming weights, outgoing weights zero, mean contribution moved into the next bias,
    optimizer state reset.

    Args:
        model, batch: the model and one input, for tracing its layers.
        optimizer: whose state is reset along.
        rate: share of mature units replaced per update (their 1e-4 by default).
        maturity: updates before a unit may be replaced.
        decay: of the running utility.

    Call `step` after every optimizer step, and `close` at the end.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        optimizer: Optimizer | None = None,
        *,
        rate: float = 1e-4,
        maturity: int = 100,
        decay: float = 0.99,
        random_state: RandomState = 0,
    ):
        whole_number("maturity", maturity, 0)
        if not (0 < real_number("rate", rate) <= 1 and 0 <= real_number("decay", decay) < 1):
            raise InvalidInputError(
                f"rate={rate}, decay={decay}: expected 0 < rate <= 1, 0 <= decay < 1"
            )
        self.model, self.batch = model, batch
        self.rate, self.maturity, self.decay = rate, maturity, decay
        self.fresh = fresh_units(model, optimizer)
        self.sites: list[SiteWiring] = wiring(model, batch)
        if not any(site.revivable for site in self.sites):
            found = "; ".join(f"{site.name or 'model'}: {site.problem}" for site in self.sites)
            raise InvalidInputError(
                f"no rectifier of the model can have its units replaced ({found or 'none seen'})"
            )
        self._gen = generator(random_state)
        self._means: dict[str, Tensor] = {}
        self._read: dict[nn.Module, Tensor] = {}  # by reading layer: mean of each column's input
        self._readers: dict[int, nn.Module] = {}  # by weight, which may be another every pass
        self._utility: dict[str, Tensor] = {}
        self._age = {site.name: torch.zeros(site.units) for site in self.sites if site.revivable}
        self._due = dict.fromkeys(self._age, 0.0)
        self._watch: Watch | None = Watch(model, self._mode)

    def _mode(self, module: nn.Module) -> ReaderMode:
        self._readers = {
            id(reader.module.weight): reader.module
            for site in self.sites
            for reader in site.readers
        }
        return ReaderMode(self._observe, self._mean_read, self._readers)

    def _mean_read(self, weight: Tensor, values: Tensor) -> None:
        layer = self._readers.get(id(weight))
        if layer is not None:
            self._read[layer] = values.mean(0, dtype=torch.float32)

    def _observe(self, name: str, values: Tensor, leaky: bool, axis: int, known: bool) -> None:
        if name in self._age:
            values = values.detach()
            rest = [k for k in range(values.ndim) if k != axis]
            self._means[name] = values.abs().mean(rest, dtype=torch.float32)

    @torch.no_grad()
    def step(self) -> Revival:
        """Update utilities from the last forward pass and replace what is due."""
        if outdated(self.model, self.sites):
            self._trace_again()
            return Revival({}, {})
        if not self._means:
            raise InvalidInputError(
                "no forward pass of the model was seen before this step: passes of a compiled or "
                "copied model are not; train the model that was given"
            )
        picked: dict[str, Any] = {}
        for site in self.sites:
            if site.name not in self._means:
                continue
            utility = self._means[site.name] * _outgoing_size(site)
            old = self._utility.get(site.name, torch.zeros_like(utility))
            new = self.decay * old + (1 - self.decay) * utility
            self._utility[site.name] = new
            age = self._age[site.name]
            age += 1
            mature = (age > self.maturity).nonzero()[:, 0]
            self._due[site.name] += self.rate * len(mature)
            count = min(int(self._due[site.name]), len(mature))
            if count:
                self._due[site.name] -= count
                worst = mature[self._worth(site.name)[mature].argsort()[:count]]
                picked[site.name] = worst.numpy()
                if untouchable(site):  # `replace_` says so
                    continue
                self._move_mean(site, worst)
                age[worst] = 0
                new[worst.to(new.device)] = 0
        if not picked:
            return Revival({}, {})
        return replace_(
            self.model, self.batch, picked, self.fresh, random_state=self._gen, sites=self.sites,
            keep=False,
        )  # fmt: skip

    def _trace_again(self) -> None:
        """Follow the model as it is now; sites whose layers are the same keep age and utility."""
        if self._watch is not None:
            self._watch.close()
        old = {site.name: site for site in self.sites}
        self.sites = wiring(self.model, self.batch)
        for site in self.sites:
            before = old.get(site.name)
            same = before is not None and before.makers == site.makers
            if site.revivable and not same:
                self._age[site.name] = torch.zeros(site.units)
                self._due[site.name] = 0.0
                self._utility.pop(site.name, None)
        gone = self._age.keys() - {site.name for site in self.sites if site.revivable}
        for name in gone:
            del self._age[name], self._due[name]
            self._utility.pop(name, None)
        self._means, self._read = {}, {}
        self._watch = Watch(self.model, self._mode)

    def _worth(self, name: str) -> Tensor:
        """Utilities divided by 1 - decay^age: a mean over the unit's own life."""
        return self._utility[name].cpu() / (1 - self.decay ** self._age[name].clamp_min(1))

    def _move_mean(self, site: SiteWiring, units: Tensor) -> None:
        """Add the units' mean contribution to the next bias before their weights go to zero.

        The mean is of what the reader was given in the last forward pass, after pooling, scaling
        or normalisation on the way. Replicas on other devices read with weights of their own; then
        the batch given at the start shows it.
        """
        if any(reader.module not in self._read for reader in site.readers):
            with evaluating(self.model):
                call(unwrapped(self.model), self.batch, seen_by=self._watch)
        for reader in site.readers:
            weight: Any = reader.module.weight
            bias: Any = reader.module.bias
            if bias is None:
                continue
            columns = reader.columns(units.to(weight.device))
            own = weight[:, columns]
            own = own.flatten(2).sum(2) if own.ndim > 2 else own
            bias += own @ self._read[reader.module][columns].to(own)

    def utilities(self) -> dict[str, np.ndarray]:
        """The mean utility of every unit over its life, recent updates first, per site."""
        return {name: self._worth(name).numpy() for name in self._utility}

    def close(self) -> None:
        """Take the hooks off the model and the optimizer."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self.fresh is not None:
            self.fresh.close()

    def __enter__(self) -> ContinualBackprop:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _outgoing_size(site: SiteWiring) -> Tensor:
    """sum_k |w_ki| over all readers, per unit."""
    total: Any = 0.0
    for reader in site.readers:
        weight: Any = reader.module.weight
        sizes = weight.abs().transpose(0, 1).flatten(1).sum(1).float()
        total = total + reader.per_unit(sizes, site.units)
    return total
