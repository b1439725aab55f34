"""The C program of a network: one function a layer, and one that runs them all."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from relunorm.embedded.arithmetic.float_network import FloatLayer, FloatNetwork
from relunorm.embedded.arithmetic.integers import IntegerLayer, IntegerNetwork, narrowest, size_of
from relunorm.embedded.arithmetic.terms import Dense, Kernel, Listed, Term
from relunorm.embedded.c.c_file import (
    CFile,
    Options,
    Tables,
    comment_text,
    float_literal,
    index_type,
    is_constant,
    literal,
)

AnyNetwork = IntegerNetwork | FloatNetwork
AnyLayer = IntegerLayer | FloatLayer


def tables_of(network: AnyNetwork, name: str) -> Tables:
    """Every table of a program, in order."""
    result: Tables = {}
    kind = network.input_type
    shapes = [*(layer.shape for layer in network.layers), tuple(network.output_shape)]
    if not (is_constant(network.input_low) and is_constant(network.input_high)):
        result[f"{name}_low"] = (kind, network.input_low)
        result[f"{name}_high"] = (kind, network.input_high)
    for index, affine in enumerate(network.maps):
        for source, term in affine.terms.items():
            suffix = f"{index + 1}_{source}"
            if isinstance(term, Listed):
                result[f"{name}_column{suffix}"] = (index_type(term.columns), term.column)
                result[f"{name}_end{suffix}"] = (index_type(len(term.weight)), term.end)
            result[f"{name}_weight{suffix}"] = (affine.weight_type, term.weight.ravel())
        bias = _shared(affine.bias, affine, shapes[index])
        held = "float"
        if isinstance(network, IntegerNetwork):
            kinds = ("int8_t", "int16_t", "int32_t", "int64_t")
            held = str(narrowest(int(bias.min()), int(bias.max()), kinds))
        result[f"{name}_bias{index + 1}"] = (held, bias)
        if isinstance(network, IntegerNetwork) and index < len(network.layers):
            layer = network.layers[index]
            if layer.kind != "step" and not is_constant(layer.shift):
                result[f"{name}_shift{index + 1}"] = (
                    "uint8_t",
                    _shared(layer.shift, affine, layer.shape),
                )
    return result


def ram_of_layers(network: AnyNetwork) -> int:
    """Bytes of the buffers on the stack."""
    slots, _ = _slots(network)
    return sum((4 if k == "float" else size_of(k)) * n for k, n in slots)


class LayersFile(CFile):
    """The program that runs layer after layer."""

    def __init__(self, network: AnyNetwork, options: Options):
        self.network = network
        self.values = [network.input_type, *(layer.value_type for layer in network.layers)]
        super().__init__(options, network, network.output.size, tables_of(network, options.name))

    def functions(self) -> list[str]:
        """One function a layer."""
        lines = []
        for index, affine in enumerate(self.network.maps):
            layer = self.network.layers[index] if index < len(self.network.layers) else None
            lines += self.layer(index, affine, layer)
        return [*self.shifts(), *lines]

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
                f"    return ({kind})(v >= 0 ? v >> h : ~(({kind})~v >> h));",
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
        origin = comment_text(layer.name) if layer is not None and layer.name else ""
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
        if is_constant(layer.shift):
            h = int(layer.shift[0])
            shift, half = str(h), literal((1 << h) >> 1, acc)
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
        product = f"acc * {literal(m, acc)}" + (f" + {literal((1 << k) >> 1, acc)}" if k else "")
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
            return [f"out[i] = acc > 0.0f ? acc : {float_literal(layer.slope)} * acc;"]
        if layer.kind == "step":
            level = float_literal(layer.at_zero)
            return [f"out[i] = acc > 0.0f ? 1.0f : acc < 0.0f ? 0.0f : {level};"]
        return ["out[i] = acc;"]

    def driver(self) -> list[str]:
        """All layers, on as few buffers as there can be."""
        network, name = self.network, self.name
        slots, place = _slots(network)
        kind, out = self.kinds
        lines = [f"int {name}_run(const {kind} *x, {out} *y)", "{"]
        lines += [f"    {k} buffer{i}[{n}];" for i, (k, n) in enumerate(slots)]
        lines += ["    int clamped = 0;", ""]
        lines += self.clamp(f"buffer{place[0]}" if 0 in place else None)
        for index, affine in enumerate(network.maps):
            arguments = [f"buffer{place[s]}" for s in affine.terms]
            last = index == len(network.layers)
            arguments.append("y" if last else f"buffer{place[index + 1]}")
            lines.append(f"    {name}_layer{index + 1}({', '.join(arguments)});")
        return [*lines, "    return clamped;", "}"]


def _slots(network: AnyNetwork) -> tuple[list[tuple[str, int]], dict[int, int]]:
    """Buffers (type, length) and which one each value lives in; a buffer is free once last read."""
    kinds = [network.input_type, *(layer.value_type for layer in network.layers)]
    sizes = [network.input_size, *(layer.affine.size for layer in network.layers)]
    last = {s: index for index, affine in enumerate(network.maps) for s in affine.terms}
    slots: list[tuple[str, int]] = []
    free: list[int] = []
    place: dict[int, int] = {}
    for value, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        if value == 0 and 0 not in last:
            continue
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


def _shared(values: NDArray[Any], affine: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """One number a channel where a convolution's rows share them, else one a row."""
    kernels = [t for t in affine.terms.values() if isinstance(t, Kernel)]
    if not kernels or len(shape) < 2 or kernels[0].shape_out != shape:
        return values
    planes = values.reshape(shape[0], -1)
    return planes[:, 0] if (planes == planes[:, :1]).all() and planes.shape[1] > 1 else values
