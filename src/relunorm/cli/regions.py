"""``relunorm regions``: list every linear region on a domain, write or draw them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import Json, emit

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.clock import Progress
    from relunorm.regions.result import Regions

PICTURES = (".png", ".svg", ".pdf")
MESHES = (".obj", ".ply")


def regions(
    model: Annotated[str, typer.Argument(help="A model file: .onnx, .npz, .safetensors or .pt2.")],
    domain: Annotated[
        str,
        typer.Option(
            help="box:-1,1 or box:@file.npz, ball:2, polytope:@file.npz, data:train.csv, or all."
        ),
    ] = "box:-1,1",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the list (.npz), a picture (.png .svg .pdf, one or two inputs) or the "
            "surface output = level (.obj .ply, three inputs).",
        ),
    ] = None,
    max_regions: Annotated[int | None, typer.Option(help="Stop after so many.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads or processes; -1 for all cores.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="loky, dask or ray: processes instead of threads.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler (tcp://...) or Ray cluster.")
    ] = None,
    color: Annotated[
        str, typer.Option(help="Of a picture: value, gradient, layer or pattern.")
    ] = "value",
    output: Annotated[int, typer.Option(help="Which output to draw.")] = 0,
    level: Annotated[float, typer.Option(help="The level of a surface.")] = 0.0,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Volumes, inradii, degrees and bounds, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """List all linear regions of MODEL on a domain. Ctrl-C keeps what was found."""
    from relunorm.errors import UnsupportedFormatError
    from relunorm.io import load
    from relunorm.io.domains import parse_domain
    from relunorm.regions.enumerate import regions as enumerate_regions

    if out is not None and out.suffix.lower() not in (".npz", *PICTURES, *MESHES):
        raise UnsupportedFormatError(
            f"{out}: regions are written as .npz, {', '.join((*PICTURES, *MESHES))}"
        )
    network = load(model)
    where = None if domain == "all" else parse_domain(domain, network.input_size)
    with _progress(quiet or json) as report:
        found = enumerate_regions(
            network,
            where,
            max_regions=max_regions,
            time_limit=time_limit,
            workers=workers,
            backend=backend,
            scheduler=scheduler,
            progress=report,
        )
    document: dict[str, Any] = {"model": model, **found.to_dict()}
    if statistics:
        from relunorm.regions.statistics import statistics as measure

        document["statistics"] = measure(found, random_state=0).to_dict()
    if out is not None:
        _write(found, out, color, output, level)
        document["written"] = str(out)
    emit(document, json, lambda console: _render(console, document))


def _write(found: Regions, out: Path, color: str, output: int, level: float) -> None:
    ending = out.suffix.lower()
    if ending == ".npz":
        found.save(out)
    elif ending in MESHES:
        from relunorm.errors import InvalidInputError
        from relunorm.regions.boundaries import level_set
        from relunorm.regions.mesh import mesh

        surface = mesh(level_set(found, level, output))
        if not surface.faces:
            raise InvalidInputError(
                f"{out} is not written: output {output} never takes the value {level:g} on the "
                "regions found; choose another --level or --domain"
            )
        surface.save(out)
    elif found.network.input_size == 1:
        from relunorm.errors import InvalidInputError
        from relunorm.regions.plot import plot_line

        if found.domain is None:
            raise InvalidInputError(
                "a picture of one input needs an interval, as --domain box:-1,1"
            )
        plot_line(found.network, found.domain.bounding_box, output=output).savefig(out, dpi=150)
    else:
        from relunorm.regions.plot import plot_regions

        plot_regions(found, color=color, output=output).savefig(out, dpi=150)


class _progress:
    """A line on stderr with regions found, the rate and the time left where it can be told."""

    def __init__(self, off: bool):
        self.off = off

    def __enter__(self):  # type: ignore[no-untyped-def]
        if self.off:
            return None
        from rich.console import Console
        from rich.status import Status

        self.status = Status("searching", console=Console(stderr=True))
        self.status.start()
        return self.report

    def report(self, said: Progress) -> None:
        if "found" not in said.facts:
            self.status.update(said.message)
            return
        rate = said.facts["found"] / max(said.elapsed, 1e-9)
        ending = "" if said.left is None else f", about {said.left:,.0f} s left"
        self.status.update(f"{said.message}, {rate:,.0f} a second{ending}")

    def __exit__(self, *_: object) -> None:
        if not self.off:
            self.status.stop()


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    ending = "" if document["complete"] else f" (partial: {document['reason']})"
    console.print(
        f"{document['regions']:,} regions{ending} on {document['domain']} "
        f"in {document['seconds']:.3g} s by {document['method']}",
        markup=False,
    )
    if document["hidden"]:
        console.print("regions thinner than 1e-10 of the domain exist and are not listed")
    table = Table("after layer", "regions")
    for k, count in enumerate(document["regions_per_layer"], start=1):
        table.add_row(str(k), f"{count:,}")
    console.print(table)
    if "statistics" in document and not document["complete"]:
        console.print("statistics of the regions found; the bounds are for all of them")
    for name, value in document.get("statistics", {}).items():
        if name != "schema":
            console.print(f"{name}: {value}", markup=False)
    if "written" in document:
        console.print(f"written to {document['written']}", markup=False)
