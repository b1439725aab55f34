"""``relunorm certify``: robustness of the answers to the rows of a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import (
    check_labels,
    foreign_labels,
    numbers,
    opened,
    parse_classes,
    parse_table,
)
from relunorm.cli.output import Console, emit, examples, print_table, showing
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from relunorm.io.table import Table
    from relunorm.network import Network

#: Rows shown one by one.
SHOWN = 20


@examples(
    "relunorm certify model.onnx --data test.csv --target y --eps 0.03",
    "relunorm certify model.onnx --data test.csv --target y --norm 2 --rows 20",
)
def certify(
    model: options.ModelFile,
    data: Annotated[str, options.DATA],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The column of right answers, repeat it for several outputs; else what the model "
            "says."
        ),
    ] = None,
    classes: options.Classes = None,
    drop: options.Drop = None,
    eps: Annotated[
        float | None, typer.Option(help="How far inputs may move; left out: how far is safe.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Units of --eps: spread (each input's standard deviation in the table), or a "
            "length for each input, as 0.1,20,1."
        ),
    ] = None,
    norm: Annotated[str, typer.Option(help="inf, 2 or 1.")] = "inf",
    valid: Annotated[
        str | None, typer.Option(help="Valid inputs: box:LO,HI, box:@f.npz or data:F.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="For a regression: how far outputs may be from the target, or move."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    time_limit: options.TimeLimit = 60.0,
    jobs: options.Jobs = None,
    backend: options.Backend = None,
    scheduler: options.Scheduler = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attacks.")] = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Decide for each row whether MODEL answers the same for every valid input nearby.

    robust is proved, attacked comes with an input that changes the answer. Without --eps the
    largest safe radius of each row is enclosed in an interval.

    Exit code 0: all rows robust (without --eps: all intervals closed); 1: a row is attacked; 2: bad
    input, or a row that is; 3: a row is undecided within the time, or its interval is open.
    """
    from relunorm.questions.certify import certify as run

    network, place = opened(model, valid)
    table = parse_table(data, target, drop, network, finite=False)
    if place is not None and place.as_box is None:
        raise InvalidInputError(f"--valid is {valid!r}, expected a box: box:LO,HI or data:F")
    x = table.x[:rows]
    label, named = _labels(table, network, classes, delta)
    label = None if label is None else label[:rows]
    with showing("certifying", json or quiet) as show:
        found = run(
            network, x, eps, norm, label, scale=_lengths(scale, table.x), delta=delta,
            valid=place, time_limit=time_limit, random_state=seed, progress=show,
            workers=jobs, backend=backend, scheduler=scheduler,
        )  # fmt: skip
    document = {"model": model, "data": data, **found.to_dict(), **named}
    for row in found.rows:
        if row.verdict == "invalid":
            typer.echo(f"relunorm: {data}: {row.reason}", err=True)
    asked = found.counts["invalid"] and classes is None and delta is None
    if asked and (told := foreign_labels(table, network)):
        typer.echo(f"relunorm: {data}: {told}", err=True)
    emit(document, json, lambda console: _render(console, document, delta is None, label is None))
    counts = found.counts
    if counts["invalid"]:
        raise typer.Exit(2)
    if eps is not None and counts["attacked"]:
        raise typer.Exit(1)
    raise typer.Exit(3 if any(row.reason for row in found.rows) else 0)


def _labels(
    table: Table, network: Network, classes: str | None, delta: float | None
) -> tuple[NDArray[Any] | None, dict[str, Any]]:
    """The right answer of every row of the table, and what the document says of the classes.

    They are matched to the outputs by all rows, not only by those that are asked about.
    """
    import numpy as np

    from relunorm.questions.classes import as_classes, label_numbers

    labels, known = table.labels, network.head.classes
    if classes is not None and (labels is None or delta is not None):
        raise InvalidInputError("--classes are labels of --target, without --delta")
    if labels is None or delta is not None:
        return labels, {}
    outputs = network(np.nan_to_num(table.x))
    if classes is None:
        if outputs.shape[1] > 1 or not (labels == -1).any():  # -1 and 1 are the signs of an output
            check_labels(table, network, some=False)  # a row with such a label is invalid
        codes, found = label_numbers(labels, network.head, outputs)
        if found is None and codes.ndim > 1:
            raise InvalidInputError(
                f"the target has {codes.shape[1]} columns of numbers, no classes; for a regression "
                "say how far outputs may be from them: --delta"
            )
    else:
        given = as_classes(labels, parse_classes(classes), network.head, outputs, others=True)
        if given is None:
            raise InvalidInputError("--classes need a target with one label for each row")
        codes, found = given
        if known and len(found.names) != len(known):
            raise InvalidInputError(
                f"--classes names {len(found.names)}, but the model has {len(known)}: "
                f"{', '.join(map(str, known))}"
            )
        if known:  # the model speaks of its own names
            names = np.array([*known, np.nan if isinstance(known[0], float) else ""], dtype=object)
            labels = names[np.nan_to_num(codes, nan=-1).astype(np.intp)]
    named = {} if found is None else {"classes": list(found.names), "classes_from": found.source}
    return labels if known else codes, named


def _lengths(scale: str | None, x: NDArray[np.float64]) -> Any:
    """The numbers behind `--scale`."""
    import numpy as np

    if scale is None:
        return None
    if scale == "spread":
        return x[np.isfinite(x).all(axis=1)].std(axis=0)
    expected = f"--scale is {scale!r}, expected spread, or a length for each input, as 0.1,20,1"
    return numbers(scale, float, expected)


def _render(console: Console, document: dict[str, Any], classes: bool, own: bool) -> None:
    rows = [row for row in document["rows"] if row["verdict"] != "invalid"]
    weak = sorted(rows, key=lambda row: (_end(row["radius"][1]), _end(row["radius"][0])))
    asked = document["radius"] is not None
    what = "verdict" if asked else "interval"
    columns = ["row", *["label"] * classes, what, "safe up to", "attacked at"]
    cells = []
    for row in weak[:SHOWN]:
        label = row["label"]
        if label is not None and document["classes"]:
            label = document["classes"][label]
        word = row["verdict"] if asked else "open" if row["reason"] else "closed"
        word = word if row["correct"] else "wrong" if asked else "wrong answer"
        cells.append([str(row["row"]), *[str(label)] * classes, word, *_radii(row["radius"])])
    if rows:
        print_table(console, columns, cells, title=_title(document, rows))
    if document["scale"] is not None:
        console.print("distances are in the lengths of --scale, one for each input")
    if document["classes_from"] in ("data", "sorted"):
        order = ", ".join(document["classes"])
        console.print(f"labels are taken for the classes in this order, which is a guess: {order}")
    counts = ", ".join(f"{n} {word}" for word, n in document["counts"].items() if n)
    told = counts if asked or not rows else _safe(document, rows)
    total = len(document["rows"])
    console.print(f"{total} row{'s' * (total != 1)}: {told}; {document['seconds']:.1f} s")
    why = Counter((row["verdict"], row["reason"]) for row in rows if row["reason"])
    for (verdict, reason), count in why.items():
        what = "unknown" if verdict == "unknown" else f"row{'s' * (count != 1)} not closed"
        console.print(f"{count} {what}: {reason}")
    if not rows:
        return
    curve = document["curve"]
    shares = ([f"{r:.4g}", f"{sure:.1%}", f"{possible:.1%}"] for r, sure, possible in curve)
    heads = ("radius", "certified", "possible")
    what = "rows that keep the model's own answer" if own else "accuracy"
    steps = {0.0, *(end for row in rows for end in row["radius"] if end is not None)}
    every = asked or len(curve) == len(steps)
    of = "" if every else " (at some radii; those of every row with --json)"
    print_table(console, heads, shares, title=f"{what} against radius{of}")


def _title(document: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What the table of rows shows: all of them or some, and in which order."""
    count = f"{len(rows):,} {'valid ' * bool(document['counts']['invalid'])}rows"
    some = len(rows) > SHOWN
    if document["radius"] is None:
        return (
            f"the {SHOWN} smallest radii of {count}" if some else "rows, the smallest radii first"
        )
    if all(row["verdict"] == "robust" and row["correct"] for row in rows):
        return f"the first {SHOWN} of {count}, all robust" if some else "rows, all robust"
    return f"the {SHOWN} weakest of {count}" if some else "rows, the weakest first"


def _safe(document: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """How far is safe, of the valid rows, where no radius was asked for."""
    from relunorm.arithmetic.floats import at_least

    half, safe = _end(document["half_safe"]), sum(_end(row["radius"][0]) > 0 for row in rows)
    parts = [f"{safe} with a safe radius"]
    if half > 0:
        parts = [f"{'half of them ' * (len(rows) > 1)}safe up to {at_least(half)}"]
    wrong, invalid = sum(not row["correct"] for row in rows), document["counts"]["invalid"]
    parts += [f"{n} {word}" for n, word in ((wrong, "wrong"), (invalid, "invalid")) if n]
    return ", ".join(parts)


def _end(value: float | None) -> float:
    return float("inf") if value is None else value


def _radii(ends: list[float | None]) -> list[str]:
    from relunorm.arithmetic.floats import at_least, at_most

    low, high = map(_end, ends)
    return [at_least(low, 5), "-" if high == float("inf") else at_most(high, 5)]
