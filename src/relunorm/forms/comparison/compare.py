"""`compare`: are two networks the same function over a domain, and if not, where do they differ?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from relunorm.arithmetic.certain import PARAMETERS, exact_output
from relunorm.arithmetic.floats import at_least, at_most, float_above, float_below
from relunorm.bounds.problem import few_threads
from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.difference.difference import Ends, bound_difference
from relunorm.domain import Box, Domain
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError, InvalidNetworkError, TimeLimitError
from relunorm.forms.certificate.certificate import Certificate, certify
from relunorm.forms.comparison.comparison import Comparison, SameClass, Verdict, same_class
from relunorm.forms.comparison.counterexample import Counterexample
from relunorm.forms.comparison.shallow import (
    ShallowForm,
    largest_difference,
    shallow_cost,
    shallow_form,
    steps_apart,
)
from relunorm.forms.comparison.stepwise import same_steps, stepwise_difference
from relunorm.forms.outward import Range, quick_bounds, stable_bounds
from relunorm.forms.precision import UNITS, default_tolerance
from relunorm.forms.relation.arrangement import same_arrangement
from relunorm.forms.relation.match import SAME, folding_error, relate
from relunorm.forms.relation.on_demand import NODES, Asking, relate_on_demand
from relunorm.forms.relation.relate import Walk
from relunorm.forms.relation.residual import linear_bounds, residual, search
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.stability import Stability, stability
from relunorm.stability.bound_proofs import Proofs
from relunorm.sweep.backends import worker_count

#: Rational arithmetic is tried up to this many products.
RATIONAL = 200_000
#: What `stepwise` is called in answers.
STEPWISE = "following the difference step by step"
#: Nodes of branching for the units of one layer that have no partner, when nothing else helped.
MANY_NODES = 100_000
#: Of the time that is left, for bounds on the difference unit by unit: a search on what remains of
#: two networks is as a rule done in a moment, or never.
NEAR_SHARE = 0.98


@accepts("first", "second", domains=("domain",))
@np.errstate(over="ignore", invalid="ignore")  # an infinite bound proves nothing
def compare(
    first: Model,
    second: Model,
    domain: Place,
    *,
    tolerance: float | None = None,
    factor: float = 3.0,
    top1: bool = False,
    time_limit: float | Clock | None = 60.0,
    analysis: tuple[Stability | None, Stability | None] = (None, None),
    progress: Listener | None = None,
    random_state: int = 0,
    workers: int | None = None,
) -> Comparison:
    """Decide whether two networks agree over a domain up to a tolerance.

    In order, stopping as soon as one decides: exact arrangement (permutations and powers of two);
    rational canonical forms of small shallow networks; a few hundred points; following the
    difference through convolutions that both were read as; relating the units of
    both, with a proof that those without a partner are linear, and propagating the difference; for
    steps, rational arithmetic on one hidden layer or on every piece of an interval; a search for a
    counterexample; the same relation with more time for its proofs, then with the stability of
    every unit proved; linear bounds and branch and bound on what is left of f - g once shared units
    have cancelled. Networks that differ a little get both ends of max |f - g| from bounds on their
    difference, unit by unit, and a search on those (`relunorm.difference`).

    Args:
        first, second: networks, or anything `load` reads, with the same head; the comparison is of
            what comes before it, and ``.upper_after_head`` carries the bound over.
        tolerance: how far apart the outputs may be. None follows the precision of the models:
            1e-9 for double precision, else 64 roundings of the largest output; of two exports of
            one convolutional model what rounding their sums can do, where that is more.
        factor: the search for both ends stops when the upper is at most this factor times the
            lower.
        top1: whether to ask, too, if both choose the same class everywhere (`Comparison.top1`).
        time_limit: wall seconds for everything after the fast path; None for no limit.
        analysis: the results of `stability` on either network, if at hand.
        progress: called with a `Progress`: what is being tried; its facts are ``lower``, ``upper``.
        workers: threads that bound the difference of near copies; 1 by default, -1 for all cores.

    ``within`` and ``different`` are proved in real arithmetic; ``unknown`` comes with the best
    bounds. Cost: milliseconds for a rewritten copy, at most the time limit otherwise.

    >>> from relunorm import Box
    >>> first = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])
    >>> second = Network.from_weights([[[-3.0], [3.0]], [[1 / 3, 1 / 3]]])
    >>> compare(first, second, Box([-1.0], [1.0])).verdict
    'within'
    """
    clock = Clock(time_limit)
    _check(first, second, domain, tolerance, factor)
    if top1:
        first.check_decides("leave top1 out, or compare what comes before (--before-head)")
    for network, found in zip((first, second), analysis, strict=True):
        if found is not None:
            found.check(network.folded(), domain)
    search = _Search(
        first, second, domain, tolerance, factor, clock, analysis, progress, random_state,
        worker_count(workers),
    )  # fmt: skip
    wider = max(first, second, key=lambda network: max(network.widths))
    with few_threads(wider):
        found = search.run()
        if not top1:
            return found
        classes = search.classes(found)
        return replace(search.raised(found, classes.witness), top1=classes)


def _check(
    first: Network, second: Network, domain: Domain, tolerance: float | None, factor: float
) -> None:
    for what, a, b in (
        ("inputs", first.input_size, second.input_size),
        ("outputs", first.output_size, second.output_size),
    ):
        if a != b:
            raise InvalidInputError(
                f"the networks have {a} and {b} {what}; only functions of the same shape can be "
                "compared"
            )
    if first.head.unpaired.steps != second.head.unpaired.steps:
        heads = [network.head.label or "nothing" for network in (first, second)]
        raise InvalidInputError(
            f"the networks end in {heads[0]} and in {heads[1]}, so they are different functions; "
            "for what comes before, compare first.without_head() and second.without_head() "
            "(--before-head)"
        )
    shapes = first.output_shape, second.output_shape
    if shapes[0] != shapes[1] and first.head.looks_along_axes:
        raise InvalidInputError(
            f"the networks end in a {first.head.label} of outputs of shape {shapes[0]} and "
            f"{shapes[1]}, so they are different functions"
        )
    domain.check_dimension(first.input_size)
    if tolerance is not None and not (np.isfinite(tolerance) and tolerance >= 0):
        raise InvalidInputError(f"tolerance is {tolerance}, expected a number >= 0")
    if not factor >= 1:
        raise InvalidInputError(f"factor is {factor}, expected a number >= 1")


class _Search:
    """The state of one comparison: the bounds and the best point so far."""

    def __init__(
        self, first, second, domain, tolerance, factor, clock, analysis, progress, random_state,
        workers,
    ):  # fmt: skip
        self.given = (first, second)
        self.first, self.second = first.folded(), second.folded()
        self.domain, self.reach, self.factor = domain, reach_of(domain), factor
        rng = np.random.default_rng(random_state)
        self.seen = Counterexample(self.given, domain, 0.0, rng, clock)
        self.tolerance, self.precision = tolerance, "given"
        if tolerance is None:
            self.tolerance, self.precision = default_tolerance(self.given, self.seen.points)
        self.seen.tolerance = self.tolerance
        self.clock, self.tell = clock, Teller(progress, clock)
        self.progress = progress
        self.analysis = [
            None if found is None else (stable_bounds(found), found.proofs)
            for network, found in zip((self.first, self.second), analysis, strict=True)
        ]
        self.random_state, self.workers = random_state, workers
        self.upper = np.inf
        self.proof: Callable[..., Certificate | None] | None = None
        self.difference: Ends | None = None
        self.method = "none"
        self.jumps = any(
            x.activation.kind == "step" for n in (self.first, self.second) for x in n.layers
        )
        self.away: Walk | None = None
        self.unproved = self.same = False
        self.forms: list[ShallowForm] = []
        self.apart: float | None = None

    @cached_property
    def folding(self) -> Vector:
        """How far folding linear stages can have moved the outputs."""
        zero = np.zeros(self.first.output_size)
        return sum((folding_error(n, self.reach, self.clock) for n in self.given), start=zero)

    def run(self) -> Comparison:
        if same_arrangement(*self.given):
            return self._equal("exact arrangement")
        if self._rationally_equal():
            return self._equal("rational form")
        known = any(found is not None for found in self.analysis)
        ways = (
            *((self._given, self.seen.probe) if known else ()),
            *(() if known else (self.seen.probe, self._stepwise, self._demand)),
            self._values,
            self._between,
            self.seen.climb,
            self._near,
            self._insist,
            self._proved,
            self._solve,
        )
        try:
            for way in ways:
                with suppress(TimeLimitError):  # the next one has its own share, or ends at once
                    way()
                if self.seen.found:
                    self.method = "counterexample"
                self._say(self.method)
                verdict = self._verdict()
                if verdict == "unknown":
                    continue
                near = self.seen.found or (self.seen.visible and self.method != STEPWISE)
                if near and verdict != "equal":
                    self._ends()
                return self._answer(self._verdict())
        except KeyboardInterrupt:
            self.method += f", {INTERRUPTED}"
        if self.clock.expired():
            self.method += f", {TIME_LIMIT}"
        return self._answer(self._verdict())

    def _verdict(self) -> Verdict:
        """What is known, whatever ended the search."""
        if self.same:
            return "equal"
        if self.upper <= self.tolerance:
            return "within"
        return "different" if self.seen.found else "unknown"

    def _equal(self, method: str) -> Comparison:
        with suppress(TimeLimitError):
            self._demand()  # for its certificate
        self.upper, self.method = 0.0, method
        return self._answer("equal")

    def _given(self) -> None:
        """Relate the units with the bounds of the analyses that were passed."""
        self._relate("related units", self._bounds())

    def _stepwise(self) -> None:
        """Follow the difference of two models that were read as the same convolutions.

        In single precision no two exports agree to better than the rounding of their own sums, so
        what that can do is the tolerance, where none was asked and it is larger.
        """
        if self.jumps or not same_steps(*self.given):
            return
        unit = UNITS.get(self.precision, 0.0)
        box = Box(self.reach.lo, self.reach.hi)
        upper, rounded = stepwise_difference(*self.given, box, unit, self.clock)
        if upper < self.upper:
            self.upper, self.method = upper, STEPWISE
            nothing = Walk(self.reach), self.given, (None, None), [0, 1]
            self.proof = partial(certify, *nothing, stepwise=True)
        if rounded > self.tolerance and not self.seen.found:
            self.tolerance = self.seen.tolerance = rounded

    def _demand(self, nodes: int = NODES, share: float = 0.25) -> None:
        """Relate the units; bounds only of those without a partner."""
        pair = (self.first, self.second)
        order = sorted((0, 1), key=lambda i: pair[i].units)
        clock = self.clock.part(share=share)

        def walk(away: bool) -> tuple[Walk, list[Proofs | None]]:
            asked = [Asking.about(pair[i], self.reach, self.seen.points) for i in order]
            for asking in asked:
                asking.nodes, asking.query.clock = nodes, clock
            found = relate_on_demand(asked, self.tolerance, self.reach, away=away, clock=self.clock)
            self.unproved = any(asking.query.failed for asking in asked)
            return found.walk, [found.proofs[order.index(i)] for i in (0, 1)]

        if self.jumps:  # the certificate leaves out thresholds, the bound does not
            self.away, proofs = walk(True)
            self.apart = self._bound(self.away)
            if np.isfinite(self.apart):
                self.proof = partial(certify, self.away, self.given, proofs, order)
        found, proofs = walk(False)
        self._take(found, "related units", partial(certify, found, self.given, proofs, order))

    def _insist(self) -> None:
        """Once more, with time for the proofs that were given up."""
        if self.unproved and not self.jumps:
            self._demand(MANY_NODES, 0.5)

    def _values(self) -> None:
        """Compare steps in rational arithmetic: by their forms, or by all values they take."""
        if not self.jumps:
            return
        if self.forms and self.domain.as_box is not None:
            apart = steps_apart(self.forms[0], self.forms[1], self.domain.as_box)
            if apart is not None and apart < self.upper:
                self.upper, self.method = float_above(apart), "rational form"
            if self.upper <= self.tolerance:
                return
        found = largest_difference(*self.given, self.domain, self.clock)
        if found is None:
            return
        most, witness = found
        self.same = most == 0
        if self.same or most < self.upper:
            self.upper, self.method = float_above(most), "rational values of every piece"
        if most > self.tolerance and witness is not None:
            self.seen.offer(np.array([witness]))

    def _between(self) -> None:
        """Look beside the thresholds of related steps."""
        if self.away is not None:
            self.seen.between(self.away)

    def _proved(self) -> None:
        """Relate again with exact stability of both networks."""
        if self.jumps:
            return
        pair = (self.first, self.second)
        for i in sorted((0, 1), key=lambda k: -pair[k].units):  # the larger has more to prove
            if self.analysis[i] is not None or self.clock.expired():
                continue
            found = stability(
                pair[i],
                self.domain,
                time_limit=self.clock.part(share=0.5),
                progress=self._listener("stability"),
                random_state=self.random_state,
            )
            self.analysis[i] = stable_bounds(found), found.proofs
            self._relate("related units, stability proved", self._bounds())
            if self.upper <= self.tolerance:
                return

    def _ends(self) -> None:
        """Once the verdict is known: bring the ends together, or give an upper one at all."""
        method = self.method
        for way in (self._stepwise, partial(self._near, 1.0)):
            with suppress(TimeLimitError):
                way()
        if not np.isfinite(self.upper):
            with suppress(TimeLimitError):
                self._residual()
        if self.seen.found:
            self.method = method

    def _near(self, share: float = NEAR_SHARE) -> None:
        """Bound the difference unit by unit, and search on it."""
        if self.jumps or self.upper <= self._enough():
            return
        folding = float(self.folding.max())

        def tell(upper: float, method: str) -> None:
            upper = float(np.nextafter(upper + folding, np.inf))
            if upper < self.upper:
                self.upper, self.method = upper, method
            self._say(self.method)

        found = bound_difference(
            self.first,
            self.second,
            self.reach,
            self.seen.offer_best,
            self._enough,
            self.clock.part(share=share),
            tell,
            self.workers,
        )
        if self.difference is None or (found and found.largest < self.difference.largest):
            self.difference = found
        if found and found.interrupted:
            raise KeyboardInterrupt

    def _enough(self) -> float:
        """The upper bound at which to stop: it decides, and is near the lower one."""
        if self.seen.found or self.upper <= self.tolerance:
            return self.factor * self.seen.lower
        if self.tolerance == 0 and self.seen.lower <= 0:
            return np.inf  # no search shows that two functions are equal
        return self.tolerance

    def classes(self, found: Comparison) -> SameClass:
        """Whether both networks choose the same class everywhere."""
        if found.verdict == "equal":
            return SameClass("same")
        if self.jumps:
            return SameClass("unknown")
        return same_class(*self.given, self.domain, self.seen.points, self.clock)

    def raised(self, found: Comparison, point: Vector | None) -> Comparison:
        """With what a point shows at which the classes differ, where nothing else is known."""
        if point is None or found.lower > 0 or max(n.parameters for n in self.given) > PARAMETERS:
            return found
        outputs = [exact_output(network, point) for network in self.given]
        lower = float_below(max(abs(a - b) for a, b in zip(*outputs, strict=True)))
        if found.witness is None:
            return replace(found, lower=lower)
        first, second = (network(point) for network in self.given)
        return replace(found, lower=lower, witness=point, first=first, second=second)

    def _listener(self, stage: str) -> Listener | None:
        """Hear of a stage that takes long and pass it on."""
        if self.progress is None:
            return None
        return lambda said: self._say(f"{stage}: {said.message}")

    def _say(self, what: str) -> None:
        lower, upper = self.seen.lower, self.upper
        text = f"{at_least(lower, 3)} <= max |f - g| <= {at_most(upper, 3)}, {what}"
        self.tell(text, lower=lower, upper=upper)

    def _solve(self) -> None:
        """Bound the residual network: linearly, then by branch and bound."""
        left = self._residual()
        if left is not None and self.upper > self._enough():
            self._branch(*left)

    def _residual(self) -> tuple[Network, Vector] | None:
        """Bound the residual network linearly; the network and its error."""
        if self.jumps:
            return None
        # only copies are shared now: what merely resembles another unit must stay visible
        first, second = self._bounds()
        walk = relate(
            self.first, self.second, self.reach, first, second, alike=SAME, clock=self.clock
        )
        try:
            rest, error = residual(walk)
        except InvalidNetworkError:  # a product of weights left the range of float64
            self.method += ", the residual overflows"
            return None
        low, high = linear_bounds(rest, walk, self.clock)
        error = error + self.folding
        bounds = np.concatenate([high + error, error - low])
        self.rest = partial(certify, walk, self.given, self._proofs(), [0, 1], residual=True)
        if bounds.max() < self.upper:
            self.upper, self.method = float(bounds.max()), "linear bounds on the residual"
            self.proof = self.rest
        return rest, error

    def _branch(self, rest: Network, error: Vector) -> None:
        """Search the residual for a verdict, or for both ends once that is known."""
        most, decided = float(error.max()), self.seen.found or self.upper <= self.tolerance
        below = self.seen.lower if decided or self.tolerance == 0 else self.tolerance - most
        if self.clock.expired() or not below > 0:
            return
        factor = self.factor if decided or self.tolerance == 0 else None
        tell = Teller(self._listener("branch and bound"), self.clock)
        found, point = search(rest, self.domain, below, factor, self.clock, tell, self.random_state)
        self.seen.offer(point)
        upper = float(np.nextafter(found.upper + most, np.inf))
        if upper < self.upper:
            self.upper, self.method = upper, "branch and bound on the residual"
            self.proof = partial(self.rest, residual=found)

    def _bounds(self) -> list[list[Range]]:
        """The best proved pre-activation bounds of both networks."""
        result = []
        for network, found in zip((self.first, self.second), self.analysis, strict=True):
            quick = quick_bounds(network, self.reach, self.clock)
            if found is not None:
                quick = [a.meet(b) for a, b in zip(quick, found[0], strict=True)]
            result.append(quick)
        return result

    def _relate(self, method: str, bounds: list[list[Range]]) -> None:
        walk = relate(self.first, self.second, self.reach, bounds[0], bounds[1], clock=self.clock)
        self._take(walk, method, partial(certify, walk, self.given, self._proofs(), [0, 1]))

    def _proofs(self) -> list[Proofs | None]:
        """What proves `_bounds`."""
        return [None if found is None else found[1] for found in self.analysis]

    def _bound(self, walk: Walk) -> float:
        return float((walk.difference.largest + self.folding).max())

    def _take(self, walk: Walk, method: str, proof: Callable[..., Certificate | None]) -> None:
        """Keep what a walk proves, if it is more than is known."""
        bound = self._bound(walk)
        if bound < self.upper:
            self.upper, self.method = bound, method
        if not self.jumps and (self.proof is None or bound <= self.upper):
            self.proof = proof

    def _rationally_equal(self) -> bool:
        cost = max(map(shallow_cost, self.given))
        if cost > RATIONAL or self.domain.as_box is None:
            return False
        self.forms = [shallow_form(n, self.domain) for n in self.given]
        return self.forms[0].digest == self.forms[1].digest

    def _proof(self) -> Callable[[], Certificate | None] | None:
        """What makes the certificate once it is asked for."""
        if self.proof is None and self.difference is None:
            return None
        return partial(self.proof or self._related, difference=self.difference)

    def _related(self, difference: Ends | None) -> Certificate | None:
        """The certificate of a difference that was bounded before any unit was related."""
        bounds = [quick_bounds(network, self.reach) for network in (self.first, self.second)]
        walk = relate(self.first, self.second, self.reach, bounds[0], bounds[1])
        return certify(walk, self.given, (None, None), difference=difference)

    def _answer(self, verdict: Verdict) -> Comparison:
        point = self.seen.point if verdict in ("different", "unknown") else None
        outputs = (None, None) if point is None else (self.given[0](point), self.given[1](point))
        return Comparison(
            verdict,
            self.seen.lower,
            self.upper,
            self.tolerance,
            point,
            *outputs,
            self.method,
            self.clock.elapsed(),
            self.apart,
            self.precision,
            proof=self._proof(),
            head=self.given[0].head,
        )
