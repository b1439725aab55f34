"""``relunorm regions``: list every linear region on a domain, write or draw them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import (
    DOMAINS,
    Backend,
    Jobs,
    Json,
    ModelFile,
    Quiet,
    Scheduler,
    check_writable,
    emit,
    examples,
    showing,
)

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.domain import Domain
    from relunorm.network import Network
    from relunorm.regions.partition import Regions

#: Inputs up to which all regions of a domain are listed without asking whether that ends.
FEW_INPUTS = 8

PICTURES = (".png", ".svg", ".pdf")
MESHES = (".obj", ".ply")


@examples(
    "relunorm regions example:moons --domain box:-2,3 -o regions.png",
    "relunorm regions model.onnx --domain box:-1,1 --slice 0,3 -o plane.png",
)
def regions(
    model: ModelFile,
    domain: Annotated[str, typer.Option(help=f"{DOMAINS}; or all.")] = "box:-1,1",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the list (.npz), a picture (.png .svg .pdf; of more than two inputs with "
            "--slice) or the surface output = level (.obj .ply, three inputs).",
        ),
    ] = None,
    plane: Annotated[
        str | None,
        typer.Option(
            "--slice",
            help="Only the plane of two inputs, such as 0,3, through the domain's centre; or the "
            "plane through the three rows of @points.npy.",
        ),
    ] = None,
    max_regions: Annotated[int | None, typer.Option(help="Stop after so many.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    jobs: Jobs = None,
    backend: Backend = None,
    scheduler: Scheduler = None,
    color: Annotated[
        str, typer.Option(help="Of a picture: value, gradient, layer or pattern.")
    ] = "value",
    output: Annotated[int, typer.Option(help="Which output to draw.")] = 0,
    level: Annotated[float, typer.Option(help="The level of a surface.")] = 0.0,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Volumes, inradii, degrees and bounds, too.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """List all linear regions of MODEL on a domain.

    Ctrl-C keeps what was found. Exit code 3: the search was stopped before it was complete.
    """
    import numpy as np

    from relunorm.errors import UnsupportedFormatError
    from relunorm.io import load
    from relunorm.io.domains import parse_domain
    from relunorm.regions.enumerate import regions as enumerate_regions

    check_writable(out, "regions", ".npz", *PICTURES, *MESHES)
    network = load(model)
    where = None if domain == "all" else parse_domain(domain, network)
    if plane is not None:
        from relunorm.cli.tables import plane_of
        from relunorm.domain import Box
        from relunorm.regions.planes import restrict

        view = plane_of(network, plane, where)
        network = restrict(network.folded(), np.stack([view.u, view.v]).T, view.origin)
        where = Box(np.array(view.window[::2]), np.array(view.window[1::2]))
    elif out is not None and out.suffix.lower() in PICTURES and network.input_size > 2:
        raise UnsupportedFormatError(
            f"{out}: a picture of {network.input_size} inputs needs a plane; add --slice 0,1"
        )
    elif max_regions is None and time_limit is None:
        _refuse_hopeless(network, where)
    with showing("searching", json or quiet) as report:
        found = enumerate_regions(
            network,
            where,
            max_regions=max_regions,
            time_limit=time_limit,
            workers=jobs,
            backend=backend,
            scheduler=scheduler,
            progress=report,
        )
    document: dict[str, Any] = {"model": model, **found.to_dict()}
    if statistics:
        from relunorm.regions.views.statistics import statistics as measure

        document["statistics"] = measure(found, random_state=0).to_dict()
    if out is not None:
        _write(found, out, color, output, level)
        document["written"] = str(out)
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(0 if found.complete else 3)


def _write(found: Regions, out: Path, color: str, output: int, level: float) -> None:
    ending = out.suffix.lower()
    if ending == ".npz":
        found.save(out)
    elif ending in MESHES:
        from relunorm.errors import InvalidInputError
        from relunorm.regions.geometry.boundaries import level_set
        from relunorm.regions.views.mesh import mesh

        surface = mesh(level_set(found, level, output))
        if not surface.faces:
            raise InvalidInputError(
                f"{out} is not written: output {output} never takes the value {level:g} on the "
                "regions found; choose another --level or --domain"
            )
        surface.save(out)
    elif found.network.input_size == 1:
        from relunorm.errors import InvalidInputError
        from relunorm.regions.views.plot import plot_line

        if found.domain is None:
            raise InvalidInputError(
                "a picture of one input needs an interval, as --domain box:-1,1"
            )
        plot_line(found.network, found.domain.bounding_box, output=output).savefig(out, dpi=150)
    else:
        from relunorm.regions.views.plot import plot_regions

        plot_regions(found, color=color, output=output).savefig(out, dpi=150)


def _refuse_hopeless(network: Network, where: Domain | None) -> None:
    """Say at once that a list without end was asked for, and what can be had instead.

    Random points tell: if no two of them share a region, there are far more regions than half the
    square of their number (the birthday problem).
    """
    import numpy as np

    if network.input_size <= FEW_INPUTS or where is None:
        return
    count = int(np.clip(2e9 / network.parameters, 200, 20_000))
    signs = [z > 0 for z in network.preactivations(where.sample(count, 0))]
    patterns = np.packbits(np.hstack(signs), axis=1)
    if len(np.unique(patterns, axis=0)) < count:
        return
    from relunorm.errors import InvalidInputError

    raise InvalidInputError(
        f"{network.input_size} inputs: no two of {count:,} random points of the domain lie in the "
        f"same region, so there are far more than {count**2 // 2:,} of them and no list would end. "
        "Ask for a plane (--slice 0,1), for the region of one input (relunorm region MODEL --at "
        "x.npy), for a smaller --domain, or for as many as --max-regions or --time-limit allow."
    )


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
    if not document["regions"] and not document["complete"]:
        console.print("none was found in the time given; --slice 0,1 lists those on a plane")
        return
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
