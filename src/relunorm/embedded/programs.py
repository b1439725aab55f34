"""The kinds of program behind one face: integers, floats, pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.embedded.arithmetic.float_network import FloatNetwork, FloatRounding
from relunorm.embedded.arithmetic.integers import RANGES, IntegerNetwork, IntegerProgram
from relunorm.embedded.arithmetic.scales import rounded_half_up
from relunorm.embedded.c.c_file import CFile, Options, Tables
from relunorm.embedded.c.layer_by_layer import LayersFile, ram_of_layers, tables_of
from relunorm.embedded.c.read_back import network_from, structure_of
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
    """The program beside the network; for integers nothing can overflow, or this raises.

    Raises:
        InvalidInputError: something could leave its type, or the two do not fit together.
    """
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
