"""Following units through operations that move, pool or drop entries, whatever the shapes.

Every unit has a label, a random number. A tensor of labels in the shape of the activations takes
the place of the activations in each call; an entry of the result belongs to a unit if it carries
that unit's label alone. Sizes that happen to coincide cannot mislead: the entries themselves are
followed. Exact, but for a coincidence of random float64 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relunorm.dying.watch.sites import in_place_of

#: Owner of entries that belong to no unit, such as padding; and of those that mix several.
NOBODY, MIXED = -1, -2


@dataclass(frozen=True)
class Labels:
    """Per entry of a tensor the unit it belongs to, or `NOBODY`; on the host, in its shape."""

    owner: Tensor
    units: int

    @classmethod
    def along(cls, shape: torch.Size, axis: int) -> Labels:
        """The labels of activations whose units are counted by one axis."""
        sizes = [1] * len(shape)
        sizes[axis] = units = shape[axis]
        return cls(torch.arange(units).reshape(sizes).expand(shape), units)

    def through(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor
    ) -> Labels | None:
        """The labels of the call's output, or None where it mixes units or adds a constant.

        Labels v in (1, 2) go through together with their mirror images 3 - v and with ones. For a
        linear call (pooling by means, padding by zeros, interpolation) the first over the last is
        a mean of labels; for a maximum it is the largest, and the mirror image the smallest.
        """
        gen = torch.Generator().manual_seed(0)
        values = 1 + torch.rand(self.units, generator=gen, dtype=torch.float64)
        nothing = self.owner == NOBODY
        label = values[self.owner.clamp_min(0)]
        there = torch.ones_like(label)
        if nothing.any():
            label, there = (torch.where(nothing, 0.0, part) for part in (label, there))
        made = [
            in_place_of(func, args, kwargs, given, part)
            for part in (label, 3 * there - label, there)
        ]
        low, high, weight = made
        empty = weight == 0
        safe = torch.where(empty, 1.0, weight)
        owner = _decode(low / safe, values)
        same = owner == _decode(3 - high / safe, values)
        owner = torch.where(empty, NOBODY, torch.where(same, owner, MIXED))
        return None if (owner == MIXED).any() else Labels(owner, self.units)

    def columns(self, axis: int) -> Tensor | None:
        """The unit that owns each place along an axis, or None where several share one."""
        rows = self.owner.movedim(axis, 0).flatten(1)
        largest = rows.amax(1)
        # Padding next to a unit's entries is no other unit.
        mixed = ((rows != largest[:, None]) & (rows != NOBODY)).any()
        return None if mixed else largest


def _decode(label: Tensor, values: Tensor) -> Tensor:
    """Which unit has this label; MIXED if none, to rounding."""
    ordered, order = values.sort()
    at = torch.searchsorted(ordered, label.contiguous() - 1e-12).clamp_max(len(values) - 1)
    return torch.where((ordered[at] - label).abs() <= 2e-12, order[at], MIXED)
