"""What a `DeadUnitMonitor` saw: one row per site, one entry per unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import Shown, entries

Mask = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class SiteReport:
    """The units of one rectifier call.

    Attributes:
        name: module path, with ``#k`` for the k-th further call from the same module.
        leaky: whether negative inputs pass with a slope; "active" then means "positive".
        active_share: per unit, the share of samples on which it was active in the window.
        score: per unit, mean |activation| over the layer's mean (ReDo's dormancy score); NaN where
            no batch gave finite activations.
        dead: never active in the last ``window`` batches in which the rectifier ran.
        born_dead: never active at all. died_at: the batch after its last activity, -1 if alive.
        first_death: the first batch of its first silence of a whole window, -1 if there was none.
        dormant: not dead, score at most tau. linear: active almost always.
        axis: the axis of the activations that was taken to count units.
        axis_known: whether the layer behind the rectifier decided it; otherwise a guess from the
            shape (the last of three axes, the second of four or more).
        ran: in how many batches the rectifier was called.
        nan: NaN on some sample in the last ``window`` batches. infinite: not that, but infinite, or
            so large that the sum over a batch is. Neither counts as dead.
    """

    name: str
    leaky: bool
    active_share: NDArray[np.float64]
    score: NDArray[np.float64]
    dead: Mask
    born_dead: Mask
    died_at: NDArray[np.int64]
    first_death: NDArray[np.int64]
    dormant: Mask
    linear: Mask
    axis: int
    axis_known: bool
    ran: int
    nan: Mask
    infinite: Mask

    @property
    def units(self) -> int:
        """How many units the site has."""
        return len(self.dead)

    @property
    def died(self) -> Mask:
        """Dead now, but active at some batch before."""
        return self.dead & ~self.born_dead

    def __repr__(self) -> str:
        broken = _not_finite(int(self.nan.sum()), int(self.infinite.sum()))
        guess = "" if self.axis_known else f"; that axis {self.axis} counts units is a guess"
        return (
            f"SiteReport({self.name}: {self.units} units, {int(self.born_dead.sum())} born dead, "
            f"{int(self.died.sum())} died, {int(self.dormant.sum())} dormant, "
            f"{int(self.linear.sum())} nearly linear{broken}{guess})"
        )

    def to_dict(self) -> dict[str, Any]:
        masks = ("dead", "born_dead", "dormant", "linear", "nan", "infinite")
        return {
            **entries(self, "name units leaky ran axis axis_known"),
            **{name: np.flatnonzero(getattr(self, name)).tolist() for name in masks},
            **entries(self, "died_at first_death active_share score"),
        }


@dataclass(frozen=True, repr=False)
class MonitorReport(Shown):
    """All sites of a model after ``batches`` forward passes, over the last ``window`` of them."""

    sites: tuple[SiteReport, ...]
    batches: int
    window: int
    tau: float

    def __getitem__(self, name: str) -> SiteReport:
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(f"no site {name!r}; there are {[site.name for site in self.sites]}")

    def _share(self, field: str) -> float:
        units = sum(site.units for site in self.sites)
        return sum(int(getattr(site, field).sum()) for site in self.sites) / max(units, 1)

    @property
    def dead(self) -> float:
        """Share of all units that are dead."""
        return self._share("dead")

    @property
    def dormant(self) -> float:
        """Share of all units that are dormant but not dead."""
        return self._share("dormant")

    @property
    def linear(self) -> float:
        """Share of all units that are active almost always."""
        return self._share("linear")

    @property
    def nan(self) -> float:
        """Share of all units that gave NaN."""
        return self._share("nan")

    @property
    def infinite(self) -> float:
        """Share of all units that gave infinity, or overflowed, and no NaN."""
        return self._share("infinite")

    def __repr__(self) -> str:
        units = sum(site.units for site in self.sites)
        broken = _not_finite(round(self.nan * units), round(self.infinite * units))
        head = (
            f"MonitorReport({self.batches} batches: {self.dead:.1%} dead, "
            f"{self.dormant:.1%} dormant, {self.linear:.1%} nearly linear{broken})"
        )
        if not self.sites:
            head = f"MonitorReport({self.batches} batches: no rectifier was seen)"
        return "\n".join([head, *(f"  {site!r}" for site in self.sites)])

    def scalars(self) -> dict[str, float]:
        """Flat numbers for a logger: shares over the model and per site."""
        found = {"dead": self.dead, "dormant": self.dormant, "linear": self.linear}
        found.update({"nan": self.nan, "infinite": self.infinite})
        for site in self.sites:
            found[f"dead/{site.name or 'model'}"] = float(site.dead.mean())
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.dying.monitor/1",
            **entries(self, "batches window tau dead dormant linear nan infinite sites"),
        }


def _not_finite(nan: int, infinite: int) -> str:
    """What to add where units gave something else than numbers."""
    found = [f"{n} {what}" for n, what in ((nan, "NaN"), (infinite, "infinite")) if n]
    return f"; not finite: {', '.join(found)}" if found else ""
