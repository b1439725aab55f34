"""`lipschitz`: every method that applies, the best interval, and a table of what each gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from relunorm.arguments import whole_number
from relunorm.arithmetic.floats import scaled_down, scaled_up
from relunorm.clock import NO_LIMIT, Clock, Listener, Progress, Teller
from relunorm.domain import Domain
from relunorm.domain.base import short
from relunorm.errors import InvalidDomainError, InvalidInputError, RelunormError
from relunorm.extrema.localize import Local, localize
from relunorm.io.border import Model, Place, accepts
from relunorm.lipschitz.methods import points, products, sdp, theorem6
from relunorm.lipschitz.methods.branch import (
    BRANCH,
    ENUMERATION,
    Found,
    branch_and_bound,
    enumeration,
)
from relunorm.lipschitz.norms import FLOPS, Deadline, as_norm, from_l2, matrix_size, round_up
from relunorm.lipschitz.result import LipschitzBound, LipschitzResult
from relunorm.lipschitz.search.proof import Claim, SlopeProof
from relunorm.lipschitz.search.setting import Setting
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.regions.balance import to_size

#: The interval counts as exact when it is at most this wide, relative to its upper end.
EXACT = 1e-9

#: Auto leaves LipSDP out above this many inputs plus units unless the time limit is generous.
AUTO_SDP = 700

#: Seconds auto gives the sign tree before it turns to LipSDP and a longer search.
FIRST_LOOK = 0.5

#: Shares of the time that is left for folding what is stable, and for products of norms.
FOLD_SHARE, PRODUCT_SHARE = 0.25, 0.5

#: Auto searches the sign tree only up to this many free inputs and changing units.
TREE_INPUTS, TREE_UNITS = 64, 2000

#: Methods that look at regions one by one, as they are called in the table.
SEARCHES = (ENUMERATION, BRANCH)

#: Why a search has not finished: no time is left at all, or none of that for a first look.
LIMITED = "stopped by the time limit"
LOOKED = "a first look; other methods come before a longer one"

#: Why a finished search gives no upper bound.
HIDDEN = (
    "regions thinner than 1e-10 of the domain were left out, so their Jacobians are not known; "
    "a smaller domain shows them"
)
TOUCHED = (
    "some units have kinks that rounding cannot tell apart, and a region in which no float lies "
    "may be between them: its Jacobian counts"
)
MISSED = (
    "a region thinner than rounding was missed, the one of the witness: its bound is taken back"
)


@dataclass
class _Run:
    """The state of one call: what was found so far."""

    network: Network
    domain: Domain | None
    norm: float
    clock: Clock
    lower: float = 0.0
    upper: float = np.inf
    witness: Vector = field(default_factory=lambda: np.zeros(0))
    method: str = "none"
    bounds: list[LipschitzBound] = field(default_factory=list)
    complete: bool = True
    hidden: bool = False
    folded: bool = True
    claims: list[Claim] = field(default_factory=list)
    listener: Listener | None = None

    @cached_property
    def local(self) -> Local:
        """What matters of the network on the domain; in a hurry, a little more than that."""
        part = self.clock.part(share=FOLD_SHARE)
        found = localize(self.network, self.domain, part)
        self.folded = not part.expired()
        return found

    @cached_property
    def folding(self) -> float:
        """How far the Jacobian of `local` can be from that of the network, in the norm."""
        return matrix_size(self.local.jacobian_error, self.norm)

    def from_l2(self) -> tuple[float, str]:
        """What a bound in the norm 2 is multiplied by, and how to call that."""
        return from_l2(self.norm, self.local.network.input_size, self.local.network.output_size)

    @cached_property
    def setting(self) -> Setting:
        """Of all searches of regions."""
        if self.domain is None or not self.domain.rows:
            return Setting(self.local)
        part = self.clock.part(share=FOLD_SHARE)
        found = Setting.of(self.network, self.domain, part)
        self.folded = self.folded and not part.expired()
        return found

    @property
    def exact(self) -> bool:
        """Whether the interval is as narrow as `EXACT` says."""
        return bool(np.isfinite(self.upper) and self.upper - self.lower <= EXACT * self.upper)

    def share(self, part: float) -> Deadline:
        return Deadline(self.clock.part(share=part))

    def upper_bound(self, name: str, value: float, seconds: float, note: str = "") -> None:
        value = round_up(value + self.folding, 2)
        self.bounds.append(LipschitzBound(name, "upper", value, seconds, note))
        if value < self.upper:
            self.upper, self.method = value, name
        self.report()

    def lower_bound(self, name: str, value: float, point: Vector, seconds: float) -> None:
        value = max(0.0, float(np.nextafter(value - self.folding, 0.0)))
        self.bounds.append(LipschitzBound(name, "lower", value, seconds))
        if value >= self.lower:
            self.lower, self.witness = value, point
        self.report()

    def refused(self, name: str, reason: str) -> None:
        self.bounds.append(LipschitzBound(name, "upper", np.nan, 0.0, reason))

    def report(self) -> None:
        text = f"between {self.lower:.6g} and {self.upper:.6g}"
        Teller(self.listener, self.clock)(text, lower=self.lower, upper=self.upper)


@accepts("network", domains=("domain",))
def lipschitz(
    network: Model,
    domain: Place | None = None,
    norm: Any = 2,
    time_limit: float | Clock | None = 10.0,
    method: str = "auto",
    random_state: int = 0,
    progress: Listener | None = None,
) -> LipschitzResult:
    """An interval [lower, upper] around the Lipschitz constant of a network over a convex domain.

    K = sup |f(x) - f(y)|_p / |x - y|_p, the same p = 1, 2 or inf on inputs and outputs. Both ends
    are sound in float64: ``lower`` is the norm of the Jacobian at ``witness``, ``upper`` the best
    bound of the methods in the table. Exact when they meet to 1e-9, which the sign tree achieves
    whenever it finishes in time and every region is wider than 1e-10 of the domain; where a thinner
    one was left out, the tree gives no upper end and the other bounds stand. Weights of any size
    are taken: a constant above float64 has the interval [1.8e308, inf], one below it [0, 5e-324].

    Args:
        network: relu and leaky units, skips and convolutions included; step units are refused.
        domain: a box, ball or polytope; None for the whole input space. A side of length zero of a
            box removes its coordinate: only differences within the box count.
        norm: 1, 2 or inf.
        time_limit: wall seconds; None for no limit. A method that time does not suffice for gives
            a rougher bound, or none, and its note in ``bounds`` says so. Compiling the sign tree
            (once per installation) is not counted.
        method: ``auto``, or one of product, paths, theorem6, sdp, search, enumeration, branch: only
            that one (and a short search for the lower end).
        random_state: seed of the search.
        progress: called with a `Progress` as they improve; its facts are ``lower`` and ``upper``.

    An interrupt (Ctrl-C) ends the work and keeps what was found, with ``complete=False``.

    >>> from relunorm.network import Network
    >>> lipschitz(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]))  # |x|
    LipschitzResult(l2, whole space: 1, exact by branch and bound)
    """
    p = as_norm(norm)
    if method not in ("auto", *METHODS):
        raise InvalidInputError(f"method {method!r} is not known; use auto, {', '.join(METHODS)}")
    random_state = whole_number("random_state", random_state, 0)
    clock = Clock(time_limit)
    points.check_lipschitz(network)
    _check_interior(domain)
    words = "whole space" if domain is None else repr(domain)
    if domain is not None:
        domain.check_dimension(network.input_size)
    given = network
    network, exponent = to_size(network)

    run = _Run(network, domain, p, clock, listener=_to_size(progress, exponent))
    run.witness = np.zeros(network.input_size) if domain is None else np.array(domain.center)
    if domain is not None and not domain.bounding_box.halfwidth.any():
        bound = LipschitzBound("single point", "upper", 0.0, 0.0)
        return LipschitzResult(
            0.0, 0.0, run.witness, True, bound.method, p, words, (bound,), of=network.head.of
        )
    try:
        if method == "auto":
            _all_methods(run, network, random_state)
        else:
            _one_method(run, network, method, random_state)
    except KeyboardInterrupt:
        run.complete = False
    _settle(run)
    lower, upper = scaled_down(run.lower, exponent), scaled_up(max(run.upper, run.lower), exponent)
    exact = bool(np.isfinite(upper) and upper - lower <= EXACT * upper)
    return LipschitzResult(
        lower,
        upper,
        run.witness,
        exact,
        run.method,
        p,
        words,
        tuple(_scaled(bound, exponent) for bound in run.bounds),
        run.complete,
        network.head.of,
        _proof(run, given, exponent),
    )


def _proof(run: _Run, given: Network, exponent: int) -> SlopeProof | None:
    """The proof of the search's bound, on the network as it was given."""
    claims = [replace(claim, upper=scaled_up(claim.upper, exponent)) for claim in run.claims]
    if not claims:
        return None
    return SlopeProof(given.digest, run.domain, tuple(claims), run.setting.box_duals)


def _to_size(progress: Listener | None, exponent: int) -> Listener | None:
    """A listener to the bounds of the network as it was given."""
    if progress is None:
        return None
    told = Teller(progress, NO_LIMIT).listener  # refuses what cannot be called
    assert told is not None

    def listen(said: Progress) -> None:
        if "upper" not in said.facts:
            return told(said)
        lower, upper = (
            scaled_down(said.facts["lower"], exponent),
            scaled_up(said.facts["upper"], exponent),
        )
        text = f"between {lower:.6g} and {upper:.6g}"
        return told(replace(said, message=text, facts={"lower": lower, "upper": upper}))

    return listen


def _settle(run: _Run) -> None:
    """Take back the bound of a search that a Jacobian contradicts.

    The Jacobian is that of a point farther from every kink than rounding, so the search has missed
    its region. The other bounds take every region in.
    """
    if run.lower <= run.upper * (1 + EXACT):
        return
    run.claims = []
    missed = [b.method in SEARCHES and b.side == "upper" for b in run.bounds]
    run.bounds = [
        replace(b, value=np.inf, note=MISSED) if gone else b
        for b, gone in zip(run.bounds, missed, strict=True)
    ]
    left = [b for b in run.bounds if b.side == "upper" and b.value < np.inf]
    best = min(left, key=lambda b: b.value, default=None)
    run.upper, run.method = (np.inf, "none") if best is None else (best.value, best.method)
    if run.lower > run.upper * (1 + EXACT):
        raise RelunormError(
            f"the Jacobian at {short(run.witness)} has norm {run.lower:.17g}, above the bound "
            f"{run.upper:.17g} by {run.method}: rounding has spoilt one of the two, and neither "
            "can be trusted. Rescale the network or choose a smaller domain"
        )


def _scaled(bound: LipschitzBound, exponent: int) -> LipschitzBound:
    """The bound of the network as it was given."""
    return replace(
        bound, value=(scaled_up if bound.side == "upper" else scaled_down)(bound.value, exponent)
    )


def _check_interior(domain: Domain | None) -> None:
    if domain is not None and domain.rows:
        A, b = domain.sides
        lengths = np.linalg.norm(A, axis=1)
        slack = (b - A @ domain.center)[lengths > 0] / lengths[lengths > 0]
        if slack.min(initial=np.inf) <= 1e-12 * max(domain.radius, 1e-300):
            raise InvalidDomainError(
                "the polytope has no interior, so directions across it have no meaning; describe "
                "it in the coordinates of its own plane, or use a Box with a side of length zero"
            )


def _one_method(run: _Run, network: Network, method: str, random_state: int) -> None:
    _search(run, 60 if method == "search" else 5, random_state)
    METHODS[method](run, network)


def _all_methods(run: _Run, network: Network, random_state: int) -> None:
    """Cheap bounds, a first look at the tree, and only where that leaves a gap the rest."""
    local = run.local.network
    _product(run, network)
    _paths(run)
    _try(run, "Theorem 6", lambda: _auto_theorem6(run, network))
    _search(run, 4, random_state)
    too_large = local.input_size > TREE_INPUTS or local.units > TREE_UNITS
    if not too_large:
        _tree(run, FIRST_LOOK)
        if run.exact:
            return
    _try(run, sdp.METHOD, lambda: _auto_sdp(run))
    _search(run, 300, random_state + 1)
    if too_large:
        run.refused(
            BRANCH,
            f"{local.input_size} inputs and {local.units} changing units; auto searches the sign "
            f"tree up to {TREE_INPUTS} and {TREE_UNITS}",
        )
    elif not run.clock.expired() and not run.hidden:
        _tree(run, np.inf)


def _tree(run: _Run, seconds: float) -> None:
    """The search, whose bound has a proof; regions of a ball are listed where that leaves a gap."""
    domain = run.local.domain
    plane = domain is not None and domain.dimension == 2
    ball = domain is not None and domain.as_ball is not None
    _branch(run, (8 if plane or ball else 1) * seconds)
    if ball and not run.exact:
        _enumeration(run, 8 * seconds)


def _try(run: _Run, name: str, step: Callable[[], None]) -> None:
    try:
        step()
    except RelunormError as error:
        run.refused(name, str(error))


def _auto_theorem6(run: _Run, network: Network) -> None:
    if network.units > TREE_UNITS and run.clock.left() < 10:
        raise InvalidInputError(
            f"{network.units} units: above {TREE_UNITS} auto leaves Theorem 6 out with less than "
            "ten seconds left; ask for method='theorem6'"
        )
    _theorem6(run, network)


def _auto_sdp(run: _Run) -> None:
    size = run.local.network.input_size + run.local.network.units
    if size > AUTO_SDP and run.clock.left() < 60:
        raise InvalidInputError(
            f"{size} inputs and units: above {AUTO_SDP} auto runs LipSDP only when a minute is "
            "left; ask for method='sdp'"
        )
    _sdp(run)


def _product(run: _Run, network: Network) -> None:
    # Folding active units adds skips, which a product of norms pays for: keep the better form.
    until = run.share(PRODUCT_SHARE)
    value = products.norm_product(network, run.norm, until)
    if run.domain is not None and not until.clock.expired():
        value = min(value, products.norm_product(run.local.network, run.norm, until))
    run.upper_bound(products.NORM_PRODUCT, value, until.clock.elapsed(), _rough(until))


def _rough(deadline: Deadline) -> str:
    if not deadline.rough:
        return ""
    return f"time limit: {deadline.rough} spectral norms bounded by absolute values, not exactly"


def _paths(run: _Run) -> None:
    network, clock = run.local.network, Clock(run.clock)
    value = products.absolute_paths(network, run.norm)
    run.upper_bound(products.ABSOLUTE_PATHS, value, clock.elapsed())


def _theorem6(run: _Run, network: Network) -> None:
    factor, note = run.from_l2()
    until = run.share(PRODUCT_SHARE)
    found = theorem6.theorem6(network, within=until)
    seconds = until.clock.elapsed()
    note = "; ".join(filter(None, (note, _rough(until))))
    values = (found.count, found.paths, found.spectral)
    for name, value in zip(theorem6.METHODS, values, strict=True):
        run.upper_bound(name, factor * value, seconds / 3, note)


def _sdp(run: _Run) -> None:
    factor, note = run.from_l2()
    clock = run.clock.part(share=0.5)
    needed = sdp.shortest(run.local.network) / FLOPS
    if needed > clock.left():
        run.refused(sdp.METHOD, f"time limit: the first step alone takes about {needed:.1f} s")
        return
    try:
        value = factor * sdp.lipsdp(run.local.network, clock)
    except InvalidInputError as error:
        run.refused(sdp.METHOD, str(error))
        return
    run.upper_bound(sdp.METHOD, value, clock.elapsed(), note)


def _search(run: _Run, rounds: int, random_state: int) -> None:
    clock, local = run.clock.part(share=0.5), run.local
    value, point = points.search(local.network, local.domain, run.norm, rounds, clock, random_state)
    run.lower_bound(points.METHOD, value, local.lift(point), clock.elapsed())


def _enumeration(run: _Run, seconds: float) -> None:
    clock = run.clock.part(seconds)
    _exact(run, ENUMERATION, clock, lambda: enumeration(run.setting, run.norm, clock))


def _branch(run: _Run, seconds: float) -> None:
    clock = run.clock.part(seconds)
    start = run.lower, np.asarray(run.witness)[run.local.free]
    where = run.setting, run.norm, start, clock, run.listener, run.domain
    found = _exact(run, BRANCH, clock, lambda: branch_and_bound(*where))
    if found.tapes and run.folded:
        run.claims = [Claim(run.norm, run.bounds[-1].value, found.tapes)]


def _exact(run: _Run, name: str, clock: Clock, compute: Callable[[], Found]) -> Found:
    found = compute()
    note = ""
    if not found.finished:
        note = LIMITED if run.clock.expired() else LOOKED if clock.expired() else "stopped"
    if found.finished and not np.isfinite(found.upper):
        note, run.hidden = HIDDEN, True
    if found.lower > run.lower:
        point = run.local.lift(found.witness)
        run.lower_bound(name, found.lower, point, clock.elapsed())
    if found.finished and np.isfinite(found.upper) and found.upper > run.lower * (1 + EXACT):
        note = TOUCHED
    run.upper_bound(name, found.upper, clock.elapsed(), note)
    run.complete = found.finished
    return found


#: What each ``method`` does after a short search for the lower end; `_all_methods` chooses.
METHODS: dict[str, Callable[[_Run, Network], object]] = {
    "product": _product,
    "paths": lambda run, _: _paths(run),
    "theorem6": _theorem6,
    "sdp": lambda run, _: _sdp(run),
    "search": lambda *_: None,
    "enumeration": lambda run, _: _enumeration(run, np.inf),
    "branch": lambda run, _: _branch(run, np.inf),
}
