"""Which units do nothing, where each stands between dead and linear, and the target's scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.display.shown import counted, plain
from relunorm.dying.basins import dead_below, linear_above
from relunorm.dying.diagnosis import LayerDiagnosis, diagnose
from relunorm.dying.target import TargetAdvice, target_advice
from relunorm.report.case import Case
from relunorm.report.numbers import Kind, quantity

#: A unit that fires with a smaller probability counts as in the dead cone.
EPSILON = 1e-4
#: Units up to which "dead" and "always on" are proved on the domain.
PROVED_UNITS = 4000
#: Units of a layer that are listed one by one, at most, and of all layers together.
MAX_UNITS, MAX_ALL = 2048, 16_384

#: One letter per finding, so that a map needs no colour.
LETTERS = {
    "live": "l",
    "duplicate": "2",
    "always on": "A",
    "dormant": "d",
    "dead on the data": "x",
    "dead on the domain": "X",
}


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`diagnose` on the data (or on points of the domain), with proofs on the domain."""
    few = 0 < case.network.units <= PROVED_UNITS
    domain, analysis = (case.domain, case.stability(0.7 * seconds)) if few else (None, None)
    found = diagnose(
        case.network, case.inputs, case.scale, domain, analysis=analysis, framework=case.framework
    )
    missing = ""
    if domain is None:
        missing = f"nothing is proved on the domain: {case.network.units:,} units are too many here"
    elif found.undecided:
        missing = f"{counted(found.undecided, 'unit')} stayed undecided in the time given"
    kind: Kind = "exact" if case.all_rows else "estimate"
    each = min(MAX_UNITS, MAX_ALL // len(found.layers))
    return {
        "on": case.inputs_in_words,
        "domain": found.domain,
        "units": quantity(found.units, "exact"),
        "channels": found.units != case.network.units,
        "dead": quantity(found.dead, kind),
        "undecided": quantity(found.undecided, "exact"),
        "letters": LETTERS,
        "layers": [_layer(layer, kind, each) for layer in found.layers[:200]],
        "cone": {
            "kind": "exact",
            "epsilon": EPSILON,
            "dead_below": dead_below(EPSILON),
            "linear_above": linear_above(EPSILON),
        },
        "target": None if found.target is None else _target(found.target, case),
        "sentences": list(found.advice),
        "partial": missing,
    }


def _layer(layer: LayerDiagnosis, kind: Kind, most: int) -> dict[str, Any]:
    """Counts by finding, and one letter, activity and cone position per unit up to ``most``."""
    status = layer.status()
    counts = {word: status.count(word) for word in LETTERS}
    return {
        "layer": layer.layer,
        "name": layer.name,
        "activation": layer.activation,
        "kind": kind,
        "width": layer.width,
        "counts": counts,
        "proved": {
            "kind": "bound",
            "dead": layer.counts["provably_dead"],
            "on": layer.counts["provably_on"],
        },
        "listed": min(layer.width, most),
        "status": "".join(LETTERS[word] for word in status[:most]),
        "active_share": [round(float(v), 4) for v in layer.active_share[:most]],
        "cone": [None if not np.isfinite(v) else round(float(v), 4) for v in layer.cone[:most]],
        "cone_sign": "".join("+" if v > 0 else "-" for v in layer.cone[:most]),
    }


def _target(found: TargetAdvice, case: Case) -> dict[str, Any]:
    """The scale of the targets, and the risk it and other scales would mean."""
    document = found.to_dict()
    assert case.y is not None
    return {
        "name": case.target,
        "gamma": quantity(found.gamma, "exact" if case.all_rows else "estimate"),
        "delta": quantity(found.delta, "exact" if case.all_rows else "estimate"),
        "risk": found.risk,
        "sentences": document["advice"],
        "scale": {"kind": "estimate", "rows": _scale(found, case)},
    }


def _scale(found: TargetAdvice, case: Case) -> list[dict[str, Any]]:
    """The risk at other deviations, from the same function: every quarter decade."""
    if not found.gamma > 0 or case.y is None:
        return []
    gammas = 10.0 ** np.arange(-4.0, 2.01, 0.25)
    unit = (case.y - case.y.mean(axis=0)) / found.gamma
    return [{"gamma": plain(g), "risk": target_advice(g * unit).risk} for g in gammas]
