"""The certificate of a program: nothing overflows, and the output moves by at most epsilon.

It holds the program's structure, the cuts of the domain that prove the bound, and, where the
network was shrunk first, the smaller network with its own certificate. `verify` reads the tables
from the C file, rebuilds the program from them, recomputes both proofs against the network without
a solver, and writes the file again: it has to come out letter by letter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.atomic import write_bytes
from relunorm.domain import Box, Domain
from relunorm.embedded.c_file import Options
from relunorm.embedded.c_tables import read_tables
from relunorm.embedded.claims import claims, compare_claims, rows_of
from relunorm.embedded.cutting import replay_cuts
from relunorm.embedded.packed import network_from_dict
from relunorm.embedded.pieces import Piecewise
from relunorm.embedded.programs import c_file, change_of, check_inputs, outer_box, program_from
from relunorm.embedded.terms import without_empty_terms
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms.certificate.certificate import Certificate
from relunorm.forms.certificate.verification import Verification
from relunorm.forms.certificate.verification import verify as verify_pair
from relunorm.network import Network
from relunorm.stability.documents import holds, reach_from_dict

SCHEMA = "relunorm.program/1"


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

    @property
    def margin_on_grid(self) -> float | None:
        """The same where the input already is one of the program's integers."""
        classes = self.document["classes"]
        return None if classes is None else float(classes["margin_on_grid"])

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
    source = source.replace("\r\n", "\n")
    found_tables = read_tables(source)
    if tables_digest(found_tables) != document["tables"]:
        problems.append("a table of the C file is not the one the certificate is about")
        return
    program = program_from(document["program"], found_tables, options.name, network)
    if c_file(program, options).source(notes(document)) != source:
        problems.append("the C file is not the one that its tables and the certificate give")
    check_inputs(box, program)
    outer = outer_box(box, program)
    smaller, moved, trusted = _shrunk(document, network, outer, problems)
    if trusted != document["trusted"]:
        problems.append(f"{trusted} verdicts are solver-trusted, not {document['trusted']}")
    if problems:
        return
    change = None
    if isinstance(program, Piecewise):
        rows = rows_of(smaller.output_size, False)
        found = program.bound(smaller)
    else:
        change = change_of(smaller, program)
        rows = rows_of(smaller.output_size, options.classes)
        found = replay_cuts(smaller, change, outer, rows, document["cuts"])
    again = claims(smaller, change, outer, rows, found, moved, options.classes)
    compare_claims(again, document, problems)


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


def tables_digest(tables: Mapping[str, NDArray[Any]]) -> str:
    """sha256 of the names and numbers of tables, whatever their types."""
    h = hashlib.sha256()
    for name, values in sorted(tables.items()):
        kind = "<f8" if values.dtype.kind == "f" else "<i8"
        h.update(f"{name} {len(values)} ".encode())
        h.update(np.ascontiguousarray(values, dtype=kind).tobytes())
    return h.hexdigest()


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
    integer = document["program"]["arithmetic"] != "float"
    if integer:
        lines.append("- no operation leaves its type, partial sums included;")
    if np.isfinite(epsilon):
        lines.append(
            f"- |output - network| <= {epsilon:.4g}, rounding the input included"
            + (f" ({grid:.4g} without);" if integer else ";")
        )
    else:
        lines.append("- no bound on |output - network|.")
    head = document["head"]
    if head is not None:
        lines[5:5] = [f"outputs are the {head['of']}"]
        if head["bound"] is not None:
            rest = f" ({head['bound_on_grid']:.4g} without)" if integer else ""
            lines.append(f"- |{head['label']} of them - the model| <= {head['bound']:.4g}{rest};")
    classes = document["classes"]
    if classes is not None and classes["everywhere"] is not None:
        lines.append(f"- the class is {classes['everywhere']} everywhere, as in the network.")
    elif classes is not None:
        lines.append(
            f"- the class is the network's wherever its best output leads by more than "
            f"{classes['margin']:.4g}"
            + (f" ({classes['margin_on_grid']:.4g})." if integer else ".")
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


def _largest(values: list[float | None]) -> float:
    return max(float("inf") if v is None else float(v) for v in values)
