"""A network as bytes that no other network shares: what `Network.digest` hashes.

The bytes follow one grammar, and everything in it says how long it is, so they can be read back in
one way only:

    network  = header, ints(input shape), ints(output shape), ints([layers]), layer ..., map, [head]
    layer    = text(kind), floats(the kind's parameter, if it has one), map
    map      = floats(bias), ints([terms]), term ...
    term     = ints([source, rows, columns]), ints(row ends), ints(columns), floats(values)
    head     = ints([steps]), step ...          (left out where the network has no head)
    step     = text(kind), ints([axis]), floats(numbers)
    ints, floats, text = the length as one integer, then the entries; all little-endian, 8 bytes

Terms whose entries are all 0 are left out, -0.0 is 0.0, and storage (dense or sparse) leaves no
trace: a network is what it computes with, not how it is kept. Class labels are names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from relunorm import matrix as mx
from relunorm.network.layer import Activation, Affine

if TYPE_CHECKING:
    from relunorm.network import Network

HEADER = b"relunorm.network/2\n"


def encoding(network: Network) -> Iterator[bytes | memoryview]:
    """The bytes of a network's structure and numbers, piece by piece; names are no part of them."""
    yield HEADER
    yield from _ints(network.input_shape)
    yield from _ints(network.output_shape)
    yield from _ints([len(network.layers)])
    for layer in network.layers:
        yield from _text(layer.activation.kind)
        yield from _floats(_parameters(layer.activation))
        yield from _map(layer.affine)
    yield from _map(network.output)
    if network.head:
        yield from _ints([len(network.head.steps)])
        for step in network.head.steps:
            yield from _text(step.kind)
            yield from _ints([step.axis])
            yield from _floats(step.numbers)


def _map(affine: Affine) -> Iterator[bytes | memoryview]:
    parts = {source: mx.csr_parts(matrix) for source, matrix in affine.terms.items()}
    used = {source: part for source, part in parts.items() if len(part[2])}
    yield from _floats(affine.bias)
    yield from _ints([len(used)])
    for source, (ends, columns, values) in used.items():
        yield from _ints([source, *affine.terms[source].shape])
        yield from _ints(ends)
        yield from _ints(columns)
        yield from _floats(values)


def _parameters(activation: Activation) -> list[float]:
    """The numbers that matter to this kind of activation."""
    return {"leaky": [activation.slope], "step": [activation.at_zero]}.get(activation.kind, [])


def _ints(values: Iterable[int]) -> Iterator[bytes | memoryview]:
    return _sized(np.asarray(values, dtype="<i8"))


def _floats(values: Iterable[float]) -> Iterator[bytes | memoryview]:
    return _sized(np.asarray(values, dtype="<f8") + 0.0)


def _text(text: str) -> Iterator[bytes | memoryview]:
    return _sized(np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype("<i8"))


def _sized(array: np.ndarray[Any, Any]) -> Iterator[bytes | memoryview]:
    yield len(array).to_bytes(8, "little")
    yield np.ascontiguousarray(array).data.cast("B") if len(array) else b""
