"""Tables of numbers in: csv, npz, npy and parquet, with errors that name the row and column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import counted
from relunorm.errors import (
    InvalidInputError,
    MissingDependencyError,
    MissingFileError,
    UnsupportedFormatError,
)
from relunorm.io.table.csv import (
    Columns,
    as_labels,
    check_columns,
    check_distinct,
    csv_shape,
    drop_hint,
    listed,
    read_csv,
    target_hint,
)
from relunorm.network.columns import Column, matched


@dataclass(frozen=True)
class Table:
    """Rows of a data set.

    Attributes:
        x: shape (n, d), finite.
        y: shape (n,) or (n, outputs), or None when no target was asked for.
        target: name of y's column, or of several with commas between them; or "".
        classes: where y's column holds text, the different labels, sorted; y their numbers.
        columns: of the file, where they have names of their own; the inputs follow from them.
        file: where the table is from, as a command names it: without its folder.
        dropped: columns of that file that were asked to be left out.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64] | None
    names: tuple[str, ...]
    target: str = ""
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    file: str = ""
    dropped: tuple[str, ...] = ()

    @property
    def own_names(self) -> tuple[str, ...] | None:
        """The columns' names, where the file has any of its own."""
        return None if self.names == tuple(f"x{k}" for k in range(len(self.names))) else self.names

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
    path: Path,
    target: str | Sequence[str] | None = None,
    width: int | None = None,
    *,
    text: bool = False,
    finite: bool = True,
    columns: Sequence[Column] = (),
    drop: Sequence[str] = (),
) -> Table:
    """Read a data set.

    Args:
        path: .csv (or .txt, .tsv; also .csv.gz), .npz with arrays x and perhaps y, .npy, .parquet.
        target: name of the column to predict, or several; in an .npz the array y is the target
            without asking.
        width: how many input columns are expected; another number is an error.
        text: whether the target may hold text, such as names of classes; without it, and of several
            targets, that is an error.
        finite: False to keep NaN and infinite values, which are an error otherwise.
        columns: those that a network reads (`Network.columns`): found in a table by name, with
            words and gaps as the network was fitted to them; other columns are passed over. A table
            without names is read in order.
        drop: names of columns that are passed over, whatever they hold.
    """
    path = Path(path)
    if not path.exists():
        raise MissingFileError(path, "table")
    table = _read(path, target, width, text=text, finite=finite, columns=columns, drop=drop)
    return replace(table, file=path.name, dropped=tuple(drop))


def _read(
    path: Path,
    target: str | Sequence[str] | None,
    width: int | None,
    *,
    text: bool,
    finite: bool,
    columns: Sequence[Column],
    drop: Sequence[str],
) -> Table:
    targets = as_targets(path, target)
    shape = csv_shape(path, targets, drop) if columns else None
    columns = columns if shape is None else matched(columns, shape.names, targets)
    wanted = {c.name for c in columns} | set(targets)
    mixed = any(c.words or c.fill is not None for c in columns)
    if (mixed and path.suffix.lower() == ".parquet") or (
        shape is not None and (mixed or wanted < set(shape.names))
    ):
        from relunorm.io.table.mixed import read_columns

        table = read_columns(path, targets, columns, labels=text, gaps=not finite, drop=drop)
        return _checked(table, path, width, finite)
    label = targets[0] if text and len(targets) == 1 else ""
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    suffix, classes = suffix.lower(), ()
    if suffix in (".csv", ".txt", ".tsv", ".parquet"):
        if suffix == ".parquet":
            numbers, names, classes = _read_parquet(path, targets, label, columns, drop)
        else:
            numbers, names, classes = read_csv(path, targets, label, drop)
        own = names != [f"x{k}" for k in range(len(names))]
        table = Table(numbers, None, tuple(names), columns=tuple(map(Column, names)) if own else ())
    elif suffix in (".npz", ".npy"):
        table = _without(_read_numpy(path, suffix, text), path, drop)
    else:
        raise UnsupportedFormatError(f"{path}: a table is .csv, .npz, .npy or .parquet")
    named = table.names != tuple(f"x{k}" for k in range(len(table.names)))
    if targets:
        table = _with_targets(table, path, targets)
    columns = matched(columns, table.names)
    if columns and (named or {c.name for c in columns} <= set(table.names)):
        check_columns(path, table.names, [column.name for column in columns])
        at = [table.names.index(c.name) for c in columns]
        kept = tuple(table.names[k] for k in at)
        table = replace(table, x=table.x[:, at], names=kept, columns=tuple(columns))
    return _checked(replace(table, classes=classes or table.classes), path, width, finite)


def as_targets(path: Path, target: str | Sequence[str] | None) -> list[str]:
    """The names of the columns to predict, each once."""
    targets = [target] if isinstance(target, str) else list(target or ())
    twice = next((name for name in targets if targets.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{path}: the target {twice!r} is named twice")
    return targets


def _without(table: Table, path: Path, drop: Sequence[str]) -> Table:
    """The table of an array file without some columns of x."""
    if not drop:
        return table
    check_columns(path, table.names, drop)
    left = [k for k, name in enumerate(table.names) if name not in drop]
    return replace(table, x=table.x[:, left], names=tuple(table.names[k] for k in left))


def _with_targets(table: Table, path: Path, targets: Sequence[str]) -> Table:
    """The columns of these names as y; a table that has a y already must mean the same."""
    if table.y is not None:
        if list(targets) not in ([table.target], ["y"]):
            raise InvalidInputError(
                f"{path}: the target is the array y ({table.target!r}), not {', '.join(targets)!r};"
                " leave the target out"
            )
        return table
    check_columns(path, table.names, targets)
    at = [table.names.index(name) for name in targets]
    left = [k for k in range(len(table.names)) if k not in at]
    rest = tuple(table.names[k] for k in left)
    columns = tuple(column for column in table.columns if column.name not in targets)
    y = table.x[:, at[0]] if len(at) == 1 else table.x[:, at]
    return Table(table.x[:, left], y, rest, ", ".join(targets), columns=columns)


def read_arrays(path: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Named arrays from an .npz archive."""
    from relunorm.io.npz import read_npz_arrays

    arrays = read_npz_arrays(path)
    missing = [name for name in names if name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        raise InvalidInputError(f"{path}: no array {missing[0]!r}; the file holds {held}")
    return [arrays[name] for name in names]


def open_parquet(path: Path, targets: Sequence[str] = (), drop: Sequence[str] = ()) -> Any:
    """The arrow table in a .parquet file, which has the targets and no name twice."""
    try:
        import pyarrow.parquet as parquet
        from pyarrow import ArrowException
    except ImportError:
        raise MissingDependencyError(
            "reading .parquet needs pyarrow: pip install pyarrow"
        ) from None
    try:
        if path.is_file():
            check_distinct(path, parquet.read_schema(path).names)
        table = parquet.read_table(path)
    except ArrowException as error:
        raise InvalidInputError(f"{path}: not a readable .parquet file ({error})") from None
    check_columns(path, table.column_names, [*targets, *drop])
    return table.drop_columns(list(drop)) if drop else table


def _read_parquet(
    path: Path,
    targets: Sequence[str],
    label: str,
    columns: Sequence[Column],
    drop: Sequence[str],
) -> Columns:
    table = open_parquet(path, targets, drop)
    from pyarrow import types

    names = table.column_names
    wanted = {column.name for column in matched(columns, names, targets)} | set(targets)
    if columns and wanted <= set(names):  # what else there is may hold anything
        names = [name for name in names if name in wanted]
    found, classes = [], ()
    for name in names:
        kind = table[name].type
        if name == label and _holds_text(kind, types):
            cells = [cell or "" for cell in table[name].to_pylist()]
            codes, classes = as_labels(path, name, cells)
            found.append(codes)
            continue
        tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(test(kind) for test in tests):
            what = f"does not hold numbers but {kind}; encode it"
            if types.is_temporal(kind):
                what = f"holds dates or times ({kind}); write numbers, such as days since the first"
            fault = f"column {name!r} {what}, or leave it out ({drop_hint(name)})"
            if not targets:
                fault += f"; if it is the target, name it: {target_hint(path, name)}"
            raise InvalidInputError(f"{path}: {fault}")
        found.append(np.asarray(table[name].to_numpy(), dtype=np.float64))
    if not found:
        raise InvalidInputError(f"{path}: the table has no columns")
    return np.column_stack(found), list(names), classes


def _holds_text(kind: Any, types: Any) -> bool:
    """Whether an arrow type is text, also where every text is kept once (categories)."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind)


def _read_numpy(path: Path, suffix: str, text: bool) -> Table:
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
    if sum(name.lower() in ("x", "y") for name in arrays) > len({"x", "y"} & set(by_lower)):
        raise InvalidInputError(
            f"{path}: x and y are there twice ({', '.join(arrays)}); drop one of each"
        )
    if "x" not in by_lower:
        raise InvalidInputError(f"{path}: no array 'x'; the file holds {', '.join(arrays)}")
    x, y = by_lower["x"], by_lower.get("y")
    if x.ndim < 2 or x.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{path}: x has shape {x.shape} and type {x.dtype}; expected numbers of shape (n, d)"
        )
    rows = x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float64)  # -1 needs a row
    given = by_lower.get("feature_names")
    names = [f"x{k}" for k in range(rows.shape[1])]
    if given is not None and np.shape(given) == (rows.shape[1],):
        names = [str(n) for n in given]
    label = str(by_lower["target_name"]) if "target_name" in by_lower else "y"
    if y is None:
        return Table(rows, None, tuple(names))
    if text and y.dtype.kind in "US" and y.ndim == 1:
        cells = [c.decode(errors="replace") if isinstance(c, bytes) else c for c in y.tolist()]
        codes, classes = as_labels(path, label, cells)
        return Table(rows, codes, tuple(names), label, classes)
    if y.dtype.kind not in "fiub" or y.ndim not in (1, 2) or 0 in y.shape[1:]:
        raise InvalidInputError(
            f"{path}: y has shape {y.shape} and type {y.dtype}; expected numbers of shape (n,) or "
            "(n, outputs)"
        )
    return Table(rows, y.astype(np.float64), tuple(names), label)


def _checked(table: Table, path: Path, width: int | None, finite: bool) -> Table:
    n, d = table.x.shape
    if not n or not d:
        raise InvalidInputError(
            f"{path}: {n} rows and {d} input columns; expected at least one of each"
        )
    if table.y is not None and len(table.y) != n:
        raise InvalidInputError(f"{path}: {n} rows of x but {len(table.y)} of y")
    for what, array in (("x", table.x), ("the target", table.y)):
        if finite and array is not None and not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array.reshape(n, -1)))[0]
            name = table.names[column] if what == "x" else table.target
            raise InvalidInputError(
                f"{path}: {what} holds NaN or infinite values, first in data row {row + 1}, "
                f"column {name!r}"
            )
    if width is not None and d != width:
        raise InvalidInputError(f"{path}: {_other_width(table, path, width)}")
    return table


def _other_width(table: Table, path: Path, width: int) -> str:
    """How to come to the number of columns that a network reads."""
    found = f"{counted(table.x.shape[1], 'column')} ({listed(table.names)})"
    if table.y is None:
        hint = f"if one of them is the target, name it: {target_hint(path)}"
        return f"{found}, expected {width}; {hint}"
    beside = f"{found} beside the target {table.target!r}, expected {width}"
    if len(table.names) < width:
        return beside
    return (
        f"{beside}; leave out what the model does not read: --drop NAME, or --target NAME for a "
        "further target (data:FILE?target=NAME&drop=NAME)"
    )
