"""What `stability` returns: bounds, verdicts and witnesses of every unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.problem import Bounds, Problem
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.stability.bound_proofs import Proofs
from relunorm.stability.witness import Witnesses

#: In the order of the counts table.
VERDICTS = ("dead", "active", "unstable", "undecided")


@dataclass(frozen=True, eq=False)
class LayerStability:
    """The units of one layer over the domain.

    Attributes:
        layer: index into ``network.layers``.
        name: the layer's name.
        activation: its activation, as text.
        lower, upper: sound bounds of the pre-activations in real arithmetic.
        verdict: per unit ``dead`` (z <= 0 on the whole domain), ``active`` (z >= 0 on the whole
            domain), ``unstable`` (a point on either side is known) or ``undecided``. For a leaky
            unit read dead as negative and active as positive. A step unit is dead or active only
            where its value is constant, the value at 0 included.
        method: what decided it: ``interval``, ``linear``, ``slopes``, ``lp``, ``search``,
            ``rational``, ``witness``, or ``none``.
        margin: how far the deciding bound, or the weaker of the two witnesses, is from 0.
        points: inputs that serve as witnesses.
        at_active, at_inactive: per unit the row of ``points`` where it is surely > 0 and surely
            < 0; -1 where none is known.
    """

    layer: int
    name: str
    activation: str
    lower: Vector
    upper: Vector
    verdict: NDArray[np.str_]
    method: NDArray[np.str_]
    margin: Vector
    points: Array
    at_active: NDArray[np.intp]
    at_inactive: NDArray[np.intp]

    @property
    def witness_active(self) -> Array:
        """Per unit an input where it is surely > 0; a row of NaN where none is known."""
        return np.where(self.at_active[:, None] >= 0, self.points[self.at_active], np.nan)

    @property
    def witness_inactive(self) -> Array:
        """Per unit an input where it is surely < 0; a row of NaN where none is known."""
        return np.where(self.at_inactive[:, None] >= 0, self.points[self.at_inactive], np.nan)

    @property
    def width(self) -> int:
        """How many units the layer has."""
        return len(self.lower)

    @property
    def counts(self) -> dict[str, int]:
        """How many units have each verdict."""
        return {name: int((self.verdict == name).sum()) for name in VERDICTS}

    def units(self, verdict: str) -> NDArray[np.intp]:
        """Indices of the units with this verdict."""
        return np.flatnonzero(self.verdict == verdict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, without the witness points."""
        return entries(self, "layer name activation counts verdict method lower upper margin")


@dataclass(frozen=True, eq=False, repr=False)
class Stability(Shown):
    """Which units can change sign over a domain.

    Attributes:
        layers: one entry per layer with units, in order.
        domain: the domain, as text.
        domain_digest: `Domain.digest`.
        seconds: wall time spent.
        complete: whether every unit has a verdict.
        random_state: the seed of the witness search.
        proofs: what proves the bounds, for `replay` (see `relunorm.stability.bound_proofs`).
    """

    layers: tuple[LayerStability, ...]
    domain: str
    domain_digest: str
    seconds: float
    complete: bool
    random_state: int
    proofs: Proofs

    @property
    def counts(self) -> dict[str, int]:
        """How many units of the whole network have each verdict."""
        return {name: sum(layer.counts[name] for layer in self.layers) for name in VERDICTS}

    def check(self, network: Network, domain: Domain) -> None:
        """Raise `InvalidInputError` unless this was found for just this network and domain."""
        if self.proofs.digest != network.digest:
            raise InvalidInputError(
                f"the analysis is of another network than {network!r}; run stability on this one "
                "(on network.folded() if it has linear stages)"
            )
        if self.domain_digest != domain.digest:
            raise InvalidInputError(
                f"the analysis is over another domain, {self.domain}, than {domain!r}; run "
                "stability over this one"
            )

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """Every (layer, unit) without a verdict."""
        return [(x.layer, int(u)) for x in self.layers for u in x.units("undecided")]

    def table(self) -> str:
        """A text table of counts per layer."""
        head = ("layer", "units", *VERDICTS)
        rows = [
            (x.name or str(x.layer), str(x.width), *(str(x.counts[v]) for v in VERDICTS))
            for x in self.layers
        ]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True))
            for row in (head, *rows)
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, without witness points and proofs."""
        return {
            "schema": "relunorm.stability/1",
            **entries(self, "domain seconds complete random_state counts layers"),
        }

    def __repr__(self) -> str:
        parts = ", ".join(f"{n} {name}" for name, n in self.counts.items() if n)
        return f"Stability({parts or 'no units'}; over {self.domain}, {self.seconds:.2f} s)"


def layer_verdicts(
    problem: Problem, bounds: Bounds, witnesses: Witnesses, index: int, method: NDArray[np.str_]
) -> LayerStability:
    """The verdicts that bounds and witnesses give for one layer."""
    layer, kink = problem.network.layers[index], problem.kinks[index]
    lower, upper = bounds.lower[index], bounds.upper[index]
    dead, active = upper <= 0, lower >= 0
    if kink.step:
        dead = dead if kink.at_zero == 0.0 else upper < 0
        active = active if kink.at_zero == 1.0 else lower > 0
    seen = witnesses.most[index]
    unstable = (seen > 0).all(axis=0)
    verdict = np.select(
        [dead, active, unstable], ["dead", "active", "unstable"], default="undecided"
    )
    margin = np.select([dead, active, unstable], [-upper, lower, seen.min(axis=0)], default=0.0)
    return LayerStability(
        index,
        layer.name,
        str(layer.activation),
        lower,
        upper,
        verdict,
        np.where(dead | active, method, np.where(unstable, "witness", "none")),
        margin,
        witnesses.points,
        *np.where(seen > 0, witnesses.at[index], -1)[::-1],
    )
