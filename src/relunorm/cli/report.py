"""``relunorm report``: one page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import check_labels, opened, parse_classes, parse_slice, parse_table
from relunorm.cli.output import Console, check_writable, emit, examples
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.clock import Progress


@examples(
    "relunorm report model.onnx --data test.csv --target y -o page.html",
    "relunorm report example:moons --data example:moons --domain box:-2,3 --open",
)
def report(
    model: options.ModelFile,
    data: Annotated[str | None, options.DATA] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The table's column to predict: numbers, or names of classes; repeat it for "
            "several."
        ),
    ] = None,
    classes: options.Classes = None,
    drop: options.Drop = None,
    domain: Annotated[
        str | None,
        typer.Option(
            help=f"Where to look: {options.DOMAINS}. By default the box around the data, else "
            "box:-1,1."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The page to write, .html.")
    ] = None,
    plane: Annotated[
        str | None,
        typer.Option(
            "--slice",
            help="With more than two inputs, the plane to draw: two inputs by number or name, such "
            "as 0,3; rows:4,17,30 of the data; or @points.npy with three inputs as rows.",
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(help="Seconds in all, start-up and compiling aside.")
    ] = 10.0,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: options.Quiet = False,
    example: options.Example = None,
    json: options.Json = False,
) -> None:
    """Write one offline page about MODEL: how well it does, what to do, and what it is.

    Ctrl-C keeps the sections that are finished.
    """
    from relunorm.report.report import report as run

    if out is None and (open_it or not json):
        out = Path("report.html")
    check_writable(out, "reports", ".html", ".htm")
    network, place = opened(model, domain, example)
    table = None
    if data is not None:
        table = parse_table(data, target, drop, network)
        if classes is None:
            check_labels(table, network)
    for option, given in (("--target", target), ("--drop", drop)):
        if table is None and given:
            raise InvalidInputError(f"{option} names a column of --data, which was not given")
    found = run(
        network,
        table,
        domain=place,
        slice=None if plane is None else parse_slice(plane, table),
        name=Path(model).name,  # a page is passed on; where the file lay is nobody's business
        classes=None if classes is None else parse_classes(classes),
        time_limit=time_limit,
        progress=None if quiet else _progress,
    )
    if out is not None:
        found.save(out)
    emit(found.to_dict(), json, lambda console: _render(console, found.to_dict(), out))
    if open_it and out is not None:
        import webbrowser

        if not webbrowser.open(out.resolve().as_uri()):
            typer.echo("relunorm: no browser was found; open the page yourself", err=True)


def _progress(said: Progress) -> None:
    left = f" ({said.left_in_words})" if said.left_in_words else ""
    typer.echo(f"[{said.done + 1:.0f}/{said.total:.0f}] {said.message}{left}", err=True)


def _render(console: Console, document: dict[str, Any], out: Path | None) -> None:
    for entry in document["sections"].values():
        note = f": {entry['why']}" if entry["why"] else ""
        console.print(f"{entry['title']}: {entry['status']}{note}", markup=False)
    for number, item in enumerate(document["advice"], start=1):
        console.print(f"{number}. {item['text']}", markup=False)
    if out is not None:
        console.print(f"written to {out}", markup=False)
