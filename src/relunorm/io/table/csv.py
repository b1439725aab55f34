"""Text tables in: delimiter, names, encoding, decimal commas and .gz found out from the file."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError

#: What may stand between two cells, likeliest first; spaces only where none of these is there.
DELIMITERS = ",;\t|"

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_QUOTED = re.compile(r'"[^"]*"')


def read_csv(
    path: Path,
    targets: Sequence[str] = (),
    labels: Labels | None = None,
    drop: Sequence[str] = (),
) -> tuple[NDArray[np.float64], list[str]]:
    """The columns (n, d) of a text table and their names (x0, x1, ... if it has none).

    Args:
        path: UTF-8 or UTF-16, with or without its mark, also compressed by gzip.
        targets: columns that have to be there; a text there is met differently from one elsewhere.
        labels: takes the text of its column, if that does not hold numbers.
        drop: columns that are passed over; they may hold anything.
    """
    try:
        return _read(path, targets, labels, drop)
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


def _read(
    path: Path, targets: Sequence[str], labels: Labels | None, drop: Sequence[str]
) -> tuple[NDArray[np.float64], list[str]]:
    shape = csv_shape(path, targets, drop)
    assert shape is not None
    delimiter, names = shape.delimiter, shape.names
    # cells are converted one by one only where the fast reader met something else than numbers
    readers = [_number] if delimiter == "," else [_number, _european]
    converters: list[Any] = [None, *readers]
    if labels is not None and labels.column in names:
        at = shape.at[names.index(labels.column)]
        converters += [dict.fromkeys(shape.at, read) | {at: labels.number} for read in readers]
    fault = ""
    for converter in converters:
        try:
            with open_text(path) as file:
                numbers = np.loadtxt(
                    file,
                    delimiter=None if delimiter == " " else delimiter,
                    skiprows=shape.first_line - 1,
                    usecols=shape.at if drop else None,
                    ndmin=2,
                    quotechar='"',
                    comments=None,
                    converters=converter,
                )
            return _same_width(path, numbers, names), names
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            fault = str(error)
    fault = _first_fault(path, shape, targets, labels) or fault
    raise InvalidInputError(f"{path}: {fault}")


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


def _same_width(path: Path, numbers: NDArray[np.float64], names: list[str]) -> NDArray[np.float64]:
    if numbers.shape[1] != len(names):
        raise InvalidInputError(
            f"{path}: {len(names)} names in the first line, but {numbers.shape[1]} columns of "
            "numbers"
        )
    return numbers


def _first_fault(path: Path, shape: CsvShape, targets: Sequence[str], labels: Labels | None) -> str:
    """Which cell a reader could not use, for the error message."""
    names = shape.names
    with open_text(path) as file:
        for line, row in enumerate(csv.reader(file, delimiter=shape.delimiter), start=1):
            if line < shape.first_line or not row:
                continue
            if len(row) != shape.width:
                cells = f"{len(row)} cell{'s' if len(row) != 1 else ''}"
                return f"line {line} has {cells}, expected {shape.width}"
            for name, k in zip(names, shape.at, strict=True):
                cell = row[k]
                usable = is_label if labels is not None and name == labels.column else _is_number
                if not usable(cell):
                    hint = _hint(cell, name, names, targets)
                    if not targets and is_label(cell) and len(names) > 1:
                        hint += f"; if it is the target, name it: {target_hint(path, name)}"
                    shown = repr(cell) if cell.strip() else "an empty cell"
                    return f"line {line}, column {name!r}: {shown} is not a number; {hint}"
    return ""


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


@dataclass
class Labels:
    """Numbers for the labels of one column, in the order they are met.

    >>> labels = Labels("kind")
    >>> codes = labels.numbers(["oak", "ash", "oak"])
    >>> labels.sort(codes)
    (array([1., 0., 1.]), ('ash', 'oak'))
    """

    column: str
    seen: dict[str, int] = field(default_factory=dict)

    def number(self, cell: str) -> float:
        """The label's number; a missing value is an error as anywhere else."""
        label = cell.strip()
        if not is_label(label):
            raise ValueError(f"{cell!r} is no label")
        return float(self.seen.setdefault(label, len(self.seen)))

    def numbers(self, cells: Iterable[str]) -> NDArray[np.float64]:
        """The number of each label."""
        return np.array([self.number(cell) for cell in cells])

    def sort(self, y: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """The column with the labels numbered in sorted order, and the labels."""
        order = np.argsort(list(self.seen))  # order[k]: the number, as met, of the k-th label
        return np.argsort(order)[y.astype(np.intp)].astype(np.float64), tuple(sorted(self.seen))
