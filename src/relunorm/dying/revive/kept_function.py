"""Changes in place that leave a model's outputs where they were, or are undone; balanced units."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn

from relunorm.dying.revive.initial import evaluating
from relunorm.dying.revive.wiring import WEIGHTED, SiteWiring, wiring
from relunorm.dying.watch.passes import Watch, call, tensors_in
from relunorm.dying.watch.sites import SiteMode
from relunorm.errors import InvalidInputError


@torch.no_grad()
def outputs(model: nn.Module, batch: Any, seen_by: Watch | None = None) -> list[Tensor]:
    """The model's outputs on the batch in evaluation mode; random layers draw the same each time.

    torch's random state is left as it was.
    """
    with evaluating(model), torch.random.fork_rng():
        torch.manual_seed(0)
        return [
            tensor.detach().clone() for tensor in tensors_in(call(model, batch, seen_by=seen_by))
        ]


def moved(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest change over the largest output, 0 if it is no more than rounding."""
    worst = 0.0
    for old, new in zip(before, after, strict=True):
        if not old.is_floating_point() or not old.numel():
            continue
        fine = old.isfinite()
        gap = torch.where(fine, (new - old).abs(), 0.0).nan_to_num(torch.inf).max()
        size = torch.where(fine, old.abs(), 0.0).max().clamp_min(torch.finfo(old.dtype).tiny)
        share = float(gap.double() / size.double())
        if share > min(1e4 * torch.finfo(old.dtype).eps, 0.05):
            worst = max(worst, share)
    return worst


class Undo:
    """The tensors around a site as they are now; `restore` puts them back."""

    def __init__(self, site: SiteWiring):
        self.kept = [
            (tensor, tensor.detach().clone())
            for module in site.layers
            for tensor in (*module.parameters(False), *module.buffers(False))
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Every tensor as it was, to the last bit."""
        for tensor, value in self.kept:
            tensor.copy_(value)


class ReaderMode(SiteMode):
    """Also shows what layers read: ``read(weight, values)`` with one row per sample and place."""

    def __init__(self, observe: Any, read: Any, weights: Container[int]):
        super().__init__(observe)
        self.read, self.weights = read, weights

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        axis = WEIGHTED.get(func)
        if axis is not None:
            given = [*args, *(kwargs or {}).values()]
            if len(given) > 1 and id(given[1]) in self.weights:
                values = given[0].detach()
                self.read(given[1], values.movedim(axis, -1).reshape(-1, values.shape[axis]))
        return super().__torch_function__(func, types, args, kwargs)


@torch.no_grad()
def fold_constants(model: nn.Module, batch: Any, site: SiteWiring, units: Tensor) -> str:
    """Add to the next biases what silent units send on, if that is constant; else say why not.

    A silent unit is 0, but a normalisation after it makes that another number, which its readers
    take in with their weights. Nothing is changed where the answer is not empty.
    """
    sent: dict[int, tuple[Tensor, Tensor]] = {}

    def read(weight: Tensor, values: Tensor) -> None:
        sent[id(weight)] = values.amin(0), values.amax(0)

    weights = {id(reader.module.weight) for reader in site.readers}
    watch = Watch(model, lambda module: ReaderMode(lambda *seen: None, read, weights))
    try:
        with evaluating(model):
            call(model, batch, seen_by=watch)
    finally:
        watch.close()
    changes = []
    for reader in site.readers:
        layer: Any = reader.module
        columns = reader.columns(units.to(layer.weight.device))
        low, high = (part[columns] for part in sent[id(layer.weight)])
        if not (low.isfinite().all() and high.isfinite().all()):
            raise InvalidInputError(
                f"what layer {reader.name} reads is NaN or infinite on the batch: the layers "
                "before it must be mended first"
            )
        if not (low.any() or high.any()):
            continue
        if not torch.equal(low, high):
            return f"its silent units send {reader.name} values that are not constant"
        if layer.bias is None:
            return f"its silent units send {reader.name} a constant, and that has no bias for it"
        if getattr(layer, "padding_mode", "") == "zeros" and _pads(layer):
            return f"its silent units send {reader.name} a constant, but its padding is 0"
        weight = layer.weight[:, columns]
        changes.append((layer.bias, weight.flatten(2).sum(2) if weight.ndim > 2 else weight, low))
    for bias, weight, constant in changes:
        bias += weight @ constant.to(weight)
    return ""


def _pads(layer: Any) -> bool:
    return any(layer.padding) if not isinstance(layer.padding, str) else layer.padding == "same"


@torch.no_grad()
def balance_(model: nn.Module, batch: Any) -> list[str]:
    """Scale every unit's incoming side by s and its outgoing side by 1/s so that both are as long.

    relu(s z) = s relu(z) for s > 0, so outputs change by rounding only (seed 002, appendix D, unit
    by unit). Networks trained at a wrong target scale and then rescaled have tiny incoming and
    huge outgoing weights, or the reverse. Units before or behind a batch norm, rectifiers with an
    upper bound (ReLU6), units whose readers are not known (see `wiring`) and units with an empty
    side are left alone. Outputs on the batch are compared, and a site at which they move is put
    back. Reset the optimizer after it.

    Returns:
        Names of the sites that were balanced.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    >>> for p, v in zip(model.parameters(), (0.01, 0.0, 100.0, 0.0)):
    ...     _ = p.data.fill_(v)
    >>> balance_(model, torch.zeros(1, 1)), round(model[0].weight.item(), 6)
    (['1'], 1.0)
    """
    done = []
    before = outputs(model, batch)
    for site in wiring(model, batch):
        if not site.revivable or site.norm is not None or site.uneven:
            continue
        undo = Undo(site)
        _balance_site(site)
        if moved(before, outputs(model, batch)):
            undo.restore()
        else:
            done.append(site.name)
    return done


def _balance_site(site: SiteWiring) -> None:
    assert site.source is not None
    layer: Any = site.source[1]
    inner = layer.weight.flatten(1).square().sum(1)
    if layer.bias is not None:
        inner = inner + layer.bias.square()
    outer = torch.zeros_like(inner)
    for reader in site.readers:
        weight: Any = reader.module.weight
        outer += reader.per_unit(weight.transpose(0, 1).flatten(1).square().sum(1), site.units)
    scale = torch.where((inner > 0) & (outer > 0), (outer / inner) ** 0.25, 1.0)
    layer.weight.mul_(scale.reshape(-1, *[1] * (layer.weight.ndim - 1)))
    if layer.bias is not None:
        layer.bias.mul_(scale)
    for reader in site.readers:
        weight: Any = reader.module.weight
        owner = reader.owner.to(scale.device)
        columns = torch.where(owner >= 0, scale[owner.clamp_min(0)], 1.0).to(weight)
        weight.div_(columns.reshape(1, -1, *[1] * (weight.ndim - 2)))
