"""Regions to and from one npz file: the network, the domain and every array."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm.domain.documents import domain_from_dict
from relunorm.errors import InvalidInputError
from relunorm.network import Activation, Affine, Layer, Network
from relunorm.network.head import NO_HEAD, Head
from relunorm.regions.partition import Regions

SCHEMA = "relunorm.regions.file/2"


def save(found: Regions, path: str | Path) -> None:
    """See `Regions.save`."""
    arrays: dict[str, Any] = {"packed": found.packed, "points": found.points}
    if found.stored_polygons is not None:
        arrays["corners"], arrays["corner_ptr"] = found.stored_polygons
    header = {
        "schema": SCHEMA,
        "complete": found.complete,
        "reason": found.reason,
        "method": found.method,
        "hidden": found.hidden,
        "seconds": found.seconds,
        "domain": None if found.domain is None else found.domain.to_dict(),
        "network": _write_network(found.network, arrays),
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    try:
        Path(path).write_bytes(buffer.getvalue())
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror or error}") from None


def load_regions(path: str | Path) -> Regions:
    """Read what `Regions.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays["header"]))
        if header["schema"] != SCHEMA:
            raise InvalidInputError(f"{path}: schema {header['schema']!r} is not known")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, EOFError) as error:
        raise InvalidInputError(
            f"{path} is not a file of regions ({error}); write one with Regions.save"
        ) from None
    domain = header["domain"]
    polygons = (arrays["corners"], arrays["corner_ptr"]) if "corners" in arrays else None
    return Regions(
        _read_network(header["network"], arrays),
        None if domain is None else domain_from_dict(domain, str(path)),
        arrays["packed"],
        arrays["points"],
        polygons,
        complete=header["complete"],
        reason=header["reason"],
        method=header["method"],
        hidden=header.get("hidden", 0),
        seconds=header["seconds"],
    )


def _write_network(network: Network, arrays: dict[str, Any]) -> dict[str, Any]:
    maps = []
    for k, affine in enumerate(network.maps):
        arrays[f"b{k}"] = affine.bias
        sparse = []
        for source, matrix in affine.terms.items():
            name = f"W{k}_{source}"
            if sp.issparse(matrix):
                for part in ("data", "indices", "indptr"):
                    arrays[f"{name}_{part}"] = getattr(matrix, part)
                sparse.append(source)
            else:
                arrays[name] = matrix
        maps.append({"sources": list(affine.sources), "sparse": sparse})
    layers = [
        {
            "kind": layer.activation.kind,
            "slope": layer.activation.slope,
            "at_zero": layer.activation.at_zero,
            "name": layer.name,
            "shape": layer.shape,
        }
        for layer in network.layers
    ]
    return {
        "maps": maps,
        "layers": layers,
        "input_shape": network.input_shape,
        "output_shape": network.output_shape,
        "head": network.head.to_dict(),
        "origin": network.origin,
    }


def _read_network(header: dict[str, Any], arrays: dict[str, Any]) -> Network:
    sizes = [int(np.prod(header["input_shape"]))]
    affines = []
    for k, entry in enumerate(header["maps"]):
        bias = arrays[f"b{k}"]
        terms: dict[int, Any] = {}
        for source in entry["sources"]:
            name = f"W{k}_{source}"
            if source in entry["sparse"]:
                parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
                terms[source] = sp.csr_array(parts, shape=(len(bias), sizes[source]))
            else:
                terms[source] = arrays[name]
        affines.append(Affine(terms, bias))
        sizes.append(len(bias))
    layers = [
        Layer(affine, Activation(x["kind"], x["slope"], x["at_zero"]), x["name"], x["shape"])
        for affine, x in zip(affines[:-1], header["layers"], strict=True)
    ]
    return Network(
        layers,
        affines[-1],
        input_shape=header["input_shape"],
        output_shape=header["output_shape"],
        head=Head.from_dict(header["head"]) if "head" in header else NO_HEAD,
        origin=header["origin"],
    )
