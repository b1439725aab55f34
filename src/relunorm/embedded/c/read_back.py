"""The tables of a C file read back, so that a proof speaks of the file and not of its author."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.embedded.arithmetic.float_network import FloatLayer, FloatMap, FloatNetwork
from relunorm.embedded.arithmetic.integers import RANGES, IntegerLayer, IntegerMap, IntegerNetwork
from relunorm.embedded.arithmetic.terms import Kernel, Term, term_from
from relunorm.embedded.c.c_file import TARGETS
from relunorm.embedded.c.layer_by_layer import AnyNetwork
from relunorm.errors import InvalidInputError


def read_tables(source: str) -> dict[str, NDArray[Any]]:
    """Every constant table of a program, by name.

    Raises:
        InvalidInputError: a table holds something else than numbers of its type.
    """
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
    """The program with this structure and these tables.

    Raises:
        InvalidInputError: a table is missing or does not fit.
    """
    integer = structure["arithmetic"] == "integer"
    maps: list[Any] = []
    layers: list[Any] = []
    for index, entry in enumerate(structure["maps"]):
        terms = {
            int(source): _term(geometry, tables, f"{index + 1}_{source}", name)
            for source, geometry in entry["terms"].items()
        }
        bias = _bias(_table(tables, f"{name}_bias{index + 1}"), int(entry["rows"]), terms)
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
    return term_from(geometry, {n: _table(tables, f"{name}_{n}{suffix}") for n in names})


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


def _table(tables: dict[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in tables:
        raise InvalidInputError(f"the program has no table {name}")
    return tables[name]
