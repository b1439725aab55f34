"""What every command shares: one JSON document or a rendered page, never both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

#: The option every command has.
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]


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
