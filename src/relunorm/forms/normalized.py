"""What `normalize` returns: the network, what was removed, and the proof."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from relunorm.domain import Domain
from relunorm.forms.certificate.certificate import Certificate
from relunorm.forms.comparison.shallow import ShallowForm
from relunorm.forms.removal.reduced import Removal
from relunorm.network import Network
from relunorm.shown import Shown
from relunorm.stability import Stability


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
        stopped: "" or why the work ended early: ``time limit``.
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
            "stopped": self.stopped,
            "kept": self.kept,
        }

    def __repr__(self) -> str:
        gone = ", ".join(f"{n} {reason}" for reason, n in self.counts.items()) or "nothing"
        bound = "" if self.certificate is None else f", |f - f'| <= {self.certificate.bound:.2g}"
        bound += f", stopped: {self.stopped}" if self.stopped else ""
        bound += f", kept: {self.kept}" if self.kept else ""
        return f"Normalized({self.form}: {self.network!r}; removed {gone}{bound})"
