"""`normalize`: one entry to all forms. Minimal first where a form asks for it, then shaped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from relunorm import matrix as mx
from relunorm.domain import Domain
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.forms.atoms import atoms
from relunorm.forms.attack import spread
from relunorm.forms.bounded import bounded
from relunorm.forms.bounds import proved_bounds, quick_bounds, stable_bounds
from relunorm.forms.canonical import canonical, pin_inputs
from relunorm.forms.certificate import Certificate, certify
from relunorm.forms.demand import Asking, largest, relate_on_demand
from relunorm.forms.exact import ShallowForm, shallow_form
from relunorm.forms.l1 import check_l1, l1
from relunorm.forms.match import Forced, relate
from relunorm.forms.outward import Range
from relunorm.forms.pow2 import pow2
from relunorm.forms.removal import Architecture, Prefer, Reduced, Removal, Rules, Straight
from relunorm.forms.signed import signed
from relunorm.forms.straight import nothing_known, proved, spend
from relunorm.forms.sweep import remove as remove_units
from relunorm.forms.unit import unit
from relunorm.network import Affine, Layer, Network
from relunorm.stability import Stability, stability
from relunorm.stability.reach import Reach, reach_of

Form = Literal["minimal", "signed", "unit", "bounded", "l1", "pow2", "atoms", "canonical"]
FORMS = ("minimal", "signed", "unit", "bounded", "l1", "pow2", "atoms", "canonical")
Dtype = Literal["float32", "float64"]
#: Forms that are minimal first (errata of seed 001: padding makes their constraints vacuous).
MINIMAL_FIRST = ("minimal", "bounded", "l1", "canonical")
NEED_DOMAIN = ("bounded", "l1")
#: A certificate whose bound exceeds this share of the largest value is tried in another way too.
TIGHT = 1e-12
#: Removals on a solver's word are undone when the bound exceeds this share of the outputs.
UNBELIEVED = 1e-3


@dataclass(frozen=True, repr=False)
class Normalized:
    """A network in normal form and the proof that it is the same function.

    Attributes:
        network: the result.
        original: what was given.
        form: the form's name.
        domain: the domain, or None for all of space.
        removed: every unit that is gone, with reason, bound, method, margin and cost.
        certificate: that the two agree over the domain, for step networks away from their
            thresholds (see `Certificate.exceptions`); None without a domain and where the bounds
            overflow float64.
        stability: the analysis behind the removals, None where none was needed.
        facts: what the form guarantees, measured on the result.
        exact: the rational form, where it was asked for.
        seconds: wall time.
    """

    network: Network
    original: Network
    form: str
    domain: Domain | None
    removed: tuple[Removal, ...]
    certificate: Certificate | None
    stability: Stability | None
    facts: dict[str, Any]
    exact: ShallowForm | None
    seconds: float

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """Units whose stability stayed open; they were kept."""
        return [] if self.stability is None else self.stability.undecided

    @property
    def counts(self) -> dict[str, int]:
        """How many units were removed for each reason."""
        return dict(Counter(r.reason for r in self.removed))

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, without weights; the certificate is a document of its own."""
        certificate = self.certificate
        return {
            "schema": "relunorm.normalized/1",
            "form": self.form,
            "domain": None if self.domain is None else repr(self.domain),
            "before": {"units": self.original.units, "parameters": self.original.parameters},
            "after": {"units": self.network.units, "parameters": self.network.parameters},
            "removed": [r.to_dict() for r in self.removed],
            "counts": self.counts,
            "undecided": [list(pair) for pair in self.undecided],
            "facts": self.facts,
            "bound": None if certificate is None else certificate.bound,
            "threshold_margin": None if certificate is None else certificate.threshold_margin,
            "solver_trusted": None if certificate is None else certificate.trusted,
            "exact_digest": None if self.exact is None else self.exact.digest,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        gone = ", ".join(f"{n} {reason}" for reason, n in self.counts.items()) or "nothing"
        bound = "" if self.certificate is None else f", |f - f'| <= {self.certificate.bound:.2g}"
        return f"Normalized({self.form}: {self.network!r}; removed {gone}{bound})"


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused or unproved
def normalize(
    network: Network,
    form: Form = "minimal",
    domain: Domain | None = None,
    *,
    remove: bool | None = None,
    eps: float = 0.0,
    architecture: Architecture = "any",
    prefer: Prefer = "parameters",
    split: bool = False,
    pure: bool = False,
    exact: bool = False,
    dtype: Dtype = "float64",
    analysis: Stability | None = None,
    time_limit: float | None = None,
    workers: int | None = None,
    progress: Callable[..., None] | None = None,
    random_state: int = 0,
) -> Normalized:
    """The same function over a domain, in a normal form, with a certificate.

    Args:
        form: minimal (removal only), signed, unit, bounded, l1, pow2, atoms or canonical; each has
            its own module and page section.
        domain: where the function has to stay the same; None for all of space, where nothing can
            be called dead or active. Needed by bounded and l1.
        remove: whether to remove units first; by default for minimal, bounded, l1 and canonical.
        eps: also replace units by constants as long as no output moves by more than this in all.
        architecture: ``any`` may add skip connections, ``keep`` adds none.
        prefer: what folding always-active units should save, parameters or units.
        split: signed form only: weights in {-1, 0, 1} for several outputs, by copying units.
        pure: unit and bounded forms only: no output bias.
        exact: canonical form of a shallow network only: in rational arithmetic.
        dtype: ``float32`` rounds the parameters of the result, so that a float32 file holds just
            the network that is certified; ``facts`` speak of it before rounding.
        analysis: the result of `stability` on this network (`Network.folded` if it has linear
            stages) and domain, if at hand.
        time_limit, workers, progress, random_state: passed to `stability`.

    Exact up to rounding; how far is proved in ``.certificate``. Cost: the stability analysis, when
    units are to be removed; otherwise a few matrix products.

    >>> from relunorm import Box
    >>> weights, biases = [[[1.0], [1.0], [2.0]], [[1.0, 1.0, 1.0]]], [[-2.0, 0.0, 0.0], [0.0]]
    >>> net = Network.from_weights(weights, biases)
    >>> normalize(net, "minimal", Box([-1.0], [1.0])).counts
    {'dead': 1, 'collinear': 1}
    """
    began = time.perf_counter()
    _check_options(form, domain, eps, split, pure, exact)
    for name, given, known in (
        ("architecture", architecture, ("any", "keep")),
        ("prefer", prefer, ("parameters", "units")),
        ("dtype", dtype, ("float32", "float64")),
    ):
        if given not in known:
            raise InvalidInputError(f"{name} {given!r}: expected {known[0]!r} or {known[1]!r}")
    reach = None
    if domain is not None:
        domain.check_dimension(network.input_size)
        reach = reach_of(domain)
    base = network.folded()
    if analysis is not None:
        if domain is None:
            raise InvalidDomainError("an analysis speaks of a domain; pass the same domain too")
        analysis.check(base, domain)
    wanted = eps > 0 or (form in MINIMAL_FIRST if remove is None else remove)
    found = analysis
    if wanted and domain is not None and found is None:
        found = stability(
            base,
            domain,
            time_limit=time_limit,
            workers=workers,
            progress=progress,
            random_state=random_state,
        )
    job = _Job(network, base, form, domain, reach, found, architecture, prefer, split, pure, dtype)
    rational = shallow_form(base, domain) if exact else None
    reduced, result, facts, certificate = _within(job, wanted, eps, rational)
    if domain is None or found is None or not found.proofs.trusted:
        believed = True
    else:
        believed = job.believed(result, certificate, eps, domain)
    if domain is not None and not believed:  # only verdicts that replay, then
        found = stability(
            base, domain, time_limit=time_limit, progress=progress,
            random_state=random_state, milp=False,
        )  # fmt: skip
        job = replace(job, found=found)
        reduced, result, facts, certificate = _within(job, wanted, eps, rational)
    return Normalized(
        result,
        network,
        form,
        domain,
        tuple(reduced.removed),
        certificate,
        found,
        facts,
        rational,
        time.perf_counter() - began,
    )


def _within(
    job: _Job, wanted: bool, eps: float, rational: ShallowForm | None
) -> tuple[Reduced, Network, dict[str, Any], Certificate | None]:
    """Spend the eps budget so that the proved bound stays within it."""
    budget = eps
    for attempt in range(8):
        made = job.run(wanted, budget, rational)
        certificate = made[-1]
        # costs of merged units can add up to more than their path weights; the proof decides
        bound = np.inf if certificate is None else certificate.bound
        if not budget or job.steps or bound <= eps:
            return made
        budget = 0.9 * budget * eps / bound if attempt < 6 else 0.0
    return job.run(wanted, 0.0, rational)


def _check_options(
    form: str,
    domain: Domain | None,
    eps: float,
    split: bool,
    pure: bool,
    exact: bool,
) -> None:
    if form not in FORMS:
        raise InvalidInputError(f"form {form!r} is not known; choose one of {', '.join(FORMS)}")
    if domain is None and (form in NEED_DOMAIN or eps):
        what = f"the form {form}" if form in NEED_DOMAIN else "eps"
        raise InvalidDomainError(f"{what} needs a bounded domain; pass a Box, Ball or Polytope")
    if not (np.isfinite(eps) and eps >= 0):
        raise InvalidInputError(f"eps is {eps}, expected a number >= 0")
    for name, given, forms in (
        ("split", split, ("signed",)),
        ("pure", pure, ("unit", "bounded")),
        ("exact", exact, ("canonical",)),
    ):
        if given and form not in forms:
            raise InvalidInputError(f"{name}=True belongs to the form {' or '.join(forms)}")


@dataclass(frozen=True)
class _Job:
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

    @property
    def steps(self) -> bool:
        """Whether a unit jumps; then no bound is certified."""
        return any(layer.activation.kind == "step" for layer in self.base.layers)

    def believed(
        self, result: Network, certificate: Certificate | None, eps: float, domain: Domain
    ) -> bool:
        """Whether a result that rests on a solver's word is certified and stands up to points."""
        if certificate is None:
            return False
        points = spread(domain, 256, np.random.default_rng(0))
        value = self.network(points)
        near = certificate.bound <= max(eps, UNBELIEVED * np.abs(value).max(initial=0.0))
        if self.steps:
            return near
        gap = np.abs(value - result(points)).max(initial=0.0)
        return near and bool(gap <= certificate.evaluated("float64"))

    def run(
        self, wanted: bool, budget: float, rational: ShallowForm | None
    ) -> tuple[Reduced, Network, dict[str, Any], Certificate | None]:
        """Remove, shape and certify."""
        base, found, reach = self.base, self.found, self.reach
        free = self.architecture == "any"
        ranges = _ranges(base, reach, found)
        straight = nothing_known(base) if found is None else proved(base, found)
        if budget:
            straight = spend(base, straight, ranges, budget, skips=free)
        if rational is not None:
            reduced = Reduced(_like(rational.network(), base), [])
        elif self.form == "canonical":
            work = pin_inputs(base, self.domain)
            reduced = canonical(work, straight, ranges, reach, architecture=self.architecture)
        elif wanted:
            fold = free and self.pure and self.form == "bounded"
            rules = Rules(architecture=self.architecture, prefer=self.prefer, fold_all=fold)
            reduced = remove_units(base, straight, ranges, reach, rules)
        else:  # pow2 promises the same bits, and multiplying linear stages out would round
            reduced = Reduced.whole(self.network if self.form == "pow2" else base)
        result, facts = _shape(self.form, reduced, ranges, reach, split=self.split, pure=self.pure)
        if self.dtype == "float32":
            result = narrow(result)
        certificate = None
        if reach is not None:
            forced = _small(straight) if budget else Forced()
            certificate = self._certificate(result, reach, forced)
        return reduced, result, facts, certificate

    def _certificate(self, result: Network, reach: Reach, forced: Forced) -> Certificate | None:
        """Of the relation that proves most: by the bounds of the analysis, or by bounds on demand.

        The first knows more about the network that was given, the second matches units before it
        asks what they are.
        """
        proofs = None if self.found is None else self.found.proofs.to_dict()
        ranges, trusted = proved_bounds(self.base, reach, proofs)
        other = result.folded()
        walk = relate(
            self.base, other, reach, ranges, quick_bounds(other, reach),
            (forced, Forced()), away=self.steps,
        )  # fmt: skip
        pair = (self.network, result)
        makers = [partial(certify, walk, pair, (proofs, None), trusted)]
        walks = [walk]
        scale = max(float(side.boxes[-1].largest.max(initial=1.0)) for side in walk.sides)
        if not forced.slope and not largest(walk) <= TIGHT * scale:
            order = sorted((0, 1), key=lambda i: (self.base, other)[i].units)
            points = spread(reach.domain, 256, np.random.default_rng(0))
            asked = [Asking.about((self.base, other)[i], reach, points) for i in order]
            walks.append(relate_on_demand(asked, TIGHT * scale, reach, away=self.steps))
            packed = [asked[order.index(i)].query.proofs.to_dict() for i in (0, 1)]
            makers.append(partial(certify, walks[-1], pair, packed, 0, order))
        best = min(range(len(walks)), key=lambda i: largest(walks[i]))
        # magnitudes beyond float64 prove nothing
        return makers[best]() if np.isfinite(largest(walks[best])) else None


def _ranges(network: Network, reach: Reach | None, found: Stability | None) -> list[Range]:
    if reach is None:
        endless = [np.full(layer.width, np.inf) for layer in network.layers]
        return [Range(-e, e) for e in endless]
    return stable_bounds(found) if found is not None else quick_bounds(network, reach)


def _shape(
    form: str,
    reduced: Reduced,
    ranges: list[Range],
    reach: Reach | None,
    *,
    split: bool,
    pure: bool,
) -> tuple[Network, dict[str, Any]]:
    """Put the (reduced) network into the form; what is guaranteed about the result."""
    network = reduced.network
    if form == "signed":
        return signed(network, split=split), {}
    if form == "unit":
        return unit(network, pure=pure), {}
    if form == "pow2":
        return pow2(network), {}
    if form == "atoms":
        return atoms(network), {}
    if reach is not None and form in NEED_DOMAIN:
        inherited = inherit(reduced, ranges, reach)
        if form == "bounded":
            return bounded(network, inherited, reach, pure=pure), {}
        result = l1(network, inherited, reach)
        return result, check_l1(result, reach).to_dict()
    return network, {}


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


def narrow(network: Network) -> Network:
    """The network with every number rounded to float32, as a float32 file will hold it.

    Raises:
        UnsupportedFormatError: a number is too large for float32.
    """

    def rounded(affine: Affine, place: str) -> Affine:
        terms = {}
        for k, matrix in affine.terms.items():
            new = matrix.copy()
            mx.entries(new)[...] = mx.narrowed(mx.entries(matrix), np.float32, place)
            terms[k] = new
        return Affine(terms, mx.narrowed(affine.bias, np.float32, place).astype(np.float64))

    layers = [
        Layer(rounded(x.affine, f"layer {k}"), x.activation, x.name, x.shape)
        for k, x in enumerate(network.layers)
    ]
    return network.replace(layers=layers, output=rounded(network.output, "the output"))


def _small(straight: Straight) -> Forced:
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
    )
