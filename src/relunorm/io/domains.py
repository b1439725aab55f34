"""Domains as they are spelled on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relunorm.domain import KINDS, Ball, Box, Domain
from relunorm.errors import InvalidDomainError
from relunorm.io.table import read_arrays, read_table
from relunorm.network import Network
from relunorm.network.columns import Column

#: What may follow the file of ``data:``.
_PARTS = ("target", "drop")


def parse_domain(text: str, inputs: int | Network) -> Domain:
    """A domain from its command-line spelling, for so many inputs or those of a network.

    - ``box:-1,1`` the cube [-1, 1]^d; ``box:@file.npz`` with arrays lo and hi
    - ``ball:2`` the ball of radius 2 around 0; ``ball:@file.npz`` with arrays center and radius
    - ``polytope:@file.npz`` with arrays A and b
    - ``data:train.csv`` the smallest box around a table (csv, npy, npz with x, parquet);
      ``data:train.csv?target=y`` leaves the column y out; several: ``?target=y&target=z&drop=id``

    >>> parse_domain("box:-1,1", 3)
    Box([-1, 1]^3)
    """
    dimension = inputs if isinstance(inputs, int) else inputs.input_size
    columns = () if isinstance(inputs, int) else inputs.columns
    kind, colon, rest = text.partition(":")
    if not colon or kind not in (*KINDS, "data") or not rest:
        raise InvalidDomainError(
            f"domain {text!r} is not understood; write box:-1,1 or box:@file.npz, ball:2, "
            "polytope:@file.npz or data:train.csv"
        )
    domain = _parse(kind, rest, dimension, columns)
    domain.check_dimension(dimension)
    return domain


def split_source(text: str) -> tuple[str, list[str], list[str]]:
    """The file, the targets and the columns left out of what follows ``data:``.

    >>> split_source("t.csv?target=y&drop=id")
    ('t.csv', ['y'], ['id'])
    """
    file, *rest = re.split(r"\?(target|drop)=", text, maxsplit=1)
    if not rest:
        return file, [], []
    first, *others = re.split(r"&(target|drop)=", rest[1])
    pairs = list(zip([rest[0], *others[::2]], [first, *others[1::2]], strict=True))
    targets, drop = ([name for kind, name in pairs if kind == k and name] for k in _PARTS)
    return file, targets, drop


def _parse(kind: str, rest: str, dimension: int, columns: Sequence[Column]) -> Domain:
    if kind == "data":
        file, targets, drop = split_source(rest)
        found = read_table(Path(file), targets, dimension, text=True, columns=columns, drop=drop)
        return Box.around(found.x)
    if rest.startswith("@"):
        names = tuple(KINDS[kind].fields)
        arrays = read_arrays(Path(rest[1:]), names)
        return KINDS[kind].from_dict(dict(zip(names, arrays, strict=True)))
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if kind == "box" and len(numbers) == 2 and not np.isfinite(numbers).all():
        raise InvalidDomainError(
            f"domain 'box:{rest}' has a NaN or infinite end; write two finite numbers, such as "
            "box:-1,1, or data:train.csv for the box around a table"
        )
    if kind == "box" and len(numbers) == 2:
        return Box.cube(dimension, *numbers)
    if kind == "ball" and len(numbers) == 1:
        return Ball(np.zeros(dimension), numbers[0])
    raise InvalidDomainError(
        f"domain '{kind}:{rest}' is not understood; write box:LO,HI or ball:RADIUS, or "
        f"{kind}:@file.npz"
    )
