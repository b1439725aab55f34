"""One way through `normalize`: remove, shape, certify."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.domain.reach import Reach
from relunorm.errors import TimeLimitError
from relunorm.forms.certificate.certificate import Certificate, certify
from relunorm.forms.comparison.counterexample import spread
from relunorm.forms.comparison.shallow import ShallowForm
from relunorm.forms.outward import Range, proved_bounds, quick_bounds, unit_ranges
from relunorm.forms.precision import to_single
from relunorm.forms.relation.match import Forced, relate
from relunorm.forms.relation.on_demand import Asking, relate_on_demand
from relunorm.forms.removal.channels import reduce_channels
from relunorm.forms.removal.reduced import (
    Architecture,
    Prefer,
    Reduced,
    Rules,
    Straight,
    by_sign,
    nothing_known,
    proved,
    spend,
)
from relunorm.forms.removal.sweeps import remove as remove_units
from relunorm.forms.shapes import FORMS
from relunorm.forms.shapes.canonical import canonical, pin_inputs
from relunorm.network import Network
from relunorm.network.structure import Structure
from relunorm.stability import Stability

Dtype = Literal["float32", "float64"]
#: What was removed, the network in its form, what the form guarantees, and the proof.
Made = tuple[Reduced, Network, dict[str, Any], Certificate | None]
#: A certificate whose bound exceeds this share of the largest value is tried in another way too.
TIGHT = 1e-12
#: What float32 cannot tell apart stays apart when the bound exceeds this share of the outputs.
UNBELIEVED = 1e-3
#: Rows of float32 numbers are multiples of one another when entries agree to this share of the
#: largest: two roundings of each.
SINGLE = 2.0**-21


@dataclass(frozen=True)
class Job:
    """What stays the same while the eps budget is tried out."""

    network: Network
    base: Network
    form: str
    domain: Domain | None
    reach: Reach | None
    found: Stability | None
    architecture: Architecture
    prefer: Prefer
    split: bool
    pure: bool
    dtype: Dtype
    relative: float = 0.0
    clock: Clock = NO_LIMIT

    @property
    def steps(self) -> bool:
        """Whether a unit jumps; then no bound is certified."""
        return any(layer.activation.kind == "step" for layer in self.base.layers)

    def believed(
        self, result: Network, certificate: Certificate | None, eps: float, domain: Domain
    ) -> bool:
        """Whether a result that merged what is only alike is certified and stands up to points."""
        if certificate is None:
            return False
        points = spread(domain, 256, np.random.default_rng(0))
        value = self.network(points)
        near = certificate.bound <= max(eps, UNBELIEVED * np.abs(value).max(initial=0.0))
        if self.steps:
            return near
        gap = np.abs(value - result(points)).max(initial=0.0)
        return near and bool(gap <= certificate.evaluated("float64"))

    def run(self, wanted: bool, budget: float, rational: ShallowForm | None) -> Made:
        """Remove, shape and certify."""
        base, found, reach = self.base, self.found, self.reach
        free = self.architecture == "any"
        ranges = unit_ranges(base, reach, found)
        straight = nothing_known(base) if found is None else proved(base, found)
        if self.form != "canonical":
            straight = by_sign(base, straight)
        whole = self.network.structure if wanted and self.form == "minimal" else None
        if whole is not None and (self.prefer == "units" or not whole.convolves):
            whole = None
        if budget and whole is None:
            straight = spend(base, straight, ranges, budget, skips=free)
        if rational is not None:
            reduced = Reduced(_like(rational.network(), base), [])
        elif self.form == "canonical":
            work = pin_inputs(base, self.domain)
            reduced = canonical(
                work, straight, ranges, reach, architecture=self.architecture, clock=self.clock
            )
        elif whole is not None:
            reduced = self._channels(whole, straight)
        elif wanted:
            fold = free and self.pure and self.form == "bounded"
            rules = Rules(
                architecture=self.architecture, prefer=self.prefer, fold_all=fold, clock=self.clock
            )
            reduced = remove_units(base, straight, ranges, reach, rules)
            if self.relative:  # only where that makes a difference, as it moves the function more
                rules = replace(rules, relative=self.relative)
                loose = remove_units(base, straight, ranges, reach, rules)
                if loose.network.units < reduced.network.units:
                    reduced = replace(loose, loosely=True)
        else:  # pow2 promises the same bits, and multiplying linear stages out would round
            reduced = Reduced.whole(self.network if self.form == "pow2" else base)
        result, facts = self._shape(reduced, ranges, reach)
        if self.dtype == "float32":
            result = to_single(result)
        certificate = None
        if reach is not None:
            forced = _linearised(straight) if budget and whole is None else Forced()
            with suppress(TimeLimitError):  # then there is none
                certificate = self._certificate(result, reach, forced)
        return reduced, result, facts, certificate

    def _shape(
        self, reduced: Reduced, ranges: list[Range], reach: Reach | None
    ) -> tuple[Network, dict[str, Any]]:
        """Put the (reduced) network into the form; what is guaranteed about the result."""
        network, shape = reduced.network, FORMS[self.form]
        given = ()
        if shape.needs_domain and reach is not None:
            given = inherit(reduced, ranges, reach), reach
        if shape.make is None or (shape.needs_domain and not given):
            return network, {}
        chosen = {name: getattr(self, name) for name in shape.options}
        result = shape.make(network, *given, **chosen)
        facts = shape.facts(result, reach).to_dict() if shape.facts and reach is not None else {}
        return result, facts

    def _channels(self, structure: Structure, straight: Straight) -> Reduced:
        """Whole channels removed, so that the structure stays."""
        from relunorm.io.graph.structured import lower

        found = None
        for relative in (0.0, self.relative) if self.relative else (0.0,):
            rules = Rules(prefer=self.prefer, relative=relative, clock=self.clock)
            smaller, gone = reduce_channels(self.network, structure, straight, rules)
            if found is None or smaller.parameters < found[0].parameters:
                found = smaller, gone, bool(relative)
        assert found is not None
        smaller, gone, loosely = found
        if not gone:
            return Reduced(self.network, [])
        return Reduced(lower(smaller, self.network), [], gone, loosely)

    def whole(self) -> Made:
        """Nothing removed, where no time is left; forms that only rescale are still made."""
        kept = Reduced.whole(self.base)
        if not FORMS[self.form].quick:
            return kept, self.network, {}, None
        given = Reduced.whole(self.network if self.form == "pow2" else self.base)
        return kept, self._shape(given, [], None)[0], {}, None

    def unchanged(self) -> Made:
        """The network as it was given, with the certificate that it is itself if there is time."""
        certificate = None
        if self.reach is not None:
            with suppress(TimeLimitError):
                certificate = self._certificate(self.network, self.reach, Forced())
        return Reduced.whole(self.base), self.network, {}, certificate

    def _certificate(self, result: Network, reach: Reach, forced: Forced) -> Certificate | None:
        """Of the relation that proves most: by the bounds of the analysis, or by bounds on demand.

        The first knows more about the network that was given, the second matches units before it
        asks what they are.
        """
        proofs = None if self.found is None else self.found.proofs
        other = result.folded()
        known = (
            proved_bounds(self.base, reach, proofs and proofs.to_dict(), self.clock),
            quick_bounds(other, reach, self.clock),
        )
        walk = relate(
            self.base, other, reach, *known, (forced, Forced()), away=self.steps, clock=self.clock
        )
        pair = (self.network, result)
        makers = [partial(certify, walk, pair, (proofs, None), known=known)]
        walks = [walk]
        scale = max(float(side.boxes[-1].largest.max(initial=1.0)) for side in walk.sides)
        late = self.clock.expired()
        if not forced.slope and not late and not walk.largest <= TIGHT * scale:
            order = sorted((0, 1), key=lambda i: (self.base, other)[i].units)
            points = spread(reach.domain, 256, np.random.default_rng(0))
            asked = [Asking.about((self.base, other)[i], reach, points) for i in order]
            for asking in asked:
                asking.query.clock = self.clock
            with suppress(TimeLimitError):
                related = relate_on_demand(
                    asked, TIGHT * scale, reach, away=self.steps, clock=self.clock
                )
                walks.append(related.walk)
                proved = [related.proofs[order.index(i)] for i in (0, 1)]
                makers.append(partial(certify, related.walk, pair, proved, order))
        best = min(range(len(walks)), key=lambda i: walks[i].largest)
        self.clock.check()
        # magnitudes beyond float64 prove nothing
        return makers[best]() if np.isfinite(walks[best].largest) else None


def within(job: Job, wanted: bool, eps: float, rational: ShallowForm | None) -> Made:
    """The result for an eps budget; what float32 cannot tell apart is merged if that is proved."""
    made = _spending(job, wanted, eps, rational)
    if not made[0].loosely or job.domain is None or job.clock.expired():
        return made
    if job.believed(made[1], made[3], eps, job.domain):
        return made
    return _spending(replace(job, relative=0.0), wanted, eps, rational)


def _spending(job: Job, wanted: bool, eps: float, rational: ShallowForm | None) -> Made:
    """Spend the eps budget so that the proved bound stays within it."""
    budget = eps
    for attempt in range(8):
        made = job.run(wanted, budget, rational)
        if job.clock.expired():
            return job.whole() if budget and made[-1] is None else made
        certificate = made[-1]
        # costs of merged units can add up to more than their path weights; the proof decides
        bound = np.inf if certificate is None else certificate.bound
        if not budget or job.steps or bound <= eps:
            return made
        budget = 0.9 * budget * eps / bound if attempt < 6 else 0.0
    return job.run(wanted, 0.0, rational)


def inherit(reduced: Reduced, ranges: list[Range], reach: Reach) -> list[Range]:
    """Bounds of a reduced network's units: those of the units they were, where that is known.

    Tighter ones may hold in the reduced network, but the certificate speaks about the original.
    """
    found = quick_bounds(reduced.network, reach)
    for k, labels in enumerate(reduced.origins):
        for i, origin in enumerate(labels):
            if origin is not None:
                layer, unit_index = origin
                found[k].lo[i] = ranges[layer].lo[unit_index]
                found[k].hi[i] = ranges[layer].hi[unit_index]
    return found


def _linearised(straight: Straight) -> Forced:
    """The units that were linearised within the budget."""
    slope, constant = {}, {}
    for k, reasons in enumerate(straight.why):
        for i, why in enumerate(reasons):
            if why is not None and why.reason == "small":
                slope[k, i] = float(straight.slope[k][i])
                constant[k, i] = float(straight.constant[k][i])
    return Forced(slope, constant)


def _like(network: Network, original: Network) -> Network:
    """The network with the shapes and origin of the one it stands for."""
    return network.replace(
        input_shape=original.input_shape,
        output_shape=original.output_shape,
        origin=original.origin,
        columns=original.columns,
    )
