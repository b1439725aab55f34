"""A Network as named arrays and one JSON header: what .npz and .safetensors share, and the latter.

A convolutional network is kept as the few numbers of its structure, if lowering that gives back the
very same network: its matrices would take many times the space.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.atomic import atomic_path
from relunorm.errors import SENSELESS, ModelFileError, RelunormError, optional_packages
from relunorm.io.graph.lower import CannotLower
from relunorm.io.graph.structured import compute, lower
from relunorm.matrix import Matrix
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.columns import columns_from
from relunorm.network.head import NO_HEAD, Head
from relunorm.network.structure import Geometry, Step, Structure

SCHEMA = "relunorm.archive/1"
_PARTS = ("data", "indices", "indptr")
#: Types of numbers that models are kept in, the least precise first.
PRECISIONS = ("bfloat16", "float16", "float32", "float64")


def coarsest(names: Iterable[str]) -> str:
    """The least precise of some types of numbers, by name; empty where there is none.

    >>> coarsest(["float64", "torch.float32"])
    'float32'
    """
    held = {name.removeprefix("torch.") for name in names}
    return next((name for name in PRECISIONS if name in held), "")


def encode(network: Network, dtype: str) -> tuple[str, dict[str, NDArray[Any]]]:
    """The JSON header and the arrays it names."""
    if _says_it_all(network):
        return _encode_structure(network, dtype)
    arrays: dict[str, NDArray[Any]] = {}

    def put(affine: Affine, name: str) -> dict[str, Any]:
        arrays[f"{name}.bias"] = mx.narrowed(affine.bias, dtype, f"{name}.bias")
        terms = []
        for source, matrix in affine.terms.items():
            key = f"{name}.from{source}"
            if sp.issparse(matrix):
                arrays[f"{key}.data"] = mx.narrowed(matrix.data, dtype, key)
                arrays[f"{key}.indices"] = matrix.indices.astype(np.int64)
                arrays[f"{key}.indptr"] = matrix.indptr.astype(np.int64)
                terms.append({"source": source, "csr": key, "shape": list(matrix.shape)})
            else:
                arrays[key] = mx.narrowed(matrix, dtype, key)
                terms.append({"source": source, "dense": key})
        return {"bias": f"{name}.bias", "terms": terms}

    def origin(layer: Layer, name: str) -> dict[str, Any]:
        """What a reader recorded about the layer's units, if anything."""
        found: dict[str, Any] = {"piece": True} if layer.piece else {}
        if layer.unit_of is not None:
            arrays[f"{name}.unit_of"] = layer.unit_of
            found["unit_of"] = f"{name}.unit_of"
        return found

    layers = [
        {
            "name": layer.name,
            "shape": list(layer.shape),
            "activation": asdict(layer.activation),
            **put(layer.affine, f"layer{index}"),
            **origin(layer, f"layer{index}"),
        }
        for index, layer in enumerate(network.layers)
    ]
    header = {**_common(network), "layers": layers, "output": put(network.output, "output")}
    return json.dumps(header), arrays


def _common(network: Network) -> dict[str, Any]:
    further: dict[str, Any] = {}
    if network.head != NO_HEAD:
        further["head"] = network.head.to_dict()
    if network.columns:
        further["columns"] = [column.to_dict() for column in network.columns]
    shapes = {"input_shape": network.input_shape, "output_shape": network.output_shape}
    return {"schema": SCHEMA, **{key: list(shape) for key, shape in shapes.items()}, **further}


def _says_it_all(network: Network) -> bool:
    """Whether the structure alone gives back the network, with what is noted about its units."""
    structure = network.structure
    if structure is None or not structure.convolves:
        return False
    again = lower(structure, network)
    return again == network and all(
        a.name == b.name and a.piece == b.piece and np.array_equal(_units(a), _units(b))
        for a, b in zip(again.layers, network.layers, strict=True)
    )


def _units(layer: Layer) -> NDArray[Any]:
    return np.arange(layer.width) if layer.unit_of is None else layer.unit_of


def _encode_structure(network: Network, dtype: str) -> tuple[str, dict[str, NDArray[Any]]]:
    assert network.structure is not None
    arrays: dict[str, NDArray[Any]] = {}
    steps = []
    for number, step in enumerate(network.structure.steps):
        fields: dict[str, Any] = {"kind": step.kind, "inputs": step.inputs, "shape": step.shape}
        for name, array in (("weight", step.weight), ("bias", step.bias)):
            if array is not None:
                key = f"step{number}.{name}"
                arrays[key], fields[name] = mx.narrowed(array, dtype, key), key
        optional = {
            "name": step.name,
            "geometry": None if step.geometry is None else asdict(step.geometry),
            "groups": step.groups if step.kind.startswith("conv") else None,
            "count_padding": step.count_padding,
            "activation": None if step.activation is None else asdict(step.activation),
            "ends": step.ends if step.kind == "clip" else None,
            "axes": step.axes,
        }
        steps.append(fields | {key: value for key, value in optional.items() if value})
    return json.dumps({**_common(network), "steps": steps}), arrays


def decode(header: str, array: Callable[[str], NDArray[Any]], origin: str) -> Network:
    """The network of a header; ``array`` fetches a named array."""
    try:
        fields = json.loads(header)
        if fields["schema"] != SCHEMA:
            raise ModelFileError(
                f"{origin}: the header has schema {fields['schema']!r}, this version reads {SCHEMA}"
            )
        head = Head.from_dict(fields["head"]) if "head" in fields else NO_HEAD
        columns = columns_from(fields.get("columns", ()))
        if "steps" in fields:
            return _decode_structure(fields, array, origin).replace(head=head, columns=columns)
        layers = [
            Layer(
                _affine(layer, array),
                Activation(**layer["activation"]),
                str(layer["name"]),
                tuple(layer["shape"]),
                bool(layer.get("piece", False)),
                array(layer["unit_of"]) if "unit_of" in layer else None,
            )
            for layer in fields["layers"]
        ]
        return Network(
            layers,
            _affine(fields["output"], array),
            input_shape=fields["input_shape"],
            output_shape=fields["output_shape"],
            head=head,
            origin=origin,
            columns=columns,
        )
    except RelunormError:
        raise
    except SENSELESS as error:
        raise ModelFileError(f"{origin}: the header is damaged ({error!r})") from None


def _decode_structure(
    fields: Mapping[str, Any], array: Callable[[str], NDArray[Any]], origin: str
) -> Network:
    """The network of the steps, which are checked by lowering them."""
    steps = tuple(_step(step, array) for step in fields["steps"])
    if (
        not steps
        or steps[0].kind != "input"
        or any(
            not step.inputs or not all(0 <= i < k for i in step.inputs)
            for k, step in enumerate(steps)
            if k
        )
    ):
        raise ModelFileError(f"{origin}: a step reads what is not computed before it")
    if math.prod(fields["input_shape"]) != math.prod(steps[0].shape):
        raise ModelFileError(f"{origin}: the first step does not have the shape of the input")
    try:
        network = compute(Structure(steps), fields["input_shape"], origin)
    except CannotLower as error:
        raise ModelFileError(f"{origin}: a step cannot be read ({error})") from None
    if list(network.output_shape) != fields["output_shape"]:
        raise ModelFileError(f"{origin}: the output has shape {network.output_shape}")
    return network


def _step(fields: Mapping[str, Any], array: Callable[[str], NDArray[Any]]) -> Step:
    weight, bias = (
        mx.as_floats(array(fields[key])) if key in fields else None for key in ("weight", "bias")
    )
    geometry = fields.get("geometry")
    activation = fields.get("activation")
    low, high = fields.get("ends", (None, None))
    return Step(
        str(fields["kind"]),  # type: ignore[arg-type]
        _ints(fields["inputs"]),
        _ints(fields["shape"]),
        str(fields.get("name", "")),
        weight,
        bias,
        None if geometry is None else Geometry(**geometry),
        int(fields.get("groups", 1)),
        bool(fields.get("count_padding", False)),
        None if activation is None else Activation(**activation),
        (None if low is None else float(low), None if high is None else float(high)),
        _ints(fields.get("axes", ())),
    )


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


def _affine(fields: Mapping[str, Any], array: Callable[[str], NDArray[Any]]) -> Affine:
    terms = {int(term["source"]): _matrix(term, array) for term in fields["terms"]}
    return Affine(terms, array(fields["bias"]))


def _matrix(term: Mapping[str, Any], array: Callable[[str], NDArray[Any]]) -> Matrix:
    if "dense" in term:
        return array(term["dense"])
    key, shape = term["csr"], tuple(int(n) for n in term["shape"])
    data, indices, indptr = (array(f"{key}.{part}") for part in _PARTS)
    if any(part.ndim != 1 for part in (data, indices, indptr)) or len(data) != len(indices):
        raise ModelFileError(f"matrix {key}: the sparse parts do not fit together")
    # scipy does not check these, and a bad index would read outside the array.
    fits = (
        len(shape) == 2
        and len(indptr) == shape[0] + 1
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and bool((np.diff(indptr) >= 0).all())
        and (not len(indices) or 0 <= indices.min() <= indices.max() < shape[1])
    )
    if not fits:
        raise ModelFileError(f"matrix {key}: the sparse index does not fit the shape {shape}")
    return sp.csr_array((mx.as_floats(data), indices, indptr), shape=shape)


#: Where a .safetensors file keeps the header among its metadata.
METADATA = "relunorm"


def read_safetensors(path: Path, example: Any = None) -> Network:
    """Read a network from a .safetensors file written by `write_safetensors`."""
    del example  # the file fixes every shape
    with optional_packages():
        from safetensors import SafetensorError, safe_open
    kinds: set[str] = set()

    def fetch(name: str) -> NDArray[Any]:
        array = np.asarray(file.get_tensor(name))
        kinds.add(array.dtype.name)
        return array

    try:
        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(METADATA)
            if header is None:
                raise ModelFileError(
                    f"{path}: holds tensors but no architecture (no {METADATA!r} in its metadata). "
                    "Load the tensors into your module and pass the module to relunorm.load"
                )
            network = decode(header, fetch, str(path))
            return network.replace(precision=coarsest(kinds))
    except SafetensorError as error:
        raise ModelFileError(f"{path}: not a readable .safetensors file ({error})") from None


def write_safetensors(network: Network, path: Path, dtype: str | None = None) -> None:
    """Write a network as .safetensors."""
    with optional_packages():
        from safetensors.numpy import save_file
    header, arrays = encode(network, dtype or "float64")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_path(path) as temporary:
        save_file(contiguous, temporary, metadata={METADATA: header})
