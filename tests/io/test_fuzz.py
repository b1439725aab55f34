"""Thousands of broken ONNX files: only networks or the package's own errors come out."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto
from onnx_models import Nodes, model
from test_linear_operations import ONNX, single
from test_onnx_read import MODELS

import relunorm as rn
from relunorm.errors import RelunormError

BYTES = 3000
GRAPHS = 3000


def seeds() -> list[bytes]:
    """One valid file per operation, and one with a few layers."""
    files = []
    for nodes, constants, shape in MODELS.values():
        copy: Nodes = [(op, inputs, dict(attributes)) for op, inputs, attributes in nodes]
        files.append(model(copy, constants, shape).SerializeToString())
    return files + [single(*case).SerializeToString() for case in ONNX.values()]


def load(content: bytes, path: Path) -> bool:
    path.write_bytes(content)
    if not content:
        content = b"\0"
    try:
        network = rn.load(path)
        network(np.zeros((1, network.input_size)))
    except RelunormError:
        return False
    return True


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            data[at] ^= 1 << rng.randrange(8)
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


JUNK = (0, 1, -1, 2, 7, -(2**31), 2**31, 2**62, -(2**62))


def mutate_graph(content: bytes, rng: random.Random) -> bytes:
    proto = onnx.ModelProto.FromString(content)
    graph = proto.graph
    names = [n for node in graph.node for n in (*node.input, *node.output)]
    names += [t.name for t in graph.initializer] + ["", "missing"]
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(graph.node) if graph.node else None
        kind = rng.randrange(11)
        if kind == 0 and node and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)
        elif kind == 1 and node and node.output:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)
        elif kind == 2 and node:
            node.op_type = rng.choice(graph.node).op_type
        elif kind == 3 and node and node.attribute:
            _mutate_attribute(rng.choice(node.attribute), rng)
        elif kind == 4 and node:
            graph.node.remove(node)
        elif kind == 5 and node:
            graph.node.append(node)
        elif kind == 6 and graph.initializer:
            tensor = rng.choice(graph.initializer)
            if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(JUNK)
        elif kind == 7 and graph.initializer:
            tensor = rng.choice(graph.initializer)
            tensor.raw_data = rng.randbytes(len(tensor.raw_data))
        elif kind == 8 and graph.initializer:
            rng.choice(graph.initializer).data_type = rng.randrange(-1, 30)
        elif kind == 9:
            dims = graph.input[0].type.tensor_type.shape.dim
            if dims:
                rng.choice(dims).dim_value = rng.choice(JUNK)
        elif kind == 10 and node and node.input:
            del node.input[rng.randrange(len(node.input))]
    return proto.SerializeToString()


def _mutate_attribute(attribute: AttributeProto, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        attribute.i = rng.choice(JUNK)
    elif kind == 1 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(JUNK)
    elif kind == 2:
        attribute.type = rng.randrange(0, 14)  # type: ignore[assignment]
    else:
        attribute.f = rng.choice([float("nan"), float("inf"), -1e30, 0.0])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bytes", "graph"])
@pytest.mark.filterwarnings("error")
def test_mutated_files_never_crash(kind: str, tmp_path: Path) -> None:
    rng = random.Random(20)
    files = seeds()
    path = tmp_path / "fuzz.onnx"
    count, mutate = (BYTES, mutate_bytes) if kind == "bytes" else (GRAPHS, mutate_graph)
    accepted = 0
    for index in range(count):
        content = mutate(files[index % len(files)], rng)
        try:
            accepted += load(content, path)
        except Exception as error:
            pytest.fail(f"mutation {index}: {type(error).__name__}: {error}")
    assert 0 < accepted < count
