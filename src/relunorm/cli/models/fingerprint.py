"""``relunorm fingerprint``: one short name for all copies of a function."""

from __future__ import annotations

from typing import Annotated

import typer

from relunorm.cli.output import DOMAIN, Json, ModelFile, Quiet, emit, examples, showing


@examples(
    "relunorm fingerprint model.onnx --domain box:-1,1",
    "relunorm fingerprint model.onnx --digits 6",
)
def fingerprint(
    model: ModelFile,
    domain: Annotated[str | None, DOMAIN] = None,
    digits: Annotated[
        int | None,
        typer.Option(help="Round parameters to this many digits first; exact if omitted."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for the stability analysis.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Print the hash of MODEL's canonical form over the domain."""
    from relunorm.forms.fingerprint import fingerprint as run
    from relunorm.io import load
    from relunorm.io.domains import parse_domain

    network = load(model)
    place = None if domain is None else parse_domain(domain, network)
    with showing("canonical form", json or quiet):
        value = run(network, place, digits, time_limit=time_limit)
    document = {
        "schema": "relunorm.fingerprint/1",
        "model": model,
        "domain": domain,
        "digits": digits,
        "fingerprint": value,
    }
    emit(document, json, lambda console: console.print(value, markup=False, highlight=False))
