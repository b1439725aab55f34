"""A proof that two networks agree over a domain, as JSON.

The certificate names, for every unit of both networks, how it relates to the common basis (module
`relation`), and holds what proves the bounds it uses; where the difference was bounded unit by unit
(`relunorm.difference`), also the boxes it was cut into, or multipliers; where what the relations
leave of f - g was bounded (`residual`), the tape of its search. Networks that are the same steps
(`comparison.stepwise`) need none of that. `recompute` finds all else from the
two networks: pre-activation bounds, forms, errors and the bound on f - g, all with outward
rounding. It is what states the bound when a certificate is written, and what checks it
(`verification`): one computation, so that what is written holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from relunorm.arithmetic.floats import at_most
from relunorm.clock import NO_LIMIT
from relunorm.difference.difference import Ends, repeat
from relunorm.display.shown import plain
from relunorm.domain import Box
from relunorm.domain.documents import domain_to_dict
from relunorm.domain.reach import Reach
from relunorm.errors import InvalidInputError
from relunorm.forms import outward
from relunorm.forms.certificate.schema import Documented
from relunorm.forms.comparison.stepwise import same_steps, stepwise_difference
from relunorm.forms.outward import Range, proved_bounds, quick_bounds
from relunorm.forms.precision import evaluation_error
from relunorm.forms.relation.match import folding_error
from relunorm.forms.relation.relate import Walk
from relunorm.forms.relation.relation import KINDS, Relation, Side
from relunorm.forms.relation.residual import Searched, residual_bounds
from relunorm.matrix import Vector
from relunorm.network import Affine, Network
from relunorm.stability.bound_proofs import Proofs, pack, unpacked

SCHEMA = "relunorm.certificate/11"
#: The number types whose rounding is bounded too.
DTYPES: tuple[Literal["float32", "float64"], ...] = ("float32", "float64")


@dataclass(frozen=True, repr=False)
class Certificate(Documented):
    """That two networks differ by at most ``bound`` over a domain.

    For networks with step units: at every input of the domain but those in `exceptions`.

    """

    schema: ClassVar = SCHEMA
    parts: ClassVar = frozenset({"relations", "networks", "digest"})

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

    def evaluated(self, dtype: str) -> float:
        """A bound on the difference of the two outputs when both are computed in ``dtype``."""
        if dtype not in DTYPES:
            raise InvalidInputError(f"dtype is {dtype!r}, expected {' or '.join(DTYPES)}")
        stated = self.document["evaluation"][dtype]["difference"]
        return float("inf") if stated is None else float(stated)

    def __repr__(self) -> str:
        extra = ""
        if self.threshold_margin is not None:
            extra = f" where no step is within {at_most(self.threshold_margin, 2)} of its threshold"
        return f"Certificate(|f - g| <= {at_most(self.bound, 3)}{extra})"


def certify(
    walk: Walk,
    networks: Sequence[Network],
    proved: Sequence[Proofs | None],
    order: Sequence[int] = (0, 1),
    *,
    known: Sequence[list[Range] | None] = (None, None),
    difference: Ends | None = None,
    residual: Searched | bool = False,
    stepwise: bool = False,
) -> Certificate | None:
    """The certificate of a finished walk; None where no finite bound comes out.

    Args:
        networks: the two networks as they were given, linear stages included.
        proved: what proves the pre-activation bounds of each, or None for the quick ones.
        order: which of the networks was walked first.
        known: per network what `proved_bounds` makes of its proofs, if at hand.
        difference: what bounding the difference unit by unit found, if that was done.
        residual: bound what the walk leaves of f - g too: by a search, or linear bounds alone.
        stepwise: the networks are the same steps (`comparison.stepwise`), and nothing is related.
    """
    relations = [[_pack(r) for r in side.relations] for side in walk.sides] or [[], []]
    proofs = [None if p is None else p.to_dict() for p in proved]
    cuts = left = None
    if difference is not None and not stepwise:
        cuts = {
            "cuts": None
            if difference.cuts is None
            else pack(np.array(difference.cuts, dtype=np.float64).reshape(-1, 2)),
            "multipliers": [pack(p) for p in difference.multipliers],
        }
    if residual:
        left = {"search": residual.to_dict() if isinstance(residual, Searched) else None}
    found = recompute(walk.reach, networks, proofs, order, relations, known, cuts, left, stepwise)
    bounds = [slackened(v) for v in found.bounds]
    exceptions = [{**e, "margin": slackened(e["margin"])} for e in found.exceptions]
    if not np.isfinite([*bounds, *(e["margin"] for e in exceptions)]).all():
        return None
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "domain": domain_to_dict(walk.reach),
        "networks": [{"digest": net.digest, "units": net.units} for net in networks],
        "bounds": bounds,
        "exceptions": exceptions,
        "evaluation": found.evaluation(np.array(bounds)),
        "order": list(order),
        "proofs": proofs,
        "relations": relations,
        "difference": cuts,
        "residual": left,
        "stepwise": stepwise,
    }
    document["digest"] = seal(document)
    return Certificate(document)


@dataclass(frozen=True, eq=False)
class Recomputed:
    """What a certificate's relations and proofs show.

    Attributes:
        exceptions: the step units near whose thresholds nothing is shown.
        errors: per number type how far the outputs of each network can be off when computed.
    """

    bounds: Vector
    exceptions: list[dict[str, Any]]
    errors: dict[str, list[Vector]]

    def evaluation(self, bounds: Vector) -> dict[str, dict[str, float | None]]:
        """Per number type how far each computed output can be off, and how far the two differ.

        None where no finite bound is known.
        """
        result = {}
        for dtype, errors in self.errors.items():
            found = {"first": errors[0], "second": errors[1], "difference": sum(errors, bounds)}
            worst = {key: float(value.max() * (1 + 1e-6)) for key, value in found.items()}
            result[dtype] = plain(worst)
        return result


def recompute(
    reach: Reach,
    networks: Sequence[Network],
    proofs: Sequence[Any],
    order: Sequence[int],
    relations: Sequence[Sequence[dict[str, Any]]],
    known: Sequence[list[Range] | None] = (None, None),
    difference: dict[str, Any] | None = None,
    residual: dict[str, Any] | None = None,
    stepwise: bool = False,
) -> Recomputed:
    """Everything a certificate states, from its relations and proofs and the two networks.

    Uses no solver. Raises `InvalidInputError` where they do not fit the networks.
    """
    if stepwise:
        return _followed(reach, networks)
    walk = Walk(reach, away=True)
    for i, packed in zip(order, relations, strict=True):
        folded = networks[i].folded()
        ranges = known[i] or proved_bounds(folded, reach, proofs[i])
        if len(packed) != len(folded.layers):
            raise InvalidInputError(
                f"the certificate relates {len(packed)} layers, the network has "
                f"{len(folded.layers)}"
            )
        walk.run(walk.add(folded, ranges), _Recorded(packed))
    return Recomputed(
        _bounds(walk, networks, difference, residual),
        _exceptions(walk, order),
        _errors(walk, networks, order),
    )


def _followed(reach: Reach, networks: Sequence[Network]) -> Recomputed:
    """Everything, where the difference is followed step by step."""
    first, second = networks
    jumps = any(layer.activation.kind == "step" for n in networks for layer in n.layers)
    if jumps or not same_steps(first, second):
        raise InvalidInputError("the networks are not the same steps, as the certificate has it")
    upper, _ = stepwise_difference(first, second, Box(reach.lo, reach.hi), 0.0, NO_LIMIT)
    unknown = np.full(first.output_size, np.inf)
    errors = {str(dtype): [unknown, unknown] for dtype in DTYPES}
    return Recomputed(np.full(first.output_size, upper), [], errors)


#: What a relation holds of every unit besides its kind.
_PARTS = {"block": np.intp, "index": np.intp, "factor": np.float64, "constant": np.float64}


class _Recorded:
    """Reads the relation of each layer from a certificate."""

    def __init__(self, packed: Sequence[dict[str, Any]]):
        self.packed = packed

    def __call__(
        self, walk: Walk, side: Side, form: Affine, error: Vector, span: Range
    ) -> Relation:
        entry = self.packed[len(side.forms)]
        kind = np.array([KINDS.index(name) for name in entry["kind"]], dtype=np.int8)
        parts: list[Any] = [np.array(entry[part], dtype=of) for part, of in _PARTS.items()]
        relation = Relation(kind, *parts)
        if any(part.shape != (form.size,) for part in (kind, *parts)):
            raise InvalidInputError(
                f"layer {len(side.forms)}: the certificate relates {len(kind)} units, the network "
                f"has {form.size}"
            )
        if not (np.isfinite(relation.factor).all() and np.isfinite(relation.constant).all()):
            raise InvalidInputError(f"layer {len(side.forms)}: a factor is not finite")
        return relation


def _pack(relation: Relation) -> dict[str, Any]:
    parts = {name: getattr(relation, name).tolist() for name in _PARTS}
    return {"kind": [KINDS[k] for k in relation.kind], **parts}


def _bounds(
    walk: Walk,
    networks: Sequence[Network],
    difference: dict[str, Any] | None,
    residual: dict[str, Any] | None,
) -> Vector:
    """The difference of the outputs, and what multiplying linear stages out changed."""
    folding = sum(folding_error(network, walk.reach) for network in networks)
    most = walk.difference.largest
    if difference is not None:
        made = difference["cuts"]
        numbers = None if made is None else unpacked(made)
        if numbers is not None and not np.array_equal(numbers, np.floor(numbers)):
            raise InvalidInputError("a certificate cuts boxes by numbers that are not whole")
        cuts = None if numbers is None else [(int(n), int(k)) for n, k in numbers]
        used = [unpacked(p) for p in difference["multipliers"]]
        first, second = (network.folded() for network in networks)
        upper = repeat(first, second, walk.reach, cuts, used)
        most = np.minimum(most, upper.reshape(2, -1).max(axis=0))
    if residual is not None:
        most = np.minimum(most, residual_bounds(walk, residual["search"]))
    return outward.up(most + folding, 2)


def _exceptions(walk: Walk, order: Sequence[int]) -> list[dict[str, Any]]:
    """The step units near whose thresholds the walk proves nothing."""
    return [
        {"network": int(i), "layer": k, "unit": int(unit), "margin": float(margin[unit])}
        for i, side in zip(order, walk.sides, strict=True)
        for k, margin in enumerate(side.margins)
        for unit in np.flatnonzero(~np.isnan(margin))
    ]


def _errors(
    walk: Walk, networks: Sequence[Network], order: Sequence[int]
) -> dict[str, list[Vector]]:
    """Per number type how far the computed outputs of each network can be off."""
    ranges: list[Sequence[Range]] = [(), ()]
    for i, side in zip(order, walk.sides, strict=True):
        folded = side.network.digest == networks[i].digest
        ranges[i] = side.ranges if folded else quick_bounds(networks[i], walk.reach)
    return {
        dtype: [
            evaluation_error(network, spans, walk.reach, dtype)
            for network, spans in zip(networks, ranges, strict=True)
        ]
        for dtype in DTYPES
    }


def slackened(bound: float) -> float:
    """A bound with room for the rounding of another machine's matrix product."""
    return float(bound + 0.05 * min(bound, 1e-9) + 1e-15 * bound)


def seal(document: dict[str, Any]) -> str:
    """sha256 of everything but the seal itself, as hex."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
