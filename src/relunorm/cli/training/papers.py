"""``relunorm papers``: re-run the figures, tables, theorems and errata of the five papers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import only
from relunorm.cli.output import Console, check_folder, emit, examples, markup, print_table

if TYPE_CHECKING:
    from relunorm.clock import Progress
    from relunorm.papers.run import Outcome, Task


@examples(
    "relunorm papers all --quick -o results",
    "relunorm papers dying -o results --full",
)
def papers(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="[all|KEY]",
            help="all, or one of rescaling (or 000, its seed), reduced (001), dying (002), "
            "pieces (003), batchnorm (004).",
        ),
    ] = "all",
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXHIBIT]...", help="Which exhibits; all of them if none is named."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Folder for figures (png, svg), tables (csv, json), index.html and verdicts.csv. "
            "What it holds already is not run again.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="The sizes of the paper, or small ones (default)."),
    ] = False,
    backend: options.Runs = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of the backend's running cluster, whose workers see the output folder."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", min=0, help="Exhibits at a time; 0 for one per core.")
    ] = 0,
    data: Annotated[
        str | None, typer.Option(help="A table to use instead of the default set (one paper only).")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="The class or target column of --data.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random state.")] = 0,
    json: options.Json = False,
) -> None:
    """Re-run what the five papers behind relunorm print and say of every claim whether it holds.

    Ctrl-C keeps what is finished. Exits with 1 if an exhibit failed to run.
    """
    from relunorm.papers import paper_key
    from relunorm.papers.results_page import counts, write_page
    from relunorm.papers.run import Task

    paper = paper_key(paper)
    column = only(target, "--target")
    tasks = [Task(key, name, full, seed, data, column) for key, name in _wanted(paper, names, data)]
    if paper == "all" and out is None:
        raise typer.BadParameter("papers all needs -o DIR to write to", param_hint="-o")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        check_folder(out / "index.html")
    where = {"jobs": jobs or None, "backend": backend or "loky", "scheduler": scheduler}
    outcomes, interrupted = _run(tasks, out, where, quiet=json)
    if paper != "all" and not json:
        for outcome in outcomes:
            if outcome.document is not None:
                _render(_console(), outcome.document)
    rows = [row for outcome in outcomes for row in outcome.rows]
    if out is not None and outcomes:
        what = "sizes of the papers" if full else "quick sizes"
        heading = f"{len(outcomes)} exhibits, {what}, random state {seed}."
        write_page(outcomes, out, heading)
    document = {
        "schema": "relunorm.papers/2",
        "paper": paper,
        "full": full,
        "exhibits": [outcome.document for outcome in outcomes if outcome.document is not None],
        "rows": rows,
        "counts": counts(rows),
        "seconds": sum(outcome.seconds for outcome in outcomes),
        "failed": [f"{o.task.paper} {o.task.name}" for o in outcomes if o.error],
    }
    emit(document, json, lambda console: _verdicts(console, document, out))
    if interrupted:
        raise KeyboardInterrupt
    if document["failed"]:
        raise typer.Exit(1)


def _wanted(paper: str, names: list[str] | None, data: str | None) -> list[tuple[str, str]]:
    from relunorm.errors import InvalidInputError
    from relunorm.papers import PAPERS, exhibits

    if paper == "all":
        if names or data is not None:
            raise InvalidInputError("name one paper to choose exhibits or data; not all")
        return [(key, name) for key in PAPERS for name in exhibits(key)]
    available = exhibits(paper)
    unknown = [name for name in names or () if name not in available]
    if unknown:
        raise InvalidInputError(f"{paper} has no {unknown[0]!r}; it has {', '.join(available)}")
    return [(paper, name) for name in names or available]


def _run(
    tasks: list[Task], output: Path | None, where: dict[str, Any], quiet: bool
) -> tuple[list[Outcome], bool]:
    """The outcomes so far, in the order of the tasks, and whether Ctrl-C ended the run."""
    from relunorm.papers.run import run_tasks

    found: dict[Task, Outcome] = {}
    interrupted = False
    with _bar(quiet) as progress:
        left = sum(task.cost for task in tasks)
        line = progress.add_task("papers", total=left) if progress is not None else None

        def tell(said: Progress) -> None:
            outcome: Outcome = said.facts["outcome"]
            found[outcome.task] = outcome
            if progress is None or line is None:
                return
            cost = outcome.task.cost
            if outcome.reused:  # nothing was run, so it says nothing about the speed
                progress.update(line, total=progress.tasks[line].total - cost)
            else:
                progress.update(line, advance=cost)
            state = "failed" if outcome.error else "done already" if outcome.reused else "done"
            took = "" if outcome.reused else f" in {outcome.seconds:.1f} s"
            name = f"{outcome.task.paper} {outcome.task.name}"
            progress.console.print(f"{name}: {state}{took}", markup=False, highlight=False)

        try:
            run_tasks(tasks, output, progress=tell, **where)
        except KeyboardInterrupt:
            interrupted = True
    return [found[task] for task in tasks if task in found], interrupted


def _bar(quiet: bool) -> AbstractContextManager[Any]:
    if quiet:
        return nullcontext(None)
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
               TextColumn("elapsed"), TimeElapsedColumn(), TextColumn("left"),
               TimeRemainingColumn())  # fmt: skip
    return Progress(*columns, console=Console(stderr=True), speed_estimate_period=600)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    # a file or a pipe has no width of its own, and 80 characters would cut numbers short
    return console if console.is_terminal else Console(width=max(console.width, 160))


def _verdicts(console: Console, document: dict[str, Any], output: Path | None) -> None:
    heads = {"seed": "seed", "item": "item", "number": "our number"}
    heads |= {"verdict": "verdict", "exhibit": "exhibit"}
    rows = ([markup(row[key]) for key in heads] for row in document["rows"])
    print_table(console, heads.values(), rows, box=None, pad_edge=False)
    counted = ", ".join(f"{n} {name}" for name, n in document["counts"].items())
    console.print(f"{counted}; {document['seconds']:.0f} s of running time", markup=False)
    if output is not None:
        console.print(f"wrote {output / 'index.html'}", markup=False)


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    from relunorm.papers.exhibit import cell

    console.print(f"[bold]{markup(document['title'])}[/bold]")
    table = Table()
    for name in document["columns"]:
        # a number that does not fit goes on in the next line: half of it would be another number
        table.add_column(markup(name), overflow="fold")
    for values in document["rows"]:
        table.add_row(*(markup(cell(value)) for value in values))
    console.print(table)
    if document["note"]:
        console.print(document["note"], markup=False)
    for path in document.get("files", ()):
        console.print(f"wrote {path}", markup=False)
