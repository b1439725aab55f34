"""A progress bar on stderr for the solvers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from relunorm.train.task import Progress


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Yield a listener that draws stage, share done, best loss, time spent and time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        item = bar.add_task(title, total=1.0, loss="-")

        def listen(stage: str, share: float, loss: float) -> None:
            shown = f"{loss:.3e}" if math.isfinite(loss) else "-"
            total = None if math.isnan(share) else 1.0
            done = 0.0 if math.isnan(share) else share
            text = f"{title}: {stage}"
            bar.update(item, description=text, completed=done, total=total, loss=shown)

        yield listen
