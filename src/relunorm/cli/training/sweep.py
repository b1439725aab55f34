"""``relunorm sweep``: a function of a Python file over a grid, here or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.output import (
    Console,
    check_writable,
    emit,
    examples,
    markup,
    print_table,
    printable,
    showing,
)

if TYPE_CHECKING:
    from relunorm.sweep.sweep import Sweep

#: Rows shown on a terminal; a store or an export has all of them.
SHOWN = 20


@examples(
    "relunorm sweep job.py:train --grid lr=0.1,0.01 --store runs.sqlite",
    "relunorm sweep job.py:train --grid lr=0.1,0.01 --store runs.sqlite --export runs.csv -j 4",
)
def sweep(
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT.py:FUNCTION", help="A function that returns a dict.")
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="One parameter: a=1,2,3 or seed=0:10. Repeat it for more of them."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="SQLite file that keeps finished runs; they are not run again."),
    ] = None,
    backend: options.Runs = None,
    scheduler: options.Scheduler = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Runs at a time; all cores if omitted.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which no further run is begun.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try runs again that the store has as failed.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write the rows of this sweep as .csv or .parquet.")
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Run FUNCTION for every combination of the grid. Ctrl-C keeps what is finished.

    Exit code 1: a run failed. 3: the time limit left some undone.
    """
    from relunorm.sweep.function import grid as combinations
    from relunorm.sweep.function import script_function
    from relunorm.sweep.sweep import sweep as run

    check_writable(export, "tables of runs", ".csv", ".parquet")
    runs = combinations(grid or [])
    function = script_function(target)
    if scheduler is not None and not quiet:
        typer.echo(f"relunorm: connecting to {printable(scheduler)} ...", err=True)
    with _stdout_kept_clean(json), showing("sweep", quiet or json) as progress:
        found = run(
            function, runs, store=store, backend=backend or "loky", scheduler=scheduler,
            workers=jobs, progress=progress, time_limit=time_limit, retry_failed=retry_failed,
        )  # fmt: skip
    document: dict[str, Any] = found.to_dict()
    if export is not None:
        document["written"] = str(found.write(export))
    emit(document, json, lambda console: _render(console, found, document))
    if found.stopped == "interrupted":
        raise typer.Exit(130)
    if found.failed:
        raise typer.Exit(1)
    if not found.complete:
        raise typer.Exit(3)


@contextmanager
def _stdout_kept_clean(wanted: bool) -> Iterator[None]:
    """What runs print goes to stderr, from this process and from those it starts meanwhile."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _render(console: Console, found: Sweep, document: dict[str, Any]) -> None:
    console.print(repr(found)[len("Sweep(") : -1], markup=False)
    rows = document["rows"]
    if rows:
        cells = (
            (markup("" if v is None else str(v)) for v in row.values()) for row in rows[:SHOWN]
        )
        print_table(console, map(markup, rows[0]), cells)
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN:,} more rows")
    if "written" in document:
        console.print(f"written to {document['written']}", markup=False)
