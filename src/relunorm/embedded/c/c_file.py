"""What every exported C file shares: its frame, its tables, its clamps and its numbers.

C99 with nothing but <stdint.h>; on AVR the tables lie in flash (<avr/pgmspace.h>). No allocation,
no recursion, no shift of a negative number, no conversion that is not written down.
"""

from __future__ import annotations

import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relunorm.embedded.arithmetic.integers import RANGES, size_of
from relunorm.errors import InvalidInputError

#: Table name -> (C type, numbers), in the order of the file.
Tables = dict[str, tuple[str, NDArray[Any]]]


def _plainly(macro: str, kind: str) -> list[str]:
    """A macro that reads a number where tables lie in memory like everything else."""
    return [f"#define {macro}(p) (*(p))"]


def _from_flash(macro: str, kind: str) -> list[str]:
    """A macro, or a function, that reads a number from AVR's flash."""
    if kind == "float":
        return [f"#define {macro}(p) pgm_read_float(p)"]
    if kind == "int64_t":
        return [
            f"static int64_t {macro}(const int64_t *p)",
            "{",
            "    int64_t v;",
            "    memcpy_P(&v, p, sizeof v);",
            "    return v;",
            "}",
        ]
    word = {1: "byte", 2: "word", 4: "dword"}[size_of(kind)]
    return [f"#define {macro}(p) (({kind})pgm_read_{word}(p))"]


@dataclass(frozen=True)
class Target:
    """What a program is written for.

    Attributes:
        flash, ram: bytes of its smallest common board, if any.
        include: a header besides <stdint.h>.
        attribute: what is written behind a table.
        read: from a name and a C type the lines that define how a number of a table is read.
    """

    flash: int | None = None
    ram: int | None = None
    include: str = ""
    attribute: str = ""
    read: Callable[[str, str], list[str]] = _plainly


TARGETS = {
    "c99": Target(),
    "avr": Target(32_256, 2_048, "avr/pgmspace.h", "PROGMEM", _from_flash),  # an ATmega328P
    "arm": Target(),
}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}\Z")
#: Words of C that `NAME` lets through.
RESERVED = re.compile(
    r"auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    r"inline|int|long|main|register|restrict|return|short|signed|sizeof|static|struct|switch|"
    r"typedef|union|unsigned|void|volatile|while"
)


@dataclass(frozen=True)
class Options:
    """How a program is written."""

    name: str = "net"
    target: str = "c99"
    classes: bool = False
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        if not isinstance(self.name, str):
            raise InvalidInputError(f"name is {self.name!r}, expected text")
        if RESERVED.fullmatch(self.name):
            raise InvalidInputError(
                f"name {self.name!r} is a word of C itself; choose another, such as {self.name}_net"
            )
        if not NAME.match(self.name):
            raise InvalidInputError(
                f"name {self.name!r} is no name in C; use letters, digits and underscores, at most "
                "41 and a letter first"
            )
        if self.target not in TARGETS:
            raise InvalidInputError(
                f"target {self.target!r} is not known; choose {', '.join(TARGETS)}"
            )


class CFile(ABC):
    """A program being written: one file with tables, functions and one that runs them."""

    def __init__(self, options: Options, program: Any, outputs: int, tables: Tables):
        self.options, self.name, self.tables, self.program = options, options.name, tables, program
        self.low, self.high, self.outputs = program.input_low, program.input_high, outputs
        self.kinds: tuple[str, str] = program.input_type, program.output_type
        self.scales: tuple[NDArray[Any], int] | None = None
        if program.input_type != "float":
            self.scales = program.input_exponent, program.output_exponent
        sizes = [len(values) for _, values in tables.values()]
        self.index = "int" if max([*sizes, len(self.low), 1]) < 32768 else "int32_t"
        self.used: set[str] = set()

    def functions(self) -> list[str]:
        """What `driver` calls, if anything."""
        return []

    @abstractmethod
    def driver(self) -> list[str]:
        """The function that runs the program."""

    def header(self) -> str:
        """The declarations, for files that call the program."""
        guard = f"{self.name.upper()}_H"
        body = "\n".join([*self.macros(), "", *self.declarations()])
        return f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n{body}\n\n#endif\n"

    def source(self, notes: list[str]) -> str:
        """The whole file; ``notes`` are the lines of its first comment."""
        functions, driver = self.functions(), self.driver()
        fold = textwrap.TextWrapper(94)
        told = []
        for line in notes:
            fold.subsequent_indent = "  " if line.startswith("- ") else ""
            told += fold.wrap(line) or [""]
        lines = ["/*", *(f" * {line}".rstrip() for line in told), " */", ""]
        target = TARGETS[self.options.target]
        headers = ["stdint.h", target.include] if target.include else ["stdint.h"]
        lines += [*(f"#include <{header}>" for header in headers), ""]
        lines += self.macros()
        lines += ["", *self.declarations(), ""]
        behind = f" {target.attribute}" if target.attribute else ""
        for name, (kind, values) in self.tables.items():
            lines += [f"static const {kind} {name}[{len(values)}]{behind} = {{"]
            lines += wrapped(values, kind)
            lines += ["};", ""]
        lines += self.readers()
        lines += functions
        lines += driver
        if self.options.classes:
            lines += ["", *self.classes()]
        return "\n".join(lines) + "\n"

    def macros(self) -> list[str]:
        """Sizes and scales, for whoever calls the program."""
        upper = self.name.upper()
        lines = [
            f"#define {upper}_INPUTS {len(self.low)}",
            f"#define {upper}_OUTPUTS {self.outputs}",
        ]
        if self.scales is not None:
            power = self.scales[0]
            if is_constant(power):
                lines.append(f"/* input x stands for x / 2^{upper}_INPUT_SHIFT */")
                lines.append(f"#define {upper}_INPUT_SHIFT ({int(power[0])})")
            else:
                lines.append("/* input x[j] stands for x[j] / 2^s[j], s being */")
                text = ", ".join(map(str, power.tolist()))
                lines += [f"#define {upper}_INPUT_SHIFTS {{ \\"]
                lines += [f"{part} \\" for part in _lines(text, 88)] + ["}"]
            lines.append(f"/* output y stands for y / 2^{upper}_OUTPUT_SHIFT */")
            lines.append(f"#define {upper}_OUTPUT_SHIFT ({self.scales[1]})")
        return lines

    def declarations(self) -> list[str]:
        """Prototypes."""
        kind, out = self.kinds
        lines = [
            "/* Runs the network. Inputs outside the domain are clamped to it first; returns how",
            "   many were. */",
            f"int {self.name}_run(const {kind} *x, {out} *y);",
        ]
        if self.options.classes:
            what = "the first largest output" if self.outputs > 1 else "y > 0"
            names = enumerate(map(comment_text, self.options.labels))
            text = ", ".join(f"{k} {label}" for k, label in names if label != str(k))
            told = _lines(f"The class: {what}{f' ({text})' if text else ''}. */", 92)
            lines += [("/* ", "   ")[k > 0] + line for k, line in enumerate(told)]
            lines.append(f"int {self.name}_class(const {kind} *x);")
        return lines

    def readers(self) -> list[str]:
        """Macros that read a table."""
        read = TARGETS[self.options.target].read
        lines = [line for kind in sorted(self.used) for line in read(self.reader(kind), kind)]
        return [*lines, ""] if lines else []

    def reader(self, kind: str) -> str:
        """The macro that reads one type."""
        short = kind.removesuffix("_t").upper()
        return f"{self.name.upper()}_READ_{short}"

    def read(self, table: str, at: str) -> str:
        """An entry of a table."""
        kind = self.tables[f"{self.name}_{table}"][0]
        self.used.add(kind)
        return f"{self.reader(kind)}({self.name}_{table} + {at})"

    def clamp(self, into: str | None) -> list[str]:
        """Copy the inputs into a buffer, those outside the domain clamped and counted.

        A constant network reads none: they are only counted.
        """
        kind = self.kinds[0]
        below = above = True
        if f"{self.name}_low" in self.tables:
            low, high = self.read("low", "j"), self.read("high", "j")
        else:
            low = number(self.low[0], kind)
            high = number(self.high[0], kind)
            if kind != "float":  # no comparison that its type settles
                least, most = RANGES[kind]
                below, above = self.low[0] > least, self.high[0] < most
        if into is None and not (below or above):
            return ["    (void)x;"]
        lines = [f"    for ({self.index} j = 0; j < {len(self.low)}; j++) {{"]
        if into is None:
            ends = ((below, self._below("x[j]", low)), (above, f"x[j] > {high}"))
            outside = [text for wanted, text in ends if wanted]
            lines += [f"        if ({' || '.join(outside)})", "            clamped++;"]
            return [*lines, "    }"]
        lines += [f"        {kind} v = x[j];", ""]
        for wanted, end, test in (
            (below, low, self._below("v", low)),
            (above, high, f"v > {high}"),
        ):
            if wanted:
                lines += [
                    f"        if ({test}) {{",
                    f"            v = {end};",
                    "            clamped++;",
                    "        }",
                ]
        return [*lines, f"        {into}[j] = v;", "    }"]

    def _below(self, value: str, low: str) -> str:
        """Whether an input is below its range; NaN, which compares with nothing, is too."""
        return f"!({value} >= {low})" if self.kinds[0] == "float" else f"{value} < {low}"

    def classes(self) -> list[str]:
        """The function that gives the class."""
        name, (kind, out) = self.name, self.kinds
        lines = [f"int {name}_class(const {kind} *x)", "{", f"    {out} y[{self.outputs}];"]
        if self.outputs == 1:
            return [*lines, "", f"    (void){name}_run(x, y);", "    return y[0] > 0;", "}"]
        return [
            *lines,
            "    int best = 0;",
            "",
            f"    (void){name}_run(x, y);",
            f"    for (int i = 1; i < {self.outputs}; i++) {{",
            "        if (y[i] > y[best])",
            "            best = i;",
            "    }",
            "    return best;",
            "}",
        ]


def table_of(tables: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    """A table that was read back from a program."""
    if name not in tables:
        raise InvalidInputError(f"the program has no table {name}")
    return tables[name]


def flash_bytes(tables: Tables) -> int:
    """Bytes of all tables."""
    return sum((4 if k == "float" else size_of(k)) * len(values) for k, values in tables.values())


def index_type(most: int) -> str:
    """The type of numbers up to this one."""
    return "uint8_t" if most < 2**8 else "uint16_t" if most < 2**16 else "uint32_t"


def is_constant(values: NDArray[Any]) -> bool:
    """Whether all entries are the same."""
    return bool((values == values[0]).all())


def literal(value: int, kind: str) -> str:
    """An integer constant that has the type of the sum it is added to."""
    if kind == "int64_t":
        return f"INT64_C({value})"
    return f"INT32_C({value})" if kind == "int32_t" and abs(value) > 32767 else str(value)


def number(value: Any, kind: str) -> str:
    """A constant of a type."""
    if kind == "float":
        return float_literal(float(value))
    if value == -(2**31):
        return "INT32_MIN"
    return f"{int(value)}U" if kind.startswith("u") and value > 32767 else str(int(value))


def float_literal(value: float) -> str:
    """A constant in single precision; nine digits give every one back."""
    text = f"{value:.9g}"
    return f"{text if '.' in text or 'e' in text else text + '.0'}f"


def wrapped(values: NDArray[Any], kind: str) -> list[str]:
    """The numbers of a table, a few lines."""
    if kind == "float":
        words = [float_literal(float(v)) for v in values]
    elif kind == "int64_t":
        words = [f"INT64_C({v})" for v in values.tolist()]
    else:
        words = [number(v, kind) for v in values.tolist()]
    return [f"    {line}" for line in _lines(", ".join(words), 92)]


def _lines(text: str, width: int) -> list[str]:
    lines, start = [], 0
    while len(text) - start > width:
        stop = text.rfind(" ", start, start + width) + 1 or start + width
        lines.append(text[start:stop].rstrip())
        start = stop
    return [*lines, text[start:]]


def comment_text(text: str) -> str:
    """Text from a model, safe inside a comment."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")
