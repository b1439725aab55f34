"""`to_c`: from a trained network to a C program with a certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relunorm import __version__
from relunorm.atomic import write_bytes
from relunorm.domain import Box, Domain
from relunorm.embedded.c_tables import structure_of
from relunorm.embedded.c_writer import (
    AnyNetwork,
    Options,
    flash_bytes,
    ram_bytes,
    tables_of,
    write_c,
    write_header,
)
from relunorm.embedded.certificate import (
    SCHEMA,
    ProgramCertificate,
    change_of,
    claims,
    notes,
    outer_box,
    rows_of,
    seal,
)
from relunorm.embedded.cutting import Bounds, cut
from relunorm.embedded.floats import build_floats
from relunorm.embedded.integers import IntegerNetwork
from relunorm.embedded.packed import network_to_dict
from relunorm.embedded.scales import build, start_of
from relunorm.embedded.search import Found, largest_difference
from relunorm.embedded.terms import Integers, geometry_of, without_empty_terms
from relunorm.embedded.walk import grid_box
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.forms.domains import domain_to_dict
from relunorm.network import Network
from relunorm.stability.reach import reach_of

#: Bytes of flash and RAM of the smallest common board of a target (an ATmega328P).
BOARDS = {"avr": (32_256, 2_048)}
WIDTHS = (8, 16, 32)

#: Called with what is being done and, where known, the share that is done.
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, eq=False, repr=False)
class Export:
    """A C program, its model in Python and its certificate.

    Attributes:
        source: the C file.
        header: declarations for files that call it.
        program: the same in Python: an `IntegerNetwork` (bit for bit) or a `FloatNetwork`.
        network: the network it was made from, as given.
        certificate: the two proofs.
    """

    source: str
    header: str
    program: AnyNetwork
    network: Network
    certificate: ProgramCertificate

    @property
    def epsilon(self) -> float:
        """Proved: |program - network| for every real input of the domain, largest output."""
        return self.certificate.epsilon

    @property
    def found(self) -> float:
        """The largest difference a search found: no program of this kind can prove less."""
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
        """Write the C file, and if wanted its certificate and header, each atomically."""
        if certificate is not None:
            self.certificate.save(certificate)
        if header is not None:
            write_bytes(header, self.header.encode())
        write_bytes(path, self.source.encode())

    def to_dict(self) -> dict[str, Any]:
        """The results without the proofs, JSON-safe."""
        document = self.certificate.document
        keys = ("bounds", "found", "classes", "steps", "sizes", "options", "domain", "digest")
        steps = document["steps"]
        return {
            "schema": "relunorm.export/1",
            "epsilon": _or_none(self.epsilon),
            "epsilon_on_grid": _or_none(self.certificate.epsilon_on_grid),
            "weights": [m.weight_type for m in self.program.maps],
            "accumulators": [m.accumulator for m in self.program.maps],
            "network": document["network"],
            "shrunk": document["shrunk"] is not None,
            **{key: document[key] for key in keys},
            "steps": None if steps is None else {"bounds": steps["bounds"]},
        }

    def __repr__(self) -> str:
        return (
            f"Export({self.program!r}, tables {self.flash:,} bytes, "
            f"|program - network| <= {self.epsilon:.3g} proved, {self.found:.3g} found)"
        )


def to_c(
    network: Network,
    domain: Domain,
    *,
    bits: int | None = None,
    epsilon: float | None = None,
    target: str = "c99",
    floats: bool = False,
    classes: bool = False,
    name: str = "net",
    input_shift: int | Sequence[int] | None = None,
    shrink: bool = True,
    parts: int = 256,
    flash: int | None = None,
    ram: int | None = None,
    samples: int = 20_000,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Export:
    """A C program that computes the network over a domain, with two proofs.

    Nothing overflows: no partial sum, in the order of the program, leaves its accumulator. And the
    output is within `Export.epsilon` of the network's for every input of the domain. Inputs are
    integers, ``x = round(real * 2^shift)``; those outside the domain's box are clamped to it.

    Args:
        domain: a box, a ball or a polytope; the proofs hold for the box around it.
        bits: 8, 16 or 32 for weights, inputs and values. If omitted: 16, or with ``epsilon`` the
            smallest tables that meet it, weights of 8 and 16 bits mixed.
        epsilon: how far outputs may move.
        target: ``c99``, ``avr`` (tables in flash) or ``arm``.
        floats: single precision instead of integers.
        classes: add a function that gives the class, and a claim about it.
        name: prefix of what the file defines.
        input_shift: the shift of the inputs where a sensor fixes it, one or one for each.
        shrink: remove first what does nothing over the domain.
        parts: boxes the domain is cut into to tighten the bound, at most.
        flash, ram: bytes there are; those of an ATmega328P for ``avr``, no limit otherwise.
        samples: inputs the search for the largest difference starts from.
        random_state: its seed.
        progress: called with what is being done and, where known, the share that is done.

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
    options = Options(name, target, classes)
    box = _checked(network, domain, bits, epsilon, floats, parts)
    exponent = None if input_shift is None else np.atleast_1d(np.asarray(input_shift))
    if exponent is not None and (
        exponent.dtype.kind != "i" or exponent.shape not in ((1,), (network.input_size,))
    ):
        raise InvalidInputError(
            f"input_shift {input_shift!r}: expected a whole number, or one for each input"
        )
    job = _Job(network, domain, box, options, exponent, parts, samples, random_state, progress)
    with np.errstate(over="ignore", invalid="ignore"):
        job.shrink(shrink, WIDTHS if bits is None else (bits,), floats)
        program, found = job.floats() if floats else job.integers(bits, epsilon)
        board = BOARDS.get(target, (None, None))
        limits = (board[0] if flash is None else flash, board[1] if ram is None else ram)
        _check_size(program, options, *limits)
        if epsilon is not None and not found[0].of_floats[: network.output_size].max() <= epsilon:
            job.refuse(epsilon, bits, floats)
        return job.export(program, *found)


Proved = tuple[Bounds, list[Any]]


class _Job:
    """One call: the network as given and shrunk, and the programs tried."""

    def __init__(
        self,
        network: Network,
        domain: Domain,
        box: Box,
        options: Options,
        exponent: Integers | None,
        parts: int,
        samples: int,
        random_state: int,
        progress: Progress | None,
    ):
        self.network, self.domain, self.box, self.options = network, domain, box, options
        self.exponent, self.parts, self.random_state = exponent, parts, random_state
        self.samples, self.progress = samples, progress
        self.smaller = without_empty_terms(network)
        self.shrunk: dict[str, Any] | None = None
        self.moved = np.zeros(network.output_size)
        self.trusted = 0
        self.best: tuple[float, int, str] | None = None

    def show(self, what: str, share: float | None = None) -> None:
        if self.progress is not None:
            self.progress(what, share)

    def shrink(self, wanted: bool, widths: Sequence[int], floats: bool) -> None:
        """Remove what does nothing over the domain and the inputs' grids, if that saves tables."""
        if not wanted:
            return
        from relunorm.forms.normalize import normalize
        from relunorm.stability import stability

        self.show("shrinking")
        outer = self.box
        starts = [] if floats else [start_of(self.network, outer, w, self.exponent) for w in widths]
        grids = [grid_box(start) for start in starts]
        if floats:
            single = [side.astype(np.float32).astype(np.float64) for side in (outer.lo, outer.hi)]
            grids = [Box(*single)]
        outer = Box(
            np.minimum.reduce([outer.lo, *(g.lo for g in grids)]),
            np.maximum.reduce([outer.hi, *(g.hi for g in grids)]),
        )
        if any(layer.activation.kind == "step" for layer in self.network.layers):
            return  # removal may move a threshold, and then no bound holds near it
        found = stability(self.network.folded(), outer, time_limit=10.0, milp=False)
        result = normalize(self.network, "minimal", outer, analysis=found, architecture="keep")
        if result.certificate is None or stored(result.network) >= stored(self.network):
            return
        self.smaller = without_empty_terms(result.network)
        self.moved = np.array(result.certificate.bounds)
        self.trusted = result.certificate.trusted
        self.shrunk = {
            "network": network_to_dict(self.smaller),
            "certificate": result.certificate.to_dict(),
        }

    def integers(self, bits: int | None, epsilon: float | None) -> tuple[IntegerNetwork, Proved]:
        """The integer program of a width, or the smallest that meets epsilon."""
        maps = len(self.smaller.layers) + 1
        if bits is not None or epsilon is None:
            width = 16 if bits is None else bits
            program = self.build([width] * maps, width)
            return program, self.prove(program, None)
        for width in WIDTHS:
            program = self.build([width] * maps, width)
            found = self.prove(program, epsilon)
            if self.meets(found, epsilon):
                break
        if width == 16 and self.meets(found, epsilon):
            program = self.mixed(program, epsilon)
        return program, self.prove(program, None)

    def mixed(self, program: IntegerNetwork, epsilon: float) -> IntegerNetwork:
        """Weights of 8 bits wherever epsilon still holds, the largest tables first."""
        widths = [16] * len(program.maps)
        sizes = [sum(t.weight.size for t in m.terms.values()) for m in program.maps]
        for index in np.argsort(sizes)[::-1].tolist():
            trial = [8 if k == index else w for k, w in enumerate(widths)]
            other = self.build(trial, 16)
            if self.meets(self.prove(other, epsilon), epsilon):
                widths, program = trial, other
        return program

    def build(self, weight_bits: list[int], value_bits: int) -> IntegerNetwork:
        self.show(f"{max(weight_bits)} bits")
        return build(
            self.smaller,
            self.box,
            weight_bits=weight_bits,
            value_bits=value_bits,
            input_exponent=self.exponent,
        )[0]

    def floats(self) -> tuple[AnyNetwork, Proved]:
        """The program in single precision."""
        program = build_floats(self.smaller, self.box)
        return program, self.prove(program, None)

    def prove(self, program: AnyNetwork, goal: float | None) -> Proved:
        """The bounds of a program, cut until they meet the goal or stop improving."""
        rows = rows_of(self.smaller.output_size, self.options.classes)
        rest = None if goal is None else max(goal - float(self.moved.max()), 0.0) * (1 - 1e-6)
        found, cuts = cut(
            self.smaller,
            change_of(self.smaller, program),
            outer_box(self.box, program),
            rows,
            parts=self.parts,
            goal=rest,
            progress=lambda done, parts: self.show("proving", done / parts),
        )
        whole = Bounds(
            found.on_grid + np.abs(rows) @ self.moved, found.of_floats + np.abs(rows) @ self.moved
        )
        size = flash_bytes(tables_of(program, self.options.name))
        largest = float(whole.of_floats[: self.smaller.output_size].max())
        if self.best is None or largest < self.best[0]:
            self.best = (largest, size, program.maps[0].weight_type)
        return whole, cuts

    def meets(self, found: Proved, epsilon: float) -> bool:
        return float(found[0].of_floats[: self.network.output_size].max()) * (1 + 1e-6) <= epsilon

    def refuse(self, epsilon: float, bits: int | None, floats: bool) -> None:
        """Say what can be proved instead, and what it costs."""
        if not floats and bits is not None and bits < 32:
            wider = [w for w in WIDTHS if w > bits]
            for width in wider:
                program = self.build([width] * (len(self.smaller.layers) + 1), width)
                if self.meets(self.prove(program, epsilon), epsilon):
                    size = flash_bytes(tables_of(program, self.options.name))
                    raise InvalidInputError(
                        f"epsilon {epsilon:g} is not met with {bits} bits; {width} bits meet it, "
                        f"with {size:,} bytes of tables"
                    )
        assert self.best is not None
        largest, size, kind = self.best
        raise InvalidInputError(
            f"epsilon {epsilon:g} is not met by any width; the best that can be proved is "
            f"{largest:.3g}, with weights of type {kind} and {size:,} bytes of tables"
        )

    def export(self, program: AnyNetwork, found: Bounds, cuts: list[Any]) -> Export:
        """Search for the largest difference, then write everything down."""
        self.show("searching")
        change = change_of(self.smaller, program)
        outer = outer_box(self.box, program)
        rows = rows_of(self.smaller.output_size, self.options.classes)
        plain = Bounds(
            found.on_grid - np.abs(rows) @ self.moved, found.of_floats - np.abs(rows) @ self.moved
        )
        grid, real = self.search(program)
        tables = tables_of(program, self.options.name)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "version": __version__,
            "network": self.network.digest,
            "domain": domain_to_dict(reach_of(self.domain)),
            "options": {
                "name": self.options.name,
                "target": self.options.target,
                "classes": self.options.classes,
            },
            "shrunk": self.shrunk,
            "trusted": self.trusted,
            "program": structure_of(program),
            "cuts": cuts,
            **claims(self.smaller, change, outer, rows, plain, self.moved, self.options.classes),
            "found": {
                "on_grid": grid.difference,
                "of_floats": real.difference,
                "inputs": real.inputs.tolist(),
                "tried": grid.tried + real.tried,
                "random_state": self.random_state,
            },
            "sizes": {
                "flash": flash_bytes(tables),
                "ram": ram_bytes(program),
                "multiplications": program.multiplications,
            },
        }
        document["digest"] = seal(document)
        source = write_c(program, self.options, notes(document))
        header = write_header(program, self.options)
        return Export(source, header, program, self.network, ProgramCertificate(document))

    def search(self, program: AnyNetwork) -> tuple[Found, Found]:
        """The largest differences found on the program's own inputs, and on any."""
        smooth = program.dequantized()

        def search(snap: Any = None) -> Found:
            return largest_difference(
                self.network,
                program.predict,
                smooth,
                self.box,
                samples=self.samples,
                snap=snap,
                random_state=self.random_state,
            )

        real = search()
        if not isinstance(program, IntegerNetwork):
            return real, real
        power = -program.input_exponent.astype(np.int32)
        grid = search(lambda x: np.ldexp(program.quantize(x).astype(np.float64), power))
        if grid.difference > real.difference and self.box.contains(grid.inputs).all():
            real = replace(grid, tried=real.tried)
        return grid, real


def stored(network: Network) -> int:
    """How many numbers the tables of a network hold: a kernel once, however often it is used."""
    shapes = [network.input_shape, *(layer.shape for layer in network.layers)]
    outs = [*shapes[1:], network.output_shape]
    total = 0
    for index, affine in enumerate(network.maps):
        total += affine.size
        for source, matrix in affine.terms.items():
            conv = geometry_of(matrix, shapes[source], outs[index])
            if conv is not None:
                total += conv.weight.size
            elif isinstance(matrix, np.ndarray):
                total += matrix.size
            else:
                total += 2 * matrix.nnz + matrix.shape[0]
    return total


def _checked(network: Any, domain: Any, bits: Any, epsilon: Any, floats: bool, parts: Any) -> Box:
    if not isinstance(network, Network):
        raise InvalidInputError(f"expected a Network, found {type(network).__name__}; use load")
    if not isinstance(domain, Domain):
        raise InvalidDomainError(
            "a program needs a bounded domain, because every range is proved over it; pass a Box, "
            "Ball or Polytope"
        )
    domain.check_dimension(network.input_size)
    if bits is not None and (bits not in WIDTHS or floats):
        what = "floats have 32 bits; leave bits out" if floats else "expected 8, 16 or 32"
        raise InvalidInputError(f"bits is {bits!r}: {what}")
    if epsilon is not None and not (np.isfinite(epsilon) and epsilon > 0):
        raise InvalidInputError(f"epsilon is {epsilon!r}, expected a number > 0")
    if not isinstance(parts, int) or parts < 1:
        raise InvalidInputError(f"parts is {parts!r}, expected a whole number >= 1")
    reach = reach_of(domain)
    return Box(reach.lo, reach.hi)


def _check_size(program: AnyNetwork, options: Options, flash: int | None, ram: int | None) -> None:
    tables, buffers = flash_bytes(tables_of(program, options.name)), ram_bytes(program)
    for what, need, there in (("tables", tables, flash), ("buffers", buffers, ram)):
        if there is not None and need > there:
            place = "flash" if what == "tables" else "RAM"
            raise InvalidInputError(
                f"the {what} need {need:,} bytes, but {options.target} is taken to have {there:,} "
                f"of {place}; use fewer bits, or say how much there is"
            )


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
