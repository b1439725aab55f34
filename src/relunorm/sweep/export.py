"""Runs as one flat table, and the table as CSV, Parquet or a data frame.

Columns: the parameters, ``status``, ``message``, then the results; a result with the name of
another column becomes ``result.NAME``. The seconds a run took are left out: the same sweep gives
the same bytes wherever and however often it was interrupted.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relunorm.atomic import atomic_path
from relunorm.errors import MissingDependencyError, UnsupportedFormatError
from relunorm.sweep.record import Run, dumps

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]

#: Integers up to here are floats without loss.
_EXACT = 2**53


def order(run: Run) -> tuple[Any, ...]:
    """Sort by function, version, and parameter after parameter; numbers as numbers."""
    values = [(name, *_rank(value)) for name, value in sorted(run.parameters.items())]
    return run.function, run.version, values, run.key


def _rank(value: Any) -> tuple[Any, ...]:
    """Values of different kinds in a fixed order: numbers (NaN last), text, everything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (1, 0.0) if value != value else (0, value)
    return (2, value) if isinstance(value, str) else (3, dumps(value, "value"))


def table(runs: Sequence[Run]) -> list[Row]:
    """One flat row per run, all with the same columns in the same order."""
    taken = {"status", "message"}
    pairs = [(run, run.parameters, run.result or {}) for run in runs]
    names = _union(parameters for _, parameters, _ in pairs)
    shown = {n: f"parameter.{n}" if n in taken else n for n in names}
    taken |= set(shown.values())
    results = _union(result for _, _, result in pairs)
    titles = {n: f"result.{n}" if n in taken else n for n in results}
    return [
        {
            **{title: parameters.get(name) for name, title in shown.items()},
            "status": run.status,
            "message": run.message,
            **{title: result.get(name) for name, title in titles.items()},
        }
        for run, parameters, result in pairs
    ]


def _union(dicts: Any) -> list[str]:
    names: dict[str, None] = {}
    for one in dicts:
        names.update(dict.fromkeys(one))
    return list(names)


class Tabled:
    """What has a table of runs: the formats it is written in.

    Inside JSON, NaN and the infinities are the texts "nan", "inf" and "-inf".
    """

    def table(self) -> list[Row]:
        """Flat rows: parameters, status, message, results."""
        raise NotImplementedError

    def write(self, path: str | Path) -> Path:
        """Write the table in the format its ending names: .csv or .parquet; returns the path."""
        writers = {".csv": self.to_csv, ".parquet": self.to_parquet}
        ending = Path(path).suffix.lower()
        if ending not in writers:
            raise UnsupportedFormatError(f"{path}: a table of runs is written as .csv or .parquet")
        return writers[ending](path)

    def to_csv(self, path: str | Path) -> Path:
        """Write CSV in UTF-8; floats with all their digits, lists and dicts as JSON."""
        rows = self.table()
        with (
            atomic_path(path) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(rows[0] if rows else [])
            for row in rows:
                writer.writerow(_json(v) if isinstance(v, list | dict) else v for v in row.values())
        return Path(path)

    def to_parquet(self, path: str | Path) -> Path:
        """Write Parquet (needs pyarrow). A column of one kind keeps it; a mixed one is JSON text.

        Numbers that neither int64 nor float64 hold together become text with all their digits.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise MissingDependencyError(
                "Parquet needs pyarrow: pip install pyarrow, or write .csv"
            ) from None
        rows = self.table()
        columns = list(rows[0]) if rows else []
        arrays = [pyarrow.array(*_typed([row[name] for row in rows])) for name in columns]
        with atomic_path(path) as temporary:
            parquet.write_table(pyarrow.table(arrays, names=columns), temporary)
        return Path(path)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a data frame (needs pandas), one row per run."""
        try:
            import pandas
        except ImportError:
            raise MissingDependencyError("a data frame needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.table())


def _json(value: Any) -> str:
    """Strict JSON, without the store's own mark for NaN and the infinities."""
    return dumps(finite(value), "value")


def _typed(values: list[Any]) -> tuple[list[Any], str]:
    """A column's values and Arrow type."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return values, "bool"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in present):
        return values, "int64"
    small = all(isinstance(v, float) or (type(v) is int and abs(v) <= _EXACT) for v in present)
    if float in kinds and small:
        return [None if v is None else float(v) for v in values], "float64"
    if not kinds or kinds == {str}:
        return values, "string"
    write = str if kinds <= {int, float} else _json
    return [None if v is None else write(v) for v in values], "string"


def finite(value: Any) -> Any:
    """A value for strict JSON: NaN and the infinities as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [finite(v) for v in value]
    return {k: finite(v) for k, v in value.items()} if isinstance(value, dict) else value
