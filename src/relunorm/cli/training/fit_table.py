"""The table of ``relunorm fit``: read, checked, and split into rows to fit and rows held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from relunorm.errors import InvalidInputError
from relunorm.io.table import Table, read_table
from relunorm.io.table.csv import drop_hint, listed
from relunorm.io.table.mixed import read_mixed

#: Below this many rows there is nothing to learn from, and nothing to hold out.
FEWEST_ROWS = 3


def read(
    path: Path, targets: list[str], drop: list[str], classify: bool, one_hot: bool, gaps: bool
) -> Table:
    """The table with its target, large enough for a fit."""
    if classify and len(targets) > 1:
        raise InvalidInputError("--classify predicts one column; give --target once")
    if (one_hot or gaps) and targets and path.suffix.lower() != ".npz":
        flags = {"one_hot": one_hot, "gaps": gaps, "labels": classify}
        table = read_mixed(path, targets, drop=drop, **flags)
    else:
        try:
            table = read_table(path, targets, text=classify, drop=drop)
        except InvalidInputError as error:
            told = ("is not a number; ", "does not hold numbers", "x holds NaN")
            if not any(map(str(error).count, told)) or "; this is " in str(error):
                raise
            raise InvalidInputError(
                f"{error} (--one-hot encodes words, --missing median fills empty cells)"
            ) from None
    if table.y is None:
        raise InvalidInputError(
            f"{path}: which column is to be predicted? Give --target; the columns are "
            + listed(table.names)
        )
    if len(table.x) < FEWEST_ROWS:
        raise InvalidInputError(
            f"{path}: {len(table.x)} row{'s' if len(table.x) != 1 else ''} of data; a fit needs at "
            f"least {FEWEST_ROWS}"
        )
    if classify and (table.y.ndim > 1 or (table.y != np.round(table.y)).any()):
        fault = f"{table.y.shape[1]} columns" if table.y.ndim > 1 else "numbers with fractions"
        raise InvalidInputError(
            f"{path}: the target {table.target or 'y'!r} holds {fault}, not the classes that "
            "--classify is for; leave --classify out to predict numbers"
        )
    if classify and np.ptp(table.y) == 0:
        only = table.classes[0] if table.classes else f"{table.y[0] + 0.0:.0f}"
        raise InvalidInputError(
            f"{path}: column {table.target or 'y'!r} holds one class only, {only}; a classifier "
            "needs two"
        )
    _check_range(table, path)
    return table


def split(
    table: Table, holdout: float, seed: int, classify: bool = False
) -> tuple[Table, Table | None]:
    """Rows to fit on and rows to measure on; fewer than ten rows are all used for the fit.

    Where ``classify`` is set a row of every class stays in the fit.
    """
    if not 0 <= holdout < 1:
        raise InvalidInputError(f"--holdout {holdout:g}: expected a share from 0 to less than 1")
    n = len(table.x)
    count = round(n * holdout) if n >= 10 else 0
    if count == 0:
        return table, None
    if n - count < FEWEST_ROWS:
        raise InvalidInputError(
            f"--holdout {holdout:g} of {n} rows leaves {n - count} to fit; at least {FEWEST_ROWS} "
            "are needed: hold out less"
        )
    order = np.random.default_rng([seed, 5]).permutation(n)
    assert table.y is not None
    if classify and len(np.unique(table.y)) > len(np.unique(table.y[order[count:]])):
        first = np.unique(table.y[order], return_index=True)[1]
        order = np.append(np.delete(order, first), order[first])
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    return tuple(replace(table, x=table.x[i], y=table.y[i]) for i in (kept, held))  # type: ignore[return-value]


def check_filled(train: Table, path: Path) -> None:
    """Refuse an input without a single value among the rows that are fitted."""
    empty = np.isnan(train.x).all(axis=0)
    if empty.any():
        name = train.names[int(empty.argmax())]
        raise InvalidInputError(
            f"{path}: column {name!r} has no value in the {len(train.x):,} rows that are fitted; "
            f"leave it out: {drop_hint(name)}"
        )


def _check_range(table: Table, path: Path) -> None:
    """Values that no scaling can bring to order one are refused by the column's name."""
    from relunorm.train.scaling import Scaling

    assert table.y is not None
    ones, y = np.ones(len(table.x)), table.y.reshape(len(table.x), -1)
    known = np.nan_to_num(table.x, nan=0.0) if np.isnan(table.x).any() else table.x
    Scaling.of(known, ones, f"{path}: the input", table.names)
    Scaling.of(y, ones, f"{path}: the target", [table.target or "y"] * y.shape[1])
