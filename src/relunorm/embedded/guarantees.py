"""What the bounds of a program prove, in words for users: about outputs, classes and steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.arithmetic.floats import at_least, at_most
from relunorm.display.shown import plain
from relunorm.domain import Box
from relunorm.domain.reach import reach_of
from relunorm.embedded.proof.cutting import Bounds, bound_part, output_bounds
from relunorm.embedded.proof.distance import Change
from relunorm.forms.certificate.certificate import slackened
from relunorm.matrix import Array
from relunorm.network import Affine, Network
from relunorm.network.head import Head

#: Differences of two outputs are bounded one by one while there are at most this many outputs.
PAIRS_UP_TO = 16


def rows_of(outputs: int, classes: bool) -> Array:
    """The combinations of outputs that are bounded: each, and for classes the pairs."""
    one = np.eye(outputs)
    if not classes or not 1 < outputs <= PAIRS_UP_TO:
        return one
    pairs = [one[i] - one[j] for i in range(outputs) for j in range(i)]
    return np.vstack([one, *pairs])


def claims(
    network: Network,
    change: Change | None,
    box: Box,
    rows: Array,
    found: Bounds,
    moved: Array,
    classes: bool,
) -> dict[str, Any]:
    """What the bounds prove, JSON-safe: per output, about classes, about steps."""
    outputs = network.output_size
    extra = np.abs(rows) @ moved
    total = Bounds(_plus(found.on_grid, extra), _plus(found.of_floats, extra))
    result: dict[str, Any] = {
        "bounds": {
            "on_grid": plain(total.on_grid[:outputs]),
            "of_floats": plain(total.of_floats[:outputs]),
        },
        "classes": None,
        "steps": None,
        "head": None,
    }
    if classes:
        margins = [_margin(side, outputs) for side in (total.of_floats, total.on_grid)]
        fixed = _fixed_class(network, box, margins[0] + 2 * float(moved.max()))
        margins = margins if fixed is None else [0.0, 0.0]
        result["classes"] = {
            "margin": margins[0],
            "margin_on_grid": margins[1],
            "everywhere": fixed,
        }
    if network.head:
        sides = total.of_floats, total.on_grid
        moves = [_after(network.head, float(side[:outputs].max())) for side in sides]
        result["head"] = {
            "label": network.head.label,
            "of": network.head.of,
            "bound": moves[0],
            "bound_on_grid": moves[1],
        }
    steps = any(layer.activation.kind == "step" for layer in network.layers)
    if steps and change is not None:
        apart, difference = bound_part(network, change, box, rows[:outputs], away=True)
        result["steps"] = {
            "bounds": plain(_plus(apart.of_floats, moved)),
            "exceptions": [
                {"layer": k, "unit": int(u), "margin": slackened(float(margin[u]))}
                for k, margin in enumerate(difference.margins)
                if margin is not None
                for u in np.flatnonzero(margin > 0)
            ],
        }
    return result


def _after(head: Head, bound: float) -> float | None:
    """How far the model's own outputs can move; None where that is not known."""
    if head.gain is None or not np.isfinite(bound):
        return None
    moved = slackened(head.gain * bound)
    return min(moved, 1.0) if head.is_probability else moved


def notes(document: dict[str, Any]) -> list[str]:
    """The comment at the top of the C file."""
    sizes, options, head = document["sizes"], document["options"], document["head"]
    integer = document["program"]["arithmetic"] != "float"
    proved = _in_words(document, integer)
    found = at_least(document["found"]["of_floats"])
    return [
        f"{options['name']}: a neural network, written by relunorm {document['version']}.",
        "",
        f"network      {document['network']}",
        f"certificate  {document['digest']}",
        f"tables {sizes['flash']} bytes, buffers {sizes['ram']} bytes on the stack, "
        f"{sizes['multiplications']} multiplications",
        *([] if head is None else [f"outputs are the {head['of']}"]),
        "",
        "Proved for every input in the domain, and for all others after clamping:",
        *(f"- {line}{';' if k < len(proved) else '.'}" for k, line in enumerate(proved, start=1)),
        f"The largest difference that a search found is {found}.",
        *(["", "Rounding is to nearest, halves towards plus infinity."] if integer else []),
    ]


def _in_words(document: dict[str, Any], integer: bool) -> list[str]:
    """What is proved, a line each."""

    def both(whole: Any, grid: Any) -> str:
        return at_most(whole) + (f" ({at_most(grid)} for integer inputs)" if integer else "")

    bounds, head = document["bounds"], document["head"]
    classes, steps = document["classes"], document["steps"]
    lines = ["no operation leaves its type, partial sums included"] if integer else []
    epsilon, grid = largest(bounds["of_floats"]), largest(bounds["on_grid"])
    without = f" ({at_most(grid)} for integer inputs)" if integer else ""
    lines.append(f"|output - network| <= {at_most(epsilon)}, rounding the input included{without}")
    if head is not None and head["bound"] is not None:
        moved = both(head["bound"], head["bound_on_grid"])
        lines.append(f"|{head['label']} of them - the model| <= {moved}")
    if classes is not None and classes["everywhere"] is not None:
        lines.append(f"the class is {classes['everywhere']} everywhere, as in the network")
    elif classes is not None:
        one = len(bounds["of_floats"]) == 1
        where = "output is farther from 0 than" if one else "best output leads by more than"
        margin = both(classes["margin"], classes["margin_on_grid"])
        lines.append(f"the class is the network's wherever its {where} {margin}")
    if steps is not None:
        apart = at_most(largest(steps["bounds"]))
        lines.append(f"{apart} where no step is near its threshold (see the certificate)")
    return lines


def largest(values: list[float | None]) -> float:
    """The largest of some bounds; infinite where one is not known."""
    return max(float("inf") if v is None else float(v) for v in values)


def _margin(bounds: Array, outputs: int) -> float:
    """How far the best output has to lead for the class to be sure."""
    if outputs == 1:
        return slackened(float(bounds.max()))
    pairs = bounds[outputs:] if len(bounds) > outputs else 2 * bounds
    return slackened(float(pairs.max()))


def compare_claims(found: dict[str, Any], stated: dict[str, Any], problems: list[str]) -> None:
    """Add a problem for every claim that is stated but was not found again, or not as strongly."""
    for key, ours in found.items():
        if not _covers(stated[key], ours):
            problems.append(f"{key}: {ours} was found, {stated[key]} is stated")


def _covers(stated: Any, found: Any) -> bool:
    """Whether a claim follows from what was found: bounds may be larger, the rest is the same."""
    if isinstance(found, dict):
        return isinstance(stated, dict) and all(_covers(stated[k], v) for k, v in found.items())
    if isinstance(found, list):
        same = isinstance(stated, list) and len(stated) == len(found)
        return same and all(_covers(s, f) for s, f in zip(stated, found, strict=True))
    if isinstance(found, float) and isinstance(stated, int | float):
        # what is stated was widened by more than machines differ, and so was what is found now
        return found <= stated * (1 + 1e-9)
    return stated is None if isinstance(found, float) else stated == found


def _fixed_class(network: Network, box: Box, margin: float) -> int | None:
    """The class that wins by more than ``margin`` everywhere, if bounds show one."""
    outputs = network.output_size
    middle = network(box.center)
    if outputs == 1:
        best, rows = int(middle[0] > 0), np.array([[1.0 if middle[0] > 0 else -1.0]])
    else:
        best = int(np.argmax(middle))
        rows = np.delete(np.eye(outputs)[best] - np.eye(outputs), best, axis=0)
    terms = {s: np.asarray(rows @ m) for s, m in network.output.terms.items()}
    leads = network.replace(output=Affine(terms, rows @ network.output.bias))
    lower, _, bounds = output_bounds(leads, reach_of(box))
    # forming the differences of rows rounds; a share of the sizes covers it
    size = sum((abs(m) @ bounds.span(s) for s, m in network.output.terms.items()), np.zeros(1))
    rest = 1e-14 * float(np.max(size) + np.abs(network.output.bias).max())
    return best if float(lower.min()) - rest > margin * (1 + 1e-9) else None


def _plus(bounds: Array, extra: Array) -> Array:
    return np.array([slackened(float(v)) for v in np.nextafter(bounds + extra, np.inf)])
