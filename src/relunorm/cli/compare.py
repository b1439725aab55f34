"""``relunorm compare``: whether two models are the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.normalize import check_certifiable
from relunorm.cli.output import Json, Quiet, emit, showing
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

EXIT = {"equal": 0, "within": 0, "different": 1, "unknown": 3}


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A model file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The model to compare it with.")],
    domain: Annotated[
        str, typer.Option(help="box:LO,HI, box:@f.npz, ball:R, polytope:@f.npz or data:table.csv.")
    ],
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How far the outputs may be apart. By default 1e-9, and 1e-5 of the outputs where "
            "one of the two is in single precision."
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 60.0,
    certificate: Annotated[
        str | None, typer.Option(help="Write the proof of the upper bound, as JSON.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Decide whether A and B agree over the domain.

    Exit code 0: equal or within the tolerance; 1: different; 2: bad input; 3: unknown.
    """
    from relunorm.forms.compare import compare as run
    from relunorm.io import load
    from relunorm.io.domains import parse_domain

    a, b = load(first), load(second)
    place = parse_domain(domain, a.input_size)
    if certificate is not None:
        check_certifiable(place)
    with showing("comparing", json or quiet) as show:
        found = run(
            a, b, place, tolerance=tolerance, time_limit=time_limit,
            progress=show,
        )  # fmt: skip
    document = {**found.to_dict(), "models": [first, second], "certificate": None}
    if certificate is not None:
        if found.certificate is None:
            raise InvalidInputError(
                f"no finite upper bound was proved ({found!r}), so there is no certificate to "
                "write; leave --certificate out"
            )
        found.certificate.save(certificate)
        document["certificate"] = certificate
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(EXIT[found.verdict])


def _render(console: Console, document: dict[str, Any]) -> None:
    upper = "unbounded" if document["upper"] is None else f"{document['upper']:.3g}"
    console.print(f"[bold]{document['verdict']}[/bold] (by {document['method']})")
    console.print(f"{document['lower']:.3g} <= max |A - B| <= {upper}")
    if document["upper_after_head"] is not None and document["of"] != "outputs":
        console.print(
            f"so the models' outputs differ by at most {document['upper_after_head']:.3g}"
        )
    console.print(f"tolerance {document['tolerance']:.3g}")
    if document["apart"] is not None:
        console.print(f"away from the thresholds of steps: max |A - B| <= {document['apart']:.3g}")
    if document["verdict"] == "different":
        console.print(f"input    {_short(document['witness'])}")
        console.print(f"A there  {_short(document['first'])}")
        console.print(f"B there  {_short(document['second'])}")


def _short(numbers: list[float]) -> str:
    shown = ", ".join(f"{v:.6g}" for v in numbers[:8])
    return f"{shown}, ... ({len(numbers)} numbers; all with --json)" if len(numbers) > 8 else shown
