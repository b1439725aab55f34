"""A network as JSON, every number bit for bit, for certificates that have to stand alone."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.head import Head
from relunorm.network import Activation, Affine, Layer, Network


def network_to_dict(network: Network) -> dict[str, Any]:
    """Structure, numbers and head; names are kept, origins are not."""
    return {
        "input_shape": list(network.input_shape),
        "output_shape": list(network.output_shape),
        "layers": [
            {
                "affine": _affine(layer.affine),
                "activation": [
                    layer.activation.kind,
                    layer.activation.slope,
                    layer.activation.at_zero,
                ],
                "name": layer.name,
                "shape": list(layer.shape),
            }
            for layer in network.layers
        ],
        "output": _affine(network.output),
        "head": network.head.to_dict(),
    }


def network_from_dict(document: dict[str, Any]) -> Network:
    """What `network_to_dict` wrote.

    Raises:
        InvalidInputError: the numbers are damaged.
    """
    layers = [
        Layer(
            _affine_from(entry["affine"]),
            Activation(*entry["activation"]),
            entry["name"],
            tuple(entry["shape"]),
        )
        for entry in document["layers"]
    ]
    network = Network(
        layers,
        _affine_from(document["output"]),
        input_shape=document["input_shape"],
        output_shape=document["output_shape"],
        head=Head.from_dict(document["head"]),
    )
    if json.dumps(network_to_dict(network)) != json.dumps(document):
        raise InvalidInputError("the shrunk network of the certificate holds more than a network")
    return network


def _affine(affine: Affine) -> dict[str, Any]:
    terms = {}
    for source, matrix in affine.terms.items():
        if sp.issparse(matrix):
            parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
            packed = {name: _pack(part) for name, part in parts.items()}
            terms[str(source)] = {"shape": list(matrix.shape), **packed}
        else:
            terms[str(source)] = {"shape": list(matrix.shape), "data": _pack(matrix)}
    return {"terms": terms, "bias": _pack(affine.bias)}


def _affine_from(document: dict[str, Any]) -> Affine:
    terms: dict[int, Any] = {}
    for source, entry in document["terms"].items():
        shape = tuple(entry["shape"])
        data = _unpack(entry["data"])
        if "indptr" in entry:
            parts = (data, _unpack(entry["indices"]), _unpack(entry["indptr"]))
            terms[int(source)] = sp.csr_array(parts, shape=shape)
        else:
            terms[int(source)] = data.reshape(shape)
    return Affine(terms, _unpack(document["bias"]))


def _pack(array: NDArray[Any]) -> list[str]:
    kind = "<f8" if array.dtype.kind == "f" else "<i8"
    raw = np.ascontiguousarray(array, dtype=kind).tobytes()
    return [kind, base64.b64encode(raw).decode("ascii")]


def _unpack(packed: list[str]) -> NDArray[Any]:
    kind, text = packed
    if kind not in ("<f8", "<i8"):
        raise InvalidInputError(f"an array has type {kind!r}, expected floats or integers")
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidInputError(f"an array of the certificate is damaged: {error}") from None
    return np.frombuffer(raw, dtype=kind).copy()
