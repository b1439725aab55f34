"""``--data``, a file or the data of an example, and ``--slice``, a plane through the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relunorm.errors import InvalidInputError
from relunorm.io.table import Table, read_table
from relunorm.network import Network

if TYPE_CHECKING:
    from relunorm.domain import Domain
    from relunorm.io.table import Table
    from relunorm.network import Network
    from relunorm.report.plane import Plane


def parse_table(
    text: str, target: str | None, network: Network, *, labels: bool = False, finite: bool = True
) -> Table:
    """The table of ``train.csv`` or ``example:moons``, as the network's inputs; see `read_table`.

    Args:
        labels: whether the target may hold text.
        finite: whether NaN and infinite values are an error.
    """
    from relunorm.examples import example_data_path

    name = text.removeprefix("example:")
    path = Path(text) if name == text else example_data_path(name)
    return read_table(
        path, target, network.input_size, text=labels, finite=finite, columns=network.columns
    )


def parse_slice(text: str, table: Table | None = None) -> Any:
    """Two inputs by number or name, or three points: rows of the table, or of a file.

    >>> parse_slice("0,3")
    (0, 3)
    """
    if text.startswith("@"):
        try:
            return np.load(text[1:], allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InvalidInputError(f"{text[1:]} is not an array file: {error}") from None
    if text.startswith("rows:"):
        return _rows(text, table)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidInputError(
            f"--slice {text!r}: write two inputs such as 0,3, rows:4,17,30 or @points.npy"
        )
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _rows(text: str, table: Table | None) -> Any:
    if table is None:
        raise InvalidInputError(f"--slice {text!r} names rows of --data, which was not given")
    try:
        picks = [int(part) for part in text.removeprefix("rows:").split(",")]
    except ValueError:
        picks = []
    if len(picks) != 3 or not all(0 <= k < len(table.x) for k in picks):
        raise InvalidInputError(
            f"--slice {text!r}: write three rows from 0 to {len(table.x) - 1}, as rows:4,17,30"
        )
    return table.x[picks]


def plane_of(network: Network, text: str, domain: Domain | None) -> Plane:
    """The plane behind `--slice`, with the window it is seen in."""
    from relunorm.report.case import make_case
    from relunorm.report.plane import choose_plane

    return choose_plane(make_case(network, None, None, domain, name="", plane=parse_slice(text)))
