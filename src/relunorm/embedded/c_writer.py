"""The C program: tables, one function a layer, and one that runs them all.

C99 with nothing but <stdint.h>; on AVR the tables lie in flash (<avr/pgmspace.h>). No allocation,
no recursion, no shift of a negative number, no conversion that is not written down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relunorm.embedded.floats import FloatLayer, FloatNetwork
from relunorm.embedded.integers import RANGES, IntegerLayer, IntegerNetwork, narrowest, size_of
from relunorm.embedded.terms import Dense, Kernel, Listed, Term
from relunorm.errors import InvalidInputError

AnyNetwork = IntegerNetwork | FloatNetwork
AnyLayer = IntegerLayer | FloatLayer
#: Table name -> (C type, numbers), in the order of the file.
Tables = dict[str, tuple[str, NDArray[Any]]]

TARGETS = ("c99", "avr", "arm")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}\Z")
#: Words of C that `NAME` lets through.
RESERVED = re.compile(
    r"auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    r"inline|int|long|main|register|restrict|return|short|signed|sizeof|static|struct|switch|"
    r"typedef|union|unsigned|void|volatile|while"
)


@dataclass(frozen=True)
class Options:
    """How a program is written.

    Attributes:
        name: prefix of everything the file defines.
        target: c99, avr or arm.
        classes: whether to add a function that gives the class.
    """

    name: str = "net"
    target: str = "c99"
    classes: bool = False

    def __post_init__(self) -> None:
        if not NAME.match(self.name) or RESERVED.fullmatch(self.name):
            raise InvalidInputError(
                f"name {self.name!r} is no name in C; use letters, digits and underscores"
            )
        if self.target not in TARGETS:
            raise InvalidInputError(
                f"target {self.target!r} is not known; choose {', '.join(TARGETS)}"
            )


def tables_of(network: AnyNetwork, name: str) -> Tables:
    """Every table of a program, in order."""
    result: Tables = {}
    kind = network.input_type
    if not (_same(network.input_low) and _same(network.input_high)):
        result[f"{name}_low"] = (kind, network.input_low)
        result[f"{name}_high"] = (kind, network.input_high)
    for index, affine in enumerate(network.maps):
        for source, term in affine.terms.items():
            suffix = f"{index + 1}_{source}"
            if isinstance(term, Listed):
                result[f"{name}_column{suffix}"] = (_index_type(term.columns), term.column)
                result[f"{name}_end{suffix}"] = (_index_type(len(term.weight)), term.end)
            result[f"{name}_weight{suffix}"] = (affine.weight_type, term.weight.ravel())
        bias = _planes(affine, index, network)
        held = "float"
        if isinstance(network, IntegerNetwork):
            kinds = ("int8_t", "int16_t", "int32_t", "int64_t")
            held = str(narrowest(int(bias.min()), int(bias.max()), kinds))
        result[f"{name}_bias{index + 1}"] = (held, bias)
        if isinstance(network, IntegerNetwork) and index < len(network.layers):
            layer = network.layers[index]
            if layer.kind != "step" and not _same(layer.shift):
                result[f"{name}_shift{index + 1}"] = ("uint8_t", _rows(layer.shift, affine, layer))
    return result


def flash_bytes(tables: Tables) -> int:
    """Bytes of all tables."""
    return sum((4 if k == "float" else size_of(k)) * len(values) for k, values in tables.values())


def write_c(network: AnyNetwork, options: Options, notes: list[str]) -> str:
    """The program as one C file.

    Args:
        notes: lines for the comment at the top.
    """
    return _Writer(network, options).source(notes)


def write_header(network: AnyNetwork, options: Options) -> str:
    """The declarations of the program, for files that call it."""
    writer = _Writer(network, options)
    guard = f"{options.name.upper()}_H"
    body = "\n".join([*writer.macros(), "", *writer.declarations()])
    return f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n{body}\n\n#endif\n"


def ram_bytes(network: AnyNetwork) -> int:
    """Bytes of the buffers on the stack."""
    slots, _ = _slots(network)
    return sum((4 if k == "float" else size_of(k)) * n for k, n in slots)


class _Writer:
    def __init__(self, network: AnyNetwork, options: Options):
        self.network, self.options, self.name = network, options, options.name
        self.tables = tables_of(network, options.name)
        self.values = [network.input_type, *(layer.value_type for layer in network.layers)]
        sizes = [len(values) for _, values in self.tables.values()]
        self.index = "int" if max([*sizes, network.input_size, 1]) < 32768 else "int32_t"
        self.used: set[str] = set()

    def source(self, notes: list[str]) -> str:
        functions = []
        for index, affine in enumerate(self.network.maps):
            layer = self.network.layers[index] if index < len(self.network.layers) else None
            functions += self.layer(index, affine, layer)
        driver = self.driver()
        lines = ["/*", *(f" * {line}".rstrip() for line in notes), " */", ""]
        avr = self.options.target == "avr"
        lines += ["#include <stdint.h>", *(["#include <avr/pgmspace.h>"] if avr else []), ""]
        lines += self.macros()
        lines += ["", *self.declarations(), ""]
        flash = " PROGMEM" if avr else ""
        for name, (kind, values) in self.tables.items():
            lines += [f"static const {kind} {name}[{len(values)}]{flash} = {{"]
            lines += _wrapped(values, kind)
            lines += ["};", ""]
        lines += self.readers()
        lines += self.shifts()
        lines += functions
        lines += driver
        return "\n".join(lines) + "\n"

    def macros(self) -> list[str]:
        network, upper = self.network, self.name.upper()
        lines = [
            f"#define {upper}_INPUTS {network.input_size}",
            f"#define {upper}_OUTPUTS {network.output.size}",
        ]
        if isinstance(network, IntegerNetwork):
            power = network.input_exponent
            if _same(power):
                lines.append(f"/* input x stands for x / 2^{upper}_INPUT_SHIFT */")
                lines.append(f"#define {upper}_INPUT_SHIFT ({int(power[0])})")
            else:
                lines.append("/* input x[j] stands for x[j] / 2^s[j], s being */")
                text = ", ".join(map(str, power.tolist()))
                lines += [f"#define {upper}_INPUT_SHIFTS {{ \\"]
                lines += [f"{part} \\" for part in _lines(text, 88)] + ["}"]
            lines.append(f"/* output y stands for y / 2^{upper}_OUTPUT_SHIFT */")
            lines.append(f"#define {upper}_OUTPUT_SHIFT ({network.output_exponent})")
        return lines

    def declarations(self) -> list[str]:
        kind, out = self.network.input_type, self.network.output.accumulator
        lines = [
            "/* Runs the network. Inputs outside the domain are clamped to it first; returns how",
            "   many were. */",
            f"int {self.name}_run(const {kind} *x, {out} *y);",
        ]
        if self.options.classes:
            what = "the first largest output" if self.network.output.size > 1 else "y > 0"
            lines += [f"/* The class: {what}. */", f"int {self.name}_class(const {kind} *x);"]
        return lines

    def readers(self) -> list[str]:
        """Macros that read a table: from flash on AVR, plainly elsewhere."""
        lines = []
        avr = self.options.target == "avr"
        for kind in sorted(self.used):
            macro = self.reader(kind)
            if not avr:
                lines.append(f"#define {macro}(p) (*(p))")
            elif kind == "float":
                lines.append(f"#define {macro}(p) pgm_read_float(p)")
            elif kind == "int64_t":
                lines += [
                    f"static int64_t {macro}(const int64_t *p)",
                    "{",
                    "    int64_t v;",
                    "    memcpy_P(&v, p, sizeof v);",
                    "    return v;",
                    "}",
                ]
            else:
                word = {1: "byte", 2: "word", 4: "dword"}[size_of(kind)]
                lines.append(f"#define {macro}(p) (({kind})pgm_read_{word}(p))")
        return [*lines, ""] if lines else []

    def reader(self, kind: str) -> str:
        short = kind.removesuffix("_t").upper()
        return f"{self.name.upper()}_READ_{short}"

    def read(self, table: str, at: str) -> str:
        kind = self.tables[f"{self.name}_{table}"][0]
        self.used.add(kind)
        return f"{self.reader(kind)}({self.name}_{table} + {at})"

    def shifts(self) -> list[str]:
        """Division by 2^h rounded down, with no shift of a negative number."""
        if not isinstance(self.network, IntegerNetwork):
            return []
        kinds = {
            layer.affine.accumulator
            for layer in self.network.layers
            if layer.kind in ("leaky", "identity")
        }
        lines = []
        for kind in sorted(kinds):
            lines += [
                f"static {kind} {self.name}_floor_{kind}({kind} v, int h)",
                "{",
                f"    return v >= 0 ? ({kind})(v >> h) : ({kind})~(({kind})~v >> h);",
                "}",
                "",
            ]
        return lines

    def layer(self, index: int, affine: Any, layer: AnyLayer | None) -> list[str]:
        acc = affine.accumulator
        out = acc if layer is None else layer.value_type
        parameters = [f"const {self.values[s]} *v{s}" for s in affine.terms]
        kind = "no activation" if layer is None else layer.kind
        title = f"layer {index + 1}" if layer is not None else "the output"
        origin = _comment(layer.name) if layer is not None and layer.name else ""
        lines = [
            f"/* {title}{f' ({origin})' if origin else ''}: {affine.size} rows, {kind} */",
            f"static void {self.name}_layer{index + 1}({', '.join([*parameters, f'{out} *out'])})",
            "{",
        ]
        kernel = next((t for t in affine.terms.values() if isinstance(t, Kernel)), None)
        depth = 1
        if kernel is None:
            lines.append(f"    for ({self.index} i = 0; i < {affine.size}; i++) {{")
        else:
            lines.append(f"    {self.index} i = 0;")
            for axis, count in enumerate(kernel.shape_out):
                letter = "o" if axis == 0 else f"p{axis}"
                lines.append(
                    f"{'    ' * depth}for ({self.index} {letter} = 0; {letter} < {count}; "
                    f"{letter}++) {{"
                )
                depth += 1
            depth -= 1
        inside = "    " * (depth + 1)
        entry = "o" if kernel is not None and self._by_channel(index) else "i"
        lines.append(f"{inside}{acc} acc = {self.read(f'bias{index + 1}', entry)};")
        for source, term in affine.terms.items():
            lines += [inside + line for line in self.term(index, source, term, acc)]
        lines += [inside + line for line in self.activation(index, affine, layer, kernel)]
        if kernel is not None:
            lines.append(f"{inside}i++;")
        for level in range(depth, 0, -1):
            lines.append("    " * level + "}")
        return [*lines, "}", ""]

    def _by_channel(self, index: int) -> bool:
        table = self.tables[f"{self.name}_bias{index + 1}"][1]
        return len(table) < self.network.maps[index].size

    def term(self, index: int, source: int, term: Term, acc: str) -> list[str]:
        suffix = f"{index + 1}_{source}"

        def add(weight: str, value: str) -> str:
            if acc == "float":
                return f"acc += {weight} * {value};"
            return f"acc = ({acc})(acc + ({acc}){weight} * ({acc}){value});"

        if isinstance(term, Dense):
            columns = term.shape[1]
            at = f"i * {columns} + j" if columns > 1 else "i + j"
            weight = self.read(f"weight{suffix}", at)
            return [
                f"for ({self.index} j = 0; j < {columns}; j++)",
                f"    {add(weight, f'v{source}[j]')}",
            ]
        if isinstance(term, Listed):
            end = self.read(f"end{suffix}", "i")
            before = self.read(f"end{suffix}", "i - 1")
            weight = self.read(f"weight{suffix}", "j")
            column = self.read(f"column{suffix}", "j")
            return [
                f"for ({self.index} j = i > 0 ? ({self.index}){before} : 0; "
                f"j < ({self.index}){end}; j++)",
                f"    {add(weight, f'v{source}[{column}]')}",
            ]
        return self.kernel(index, source, term, add)

    def kernel(self, index: int, source: int, term: Kernel, add: Any) -> list[str]:
        """Loops over input channels and taps; taps in the padding are left out."""
        outs, per_group, *taps = term.weight.shape
        spatial = term.shape_in[1:]
        lines = [f"for ({self.index} c = 0; c < {per_group}; c++) {{"]
        channel = "c"
        if term.groups > 1:
            each = outs // term.groups
            group = f"o / {each}" if each > 1 else "o"
            channel = f"({group} * {per_group} + c)" if per_group > 1 else f"({group} + c)"
        weight, value = f"o * {per_group} + c", channel
        depth = 1
        for axis, (count, size) in enumerate(zip(taps, spatial, strict=True), start=1):
            stride, dilation = term.stride[axis - 1], term.dilation[axis - 1]
            pad = term.pads[axis - 1][0]
            position = f"p{axis}" + (f" * {stride}" if stride > 1 else "")
            position += f" + k{axis}" + (f" * {dilation}" if dilation > 1 else "")
            position += f" - {pad}" if pad else ""
            space = "    " * depth
            lines.append(f"{space}for ({self.index} k{axis} = 0; k{axis} < {count}; k{axis}++) {{")
            lines.append(f"{space}    const {self.index} r{axis} = {position};")
            if pad or self._hangs_over(term, axis - 1):
                low = f"r{axis} < 0 || " if pad else ""
                lines += [f"{space}    if ({low}r{axis} >= {size})", f"{space}        continue;"]
            depth += 1
            weight = f"({weight}) * {count} + k{axis}"
            value = f"({value}) * {size} + r{axis}"
        read = self.read(f"weight{index + 1}_{source}", weight)
        lines.append("    " * depth + add(read, f"v{source}[{value}]"))
        for level in range(depth - 1, -1, -1):
            lines.append("    " * level + "}")
        return lines

    @staticmethod
    def _hangs_over(term: Kernel, axis: int) -> bool:
        count, size = term.shape_out[axis + 1], term.shape_in[axis + 1]
        taps, before = term.weight.shape[axis + 2], term.pads[axis][0]
        last = (count - 1) * term.stride[axis] + (taps - 1) * term.dilation[axis] - before
        return last >= size

    def activation(
        self, index: int, affine: Any, layer: AnyLayer | None, kernel: Kernel | None
    ) -> list[str]:
        if layer is None:
            return ["out[i] = acc;"]
        if isinstance(layer, FloatLayer):
            return self.float_activation(layer)
        acc, out = affine.accumulator, layer.value_type
        if layer.kind == "step":
            on, at_zero = layer.levels
            return [f"out[i] = ({out})(acc > 0 ? {on} : acc == 0 ? {at_zero} : 0);"]
        lines = []
        if _same(layer.shift):
            h = int(layer.shift[0])
            shift, half = str(h), _literal((1 << h) >> 1, acc)
        else:
            table = self.tables[f"{self.name}_shift{index + 1}"][1]
            at = "o" if kernel is not None and len(table) < affine.size else "i"
            lines.append(f"const int h = {self.read(f'shift{index + 1}', at)};")
            shift, half = "h", f"((({acc})1 << h) >> 1)"
        add = "acc" if half == "0" else f"acc + {half}"
        if layer.kind == "relu":
            down = f"({add}) >> {shift}"
            return [*lines, f"out[i] = ({out})(acc <= 0 ? 0 : {down});"]
        floor = f"{self.name}_floor_{acc}"
        if layer.kind == "identity":
            return [*lines, f"out[i] = ({out}){floor}(({acc})({add}), {shift});"]
        m, k = layer.slope
        product = f"acc * {_literal(m, acc)}" + (f" + {_literal((1 << k) >> 1, acc)}" if k else "")
        return [
            *lines,
            f"acc = {floor}(({acc})({add}), {shift});",
            "if (acc < 0)",
            f"    acc = {floor}(({acc})({product}), {k});",
            f"out[i] = ({out})acc;",
        ]

    @staticmethod
    def float_activation(layer: FloatLayer) -> list[str]:
        if layer.kind == "relu":
            return ["out[i] = acc > 0.0f ? acc : 0.0f;"]
        if layer.kind == "leaky":
            return [f"out[i] = acc > 0.0f ? acc : {_float(layer.slope)} * acc;"]
        if layer.kind == "step":
            level = _float(layer.at_zero)
            return [f"out[i] = acc > 0.0f ? 1.0f : acc < 0.0f ? 0.0f : {level};"]
        return ["out[i] = acc;"]

    def driver(self) -> list[str]:
        network, name = self.network, self.name
        slots, place = _slots(network)
        kind, out = network.input_type, network.output.accumulator
        lines = [f"int {name}_run(const {kind} *x, {out} *y)", "{"]
        lines += [f"    {k} buffer{i}[{n}];" for i, (k, n) in enumerate(slots)]
        lines += ["    int clamped = 0;", ""]
        if 0 in place:
            lines += self.clamp(place[0])
        for index, affine in enumerate(network.maps):
            arguments = [f"buffer{place[s]}" for s in affine.terms]
            last = index == len(network.layers)
            arguments.append("y" if last else f"buffer{place[index + 1]}")
            lines.append(f"    {name}_layer{index + 1}({', '.join(arguments)});")
        lines += ["    return clamped;", "}"]
        if self.options.classes:
            lines += ["", *self.classes()]
        return lines

    def clamp(self, slot: int) -> list[str]:
        network = self.network
        kind = network.input_type
        below = above = True
        if f"{self.name}_low" in self.tables:
            low, high = self.read("low", "j"), self.read("high", "j")
        else:
            low = _number(network.input_low[0], kind)
            high = _number(network.input_high[0], kind)
            if kind != "float":  # no comparison that its type settles
                least, most = RANGES[kind]
                below, above = network.input_low[0] > least, network.input_high[0] < most
        lines = [
            f"    for ({self.index} j = 0; j < {network.input_size}; j++) {{",
            f"        {kind} v = x[j];",
            "",
        ]
        for wanted, end, sign in ((below, low, "<"), (above, high, ">")):
            if wanted:
                lines += [
                    f"        if (v {sign} {end}) {{",
                    f"            v = {end};",
                    "            clamped++;",
                    "        }",
                ]
        return [*lines, f"        buffer{slot}[j] = v;", "    }"]

    def classes(self) -> list[str]:
        name, network = self.name, self.network
        kind, out = network.input_type, network.output.accumulator
        lines = [f"int {name}_class(const {kind} *x)", "{", f"    {out} y[{network.output.size}];"]
        if network.output.size == 1:
            return [*lines, "", f"    (void){name}_run(x, y);", "    return y[0] > 0;", "}"]
        return [
            *lines,
            "    int best = 0;",
            "",
            f"    (void){name}_run(x, y);",
            f"    for (int i = 1; i < {network.output.size}; i++) {{",
            "        if (y[i] > y[best])",
            "            best = i;",
            "    }",
            "    return best;",
            "}",
        ]


def _slots(network: AnyNetwork) -> tuple[list[tuple[str, int]], dict[int, int]]:
    """Buffers (type, length) and which one each value lives in; a buffer is free once last read."""
    kinds = [network.input_type, *(layer.value_type for layer in network.layers)]
    sizes = [network.input_size, *(layer.affine.size for layer in network.layers)]
    last = {s: index for index, affine in enumerate(network.maps) for s in affine.terms}
    slots: list[tuple[str, int]] = []
    free: list[int] = []
    place: dict[int, int] = {}
    for value, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if value not in last:
            last[value] = value  # never read: held only while it is made
        fits = [s for s in free if slots[s][0] == kind]
        if fits:
            slot = min(fits, key=lambda s: (slots[s][1] < size, abs(slots[s][1] - size)))
            slots[slot] = (kind, max(size, slots[slot][1]))
            free.remove(slot)
        else:
            slot = len(slots)
            slots.append((kind, size))
        place[value] = slot
        # value k is made by map k - 1, so what map k - 1 read last is free for value k + 1
        free += [place[v] for v, index in last.items() if index == value - 1 and v in place]
        free = list(dict.fromkeys(free))
        free = [s for s in free if not any(place.get(v) == s and last[v] >= value for v in place)]
    return slots, place


def _planes(affine: Any, index: int, network: AnyNetwork) -> NDArray[Any]:
    """The biases: one a channel where a convolution's rows share them, else one a row."""
    shape = (
        network.layers[index].shape if index < len(network.layers) else tuple(network.output_shape)
    )
    return _shared(affine.bias, affine, shape)


def _rows(values: NDArray[Any], affine: Any, layer: AnyLayer) -> NDArray[Any]:
    return _shared(values, affine, layer.shape)


def _shared(values: NDArray[Any], affine: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    kernels = [t for t in affine.terms.values() if isinstance(t, Kernel)]
    if not kernels or len(shape) < 2 or kernels[0].shape_out != shape:
        return values
    planes = values.reshape(shape[0], -1)
    return planes[:, 0] if (planes == planes[:, :1]).all() and planes.shape[1] > 1 else values


def _index_type(most: int) -> str:
    return "uint8_t" if most < 2**8 else "uint16_t" if most < 2**16 else "uint32_t"


def _same(values: NDArray[Any]) -> bool:
    return bool((values == values[0]).all())


def _literal(value: int, kind: str) -> str:
    """An integer constant that has the type of the sum it is added to."""
    if kind == "int64_t":
        return f"INT64_C({value})"
    return f"INT32_C({value})" if kind == "int32_t" and abs(value) > 32767 else str(value)


def _number(value: Any, kind: str) -> str:
    if kind == "float":
        return _float(float(value))
    if value == -(2**31):
        return "INT32_MIN"
    return f"{int(value)}U" if kind.startswith("u") and value > 32767 else str(int(value))


def _float(value: float) -> str:
    text = f"{value:.9g}"
    return f"{text if '.' in text or 'e' in text else text + '.0'}f"


def _wrapped(values: NDArray[Any], kind: str) -> list[str]:
    if kind == "float":
        words = [_float(float(v)) for v in values]
    elif kind == "int64_t":
        words = [f"INT64_C({v})" for v in values.tolist()]
    else:
        words = [_number(v, kind) for v in values.tolist()]
    return [f"    {line}" for line in _lines(", ".join(words), 92)]


def _lines(text: str, width: int) -> list[str]:
    lines, start = [], 0
    while len(text) - start > width:
        stop = text.rfind(" ", start, start + width) + 1
        lines.append(text[start:stop].rstrip())
        start = stop
    return [*lines, text[start:]]


def _comment(text: str) -> str:
    """Text from a model, safe inside a comment."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")
