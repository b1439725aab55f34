"""Tables with words and gaps in them: one column of 0 and 1 for each word, NaN for a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError, UnsupportedFormatError
from relunorm.io.table import Table, as_targets, open_parquet
from relunorm.io.table.csv import (
    CsvShape,
    check_columns,
    csv_shape,
    drop_hint,
    is_gap,
    parse_number,
    rows_of,
    spelling,
)
from relunorm.network.columns import Column, input_names, matched

#: Different words of a column above which it is a name, not a kind.
MOST_WORDS = 100

#: Different words up to which a column may be one of kinds, though most of them are numbers.
FEW_WORDS = 20
#: The share of cells that are no numbers, up to which a column is one of numbers.
SLIPS = 0.1

Cells = dict[str, list[str]]


def read_mixed(
    path: Path,
    target: str | Sequence[str],
    *,
    one_hot: bool,
    gaps: bool,
    labels: bool = False,
    drop: Sequence[str] = (),
) -> Table:
    """A .csv (also .txt, .tsv, .gz) or .parquet table whose inputs may hold words or gaps.

    Args:
        target: the column to predict, or several; they may have no gaps.
        one_hot: whether an input with words becomes one column a word, named ``column=word``; a gap
            in it is 0 in all of them.
        gaps: whether empty cells, NA and the like are NaN in the table.
    """
    targets = as_targets(path, target)
    shape, cells = _cells(path, targets, drop)
    columns = []
    for name in shape.names:
        if name in targets:
            continue
        if all(map(is_gap, cells[name])):
            raise InvalidInputError(
                f"{path}: column {name!r} is empty; leave it out: {drop_hint(name)}"
            )
        words = _words(cells[name], shape)
        if words and (not one_hot or len(words) > FEW_WORDS):
            _check_numbers(path, shape, name, cells[name])
        if words and (not one_hot or len(words) > MOST_WORDS):
            raise InvalidInputError(f"{path}: column {name!r} {_too_many(words, name)}")
        columns.append(Column(name, tuple(words)))
    if not columns:
        raise InvalidInputError(f"{path}: no input column is left beside {', '.join(targets)}")
    return _table(path, shape, cells, columns, targets, gaps, labels, "use --missing median")


def _too_many(words: list[str], name: str) -> str:
    """What is wrong with a column of so many words, and what to do."""
    out = f"leave the column out: {drop_hint(name)}"
    if spelled := spelling(words):
        return f"holds {words[0]!r}, which is {spelled[0]}; {spelled[1]}, or {out}"
    if len(words) <= MOST_WORDS:
        out += ", or use --one-hot"
    return f"holds {len(words)} different words such as {words[0]!r}; {out}"


def read_columns(
    path: Path,
    targets: Sequence[str],
    columns: Sequence[Column],
    *,
    labels: bool = False,
    gaps: bool = False,
    drop: Sequence[str] = (),
) -> Table:
    """A table as the inputs of a network that knows its columns; others are passed over.

    Args:
        labels: whether the target may hold words.
        gaps: whether an empty cell that nothing fills is NaN; it is an error otherwise.
        drop: columns that are passed over, and may not be those of the network.
    """
    shape, cells = _cells(path, targets, drop)
    columns = matched(columns, shape.names, targets)
    check_columns(path, shape.names, [column.name for column in columns])
    return _table(path, shape, cells, columns, targets, gaps, labels, "fill or drop it first")


def _check_numbers(path: Path, shape: CsvShape, name: str, cells: list[str]) -> None:
    """Raise for the first cell that is no number, in a column where nearly all of them are."""
    full = [(at, cell) for at, cell in enumerate(cells) if not is_gap(cell)]
    strange = [(at, cell) for at, cell in full if parse_number(cell, shape) is None]
    if len(strange) <= SLIPS * len(full):
        at, cell = strange[0]
        raise InvalidInputError(
            f"{path}: line {at + shape.first_line}, column {name!r}: {cell.strip()!r} is not a "
            f"number, unlike {len(full) - len(strange):,} of its {len(full):,} cells; correct it, "
            "or leave the cell empty and use --missing median"
        )


def _table(
    path: Path,
    shape: CsvShape,
    cells: Cells,
    columns: Sequence[Column],
    targets: Sequence[str],
    gaps: bool,
    labels: bool,
    advice: str,
) -> Table:
    x = np.column_stack([_inputs(path, shape, c, cells[c.name], gaps, advice) for c in columns])
    table = Table(x, None, input_names(columns), columns=tuple(columns))
    found: list[NDArray[np.float64]] = []
    words: list[str] = []
    for target in targets:
        words = _words(cells[target], shape)
        if words and not (labels and len(targets) == 1):
            use = "use --classify" if len(targets) == 1 else "several targets are numbers"
            raise InvalidInputError(
                f"{path}: column {target!r} holds words such as {words[0]!r}; this is the target: "
                + use
            )
        goal = Column(target, tuple(words))
        y = _inputs(path, shape, goal, cells[target], False, "the target may have none")
        found.append(y.argmax(axis=1).astype(np.float64) if words else y[:, 0])
    if not found:
        return table
    y = found[0] if len(found) == 1 else np.column_stack(found)
    return replace(table, y=y, target=", ".join(targets), classes=tuple(words))


def _inputs(
    path: Path, shape: CsvShape, column: Column, cells: list[str], gaps: bool, advice: str
) -> NDArray[np.float64]:
    """The inputs of one column, (n, 1) or one column for each of its words."""
    values = np.zeros((len(cells), len(column.inputs)))
    place = {word: k for k, word in enumerate(column.words)}
    for at, cell in enumerate(cells):
        word = cell.strip()
        number, fault = None if place else parse_number(cell, shape), ""
        if word in place:
            values[at, place[word]] = 1.0
        elif number is not None and np.isinf(number):
            fault = f"{word} is infinite"
        elif number is not None and number == number:
            values[at] = number
        elif not is_gap(cell, words=bool(place)):
            known = f"one of {', '.join(column.words[:10])}" if place else "a number"
            fault = f"{word!r} is not {known}"
        elif not gaps and column.fill is None:
            fault = f"a gap; {advice}"
        elif not place:
            values[at] = np.nan if column.fill is None else column.fill
        if fault:
            line = at + shape.first_line
            raise InvalidInputError(f"{path}: line {line}, column {column.name!r}: {fault}")
    return values


def _cells(path: Path, targets: Sequence[str], drop: Sequence[str]) -> tuple[CsvShape, Cells]:
    """The columns as text, empty where there is no value; of a .parquet file line 1 is row 1."""
    if path.suffix.lower() == ".parquet":
        table = open_parquet(path, targets, drop)
        lists = {name: table[name].to_pylist() for name in table.column_names}
        cells = {
            name: ["" if cell is None else str(cell) for cell in column]
            for name, column in lists.items()
        }
        names = table.column_names
        return CsvShape(",", names, 1, len(names), list(range(len(names)))), cells
    shape = csv_shape(path, targets, drop)
    if shape is None:
        raise UnsupportedFormatError(
            f"{path}: words and gaps are read from .csv and .parquet tables only"
        )
    rows = [row for _, row in rows_of(path, shape)]
    return shape, {name: [row[k] for row in rows] for k, name in enumerate(shape.names)}


def _words(cells: list[str], shape: CsvShape) -> list[str]:
    """The different words of a column, sorted; none for a column of numbers."""
    if all(is_gap(cell) or parse_number(cell, shape) is not None for cell in cells):
        return []
    return sorted({cell.strip() for cell in cells if not is_gap(cell, words=True)})
