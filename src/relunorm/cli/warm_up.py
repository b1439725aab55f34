"""``relunorm warm-up``: compile everything ahead of its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relunorm.cli.output import Json, emit, examples, showing

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "relunorm warm-up",
    "relunorm warm-up --json",
)
def warm_up(json: Json = False) -> None:
    """Compile the search kernels now, so that no later command has to.

    They are kept with the installation, or in the user's cache where that cannot be written. Run it
    once after installing, or while building an image.
    """
    from relunorm.kernels import warm_up as run

    with showing("compiling", json) as show:
        taken = run(show)
    document = {"schema": "relunorm.warm-up/1", "cpu_seconds": taken}

    def render(console: Console) -> None:
        for name, seconds in taken.items():
            console.print(f"{name}: {seconds:.1f} CPU s", markup=False)
        console.print(f"in all {sum(taken.values()):.1f} CPU s", markup=False)

    emit(document, json, render)
