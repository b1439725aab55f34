"""``relunorm normalize``: the same function, smaller or in a standard shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.atomic import write_bytes
from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.output import (
    Console,
    check_folder,
    check_model_out,
    emit,
    examples,
    print_table,
    showing,
)
from relunorm.clock import INTERRUPTED
from relunorm.display.shown import counted
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.domain import Domain
    from relunorm.network import Network


@examples(
    "relunorm normalize model.onnx -o small.onnx --domain data:train.csv?target=y",
    "relunorm normalize model.onnx --form canonical --domain box:-1,1 --certificate proof.json",
)
def normalize(
    model: options.ModelFile,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", help="Where to write; MODEL-FORM in MODEL's format if omitted."
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(help="FORMS (see the docs)."),
    ] = "minimal",
    domain: Annotated[str | None, options.DOMAIN] = None,
    eps: Annotated[float, typer.Option(help="How far the outputs may move in all.")] = 0.0,
    keep: Annotated[
        bool, typer.Option("--keep-architecture", help="Add no skip connections.")
    ] = False,
    prefer: Annotated[
        str, typer.Option(help="What folding active units saves: parameters or units.")
    ] = "parameters",
    pure: Annotated[bool, typer.Option(help="unit, bounded: no output bias.")] = False,
    split: Annotated[bool, typer.Option(help="signed: weights -1, 0, 1 by copying units.")] = False,
    exact: Annotated[bool, typer.Option(help="canonical, shallow: rational arithmetic.")] = False,
    certificate: Annotated[
        str | None, typer.Option(help="Write the proof that both models agree, as JSON.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Number type of the written weights; by default that of MODEL's file."),
    ] = None,
    time_limit: options.TimeLimit = 60.0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Put MODEL into a normal form, show what was removed and why, and write the result.

    If the minimal form would make a larger file, MODEL itself is written.

    Exit code 3: the time limit left units undecided; they stay.
    """
    from relunorm.forms.normalize import normalize as run
    from relunorm.forms.precision import is_single, precision
    from relunorm.io import load

    source = Path(model)
    target = out or str(source.with_name(f"{source.stem}-{form}{source.suffix}"))
    check_model_out(target)
    check_folder(certificate)
    network, place = opened(model, domain)
    same = source.is_file() and Path(target).exists() and source.samefile(target)
    before = _size(source)
    if certificate is not None:
        check_certifiable(place)
    if dtype is None:  # pow2 promises the same bits, also of what the reader multiplied out
        double = precision(network) == "float64" or (form == "pow2" and not is_single(network))
        dtype = "float64" if double else "float32"
    with showing("looking at units", json or quiet) as show:
        result = run(
            network, form, place, eps=eps, architecture="keep" if keep else "any",
            prefer=prefer,  # type: ignore[arg-type]
            dtype=dtype,  # type: ignore[arg-type]
            pure=pure, split=split, exact=exact, time_limit=time_limit, progress=show,
        )  # fmt: skip
    content, sizes = _written(result.network, target, dtype), None
    if before is not None and source.suffix == Path(target).suffix:
        sizes = before, len(content)
    if form == "minimal" and sizes is not None and sizes[1] >= sizes[0] + (not same):
        whole = run(network, form, place, remove=False)
        if whole.network == network:
            larger = f"its file would have {sizes[1]:,} bytes instead of {sizes[0]:,}"
            why = result.kept or (larger if sizes[1] > sizes[0] else "nothing could be removed")
            result = replace(whole, network=network, stability=result.stability, kept=why)
            content, sizes = source.read_bytes(), (sizes[0], sizes[0])
    if not (same and result.kept):
        write_bytes(target, content)
    elif sizes is not None:
        sizes = sizes[0], sizes[0]
    document = {**result.to_dict(), "source": model, "target": target, "certificate": None}
    document["bytes"] = sizes
    document["replaced"] = same and not result.kept
    missing = ""
    if certificate is not None:
        if result.certificate is None:
            missing = result.stopped or "no finite bound was found"
        elif load(target).digest != result.network.digest:
            missing = "its format rounds"
        else:
            result.certificate.save(certificate)
            document["certificate"] = certificate
    emit(document, json, lambda console: _render(console, document))
    if missing:
        raise InvalidInputError(f"{target} was written, but without a certificate: {missing}")
    raise typer.Exit(3 if result.stopped or result.undecided else 0)


def _written(network: Network, target: str, dtype: str) -> bytes:
    """The file that a network would be, before anything is written where it shall lie."""
    from relunorm.io import save

    with TemporaryDirectory() as folder:
        draft = Path(folder) / Path(target).name
        save(network, draft, dtype=dtype)  # type: ignore[arg-type]
        return draft.read_bytes()


def _size(source: Path) -> int | None:
    """The bytes of a model's file, if it holds all the weights."""
    if not source.is_file():
        return None
    if source.suffix == ".onnx":
        from relunorm.io.onnx.file import is_whole

        if not is_whole(source):
            return None
    return source.stat().st_size


def check_certifiable(domain: Domain | None) -> None:
    """Raise where no certificate can exist, before any work is done."""
    if domain is None:
        raise InvalidInputError("--certificate needs --domain: a proof speaks of a domain")


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.markup import escape

    from relunorm.arithmetic.floats import at_least, at_most
    from relunorm.forms.removal.reduced import Removal, summarize

    before, after = document["before"], document["after"]
    console.print(f"[bold]{escape(document['source'])} -> {escape(document['target'])}[/bold]")
    rows = []
    for row in summarize(Removal(**unit) for unit in document["removed"]):
        margin = "" if row["margin"] is None else at_least(row["margin"], 3)
        rows.append(
            [str(row["layer"] + 1), row["reason"], str(row["units"]), row["method"], margin]
        )
    if rows:
        print_table(console, ("layer", "reason", "units", "method", "smallest margin"), rows)
    once = f" ({before['channels']:,} -> {after['channels']:,} with a channel counted once)"
    once = "" if before["channels"] == before["units"] else once
    console.print(
        f"{before['units']:,} -> {after['units']:,} units{once}, "
        f"{before['parameters']:,} -> {after['parameters']:,} parameters"
    )
    if document["bytes"] is not None:
        console.print("{:,} -> {:,} bytes".format(*document["bytes"]))
    if document["replaced"]:
        console.print(f"{escape(document['target'])} was overwritten: it is MODEL's own file")
    if not rows and before == after and not document["kept"] and document["form"] == "minimal":
        console.print("nothing could be removed")
    if document["kept"]:
        console.print(f"kept as it is: {document['kept']}")
    if document["undecided"]:
        when = "in the time given"
        when = "when it was interrupted" if document["stopped"] == INTERRUPTED else when
        console.print(f"{counted(len(document['undecided']), 'unit')} undecided {when}; kept")
    if document["unfolded"]:
        console.print("convolutions are written out as matrices: this form rescales single rows")
    if document["bound"] is not None and not document["kept"]:
        away = document["threshold_margin"]
        text = f"outputs differ by at most {at_most(document['bound'], 3)} over the domain"
        if away is not None:
            text += f", where no step is within {at_most(away, 2)} of its threshold"
        console.print(text)
