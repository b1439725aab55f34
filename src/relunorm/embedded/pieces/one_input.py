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
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.domain import Box
from relunorm.domain.reach import reach_of
from relunorm.embedded.arithmetic.integers import RANGES, IntegerInputs, IntegerProgram, size_of
from relunorm.embedded.arithmetic.scales import start_of
from relunorm.embedded.arithmetic.terms import Integers
from relunorm.embedded.c.c_file import CFile, Options, Tables, number
from relunorm.embedded.proof.cutting import Bounds, apart
from relunorm.errors import InvalidInputError
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
    def bound(self, network: Network) -> Bounds:
        """Bounds of |program - network|, or `InvalidInputError` where a sum could overflow."""

    @abstractmethod
    def borders(self) -> NDArray[np.float64]:
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

    def bound(self, network: Network) -> Bounds:
        return bound_pieces(network, self)

    def borders(self) -> NDArray[np.float64]:
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
        if made.start.shape == begin.shape and overflow_of(made) is None:
            return made
        exponent -= 1
        if exponent < -200:
            raise InvalidInputError(
                f"no power of two fits the pieces into {bits} bits; use more bits, or style layers"
            )


def _rounded(values: NDArray[np.float64], exponent: int) -> Integers:
    scaled = np.ldexp(values, exponent)
    if not np.abs(scaled).max(initial=0.0) < 2.0**60:
        return np.zeros(0, dtype=np.int64)
    return np.rint(scaled).astype(np.int64)


def overflow_of(program: Pieces) -> str | None:
    """Why a piece could leave its type; None where none can."""
    low, high = int(program.input_low[0]), int(program.input_high[0])
    least, most = RANGES[program.input_type]
    if not least <= low <= high <= most:
        return "the clamps of the input do not fit its type"
    if len(program.slope) == 0 or len(program.start) == 0:
        return "a number leaves 60 bits"
    if program.first[0] != low or (np.diff(program.first) <= 0).any() or program.first[-1] > high:
        return "the pieces do not begin at the lower clamp, or are not in order"
    least, most = RANGES[program.weight_type]
    if program.slope.min() < least or program.slope.max() > most:
        return f"a slope does not fit {program.weight_type}"
    last = np.append(program.first[1:] - 1, high)
    run = (last - program.first)[:, None]
    size = np.abs(program.slope).astype(np.float64) * run + np.abs(program.start)
    least, most = RANGES[program.accumulator]
    # the run itself, the input and a threshold are held in the accumulator too
    if size.max() >= min(most, 2**61) or max(abs(low), abs(high), high - low) > most:
        return f"a sum could leave {program.accumulator}"
    return None


def bound_pieces(network: Network, program: Pieces) -> Bounds:
    """Bounds of |program - network| for every output, over all integers and all real inputs."""
    why = overflow_of(program)
    if why is not None:
        raise InvalidInputError(why)
    high, power = int(program.input_high[0]), int(program.input_exponent[0])
    last = np.append(program.first[1:] - 1, high)
    found: list[Bounds] = []
    half = Fraction(1, 2)
    for k in range(len(program.first)):
        first, stop = int(program.first[k]), int(last[k])
        pair = [
            _apart(network, program, k, Fraction(a), Fraction(b), power)
            for a, b in ((first, stop), (first - half, stop + half))
        ]
        step = np.ldexp(np.abs(program.slope[k]) * 0.5, -program.output_exponent)
        wide = np.nextafter(pair[1] + step, np.inf)
        found.append(Bounds(pair[0], np.maximum(pair[0], wide)))
    return reduce(Bounds.worst, found)


def _apart(
    network: Network, program: Pieces, k: int, first: Fraction, last: Fraction, power: int
) -> NDArray[np.float64]:
    """|network - affine map of piece k| for inputs between two points, integers their unit."""
    unit = Fraction(2) ** -power
    low, high = float(first * unit), float(last * unit)  # dyadic and short, so exact
    scale = Fraction(2) ** -program.output_exponent
    slopes = [int(m) * scale / unit for m in program.slope[k]]
    start = int(program.first[k]) * unit
    constants = [int(c) * scale - m * start for c, m in zip(program.start[k], slopes, strict=True)]
    slope = np.array([[float(m)] for m in slopes])
    constant = np.array([float(c) for c in constants])
    return apart(network, slope, constant, reach_of(Box(np.array([low]), np.array([high]))))


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
    names = [f"{name}_{part}" for part in ("first", "start", "slope")]
    if missing := [n for n in names if n not in tables]:
        raise InvalidInputError(f"the program has no table {missing[0]}")
    first, start, slope = (tables[n] for n in names)
    outputs = int(structure["outputs"])
    if outputs != network.output_size or not (len(start) == len(slope) == len(first) * outputs):
        raise InvalidInputError("the tables of the pieces do not fit each other")
    shape = (len(first), outputs)
    numbers = numbers_from(structure, network)
    return Pieces(**numbers, first=first, start=start.reshape(shape), slope=slope.reshape(shape))
