"""What every command shares: one JSON document or a rendered page, never both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

#: The option every command has.
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]


#: For models whose file does not fix the input shape.
Example = Annotated[
    str | None,
    typer.Option(help="Shape of one input, such as 1,28,28, where the file leaves it open."),
]


def parse_example(text: str | None) -> tuple[int, ...] | None:
    """The shape behind `--example`."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a shape; write it as 1,28,28") from None


def printable(text: str) -> str:
    """Text from a file, safe on a terminal: control characters shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def markup(text: str) -> str:
    """Text from a file, safe inside rich markup."""
    from rich.markup import escape

    return escape(printable(text))


def emit(document: dict[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from rich.console import Console

    render(Console())


@contextmanager
def showing(what: str, as_json: bool) -> Iterator[Callable[[str, float | None], None]]:
    """A progress line on stderr while something long runs; none without a terminal or with --json.

    Yields a function to call with what is being done and, where known, the share that is done.
    """
    if as_json or not sys.stderr.isatty():
        yield lambda text, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def show(text: str, share: float | None) -> None:
            total, done = (None, 0.0) if share is None else (1.0, share)
            progress.update(task, description=f"{what}: {text}", completed=done, total=total)

        yield show
