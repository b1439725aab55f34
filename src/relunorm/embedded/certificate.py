"""The certificate of a program: nothing overflows, and the output moves by at most epsilon.

It holds the program's structure, the cuts of the domain that prove the bound, and, where the
network was shrunk first, the smaller network with its own certificate. `verify` reads the tables
from the C file, rebuilds the program from them, recomputes both proofs against the network without
a solver, and writes the file again: it has to come out letter by letter.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.atomic import write_bytes
from relunorm.domain import Box, Domain
from relunorm.embedded.c_tables import network_from, read_tables
from relunorm.embedded.c_writer import AnyNetwork, Options, write_c
from relunorm.embedded.cutting import Bounds, bound_part, replay_cuts
from relunorm.embedded.difference import Change
from relunorm.embedded.floats import FloatNetwork, FloatProgram
from relunorm.embedded.integers import RANGES, IntegerNetwork
from relunorm.embedded.packed import network_from_dict
from relunorm.embedded.scales import rounded_half_up
from relunorm.embedded.terms import without_empty_terms
from relunorm.embedded.walk import grid_box, walk_through
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms.certificate import Certificate, Verification, slackened
from relunorm.forms.certificate import verify as verify_pair
from relunorm.forms.domains import reach_from_dict
from relunorm.forms.inclusion import holds
from relunorm.network import Affine, Network
from relunorm.stability.problem import Bounds as ValueBounds
from relunorm.stability.problem import Problem
from relunorm.stability.reach import reach_of
from relunorm.stability.replay import rule_bounds

SCHEMA = "relunorm.program/1"

#: Differences of two outputs are bounded one by one while there are at most this many outputs.
PAIRS_UP_TO = 16


@dataclass(frozen=True, repr=False)
class ProgramCertificate:
    """That a program cannot overflow and stays within a bound of its network over a domain.

    Attributes:
        document: everything, JSON-safe.
    """

    document: dict[str, Any]

    @property
    def epsilon(self) -> float:
        """A bound on |program - network| for every real input of the domain, rounded to the grid.

        In real arithmetic, largest output; infinite where none is proved.
        """
        return _largest(self.document["bounds"]["of_floats"])

    @property
    def epsilon_on_grid(self) -> float:
        """The same where the input already is one of the program's integers."""
        return _largest(self.document["bounds"]["on_grid"])

    @property
    def margin(self) -> float | None:
        """The class is the network's wherever its best output leads by more than this.

        0 where the class is the same everywhere; None if no classes were asked for.
        """
        classes = self.document["classes"]
        return None if classes is None else float(classes["margin"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return self.document

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON, atomically."""
        write_bytes(path, json.dumps(self.document, allow_nan=False).encode())

    @classmethod
    def load(cls, path: str | Path) -> ProgramCertificate:
        """Read a certificate; its claims are checked by `verify`, not here."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InvalidInputError(f"{path}: not a JSON document ({error})") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise InvalidInputError(f"{path}: not a certificate of schema {SCHEMA}")
        return cls(document)

    def __repr__(self) -> str:
        return f"ProgramCertificate(|program - network| <= {self.epsilon:.3g})"


def verify(
    certificate: ProgramCertificate, network: Network, source: str, domain: Domain | None = None
) -> Verification:
    """Replay a certificate against the network and the text of the C file.

    Uses no solver. If it holds, then for every input of the domain no operation of the program
    leaves its type, and the output is within the stated bound of the network's, in real arithmetic.

    Args:
        domain: what the certificate's own domain has to hold.
    """
    document = certificate.document
    problems: list[str] = []
    place: str | None = None
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            reach = reach_from_dict(document["domain"])
            place = repr(reach.domain)
            if domain is not None and not holds(reach.domain, domain):
                problems.append(
                    f"the certificate speaks of {place}, which does not contain {domain}"
                )
            _replay(document, Box(reach.lo, reach.hi), network, source, problems)
        return Verification(
            not problems,
            tuple(problems),
            certificate.epsilon,
            int(document["trusted"]),
            _margin(document),
            place,
        )
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RelunormError):
            problems.append(str(error))
        else:
            problems.append(f"the document is damaged ({type(error).__name__}: {error})")
    return Verification(False, tuple(problems), float("inf"), 0, None, place)


def _replay(
    document: dict[str, Any], box: Box, network: Network, source: str, problems: list[str]
) -> None:
    if document.get("schema") != SCHEMA:
        problems.append(f"schema {document.get('schema')!r}, expected {SCHEMA}")
        return
    if document["digest"] != seal(document):
        problems.append("the document was changed after it was written (its digest does not match)")
    if document["network"] != network.digest:
        problems.append("the network is not the one the certificate is about")
    if problems:
        return
    options = Options(**document["options"])
    program = network_from(document["program"], read_tables(source), options.name)
    if write_c(program, options, notes(document)) != source.replace("\r\n", "\n"):
        problems.append("the C file is not the one that its tables and the certificate give")
    check_inputs(box, program)
    outer = outer_box(box, program)
    smaller, moved, trusted = _shrunk(document, network, outer, problems)
    if trusted != document["trusted"]:
        problems.append(f"{trusted} verdicts are solver-trusted, not {document['trusted']}")
    if problems:
        return
    change = change_of(smaller, program)
    rows = rows_of(smaller.output_size, options.classes)
    found = replay_cuts(smaller, change, outer, rows, document["cuts"])
    compare_claims(
        claims(smaller, change, outer, rows, found, moved, options.classes), document, problems
    )


def _shrunk(
    document: dict[str, Any], network: Network, outer: Box, problems: list[str]
) -> tuple[Network, NDArray[np.float64], int]:
    """The network the program was made from, how far it is from the one given, and trust."""
    entry = document["shrunk"]
    if entry is None:
        return without_empty_terms(network), np.zeros(network.output_size), 0
    smaller = network_from_dict(entry["network"])
    inner = Certificate(entry["certificate"])
    outcome = verify_pair(inner, network, smaller, outer)
    problems += [f"shrinking: {problem}" for problem in outcome.problems]
    if inner.exceptions:
        problems.append("shrinking: step units were left out")
    return without_empty_terms(smaller), np.array(inner.bounds, dtype=np.float64), outcome.trusted


def change_of(network: Network, program: AnyNetwork) -> Change:
    """The program beside the network; for integers nothing can overflow, or this raises.

    Raises:
        InvalidInputError: something could leave its type, or the two do not fit together.
    """
    fits = len(program.layers) == len(network.layers) and all(
        x.kind == y.activation.kind for x, y in zip(program.layers, network.layers, strict=True)
    )
    if not fits:
        raise InvalidInputError("the program's layers are not those of the network")
    for ours, theirs in zip(program.maps, network.maps, strict=True):
        shapes = {s: t.shape for s, t in ours.terms.items()}
        if shapes != {s: tuple(m.shape) for s, m in theirs.terms.items()}:
            raise InvalidInputError("the program's matrices are not those of the network")
    if isinstance(program, FloatNetwork):
        return FloatProgram(network, program).change
    return walk_through(network, program).change


def check_inputs(box: Box, program: AnyNetwork) -> None:
    """Raise unless every input of the domain, rounded, passes the program's clamps unchanged."""
    low: NDArray[Any]
    high: NDArray[Any]
    if isinstance(program, IntegerNetwork):
        low = rounded_half_up(box.lo, program.input_exponent)
        high = rounded_half_up(box.hi, program.input_exponent)
        least, most = RANGES[program.input_type]
        if program.input_low.min() < least or program.input_high.max() > most:
            raise InvalidInputError(f"the clamps of the inputs do not fit {program.input_type}")
    else:
        low, high = box.lo.astype(np.float32), box.hi.astype(np.float32)
    if (program.input_low > low).any() or (program.input_high < high).any():
        raise InvalidInputError("the program clamps inputs that lie in the domain")
    if (program.input_low > program.input_high).any():
        raise InvalidInputError("the clamps of an input contradict each other")


def outer_box(box: Box, program: AnyNetwork) -> Box:
    """The domain's box and the box of the program's own inputs together."""
    if isinstance(program, IntegerNetwork):
        grid = grid_box(program)
    else:
        grid = Box(program.input_low.astype(np.float64), program.input_high.astype(np.float64))
    return Box(np.minimum(box.lo, grid.lo), np.maximum(box.hi, grid.hi))


def rows_of(outputs: int, classes: bool) -> NDArray[np.float64]:
    """The combinations of outputs that are bounded: each, and for classes the pairs."""
    one = np.eye(outputs)
    if not classes or not 1 < outputs <= PAIRS_UP_TO:
        return one
    pairs = [one[i] - one[j] for i in range(outputs) for j in range(i)]
    return np.vstack([one, *pairs])


def claims(
    network: Network,
    change: Change,
    box: Box,
    rows: NDArray[np.float64],
    found: Bounds,
    moved: NDArray[np.float64],
    classes: bool,
) -> dict[str, Any]:
    """What the bounds prove, JSON-safe: per output, about classes, about steps.

    Args:
        moved: how far the shrunk network can be from the one given.
    """
    outputs = network.output_size
    extra = np.abs(rows) @ moved
    total = Bounds(_plus(found.on_grid, extra), _plus(found.of_floats, extra))
    result: dict[str, Any] = {
        "bounds": {
            "on_grid": _finite(total.on_grid[:outputs]),
            "of_floats": _finite(total.of_floats[:outputs]),
        },
        "classes": None,
        "steps": None,
    }
    if classes:
        wide = total.of_floats[outputs:] if len(rows) > outputs else 2 * total.of_floats
        wide = total.of_floats if outputs == 1 else wide
        margin = slackened(float(wide.max()))
        fixed = _fixed_class(network, box, margin + 2 * float(moved.max()))
        result["classes"] = {"margin": 0.0 if fixed is not None else margin, "everywhere": fixed}
    if any(layer.activation.kind == "step" for layer in network.layers):
        apart, difference = bound_part(network, change, box, rows[:outputs], away=True)
        result["steps"] = {
            "bounds": _finite(_plus(apart.of_floats, moved)),
            "exceptions": [
                {"layer": k, "unit": int(u), "margin": slackened(float(margin[u]))}
                for k, margin in enumerate(difference.margins)
                if margin is not None
                for u in np.flatnonzero(margin > 0)
            ],
        }
    return result


def compare_claims(found: dict[str, Any], stated: dict[str, Any], problems: list[str]) -> None:
    """Add a problem for every claim that is stated but was not found again."""
    for key in ("on_grid", "of_floats"):
        _compare(key, found["bounds"][key], stated["bounds"][key], problems)
    ours, theirs = found["classes"], stated["classes"]
    if (ours is None) != (theirs is None):
        problems.append("classes: the claim is not the one that was found")
    elif ours is not None:
        same = ours["everywhere"] == theirs["everywhere"]
        if not same or not ours["margin"] <= theirs["margin"] * (1 + 1e-9):
            problems.append(f"classes: {ours} was found, {theirs} is stated")
    ours, theirs = found["steps"], stated["steps"]
    if (ours is None) != (theirs is None):
        problems.append("steps: the claim is not the one that was found")
    elif ours is not None:
        _compare("steps", ours["bounds"], theirs["bounds"], problems)
        known = {(e["layer"], e["unit"]): float(e["margin"]) for e in theirs["exceptions"]}
        for entry in ours["exceptions"]:
            if not entry["margin"] <= known.get((entry["layer"], entry["unit"]), -1) * (1 + 1e-9):
                problems.append(f"an exception is not stated, or not wide enough: {entry}")
                break


def _compare(what: str, found: list[Any], stated: list[Any], problems: list[str]) -> None:
    ours, theirs = ([np.inf if v is None else v for v in side] for side in (found, stated))
    # what is stated was widened by more than machines differ, and so was what is found now
    if len(ours) != len(theirs) or not all(
        f <= s * (1 + 1e-9) for f, s in zip(ours, theirs, strict=True)
    ):
        problems.append(f"{what}: {found} was found, {stated} is stated")


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
    problem = Problem(leads, reach_of(box))
    bounds = ValueBounds(problem)
    for index in range(len(leads.layers)):
        bounds.append(*rule_bounds(problem, bounds, index))
    lower, _ = rule_bounds(problem, bounds, len(leads.layers), every=True)
    # forming the differences of rows rounds; a share of the sizes covers it
    size = sum((abs(m) @ bounds.span(s) for s, m in network.output.terms.items()), np.zeros(1))
    rest = 1e-14 * float(np.max(size) + np.abs(network.output.bias).max())
    return best if float(lower.min()) - rest > margin * (1 + 1e-9) else None


def seal(document: dict[str, Any]) -> str:
    """sha256 of everything in a document but its own digest."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def notes(document: dict[str, Any]) -> list[str]:
    """The comment at the top of the C file."""
    sizes, options = document["sizes"], document["options"]
    epsilon = _largest(document["bounds"]["of_floats"])
    grid = _largest(document["bounds"]["on_grid"])
    lines = [
        f"{options['name']}: a neural network, written by relunorm {document['version']}.",
        "",
        f"network      {document['network']}",
        f"certificate  {document['digest']}",
        f"tables {sizes['flash']} bytes, buffers {sizes['ram']} bytes on the stack, "
        f"{sizes['multiplications']} multiplications",
        "",
        "Proved for every input in the domain, and for all others after clamping:",
    ]
    integer = document["program"]["arithmetic"] == "integer"
    if integer:
        lines.append("- no operation leaves its type, partial sums included;")
    if np.isfinite(epsilon):
        lines.append(
            f"- |output - network| <= {epsilon:.4g}, rounding the input included"
            + (f" ({grid:.4g} without)." if integer else ".")
        )
    else:
        lines.append("- no bound on |output - network|.")
    classes = document["classes"]
    if classes is not None and classes["everywhere"] is not None:
        lines.append(f"- the class is {classes['everywhere']} everywhere, as in the network.")
    elif classes is not None:
        lines.append(
            f"- the class is the network's wherever its best output leads by more than "
            f"{classes['margin']:.4g}."
        )
    if document["steps"] is not None:
        apart = _largest(document["steps"]["bounds"])
        lines.append(f"- {apart:.4g} where no step is near its threshold (see the certificate).")
    lines.append(f"Largest difference found by search: {document['found']['of_floats']:.4g}.")
    if integer:
        lines += ["", "Rounding is to nearest, halves towards plus infinity."]
    return lines


def _margin(document: dict[str, Any]) -> float | None:
    steps = document["steps"]
    if steps is None:
        return None
    return max((float(e["margin"]) for e in steps["exceptions"]), default=None)


def _plus(bounds: NDArray[np.float64], extra: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([slackened(float(v)) for v in np.nextafter(bounds + extra, np.inf)])


def _finite(values: NDArray[np.float64]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _largest(values: list[float | None]) -> float:
    return max(float("inf") if v is None else float(v) for v in values)
