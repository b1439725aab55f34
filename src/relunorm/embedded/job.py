"""One export: what was tried, which program was chosen, and everything its certificate says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from relunorm import __version__
from relunorm.arithmetic.floats import at_most
from relunorm.clock import Clock, Listener, Teller
from relunorm.domain import Box, Domain
from relunorm.domain.documents import domain_to_dict
from relunorm.domain.reach import reach_of
from relunorm.embedded.arithmetic.float_network import FloatNetwork, build_floats
from relunorm.embedded.arithmetic.integers import WIDTHS, IntegerNetwork
from relunorm.embedded.arithmetic.scales import build, start_of
from relunorm.embedded.arithmetic.terms import Integers, without_empty_terms
from relunorm.embedded.c.c_file import Options, flash_bytes
from relunorm.embedded.guarantees import claims, rows_of
from relunorm.embedded.lower_bound import (
    Found,
    around,
    difference_at,
    largest_difference,
    thresholds,
)
from relunorm.embedded.pieces.one_input import Piecewise, build_pieces
from relunorm.embedded.pieces.two_input_cuts import build_tree
from relunorm.embedded.program_certificate import SCHEMA, seal, sizes_of, tables_digest
from relunorm.embedded.programs import AnyProgram, change_of, outer_box, structure, tables
from relunorm.embedded.proof.cutting import Bounds, cut
from relunorm.embedded.proof.layerwise import grid_box
from relunorm.embedded.shrink import shrink
from relunorm.errors import InvalidInputError
from relunorm.forms.certificate.certificate import Certificate
from relunorm.matrix import Array
from relunorm.network import Network

#: Called with what is being done and, where known, the share that is done.
Proved = tuple[Bounds, list[Any]]


class Job:
    """One call: the network as given and shrunk, and the programs tried."""

    def __init__(
        self,
        network: Network,
        domain: Domain,
        box: Box,
        options: Options,
        exponent: Integers | None,
        on_grid: bool,
        parts: int,
        samples: int,
        random_state: int,
        progress: Listener | None,
    ):
        self.network, self.domain, self.box, self.options = network, domain, box, options
        self.exponent, self.on_grid = exponent, on_grid
        self.parts, self.random_state = parts, random_state
        self.samples, self.tell = samples, Teller(progress, Clock())
        self.smaller = without_empty_terms(network)
        self.shrunk: dict[str, Any] | None = None
        self.moved = np.zeros(network.output_size)
        self.best: tuple[float, int, str, float] | None = None
        self.grids: dict[int, Integers] = {}

    def inputs(self, width: int) -> Integers:
        """The exponents of the inputs: as given, or chosen once for the network as it came."""
        if self.exponent is not None:
            return self.exponent
        if width not in self.grids:
            whole = without_empty_terms(self.network)
            bits = [width] * (len(whole.layers) + 1)
            made = build(whole, self.box, weight_bits=bits, value_bits=width)[0]
            self.grids[width] = made.input_exponent
        return self.grids[width]

    def show(self, what: str, share: float | None = None) -> None:
        if share is None:
            self.tell(what)
        else:
            self.tell(what, share, 1.0)

    def shrink(self, widths: Sequence[int], floats: bool, layers: bool) -> None:
        """Remove what does nothing over the domain and the inputs' grids, if that saves tables."""
        self.show("shrinking")
        grids = [self.box]
        for width in () if floats else widths:
            with suppress(InvalidInputError):  # said where the program is built
                power = self.inputs(width) if layers else self.exponent
                grids.append(grid_box(start_of(self.network, self.box, width, power)))
        if floats:
            ends = (self.box.lo, self.box.hi)
            grids.append(Box(*(side.astype(np.float32).astype(np.float64) for side in ends)))
        outer = Box(
            np.minimum.reduce([grid.lo for grid in grids]),
            np.maximum.reduce([grid.hi for grid in grids]),
        )
        found = shrink(self.network, outer)
        if found is not None:
            self.smaller, self.shrunk = found
            self.moved = np.array(Certificate(self.shrunk["certificate"]).bounds)

    def integers(
        self, widths: Sequence[int], epsilon: float | None
    ) -> tuple[IntegerNetwork, Proved]:
        """The integer program of the first width that meets epsilon, then as small as can be."""
        maps = len(self.smaller.layers) + 1
        program, found = self.first(
            widths,
            epsilon,
            lambda width: self.build([width] * maps, width),
            lambda made: self.prove(made, epsilon if len(widths) > 1 else None),
        )
        if epsilon is None or len(widths) == 1:
            return program, found
        if program.maps[0].weight_type == "int16_t" and self.meets(found, epsilon):
            program = self.mixed(program, epsilon)
        return program, self.prove(program, None)

    def first(
        self,
        widths: Sequence[int],
        epsilon: float | None,
        build: Callable[[int], Any],
        prove: Callable[[Any], Proved],
    ) -> tuple[Any, Proved]:
        """The program of the first width that meets epsilon, or else of the last one."""
        result = None
        for width in widths:
            try:
                program = build(width)
            except InvalidInputError:
                if result is None and width == widths[-1]:
                    raise
                continue
            result = program, prove(program)
            if epsilon is not None and self.meets(result[1], epsilon):
                break
        assert result is not None
        return result

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
            input_exponent=self.inputs(value_bits),
        )[0]

    def pieces(self, widths: Sequence[int], epsilon: float | None) -> tuple[Piecewise, Proved]:
        """The pieces of a network with one or two inputs, in the first width that meets epsilon."""
        makers = {1: build_pieces, 2: build_tree}
        if self.network.input_size not in makers:
            raise InvalidInputError(
                f"style pieces is for networks with one or two inputs, and this one has "
                f"{self.network.input_size}, whose pieces would be too many for a table; use style "
                "layers"
            )
        make = makers[self.network.input_size]

        def prove(program: Piecewise) -> Proved:
            self.show("proving")
            found = program.bound(self.smaller)
            self.note(program, found, program.weight_type)
            return found, []

        return self.first(
            widths, epsilon, lambda width: make(self.smaller, self.box, width, self.exponent), prove
        )

    def floats(self) -> tuple[AnyProgram, Proved]:
        """The program in single precision."""
        program = build_floats(self.smaller, self.box)
        return program, self.prove(program, None)

    def prove(self, program: IntegerNetwork | FloatNetwork, goal: float | None) -> Proved:
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
            on_grid=self.on_grid,
            progress=lambda done, parts: self.show("proving", done / parts),
        )
        self.note(program, found, program.maps[0].weight_type)
        return found, cuts

    def note(self, program: AnyProgram, found: Bounds, kind: str) -> None:
        """Remember the best bound so far and what it costs."""
        size = flash_bytes(tables(program, self.options.name))
        largest = self.largest(found)
        if self.best is None or largest < self.best[0]:
            grid = float((found.on_grid[: len(self.moved)] + self.moved).max())
            self.best = (largest, size, kind, grid)

    def largest(self, found: Bounds) -> float:
        """The bound over all outputs, shrinking included."""
        side = found.on_grid if self.on_grid else found.of_floats
        return float((side[: len(self.moved)] + self.moved).max())

    def meets(self, found: Proved, epsilon: float) -> bool:
        """Whether the bound is at most epsilon, with room for what writing it down adds."""
        return self.largest(found[0]) * (1 + 1e-6) <= epsilon

    def refuse(self, epsilon: float, bits: int | None, widen: bool) -> None:
        """Raise, and say what can be proved instead and what it costs."""
        if widen and bits is not None and bits < 32:
            wider = [w for w in WIDTHS if w > bits]
            for width in wider:
                program = self.build([width] * (len(self.smaller.layers) + 1), width)
                if self.meets(self.prove(program, epsilon), epsilon):
                    size = flash_bytes(tables(program, self.options.name))
                    raise InvalidInputError(
                        f"epsilon {epsilon:g} is not met with {bits} bits; {width} bits meet it, "
                        f"with {size:,} bytes of tables"
                    )
        assert self.best is not None
        largest, size, kind, grid = self.best
        raise InvalidInputError(
            f"epsilon {epsilon:g} is not met by any width; the best that can be proved is "
            f"{at_most(largest, 3)}, with weights of type {kind} and {size:,} bytes of tables"
            + (
                f"; rounding the inputs is most of it, and for inputs that are integers to begin "
                f"with {at_most(grid, 3)} is proved: say so with integer inputs"
                if not self.on_grid and grid * (1 + 1e-6) <= epsilon
                else ""
            )
        )

    def document(self, program: AnyProgram, found: Bounds, cuts: list[Any]) -> dict[str, Any]:
        """Search for the largest difference, then write everything down."""
        self.show("searching")
        change, classes = None, self.options.classes
        if not isinstance(program, Piecewise):
            change = change_of(self.smaller, program)
        rows = rows_of(self.smaller.output_size, classes and change is not None)
        outer = outer_box(self.box, program)
        grid, real = self.search(program)
        held = tables(program, self.options.name)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "version": __version__,
            "network": self.network.digest,
            "domain": domain_to_dict(reach_of(self.domain)),
            "options": {**dataclasses.asdict(self.options), "labels": list(self.options.labels)},
            "shrunk": self.shrunk,
            "program": structure(program),
            "tables": tables_digest({name: values for name, (_, values) in held.items()}),
            "cuts": cuts,
            **claims(self.smaller, change, outer, rows, found, self.moved, classes),
            "found": self.witnessed(program, grid, real),
            "search": {"tried": grid.tried + real.tried, "random_state": self.random_state},
            "sizes": sizes_of(program, self.options.name),
        }
        return {**document, "digest": seal(document)}

    def search(self, program: AnyProgram) -> tuple[Found, Found]:
        """The largest differences found on the program's own inputs, and on any."""
        smooth = self.smaller if isinstance(program, Piecewise) else program.dequantized()

        borders = self.borders(program)

        def search(snap: Any = None) -> Found:
            return largest_difference(
                self.network,
                program.predict,
                smooth,
                self.box,
                samples=self.samples,
                borders=borders,
                snap=snap,
                random_state=self.random_state,
            )

        real = search()
        if isinstance(program, FloatNetwork):
            return real, real
        power = -program.input_exponent.astype(np.int32)
        grid = search(lambda x: np.ldexp(program.quantize(x).astype(np.float64), power))
        if grid.difference > real.difference and self.box.contains(grid.inputs).all():
            real = replace(grid, tried=real.tried)
        return grid, real

    def borders(self, program: AnyProgram) -> Array | None:
        """Points between affine pieces, where they are known."""
        points = []
        if self.network.input_size == 1 and self.box.hi[0] > self.box.lo[0]:
            from relunorm.regions.lines import along

            points.append(along(self.network, self.box.lo, self.box.hi).points())
        if isinstance(program, Piecewise):
            points.append(program.borders())
        if any(layer.activation.kind == "step" for layer in self.network.layers):
            points.append(thresholds(self.network, self.box, self.random_state))
        if not points:
            return None
        found = np.vstack(points)
        if isinstance(program, FloatNetwork) or self.network.input_size > 2:
            return found
        return around(found, program.input_exponent)

    def witnessed(self, program: AnyProgram, grid: Found, real: Found) -> dict[str, Any]:
        """What was found, evaluated exactly, and where: `verify` evaluates it again."""
        integers = None
        on_grid = of_floats = difference_at(self.network, program, real.inputs)
        if not isinstance(program, FloatNetwork):
            integers = program.quantize(grid.inputs).ravel().tolist()
            on_grid = difference_at(self.network, program, grid.inputs)
        return {
            "on_grid": on_grid,
            "of_floats": of_floats,
            "inputs": real.inputs.tolist(),
            "integers": integers,
        }
