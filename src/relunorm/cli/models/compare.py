"""``relunorm compare``: whether two models are the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import opened
from relunorm.cli.models.normalize import check_certifiable
from relunorm.cli.output import Console, check_folder, emit, examples, showing
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.forms.comparison.comparison import Comparison
    from relunorm.network import Network

EXIT = {"equal": 0, "within": 0, "different": 1, "unknown": 3}


@examples(
    "relunorm compare model.onnx export.onnx --domain box:-1,1",
    "relunorm compare old.onnx new.onnx --domain data:test.csv --tolerance 1e-3 --json",
)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A model file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The model to compare it with.")],
    domain: Annotated[str, options.DOMAIN],
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How far the outputs may be apart; by default it follows the models' precision."
        ),
    ] = None,
    factor: Annotated[
        float, typer.Option(help="How close the two ends are brought, as a ratio.")
    ] = 3.0,
    top1: Annotated[
        bool,
        typer.Option(
            "--top1",
            help="Ask, too, whether both choose the same class everywhere; the exit code speaks of "
            "the outputs all the same.",
        ),
    ] = False,
    before_head: Annotated[
        bool,
        typer.Option(
            "--before-head",
            help="Compare what comes before a last softmax, sigmoid or the like, such as logits "
            "with an export that ends in a softmax.",
        ),
    ] = False,
    time_limit: options.TimeLimit = 60.0,
    certificate: Annotated[
        str | None, typer.Option(help="Write the proof of the upper bound, as JSON.")
    ] = None,
    jobs: options.Jobs = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Decide whether A and B agree over the domain.

    Exit code 0: the outputs are equal or within the tolerance; 1: different; 2: bad input; 3:
    unknown. With --top1, too: in a script, take the verdict on classes from top1 of --json.
    """
    from relunorm.forms.comparison.compare import compare as run

    check_folder(certificate)
    (a, place), (b, _) = opened(first, domain), opened(second)
    classes = list(a.head.classes or b.head.classes)
    if before_head:
        a, b = a.without_head(), b.without_head()
    if certificate is not None:
        check_certifiable(place)
    with showing("comparing", json or quiet) as show:
        found = run(
            a, b, place, tolerance=tolerance, factor=factor, top1=top1, time_limit=time_limit,
            progress=show, workers=jobs,
        )  # fmt: skip
    document = {**found.to_dict(), "models": [first, second], "certificate": None}
    document["classes"], document["before_head"] = classes, before_head
    document["returned"] = found.head.returned
    document["answers"] = [_answer(found, side, a) for side in (found.first, found.second)]
    if certificate is not None and found.certificate is not None:
        found.certificate.save(certificate)
        document["certificate"] = certificate
    emit(document, json, lambda console: _render(console, document), last_line=False)
    if certificate != document["certificate"]:
        raise InvalidInputError("there is no certificate to write of such an answer")
    raise typer.Exit(EXIT[found.verdict])


def _answer(found: Comparison, values: Any, network: Network) -> list[float] | None:
    """What a model returns at the witness, where that is not what was compared."""
    if values is None or not found.head:
        return None
    return found.head(values[None], network.output_shape).ravel().tolist()


def _render(console: Console, document: dict[str, Any]) -> None:
    from relunorm.arithmetic.floats import at_least, at_most

    upper = "unbounded" if document["upper"] is None else at_most(document["upper"], 3)
    console.print(f"[bold]{document['verdict']}[/bold] (by {document['method']})")
    of = "" if document["of"] == "outputs" else f" (of the {document['of']})"
    console.print(f"{at_least(document['lower'], 3)} <= max |A - B| <= {upper}{of}")
    if document["upper_after_head"] is not None and of:
        moved, returned = at_most(document["upper_after_head"], 3), document["returned"]
        what = "the models' outputs" if returned == "outputs" else f"the {returned} they return"
        console.print(f"so in exact arithmetic {what} differ by at most {moved}")
    if document["apart"] is not None:
        apart = at_most(document["apart"], 3)
        console.print(f"away from the thresholds of steps: max |A - B| <= {apart}")
    follows = "" if document["precision"] == "given" else f" (for {document['precision']} models)"
    console.print(f"tolerance {document['tolerance']:.3g}{follows}")
    if document["verdict"] == "different":
        console.print(f"input    {_short(document['witness'])}")
        for model, outputs, answer in zip(
            "AB", (document["first"], document["second"]), document["answers"], strict=True
        ):
            after = "" if answer is None else f" (returns {_short(answer)})"
            console.print(f"{model} there  {_short(outputs)}{after}")
    if document["top1"] is not None:
        _render_classes(console, document["top1"], document["classes"], document["top1_margin"])
        verdict = document["verdict"]
        console.print(f"exit code {EXIT[verdict]}, for the outputs: {verdict}", markup=False)


def _render_classes(
    console: Console, top1: dict[str, Any], names: list[Any], margin: float | None
) -> None:
    if top1["verdict"] == "different":
        pair = [top1["first"], top1["second"]]
        one, two = [names[k] for k in pair] if names else pair
        where = _short(top1["witness"])
        told = f"classes: A chooses {one} and B {two} at the input {where}"
        if margin is not None:
            from relunorm.arithmetic.floats import at_most

            told += (
                "\nwherever they disagree, neither prefers its class to the other's by more than "
                f"{at_most(margin, 3)}"
            )
        told += "\nthis is decided in exact arithmetic, and float32 may not show it"
    elif top1["verdict"] == "same":
        told = "classes: A and B choose the same everywhere, proved"
    else:
        told = "classes: whether A and B always choose the same was not decided"
    console.print(told, markup=False)


def _short(numbers: list[float]) -> str:
    shown = ", ".join(f"{v:.6g}" for v in numbers[:8])
    return f"{shown}, ... ({len(numbers)} numbers; all with --json)" if len(numbers) > 8 else shown
