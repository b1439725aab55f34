"""Programs saved by torch.export.save in, read as data.

torch.export.load unpickles whatever the archive asks it to (sample inputs, tensor subclasses,
custom and opaque objects), loads shared libraries, and evaluates symbolic sizes as Python. A file
is not trusted, so none of that is used: the graph is JSON, the weights are raw bytes, and both are
read here. Parts of the archive that are pickles are never opened.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from relunorm.errors import SENSELESS, ModelFileError
from relunorm.io.torch.program import Operation, Program, Ref, place_of
from relunorm.network.columns import Column, columns_from

#: Major version of the graph's schema (torch._export.serde.schema).
SCHEMA = 8
#: The member with what relunorm writes beside a program.
BESIDE = "relunorm.json"

_DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}

_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_program(path: Path) -> Program:
    """The graph and the weights of a .pt2 file."""
    with _Archive(path) as archive:
        try:
            return _program(archive)
        except (*SENSELESS, RecursionError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path}: the graph is damaged ({error!r})") from error


def read_beside(path: Path) -> tuple[tuple[Any, ...], tuple[Column, ...]]:
    """The labels and the columns that relunorm wrote beside a program, if it did."""
    with _Archive(path) as archive:
        if not archive.has(f"extra/{BESIDE}"):
            return (), ()
        facts = archive.json(f"extra/{BESIDE}")
        try:
            return tuple(facts["classes"]), columns_from(facts["columns"])
        except (TypeError, KeyError) as error:
            raise ModelFileError(f"{path}: member {BESIDE!r} is damaged ({error!r})") from None


class _Archive:
    """The members of a PT2 archive: stored, not compressed, under one folder."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise ModelFileError(
                f"{path}: not a .pt2 archive, or a truncated one ({error})"
            ) from error
        try:
            self._check()
        except BaseException:
            self.zip.close()
            raise

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.zip.close()

    def _check(self) -> None:
        members = self.zip.infolist()
        names = [member.filename for member in members]
        if "serialized_exported_program.json" in names:
            raise ModelFileError(
                f"{self.path}: written by an older torch, which kept the weights as a pickle; load "
                "it with torch.export.load (if you trust it) and pass the program to relunorm.load"
            )
        if len(set(names)) != len(names):
            raise ModelFileError(f"{self.path}: two members of the archive have the same name")
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                raise ModelFileError(
                    f"{self.path}: member {member.filename!r} is compressed or encrypted; "
                    "torch.export.save stores members as they are"
                )
        claimed, actual = sum(m.file_size for m in members), self.path.stat().st_size
        if claimed > actual:
            raise ModelFileError(
                f"{self.path}: its members claim {claimed:,} bytes, but the file has {actual:,}"
            )
        roots = {name.partition("/")[0] for name in names}
        if len(roots) != 1 or f"{next(iter(roots))}/archive_format" not in names:
            raise ModelFileError(
                f"{self.path}: not a .pt2 archive: archive_format is missing (was it written by "
                "torch.export.save?)"
            )
        self.root = roots.pop()
        self.names = frozenset(names)
        if self.read("archive_format") != b"pt2":
            raise ModelFileError(f"{self.path}: the archive's format is not pt2")
        if self.has("byteorder") and self.read("byteorder") != b"little":
            raise ModelFileError(f"{self.path}: written on a big-endian machine")

    def has(self, name: str) -> bool:
        return f"{self.root}/{name}" in self.names

    def read(self, name: str) -> bytes:
        if not self.has(name):
            raise ModelFileError(f"{self.path}: the archive has no member {name!r}")
        try:
            return self.zip.read(f"{self.root}/{name}")
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
            raise ModelFileError(f"{self.path}: member {name!r} is damaged ({error})") from error

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.read(name))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ModelFileError(f"{self.path}: member {name!r} is not JSON ({error})") from error


def _program(archive: _Archive) -> Program:
    model = archive.json("models/model.json")
    version = model["schema_version"]["major"]
    if version != SCHEMA:
        raise ModelFileError(
            f"{archive.path}: graph schema {version}, this version reads {SCHEMA}; load it with "
            "torch.export.load (if you trust it) and pass the program to relunorm.load"
        )
    graph, signature = model["graph_module"]["graph"], model["graph_module"]["signature"]
    constants, inputs = _constants(archive, signature["input_specs"])
    outputs = [spec.get("user_output") for spec in signature["output_specs"]]
    if len(inputs) != 1 or len(outputs) != 1 or outputs[0] is None:
        raise ModelFileError(
            f"{archive.path}: {len(inputs)} inputs and {len(outputs)} outputs, expected one tensor "
            "in and one out"
        )
    shapes = {name: _sizes(meta) for name, meta in graph["tensor_values"].items()}
    operations: list[Operation] = []
    bound: dict[str, Any] = {}
    _flatten(graph, "", bound, operations)
    name = outputs[0]["arg"]["as_tensor"]["name"]
    output = bound.get(name, Ref(name))
    return Program(
        str(archive.path),
        inputs[0],
        shapes[inputs[0]],
        output.name,
        constants,
        operations,
        shapes,
        trusted=False,
    )


def _constants(archive: _Archive, specs: list[Any]) -> tuple[dict[str, Any], list[str]]:
    """The constants by their name in the graph, and the names of the inputs."""
    weights = archive.json("data/weights/model_weights_config.json")["config"]
    others = archive.json("data/constants/model_constants_config.json")["config"]
    found = {
        **{name: ("data/constants", entry) for name, entry in others.items()},
        **{name: ("data/weights", entry) for name, entry in weights.items()},
    }
    storages: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    inputs: list[str] = []
    for spec in specs:
        ((kind, fields),) = spec.items()
        if kind == "user_input" and "as_tensor" in fields["arg"]:
            inputs.append(fields["arg"]["as_tensor"]["name"])
        elif kind == "constant_input":
            ((_, constants[fields["name"]]),) = fields["value"].items()
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = fields[f"{kind}_name"]
            folder, entry = found[name]
            constants[fields["arg"]["name"]] = _tensor(archive, folder, name, entry, storages)
        else:
            raise ModelFileError(f"{archive.path}: an input of kind {kind!r} is not supported")
    return constants, inputs


def _tensor(
    archive: _Archive, folder: str, name: str, entry: Any, storages: dict[str, Any]
) -> torch.Tensor:
    where = f"{archive.path}: constant {name!r}"
    file = f"{folder}/{entry['path_name']}"
    if entry["use_pickle"] or not entry["path_name"].startswith(("weight_", "tensor_")):
        raise ModelFileError(f"{where} is stored as a pickle, which could run code: not loaded")
    meta = entry["tensor_meta"]
    dtype = _DTYPES.get(meta["dtype"])
    if dtype is None or meta["layout"] != 7:
        raise ModelFileError(f"{where} has type {meta['dtype']} and layout {meta['layout']}")
    shape = [_whole(n) for n in meta["sizes"]]
    strides = [_whole(n) for n in meta["strides"]]
    offset = _whole(meta["storage_offset"])
    if file not in storages:
        storages[file] = bytearray(archive.read(file))
    held = len(storages[file]) // dtype.itemsize
    if math.prod(shape) == 0:
        return torch.zeros(shape, dtype=dtype)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if last >= held or math.prod(shape) > held:
        raise ModelFileError(
            f"{where} claims shape {tuple(shape)}, but {file} holds only {held:,} entries"
        )
    flat = torch.frombuffer(storages[file], dtype=dtype, count=held)
    return flat.as_strided(shape, strides, offset)


def _whole(size: Any) -> int:
    value = size["as_int"]
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise ValueError(f"{value!r} is not a size")
    return value


def _sizes(meta: Any) -> tuple[int | None, ...]:
    """The recorded shape; symbolic sizes stay open and are never evaluated."""
    return tuple(_whole(n) if "as_int" in n else None for n in meta["sizes"])


def _flatten(graph: Any, prefix: str, bound: dict[str, Any], calls: list[Operation]) -> None:
    """Append the calls of a graph; blocks under torch.no_grad() are written out in place."""
    for node in graph["nodes"]:
        target = str(node["target"])
        outputs = [prefix + name for name in _outputs(node["outputs"])]
        arguments = {
            item["name"] or str(number): _argument(item["arg"], prefix, bound)
            for number, item in enumerate(node["inputs"])
        }
        if target == "torch.ops.higher_order.wrap_with_set_grad_enabled":
            block, given = arguments["1"], list(arguments.values())[2:]
            inner = f"{prefix}{outputs[0]}/"
            names = [inner + item["as_tensor"]["name"] for item in block["inputs"]]
            bound.update(zip(names, given, strict=True))
            _flatten(block, inner, bound, calls)
            results = [inner + item["as_tensor"]["name"] for item in block["outputs"]]
            bound.update(
                (name, bound.get(result, Ref(result)))
                for name, result in zip(outputs, results, strict=True)
            )
            continue
        single = len(outputs) == 1 and "as_tensors" not in node["outputs"][0]
        target = target.removeprefix("torch.ops.")
        place, owner = _place(node, target)
        calls.append(Operation(target, arguments, outputs[0] if single else outputs, place, owner))


def _outputs(items: list[Any]) -> Iterator[str]:
    for item in items:
        ((kind, value),) = item.items()
        if kind == "as_tensor":
            yield value["name"]
        elif kind == "as_tensors":
            yield from (part["name"] for part in value)
        elif kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            yield value["as_name"]
        elif kind != "as_none":
            raise ValueError(f"an output of kind {kind!r}")


def _argument(item: Any, prefix: str, bound: dict[str, Any]) -> Any:
    """One argument: a literal, a reference, or a list of them."""

    def reference(name: str) -> Any:
        return bound.get(prefix + name, Ref(prefix + name))

    def symbol(value: Any) -> Any:
        ((kind, inner),) = value.items()
        return reference(inner) if kind == "as_name" else inner

    ((kind, value),) = item.items()
    if kind == "as_none":
        return None
    if kind == "as_tensor":
        return reference(value["name"])
    if kind == "as_tensors":
        return [reference(part["name"]) for part in value]
    if kind == "as_optional_tensor":
        return _argument(value, prefix, bound)
    if kind == "as_optional_tensors":
        return [_argument(part, prefix, bound) for part in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return symbol(value)
    if kind in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
        return [symbol(part) for part in value]
    if kind == "as_float":
        return _FLOATS[value] if isinstance(value, str) else value
    if kind == "as_scalar_type":
        return _DTYPES[value]
    if kind == "as_graph":
        return value["graph"]
    if kind in ("as_memory_format", "as_layout", "as_device"):
        return None
    if kind in ("as_int", "as_ints", "as_floats", "as_string", "as_bool", "as_bools"):
        return value
    raise ValueError(f"an argument of kind {kind!r}")


def _place(node: Any, target: str) -> tuple[str, str]:
    stack = []
    for entry in node["metadata"].get("nn_module_stack", "").split(";"):
        parts = entry.split(",")
        if len(parts) == 3 and not parts[0].startswith("_empty"):
            stack.append((parts[0], parts[1], parts[2]))
    return place_of(stack, target)
