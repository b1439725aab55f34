"""Tables of numbers in: csv, npz, npy and parquet, with errors that name the row and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError, MissingDependencyError, UnsupportedFormatError


@dataclass(frozen=True)
class Table:
    """Rows of a data set.

    Attributes:
        x: shape (n, d), finite.
        y: shape (n,) or (n, outputs), or None when no target was asked for.
        names: one name per column of x.
        target: name of y's column, or "".
        classes: where y's column holds text, the different labels, sorted; y their numbers.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64] | None
    names: tuple[str, ...]
    target: str = ""
    classes: tuple[str, ...] = ()

    @property
    def labels(self) -> NDArray[Any] | None:
        """The target as it was written: y, or its text."""
        if self.y is None or not self.classes:
            return self.y
        return np.array(self.classes)[self.y.astype(np.intp)]

    def __repr__(self) -> str:
        target = f", target {self.target!r}" if self.y is not None else ""
        return f"Table({self.x.shape[0]} rows, {self.x.shape[1]} columns{target})"


def read_table(
    path: Path, target: str | None = None, width: int | None = None, *, text: bool = False
) -> Table:
    """Read a data set.

    Args:
        path: .csv (or .txt, .tsv), .npz with arrays x and perhaps y, .npy, .parquet.
        target: name of the column to predict; in an .npz the array y is the target without asking.
        width: how many input columns are expected; another number is an error.
        text: whether the target may hold text, such as names of classes; without it that is an
            error.
    """
    path = Path(path)
    labels = Labels(target) if text and target is not None else None
    suffix = path.suffix.lower()
    if suffix in (".csv", ".txt", ".tsv"):
        columns, names = _read_csv(path, labels)
    elif suffix == ".parquet":
        columns, names = _read_parquet(path, labels)
    elif suffix in (".npz", ".npy"):
        return _checked(_read_numpy(path, suffix, target, text), path, width)
    else:
        raise UnsupportedFormatError(f"{path}: a table is .csv, .npz, .npy or .parquet")
    y = None
    if target is not None:
        if target not in names:
            raise InvalidInputError(
                f"{path}: there is no column {target!r}; the columns are {', '.join(names)}"
            )
        at = names.index(target)
        y, columns = columns[:, at], np.delete(columns, at, axis=1)
        names = names[:at] + names[at + 1 :]
    classes: tuple[str, ...] = ()
    if labels is not None and labels.seen and y is not None:
        y, classes = labels.sort(y)
    return _checked(Table(columns, y, tuple(names), target or "", classes), path, width)


def read_arrays(path: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Named arrays from an .npz archive."""
    from relunorm.io.npz import read_npz_arrays

    arrays = read_npz_arrays(path)
    missing = [name for name in names if name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        raise InvalidInputError(f"{path}: no array {missing[0]!r}; the file holds {held}")
    return [arrays[name] for name in names]


def is_label(cell: str) -> bool:
    """Whether a cell holds something: empty ones and nan are missing values."""
    return cell.strip().lower() not in ("", "nan")


@dataclass
class Labels:
    """Numbers for the labels of one column, in the order they are met."""

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


def _read_csv(path: Path, labels: Labels | None) -> tuple[NDArray[np.float64], list[str]]:
    encoding = _encoding(path)
    with path.open(newline="", encoding=encoding, errors="replace") as file:
        head = file.readline()
        filled = bool(head.strip()) and any(line.strip() for line in file)
    if not head.strip():
        raise InvalidInputError(f"{path}: the table is empty")
    delimiter = max(",;\t", key=head.count)
    if not head.count(delimiter) and " " in head.strip():
        delimiter = " "
    first = next(csv.reader([head], delimiter=delimiter, skipinitialspace=True))
    has_names = not all(_is_number(cell) for cell in first)
    names = [cell.strip() for cell in first] if has_names else [f"x{k}" for k in range(len(first))]
    if len(set(names)) != len(names):
        raise InvalidInputError(f"{path}: two columns have the same name in {', '.join(names)}")
    if has_names and not filled:
        raise InvalidInputError(f"{path}: the table has names but no rows")
    # cells are converted one by one only where the fast reader met something else than numbers
    readers: list[Any] = [None, _number]
    if labels is not None and labels.column in names:
        at = names.index(labels.column)
        readers.append({k: labels.number if k == at else _number for k in range(len(names))})
    for converters in readers:
        try:
            numbers = np.loadtxt(
                path,
                delimiter=None if delimiter == " " else delimiter,
                skiprows=int(has_names),
                ndmin=2,
                quotechar='"',
                comments=None,
                encoding=encoding,
                converters=converters,
            )
            return numbers, names
        except ValueError as error:
            fault = str(error)
    fault = _first_fault(path, delimiter, has_names, names, labels) or fault
    raise InvalidInputError(f"{path}: {fault}")


def _encoding(path: Path) -> str:
    """UTF-8, or UTF-16 where the file begins with its mark."""
    with path.open("rb") as file:
        head = file.read(4096)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if b"\0" in head:
        raise InvalidInputError(f"{path}: holds null bytes; expected text in UTF-8 (or UTF-16)")
    return "utf-8-sig"


def _first_fault(
    path: Path, delimiter: str, has_names: bool, names: list[str], labels: Labels | None
) -> str:
    """Which cell a reader could not use, for the error message."""
    with path.open(newline="", encoding=_encoding(path), errors="replace") as file:
        for line, row in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            if (line == 1 and has_names) or not row:
                continue
            if len(row) != len(names):
                return f"line {line} has {len(row)} cells, expected {len(names)}"
            for name, cell in zip(names, row, strict=True):
                if labels is not None and name == labels.column:
                    usable = is_label(cell)
                else:
                    usable = _is_number(cell)
                if not usable:
                    shown = "an empty cell" if not cell.strip() else repr(cell)
                    return (
                        f"line {line}, column {name!r}: {shown} is not a number; drop the column "
                        "or encode it, and fill or drop missing values first"
                    )
    return ""


def _read_parquet(path: Path, labels: Labels | None) -> tuple[NDArray[np.float64], list[str]]:
    try:
        import pyarrow.parquet as parquet
        from pyarrow import ArrowException
    except ImportError:
        raise MissingDependencyError(
            "reading .parquet needs pyarrow: pip install pyarrow"
        ) from None
    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise InvalidInputError(f"{path}: not a readable .parquet file ({error})") from None
    columns = []
    for name in table.column_names:
        try:
            columns.append(np.asarray(_column(table[name], name, labels), dtype=np.float64))
        except (TypeError, ValueError):
            raise InvalidInputError(f"{path}: column {name!r} does not hold numbers") from None
    if not columns:
        raise InvalidInputError(f"{path}: the table has no columns")
    return np.column_stack(columns), list(table.column_names)


def _column(column: Any, name: str, labels: Labels | None) -> Any:
    """The entries of an arrow column, as numbers where it is the one that may hold text."""
    cells = column.to_pylist() if labels is not None and name == labels.column else []
    if labels is not None and any(isinstance(cell, str) for cell in cells):
        return labels.numbers("" if cell is None else str(cell) for cell in cells)
    return column.to_numpy()


def _read_numpy(path: Path, suffix: str, target: str | None, text: bool) -> Table:
    if suffix == ".npy":
        try:
            x = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InvalidInputError(f"{path}: not a readable .npy file ({error})") from None
        arrays: dict[str, Any] = {"x": x}
    else:
        from relunorm.io.npz import read_npz_arrays

        arrays = read_npz_arrays(path)
    by_lower = {name.lower(): array for name, array in arrays.items()}
    if "x" not in by_lower:
        raise InvalidInputError(f"{path}: no array 'x'; the file holds {', '.join(arrays)}")
    x, y = by_lower["x"], by_lower.get("y")
    if target is not None and y is None:
        raise InvalidInputError(f"{path}: no array 'y' to take the target {target!r} from")
    if x.ndim < 2 or x.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{path}: x has shape {x.shape} and type {x.dtype}, expected (n, d)"
        )
    rows = x.reshape(len(x), -1).astype(np.float64)
    given = by_lower.get("feature_names")
    names = [f"x{k}" for k in range(rows.shape[1])]
    if given is not None and np.shape(given) == (rows.shape[1],):
        names = [str(n) for n in given]
    label = str(by_lower["target_name"]) if "target_name" in by_lower else "y"
    if y is None:
        return Table(rows, None, tuple(names))
    if text and y.dtype.kind == "U" and y.ndim == 1:
        found = Labels(label)
        try:
            codes, classes = found.sort(found.numbers(y.tolist()))
        except ValueError as error:
            raise InvalidInputError(f"{path}: y: {error}; drop such rows") from None
        return Table(rows, codes, tuple(names), label, classes)
    if y.dtype.kind not in "fiub" or y.ndim not in (1, 2):
        raise InvalidInputError(f"{path}: y has shape {y.shape} and type {y.dtype}")
    return Table(rows, y.astype(np.float64), tuple(names), label)


def _checked(table: Table, path: Path, width: int | None) -> Table:
    n, d = table.x.shape
    if not n or not d:
        raise InvalidInputError(f"{path}: {n} rows and {d} input columns; at least one of each")
    if table.y is not None and len(table.y) != n:
        raise InvalidInputError(f"{path}: {n} rows of x but {len(table.y)} of y")
    for what, array in (("x", table.x), ("the target", table.y)):
        if array is not None and not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array.reshape(n, -1)))[0]
            name = table.names[column] if what == "x" else table.target
            raise InvalidInputError(
                f"{path}: {what} holds NaN or infinite values, first in data row {row + 1}, "
                f"column {name!r}"
            )
    if width is not None and d != width:
        raise InvalidInputError(
            f"{path}: {d} columns, expected {width}; if one of them is the target, name it: "
            f"--target NAME, or data:{path.name}?target=NAME where a domain is asked for"
        )
    return table


def _number(cell: str) -> float:
    """A cell as a number; true and false are 1 and 0, as in other kinds of table."""
    truth = {"true": 1.0, "false": 0.0}.get(cell.strip().lower())
    return float(cell) if truth is None else truth


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True
