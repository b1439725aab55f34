"""Bringing dead units back: ReDo and live re-initialisation, optimizer state included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relunorm.dying.init import RandomState, as_rows, evaluating, generator, live_bias, rows_like
from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.dying.monitor_report import MonitorReport
from relunorm.dying.optimizer_state import FreshUnits
from relunorm.dying.sites import call
from relunorm.dying.wiring_trace import SiteWiring, tensors_in, wiring
from relunorm.errors import InvalidInputError


@dataclass(frozen=True)
class Revival:
    """What one call revived: per site the units, and the sites left alone with the reason."""

    units: dict[str, tuple[int, ...]]
    skipped: dict[str, str]

    @property
    def count(self) -> int:
        """How many units were revived."""
        return sum(map(len, self.units.values()))

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "schema": "relunorm.dying.revival/1",
            "count": self.count,
            "units": {name: list(units) for name, units in self.units.items()},
            "skipped": self.skipped,
        }


def redo_(
    model: nn.Module,
    batch: Any,
    optimizer: Optimizer | FreshUnits | None = None,
    *,
    report: MonitorReport | None = None,
    tau: float = 0.025,
    random_state: RandomState = 0,
) -> Revival:
    """Recycle dormant units in place (ReDo, Sokar et al. 2023).

    A unit whose mean |activation| is at most ``tau`` times its layer's mean (dead ones included)
    gets incoming weights and bias drawn as torch initialises such a layer, outgoing weights zero,
    and a fresh optimizer state: moments and step count. The outgoing weights are input columns of
    the layers that read the unit; a flattened channel owns several. A batch norm in between gets
    its unit's scale 1 and shift 0. The function of the model changes by the dormant units' small
    contribution (nothing for dead ones, on the data).

    Args:
        batch: an input of the model, for tracing, and for the scores when no report is given; a
            tuple is its arguments, a dict its keyword arguments.
        optimizer: the one that trains the model, or a `FreshUnits` kept across calls.
        report: scores from a `DeadUnitMonitor` over many batches; better than one batch.
    """
    report = _report(model, batch) if report is None else report
    picked = {
        s.name: np.flatnonzero((s.dead & (not s.leaky)) | (s.score <= tau)) for s in report.sites
    }
    return replace_(model, batch, picked, optimizer, random_state=random_state)


def revive_live_(
    model: nn.Module,
    batch: Any,
    optimizer: Optimizer | FreshUnits | None = None,
    *,
    report: MonitorReport | None = None,
    share: tuple[float, float] = (0.1, 0.9),
    least: float = 0.0,
    random_state: RandomState = 0,
) -> Revival:
    """Re-initialise dead units so that they are live on the batch, keeping the function.

    As `redo_`, for dead units only, and with a bias that makes each new unit active on a random
    share of the batch. Outgoing weights are zero and a dead unit gave nothing, so the outputs on
    the data the units were dead on are unchanged to the last bit or two. Leaky rectifiers are left
    alone: a unit that is never positive still passes its slope on.

    Args:
        batch, optimizer, report: as for `redo_`.
        share: the new units are active on a random share of the batch in this range.
        least: replace also units active on at most this share of the samples. Where most units
            have died the rest are often on their way; the function then changes by what they gave.
    """
    if not 0 <= least < 1:
        raise InvalidInputError(f"least is {least}, expected a share of samples in [0, 1)")
    report = _report(model, batch) if report is None else report
    picked = {
        s.name: np.flatnonzero(s.dead | (s.active_share <= least))
        for s in report.sites
        if not s.leaky
    }
    return replace_(model, batch, picked, optimizer, random_state=random_state, share=share)


@torch.no_grad()
def replace_(
    model: nn.Module,
    batch: Any,
    picked: Mapping[str, Sequence[int] | np.ndarray],
    optimizer: Optimizer | FreshUnits | None = None,
    *,
    random_state: RandomState = 0,
    share: tuple[float, float] | None = None,
    sites: Sequence[SiteWiring] | None = None,
) -> Revival:
    """Give chosen units new incoming weights, zero outgoing weights and fresh optimizer state.

    Args:
        picked: site name -> unit indices.
        share: make the new units active on a random share of the batch; None draws the bias.
        sites: the model's `wiring`, when it is known already.
    """
    fresh = FreshUnits(optimizer) if isinstance(optimizer, Optimizer) else optimizer
    _check(model, batch, fresh)
    gen = generator(random_state)
    known = wiring(model, batch) if sites is None else sites
    by_name = {site.name: site for site in known}
    done: dict[str, tuple[int, ...]] = {}
    skipped: dict[str, str] = {}
    for name, chosen in picked.items():
        if not len(chosen):
            continue
        site = by_name.get(name)
        if site is None:
            raise InvalidInputError(f"no rectifier {name!r}; there are {sorted(by_name)}")
        problem = site.problem or _frozen(site)
        if problem:
            skipped[name] = problem
            continue
        units = torch.as_tensor(np.asarray(chosen, dtype=np.int64))
        _incoming(model, batch, site, units, gen, share, fresh)
        _outgoing(site, units, fresh)
        done[name] = tuple(int(u) for u in units)
    return Revival(done, skipped)


def _check(model: nn.Module, batch: Any, fresh: FreshUnits | None) -> None:
    for tensor in tensors_in(batch):
        if not tensor.numel():
            raise InvalidInputError("the batch is empty; units are revived on its samples")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InvalidInputError("the batch holds NaN or infinite entries; drop those samples")
    if fresh is None:
        return
    if not isinstance(fresh, FreshUnits):
        raise InvalidInputError(
            f"optimizer is {type(fresh).__name__}, expected a torch.optim.Optimizer or None"
        )
    trained = {id(p) for group in fresh.optimizer.param_groups for p in group["params"]}
    if trained.isdisjoint(id(p) for p in model.parameters()):
        raise InvalidInputError("the optimizer trains none of this model's parameters")


def _frozen(site: SiteWiring) -> str:
    """Why new units could not learn, or nothing."""
    assert site.source is not None
    for name, module in (site.source, *((r.name, r.module) for r in site.readers)):
        weight: Any = module.weight
        if not weight.requires_grad:
            return f"layer {name} is frozen (requires_grad is False): new units could not learn"
    return ""


def _incoming(
    model: nn.Module,
    batch: Any,
    site: SiteWiring,
    units: Tensor,
    gen: torch.Generator,
    share: tuple[float, float] | None,
    fresh: FreshUnits | None,
) -> None:
    assert site.source is not None
    layer: Any = site.source[1]
    units = units.to(layer.weight.device)
    weight, bias = rows_like(layer, len(units), gen)
    before = layer.weight[units].clone(), None if layer.bias is None else layer.bias[units].clone()
    layer.weight[units] = weight.to(layer.weight)
    if layer.bias is not None and share is not None and site.norm is None:
        layer.bias[units] = 0.0
        z = _layer_output(model, layer, batch)[:, units]
        if not z.isfinite().all():
            layer.weight[units], layer.bias[units] = before
            raise InvalidInputError(
                f"the values that layer {site.source[0]} reads are NaN or infinite on the batch: "
                "the layers before it must be mended first"
            )
        bias = live_bias(z, gen, share)
    _forget(fresh, layer.weight, (units,))
    if site.norm is not None:
        norm: Any = site.norm[1]
        for tensor, value in ((norm.weight, 1.0), (norm.bias, 0.0)):
            if tensor is not None:
                tensor[units] = value
                _forget(fresh, tensor, (units,))
        if norm.running_mean is not None:
            norm.running_mean[units], norm.running_var[units] = 0.0, 1.0
    if layer.bias is None:
        return
    layer.bias[units] = bias.to(layer.bias)
    _forget(fresh, layer.bias, (units,))


def _outgoing(site: SiteWiring, units: Tensor, fresh: FreshUnits | None) -> None:
    for reader in site.readers:
        weight: Any = reader.module.weight
        columns = reader.columns(units.to(weight.device))
        weight[:, columns] = 0.0
        _forget(fresh, weight, (slice(None), columns))


def _forget(fresh: FreshUnits | None, parameter: Tensor, index: tuple[Any, ...]) -> None:
    if fresh is not None:
        fresh.reset(parameter, index)


def _layer_output(model: nn.Module, layer: nn.Module, batch: Any) -> Tensor:
    caught: list[Any] = []
    handle = layer.register_forward_hook(lambda m, a, out: caught.append(out))
    try:
        with evaluating(model):
            call(model, batch)
    finally:
        handle.remove()
    return as_rows(caught[0], isinstance(layer, nn.Linear))


def _report(model: nn.Module, batch: Any) -> MonitorReport:
    with DeadUnitMonitor(model) as monitor, torch.no_grad(), evaluating(model):
        call(model, batch)
    return monitor.report()
