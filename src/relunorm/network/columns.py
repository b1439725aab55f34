"""How the rows of a table become inputs: which column is which input, words, what fills a gap.

A model that was fitted to a table with words and gaps needs more than its weights to read that
table again. A `Network` carries its columns where they are known, and so do its files.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relunorm.errors import InvalidInputError, InvalidNetworkError, TableNote


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: as the table's first line has it.
        words: for a column of words, those that have an input of their own, which is 1 where the
            cell holds that word and 0 elsewhere; empty for a column of numbers.
        fill: the number that stands for an empty cell; None where there may be none.

    >>> Column("city", ("Oslo", "Rome")).inputs
    ('city=Oslo', 'city=Rome')
    """

    name: str
    words: tuple[str, ...] = ()
    fill: float | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the network's inputs that the column gives."""
        return tuple(f"{self.name}={word}" for word in self.words) or (self.name,)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; `columns_from` reads it back."""
        return {"name": self.name, "words": list(self.words), "fill": self.fill}


def input_names(columns: Iterable[Column]) -> tuple[str, ...]:
    """The names of all inputs, in order."""
    return tuple(name for column in columns for name in column.inputs)


def matched(
    columns: Sequence[Column], names: Iterable[str], others: Iterable[str] = ()
) -> tuple[Column, ...]:
    """The columns under the names that a table has for them.

    Exporters replace characters of names (skl2onnx writes ``a/b`` as ``a_b``), and people write
    ``Age`` for ``age``. A column that the table does not have is taken for the only one there that
    differs from it in such characters alone, else for the only one that differs in those, in case
    and in spaces around it, with a warning. ``others`` are names that are no inputs: targets.

    >>> matched([Column("size")], ["price", "size"])
    (Column(name='size', words=(), fill=None),)
    """
    there, taken = list(names), {column.name for column in columns} | set(others)
    found: dict[str, str] = {}
    for spelling in (_exported, _folded):
        found |= _pairs(
            [c.name for c in columns if c.name not in there and c.name not in found],
            [n for n in there if n not in taken | set(found.values())],
            spelling,
        )
    if found:
        pairs = ", ".join(f"{theirs!r} for {ours!r}" for ours, theirs in found.items())
        warnings.warn(
            f"the table's {pairs}: the model spells the name otherwise",
            TableNote,
            stacklevel=2,
        )
    return tuple(replace(c, name=found[c.name]) if c.name in found else c for c in columns)


def _pairs(lost: list[str], free: list[str], spelling: Callable[[str], str]) -> dict[str, str]:
    """The names that are alike in a spelling which no other name has."""
    ours, theirs = [spelling(name) for name in lost], [spelling(name) for name in free]
    return {
        name: free[theirs.index(key)]
        for name, key in zip(lost, ours, strict=True)
        if ours.count(key) == theirs.count(key) == 1
    }


def _exported(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _folded(name: str) -> str:
    return _exported(name.strip()).casefold()


def arranged(rows: Any, columns: Sequence[Column]) -> Any:
    """The columns of a DataFrame that a network reads, in its order; other rows as they are.

    Gaps of a DataFrame are filled where the network knows by what.
    A sparse matrix, as encoders give one, becomes an array.
    """
    if hasattr(rows, "toarray"):  # the one name that all sparse types of scipy share
        return rows.toarray()
    given = getattr(rows, "columns", None)
    if not columns or given is None or not all(isinstance(name, str) for name in given):
        return rows
    columns = matched(columns, given)
    wanted, there = list(input_names(columns)), set(given)
    if any(column.words and column.name in there for column in columns):
        return rows  # words are read from files only
    missing = [name for name in wanted if name not in there]
    if missing:
        raise InvalidInputError(
            f"the model reads the columns {', '.join(wanted)}, but the table has no "
            f"{', '.join(missing)}; it has {', '.join(given)}"
        )
    fills = {column.name: column.fill for column in columns if column.fill is not None}
    return rows[wanted].fillna(fills) if fills and hasattr(rows, "fillna") else rows[wanted]


def apart(rows: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """A DataFrame without the columns of these names, and them: of one name, the column."""
    there = getattr(rows, "columns", None)
    if there is None or not hasattr(rows, "drop"):
        raise InvalidInputError(
            f"target is {names[0]!r}, a name, but the data is no DataFrame; pass the column itself"
        )
    for name in names:
        if name not in there:
            raise InvalidInputError(
                f"the data has no column {name!r}; it has {', '.join(map(str, there))}"
            )
    return rows.drop(columns=list(names)), rows[names[0] if len(names) == 1 else list(names)]


def columns_from(listed: Any) -> tuple[Column, ...]:
    """The columns whose `Column.to_dict` are listed."""
    try:
        return tuple(
            Column(
                str(c["name"]),
                tuple(map(str, c["words"])),
                None if c["fill"] is None else float(c["fill"]),
            )
            for c in listed
        )
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidNetworkError(f"the columns of its table cannot be read ({error!r})") from None


def check_columns(columns: Sequence[Column], inputs: int, where: str) -> None:
    """Raise `InvalidNetworkError` unless there are none, or they give so many inputs."""
    names = input_names(columns)
    if columns and (len(names) != inputs or len(set(names)) != inputs):
        raise InvalidNetworkError(
            f"{where}{len(names)} inputs from the columns of a table, but the network has {inputs}"
        )
