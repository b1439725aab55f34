"""`verify`: replaying a certificate, with no solver and no trust in whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.certain import certain_outputs, enclosed
from relunorm.display.shown import Shown, entries
from relunorm.domain import Domain
from relunorm.domain.documents import holds, reach_from_dict
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms.certificate.certificate import SCHEMA, Certificate, Recomputed, recompute, seal
from relunorm.forms.certificate.schema import check_document
from relunorm.forms.comparison.counterexample import spread
from relunorm.forms.precision import is_single
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Array
from relunorm.network import Network

#: Points of the domain at which both networks are evaluated, and the products that may cost.
POINTS, PRODUCTS = 256, 2e9


@dataclass(frozen=True)
class Verification(Shown):
    """The outcome of replaying a certificate.

    Attributes:
        holds: whether it proves what it states, for these two networks.
        problems: what does not hold; empty if it does.
        bound: the bound stated.
        threshold_margin: how far from their thresholds step units have to be; None without any.
        domain: the domain the certificate speaks of, as text; None where it cannot be read.
    """

    holds: bool
    problems: tuple[str, ...]
    bound: float
    threshold_margin: float | None = None
    domain: str | None = None

    @property
    def verdict(self) -> str:
        """``holds`` or ``does not hold``."""
        return "holds" if self.holds else "does not hold"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; a bound that cannot be read is null."""
        return {
            "schema": "relunorm.verification/3",
            **entries(self, "verdict holds problems bound threshold_margin domain"),
        }


@accepts("first", "second", domains=("domain",))
def verify(
    certificate: Certificate,
    first: Model,
    second: Model,
    domain: Place | None = None,
    *,
    random_state: int = 0,
) -> Verification:
    """Replay a certificate: recompute every bound from the two networks and compare.

    Uses no solver. Exact in the sense of outward rounding: if it holds, the two functions differ by
    at most the stated bound over the domain, in real arithmetic. Last, both networks are evaluated
    at points of the domain: a certificate that a point contradicts does not hold, whatever it
    proves.

    Args:
        domain: what the certificate's own domain has to hold. A certificate names the domain it
            speaks of (`Verification.domain`), and one over a single point proves little.
        random_state: seed of the points.
    """
    if not isinstance(certificate, Certificate) or not isinstance(certificate.document, dict):
        raise InvalidInputError(
            f"expected a Certificate, found {type(certificate).__name__}; read one with "
            "Certificate.load, or take it from a result of normalize or compare"
        )
    document = certificate.document
    problems: list[str] = []
    place: str | None = None
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
            if document.get("schema") != SCHEMA:
                found = document.get("schema")
                raise InvalidInputError(f"schema {found!r:.60}, expected {SCHEMA!r}; make it anew")
            check_document(document)
            reach = reach_from_dict(document["domain"])
            place = repr(reach.domain)
            if domain is not None and not holds(reach.domain, domain):
                problems.append(
                    f"the certificate speaks of {place}, which does not contain {domain}"
                )
            problems += _identity(document, (first, second))
            if not problems:
                problems += _replay(document, reach, (first, second))
            if not problems:
                rng = np.random.default_rng(random_state)
                problems += _contradiction(certificate, (first, second), reach.domain, rng)
        stated = certificate.bound, certificate.threshold_margin
        return Verification(not problems, tuple(problems), *stated, place)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RelunormError):
            problems.append(str(error))
        else:
            problems.append(f"the document is damaged ({type(error).__name__}: {error})")
    return Verification(False, tuple(problems), float("inf"), None, place)


def _identity(document: dict[str, Any], networks: Sequence[Network]) -> list[str]:
    """Whether the document is as it was written, and about these networks."""
    problems = []
    if document["digest"] != seal(document):
        problems.append("the document was changed after it was written (its digest does not match)")
    entries = [(entry["digest"], entry["units"]) for entry in document["networks"]]
    given = [(network.digest, network.units) for network in networks]
    if entries != given and entries == given[::-1]:
        swapped = "the certificate is about these two networks the other way round: swap A and B"
        return [*problems, swapped]
    for name, network, entry in zip(
        ("first", "second"), networks, document["networks"], strict=True
    ):
        if entry["digest"] != network.digest or entry["units"] != network.units:
            hint = _float32_hint(network) if entry["units"] == network.units else ""
            problems.append(f"the {name} network is not the one the certificate is about{hint}")
    if sorted(document["order"]) != [0, 1]:
        problems.append(f"order is {document['order']}, expected [0, 1] or [1, 0]")
    return problems


def _replay(document: dict[str, Any], reach: Reach, networks: Sequence[Network]) -> list[str]:
    """Whether everything stated comes out again."""
    parts = (document[key] for key in ("proofs", "order", "relations"))
    more = {key: document[key] for key in ("difference", "residual", "stepwise")}
    found = recompute(reach, networks, *parts, **more)
    problems = _compare("bound", found.bounds, document["bounds"])
    if problems:
        return problems
    problems += _compare_exceptions(found, document["exceptions"])
    for dtype, errors in found.evaluation(np.array(document["bounds"])).items():
        for key, value in errors.items():
            stated = document["evaluation"][dtype][key]
            if stated is None:  # nothing is claimed
                continue
            value = np.inf if value is None else value
            # stated values were rounded up by more than machines differ
            problems += _compare(f"{dtype} {key}", [value / (1 + 1e-6)], [stated])
    return problems


def _float32_hint(network: Network) -> str:
    """What may have happened to a network whose numbers all fit float32."""
    if not is_single(network):
        return ""
    return (
        "; all its numbers are float32, so a file may have rounded them: write it with "
        'save(..., dtype="float64"), or certify the rounded network with '
        'normalize(..., dtype="float32")'
    )


def _compare(what: str, found: Any, stated: Any) -> list[str]:
    if len(found) == len(stated) and all(f <= s for f, s in zip(found, stated, strict=True)):
        return []
    return [f"{what}: {list(map(float, found))} was found, {list(stated)} is stated"]


def _compare_exceptions(found: Recomputed, stated: Sequence[dict[str, Any]]) -> list[str]:
    """Everything left out has to be stated, at least as wide, and nothing else."""

    def place(entry: dict[str, Any]) -> tuple[int, int, int]:
        return entry["network"], entry["layer"], entry["unit"]

    known = {place(entry): entry["margin"] for entry in stated}
    needed = [place(entry) for entry in found.exceptions]
    if len(known) != len(stated) or set(known) != set(needed):
        return ["the exceptions stated are not the ones the relations need"]
    for entry in found.exceptions:
        if not entry["margin"] <= known[place(entry)]:
            return [f"an exception is not wide enough: {entry}"]
    return []


def _contradiction(
    certificate: Certificate,
    networks: tuple[Network, Network],
    domain: Domain,
    rng: np.random.Generator,
) -> list[str]:
    """Points of the domain where the outputs differ by more than is stated, for certain."""
    cost = sum(network.parameters for network in networks)
    points = spread(domain, int(np.clip(PRODUCTS / cost, 8, POINTS)), rng)
    points = points[domain.holds(points)]
    points = points[_claimed(certificate, networks, points)]
    (a, a_off), (b, b_off) = (certain_outputs(network, points) for network in networks)
    sure = np.abs(a - b) * (1 - 1e-15) - a_off - b_off
    computed = np.abs(networks[0](points) - networks[1](points)).max(axis=1, initial=0.0)
    wrong = (sure > np.array(certificate.bounds)).any(axis=1)
    wrong |= computed > certificate.evaluated("float64")
    if not wrong.any():
        return []
    k = int(np.flatnonzero(wrong)[0])
    return [
        f"the outputs at the point {points[k].tolist()!s:.200} of the domain differ by "
        f"{computed[k]:.3g}, more than is stated: a verdict it rests on is wrong"
    ]


def _claimed(
    certificate: Certificate, networks: Sequence[Network], points: Array
) -> NDArray[np.bool_]:
    """Points about which something is claimed: no exception comes near its threshold there."""
    result = np.ones(len(points), dtype=bool)
    for i, network in enumerate(networks):
        entries = [entry for entry in certificate.exceptions if entry["network"] == i]
        if entries:
            z, off = enclosed(network.folded(), points)
            for entry in entries:
                k, unit = entry["layer"], entry["unit"]
                result &= np.abs(z[k][:, unit]) - off[k][:, unit] > entry["margin"]
    return result
