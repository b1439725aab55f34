"""A progress bar on stderr for the solvers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from relunorm.clock import Listener, Progress


@contextmanager
def progress_bar(title: str) -> Iterator[Listener]:
    """Yield a listener that draws stage, share done, best loss, time spent and time left."""
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("loss {task.fields[loss]}"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        item = bar.add_task(title, total=1.0, loss="-")

        def listen(said: Progress) -> None:
            loss = said.facts.get("loss", math.nan)
            shown = f"{loss:.3e}" if math.isfinite(loss) else "-"
            text = f"{title}: {said.message}"
            bar.update(item, description=text, completed=said.done, total=said.total, loss=shown)

        yield listen
