"""Which units of a network do nothing, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import real_numbers
from relunorm.clock import Clock
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.dying.sentences import sentences
from relunorm.dying.target import TargetAdvice, mean_and_deviation, target_advice
from relunorm.dying.unit_entries import UnitEntries, duplicate_units
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.io import framework_of
from relunorm.io.border import Model, Place, accepts
from relunorm.network import Layer, Network

if TYPE_CHECKING:
    from relunorm.stability.verdicts import Stability

Mask = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class LayerDiagnosis:
    """The units of one layer; a channel or a feature of a sequence is one, at many positions.

    Attributes:
        active_share: share of the rows (and positions) on which a unit is active.
        dead, always_on: active on no row, on every row, at any position. A leaky unit is never
            dead: below 0 it passes its slope on.
        provably_dead, provably_on: on the whole domain; None when no domain was given.
        duplicate_of: an earlier unit of the layer with the same boundary and side, or -1.
        score: mean |value| over the layer's mean (ReDo's dormancy score).
        dormant: not dead, score at most tau.
        cone: mean over deviation of the pre-activation on the data: b/|w| for standard normal
            inputs (seed 002, eq. 23). Far below 0: dying; far above: linear.
        positions: how many entries of the layer a unit has. dead_positions: at how many of them it
            is active on no row: no reason to revive a unit that is active elsewhere.
    """

    layer: int
    name: str
    activation: str
    active_share: NDArray[np.float64]
    dead: Mask
    always_on: Mask
    provably_dead: Mask | None
    provably_on: Mask | None
    duplicate_of: NDArray[np.int64]
    score: NDArray[np.float64]
    dormant: Mask
    cone: NDArray[np.float64]
    positions: NDArray[np.int64]
    dead_positions: NDArray[np.int64]

    @property
    def width(self) -> int:
        """How many units the layer has."""
        return len(self.dead)

    @property
    def duplicate(self) -> Mask:
        """Units that repeat an earlier one."""
        return self.duplicate_of >= 0

    @property
    def counts(self) -> dict[str, int | None]:
        """How many units have each finding."""
        optional = {"provably_dead": self.provably_dead, "provably_on": self.provably_on}
        return {
            "units": self.width,
            "dead": int(self.dead.sum()),
            "always_on": int(self.always_on.sum()),
            **{k: None if v is None else int(v.sum()) for k, v in optional.items()},
            "duplicate": int(self.duplicate.sum()),
            "dormant": int(self.dormant.sum()),
        }

    def status(self) -> list[str]:
        """One word per unit, the strongest finding first."""
        words = np.full(self.width, "live", dtype=object)
        for mask, word in (
            (self.duplicate, "duplicate"),
            (self.always_on, "always on"),
            (self.dormant, "dormant"),
            (self.dead, "dead on the data"),
        ):
            words[mask] = word
        if self.provably_dead is not None:
            words[self.provably_dead] = "dead on the domain"
        return words.tolist()

    def __repr__(self) -> str:
        found = ", ".join(f"{n} {k.replace('_', ' ')}" for k, n in self.counts.items() if n)
        if (self.positions > 1).any():
            found += f"; silent at {self.dead_positions.sum()} of {self.positions.sum()} positions"
        return f"LayerDiagnosis({self.name or self.layer}: {found})"

    def to_dict(self) -> dict[str, Any]:
        return {
            **entries(self, "layer name activation counts"),
            "status": self.status(),
            **entries(self, "active_share score duplicate_of cone positions dead_positions"),
        }


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """Findings per layer, the target's scale, and advice in the order to follow it.

    Attributes:
        undecided: units the stability engine could not decide on the domain.
        advice: sentences that name the next step.
    """

    layers: tuple[LayerDiagnosis, ...]
    target: TargetAdvice | None
    rows: int
    domain: str
    undecided: int
    advice: tuple[str, ...]

    @property
    def dead(self) -> int:
        """Units dead on the data."""
        return sum(int(layer.dead.sum()) for layer in self.layers)

    @property
    def units(self) -> int:
        """All units."""
        return sum(layer.width for layer in self.layers)

    def __repr__(self) -> str:
        head = f"Diagnosis({self.units} units on {self.rows} rows: {self.dead} dead)"
        lines = [f"  {layer!r}" for layer in self.layers] + [f"  -> {text}" for text in self.advice]
        return "\n".join([head, *lines])

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.dying.diagnosis/1",
            **entries(self, "rows domain units dead undecided layers target advice"),
        }


def diagnose(
    model: Model,
    X: ArrayLike,
    y: ArrayLike | None = None,
    domain: Place | None = None,
    *,
    tau: float = 0.025,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    time_limit: float | Clock | None = 30.0,
    analysis: Stability | None = None,
    framework: str | None = None,
) -> Diagnosis:
    """Find the units that do nothing on the data, provably on a domain, or nothing of their own.

    Args:
        model: a `Network`, or anything `relunorm.load` reads (a torch module, a file).
        X: rows of data, (n, d) or (n, ...) with the shape of an input.
        y: regression targets, for the warning about their scale; names of classes have none.
        domain: inputs on which "dead" and "always on" are to be proved (`relunorm.stability`).
        tau: dormancy threshold.
        optimizer, lr, momentum: how the model is trained, for the target warning.
        time_limit: seconds for the proofs; what is open then stays undecided.
        analysis: the result of `stability` on this network (`Network.folded` if it has linear
            stages) and domain, if at hand.
        framework: ``torch``, ``keras`` or ``sklearn``, in whose words the advice speaks; empty for
            a file, which nobody trains. By default that of the model given.

    Exact on the rows given; proofs on the domain are sound. Cost: one forward pass, plus the
    proofs.

    >>> net = Network.from_weights(
    ...     [[[1.0], [1.0], [2.0]], [[1.0, 1.0, 1.0]]], [[0.0, -9.0, 0.0], [0.0]])
    >>> found = diagnose(net, [[-1.0], [2.0]])
    >>> found.layers[0].status()
    ['live', 'dead on the data', 'duplicate']
    """
    if framework is None:
        framework = framework_of(model)
    if not tau >= 0:
        raise InvalidInputError(f"tau is {tau}, expected a number of at least 0")
    if isinstance(y, Iterable) and any(isinstance(label, str) for label in y):
        y = None  # names of classes
    layers, rows, where, undecided = _findings(model, X, y, tau, time_limit, analysis, domain)
    target = None
    if y is not None:
        target = target_advice(y, optimizer=optimizer, lr=lr, momentum=momentum)
    advice = sentences(layers, target, bool(where), framework)
    return Diagnosis(layers, target, rows, where, undecided, advice)


@accepts("model", domains=("domain",), data="X")
def _findings(
    model: Model,
    X: ArrayLike,
    y: ArrayLike | None,
    tau: float,
    time_limit: float | Clock | None,
    analysis: Stability | None,
    domain: Place | None = None,
) -> tuple[tuple[LayerDiagnosis, ...], int, str, int]:
    """The layers, how many rows, the domain as text, and how many units stayed undecided."""
    rows = _data(X)
    if y is not None and np.shape(y)[:1] != (len(rows),):
        raise InvalidInputError(f"y has shape {np.shape(y)}, but X has {len(rows)} rows")
    network: Network = model
    if not network.hidden:
        raise InvalidInputError(f"{network!r} has no units to diagnose")
    names = _unit_layers(network)
    if not names:
        raise InvalidInputError(
            f"{network!r} has no units to diagnose but pieces of maxima, minima, |x| and the like"
        )
    proved, undecided = _proofs(network, domain, time_limit, analysis, names)
    layers = tuple(
        _layer(network, index, names[index], z, proved.get(index), tau)
        for index, z in zip(network.hidden, network.preactivations(rows), strict=True)
        if index in names
    )
    return layers, len(rows), "" if domain is None else repr(domain), undecided


def _data(X: Any) -> NDArray[np.float64]:
    """The rows as float64, checked."""
    rows = real_numbers("X", X).astype(np.float64, copy=False)
    if rows.ndim < 2 or not len(rows):
        raise InvalidInputError(f"X has shape {rows.shape}, expected (n, d) with at least one row")
    if not np.isfinite(rows).all():
        raise InvalidInputError("X holds NaN or infinite entries; fill or drop those rows first")
    return rows


def _proofs(
    network: Network,
    domain: Domain | None,
    time_limit: float | Clock | None,
    analysis: Stability | None,
    names: Mapping[int, str],
) -> tuple[dict[int, Any], int]:
    if domain is None:
        if analysis is not None:
            raise InvalidDomainError("an analysis speaks of a domain; pass the same domain too")
        return {}, 0
    from relunorm.stability import stability

    if analysis is not None:
        analysis.check(network.folded(), domain)
    found = analysis or stability(network, domain, time_limit=time_limit)
    every = zip(network.hidden, found.layers, strict=True)
    layers = {index: layer for index, layer in every if index in names}
    undecided = sum(_undecided(network.layers[index], x.verdict) for index, x in layers.items())
    return layers, undecided


def _undecided(layer: Layer, verdict: NDArray[np.str_]) -> int:
    """Units with an open position that may still turn out dead, or on, at all of them."""
    units = UnitEntries.of_layer(layer)
    may = [units.all_of(np.isin(verdict, ("undecided", side))) for side in ("dead", "active")]
    return int(((may[0] | may[1]) & (units.count_of(verdict == "undecided") > 0)).sum())


def _unit_layers(network: Network) -> dict[int, str]:
    """The layers of a network that hold a model's units, with a name for each.

    A maximum is read as max(a, b) = a + relu(b - a), a clip with a relu for each end, |x| as
    2 relu(x) - x: the reader marks such helpers as pieces, and they are left out. So are layers
    of constants, which no unit owns.
    """
    found: dict[int, str] = {}
    for index in network.hidden:
        layer = network.layers[index]
        name = layer.name
        if not layer.piece and (layer.unit_of is None or layer.unit_of.max() >= 0):
            again = sum(given.split("#")[0] == name for given in found.values())
            found[index] = f"{name}#{again}" if name and again else name
    return found


def _layer(
    network: Network, index: int, name: str, z: NDArray[np.float64], proved: Any, tau: float
) -> LayerDiagnosis:
    layer = network.layers[index]
    units = UnitEntries.of_layer(layer)
    active, magnitude, cone = np.empty((3, len(units.positions)))
    for which, part in units.samples(z):
        active[which] = (part > 0).mean(axis=0)
        magnitude[which] = np.abs(layer.activation.apply_(part.copy())).mean(axis=0)
        cone[which] = _position(part)
    mean = magnitude.mean()
    score = magnitude / mean if mean > 0 else np.zeros_like(magnitude)
    silent = layer.activation.slopes[0] == 0  # what a leaky unit gives below 0 is no silence
    dead = (active == 0) & silent
    return LayerDiagnosis(
        index,
        name,
        str(layer.activation),
        active,
        dead,
        active == 1,
        None if proved is None else units.all_of(proved.verdict == "dead") & silent,
        None if proved is None else units.all_of(proved.verdict == "active"),
        duplicate_units(layer.affine, units),
        score,
        ~dead & (score <= tau),
        cone,
        units.positions,
        units.count_of(((z > 0).sum(axis=0) == 0) & silent),
    )


def _position(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over deviation of every column; of a constant one its sign times infinity."""
    center, spread = mean_and_deviation(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        cone = np.where(spread > 0, center / spread, np.sign(center) * np.inf)
    return np.where(np.isnan(cone), -np.inf, cone)
