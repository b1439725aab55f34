"""``relunorm papers``: re-run the figures, tables and theorems of a seed paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import Json, emit, markup

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.papers import Sample


def papers(
    paper: Annotated[str, typer.Argument(help="Which paper: batchnorm, dying or reduced.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXHIBIT]...", help="Which exhibits; all of them if none is named."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for the figures (png) and tables (csv, json)."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="The sizes of the paper, or small ones (default)."),
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="A table to use instead of the default set.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The class or target column of --data.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random state.")] = 0,
    json: Json = False,
) -> None:
    """Re-run exhibits of PAPER and write what they show to a folder."""
    from relunorm.errors import InvalidInputError
    from relunorm.papers import exhibits

    available = exhibits(paper)
    unknown = [name for name in names or () if name not in available]
    if unknown:
        raise InvalidInputError(f"{paper} has no {unknown[0]!r}; it has {', '.join(available)}")
    sample = _sample(paper, data, target)
    results: list[dict[str, Any]] = []
    for name in names or list(available):
        if not json:
            typer.echo(f"running {paper} {name} ...", err=True)
        found = available[name](sample, full=full, random_state=seed)
        files = [str(path) for path in found.save(output)] if output is not None else []
        results.append({**found.to_dict(), "files": files})
        if not json:
            emit({}, False, lambda console, row=results[-1]: _render(console, row))
    document = {"schema": "relunorm.papers/1", "paper": paper, "full": full, "exhibits": results}
    if json:
        emit(document, True, lambda console: None)


def _sample(paper: str, data: str | None, target: str | None) -> Sample:
    from importlib import import_module

    import numpy as np

    from relunorm.papers import PAPERS, Sample

    # A paper on regression reads its own data; the others use classes.
    own = getattr(import_module(PAPERS[paper]), "read_sample", None)
    if own is not None:
        return own(data, target)
    if data is None:
        return Sample.digits()
    from relunorm.io.table import read_table

    table = read_table(Path(data), target)
    labels = None
    if table.y is not None:
        labels = np.unique(table.y, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return Sample(table.x, labels, data)


def _render(console: Console, row: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(f"[bold]{markup(row['title'])}[/bold]")
    table = Table(*map(markup, row["columns"]))
    for values in row["rows"]:
        table.add_row(*(markup(_cell(value)) for value in values))
    console.print(table)
    if row["note"]:
        console.print(row["note"], markup=False)
    for path in row["files"]:
        console.print(f"wrote {path}", markup=False)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
