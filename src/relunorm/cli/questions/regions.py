"""``relunorm regions`` and ``region``: all linear regions on a domain, and that of one input."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import array_file, numbers, opened, parse_table, plane_of, table_of
from relunorm.cli.output import Console, check_writable, emit, examples, print_table, showing
from relunorm.errors import InvalidInputError, UnsupportedFormatError

if TYPE_CHECKING:
    from relunorm.domain import Domain
    from relunorm.io.table import Table
    from relunorm.network import Network
    from relunorm.regions.partition import Regions
    from relunorm.regions.planes import Slice
    from relunorm.report.plane import Plane

#: Inputs up to which all regions of a domain are listed without asking whether that ends.
FEW_INPUTS = 8

PICTURES = (".png", ".svg", ".pdf")
MESHES = (".obj", ".ply")


@examples(
    "relunorm regions example:moons --domain box:-2,3 -o regions.png",
    "relunorm regions model.onnx --domain data:train.csv?target=y --slice rows:4,17,30 -o rows.png",
)
def regions(
    model: options.ModelFile,
    domain: Annotated[
        str | None, typer.Option(help=f"{options.DOMAINS}; or all. By default box:-1,1.")
    ] = None,
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
            help="Only the plane of two inputs by number or name, such as 0,3, through the "
            "domain's centre; or that through three inputs: rows:4,17,30 of --data or of a domain "
            "data:train.csv, or the rows of @points.npy; as far as it lies in --domain, without "
            "one in a window around the three.",
        ),
    ] = None,
    data: Annotated[str | None, options.DATA] = None,
    target: options.Target = None,
    drop: options.Drop = None,
    max_regions: Annotated[int | None, typer.Option(help="Stop after so many.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    jobs: options.Jobs = None,
    backend: options.Backend = None,
    scheduler: options.Scheduler = None,
    color: Annotated[
        str | None,
        typer.Option(
            help="Of a picture: value, gradient, layer, pattern or class (the largest output). By "
            "default class for a classifier of several outputs, unless --output is given."
        ),
    ] = None,
    output: Annotated[int | None, typer.Option(help="Which output to draw; 0 by default.")] = None,
    level: Annotated[float, typer.Option(help="The level of a surface.")] = 0.0,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Volumes, inradii, degrees and bounds, too.")
    ] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """List all linear regions of MODEL on a domain.

    Ctrl-C keeps what was found. Exit code 3: the search was stopped before it was complete.
    """
    from relunorm.regions.enumerate import regions as enumerate_regions

    check_writable(out, "regions", ".npz", *PICTURES, *MESHES)
    network, where = opened(model, _spelled(domain, plane))
    if output is not None:
        color = color or "value"
    output = output or 0
    if not 0 <= output < network.output_size:
        raise InvalidInputError(f"output {output} does not exist; there are {network.output_size}")
    if data is None and (target or drop):
        option = "--target" if target else "--drop"
        raise InvalidInputError(f"{option} names a column of --data, which was not given")
    if data is not None and plane is None:
        raise InvalidInputError("--data is for --slice, which was not given")
    limits: dict[str, Any] = {
        "max_regions": max_regions, "time_limit": time_limit, "workers": jobs, "backend": backend,
        "scheduler": scheduler,
    }  # fmt: skip
    document: dict[str, Any] = {"model": model}
    drawn: Regions | Slice
    view = None
    if plane is not None:
        table = None
        if data is not None:
            table = parse_table(data, target, drop, network)
        elif domain is not None:
            table = table_of(domain, network)
        view = plane_of(network, plane, where, table)
        with showing("searching", json or quiet) as report:
            cut, guess = _sliced(network, view, where, table, progress=report, **limits)
        found, drawn = cut.regions, cut
        document["slice"] = _seen(view, cut, where) | {"guess": guess}
    elif out is not None and out.suffix.lower() in PICTURES and network.input_size > 2:
        raise UnsupportedFormatError(
            f"{out}: a picture of {network.input_size} inputs needs a plane; add --slice 0,1"
        )
    else:
        if max_regions is None and time_limit is None:
            _refuse_hopeless(network, where)
        with showing("searching", json or quiet) as report:
            found = drawn = enumerate_regions(network, where, progress=report, **limits)
    document |= found.to_dict()
    if statistics:
        from relunorm.regions.views.statistics import statistics as measure

        document["statistics"] = measure(found, random_state=0).to_dict()
    if out is not None:
        _write(found, drawn, out, color, output, level, view)
        document["written"] = str(out)
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(0 if found.complete else 3)


def _spelled(domain: str | None, plane: str | None) -> str | None:
    """The domain as it is read; None for all of the input space, and for a window around points."""
    around = plane is not None and plane.startswith(("rows:", "@"))
    return None if domain == "all" or (domain is None and around) else domain or "box:-1,1"


def _sliced(
    network: Network, view: Plane, where: Domain | None, table: Table | None, **options: Any
) -> tuple[Slice, str]:
    """The regions on a plane, its points marked; names of classes, where a table has them.

    Where nobody said which output such a name belongs to, also their order, which is a guess.
    """
    from relunorm.questions.classes import as_classes
    from relunorm.regions.planes import on_plane

    names, labels = view.marks, None if table is None else table.labels
    if view.rows is not None and labels is not None and labels.ndim == 1:
        told = (
            f"{label:g}" if isinstance(label, float) else str(label)
            for label in labels[list(view.rows)].tolist()
        )
        names = tuple(f"{name} ({label})" for name, label in zip(names, told, strict=True))
    marked = () if view.marked is None else view.marked
    marks = dict(zip(names, marked, strict=True))
    found = on_plane(
        network, view.origin, view.u, view.v, view.window, domain=where, marks=marks, **options
    )
    known = None
    if table is not None and labels is not None and network.output_size > 1 and not found.classes:
        with suppress(InvalidInputError):  # a column that is nothing to the model
            known = as_classes(labels, None, network.head, network(table.x))
    if known is None or len(known[1].names) != network.output_size:
        return found, ""
    names = known[1].names
    return replace(found, classes=names), ", ".join(names) if known[1].guessed else ""


def _seen(view: Plane, drawn: Slice, where: Domain | None) -> dict[str, Any]:
    """What a slice shows of the plane, for the document; and what lies beyond the domain."""
    part, outside, shown = "clipped to the domain", [], drawn.regions.domain
    if where is None:
        part = "no domain was given, so all of the window is shown; --domain clips it"
    elif shown is not None and shown.as_box is not None:
        part = "all of it in the domain"
    if where is not None:
        points = [] if view.marked is None else view.marked
        outside = [
            name
            for name, at in zip(view.marks, points, strict=True)
            if not where.contains(at, 1e-9 * where.radius)[0]
        ]
    return {
        "words": view.words,
        "window": list(view.window),
        "part": part,
        "outside": outside,
        "marks": [
            {"name": name, "at": drawn.coordinates(at)[0].tolist()} for name, at in drawn.marks
        ],
    }


def _write(
    found: Regions,
    drawn: Regions | Slice,
    out: Path,
    color: str | None,
    output: int,
    level: float,
    view: Plane | None,
) -> None:
    ending = out.suffix.lower()
    if ending == ".npz":
        found.save(out)
    elif ending in MESHES:
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
        from relunorm.regions.views.plot import plot_line

        if found.domain is None:
            raise InvalidInputError(
                "a picture of one input needs an interval, as --domain box:-1,1"
            )
        plot_line(found.network, found.domain.bounding_box, output=output).savefig(out, dpi=150)
    else:
        from relunorm.regions.views.plot import plot_regions

        figure = plot_regions(drawn, color=color, output=output)
        if view is not None:
            figure.axes[0].set(xlabel=view.labels[0], ylabel=view.labels[1])
        figure.savefig(out, dpi=150)


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
    raise InvalidInputError(
        f"{network.input_size} inputs: no two of {count:,} random points of the domain lie in the "
        f"same region, so there are far more than {count**2 // 2:,} of them and no list would end. "
        "Ask for a plane (--slice 0,1), for the region of one input (relunorm region MODEL --at "
        "x.npy), for a smaller --domain, or for as many as --max-regions or --time-limit allow."
    )


def _render(console: Console, document: dict[str, Any]) -> None:
    ending = "" if document["complete"] else f" (partial: {document['reason']})"
    console.print(
        f"{document['regions']:,} regions{ending} on {document['domain']} "
        f"in {document['seconds']:.3g} s by {document['method']}",
        markup=False,
    )
    if "slice" in document:
        seen = document["slice"]
        left, right, low, high = seen["window"]
        window = f"[{left:.4g}, {right:.4g}] x [{low:.4g}, {high:.4g}]"
        console.print(f"{seen['words']}, seen in {window}: {seen['part']}", markup=False)
        if seen["outside"]:
            console.print(f"outside the domain: {', '.join(seen['outside'])}", markup=False)
        if seen["guess"]:
            told = "labels are taken for the classes in this order, which is a guess"
            console.print(f"{told}: {seen['guess']}", markup=False)
    if document["hidden"]:
        console.print("regions thinner than 1e-10 of the domain exist and are not listed")
    if not document["regions"] and not document["complete"]:
        console.print("none was found in the time given; --slice 0,1 lists those on a plane")
        return
    counts = enumerate(document["regions_per_layer"], start=1)
    print_table(console, ("after layer", "regions"), ([str(k), f"{n:,}"] for k, n in counts))
    if "statistics" in document and not document["complete"]:
        console.print("statistics of the regions found; the bounds are for all of them")
    for name, value in document.get("statistics", {}).items():
        if name != "schema":
            console.print(f"{name}: {value}", markup=False)
    if "written" in document:
        console.print(f"written to {document['written']}", markup=False)


@examples(
    "relunorm region example:moons --at 0.1,0.2",
    "relunorm region model.onnx --at x.npy --polytope --json",
)
def region(
    model: options.ModelFile,
    at: Annotated[
        str, typer.Option(help="The input: a .npy file, or numbers separated by commas.")
    ],
    domain: Annotated[
        str | None, typer.Option(help=f"What to cut the region with: {options.DOMAINS}.")
    ] = None,
    polytope: Annotated[
        bool, typer.Option("--polytope", help="Its half-spaces, largest ball and neighbours, too.")
    ] = False,
    atoms: Annotated[
        bool, typer.Option("--atoms", help="Its atoms, too (see the page on regions).")
    ] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Show the configuration and the affine map of MODEL at one input."""
    from relunorm.regions.region import region_at

    network, where = opened(model, domain)
    found = region_at(network, _read_point(at), where)
    document: dict[str, Any] = {"model": model, **found.to_dict()}
    with showing("looking at the region", json or quiet):
        if polytope:
            document["polytope"] = found.polytope.to_dict()
            radius = found.inradius
            document["inradius"] = radius if radius != float("inf") else None
            document["neighbors"] = [str(wall) for wall, _ in found.neighbors()]
        if atoms:
            document["atoms"] = found.atoms().to_dict()
    emit(document, json, lambda console: _render_one(console, document))


def _read_point(at: str) -> Any:
    if Path(at).suffix == ".npy":
        return array_file(at)
    expected = f"--at {at!r} is neither a .npy file nor numbers separated by commas"
    return numbers(at, float, expected)


def _render_one(console: Console, document: dict[str, Any]) -> None:
    for k, theta in enumerate(document["configuration"], start=1):
        shown = "".join(map(str, theta[:80])) + ("..." if len(theta) > 80 else "")
        console.print(f"layer {k}: {sum(theta)} of {len(theta)} active  {shown}", markup=False)
    rows, c = document["A"], document["c"]
    for o, (row, shift) in enumerate(zip(rows[:10], c, strict=False)):
        shown = ", ".join(f"{v:.6g}" for v in row[:8]) + (", ..." if len(row) > 8 else "")
        console.print(f"output {o} = [{shown}] . x + {shift:.6g}", markup=False)
    if "polytope" in document:
        walls = document["polytope"]["walls"]
        radius = document["inradius"]
        console.print(
            f"{len(walls)} walls: {', '.join(walls[:20])}{', ...' if len(walls) > 20 else ''}",
            markup=False,
        )
        console.print(f"largest ball: {'no bound' if radius is None else f'{radius:.6g}'}")
    if "atoms" in document:
        entry = document["atoms"]
        console.print(f"{entry['atoms']} atoms, reconstruction error {entry['error']:.1e}")
