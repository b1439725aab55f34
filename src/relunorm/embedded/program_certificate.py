"""The certificate of a program: nothing overflows, and the output moves by at most epsilon.

It holds the program's structure, the cuts of the domain that prove the bound, and, where the
network was shrunk first, the smaller network with its own certificate. `verify` reads the tables
from the C file, rebuilds the program from them, recomputes both proofs against the network without
a solver, and writes the file again: it has to come out letter by letter. Sizes are counted again,
and where a difference was found both are evaluated again, exactly. What is left unproved stands
under ``search`` and ``version``: how many inputs were tried, from which seed, by which version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import at_most
from relunorm.domain import Box, Domain
from relunorm.domain.documents import domain_to_dict, holds, reach_from_dict
from relunorm.embedded.arithmetic.integers import IntegerProgram
from relunorm.embedded.c.c_file import Options, flash_bytes
from relunorm.embedded.guarantees import claims, compare_claims, largest, notes, rows_of
from relunorm.embedded.lower_bound import difference_at
from relunorm.embedded.pieces.one_input import Piecewise
from relunorm.embedded.programs import (
    AnyProgram,
    c_file,
    change_of,
    check_inputs,
    outer_box,
    program_from,
    ram_bytes,
    read_tables,
    structure,
    tables,
)
from relunorm.embedded.proof.cutting import replay_cuts
from relunorm.embedded.shrink import replay_shrink
from relunorm.errors import InvalidInputError, RelunormError
from relunorm.forms.certificate.certificate import seal as seal
from relunorm.forms.certificate.schema import (
    Check,
    Documented,
    each,
    flag,
    maybe,
    number,
    record,
    text,
    whole,
)
from relunorm.forms.certificate.verification import Verification
from relunorm.network import Network

SCHEMA = "relunorm.program/3"
VERSION = re.compile(r"[0-9A-Za-z.+!_-]{1,60}")

_BOUNDS = each(maybe(number))
_ANYTHING: Check = lambda value, path: None  # noqa: E731
_DOCUMENT = record(
    schema=text,
    version=text,
    network=text,
    domain=_ANYTHING,  # what is left open here is read, written again and compared
    program=_ANYTHING,
    options=record(name=text, target=text, classes=flag, labels=each(text)),
    shrunk=maybe(record(network=_ANYTHING, certificate=_ANYTHING)),
    tables=text,
    cuts=each(maybe(each(number, 2))),
    bounds=record(on_grid=_BOUNDS, of_floats=_BOUNDS),
    classes=maybe(record(margin=number, margin_on_grid=number, everywhere=maybe(whole))),
    steps=maybe(
        record(bounds=_BOUNDS, exceptions=each(record(layer=whole, unit=whole, margin=number)))
    ),
    head=maybe(record(label=text, of=text, bound=maybe(number), bound_on_grid=maybe(number))),
    found=record(
        on_grid=number, of_floats=number, inputs=each(number), integers=maybe(each(whole))
    ),
    search=record(tried=whole, random_state=whole),
    sizes=record(flash=whole, ram=whole, multiplications=whole),
    digest=text,
)


@dataclass(frozen=True, repr=False)
class ProgramCertificate(Documented):
    """That a program cannot overflow and stays within a bound of its network over a domain."""

    schema: ClassVar = SCHEMA

    @property
    def epsilon(self) -> float:
        """A bound on |program - network| for every real input of the domain, rounded to the grid.

        In real arithmetic, largest output; infinite where none is proved.
        """
        return largest(self.document["bounds"]["of_floats"])

    @property
    def epsilon_on_grid(self) -> float:
        """The same where the input already is one of the program's integers."""
        return largest(self.document["bounds"]["on_grid"])

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

    def __repr__(self) -> str:
        return f"ProgramCertificate(|program - network| <= {at_most(self.epsilon, 3)})"


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
            if document.get("schema") != SCHEMA:
                found = document.get("schema")
                raise InvalidInputError(f"schema {found!r:.60}, expected {SCHEMA!r}; export anew")
            _DOCUMENT(document, "")
            reach = reach_from_dict(document["domain"])
            if not _same(domain_to_dict(reach), document["domain"]):
                raise InvalidInputError("the domain is not written as an export writes it")
            place = repr(reach.domain)
            if domain is not None and not holds(reach.domain, domain):
                problems.append(
                    f"the certificate speaks of {place}, which does not contain {domain}"
                )
            _replay(document, Box(reach.lo, reach.hi), network, source, problems)
        return Verification(
            not problems, tuple(problems), certificate.epsilon, _margin(document), place
        )
    except RelunormError as error:
        problems.append(str(error))
    except KeyError as error:
        problems.append(f"the certificate is damaged: the key {error} is missing")
    except (TypeError, IndexError, ValueError, OverflowError):
        problems.append("the certificate is damaged: what it says of the program does not fit")
    return Verification(False, tuple(problems), float("inf"), None, place)


def _replay(
    document: dict[str, Any], box: Box, network: Network, source: str, problems: list[str]
) -> None:
    if document["digest"] != seal(document):
        problems.append("the document was changed after it was written (its digest does not match)")
    if document["network"] != network.digest:
        problems.append("the network is not the one the certificate is about")
    if problems:
        return
    options = Options(**document["options"])
    labels = tuple(map(str, network.head.classes)) if options.classes else ()
    if options.labels != labels:
        problems.append("the labels of the classes are not the model's")
    if not VERSION.fullmatch(document["version"]):
        problems.append("the version is not one of relunorm's")
    source = source.replace("\r\n", "\n")
    found_tables = read_tables(source)
    if tables_digest(found_tables) != document["tables"]:
        problems.append("a table of the C file is not the one the certificate is about")
        return
    program = program_from(document["program"], found_tables, options.name, network)
    if not _same(structure(program), document["program"]):
        problems.append("the certificate says more of the program than its tables need")
    if c_file(program, options).source(notes(document)) != source:
        problems.append("the C file is not the one that its tables and the certificate give")
    if sizes_of(program, options.name) != document["sizes"]:
        problems.append(
            f"the sizes are {sizes_of(program, options.name)}, not {document['sizes']} as stated"
        )
    check_inputs(box, program)
    outer = outer_box(box, program)
    smaller, moved = replay_shrink(document["shrunk"], network, outer, problems)
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
    _check_found(document["found"], box, network, program, problems)


def _check_found(
    found: dict[str, Any], box: Box, network: Network, program: AnyProgram, problems: list[str]
) -> None:
    """Evaluate both exactly where a difference is said to have been found."""
    inputs = np.array(found["inputs"], dtype=np.float64)
    if inputs.shape != box.lo.shape or not box.contains(inputs[None])[0]:
        problems.append("found: the input is not one of the domain")
        return
    seen = {"of_floats": difference_at(network, program, inputs)}
    seen["on_grid"] = seen["of_floats"]
    if isinstance(program, IntegerProgram):
        integers = np.array(found["integers"] or [], dtype=np.int64)
        inside = integers.shape == inputs.shape and np.array_equal(
            integers, np.clip(integers, program.input_low, program.input_high)
        )
        if not inside:
            problems.append("found: the integers are not an input of the program")
            return
        real = np.ldexp(integers.astype(np.float64), -program.input_exponent.astype(np.int32))
        seen["on_grid"] = difference_at(network, program, real)
    elif found["integers"] is not None:
        problems.append("found: a program of floats takes no integers")
    for key, value in seen.items():
        if found[key] != value:
            problems.append(f"found: the difference there is {value!r}, not {found[key]!r} ({key})")


def sizes_of(program: AnyProgram, name: str) -> dict[str, int]:
    """Bytes of the tables and of the buffers, and products in one evaluation."""
    return {
        "flash": flash_bytes(tables(program, name)),
        "ram": ram_bytes(program),
        "multiplications": program.multiplications,
    }


def _same(ours: Any, theirs: Any) -> bool:
    """Whether two documents are the same, 1 and true and 1.0 told apart."""
    return json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def tables_digest(tables: Mapping[str, NDArray[Any]]) -> str:
    """sha256 of the names and numbers of tables, whatever their types."""
    h = hashlib.sha256()
    for name, values in sorted(tables.items()):
        kind = "<f8" if values.dtype.kind == "f" else "<i8"
        h.update(f"{name} {len(values)} ".encode())
        h.update(np.ascontiguousarray(values, dtype=kind).tobytes())
    return h.hexdigest()


def _margin(document: dict[str, Any]) -> float | None:
    steps = document["steps"]
    if steps is None:
        return None
    return max((float(e["margin"]) for e in steps["exceptions"]), default=None)
