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

from relunorm.atomic import write_bytes
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms.bounds import proved_bounds
from relunorm.forms.domains import domain_to_dict, reach_from_dict
from relunorm.forms.evaluation import evaluation_error
from relunorm.forms.outward import Range
from relunorm.forms.relation import KINDS, Relation, Side, Walk
from relunorm.matrix import Vector
from relunorm.network import Affine, Network

SCHEMA = "relunorm.certificate/1"


@dataclass(frozen=True, repr=False)
class Certificate:
    """That two networks differ by at most ``bound`` over a domain.

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
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise InvalidInputError(f"{path}: not a certificate of schema {SCHEMA}")
        return cls(document)

    def __repr__(self) -> str:
        extra = f", {self.trusted} verdicts solver-trusted" if self.trusted else ""
        return f"Certificate(|f - g| <= {self.bound:.3g}{extra})"


@dataclass(frozen=True)
class Verification:
    """The outcome of replaying a certificate.

    Attributes:
        holds: whether it proves what it states, for these two networks.
        problems: what does not hold; empty if it does.
        bound: the bound stated.
        trusted: how many verdicts rest on a solver's word.
    """

    holds: bool
    problems: tuple[str, ...]
    bound: float
    trusted: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "schema": "relunorm.verification/1",
            "holds": self.holds,
            "problems": list(self.problems),
            "bound": self.bound,
            "trusted": self.trusted,
        }


def certify(
    walk: Walk, networks: Sequence[Network], proofs: Sequence[Any], trusted: int
) -> Certificate:
    """The certificate of a finished walk.

    Args:
        networks: the two networks as they were given, linear stages included.
        proofs: what proves the pre-activation bounds of each, as JSON, or None for the quick ones.
        trusted: how many verdicts are solver-trusted.
    """
    bounds = [slackened(v) for v in walk.difference.largest]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "domain": domain_to_dict(walk.reach),
        "networks": [{"digest": net.digest, "units": net.units} for net in networks],
        "bounds": bounds,
        "evaluation": _evaluation(walk, np.array(bounds)),
        "trusted": trusted,
        "proofs": list(proofs),
        "relations": [[_pack(r) for r in side.relations] for side in walk.sides],
    }
    document["digest"] = _seal(document)
    return Certificate(document)


def verify(certificate: Certificate, first: Network, second: Network) -> Verification:
    """Replay a certificate: recompute every bound from the two networks and compare.

    Uses no solver. Exact in the sense of outward rounding: if it holds, the two functions differ by
    at most the stated bound over the domain, in real arithmetic, given the solver-trusted verdicts
    that are counted.
    """
    if not isinstance(certificate, Certificate) or not isinstance(certificate.document, dict):
        raise InvalidInputError(
            f"expected a Certificate, found {type(certificate).__name__}; read one with "
            "Certificate.load, or take it from a result of normalize or compare"
        )
    document = certificate.document
    problems: list[str] = []
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
            _replay(document, (first, second), problems)
        return Verification(not problems, tuple(problems), certificate.bound, certificate.trusted)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RelunormError):
            problems.append(str(error))
        else:
            problems.append(f"the document is damaged ({type(error).__name__}: {error})")
    return Verification(False, tuple(problems), float("inf"), 0)


def _replay(document: dict[str, Any], networks: Sequence[Network], problems: list[str]) -> None:
    if document.get("schema") != SCHEMA:
        problems.append(f"schema {document.get('schema')!r}, expected {SCHEMA}")
        return
    if document["digest"] != _seal(document):
        problems.append("the document was changed after it was written (its digest does not match)")
    for name, network, entry in zip(
        ("first", "second"), networks, document["networks"], strict=True
    ):
        if entry["digest"] != network.digest or entry["units"] != network.units:
            problems.append(f"the {name} network is not the one the certificate is about")
    if problems:
        return
    reach = reach_from_dict(document["domain"])
    walk, trusted = Walk(reach), 0
    for network, proof, packed in zip(
        networks, document["proofs"], document["relations"], strict=True
    ):
        folded = network.folded()
        ranges, solver = proved_bounds(folded, reach, proof)
        trusted += solver
        walk.run(walk.add(folded, ranges), _Recorded(packed))
    _compare("bound", walk.difference.largest, document["bounds"], problems)
    stated = document["evaluation"]
    for dtype, found in _evaluation(walk, np.array(document["bounds"])).items():
        for key, value in found.items():
            if stated[dtype][key] is None:  # nothing is claimed
                continue
            value = np.inf if value is None else value
            # stated values were rounded up by more than machines differ
            _compare(f"{dtype} {key}", [value / (1 + 1e-6)], [stated[dtype][key]], problems)
    if trusted != document["trusted"]:
        problems.append(f"{trusted} verdicts are solver-trusted, not {document['trusted']}")


def _compare(what: str, found: Any, stated: Any, problems: list[str]) -> None:
    if len(found) != len(stated) or not all(f <= s for f, s in zip(found, stated, strict=True)):
        problems.append(f"{what}: {list(map(float, found))} was found, {list(stated)} is stated")


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


def _evaluation(walk: Walk, bounds: Vector) -> dict[str, dict[str, float | None]]:
    """Per number type how far each computed output can be off, and how far the two differ.

    None where no finite bound is known.
    """
    result = {}
    for dtype in ("float32", "float64"):
        errors = [evaluation_error(s.network, s.ranges, walk.reach, dtype) for s in walk.sides]
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
