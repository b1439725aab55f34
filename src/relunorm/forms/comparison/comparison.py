"""What `compare` returns: a verdict, both bounds, a witness and a certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.certain import PARAMETERS, certain_outputs, exact_output
from relunorm.arithmetic.floats import at_least, at_most
from relunorm.clock import Clock
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.domain.inside import moved_inside
from relunorm.forms.certificate.certificate import Certificate
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.network.head import NO_HEAD, Head, of_words

Verdict = Literal["equal", "within", "different", "unknown"]


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """What was found about max |f - g| over a domain, the maximum taken over outputs too.

    Attributes:
        verdict: ``equal`` (f = g exactly), ``within`` (the proved upper bound is at most the
            tolerance), ``different`` (the witness shows more than the tolerance) or ``unknown``.
        lower, upper: proved bounds on max |f - g|, rounding of the evaluation included.
        apart: for networks with step units a bound on |f - g| away from the thresholds, as the
            certificate states it (see `Certificate.exceptions`); None for others.
        tolerance: what was asked, or what follows from the precision of the models.
        precision: ``given`` where it was asked, else the precision it follows: ``float64``,
            ``float32`` or ``float16``.
        top1: whether both choose the same class everywhere, if that was asked.
        witness: the input where the largest difference was found, None if not searched.
        first, second: both outputs at the witness.
        method: what decided.
        seconds: wall time.
        head: of both networks. All numbers speak of what comes before it (``of``).
    """

    verdict: Verdict
    lower: float
    upper: float
    tolerance: float
    witness: Vector | None
    first: Vector | None
    second: Vector | None
    method: str
    seconds: float
    apart: float | None = None
    precision: str = "given"
    top1: SameClass | None = None
    proof: Callable[[], Certificate | None] | None = field(default=None, compare=False)
    head: Head = NO_HEAD

    @property
    def of(self) -> str:
        """What f and g are: the models' outputs, or what comes before their head."""
        return self.head.of

    @property
    def upper_after_head(self) -> float | None:
        """A bound on how far the models' own outputs, after their head, can be apart.

        Of probabilities, which are apart by 1 at most, the smallest number that follows from
        ``upper`` (`Head.moved`); None where a head jumps or has no largest slope.
        """
        return self.head.moved(self.upper)

    @property
    def top1_margin(self) -> float | None:
        """Wherever the classes differ, neither model prefers its own to the other's by more.

        There f_i >= f_j and g_j >= g_i, and each output of f is within ``upper`` of that of g, so
        f_i - f_j <= 2 upper, and so is g_j - g_i. None unless they were found to differ.
        """
        different = self.top1 is not None and self.top1.verdict == "different"
        return 2 * self.upper if different else None

    @cached_property
    def certificate(self) -> Certificate | None:
        """Proof of the bound that relating units gave; it replays without a solver."""
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite bound proves nothing
            return None if self.proof is None else self.proof()

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; an infinite bound is null."""
        return {
            "schema": "relunorm.comparison/1",
            **entries(
                self,
                "verdict lower upper tolerance precision witness first second method "
                "seconds apart top1 top1_margin of upper_after_head",
            ),
        }

    def __repr__(self) -> str:
        follows = "" if self.precision == "given" else f" for {self.precision}"
        return (
            f"Comparison({self.verdict}: {at_least(self.lower, 3)} <= max |f - g| "
            f"<= {at_most(self.upper, 3)}, "
            f"by {self.method}, tolerance {self.tolerance:.3g}{follows}, {self.seconds:.2f} s"
            f"{of_words(self.of)}{self._after_head})"
        )

    @property
    def _after_head(self) -> str:
        moved = self.upper_after_head if self.head else None
        return "" if moved is None else f"; {self.head.returned} within {at_most(moved, 3)}"


#: Lines between inputs of different classes that are bisected, and how often.
LINES, HALVINGS = 256, 60


@dataclass(frozen=True, eq=False)
class SameClass:
    """Whether both networks choose the same class everywhere on a domain.

    Attributes:
        verdict: ``same`` (proved), ``different`` (at the witness, in real arithmetic) or
            ``unknown``.
        witness: an input at which they choose different classes.
        first, second: those classes, or where the verdict is ``same`` the only one if there is one.
    """

    verdict: Literal["same", "different", "unknown"]
    witness: Vector | None = None
    first: int | None = None
    second: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return entries(self, "verdict witness first second")


def same_class(
    first: Network, second: Network, domain: Domain, points: Array, clock: Clock
) -> SameClass:
    """Compare the classes of two networks over a domain.

    Args:
        points: of the domain, to begin with.
    """
    networks = first, second
    for point in _candidates(networks, domain, points, clock):
        inside = moved_inside(domain, point)
        if inside is None:
            continue
        classes = [exact_class(network, inside) for network in networks]
        if None not in classes and classes[0] != classes[1]:
            return SameClass("different", inside, *classes)
    only = classes_at(first, points[:1])[0]
    halves = clock.part(share=0.5), clock
    if all(_always(n, int(only), domain, part) for n, part in zip(networks, halves, strict=True)):
        return SameClass("same", None, int(only), int(only))
    return SameClass("unknown")


def classes_at(network: Network, points: Array) -> NDArray[np.intp]:
    """The class at every point, in floats."""
    outputs = network(points)
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.intp)
    return outputs.argmax(axis=1)


def exact_class(network: Network, point: Vector) -> int | None:
    """The class at a point in real arithmetic; None where that takes too long to decide."""
    value, off = (part[0] for part in certain_outputs(network, point[None]))
    if len(value) == 1:
        if abs(value[0]) > off[0]:
            return int(value[0] > 0)
    else:
        top = int(value.argmax())
        others = np.delete(value + off, top)
        if value[top] - off[top] > others.max():
            return top
    if network.parameters > PARAMETERS:
        return None
    exact = exact_output(network, point)
    if len(exact) == 1:
        return int(exact[0] > Fraction(0))
    return max(range(len(exact)), key=lambda k: (exact[k], -k))


def _candidates(
    networks: tuple[Network, Network], domain: Domain, points: Array, clock: Clock
) -> Array:
    """Inputs at which the classes differ in floats, the clearest first."""
    found = [points]
    for network in networks:
        if clock.expired():
            break
        classes = classes_at(network, points)
        order = np.argsort(classes, kind="stable")
        pairs = np.stack([order, order[::-1]], axis=1)
        pairs = pairs[classes[pairs[:, 0]] != classes[pairs[:, 1]]][:LINES]
        if not len(pairs):
            continue
        a, b = points[pairs[:, 0]], points[pairs[:, 1]]
        start = classes[pairs[:, 0]]
        for _ in range(HALVINGS):
            middle = a / 2 + b / 2
            same = classes_at(network, middle) == start
            a, b = np.where(same[:, None], middle, a), np.where(same[:, None], b, middle)
        gap = domain.bounding_box.halfwidth.max()
        way = (b - a) / np.maximum(np.linalg.norm(b - a, axis=1, keepdims=True), 1e-300)
        found += [a, b]
        for share in (1e-9, 1e-7, 1e-5, 1e-4, 1e-3):
            found += [a - share * gap * way, b + share * gap * way]
    every = np.concatenate(found)
    every = every[domain.contains(every)]
    apart = every[classes_at(networks[0], every) != classes_at(networks[1], every)]
    clear = [_lead(network, apart) for network in networks]
    return apart[np.argsort(-np.minimum(*clear), kind="stable")[:64]]


def _lead(network: Network, points: Array) -> Vector:
    """How far the largest output is ahead of the second largest."""
    outputs = network(points) if len(points) else np.zeros((0, network.output_size))
    if outputs.shape[1] == 1:
        return np.abs(outputs[:, 0])
    top = np.partition(outputs, -2, axis=1)
    return top[:, -1] - top[:, -2]


def _always(network: Network, only: int, domain: Domain, clock: Clock) -> bool:
    """Whether it is proved that a network has this class everywhere."""
    from relunorm.extrema.maximize import maximize

    count = network.output_size
    if count == 1:
        directions = -np.eye(1) if only else np.eye(1)
    else:
        directions = np.delete(np.eye(count) - np.eye(count)[only], only, axis=0)
    for turn, direction in enumerate(directions):
        part = clock.part(share=1 / (len(directions) - turn))
        if not maximize(network, domain, direction, part, tolerance=1e-3).upper < 0:
            return False
    return True
