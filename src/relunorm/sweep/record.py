"""One run: the attempt, in whatever process it lands, and the record of how it went; and runs as
one flat table, written as CSV, Parquet or a data frame.

Parameters and results are kept as canonical JSON: equal values have equal text, and floats come
back. They are written with the fewest digits that read back as the same number; NaN and the
infinities, which JSON lacks, as ``{"$float": "nan"}``, ``"inf"`` and ``"-inf"``. Numpy scalars
become Python's, tuples become lists, keys are sorted.

Columns of a table: the parameters, ``status``, ``message``, then the results; a result with the
name of another column becomes ``result.NAME``. The seconds a run took are left out: the same sweep
gives the same bytes wherever and however often it was interrupted.
"""

from __future__ import annotations

import csv
import json
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from relunorm.atomic import atomic_path
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError, MissingDependencyError, UnsupportedFormatError

if TYPE_CHECKING:
    import pandas

#: A failure's message is cut after this many characters.
LONGEST = 2_000

#: The key that marks a float JSON cannot spell.
FLOAT = "$float"

#: Values nested deeper than this are refused: no table holds them, and a cycle looks like that.
DEEPEST = 32

#: Integers up to here are floats without loss.
_EXACT = 2**53

Status = Literal["done", "failed"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run with its outcome. Two runs are equal if all but the seconds they took is equal.

    Attributes:
        key: sha256 of function, parameters, shared arguments and code version.
        function: ``module:name``. version: the code version.
        text: canonical JSON of the parameters.
        status: ``done`` or ``failed``.
        outcome: canonical JSON of the result, or the message of the failure.
        seconds: wall time of the call.
    """

    key: str
    function: str
    version: str
    text: str
    status: Status
    outcome: str
    seconds: float = field(default=0.0, compare=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the call, ``random_state`` included where it was drawn."""
        return loads(self.text)

    @property
    def result(self) -> dict[str, Any] | None:
        """What the function returned; None for a failure."""
        return loads(self.outcome) if self.status == "done" else None

    @property
    def message(self) -> str | None:
        """Why the run failed; None if it did not."""
        return self.outcome if self.status == "failed" else None

    def __repr__(self) -> str:
        outcome = self.outcome if len(self.outcome) < 60 else f"{self.outcome[:57]}..."
        return f"Run({self.text} -> {self.status}: {outcome})"


@dataclass(frozen=True)
class Attempt:
    """How a run went: canonical JSON of its result, or why it failed."""

    status: Status
    outcome: str
    seconds: float


def attempt(function: Callable[..., Any], shared: Mapping[str, Any], parameters: str) -> Attempt:
    """Call a function with the arguments all runs share and a run's parameters; an exception,
    ``sys.exit`` included, is an outcome like any other."""
    clock = Clock()
    try:
        result = function(**loads(parameters), **shared)
        if not isinstance(result, dict):
            raise InvalidInputError(
                f"the function returned a {type(result).__name__}, expected a dict of results"
            )
        return Attempt("done", dumps(result, "result"), clock.elapsed())
    except (Exception, SystemExit) as error:
        return Attempt("failed", explained(error), clock.elapsed())


def explained(error: BaseException) -> str:
    """The error and where it was raised, in one line: ``ValueError: no (script.py:12)``."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{text[:LONGEST]}{where}".encode(errors="backslashreplace").decode()


def dumps(value: Any, what: str) -> str:
    """The canonical text of a value.

    Args:
        value: None, bool, int, float, str, numpy scalars, and lists, tuples and dicts of these.
        what: how to call it in an error, such as ``parameters``.

    >>> dumps({"b": (1, np.float32(0.5)), "a": float("nan")}, "parameters")
    '{"a":{"$float":"nan"},"b":[1,0.5]}'
    """
    try:
        plain = _plain(value, what, 0)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # an int of more digits than Python spells out
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{what}: {error}") from None


def loads(text: str) -> Any:
    """What `dumps` wrote.

    >>> loads('{"a":{"$float":"-inf"},"b":[1,0.5]}')
    {'a': -inf, 'b': [1, 0.5]}
    """
    return json.loads(text, object_hook=_revive)


def _revive(found: dict[str, Any]) -> Any:
    return float(found[FLOAT]) if found.keys() == {FLOAT} else found


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidInputError(f"{where} is nested more than {DEEPEST} deep, or contains itself")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, float):
        value = float(value)
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, dict):
        return {_name(k, where): _plain(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    hint = "; use its tolist()" if isinstance(value, np.ndarray) else ""
    raise InvalidInputError(
        f"{where} is a {type(value).__name__}, which JSON does not hold; expected numbers, text, "
        f"None, or lists and dicts of them{hint}"
    )


def _name(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"{where} has the key {key!r}; keys must be text")
    if key == FLOAT:
        raise InvalidInputError(f"{where} has the key {FLOAT!r}, which marks NaN and infinities")
    return _text(key, where)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{where} holds {value!r}, which is not Unicode text (half of a surrogate pair)"
        ) from None
    return str(value)


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
