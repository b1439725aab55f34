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


def emit(document: dict[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it on a rich console."""
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from rich.console import Console

    render(Console())
