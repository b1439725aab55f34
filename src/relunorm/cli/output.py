"""What every command shares: one JSON document or a rendered page, never both."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.clock import Listener, Progress

#: What most commands are about.
ModelFile = Annotated[str, typer.Argument(help="A model file: .onnx, .npz, .safetensors or .pt2.")]

#: Where inputs live, spelled out.
DOMAIN: Any = typer.Option(help="box:LO,HI, box:@f.npz, ball:R, polytope:@f.npz or data:table.csv.")

#: The option every command has.
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]


#: The option of every command that shows its progress.
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]

#: Threads or processes of a command that can use several.
Jobs = Annotated[
    int | None, typer.Option("-j", "--jobs", help="Threads or processes; -1 for all cores.")
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


def check_folder(path: Path) -> None:
    """A folder that is not there is an error before the work, not after it."""
    if not path.resolve().parent.is_dir():
        raise InvalidInputError(f"{path}: the folder {path.resolve().parent} does not exist")


def check_model_out(path: str | None) -> None:
    """The same for a model that is to be written, and for an ending that no format has."""
    if path is None:
        return
    from relunorm.io import check_ending

    check_ending(Path(path))
    check_folder(Path(path))


def write_proof(proof: Any, path: str | None) -> None:
    """Write what `--proof` asks for."""
    if path is None:
        return
    if proof is None:
        raise InvalidInputError(
            "there is no proof yet: the search did not finish; give it more --time-limit"
        )
    proof.save(path)


def threads(jobs: int | None) -> int:
    """The number behind `--jobs`: one by default, all cores for -1."""
    if jobs is None:
        return 1
    if jobs == -1:
        return os.cpu_count() or 1
    if jobs < 1:
        raise typer.BadParameter(f"--jobs {jobs}: expected at least 1, or -1 for all cores")
    return jobs


def printable(text: str) -> str:
    """Text from a file, safe on a terminal: control characters shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def markup(text: str) -> str:
    """Text from a file, safe inside rich markup."""
    from rich.markup import escape

    return escape(printable(text))


def emit(document: dict[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it on a rich console.

    Where the model has a head, a last line says that the answer is about what comes before it.
    """
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    render(console)
    if document.get("of", "outputs") != "outputs":
        console.print(f"This speaks of the {document['of']}.", markup=False)


@contextmanager
def showing(what: str, off: bool) -> Iterator[Listener | None]:
    """A progress line on stderr while something long runs; none if off or without a terminal.

    Yields what a function takes as ``progress``.
    """
    if off or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(said: Progress) -> None:
            left = f", {said.left_in_words}" if said.left_in_words else ""
            text = f"{what}: {said.message}{left}"
            bar.update(task, description=text, completed=said.done, total=said.total)

        yield show
