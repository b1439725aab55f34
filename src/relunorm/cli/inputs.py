"""What commands read: models, domains, ``--data`` (a file or that of an example), ``--slice``; and
labels of a table that a model does not have, with the `--classes` that would read them."""

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

#: Rows that are asked which label stands for which class, at most.
ASKED = 4096


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
    """The table of ``train.csv`` or ``example:moons``, as the network's inputs (`read_table`)."""
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


def check_labels(table: Table, network: Network, *, some: bool = True) -> None:
    """Refuse labels that are none of the model's classes, and say what would read them.

    Args:
        some: whether it is enough that some labels are none; else all must be.
    """
    told = foreign_labels(table, network)
    if told and (some or not set(_known(network)) & set(_cells(table))):
        raise InvalidInputError(told)


def foreign_labels(table: Table, network: Network) -> str:
    """What is wrong with labels that the model lacks, with the `--classes` that would read them.

    Empty where all are known, and where no such option could help: then what is wrong is told where
    labels are read. A class that is spelled the same but for upper and lower case is the same; for
    the others the model is asked, and what it answers on most of a label's rows is its class. That
    is a guess, and it is called one.
    """
    known = _known(network)
    if not known or table.labels is None or table.labels.ndim > 1:
        return ""
    cells = _cells(table)
    held, words = set(cells), isinstance(network.head.classes[0], str)
    strange, free = sorted(held - set(known)), [k for k, c in enumerate(known) if c not in held]
    if strange and not words:  # classes 1, 2, 3 and labels 0, 1, 2: none may mean the same
        strange, free = sorted(held), list(range(len(known)))
    if not strange or len(strange) > len(free):
        return ""
    if words and held <= {str(k) for k in range(len(known))}:
        return ""
    pairs = _spelled_alike(strange, free, known) if words else {}
    rest = [label for label in strange if label not in pairs]
    left = [k for k in free if k not in pairs.values()]
    pairs |= _answered(cells, rest, left, table, network)
    from relunorm.questions.classes import Classes

    names = list(known)
    for label, k in pairs.items():
        names[k] = label
    spelled = Classes(tuple(names), (), "given").spelled
    places = sorted(pairs, key=lambda label: pairs[label])
    are = ", ".join(f"{label} is {known[pairs[label]]}" for label in places)
    guess = " (which makes most rows right, a guess)" if rest else ""
    drop = "" if len(strange) == len(held) else "correct or drop such rows, or, "
    return (
        f"the target holds {', '.join(strange)}, but the model's classes are {', '.join(known)}; "
        f"{drop}if {are}{guess}, say --classes {spelled}"
    )


def _known(network: Network) -> list[str]:
    return [_text(name) for name in network.head.classes]


def _cells(table: Table) -> list[str]:
    labels: Any = table.labels
    return [_text(label) for label in labels.tolist()]


def _text(label: Any) -> str:
    """A label as text: 1, 1.0 and true are one."""
    whole = isinstance(label, bool) or (isinstance(label, float) and label.is_integer())
    return str(int(label)) if whole else str(label)


def _spelled_alike(strange: list[str], free: list[int], known: list[str]) -> dict[str, int]:
    """The labels that differ from one class only in case, where that is clear."""
    folded = [known[k].casefold() for k in free]
    wanted = [label.casefold() for label in strange]
    return {
        label: free[folded.index(key)]
        for label, key in zip(strange, wanted, strict=True)
        if folded.count(key) == wanted.count(key) == 1
    }


def _answered(
    cells: list[str], strange: list[str], free: list[int], table: Table, network: Network
) -> dict[str, int]:
    """The classes that are answered most on the rows of these labels, each class once."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    if not strange:
        return {}
    rows = [k for k, cell in enumerate(cells) if cell in set(strange)][:ASKED]
    outputs: Any = network(np.nan_to_num(table.x[rows]))
    if outputs.shape[1] == 1:
        outputs = np.concatenate([-outputs, outputs], axis=1)
    decided = outputs[:, free].argmax(axis=1)
    counts = np.zeros((len(strange), len(free)))
    np.add.at(counts, ([strange.index(cells[k]) for k in rows], decided), 1)
    pairs = zip(*linear_sum_assignment(counts, maximize=True), strict=True)
    return {strange[label]: free[place] for label, place in pairs}
