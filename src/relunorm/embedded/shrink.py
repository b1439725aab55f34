"""The lossless shrink before an export: made, written down, and replayed.

What does nothing over the domain is removed where that makes the tables smaller. The smaller
network and its certificate become part of the program's, every number bit for bit, so that it
stands alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.embedded.arithmetic.terms import geometry_of, stored_numbers, without_empty_terms
from relunorm.errors import InvalidInputError
from relunorm.forms.certificate.certificate import Certificate
from relunorm.forms.certificate.verification import verify
from relunorm.matrix import Array
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.head import Head
from relunorm.stability.verdicts import Stability


def shrink(network: Network, outer: Box) -> tuple[Network, dict[str, Any]] | None:
    """The network without what does nothing over a box, and the proof; None if that saves nothing.

    Networks with step units are left as they are: removal may move a threshold, and then no bound
    holds near it.
    """
    from relunorm.forms.normalize import normalize
    from relunorm.stability import stability

    if any(layer.activation.kind == "step" for layer in network.layers):
        return None
    found = stability(network.folded(), outer, time_limit=10.0)
    results = [
        normalize(
            network, "minimal", outer, analysis=analysis, architecture="keep", time_limit=None
        )
        for analysis in _analyses(network.folded(), found)
    ]
    networks = [_shaped(r.network, network.folded()) for r in results]
    sizes = [
        np.inf if r.certificate is None else stored_numbers(n)
        for r, n in zip(results, networks, strict=True)
    ]
    best = int(np.argmin(sizes))
    certificate = results[best].certificate
    if certificate is None or sizes[best] >= stored_numbers(network):
        return None
    smaller = without_empty_terms(networks[best])
    return smaller, {"network": network_to_dict(smaller), "certificate": certificate.to_dict()}


def replay_shrink(
    entry: dict[str, Any] | None, network: Network, outer: Box, problems: list[str]
) -> tuple[Network, Array]:
    """The network the program was made from, and how far it is from the one given."""
    if entry is None:
        return without_empty_terms(network), np.zeros(network.output_size)
    smaller = network_from_dict(entry["network"])
    inner = Certificate(entry["certificate"])
    problems += [f"shrinking: {p}" for p in verify(inner, network, smaller, outer).problems]
    if inner.exceptions:
        problems.append("shrinking: step units were left out")
    return without_empty_terms(smaller), np.array(inner.bounds, dtype=np.float64)


def _analyses(network: Network, found: Stability) -> list[Stability]:
    """What may be removed: everything, or of convolutions whole channels only.

    A convolution that has lost single units is a matrix, which takes more room than its kernel.
    """
    shapes = [network.input_shape, *(layer.shape for layer in network.layers)]
    kernels = {
        k
        for k, layer in enumerate(network.layers)
        if any(
            geometry_of(matrix, shapes[source], shapes[k + 1]) is not None
            for source, matrix in layer.affine.terms.items()
        )
    }
    if not kernels:
        return [found]
    kept = []
    for layer in found.layers:
        if layer.layer in kernels:
            shape = shapes[layer.layer + 1]
            dead = (layer.verdict.reshape(shape[0], -1) == "dead").all(axis=1)
            dead = np.repeat(dead, len(layer.verdict) // shape[0])
            layer = replace(layer, verdict=np.where(dead, "dead", "undecided"))
        kept.append(layer)
    return [found, replace(found, layers=tuple(kept))]


def _shaped(network: Network, old: Network) -> Network:
    """Layers that still are whole channels get their shapes back, which removal forgets."""
    if len(network.layers) != len(old.layers):
        return network
    layers = []
    for ours, theirs in zip(network.layers, old.layers, strict=True):
        size, plane = ours.affine.size, math.prod(theirs.shape[1:])
        if len(theirs.shape) > 1 and size % plane == 0:
            ours = replace(ours, shape=(size // plane, *theirs.shape[1:]))
        layers.append(ours)
    return network.replace(layers=layers)


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
    """What `network_to_dict` wrote."""
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
