"""`--style pieces`: a network of one input as its affine pieces, found by bisection.

Between two kinks the network is affine. A table holds the first integer input of every piece, the
output there and its slope,

    y = start_k + slope_k (q - first_k),       first_k <= q < first_(k+1),

so that one evaluation costs a few comparisons and one product an output. Inputs are integers, so a
piece may begin at the first integer after a kink and is exact there.

The bound replays without a solver: over the real numbers that round to a piece, the network minus
its affine map is bounded by backward linear bounds, and hardly any unit changes sign there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain import Box
from relunorm.domain.reach import Reach, reach_of
from relunorm.embedded.arithmetic.integers import RANGES, IntegerInputs, IntegerProgram, size_of
from relunorm.embedded.arithmetic.scales import start_of
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.embedded.c.c_file import CFile, Options, Tables, number, table_of
from relunorm.embedded.proof.cutting import Bounds, apart
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array
from relunorm.network import Network

#: What the structure of a program holds of its inputs, besides their type.
_INPUTS = ("input_exponent", "input_low", "input_high")


class Piecewise(IntegerProgram):
    """A program that looks its affine piece up: what programs of one and two inputs share.

    Attributes:
        output_exponent: an output y stands for y * 2^-this.
    """

    if TYPE_CHECKING:  # fields of the programs, each in its own place among the others

        @property
        def start(self) -> Integers: ...

        @property
        def slope(self) -> Integers: ...

        @property
        def weight_type(self) -> str: ...

        @property
        def accumulator(self) -> str: ...

    @property
    def outputs(self) -> int:
        """How many."""
        return self.start.shape[1]

    @property
    def output_type(self) -> str:
        """C type of the outputs."""
        return self.accumulator

    @property
    @abstractmethod
    def ram(self) -> int:
        """Bytes of the variables on the stack."""

    @abstractmethod
    def tables(self, name: str) -> Tables:
        """Every table of the program, in order."""

    @abstractmethod
    def file(self, options: Options) -> CFile:
        """The C file, ready to be written."""

    def structure(self) -> dict[str, Any]:
        """Everything but the tables, JSON-safe."""
        return {
            "arithmetic": "pieces",
            **{key: getattr(self, key).tolist() for key in _INPUTS},
            "input_type": self.input_type,
            "outputs": self.outputs,
            "output_exponent": self.output_exponent,
            "weight_type": self.weight_type,
            "accumulator": self.accumulator,
        }

    @abstractmethod
    def overflow(self) -> str | None:
        """Why a number could leave its type; None where none can."""

    @abstractmethod
    def cells(self, *, wide: bool) -> Iterator[tuple[int, Reach]]:
        """Every piece that inputs can end in, with all of these inputs.

        Args:
            wide: all real inputs that round to integers of the piece, and not these alone.
        """

    @abstractmethod
    def constants(self, piece: int) -> list[int]:
        """What the map of a piece gives where all inputs are 0."""

    def bound(self, network: Network) -> Bounds:
        """Bounds of |program - network| for every output, over all integers and all real inputs.

        Raises:
            InvalidInputError: a sum could overflow.
        """
        why = self.overflow()
        if why is not None:
            raise InvalidInputError(why)
        outputs, power, sides = self.outputs, self.output_exponent, []
        for wide in (False, True):
            worst = np.zeros(outputs)
            for piece, reach in self.cells(wide=wide):
                steps = self.slope[piece].reshape(outputs, -1).astype(np.float64)
                slope = np.ldexp(steps, self.input_exponent.astype(np.int32) - power)
                constant = np.ldexp(np.array(self.constants(piece), dtype=np.float64), -power)
                found = apart(network, slope, constant, reach)
                if wide:  # rounding an input moves it by half a step
                    moved = np.ldexp(0.5 * np.abs(steps).sum(axis=1), -power)
                    found = np.nextafter(found + moved, np.inf)
                worst = np.maximum(worst, found)
            sides.append(worst)
        return Bounds(sides[0], np.maximum(*sides))

    @abstractmethod
    def borders(self) -> Array:
        """Points between the pieces, where integers stand next to each other that differ most."""


@dataclass(frozen=True, eq=False, repr=False)
class Pieces(Piecewise):
    """The pieces of a network with one input, in integers.

    Attributes:
        first: the first integer of every piece, rising; ``first[0]`` is the lower clamp.
    """

    first: Integers
    start: Integers
    slope: Integers
    output_exponent: int
    weight_type: str
    accumulator: str

    @property
    def multiplications(self) -> int:
        """Products in one evaluation."""
        return self.start.shape[1]

    def __call__(self, inputs: ArrayLike) -> Integers:
        """Integer inputs to integer outputs."""
        batch = np.asarray(inputs)
        single = batch.ndim == 1
        q = np.clip(batch.reshape(-1), self.input_low[0], self.input_high[0])
        piece = np.searchsorted(self.first, q, side="right") - 1
        run = (q - self.first[piece])[:, None]
        result = self.start[piece] + self.slope[piece] * run
        return result[0] if single else result

    @property
    def ram(self) -> int:
        return size_of(self.input_type) + size_of(self.accumulator)

    def tables(self, name: str) -> Tables:
        return {
            f"{name}_first": (self.input_type, self.first),
            f"{name}_start": (self.accumulator, self.start.ravel()),
            f"{name}_slope": (self.weight_type, self.slope.ravel()),
        }

    def file(self, options: Options) -> CFile:
        return PiecesFile(options, self, self.outputs, self.tables(options.name))

    def overflow(self) -> str | None:
        low, high = int(self.input_low[0]), int(self.input_high[0])
        least, most = RANGES[self.input_type]
        if not least <= low <= high <= most:
            return "the clamps of the input do not fit its type"
        if len(self.slope) == 0 or len(self.start) == 0:
            return "a number leaves 60 bits"
        if self.first[0] != low or (np.diff(self.first) <= 0).any() or self.first[-1] > high:
            return "the pieces do not begin at the lower clamp, or are not in order"
        least, most = RANGES[self.weight_type]
        if self.slope.min() < least or self.slope.max() > most:
            return f"a slope does not fit {self.weight_type}"
        run = (self.last - self.first)[:, None]
        size = np.abs(self.slope).astype(np.float64) * run + np.abs(self.start)
        least, most = RANGES[self.accumulator]
        # the run itself, the input and a threshold are held in the accumulator too
        if size.max() >= min(most, 2**61) or max(abs(low), abs(high), high - low) > most:
            return f"a sum could leave {self.accumulator}"
        return None

    @property
    def last(self) -> Integers:
        """The last integer of every piece."""
        return np.append(self.first[1:] - 1, self.input_high)

    def cells(self, *, wide: bool) -> Iterator[tuple[int, Reach]]:
        half, power = 0.5 * wide, -int(self.input_exponent[0])
        low, high = np.ldexp(self.first - half, power), np.ldexp(self.last + half, power)
        for k in range(len(low)):
            yield k, reach_of(Box(low[k : k + 1], high[k : k + 1]))

    def constants(self, piece: int) -> list[int]:
        first, pairs = (
            int(self.first[piece]),
            zip(self.start[piece], self.slope[piece], strict=True),
        )
        return [int(c) - int(m) * first for c, m in pairs]

    def borders(self) -> Array:
        """The last and the first number of neighbouring pieces, and the ends."""
        ends = np.concatenate([self.first, self.first - 1, self.input_high])
        return np.ldexp(ends.astype(np.float64), -int(self.input_exponent[0]))[:, None]

    def __repr__(self) -> str:
        return f"Pieces({len(self.first)} pieces, slopes {self.weight_type})"


def build_pieces(network: Network, box: Box, bits: int, input_exponent: Integers | None) -> Pieces:
    """The pieces of a network with one input, slopes of so many bits."""
    from relunorm.regions.lines import along

    inputs = start_of(network, box, bits, input_exponent)
    low, high, power = (
        int(inputs.input_low[0]),
        int(inputs.input_high[0]),
        int(inputs.input_exponent[0]),
    )
    first = np.array([low], dtype=np.int64)
    if high > low:
        ends = np.ldexp(np.array([[float(low)], [float(high)]]), -power)
        kinks = np.ldexp(along(network, *ends).points()[1:-1, 0], power)
        first = np.unique(np.clip(np.concatenate([[low], np.ceil(kinks)]), low, high))
        first = first.astype(np.int64)
    last = np.append(first[1:] - 1, high)
    begin = network(np.ldexp(first.astype(np.float64), -power)[:, None])
    end = network(np.ldexp(last.astype(np.float64), -power)[:, None])
    run = np.maximum(last - first, 1)[:, None]
    slope = (end - begin) / run  # per step of the input
    accumulator = "int64_t" if bits > 16 else "int32_t"
    exponent = 200
    while True:
        parts = {
            "first": first,
            "start": _rounded(begin, exponent),
            "slope": _rounded(slope, exponent),
            "output_exponent": exponent,
            "weight_type": f"int{bits}_t",
            "accumulator": accumulator,
        }
        made = Pieces(**vars(inputs), **parts)
        if made.start.shape == begin.shape and made.overflow() is None:
            return made
        exponent -= 1
        if exponent < -200:
            raise InvalidInputError(
                f"no power of two fits the pieces into {bits} bits; use more bits, or style layers"
            )


def _rounded(values: Array, exponent: int) -> Integers:
    scaled = np.ldexp(values, exponent)
    if not np.abs(scaled).max(initial=0.0) < 2.0**60:
        return np.zeros(0, dtype=np.int64)
    return np.rint(scaled).astype(np.int64)


class PiecesFile(CFile):
    """The program that looks its piece up."""

    def driver(self) -> list[str]:
        """Clamp, bisect, one product an output."""
        (kind, acc), outputs, count = self.kinds, self.outputs, len(self.program.first)
        at = "low" if outputs == 1 else f"low * {outputs} + i"
        last = number(count, "int16_t")
        return [
            f"int {self.name}_run(const {kind} *x, {acc} *y)",
            "{",
            f"    {kind} q[1];",
            f"    {acc} run;",
            f"    {self.index} low = 0;",
            f"    {self.index} high = {last};",
            "    int clamped = 0;",
            "",
            *self.clamp("q"),
            "    while (high - low > 1) {",
            f"        const {self.index} middle = low + (high - low) / 2;",
            f"        if (q[0] >= {self.read('first', 'middle')})",
            "            low = middle;",
            "        else",
            "            high = middle;",
            "    }",
            f"    run = ({acc})(({acc})q[0] - ({acc}){self.read('first', 'low')});",
            f"    for (int i = 0; i < {outputs}; i++)",
            f"        y[i] = ({acc})({self.read('start', at)} + "
            f"({acc}){self.read('slope', at)} * run);",
            "    return clamped;",
            "}",
        ]


def numbers_from(structure: dict[str, Any], network: Network) -> dict[str, Any]:
    """What `Piecewise.structure` wrote of inputs and numbers, as arguments of a program."""
    exponent, low, high = (np.array(structure[key], dtype=np.int64) for key in _INPUTS)
    fits = exponent.shape == low.shape == high.shape == (network.input_size,)
    if not fits or np.abs(exponent).max() > 400:
        raise InvalidInputError("the inputs of the pieces do not fit the network's")
    if abs(int(structure["output_exponent"])) > 400:
        raise InvalidInputError("an exponent of the pieces is out of range")
    kind = str(structure["input_type"])
    inputs = IntegerInputs(exponent, low, high, kind, network.input_shape, network.output_shape)
    kinds = {key: str(structure[key]) for key in ("weight_type", "accumulator")}
    return {**vars(inputs), "output_exponent": int(structure["output_exponent"]), **kinds}


def pieces_from(
    structure: dict[str, Any], tables: dict[str, NDArray[Any]], name: str, network: Network
) -> Pieces:
    """The program with this structure and these tables."""
    parts = ("first", "start", "slope")
    first, start, slope = (table_of(tables, f"{name}_{part}") for part in parts)
    outputs = int(structure["outputs"])
    if outputs != network.output_size or not (len(start) == len(slope) == len(first) * outputs):
        raise InvalidInputError("the tables of the pieces do not fit each other")
    shape = (len(first), outputs)
    numbers = numbers_from(structure, network)
    return Pieces(**numbers, first=first, start=start.reshape(shape), slope=slope.reshape(shape))
