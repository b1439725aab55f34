"""``relunorm verify``: replay a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.output import Console, emit, examples, showing

if TYPE_CHECKING:
    from relunorm.network import Network


@examples(
    "relunorm verify proof.json model.onnx small.onnx",
    "relunorm verify proof.json model.onnx --json",
)
def verify(
    certificate: Annotated[str, typer.Argument(metavar="CERT", help="A certificate, JSON.")],
    first: Annotated[str, typer.Argument(metavar="A", help="The model it was made from.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The model it was made for, or the C file."),
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help=f"What CERT's domain has to contain: {options.DOMAINS}.")
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Check that CERT proves A and B to agree, recomputing every bound without a solver.

    For a certificate of `relunorm export` B is the C file: its tables are read back. A proof of
    `relunorm maximize`, `lipschitz` or `sensitivity` speaks of A alone, and B is left out.

    CERT names the domain it speaks of, which is shown; --domain demands that it contains another
    one. Both models are also evaluated at points of the domain.

    Exit code 0: it holds; 1: it does not; 2: bad input.
    """
    from relunorm.forms.certificate.certificate import Certificate
    from relunorm.forms.certificate.verification import verify as run

    a, demanded = opened(first, domain)
    if second is None:
        raise typer.Exit(_search(certificate, first, a, domain, json, quiet))
    if Path(second).suffix in (".c", ".h"):
        from relunorm.embedded import ProgramCertificate
        from relunorm.embedded import verify as run_program

        source = Path(second).read_bytes().decode("utf-8", errors="replace")
        source = source.replace("\r\n", "\n")  # as an editor on Windows saves it
        with showing("replaying the proof", json or quiet):
            found = run_program(ProgramCertificate.load(certificate), a, source, demanded)
    else:
        b, _ = opened(second)
        with showing("replaying the proof", json or quiet):
            found = run(Certificate.load(certificate), a, b, demanded)
    document = {**found.to_dict(), "certificate": certificate, "models": [first, second]}
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(0 if found.holds else 1)


def _search(
    certificate: str, model: str, network: Network, domain: str | None, json: bool, quiet: bool
) -> int:
    """Replay the proof of a search; the exit code."""
    from relunorm.errors import InvalidInputError
    from relunorm.lipschitz.search.proof import SlopeProof
    from relunorm.search.proofs.document import read
    from relunorm.search.proofs.proof import SearchProof

    if domain is not None:
        raise InvalidInputError("--domain goes with two models; the proof names its own domain")
    content = read(certificate)
    kind = str(content.get("schema", "")).partition("/")[0] if isinstance(content, dict) else ""
    if kind in ("relunorm.certificate", "relunorm.program"):
        other = "the C file" if kind == "relunorm.program" else "the second model"
        raise InvalidInputError(
            f"{certificate} speaks of two models, and {other} is missing: relunorm verify "
            f"{certificate} A B"
        )
    claims: dict[str, Any]
    if isinstance(content, dict) and content.get("schema") == SlopeProof.SCHEMA:
        slopes = SlopeProof.from_dict(content)
        with showing("replaying the proof", json or quiet):
            found, where = slopes.verify(network), slopes.domain
        shown = [{"goal": str(c.goal), "upper": c.upper} for c in slopes.claims]
        claims = {"claims": shown}
    else:
        proof = SearchProof.from_dict(content)
        with showing("replaying the proof", json or quiet):
            found, where = proof.verify(network), proof.reach.domain
        claims = {"limit": proof.limit, "strict": proof.strict}
    document = {
        "schema": "relunorm.replay/1",
        "certificate": certificate,
        "models": [model],
        "holds": found.holds,
        **claims,
        "domain": "the whole space" if where is None else repr(where),
        "nodes": found.nodes,
        "problems": [found.reason] if found.reason else [],
    }
    emit(document, json, lambda console: _render_search(console, document))
    return 0 if found.holds else 1


def _render_search(console: Console, document: dict[str, Any]) -> None:
    if not document["holds"]:
        console.print("[bold]does not hold[/bold]")
        console.print(f"- {document['problems'][0]}", markup=False)
        return
    if "claims" in document:
        what = f"{len(document['claims'])} upper bounds on slopes"
        if len(document["claims"]) == 1:
            what = f"slopes are <= {document['claims'][0]['upper']:.12g} everywhere"
    else:
        sign = "<" if document["strict"] else "<="
        what = f"the goals are {sign} {document['limit']:.12g} everywhere"
    console.print(f"[bold]holds[/bold]: {what}")
    console.print(str(document["domain"]), markup=False)
    console.print(f"{document['nodes']:,} parts replayed, no solver")


def _render(console: Console, document: dict[str, Any]) -> None:
    from relunorm.arithmetic.floats import at_most

    if document["holds"]:
        bound = f"|A - B| <= {at_most(document['bound'], 3)} over the domain"
        console.print(f"[bold]{document['verdict']}[/bold]: {bound}")
        console.print(str(document["domain"]), markup=False)
        if document["threshold_margin"] is not None:
            away = document["threshold_margin"]
            console.print(f"where no step is within {at_most(away, 2)} of its threshold")
        return
    console.print("[bold]does not hold[/bold]")
    for problem in document["problems"]:
        console.print(f"- {problem}", markup=False)
