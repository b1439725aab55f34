"""The store: one SQLite file, one row per finished run.

Every row is a transaction of its own, with a rollback journal and full synchronization: what `put`
has returned from survives SIGKILL and a power cut, and a process killed while it writes leaves a
journal that the next one rolls back. (A write-ahead log would be faster, but it is three files
instead of one and does not work on network file systems.) Any number of processes may write; a
finished run is never overwritten, a failed one only by a later attempt.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relunorm.errors import StoreError
from relunorm.sweep.record import Run, Tabled, order, table

#: SQLite's field for the program that owns a file: "rnsw".
APPLICATION = 0x726E7377

#: The layout below; a file with a larger number was made by a later version.
SCHEMA = 1

#: Seconds to wait for another writer.
PATIENCE = 60.0

_CREATE = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    function TEXT NOT NULL,
    version TEXT NOT NULL,
    parameters TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    outcome TEXT NOT NULL,
    seconds REAL NOT NULL
) WITHOUT ROWID
"""

_PUT = """
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
    SET status = excluded.status, outcome = excluded.outcome, seconds = excluded.seconds
    WHERE runs.status = 'failed'
"""


#: Words in SQLite's name for an error, or in its text -> what to do; the first that fits.
_ADVICE = {
    "FULL|full|IOERR_WRITE": "the disk is full; every run recorded before is kept. Free some space",
    "NOTADB|not a database": "it is not a store of runs. Choose another file",
    "CORRUPT|malformed": "it is damaged. Restore a copy or choose another file",
    "BUSY|locked": f"another process has held it for {PATIENCE:g} s. Try again",
    "READONLY|readonly": "it may not be written. Open it with read_only=True, or copy it",
    "IOERR|I/O": "the disk failed or is full; every run recorded before is kept. Check it",
}


class Store(Tabled):
    """Finished runs in a file.

    Args:
        path: made if it does not exist; its folder must.
        read_only: refuse to write, and to make a file.

    Raises:
        StoreError: the file cannot be opened or written, is damaged, is not a store, or was made by
            a later version.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/runs.sqlite") as store:
    ...     store.put(Run("k", "m:f", "1", '{"a":1}', "done", '{"y":0.5}'))
    ...     store.table()
    [{'a': 1, 'status': 'done', 'message': None, 'y': 0.5}]
    """

    def __init__(self, path: str | Path, *, read_only: bool = False):
        self.path, self.read_only = Path(path), read_only
        self._connection: sqlite3.Connection | None = None
        mode = "ro" if read_only else "rwc"
        with self._explained("opened"):
            self._connection = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode={mode}",
                uri=True,
                timeout=PATIENCE,
                isolation_level=None,
            )
        try:
            with self._explained("opened"):
                self._prepare(self._connection)
        except BaseException:
            self.close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = FULL")
        if self.read_only:
            self._check(connection)
            return
        # SQLite opens a file it may not write without a word: asking for the lock tells.
        connection.execute("BEGIN IMMEDIATE")
        try:
            empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if empty and connection.execute("PRAGMA application_id").fetchone()[0] == 0:
                connection.execute(_CREATE)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            self._check(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise StoreError(
                f"{self.path} is a database, but not a store of runs; choose another file"
            )
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != SCHEMA:
            raise StoreError(
                f"{self.path} has layout {found}, this version of relunorm reads {SCHEMA}; "
                "upgrade relunorm or choose another file"
            )
        said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise StoreError(
                f"{self.path} is damaged ({said}); restore a copy or choose another file"
            )

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """SQLite's errors in the package's words."""
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            said = f"{getattr(error, 'sqlite_errorname', '')} {text}"  # Python 3.11 and later
            found = (advice for words, advice in _ADVICE.items() if re.search(words, said))
            advice = next(found, "check that the folder exists and may be written")
            raise StoreError(
                f"{self.path} could not be {done} ({text}): {advice}, then run again"
            ) from error

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path} has been closed")
        return self._connection

    def put(self, run: Run) -> None:
        """Record a run: on disk when this returns. A run that is there as done stays as it is."""
        fields = (run.key, run.function, run.version, run.text, run.status, run.outcome)
        with self._explained("written"):
            self._open.execute(_PUT, (*fields, run.seconds))

    def find(self, keys: Iterable[str]) -> dict[str, Run]:
        """Those of the runs with these keys that are there."""
        found: dict[str, Run] = {}
        wanted = list(keys)
        with self._explained("read"):
            for start in range(0, len(wanted), 500):
                some = wanted[start : start + 500]
                marks = ",".join("?" * len(some))
                rows = self._open.execute(f"SELECT * FROM runs WHERE key IN ({marks})", some)
                found.update((row[0], Run(*row)) for row in rows)
        return found

    def discard(self, keys: Iterable[str]) -> None:
        """Take the runs with these keys out, so that a sweep does them again."""
        with self._explained("written"):
            self._open.executemany("DELETE FROM runs WHERE key = ?", [(key,) for key in keys])

    def runs(self, function: str | None = None) -> list[Run]:
        """Every run, or those of one function (``module:name``), sorted by function, version and
        the values of the parameters; the order does not depend on when they finished.
        """
        query = "SELECT * FROM runs" + ("" if function is None else " WHERE function = ?")
        with self._explained("read"):
            rows = self._open.execute(query, () if function is None else (function,)).fetchall()
        return sorted((Run(*row) for row in rows), key=order)

    def __len__(self) -> int:
        with self._explained("read"):
            return self._open.execute("SELECT count(*) FROM runs").fetchone()[0]

    def table(self, function: str | None = None) -> list[dict[str, Any]]:
        """The runs as flat rows: parameters, status, message, results."""
        return table(self.runs(function))

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._connection is None else f"{len(self)} runs"
        return f"Store({str(self.path)!r}, {state})"
