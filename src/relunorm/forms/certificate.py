"""A proof that two networks agree over a domain, as JSON, and its replay without any solver.

The certificate names, for every unit of both networks, how it relates to the common basis (module
`relation`), and holds what proves the bounds it uses. Replaying it recomputes everything from the
two networks: pre-activation bounds, forms, errors and the bound on f - g, all with outward
rounding. It fails if a network is another one, if any number was changed, or if the recomputed
bound exceeds the one stated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relunorm import matrix as mx
from relunorm.atomic import write_bytes
from relunorm.domain import Domain
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms import outward
from relunorm.forms.bounds import proved_bounds, quick_bounds
from relunorm.forms.domains import domain_to_dict, reach_from_dict
from relunorm.forms.evaluation import evaluation_error
from relunorm.forms.folding import folding_error
from relunorm.forms.inclusion import holds
from relunorm.forms.outward import Range
from relunorm.forms.relation import KINDS, Relation, Side, Walk
from relunorm.matrix import Vector
from relunorm.network import Affine, Network
from relunorm.stability.reach import Reach

SCHEMA = "relunorm.certificate/2"


@dataclass(frozen=True, repr=False)
class Certificate:
    """That two networks differ by at most ``bound`` over a domain.

    For networks with step units: at every input of the domain but those in `exceptions`.

    Attributes:
        document: everything, JSON-safe; see `to_dict`.
    """

    document: dict[str, Any]

    @property
    def bound(self) -> float:
        """A bound on |f - g| over the domain, in real arithmetic, largest output."""
        return max(self.document["bounds"], default=0.0)

    @property
    def bounds(self) -> list[float]:
        """The same for every output."""
        return list(self.document["bounds"])

    @property
    def exceptions(self) -> list[dict[str, Any]]:
        """Where nothing is claimed: inputs x with |z(x)| <= margin for one of these step units.

        Each names ``network`` (0 or 1), ``layer`` (of the network without linear stages), ``unit``
        and ``margin``. Rounding moves a threshold by about that much, and between the old one and
        the new one the outputs differ by the whole jump, so no bound could hold there.
        """
        return list(self.document["exceptions"])

    @property
    def threshold_margin(self) -> float | None:
        """The largest margin of all `exceptions`; None where there is none."""
        return max((float(entry["margin"]) for entry in self.exceptions), default=None)

    @property
    def trusted(self) -> int:
        """How many verdicts rest on a solver's word rather than on a replayable proof."""
        return int(self.document["trusted"])

    def evaluated(self, dtype: str) -> float:
        """A bound on the difference of the two outputs when both are computed in ``dtype``."""
        stated = self.document["evaluation"][dtype]["difference"]
        return float("inf") if stated is None else float(stated)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return self.document

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, atomically."""
        write_bytes(path, json.dumps(self.document, allow_nan=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate; its claims are checked by `verify`, not here."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InvalidInputError(f"{path}: not a JSON document ({error})") from None
        # with these parts it is a certificate, if a damaged one, and `verify` says so
        parts = {"relations", "networks", "digest"}
        whole = isinstance(document, dict) and parts <= document.keys()
        if not whole and (not isinstance(document, dict) or document.get("schema") != SCHEMA):
            raise InvalidInputError(f"{path}: not a certificate of schema {SCHEMA}")
        return cls(document)

    def __repr__(self) -> str:
        extra = f", {self.trusted} verdicts solver-trusted" if self.trusted else ""
        if self.threshold_margin is not None:
            extra += f" where no step is within {self.threshold_margin:.2g} of its threshold"
        return f"Certificate(|f - g| <= {self.bound:.3g}{extra})"


@dataclass(frozen=True)
class Verification:
    """The outcome of replaying a certificate.

    Attributes:
        holds: whether it proves what it states, for these two networks.
        problems: what does not hold; empty if it does.
        bound: the bound stated.
        trusted: how many verdicts rest on a solver's word.
        threshold_margin: how far from their thresholds step units have to be; None without any.
        domain: the domain the certificate speaks of, as text; None where it cannot be read.
    """

    holds: bool
    problems: tuple[str, ...]
    bound: float
    trusted: int
    threshold_margin: float | None = None
    domain: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.verification/1",
            "holds": self.holds,
            "problems": list(self.problems),
            "bound": self.bound,
            "trusted": self.trusted,
            "threshold_margin": self.threshold_margin,
            "domain": self.domain,
        }


def certify(
    walk: Walk,
    networks: Sequence[Network],
    proofs: Sequence[Any],
    trusted: int,
    order: Sequence[int] = (0, 1),
) -> Certificate:
    """The certificate of a finished walk.

    Args:
        networks: the two networks as they were given, linear stages included.
        proofs: what proves the pre-activation bounds of each, as JSON, or None for the quick ones.
        trusted: how many verdicts are solver-trusted.
        order: which of the networks was walked first.
    """
    bounds = [slackened(v) for v in _bounds(walk, networks)]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "domain": domain_to_dict(walk.reach),
        "networks": [{"digest": net.digest, "units": net.units} for net in networks],
        "bounds": bounds,
        "exceptions": [
            {**entry, "margin": slackened(entry["margin"])} for entry in _exceptions(walk, order)
        ],
        "evaluation": _evaluation(walk, networks, order, np.array(bounds)),
        "trusted": trusted,
        "order": list(order),
        "proofs": list(proofs),
        "relations": [[_pack(r) for r in side.relations] for side in walk.sides],
    }
    document["digest"] = _seal(document)
    return Certificate(document)


def verify(
    certificate: Certificate, first: Network, second: Network, domain: Domain | None = None
) -> Verification:
    """Replay a certificate: recompute every bound from the two networks and compare.

    Uses no solver. Exact in the sense of outward rounding: if it holds, the two functions differ by
    at most the stated bound over the domain, in real arithmetic, given the solver-trusted verdicts
    that are counted.

    Args:
        domain: what the certificate's own domain has to hold. A certificate names the domain it
            speaks of (`Verification.domain`), and one over a single point proves little.
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
            reach = reach_from_dict(document["domain"])
            place = repr(reach.domain)
            if domain is not None and not holds(reach.domain, domain):
                problems.append(
                    f"the certificate speaks of {place}, which does not contain {domain}"
                )
            _replay(document, reach, (first, second), problems)
        stated = certificate.bound, certificate.trusted, certificate.threshold_margin
        return Verification(not problems, tuple(problems), *stated, place)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RelunormError):
            problems.append(str(error))
        else:
            problems.append(f"the document is damaged ({type(error).__name__}: {error})")
    return Verification(False, tuple(problems), float("inf"), 0, None, place)


def _replay(
    document: dict[str, Any], reach: Reach, networks: Sequence[Network], problems: list[str]
) -> None:
    if document.get("schema") != SCHEMA:
        problems.append(f"schema {document.get('schema')!r}, expected {SCHEMA}")
        return
    if document["digest"] != _seal(document):
        problems.append("the document was changed after it was written (its digest does not match)")
    for name, network, entry in zip(
        ("first", "second"), networks, document["networks"], strict=True
    ):
        if entry["digest"] != network.digest or entry["units"] != network.units:
            hint = _float32_hint(network) if entry["units"] == network.units else ""
            problems.append(f"the {name} network is not the one the certificate is about{hint}")
    if problems:
        return
    order = document["order"]
    if sorted(order) != [0, 1]:
        problems.append(f"order is {order}, expected [0, 1] or [1, 0]")
        return
    walk, trusted = Walk(reach, away=True), 0
    for i, packed in zip(order, document["relations"], strict=True):
        folded = networks[i].folded()
        ranges, solver = proved_bounds(folded, reach, document["proofs"][i])
        trusted += solver
        walk.run(walk.add(folded, ranges), _Recorded(packed))
    _compare("bound", _bounds(walk, networks), document["bounds"], problems)
    _compare_exceptions(_exceptions(walk, order), document["exceptions"], problems)
    stated = document["evaluation"]
    found_errors = _evaluation(walk, networks, order, np.array(document["bounds"]))
    for dtype, found in found_errors.items():
        for key, value in found.items():
            if stated[dtype][key] is None:  # nothing is claimed
                continue
            value = np.inf if value is None else value
            # stated values were rounded up by more than machines differ
            _compare(f"{dtype} {key}", [value / (1 + 1e-6)], [stated[dtype][key]], problems)
    if trusted != document["trusted"]:
        problems.append(f"{trusted} verdicts are solver-trusted, not {document['trusted']}")


def _float32_hint(network: Network) -> str:
    """What may have happened to a network whose numbers all fit float32."""
    numbers = [x for a in network.maps for x in (a.bias, *map(mx.entries, a.terms.values()))]
    with np.errstate(over="ignore", under="ignore"):
        if not all((x.astype(np.float32) == x).all() for x in numbers):
            return ""
    return (
        "; all its numbers are float32, so a file may have rounded them: write it with "
        'save(..., dtype="float64"), or certify the rounded network with '
        'normalize(..., dtype="float32")'
    )


def _compare(what: str, found: Any, stated: Any, problems: list[str]) -> None:
    if len(found) != len(stated) or not all(f <= s for f, s in zip(found, stated, strict=True)):
        problems.append(f"{what}: {list(map(float, found))} was found, {list(stated)} is stated")


def _compare_exceptions(found: Any, stated: Any, problems: list[str]) -> None:
    """Everything left out has to be stated, at least as wide."""
    known = {(e["network"], e["layer"], e["unit"]): float(e["margin"]) for e in stated}
    for entry in found:
        margin = known.get((entry["network"], entry["layer"], entry["unit"]), -1.0)
        if not entry["margin"] <= margin:
            problems.append(f"an exception is not stated, or not wide enough: {entry}")
            return


class _Recorded:
    """Reads the relation of each layer from a certificate."""

    def __init__(self, packed: Sequence[dict[str, Any]]):
        self.packed = packed

    def __call__(
        self, walk: Walk, side: Side, form: Affine, error: Vector, span: Range
    ) -> Relation:
        entry = self.packed[len(side.forms)]
        kind = np.array([KINDS.index(name) for name in entry["kind"]], dtype=np.int8)
        relation = Relation(
            kind,
            np.array(entry["block"], dtype=np.intp),
            np.array(entry["index"], dtype=np.intp),
            np.array(entry["factor"], dtype=np.float64),
            np.array(entry["constant"], dtype=np.float64),
        )
        parts = (relation.block, relation.index, relation.factor, relation.constant)
        if any(part.shape != (form.size,) for part in (kind, *parts)):
            raise InvalidInputError(
                f"layer {len(side.forms)}: the certificate relates {len(kind)} units, the network "
                f"has {form.size}"
            )
        if not (np.isfinite(relation.factor).all() and np.isfinite(relation.constant).all()):
            raise InvalidInputError(f"layer {len(side.forms)}: a factor is not finite")
        return relation


def _pack(relation: Relation) -> dict[str, Any]:
    return {
        "kind": [KINDS[k] for k in relation.kind],
        "block": relation.block.tolist(),
        "index": relation.index.tolist(),
        "factor": relation.factor.tolist(),
        "constant": relation.constant.tolist(),
    }


def _bounds(walk: Walk, networks: Sequence[Network]) -> Vector:
    """The difference of the outputs, and what multiplying linear stages out changed."""
    folding = sum(folding_error(network, walk.reach) for network in networks)
    return outward.up(walk.difference.largest + folding, 2)


def _exceptions(walk: Walk, order: Sequence[int]) -> list[dict[str, Any]]:
    """The step units near whose thresholds the walk proves nothing."""
    return [
        {"network": int(i), "layer": k, "unit": int(unit), "margin": float(margin[unit])}
        for i, side in zip(order, walk.sides, strict=True)
        for k, margin in enumerate(side.margins)
        for unit in np.flatnonzero(~np.isnan(margin))
    ]


def _evaluation(
    walk: Walk, networks: Sequence[Network], order: Sequence[int], bounds: Vector
) -> dict[str, dict[str, float | None]]:
    """Per number type how far each computed output can be off, and how far the two differ.

    None where no finite bound is known.
    """
    ranges: list[Sequence[Range]] = [(), ()]
    for i, side in zip(order, walk.sides, strict=True):
        folded = side.network.digest == networks[i].digest
        ranges[i] = side.ranges if folded else quick_bounds(networks[i], walk.reach)
    result = {}
    for dtype in ("float32", "float64"):
        errors = [
            evaluation_error(network, spans, walk.reach, dtype)
            for network, spans in zip(networks, ranges, strict=True)
        ]
        found = {"first": errors[0], "second": errors[1], "difference": sum(errors, bounds)}
        worst = {key: float(value.max() * (1 + 1e-6)) for key, value in found.items()}
        result[dtype] = {key: v if np.isfinite(v) else None for key, v in worst.items()}
    return result


def slackened(bound: float) -> float:
    """A bound with room for the rounding of another machine's matrix product."""
    return float(bound + 0.05 * min(bound, 1e-9) + 1e-15 * bound)


def _seal(document: dict[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
