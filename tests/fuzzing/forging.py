"""verify against forged documents: what it accepts has to be true."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from typing import Any

import numpy as np

import relunorm as rn
from fuzzing import copies
from fuzzing.comparing import exact_gaps, pair
from fuzzing.forms import _evaluated
from fuzzing.nets import Rng
from fuzzing.outcome import Case, Outcome, jumps, short
from fuzzing.places import Place, place_for
from relunorm import Certificate, Network
from relunorm.stability.bound_proofs import SCHEMA as BOUNDS


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the digest a forger would write."""
    content = {key: value for key, value in document.items() if key != "digest"}
    try:
        text = json.dumps(content, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        return document
    return {**content, "digest": hashlib.sha256(text.encode()).hexdigest()}


def draw(rng: Rng) -> Case:
    """A network whose true certificate is forged, and another one to transplant it to."""
    first, second, _ = pair(rng, rng.random() < 0.15)
    where = place_for(rng, first, balls=False)
    source = str(rng.choice(["minimal", "unit", "l1", "compare", "compare", "compare"]))
    options = {"source": source, "seed": int(rng.integers(1 << 30))}
    return Case((first, second), where, options)


def judge(case: Case, out: Outcome) -> None:
    """A dozen forgeries: what is accepted is true."""
    (first, second), where = case.networks, case.place
    assert where is not None
    rng, source = np.random.default_rng(case.options["seed"]), case.options["source"]
    if source != "compare":
        found = rn.normalize(first, source, where.domain, time_limit=5)
        true, other = found.certificate, found.network
    else:
        other = copies.exact_copy(rng, first)
        true = rn.compare(first, other, where.domain, time_limit=5).certificate
    if true is None:
        out.unknown += 1
        return
    for _ in range(12):
        way = FORGERIES[rng.integers(len(FORGERIES))]
        document, against = way(rng, copy.deepcopy(true.document), first, other, second)
        document = sealed(document)
        words = f"{way.__name__.strip('_')}"
        given = rn.verify(Certificate(document), first, against, where.domain)
        if not given.holds:
            continue
        _judge(document, first, against, where, words, out)
        strange = [key for _, key in _places(document) if str(key).startswith("also_")]
        out.claim(not strange, f"{words}: unknown keys {strange} are accepted")


def _judge(
    document: dict, first: Network, against: Network, where: Place, words: str, out: Outcome
) -> None:
    if document["bounds"] and all(isinstance(b, (int, float)) for b in document["bounds"]):
        gaps = exact_gaps(document, first, against, where)
        out.claim(len(gaps) == len(document["bounds"]), f"{words}: bounds {document['bounds']}")
        for bound, gap in zip(document["bounds"], gaps, strict=False):
            out.claim(
                bound >= gap,
                f"{words}: verify accepts the bound {bound!r}, exactly {short(gap)}",
            )
    else:
        out.claim(False, f"{words}: verify accepts the bounds {document['bounds']!r}")
    if not jumps(first, against):
        _evaluated(np.random.default_rng(0), Certificate(document), first, against, where, out)


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of the document."""
    found: list[tuple[Any, Any]] = []
    items = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, value in list(items):
        found.append((node, key))
        found += _places(value)
    return found


def _mutated(rng: Rng, document: dict, first: Network, other: Network, _: Network) -> tuple:
    """One to three places changed at random."""
    for _ in range(int(rng.integers(1, 4))):
        spots = [(c, k) for c, k in _places(document) if k not in ("schema", "digest", "networks")]
        container, key = spots[rng.integers(len(spots))]
        value = container[key]
        draw = rng.random()
        if isinstance(value, bool) or value is None or draw < 0.1:
            if isinstance(container, dict) and draw < 0.05:
                container[f"also_{key}"] = copy.deepcopy(value)
            elif draw < 0.08:
                del container[key]
            else:
                container[key] = float(rng.choice([0.0, 1.0, -1.0])) if value is None else None
        elif isinstance(value, (int, float)):
            container[key] = _number(rng, value)
        elif isinstance(value, str):
            container[key] = _string(rng, value)
        elif isinstance(value, list) and value:
            i = int(rng.integers(len(value)))
            if draw < 0.4:
                del value[i]
            elif draw < 0.7:
                value.insert(i, copy.deepcopy(value[rng.integers(len(value))]))
            else:
                rng.shuffle(value)
    return document, other


def _number(rng: Rng, value: float) -> float:
    if isinstance(value, int):
        return int(value + rng.choice([-1, 1, 2, 1000])) if rng.random() < 0.8 else -value
    steps = (0.0, -value, value / 2, value * 2, value * (1 - 1e-9), value * 0.99)
    further = (math.nextafter(value, 0), math.nextafter(value, math.inf), 1e-300, 1e300)
    chosen = (*steps, *further)
    return float(chosen[rng.integers(len(chosen))])


def _string(rng: Rng, value: str) -> str:
    try:
        return _number(rng, float.fromhex(value)).hex()
    except ValueError:
        kinds = ["linear", "basis", "multiple", "opposite", "search", "slopes", value]
        return str(rng.choice(kinds))


def _tightened(rng: Rng, document: dict, first: Network, other: Network, _: Network) -> tuple:
    """Bounds made smaller, exceptions narrower."""
    factor = float(rng.choice([0.0, 1e-6, 0.5, 0.9, 0.99]))
    document["bounds"] = [bound * factor for bound in document["bounds"]]
    for entry in document["exceptions"]:
        entry["margin"] *= float(rng.choice([0.0, 0.5, 1.0]))
    return document, other


def _transplanted(
    rng: Rng, document: dict, first: Network, other: Network, second: Network
) -> tuple:
    """The proof of one pair under the names of another."""
    target = copies.perturbed(rng, other) if rng.random() < 0.6 else second
    document["networks"] = [{"digest": n.digest, "units": n.units} for n in (first, target)]
    for entry, network in zip(document["proofs"], (first, target), strict=True):
        if isinstance(entry, dict) and "network" in entry:
            entry["network"] = network.digest
    _cleared(document)
    return document, target


def _claiming(rng: Rng, document: dict, first: Network, other: Network, second: Network) -> tuple:
    """What the forger needs is said to come out in fractions: units are dead, outputs equal."""
    target = second if rng.random() < 0.5 else other
    networks = (first, target)
    document["networks"] = [{"digest": n.digest, "units": n.units} for n in networks]
    document["order"] = [0, 1]
    document["proofs"], document["relations"], document["exceptions"] = [], [], []
    for network in networks:
        lines, relations = [], []
        folded = network.folded()
        for k, layer in enumerate(folded.layers):
            signs = rng.choice([-1, 1], layer.width)
            lines += [
                {"kind": "rational", "layer": k, "unit": i, "sign": int(signs[i]), "parts": 1}
                for i in range(layer.width)
            ]
            n = layer.width
            relations.append(
                {"kind": ["linear"] * n, "block": [-1] * n, "index": [-1] * n, "factor": [0.0] * n,
                 "constant": [0.0] * n}
            )  # fmt: skip
        document["proofs"].append(
            {"schema": BOUNDS, "network": folded.digest, "box_duals": None,
             "proofs": lines}
        )  # fmt: skip
        document["relations"].append(relations)
    size = float(10.0 ** rng.integers(-12, 3))
    document["bounds"] = [size] * first.output_size
    _cleared(document)
    return document, target


def _cleared(document: dict) -> None:
    """Nothing is said about evaluation."""
    nothing = {"first": None, "second": None, "difference": None}
    document["evaluation"] = {"float32": dict(nothing), "float64": dict(nothing)}


FORGERIES = (_mutated, _mutated, _mutated, _tightened, _transplanted, _claiming)
