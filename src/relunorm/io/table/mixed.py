"""Text tables with words and gaps in them: one column of 0 and 1 for each word, NaN for a gap."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError, UnsupportedFormatError
from relunorm.io.table import Table
from relunorm.io.table.csv import CsvShape, csv_shape, is_gap, open_text, parse_number

#: Different words of a column above which it is a name, not a kind.
MOST_WORDS = 100


def read_mixed(
    path: Path, target: str, *, one_hot: bool, gaps: bool, labels: bool = False
) -> Table:
    """A .csv table (also .txt, .tsv, .gz) whose inputs may hold words, or gaps, or both.

    Args:
        target: the column to predict; it may have no gaps.
        one_hot: whether an input with words becomes one column a word, named ``column=word``; a gap
            in it is 0 in all of them.
        gaps: whether empty cells, NA and the like are NaN in the table.
        labels: whether the target may hold words.

    Raises:
        InvalidInputError: the first line and column that cannot be used.
    """
    shape = csv_shape(path, target)
    if shape is None:
        raise UnsupportedFormatError(f"{path}: words and gaps are read from .csv tables only")
    cells = _cells(path, shape)
    names: list[str] = []
    parts: list[NDArray[np.float64]] = []
    y, classes = np.empty(0), ()
    for name, column in zip(shape.names, cells, strict=True):
        numbers, words = _numbers(column, shape)
        for line, cell in enumerate(column, start=shape.first_line):
            if is_gap(cell) and (name == target or not gaps):
                hint = "the target may have none" if name == target else "use --missing median"
                raise InvalidInputError(f"{path}: line {line}, column {name!r}: a gap; {hint}")
        if name == target:
            if words and not labels:
                raise InvalidInputError(
                    f"{path}: column {name!r} holds words such as {words[0]!r}; this is the "
                    "target: use --classify"
                )
            classes = tuple(words) if words else ()
            y = np.array([float(words.index(c.strip())) for c in column]) if words else numbers
        elif not words:
            names.append(name)
            parts.append(numbers)
        elif one_hot and len(words) <= MOST_WORDS:
            names += [f"{name}={word}" for word in words]
            parts += [np.array([float(c.strip() == word) for c in column]) for word in words]
        else:
            fix = "drop the column" if one_hot else "drop the column, or use --one-hot"
            raise InvalidInputError(
                f"{path}: column {name!r} holds {len(words)} different words such as {words[0]!r}; "
                f"{fix}"
            )
    if not parts:
        raise InvalidInputError(f"{path}: no input column is left beside {target!r}")
    x = np.column_stack(parts)
    if np.isinf(x).any() or not np.isfinite(y).all():
        raise InvalidInputError(f"{path}: the table holds infinite values, or NaN in the target")
    return replace(Table(x, y, tuple(names), target), classes=classes)


def _cells(path: Path, shape: CsvShape) -> list[list[str]]:
    """The columns as text."""
    rows: list[list[str]] = []
    with open_text(path) as file:
        for line, row in enumerate(csv.reader(file, delimiter=shape.delimiter), start=1):
            if line < shape.first_line or not row:
                continue
            if len(row) != len(shape.names):
                raise InvalidInputError(
                    f"{path}: line {line} has {len(row)} cells, expected {len(shape.names)}"
                )
            rows.append(row)
    return [list(column) for column in zip(*rows, strict=True)]


def _numbers(column: list[str], shape: CsvShape) -> tuple[NDArray[np.float64], list[str]]:
    """The column as numbers, NaN for gaps, and the different words in it, sorted."""
    values = np.full(len(column), np.nan)
    plain = True
    for at, cell in enumerate(column):
        if is_gap(cell):
            continue
        number = parse_number(cell, shape)
        plain = plain and number is not None
        values[at] = np.nan if number is None else number
    words = [] if plain else sorted({cell.strip() for cell in column if not is_gap(cell)})
    return values, words
