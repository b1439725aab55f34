"""What commands read: models, domains, ``--data`` (a file or that of an example), ``--slice``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.domain import Domain
    from relunorm.io.table import Table
    from relunorm.network import Network
    from relunorm.report.plane import Plane

Number = TypeVar("Number", int, float)


def opened(
    model: str, domain: str | None = None, example: str | None = None
) -> tuple[Network, Any]:
    """The network of a file, and the domain behind `--domain`; None where it was not given."""
    from relunorm.io import load
    from relunorm.io.domains import parse_domain

    shape = None
    if example is not None:
        shape = tuple(numbers(example, int, f"{example!r} is not a shape; write it as 1,28,28"))
    network = load(model, shape)
    return network, None if domain is None else parse_domain(domain, network)


def numbers(text: str, kind: type[Number], expected: str) -> list[Number]:
    """Numbers with commas between them; ``expected`` is what an error says."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInputError(expected) from None


def array_file(path: str) -> Any:
    """The array of a .npy file."""
    from numpy.lib.format import read_array

    with open(path, "rb") as file:
        try:
            return read_array(file, allow_pickle=False)
        except ValueError as error:
            raise InvalidInputError(f"{path} is not an array file (.npy): {error}") from None


def parse_table(
    text: str,
    targets: Sequence[str] | None,
    drop: Sequence[str] | None,
    network: Network,
    *,
    finite: bool = True,
) -> Table:
    """The table of ``train.csv`` or ``example:moons``, as the network's inputs; see `read_table`."""
    from relunorm.examples import example_data_path
    from relunorm.io.table import read_table

    name = text.removeprefix("example:")
    path = Path(text) if name == text else example_data_path(name)
    table = read_table(
        path, targets, network.input_size, text=True, finite=finite, columns=network.columns,
        drop=drop or (),
    )  # fmt: skip
    return table if name == text else replace(table, file=text)


def table_of(domain: str, network: Network) -> Table | None:
    """The table behind a domain ``data:train.csv?target=y``; None of another domain."""
    from relunorm.io.domains import split_source

    if not domain.startswith("data:"):
        return None
    return parse_table(*split_source(domain.removeprefix("data:")), network)


def parse_classes(text: str) -> list[str]:
    """The labels behind `--classes`, one line of csv."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InvalidInputError(
            f"--classes {text!r}: {error}; quote a class that holds a comma, and double the quotes "
            "in it"
        ) from None
    found = rows[0] if rows else []
    if not found or not all(label.strip() for label in found):
        raise InvalidInputError(f"--classes {text!r}: expected names between the commas: a,b,c")
    return found


def only(names: Sequence[str] | None, option: str) -> str | None:
    """The value of an option that may be given once."""
    if names is not None and len(names) > 1:
        raise InvalidInputError(f"{option} is given {len(names)} times; it takes one name here")
    return names[0] if names else None


def parse_slice(text: str, table: Table | None = None) -> Any:
    """Two inputs by number or name, or three points: rows of the table, or of a file.

    >>> parse_slice("0,3")
    (0, 3)
    """
    if text.startswith("@"):
        return array_file(text[1:])
    if text.startswith("rows:"):
        return _rows(text, table)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidInputError(
            f"--slice {text!r}: write two inputs such as 0,3, rows:4,17,30 or @points.npy"
        )
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _rows(text: str, table: Table | None) -> Any:
    if table is None:
        raise InvalidInputError(
            f"--slice {text!r} names rows of a table, which was not given; add --data train.csv"
        )
    last = len(table.x) - 1
    expected = f"--slice {text!r}: write three rows from 0 to {last}, as rows:4,17,30"
    picks = numbers(text.removeprefix("rows:"), int, expected)
    if len(picks) != 3 or not all(0 <= k <= last for k in picks):
        raise InvalidInputError(expected)
    return table.x[picks]


def plane_of(network: Network, text: str, domain: Domain | None, table: Table | None) -> Plane:
    """The plane behind `--slice`, with the window it is seen in; a table names rows and inputs."""
    from relunorm.report.case import make_case
    from relunorm.report.plane import choose_plane

    plane, names = parse_slice(text, table), None if table is None else table.own_names
    case = make_case(network, None, None, domain, name="", plane=plane, names=names, table=table)
    return choose_plane(case)
