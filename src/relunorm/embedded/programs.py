"""The kinds of program behind one face, and programs read back from their C files.

A proof speaks of the tables of the file itself, and not of its author.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.embedded.arithmetic.float_network import (
    FloatLayer,
    FloatMap,
    FloatNetwork,
    FloatRounding,
)
from relunorm.embedded.arithmetic.integers import (
    RANGES,
    IntegerLayer,
    IntegerMap,
    IntegerNetwork,
    IntegerProgram,
)
from relunorm.embedded.arithmetic.scales import rounded_half_up
from relunorm.embedded.arithmetic.terms import Kernel, Term, term_from
from relunorm.embedded.c.c_file import TARGETS, CFile, Options, Tables, table_of
from relunorm.embedded.c.layer_by_layer import AnyNetwork, LayersFile, ram_of_layers, tables_of
from relunorm.embedded.pieces.one_input import Piecewise, pieces_from
from relunorm.embedded.pieces.two_inputs import tree_from
from relunorm.embedded.proof.distance import Change
from relunorm.embedded.proof.layerwise import grid_box, walk_through
from relunorm.errors import InvalidInputError
from relunorm.network import Network

AnyProgram = IntegerNetwork | FloatNetwork | Piecewise


def c_file(program: AnyProgram, options: Options) -> CFile:
    """The C file of a program, ready to be written."""
    if isinstance(program, Piecewise):
        return program.file(options)
    return LayersFile(program, options)


def tables(program: AnyProgram, name: str) -> Tables:
    """Every table of a program."""
    if isinstance(program, Piecewise):
        return program.tables(name)
    return tables_of(program, name)


def ram_bytes(program: AnyProgram) -> int:
    """Bytes of the buffers on the stack."""
    if isinstance(program, Piecewise):
        return program.ram
    return ram_of_layers(program)


def structure(program: AnyProgram) -> dict[str, Any]:
    """Everything but the tables, JSON-safe."""
    return program.structure() if isinstance(program, Piecewise) else structure_of(program)


def program_from(
    document: dict[str, Any], found: dict[str, NDArray[Any]], name: str, network: Network
) -> AnyProgram:
    """The program with this structure and these tables; raises `InvalidInputError`."""
    if document["arithmetic"] == "pieces":
        return pieces_from(document, found, name, network)
    if document["arithmetic"] == "tree":
        return tree_from(document, found, name, network)
    return network_from(document, found, name)


def check_inputs(box: Box, program: AnyProgram) -> None:
    """Raise unless every input of the domain, rounded, passes the program's clamps unchanged."""
    low: NDArray[Any]
    high: NDArray[Any]
    if isinstance(program, IntegerProgram):
        low = rounded_half_up(box.lo, program.input_exponent)
        high = rounded_half_up(box.hi, program.input_exponent)
        least, most = RANGES[program.input_type]
        if program.input_low.min() < least or program.input_high.max() > most:
            raise InvalidInputError(f"the clamps of the inputs do not fit {program.input_type}")
    else:
        low, high = box.lo.astype(np.float32), box.hi.astype(np.float32)
    if (program.input_low > low).any() or (program.input_high < high).any():
        raise InvalidInputError("the program clamps inputs that lie in the domain")
    if (program.input_low > program.input_high).any():
        raise InvalidInputError("the clamps of an input contradict each other")


def outer_box(box: Box, program: AnyProgram) -> Box:
    """The domain's box and the box of the program's own inputs together."""
    if isinstance(program, IntegerProgram):
        grid = grid_box(program)
    else:
        grid = Box(program.input_low.astype(np.float64), program.input_high.astype(np.float64))
    return Box(np.minimum(box.lo, grid.lo), np.maximum(box.hi, grid.hi))


def change_of(network: Network, program: IntegerNetwork | FloatNetwork) -> Change:
    """The program beside the network; for integers nothing can overflow, or this raises."""
    fits = len(program.layers) == len(network.layers) and all(
        x.kind == y.activation.kind for x, y in zip(program.layers, network.layers, strict=True)
    )
    if not fits:
        raise InvalidInputError("the program's layers are not those of the network")
    for ours, theirs in zip(program.maps, network.maps, strict=True):
        shapes = {s: t.shape for s, t in ours.terms.items()}
        if shapes != {s: tuple(m.shape) for s, m in theirs.terms.items()}:
            raise InvalidInputError("the program's matrices are not those of the network")
    if isinstance(program, FloatNetwork):
        return FloatRounding(network, program).change
    return walk_through(network, program).change


def read_tables(source: str) -> dict[str, NDArray[Any]]:
    """Every constant table of a program, by name."""
    behind = "|".join(
        re.escape(target.attribute) for target in TARGETS.values() if target.attribute
    )
    table = rf"^static const (\w+) (\w+)\[(\d+)\](?: (?:{behind}))? = \{{\n(.*?)\n\}};"
    result: dict[str, NDArray[Any]] = {}
    for kind, name, count, body in re.findall(table, source, re.MULTILINE | re.DOTALL):
        words = [word.strip() for word in body.split(",")]
        try:
            if kind == "float":
                values: NDArray[Any] = np.array([float(w.rstrip("f")) for w in words], np.float32)
                fits = bool(np.isfinite(values).all())
            else:
                numbers = [_integer(word) for word in words]
                low, high = RANGES[kind]
                fits = low <= min(numbers) and max(numbers) <= high
                values = np.array(numbers, dtype=np.int64)
        except (ValueError, KeyError, OverflowError):
            raise InvalidInputError(f"the table {name} does not hold numbers") from None
        if len(words) != int(count) or not fits or name in result:
            raise InvalidInputError(
                f"the table {name} does not hold {count} numbers of type {kind}"
            )
        result[name] = values
    return result


def _integer(word: str) -> int:
    if word == "INT32_MIN":
        return -(2**31)
    return int(word.removeprefix("INT64_C(").removesuffix(")").removesuffix("U"))


def structure_of(network: AnyNetwork) -> dict[str, Any]:
    """Everything about a program but its weights and biases, JSON-safe."""
    integer = isinstance(network, IntegerNetwork)
    document: dict[str, Any] = {
        "arithmetic": "integer" if integer else "float",
        "input_shape": list(network.input_shape),
        "output_shape": list(network.output_shape),
        "input_type": network.input_type,
        "input_low": network.input_low.tolist(),
        "input_high": network.input_high.tolist(),
        "maps": [],
    }
    if isinstance(network, IntegerNetwork):
        document["input_exponent"] = network.input_exponent.tolist()
    for index, affine in enumerate(network.maps):
        entry: dict[str, Any] = {
            "terms": {str(s): term.geometry() for s, term in affine.terms.items()},
            "rows": affine.size,
            "weight_type": affine.weight_type,
            "accumulator": affine.accumulator,
        }
        if isinstance(affine, IntegerMap):
            entry["exponent"] = affine.exponent.tolist()
        if index < len(network.layers):
            entry["layer"] = _layer(network.layers[index])
        document["maps"].append(entry)
    return document


def _layer(layer: IntegerLayer | FloatLayer) -> dict[str, Any]:
    base = {"kind": layer.kind, "shape": list(layer.shape), "name": layer.name}
    if isinstance(layer, FloatLayer):
        return {**base, "slope": layer.slope, "at_zero": layer.at_zero}
    return {
        **base,
        "exponent": layer.exponent.tolist(),
        "value_type": layer.value_type,
        "slope": list(layer.slope),
        "levels": list(layer.levels),
    }


def network_from(
    structure: dict[str, Any], tables: dict[str, NDArray[Any]], name: str
) -> AnyNetwork:
    """The program with this structure and these tables."""
    integer = structure["arithmetic"] == "integer"
    maps: list[Any] = []
    layers: list[Any] = []
    for index, entry in enumerate(structure["maps"]):
        terms = {
            int(source): _term(geometry, tables, f"{index + 1}_{source}", name)
            for source, geometry in entry["terms"].items()
        }
        bias = _bias(table_of(tables, f"{name}_bias{index + 1}"), int(entry["rows"]), terms)
        kinds = str(entry["weight_type"]), str(entry["accumulator"])
        if integer:
            made: Any = IntegerMap(terms, bias, _exponents(entry, int(entry["rows"])), *kinds)
        else:
            made = FloatMap(terms, bias, *kinds)
        maps.append(made)
        if "layer" in entry:
            layers.append(_layer_from(made, entry["layer"], integer))
    shapes = tuple(structure["input_shape"]), tuple(structure["output_shape"])
    dtype = np.int64 if integer else np.float32
    low: Any = np.array(structure["input_low"], dtype=dtype)
    high: Any = np.array(structure["input_high"], dtype=dtype)
    if len(maps) != len(layers) + 1:
        raise InvalidInputError("the program has no output, or more than one")
    if not integer:
        return FloatNetwork(low, high, tuple(layers), maps[-1], *shapes)
    power = _exponents({"exponent": structure["input_exponent"]}, len(low))
    kind = str(structure["input_type"])
    return IntegerNetwork(power, low, high, kind, *shapes, tuple(layers), maps[-1])


def _layer_from(made: Any, layer: dict[str, Any], integer: bool) -> Any:
    shape, title = tuple(layer["shape"]), str(layer["name"])
    if not integer:
        slope, level = float(layer["slope"]), float(layer["at_zero"])
        return FloatLayer(made, layer["kind"], slope, level, shape, title)
    (m, k), (on, at_zero) = layer["slope"], layer["levels"]
    return IntegerLayer(
        made,
        layer["kind"],
        _exponents(layer, made.size),
        str(layer["value_type"]),
        (int(m), int(k)),
        (int(on), int(at_zero)),
        shape,
        title,
    )


def _term(
    geometry: dict[str, Any], tables: dict[str, NDArray[Any]], suffix: str, name: str
) -> Term:
    names = ("weight", "column", "end") if geometry["kind"] == "listed" else ("weight",)
    return term_from(geometry, {n: table_of(tables, f"{name}_{n}{suffix}") for n in names})


def _bias(table: NDArray[Any], rows: int, terms: dict[int, Term]) -> NDArray[Any]:
    """One bias a row, where the table may hold one a channel."""
    if len(table) == rows:
        return table
    kernel = next((t for t in terms.values() if isinstance(t, Kernel)), None)
    if kernel is None or len(table) != kernel.shape_out[0] or rows % len(table):
        raise InvalidInputError(f"{len(table)} biases do not fit {rows} rows")
    return np.repeat(table, rows // len(table))


def _exponents(entry: dict[str, Any], rows: int) -> NDArray[np.int64]:
    values = np.array(entry["exponent"], dtype=np.int64)
    if values.shape != (rows,) or np.abs(values).max(initial=0) > 400:
        raise InvalidInputError("the exponents of a layer do not fit its rows")
    return values
