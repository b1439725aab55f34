"""Continual backprop: replace the least useful units, slowly and for ever (Dohare et al. 2024)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relunorm.dying.init import RandomState, generator
from relunorm.dying.optimizer_state import FreshUnits
from relunorm.dying.revive import Revival, replace_
from relunorm.dying.sites import SiteMode, Watch
from relunorm.dying.wiring_trace import SiteWiring, wiring
from relunorm.errors import InvalidInputError


class ContinualBackprop:
    """Replaces a small share of units per update: those of least utility among the mature.

    The utility of unit i is a running mean, with ``decay``, of mean |h_i| sum_k |w_ki| over the
    layers that read it. Each update ``rate`` times the number of units older than ``maturity``
    (summed up until it makes whole units) are replaced as in ReDo: fresh incoming weights,
    outgoing weights zero, mean contribution moved into the next bias, optimizer state reset.

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
        if not (0 < rate <= 1 and maturity >= 0 and 0 <= decay < 1):
            raise InvalidInputError(
                f"rate={rate}, maturity={maturity}, decay={decay}: expected 0 < rate <= 1, "
                "maturity >= 0, 0 <= decay < 1"
            )
        self.model, self.batch = model, batch
        self.rate, self.maturity, self.decay = rate, maturity, decay
        self.fresh = FreshUnits(optimizer) if optimizer is not None else None
        self.sites: list[SiteWiring] = wiring(model, batch)
        self._gen = generator(random_state)
        self._means: dict[str, Tensor] = {}
        self._signed: dict[str, Tensor] = {}
        self._utility: dict[str, Tensor] = {}
        self._age = {site.name: torch.zeros(site.units) for site in self.sites if site.revivable}
        self._due = dict.fromkeys(self._age, 0.0)
        self._watch: Watch | None = Watch(model, lambda module: SiteMode(self._observe))

    def _observe(self, name: str, values: Tensor, leaky: bool, axis: int) -> None:
        if name in self._age:
            values = values.detach()
            rest = [k for k in range(values.ndim) if k != axis]
            self._means[name] = values.abs().mean(rest, dtype=torch.float32)
            self._signed[name] = values.mean(rest, dtype=torch.float32)

    @torch.no_grad()
    def step(self) -> Revival:
        """Update utilities from the last forward pass and replace what is due."""
        picked: dict[str, Any] = {}
        for site in self.sites:
            if site.name not in self._means:
                continue
            utility = self._means[site.name] * _outgoing_size(site)
            old = self._utility.get(site.name)
            new = utility if old is None else self.decay * old + (1 - self.decay) * utility
            self._utility[site.name] = new
            age = self._age[site.name]
            age += 1
            mature = (age > self.maturity).nonzero()[:, 0]
            self._due[site.name] += self.rate * len(mature)
            count = min(int(self._due[site.name]), len(mature))
            if count:
                self._due[site.name] -= count
                # Divided by 1 - decay^age, so that young units are not taken for useless.
                worth = new.cpu()[mature] / (1 - self.decay ** age[mature])
                worst = mature[worth.argsort()[:count]]
                self._move_mean(site, worst)
                picked[site.name] = worst.numpy()
                age[worst] = 0
                new[worst.to(new.device)] = 0
        if not picked:
            return Revival({}, {})
        return replace_(
            self.model, self.batch, picked, self.fresh, random_state=self._gen, sites=self.sites
        )

    def _move_mean(self, site: SiteWiring, units: Tensor) -> None:
        """Add the units' mean contribution to the next bias before their weights go to zero."""
        for reader in site.readers:
            weight: Any = reader.module.weight
            bias: Any = reader.module.bias
            if bias is None:
                continue
            at = units.to(weight.device)
            columns = weight[:, reader.columns(at)].reshape(len(weight), len(at), -1).sum(-1)
            bias += columns @ self._signed[site.name][at].to(weight)

    def utilities(self) -> dict[str, np.ndarray]:
        """The running utility of every unit, per site."""
        return {name: value.cpu().numpy() for name, value in self._utility.items()}

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
        sizes = weight.abs().transpose(0, 1).reshape(site.units, -1).sum(1)
        total = total + sizes.float()
    return total
