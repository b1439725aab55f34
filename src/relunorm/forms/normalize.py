"""`normalize`: one entry to all forms. Minimal first where a form asks for it, then shaped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relunorm.arithmetic.floats import at_most
from relunorm.clock import INTERRUPTED, LAST_MOMENT, TIME_LIMIT, Clock, Interrupts, Listener
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidDomainError, InvalidInputError, TimeLimitError
from relunorm.forms.certificate.certificate import Certificate
from relunorm.forms.comparison.shallow import ShallowForm, shallow_form
from relunorm.forms.precision import is_single
from relunorm.forms.removal.reduced import Architecture, Prefer, Removal
from relunorm.forms.shapes import FORMS
from relunorm.forms.shaping import SINGLE, Dtype, Job, Made, within
from relunorm.io.border import Model, Place, accepts
from relunorm.network import Network
from relunorm.stability import Stability, stability


@dataclass(frozen=True, repr=False)
class Normalized(Shown):
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
        stopped: "" or why the work ended early: ``time limit`` or ``interrupted``.
        kept: "" or why the network came back as it was: the minimal one would be larger.
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
    stopped: str = ""
    kept: str = ""

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """Units whose stability stayed open; they were kept."""
        return [] if self.stability is None else self.stability.undecided

    @property
    def unfolded(self) -> bool:
        """Whether the model had convolutions and the result has their matrices instead."""
        known = [
            n.structure is not None and n.structure.convolves for n in (self.original, self.network)
        ]
        return known == [True, False]

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
            "before": _size(self.original),
            "after": _size(self.network),
            **entries(self, "unfolded removed counts undecided facts"),
            "bound": None if certificate is None else certificate.bound,
            "threshold_margin": None if certificate is None else certificate.threshold_margin,
            "exact_digest": None if self.exact is None else self.exact.digest,
            **entries(self, "seconds stopped kept"),
        }

    def __repr__(self) -> str:
        gone = ", ".join(f"{n} {reason}" for reason, n in self.counts.items()) or "nothing"
        bound = (
            ""
            if self.certificate is None
            else f", |f - f'| <= {at_most(self.certificate.bound, 2)}"
        )
        bound += f", stopped: {self.stopped}" if self.stopped else ""
        bound += f", kept: {self.kept}" if self.kept else ""
        bound += ", convolutions as matrices" if self.unfolded else ""
        return f"Normalized({self.form}: {self.network!r}; removed {gone}{bound})"


def _size(network: Network) -> dict[str, int]:
    return {"units": network.units, "channels": network.channels, "parameters": network.parameters}


@accepts("network", domains=("domain",))
@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused or unproved
def normalize(
    network: Model,
    form: str = "minimal",
    domain: Place | None = None,
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
    time_limit: float | Clock | None = 60.0,
    progress: Listener | None = None,
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
        time_limit: wall seconds, half of them for `stability`; a minute by default, None for no
            limit. Units undecided by then stay; where no time is left for the certificate there is
            none, where none is left for the removal either the network stays as it is, and
            ``stopped`` says so. Ctrl-C ends it within seconds in the same way.
        progress, random_state: passed to `stability`.

    Exact up to rounding; how far is proved in ``.certificate``. Cost: the stability analysis, when
    units are to be removed; otherwise a few matrix products.

    >>> from relunorm import Box, Network
    >>> weights, biases = [[[1.0], [1.0], [2.0]], [[1.0, 1.0, 1.0]]], [[-2.0, 0.0, 0.0], [0.0]]
    >>> net = Network.from_weights(weights, biases)
    >>> normalize(net, "minimal", Box([-1.0], [1.0])).counts
    {'dead': 1, 'collinear': 1}
    """
    clock = Clock(time_limit)
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
    if base.structure is not None:  # what follows speaks of matrices
        base = base.replace(output=base.output)
    if analysis is not None:
        if domain is None:
            raise InvalidDomainError("an analysis speaks of a domain; pass the same domain too")
        analysis.check(base, domain)
    wanted = eps > 0 or (FORMS[form].minimal_first if remove is None else remove)
    with Interrupts() as interrupts:
        found = analysis
        if wanted and domain is not None and found is None:
            found = stability(
                base,
                domain,
                time_limit=clock.part(share=0.5),
                progress=progress,
                random_state=random_state,
            )
        loosely = wanted and domain is not None and form != "canonical" and is_single(network)
        job = Job(
            network, base, form, domain, reach, found, architecture, prefer, split, pure, dtype,
            SINGLE if loosely else 0.0, clock,
        )  # fmt: skip
        rational = shallow_form(network, domain) if exact else None
        reduced, result, facts, certificate = _made(job, wanted, eps, rational, interrupts)
        kept = ""
        if form == "minimal" and prefer == "parameters" and result.parameters > network.parameters:
            # folded units became skips with more weights than they had: remove without folding
            size = result.parameters
            plain = replace(job, architecture="keep")
            reduced, result, facts, certificate = _made(plain, wanted, eps, rational, interrupts)
            if result.parameters > network.parameters or certificate is None:
                kept = f"the result would have {size:,} parameters"
                reduced, result, facts, certificate = _hurried(job, interrupts).unchanged()
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
        clock.elapsed(),
        INTERRUPTED if interrupts.seen else TIME_LIMIT if clock.expired() else "",
        kept,
    )


def _made(
    job: Job, wanted: bool, eps: float, rational: ShallowForm | None, interrupts: Interrupts
) -> Made:
    """What `within` makes in time; after Ctrl-C it has a moment left, for the removal at least."""
    for _ in range(2):
        try:
            return within(_hurried(job, interrupts), wanted, eps, rational)
        except TimeLimitError:
            break
        except KeyboardInterrupt:
            if not interrupts.seen:  # not a signal: raised by the caller's own code
                raise
    return job.whole()


def _hurried(job: Job, interrupts: Interrupts) -> Job:
    """The job as it is, or with a moment left once Ctrl-C was pressed."""
    return replace(job, clock=job.clock.part(LAST_MOMENT)) if interrupts.seen else job


def _check_options(
    form: str, domain: Domain | None, eps: float, split: bool, pure: bool, exact: bool
) -> None:
    if form not in FORMS:
        raise InvalidInputError(f"form {form!r} is not known; choose one of {', '.join(FORMS)}")
    needs = FORMS[form].needs_domain
    if domain is None and (needs or eps):
        what = f"the form {form}" if needs else "eps"
        raise InvalidDomainError(f"{what} needs a bounded domain; pass a Box, Ball or Polytope")
    if not (np.isfinite(eps) and eps >= 0):
        raise InvalidInputError(f"eps is {eps}, expected a number >= 0")
    for name, given in (("split", split), ("pure", pure), ("exact", exact)):
        if given and name not in FORMS[form].options:
            forms = " or ".join(known for known, shape in FORMS.items() if name in shape.options)
            raise InvalidInputError(f"{name}=True belongs to the form {forms}")
