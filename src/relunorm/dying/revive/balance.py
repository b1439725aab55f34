"""Evening out the two sides of every unit: the same function, better conditioned for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from relunorm.dying.revive.kept_function import Undo, moved, outputs
from relunorm.dying.revive.wiring import SiteWiring, wiring


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
        weight = reader.module.weight
        owner = reader.owner.to(scale.device)
        columns = torch.where(owner >= 0, scale[owner.clamp_min(0)], 1.0).to(weight)
        weight.div_(columns.reshape(1, -1, *[1] * (weight.ndim - 2)))
