"""`to_c`: from a trained network to a C program with a certificate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from relunorm.arguments import whole_number
from relunorm.arithmetic.floats import at_least, at_most
from relunorm.atomic import atomic_path
from relunorm.clock import Listener
from relunorm.display.shown import Shown, plain
from relunorm.domain import Box
from relunorm.domain.reach import reach_of
from relunorm.embedded.arithmetic.integers import RANGES, WIDTHS, IntegerNetwork
from relunorm.embedded.c.c_file import TARGETS, Options, flash_bytes
from relunorm.embedded.guarantees import notes
from relunorm.embedded.job import Job
from relunorm.embedded.pieces.one_input import Piecewise
from relunorm.embedded.program_certificate import ProgramCertificate
from relunorm.embedded.programs import AnyProgram, c_file, ram_bytes, tables
from relunorm.errors import (
    InvalidDomainError,
    InvalidInputError,
    RelunormError,
    UnsupportedFormatError,
)
from relunorm.io.border import Model, Place, accepts
from relunorm.network import Network

STYLES = ("layers", "pieces")


@dataclass(frozen=True, eq=False, repr=False)
class Export(Shown):
    """A C program, its model in Python and its certificate.

    Attributes:
        source: the C file.
        header: declarations for files that call it.
        program: the same in Python: an `IntegerNetwork`, `Pieces` or a `PieceTree` (bit for bit),
            or a `FloatNetwork`.
        network: the network it was made from, as given.
        certificate: the two proofs.
    """

    source: str
    header: str
    program: AnyProgram
    network: Network
    certificate: ProgramCertificate

    @property
    def epsilon(self) -> float:
        """Proved: |program - network| for every real input of the domain, largest output."""
        return self.certificate.epsilon

    @property
    def found(self) -> float:
        """The largest difference that a search found, evaluated exactly: no proof can say less."""
        return float(self.certificate.document["found"]["of_floats"])

    @property
    def flash(self) -> int:
        """Bytes of the tables."""
        return int(self.certificate.document["sizes"]["flash"])

    @property
    def ram(self) -> int:
        """Bytes of the buffers, on the stack."""
        return int(self.certificate.document["sizes"]["ram"])

    @property
    def multiplications(self) -> int:
        """Products in one evaluation."""
        return int(self.certificate.document["sizes"]["multiplications"])

    def save(
        self,
        path: str | Path,
        certificate: str | Path | None = None,
        header: str | Path | None = None,
    ) -> None:
        """Write the C file, and if wanted its certificate and header: all of them, or none."""
        proof = json.dumps(self.certificate.document, allow_nan=False)
        files = ((certificate, proof), (header, self.header), (path, self.source))
        with ExitStack() as stack:
            for target, text in files:
                if target is not None:
                    stack.enter_context(atomic_path(target)).write_bytes(text.encode())

    def save_onnx(self, path: str | Path) -> None:
        """Write the same integers as ONNX in QDQ form, atomically (see `relunorm.embedded.qdq`)."""
        from relunorm.embedded.qdq import write_qdq

        if not isinstance(self.program, IntegerNetwork):
            raise UnsupportedFormatError(
                f"{self.program!r} has no QDQ form; export layers of 8 bits"
            )
        write_qdq(self.program, path)

    def to_dict(self) -> dict[str, Any]:
        """The results without the proofs, JSON-safe."""
        document = self.certificate.document
        keys = ["bounds", "found", "search", "classes", "head", "steps", "sizes", "options"]
        steps = document["steps"]
        maps = (self.program,) if isinstance(self.program, Piecewise) else self.program.maps
        return {
            "schema": "relunorm.export/1",
            "epsilon": plain(self.epsilon),
            "epsilon_on_grid": plain(self.certificate.epsilon_on_grid),
            "weights": [m.weight_type for m in maps],
            "accumulators": [m.accumulator for m in maps],
            "network": document["network"],
            "shrunk": document["shrunk"] is not None,
            **{key: document[key] for key in (*keys, "domain", "digest")},
            "steps": None if steps is None else {"bounds": steps["bounds"]},
        }

    def __repr__(self) -> str:
        return (
            f"Export({self.program!r}, tables {self.flash:,} bytes, "
            f"|program - network| <= {at_most(self.epsilon, 3)} proved, "
            f"{at_least(self.found, 3)} found)"
        )


@accepts("network", domains=("domain",))
def to_c(
    network: Model,
    domain: Place,
    *,
    bits: int | None = None,
    epsilon: float | None = None,
    target: str = "c99",
    floats: bool = False,
    style: Literal["layers", "pieces"] = "layers",
    classes: bool = False,
    name: str = "net",
    input_shift: int | Sequence[int] | None = None,
    integer_inputs: bool = False,
    shrink: bool = True,
    parts: int = 256,
    flash: int | None = None,
    ram: int | None = None,
    samples: int = 20_000,
    random_state: int = 0,
    progress: Listener | None = None,
) -> Export:
    """A C program that computes the network over a domain, with two proofs.

    Nothing overflows: no partial sum, in the order of the program, leaves its accumulator. And the
    output is within `Export.epsilon` of the network's for every input of the domain. Inputs are
    integers, ``x = round(real * 2^shift)``; those outside the domain's box are clamped to it.

    Args:
        domain: a box, a ball or a polytope; the proofs hold for the box around it.
        bits: 8, 16 or 32 for weights, inputs and values. If omitted: 16, or with ``epsilon`` the
            smallest tables that meet it, weights of 8 and 16 bits mixed.
        epsilon: how far outputs may move, rounding the input included.
        target: what the program is for, such as ``avr``, whose tables lie in flash.
        floats: single precision instead of integers.
        style: ``layers``, or for one or two inputs ``pieces``: the affine pieces in a search tree.
        classes: add a function that gives the class, and a claim about it.
        name: prefix of what the file defines.
        input_shift: the shift of the inputs where a sensor fixes it, one or one for each.
        integer_inputs: inputs are the program's integers to begin with, as a sensor gives them, so
            that ``epsilon`` leaves their rounding out. Both bounds are proved and stated anyhow.
        shrink: remove first what does nothing over the domain.
        parts: boxes the domain is cut into to tighten the bound, at most.
        flash, ram: bytes there are; those of the target's smallest common board if omitted.
        samples: inputs the search for the largest difference starts from.
        random_state: its seed.
        progress: called with a `Progress`.

    Raises:
        InvalidInputError: no width meets epsilon (the message says what can be proved, and its
            cost), or the program does not fit the target.

    Sound bounds, in real arithmetic. Cost: the stability analysis of `normalize`, then a backward
    pass for every part; seconds for thousands of weights.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    >>> made = to_c(net, Box([-1.0], [1.0]), bits=8)
    >>> made.epsilon < 0.02, made.program.predict([[0.5], [-0.25]]).ravel().tolist()
    (True, [0.5, 0.25])
    """
    labels = tuple(map(str, network.head.classes))
    options = Options(name, target, classes, labels if classes else ())
    box = _checked(network, domain, bits, epsilon, floats, style)
    counts = {"parts": parts, "samples": samples, "random_state": random_state}
    counts |= {what: there for what, there in (("flash", flash), ("ram", ram)) if there is not None}
    for what, value in counts.items():
        whole_number(what, value, 1 if what in ("parts", "samples") else 0)
    if classes:
        network.check_decides("leave classes out")
    exponent = None if input_shift is None else np.atleast_1d(np.asarray(input_shift))
    if exponent is not None and (
        exponent.dtype.kind not in "iu" or exponent.shape not in ((1,), (network.input_size,))
    ):
        raise InvalidInputError(
            f"input_shift {input_shift!r}: expected a whole number, or one for each input"
        )
    if floats and (integer_inputs or input_shift is not None):
        what = "integer_inputs" if integer_inputs else "input_shift"
        raise InvalidInputError(f"{what}: a program in single precision takes floats")
    job = Job(
        network,
        domain,
        box,
        options,
        exponent,
        integer_inputs,
        parts,
        samples,
        int(random_state),
        progress,
    )
    with np.errstate(over="ignore", invalid="ignore"):
        widths = WIDTHS if bits is None and epsilon is not None else (bits or 16,)
        if shrink:
            job.shrink(widths, floats, style == "layers")
        if floats:
            program, found = job.floats()
        elif style == "pieces":
            program, found = job.pieces(widths, epsilon)
        else:
            program, found = job.integers(widths, epsilon)
        if epsilon is not None and not job.meets(found, epsilon):
            job.refuse(epsilon, bits, style == "layers" and not floats)
        board = TARGETS[target]
        limits = (board.flash if flash is None else flash, board.ram if ram is None else ram)
        _check_size(program, options, *limits)
        _check_tables(program, options.name)
        try:
            document = job.document(program, *found)
        except RelunormError:
            raise
        except (ValueError, OverflowError):  # no JSON for what is infinite
            raise InvalidInputError(
                "no finite bound can be proved: values on the way leave the range of the "
                "program's numbers; rescale the network, or choose a smaller domain"
            ) from None
    file = c_file(program, options)
    certificate = ProgramCertificate(document)
    return Export(file.source(notes(document)), file.header(), program, network, certificate)


def _checked(network: Any, domain: Any, bits: Any, epsilon: Any, floats: bool, style: Any) -> Box:
    if domain is None:
        raise InvalidDomainError(
            "a program needs a bounded domain, because every range is proved over it; pass a Box, "
            "Ball or Polytope"
        )
    domain.check_dimension(network.input_size)
    if bits is not None and (type(bits) is not int or bits not in WIDTHS or floats):
        *most, last = map(str, WIDTHS)
        known = f"expected {', '.join(most)} or {last}"
        what = "floats have 32 bits; leave bits out" if floats else known
        raise InvalidInputError(f"bits is {bits!r}: {what}")
    if style not in STYLES or (style == "pieces" and floats):
        what = "pieces are integers" if style in STYLES else "choose layers or pieces"
        raise InvalidInputError(f"style {style!r}: {what}")
    if epsilon is not None and not (isinstance(epsilon, Real) and 0 < float(epsilon) < np.inf):
        raise InvalidInputError(f"epsilon is {epsilon!r}, expected a finite number > 0")
    reach = reach_of(domain)
    return Box(reach.lo, reach.hi)


def _check_size(program: AnyProgram, options: Options, flash: int | None, ram: int | None) -> None:
    needs = (
        ("tables", flash_bytes(tables(program, options.name)), flash),
        ("buffers", ram_bytes(program), ram),
    )
    for what, need, there in needs:
        if there is not None and need > there:
            place = "flash" if what == "tables" else "RAM"
            raise InvalidInputError(
                f"the {what} need {need:,} bytes, but {options.target} is taken to have {there:,} "
                f"of {place}; use fewer bits, or a smaller network"
            )


def _check_tables(program: AnyProgram, name: str) -> None:
    """Refuse numbers that their type in C does not hold."""
    for table, (kind, values) in tables(program, name).items():
        low, high = RANGES.get(kind, (-np.finfo(np.float32).max, np.finfo(np.float32).max))
        if any(not low <= value <= high for value in np.asarray(values).tolist()):
            raise InvalidInputError(
                f"the table {table} would hold numbers that {kind} does not: the weights are "
                "larger than any scale allows; rescale the network, or use more bits"
            )
