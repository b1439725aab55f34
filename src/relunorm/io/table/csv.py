"""Text tables in: delimiter, names, encoding, decimal commas and .gz found out from the file."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import counted
from relunorm.errors import InvalidInputError

#: What may stand between two cells, likeliest first; spaces only where none of these is there.
DELIMITERS = ",;\t|"

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_QUOTED = re.compile(r'"[^"]*"')


#: Columns (n, d), their names, and the labels that the numbers in one of them stand for.
Columns = tuple[NDArray[np.float64], list[str], tuple[str, ...]]


def read_csv(
    path: Path, targets: Sequence[str] = (), label: str = "", drop: Sequence[str] = ()
) -> Columns:
    """The columns of a text table, named x0, x1, ... if it has no names.

    Args:
        path: UTF-8 or UTF-16, with or without its mark, also compressed by gzip.
        targets: columns that have to be there; a text there is met differently from one elsewhere.
        label: the column that may hold labels instead of numbers.
        drop: columns that are passed over; they may hold anything.
    """
    try:
        return _read(path, targets, label, drop)
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise InvalidInputError(
            f"{path}: byte 0x{wrong:02x} is not UTF-8; save the table as UTF-8 first"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: not a readable .gz file ({error})") from None


@dataclass(frozen=True)
class CsvShape:
    """How a text table is written."""

    delimiter: str
    names: list[str]
    first_line: int
    width: int
    at: list[int]


def csv_shape(path: Path, targets: Sequence[str] = (), drop: Sequence[str] = ()) -> CsvShape | None:
    """Delimiter and names, found out from the first line; None if the ending says no text table."""
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if bare.suffix.lower() not in (".csv", ".txt", ".tsv"):
        return None
    with open_text(path) as file:
        head = file.readline()
        filled = bool(head.strip()) and any(line.strip() for line in file)
    if not head.strip():
        raise InvalidInputError(f"{path}: the table is empty")
    delimiter = _delimiter(head)
    # numpy.savetxt writes its header as a comment
    first = next(csv.reader([head.lstrip("# ")], delimiter=delimiter, skipinitialspace=True))
    has_names = not all(_is_number(cell) for cell in first)
    names = [f"x{k}" for k in range(len(first))]
    if has_names:
        names = [cell.strip() or f"Unnamed: {k}" for k, cell in enumerate(first)]
        _check_names(path, first, names, drop)
        if not filled:
            raise InvalidInputError(f"{path}: the table has names but no rows")
    if len(names) > 1:  # one alone may hold them all, with a strange separator
        check_columns(path, names, [*targets, *drop])
    at = [k for k, name in enumerate(names) if name not in drop]
    return CsvShape(delimiter, [names[k] for k in at], 1 + has_names, len(names), at)


def _read(path: Path, targets: Sequence[str], label: str, drop: Sequence[str]) -> Columns:
    shape = csv_shape(path, targets, drop)
    assert shape is not None
    names, fault = shape.names, ""
    # cells are converted one by one only where the fast reader met something else than numbers
    readers = [None, _number] if shape.delimiter == "," else [None, _number, _european]
    for text in (False, True) if label in names else (False,):
        for convert in readers:
            try:
                if text:
                    return _with_labels(path, shape, label, convert)
                numbers = _numbers(path, shape, shape.at if drop else None, convert)
            except UnicodeDecodeError:
                raise
            except ValueError as error:
                fault = str(error)
            else:
                if numbers.shape[1] == len(names):
                    return numbers, names, ()
                fault = f"{len(names)} names in the first line, but {numbers.shape[1]} of numbers"
    _check_cells(path, shape, targets, label)
    raise InvalidInputError(f"{path}: {fault}")


def _numbers(
    path: Path, shape: CsvShape, columns: list[int] | None, convert: Any
) -> NDArray[np.float64]:
    with open_text(path) as file:
        return np.loadtxt(
            file,
            delimiter=None if shape.delimiter == " " else shape.delimiter,
            skiprows=shape.first_line - 1,
            usecols=columns,
            ndmin=2,
            quotechar='"',
            comments=None,
            converters=convert,
        )


def _with_labels(path: Path, shape: CsvShape, label: str, convert: Any) -> Columns:
    at = shape.names.index(label)
    codes, classes = as_labels(path, label, [row[at] for _, row in rows_of(path, shape)])
    others = shape.at[:at] + shape.at[at + 1 :]
    numbers = _numbers(path, shape, others, convert) if others else np.empty((len(codes), 0))
    return np.insert(numbers, at, codes, axis=1), shape.names, classes


def as_labels(
    path: Path, column: str, cells: Sequence[str]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """The number of each label among all of them, sorted, and the labels."""
    missing = next((cell for cell in cells if not is_label(cell)), None)
    if missing is not None:
        raise InvalidInputError(
            f"{path}: column {column!r}: {missing!r} is no label; drop such rows"
        )
    labels = [cell.strip() for cell in cells]
    number = {label: float(k) for k, label in enumerate(sorted(set(labels)))}
    return np.array([number[label] for label in labels]), tuple(number)


def rows_of(path: Path, shape: CsvShape) -> Iterator[tuple[int, list[str]]]:
    """The number of every line, and its cells without those of columns that are left out."""
    spaces = shape.delimiter == " "
    with open_text(path) as file:
        lines = csv.reader(file, delimiter=shape.delimiter, skipinitialspace=spaces)
        for line, row in enumerate(lines, start=1):
            if line < shape.first_line or not row:
                continue
            if len(row) != shape.width:
                cells = counted(len(row), "cell")
                raise InvalidInputError(f"{path}: line {line} has {cells}, expected {shape.width}")
            yield line, [row[k] for k in shape.at]


def open_text(path: Path) -> TextIO:
    """The text of the file, whatever its compression and encoding."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    kind: Any = gzip.open if zipped else open
    with kind(path, "rb") as file:
        head = file.read(4096)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return kind(path, "rt", newline="", encoding="utf-16")
    if b"\0" in head:
        raise InvalidInputError(f"{path}: holds null bytes; expected text in UTF-8 (or UTF-16)")
    return kind(path, "rt", newline="", encoding="utf-8-sig")


def _delimiter(head: str) -> str:
    """What separates the cells of the first line, quoted text aside."""
    bare = _QUOTED.sub("", head)
    best = max(DELIMITERS, key=bare.count)
    return " " if best not in bare and " " in bare.strip() else best


def _check_names(path: Path, cells: list[str], names: list[str], drop: Sequence[str]) -> None:
    """Refuse columns without a name, which are dropped by the one that pandas gives them."""
    bare = [n for n, cell in zip(names, cells, strict=True) if not cell.strip() and n not in drop]
    if bare:
        raise InvalidInputError(
            f"{path}: column {names.index(bare[0]) + 1} has no name; name it, or leave it out if "
            f"it only counts the rows: {drop_hint(bare[0])} (pandas: to_csv(..., index=False))"
        )
    check_distinct(path, [name for name in names if name not in drop])


def check_distinct(path: Path, names: list[str]) -> None:
    """Refuse a table in which a name could mean either of two columns."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"{path}: two columns have the same name {twice[0]!r}; rename or drop one of them"
        )


def check_columns(path: Path, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse the name of a column that is not there."""
    lost = next((name for name in wanted if name not in names), None)
    if lost is None:
        return
    close = get_close_matches(lost.lower(), [name.lower() for name in names], 1)
    near = [name for name in names if name.lower() in close]
    raise InvalidInputError(
        f"{path}: there is no column {lost!r}; the columns are {listed(names)}"
        + (f". Did you mean {near[0]!r}?" if near else "")
    )


def listed(names: Sequence[str]) -> str:
    """The first names of many."""
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def target_hint(path: Path, column: str = "NAME") -> str:
    """How to say which column is the target."""
    return f"--target {column}, or data:{path.name}?target={column} where a domain is asked for"


def _check_cells(path: Path, shape: CsvShape, targets: Sequence[str], label: str) -> None:
    """Raise for the first cell that a reader could not use."""
    names = shape.names
    for line, row in rows_of(path, shape):
        for name, cell in zip(names, row, strict=True):
            if not (is_label if name == label else _is_number)(cell):
                hint = _hint(cell, name, names, targets)
                if not targets and is_label(cell) and len(names) > 1:
                    hint += f"; if it is the target, name it: {target_hint(path, name)}"
                shown = repr(cell) if cell.strip() else "an empty cell"
                raise InvalidInputError(
                    f"{path}: line {line}, column {name!r}: {shown} is not a number; {hint}"
                )


def _hint(cell: str, name: str, names: list[str], targets: Sequence[str]) -> str:
    if re.fullmatch(r"[+-]?[\d.]*,[\d.,]*", cell.strip()):
        return (
            "with decimal commas, separate the columns by semicolons or tabs and use no decimal "
            "point; commas between thousands must go"
        )
    if is_gap(cell):
        return "fill or drop missing values first"
    if len(names) == 1:
        return "is there a separator other than comma, semicolon, tab, | and spaces?"
    if name in targets:
        return (
            "this is the target, and a regression predicts numbers: for classes use fit --classify"
        )
    if spelled := spelling([cell]):
        return f"this is {spelled[0]}: {spelled[1]}, or leave the column out ({drop_hint(name)})"
    return (
        f"drop the column ({drop_hint(name)}) or encode it, and fill or drop missing values first"
    )


def drop_hint(column: str) -> str:
    """How to leave a column out."""
    return f"--drop {quote(column)}"


_MONEY = "[$\u00a2\u00a3\u00a5\u20ac%]?"
_SPELLED_NUMBER = re.compile(rf"[+-]?{_MONEY}\s?[+-]?\d[\d.,' ]*\s?{_MONEY}")
_DATE = re.compile(r"(\d{1,4}([-/.])\d{1,2}\2\d{1,4}([ T].*)?|\d{1,2}:\d\d(:\d\d.*)?)")


def spelling(words: Collection[str]) -> tuple[str, str] | None:
    """What nearly all of these words are that are no numbers as they stand, and what to do.

    >>> spelling(["1,002", "10%"])[0], spelling(["2024-01-31"])[0], spelling(["3 rooms"])
    ('a number written as text', 'a date or a time', None)
    """
    for kind, what, advice in (
        (_DATE, "a date or a time", "write numbers, such as days since the first"),
        (
            _SPELLED_NUMBER,
            "a number written as text",
            "write plain numbers, without signs such as % or $ and without commas between "
            "thousands",
        ),
    ):
        if sum(kind.fullmatch(word.strip()) is not None for word in words) > 0.9 * len(words):
            return what, advice
    return None


def is_gap(cell: str, *, words: bool = False) -> bool:
    """Whether a cell says that there is no value.

    Args:
        words: whether it stands in a column of words, in which "none" is one like any other.
    """
    text = cell.strip().lower()
    return text in ("", "na", "n/a", "nan", "null", "?", "-") or (text == "none" and not words)


def parse_number(cell: str, shape: CsvShape) -> float | None:
    """A cell as a number, decimal commas where they cannot separate cells; None for words."""
    for read in (_number,) if shape.delimiter == "," else (_number, _european):
        try:
            return read(cell)
        except ValueError:
            continue
    return None


def _number(cell: str) -> float:
    """A cell as a number; true and false are 1 and 0, as in other kinds of table."""
    truth = {"true": 1.0, "false": 0.0}.get(cell.strip().lower())
    if truth is not None:
        return truth
    if "_" in cell:
        raise ValueError(cell)  # Python reads 1_000; no other program does
    return float(cell)


def _european(cell: str) -> float:
    """A cell with a decimal comma, or without any fraction."""
    if "." in cell:
        raise ValueError(cell)
    comma = _DECIMAL_COMMA.fullmatch(cell.strip())
    return float(cell.replace(",", ".")) if comma else _number(cell)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def is_label(cell: str) -> bool:
    """Whether a cell holds something: empty ones and nan are missing values."""
    return cell.strip().lower() not in ("", "nan")
