"""``--data``: a file, or the data of an example."""

from __future__ import annotations

from pathlib import Path

from relunorm.io.table import Table, read_table
from relunorm.network import Network


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
