"""Bringing dead units back: ReDo and live re-initialisation, optimizer state included."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from relunorm.arguments import real_number
from relunorm.display.shown import entries
from relunorm.dying.revive.initial import (
    RandomState,
    check_share,
    evaluating,
    generator,
    layer_output,
    live_bias,
    rows_like,
)
from relunorm.dying.revive.kept_function import Undo, fold_constants, moved, outputs
from relunorm.dying.revive.optimizer_state import FreshUnits
from relunorm.dying.revive.wiring import SiteWiring, wiring
from relunorm.dying.watch.monitor import DeadUnitMonitor
from relunorm.dying.watch.monitor_report import MonitorReport
from relunorm.dying.watch.passes import call, check_batch, tensors_in
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
        return {"schema": "relunorm.dying.revival/1", **entries(self, "count units skipped")}


def redo_(
    model: nn.Module,
    batch: Any,
    optimizer: Optimizer | FreshUnits | None = None,
    *,
    report: MonitorReport | None = None,
    tau: float = 0.025,
    random_state: RandomState = 0,
    sites: Sequence[SiteWiring] | None = None,
) -> Revival:
    """Recycle dormant units in place (ReDo, Sokar et al. 2023).

    A unit whose mean |activation| is at most ``tau`` times its layer's mean (dead ones included)
    gets incoming weights and bias drawn as torch initialises such a layer, outgoing weights zero,
    and a fresh optimizer state: moments and step count. The outgoing weights are input columns of
    the layers that read the unit; a flattened channel owns several. A batch norm in between gets
    its unit's scale 1 and shift 0, and the new unit's statistics. The function of the model changes
    by the dormant units' small contribution (nothing for dead ones, on the data).

    Args:
        batch: an input of the model, for tracing, and for the scores when no report is given; a
            tuple is its arguments, a dict its keyword arguments.
        optimizer: the one that trains the model, or a `FreshUnits` kept across calls.
        report: scores from a `DeadUnitMonitor` over many batches: much better than one batch, on
            which units that are needed may be silent by chance (docs/dying.md).
        sites: the model's `wiring`, where it is known already.

    Warns when there are such units and the sites of all of them are left alone.
    """
    if real_number("tau", tau) < 0:
        raise InvalidInputError(f"tau is {tau}, expected at least 0")
    report = _report(model, batch, report)
    picked = {
        s.name: np.flatnonzero((s.dead & (not s.leaky)) | (s.score <= tau)) for s in report.sites
    }
    return _noticed(
        replace_(model, batch, picked, optimizer, random_state=random_state, sites=sites)
    )


def revive_live_(
    model: nn.Module,
    batch: Any,
    optimizer: Optimizer | FreshUnits | None = None,
    *,
    report: MonitorReport | None = None,
    share: tuple[float, float] = (0.1, 0.9),
    least: float = 0.0,
    random_state: RandomState = 0,
    sites: Sequence[SiteWiring] | None = None,
) -> Revival:
    """Re-initialise dead units so that they are live on the batch, keeping the function.

    As `redo_`, for dead units only, and with a bias that makes each new unit active on a random
    share of the batch. Outgoing weights are zero and a dead unit gave nothing, so the outputs on
    the data the units were dead on are unchanged to the last bit or two. Where a normalisation
    turns the nothing into a constant, that is moved into the next bias. The outputs on the batch
    are compared, and a site at which they would move is put back and listed as skipped. Leaky
    rectifiers are left alone: a unit that is never positive still passes its slope on.

    Args:
        batch, optimizer, report, sites: as for `redo_`.
        share: the new units are active on a random share of the batch in this range.
        least: replace also units active on at most this share of the samples. Where most units
            have died the rest are often on their way; the function then changes by what they gave.
    """
    check_share(share)
    if not 0 <= real_number("least", least) < 1:
        raise InvalidInputError(f"least is {least}, expected a share of samples in [0, 1)")
    report = _report(model, batch, report)
    picked = {
        s.name: np.flatnonzero(s.dead | (s.active_share <= least))
        for s in report.sites
        if not s.leaky
    }
    return _noticed(
        replace_(
            model, batch, picked, optimizer, random_state=random_state, share=share, sites=sites
        )
    )


def _noticed(revival: Revival) -> Revival:
    """The same; with a warning if there was something to revive and none of it could be."""
    if revival.skipped and not revival.units:
        reasons = "; ".join(f"{name or 'model'}: {why}" for name, why in revival.skipped.items())
        warnings.warn(
            f"no unit was revived: every rectifier with units to revive is left alone ({reasons})",
            RuntimeWarning,
            stacklevel=3,
        )
    return revival


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
    keep: bool = True,
) -> Revival:
    """Give chosen units new incoming weights, zero outgoing weights and fresh optimizer state.

    Args:
        picked: site name -> unit indices.
        share: make the new units active on a random share of the batch; None draws the bias.
        sites: the model's `wiring`, when it is known already.
        keep: where the chosen units are silent on the batch, move constants they send on into the
            next bias, compare the outputs, and undo and skip a site at which they move.
    """
    fresh = fresh_units(model, optimizer)
    _check(batch)
    gen = generator(random_state)
    picked = {name: chosen for name, chosen in picked.items() if len(chosen)}
    if not picked:
        return Revival({}, {})
    by_name = {s.name: s for s in (wiring(model, batch) if sites is None else sites)}
    units = {name: _units(by_name, name, chosen) for name, chosen in picked.items()}
    silent: dict[str, bool] = {}
    before: list[Tensor] = []
    if keep:
        with DeadUnitMonitor(model) as monitor:
            before = outputs(model, batch, monitor.watch)
        seen = monitor.report()
        silent = {name: _silent(seen, name, chosen) for name, chosen in units.items()}
    done: dict[str, tuple[int, ...]] = {}
    skipped: dict[str, str] = {}
    for name, chosen in units.items():
        site, held = by_name[name], before if silent.get(name) else None
        problem = untouchable(site)
        problem = problem or _replace_site(model, batch, site, chosen, gen, share, held)
        if problem:
            skipped[name] = problem
            continue
        _forget(fresh, site, chosen)
        done[name] = tuple(chosen.tolist())
        if keep and held is None:  # these gave something, so the outputs have moved rightly
            before = outputs(model, batch)
    return Revival(done, skipped)


def _replace_site(
    model: nn.Module,
    batch: Any,
    site: SiteWiring,
    units: Tensor,
    gen: torch.Generator,
    share: tuple[float, float] | None,
    before: list[Tensor] | None,
) -> str:
    """Replace a site's units; with the outputs from before, undo it and say why if they move."""
    undo = Undo(site)
    try:
        if before is not None and site.uneven:  # elsewhere a silent unit sends 0 on
            problem = fold_constants(model, batch, site, units)
            if problem:
                return problem
        _incoming(model, batch, site, units, gen, share)
        for reader in site.readers:
            weight: Any = reader.module.weight
            weight[:, reader.columns(units.to(weight.device))] = 0.0
        change = moved(before, outputs(model, batch)) if before is not None else 0.0
    except BaseException:
        undo.restore()
        raise
    if not change:
        return ""
    undo.restore()
    return f"the outputs on the batch would have moved by {change:.2g} of their size; undone"


def _units(by_name: Mapping[str, SiteWiring], name: str, chosen: Any) -> Tensor:
    """Unit indices, checked against the site they are of."""
    site = by_name.get(name)
    if site is None:
        raise InvalidInputError(f"no rectifier {name!r}; there are {sorted(by_name)}")
    units = torch.as_tensor(np.asarray(chosen, dtype=np.int64))
    for unit in (int(units.min()), int(units.max())):
        if not 0 <= unit < site.units:
            raise InvalidInputError(
                f"unit {unit} of rectifier {name!r}, which has {site.units} units; is the report "
                "of another model?"
            )
    return units


def _silent(seen: MonitorReport, name: str, units: Tensor) -> bool:
    """Whether these units give nothing on the batch, so that the outputs must stay put."""
    found = seen[name]
    return not found.leaky and bool(found.dead[units.numpy()].all())


def _check(batch: Any) -> None:
    check_batch(batch)
    for tensor in tensors_in(batch):
        if not tensor.numel():
            raise InvalidInputError("the batch is empty; units are revived on its samples")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InvalidInputError("the batch holds NaN or infinite entries; drop those samples")


def fresh_units(model: nn.Module, optimizer: Any) -> FreshUnits | None:
    """An optimizer's `FreshUnits`, checked against the model it is to train."""
    if optimizer is None:
        return None
    fresh = FreshUnits.of(optimizer) if isinstance(optimizer, Optimizer) else optimizer
    if not isinstance(fresh, FreshUnits):
        raise InvalidInputError(
            f"optimizer is {type(fresh).__name__}, expected a torch.optim.Optimizer or None"
        )
    trained = {id(p) for group in fresh.optimizer.param_groups for p in group["params"]}
    if trained.isdisjoint(id(p) for p in model.parameters()):
        raise InvalidInputError("the optimizer trains none of this model's parameters")
    return fresh


def untouchable(site: SiteWiring) -> str:
    """Why a site's units cannot be replaced or could not learn afterwards, or nothing."""
    if site.problem:
        return site.problem
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
) -> None:
    assert site.source is not None
    layer: Any = site.source[1]
    units = units.to(layer.weight.device)
    weight, bias = rows_like(layer, len(units), gen)
    layer.weight[units] = weight.to(layer.weight)
    live = share is not None and site.norm is None
    if layer.bias is not None:
        layer.bias[units] = 0.0 if live else bias.to(layer.bias)
    if site.norm is None and not (live and layer.bias is not None):
        return
    z = layer_output(model, layer, batch)[:, units]
    if not z.isfinite().all():
        raise InvalidInputError(
            f"the values that layer {site.source[0]} reads are NaN or infinite on the batch: "
            "the layers before it must be mended first"
        )
    if site.norm is not None:
        _normalised(site.norm[1], units, z, gen, share)
    elif share is not None:
        bias = layer.bias
        assert bias is not None
        bias[units] = live_bias(z, gen, share).to(bias)


def _normalised(
    norm: Any, units: Tensor, z: Tensor, gen: torch.Generator, share: tuple[float, float] | None
) -> None:
    """Fit a batch norm's entries for new units to their pre-activations ``z``."""
    mean, variance = z.mean(0), z.var(0, unbiased=False)
    if norm.running_mean is not None:
        norm.running_mean[units], norm.running_var[units] = mean.to(z), variance.to(z)
    if norm.weight is not None:
        norm.weight[units] = 1.0
    if norm.bias is not None:
        norm.bias[units] = 0.0
        if share is not None:
            scaled = (z - mean) / (variance + norm.eps).sqrt()
            norm.bias[units] = live_bias(scaled, gen, share).to(norm.bias)


def _forget(fresh: FreshUnits | None, site: SiteWiring, units: Tensor) -> None:
    """Reset the optimizer's state for every parameter entry that is new."""
    if fresh is None:
        return
    for part in (site.source, site.norm):
        if part is None:
            continue
        for parameter in (part[1].weight, part[1].bias):
            if isinstance(parameter, Tensor):
                fresh.reset(parameter, (units.to(parameter.device),))
    for reader in site.readers:
        weight: Any = reader.module.weight
        fresh.reset(weight, (slice(None), reader.columns(units.to(weight.device))))


def _report(model: nn.Module, batch: Any, given: Any) -> MonitorReport:
    """The report given, or that of a pass over the batch."""
    if given is None:
        with DeadUnitMonitor(model) as monitor, torch.no_grad(), evaluating(model):
            call(model, batch, seen_by=monitor.watch)
        return monitor.report()
    if not isinstance(given, MonitorReport):
        raise InvalidInputError(
            f"report is {type(given).__name__}, expected a MonitorReport, as "
            "DeadUnitMonitor.report() gives"
        )
    return given
