"""What every command shares: one JSON document or a rendered page, never both."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand

from relunorm.errors import InvalidInputError, UnsupportedFormatError

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.clock import Listener, Progress
else:
    Console = Any  # of rich, which is not light to import

#: Command -> the last part of its help.
EPILOGS: dict[Callable[..., None], str] = {}

_Command = TypeVar("_Command", bound=Callable[..., None])


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Two lines to type, shown in the help of a command; the tests parse each of them."""

    def note(command: _Command) -> _Command:
        EPILOGS[command] = epilog(*lines)
        return command

    return note


def either(names: Iterable[str]) -> str:
    """A choice in words: a, b or c."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


#: Words of a help that stand for the names in a registry; what holds it is not light to import.
REGISTRIES = {
    "READERS": "relunorm.io:READERS",
    "FORMS": "relunorm.forms.shapes:FORMS",
    "TARGETS": "relunorm.embedded.c.c_file:TARGETS",
    "NORMS": "relunorm.lipschitz.norms:NORMS",
    "METHODS": "relunorm.lipschitz.front:METHODS",
    "BACKENDS": "relunorm.sweep.backends:BACKENDS",
    "WIDTHS": "relunorm.embedded.arithmetic.integers:WIDTHS",
}


class Command(TyperCommand):
    """A command whose help lists the names in registries, once it is asked for."""

    def fill(self) -> None:
        """Put the names in."""
        for option in self.params:
            for word, place in REGISTRIES.items():
                told = getattr(option, "help", None) or ""
                if re.search(rf"\b{word}\b", told):
                    module, name = place.split(":")
                    names = either(map(str, getattr(import_module(module), name)))
                    option.help = told.replace(word, names)  # type: ignore[attr-defined]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of the command."""
        self.fill()
        super().format_help(ctx, formatter)


def epilog(*lines: str) -> str:
    """Examples as the last part of a help page."""
    return "\n\n".join(["Examples:", *lines])


def check_writable(path: str | Path | None, what: str = "plots", *endings: str) -> None:
    """A wrong ending or folder is an error before the work, not after it."""
    if path is None:
        return
    path, known = Path(path), endings or (".png", ".pdf", ".svg")
    if path.suffix.lower() not in known:
        raise UnsupportedFormatError(f"{path}: {what} are written as {either(known)}")
    check_folder(path)


def check_folder(*paths: str | Path | None) -> None:
    """Refuse to write into a folder that is not there, or that lets nothing be written."""
    from tempfile import TemporaryFile

    for path in paths:
        if path is None:
            continue
        folder = Path(path).resolve().parent
        if not folder.is_dir():
            raise InvalidInputError(f"{path}: the folder {folder} does not exist")
        if Path(path).is_dir():
            raise InvalidInputError(f"{path}: this is a folder, expected a file")
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInputError(
                f"{path}: nothing can be written to the folder {folder} ({why})"
            ) from None


def check_model_out(path: str | None) -> None:
    """The same for a model that is to be written, and for an ending that no format has."""
    if path is None:
        return
    from relunorm.io import check_ending

    check_ending(Path(path))
    check_folder(path)


def write_proof(proof: Any, path: str | None) -> str | None:
    """Write what `--proof` asks for; where it is, None where there is nothing to write."""
    if path is not None and proof is None:
        text = "there is no proof to write: only a search has one, and it needs --time-limit to end"
        typer.echo(f"relunorm: {text}", err=True)
    if path is None or proof is None:
        return None
    proof.save(path)
    return path


def printable(text: str) -> str:
    """Text from a file, safe on a terminal: control characters shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def markup(text: str) -> str:
    """Text from a file, safe inside rich markup."""
    from rich.markup import escape

    return escape(printable(text))


def emit(
    document: dict[str, Any],
    as_json: bool,
    render: Callable[[Console], None],
    *,
    last_line: bool = True,
) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it on a rich console.

    Where the model has a head, a last line says that the answer is about what comes before it,
    unless ``render`` says it itself.
    """
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    render(console)
    if last_line and document.get("of", "outputs") != "outputs":
        console.print(f"This speaks of the {document['of']}.", markup=False)


def print_table(
    console: Console, heads: Iterable[str], rows: Iterable[Iterable[str]], **options: Any
) -> None:
    """Draw a table of text; what is too long for its column goes on below, and is never cut."""
    from rich.table import Table

    table = Table(*heads, **options)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def showing(what: str, off: bool) -> Iterator[Listener | None]:
    """A progress line on stderr while something long runs; none if off.

    Without a terminal there is a line where kernels are compiled, and one now and then. Yields what
    a function takes as ``progress``.
    """
    if off:
        yield None
        return
    from relunorm.clock import Log, overhearing

    if not sys.stderr.isatty():
        write = partial(typer.echo, err=True)
        with overhearing(lambda said: write(f"relunorm: {said.message}"), loading=False):
            yield Log(what, write)
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

        with overhearing(show):
            yield show
