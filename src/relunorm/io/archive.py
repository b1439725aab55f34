"""A Network as named arrays and one JSON header: what .npz and .safetensors share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import ModelFileError, RelunormError
from relunorm.head import NO_HEAD, Head
from relunorm.matrix import Matrix
from relunorm.network import Activation, Affine, Layer, Network

SCHEMA = "relunorm.archive/1"
_PARTS = ("data", "indices", "indptr")


def encode(network: Network, dtype: str) -> tuple[str, dict[str, NDArray[Any]]]:
    """The JSON header and the arrays it names."""
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
            "activation": {
                "kind": layer.activation.kind,
                "slope": layer.activation.slope,
                "at_zero": layer.activation.at_zero,
            },
            **put(layer.affine, f"layer{index}"),
            **origin(layer, f"layer{index}"),
        }
        for index, layer in enumerate(network.layers)
    ]
    header = {
        "schema": SCHEMA,
        "input_shape": list(network.input_shape),
        "output_shape": list(network.output_shape),
        "layers": layers,
        "output": put(network.output, "output"),
    }
    if network.head != NO_HEAD:
        header["head"] = network.head.to_dict()
    return json.dumps(header), arrays


def decode(header: str, array: Callable[[str], NDArray[Any]], origin: str) -> Network:
    """The network of a header; ``array`` fetches a named array."""
    try:
        fields = json.loads(header)
        if fields["schema"] != SCHEMA:
            raise ModelFileError(
                f"{origin}: the header has schema {fields['schema']!r}, this version reads {SCHEMA}"
            )
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
            head=Head.from_dict(fields["head"]) if "head" in fields else NO_HEAD,
            origin=origin,
        )
    except RelunormError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{origin}: the header is damaged ({error!r})") from None


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
    return sp.csr_array((data.astype(np.float64), indices, indptr), shape=shape)
