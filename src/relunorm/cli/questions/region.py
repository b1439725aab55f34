"""``relunorm region``: the linear region that holds one input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import DOMAINS, Json, ModelFile, Quiet, emit, examples, showing

if TYPE_CHECKING:
    from rich.console import Console


@examples(
    "relunorm region example:moons --at 0.1,0.2",
    "relunorm region model.onnx --at x.npy --polytope --json",
)
def region(
    model: ModelFile,
    at: Annotated[
        str, typer.Option(help="The input: a .npy file, or numbers separated by commas.")
    ],
    domain: Annotated[
        str | None, typer.Option(help=f"What to cut the region with: {DOMAINS}.")
    ] = None,
    polytope: Annotated[
        bool, typer.Option("--polytope", help="Its half-spaces, largest ball and neighbours, too.")
    ] = False,
    atoms: Annotated[
        bool, typer.Option("--atoms", help="Its atoms, too (see the page on regions).")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show the configuration and the affine map of MODEL at one input."""
    from relunorm.io import load
    from relunorm.io.domains import parse_domain
    from relunorm.regions.region import region_at

    network = load(model)
    where = None if domain is None else parse_domain(domain, network)
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
    emit(document, json, lambda console: _render(console, document))


def _read_point(at: str) -> Any:
    import numpy as np

    from relunorm.errors import InvalidInputError

    if Path(at).suffix == ".npy":
        try:
            return np.load(at, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InvalidInputError(f"{at} is not an array file: {error}") from None
    try:
        return np.array([float(part) for part in at.split(",")])
    except ValueError:
        raise InvalidInputError(
            f"--at {at!r} is neither a .npy file nor numbers separated by commas"
        ) from None


def _render(console: Console, document: dict[str, Any]) -> None:
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
