"""``relunorm fit``: a small ReLU network for a table, beside simpler models and boosted trees."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import numbers
from relunorm.cli.output import (
    Console,
    check_model_out,
    check_writable,
    emit,
    examples,
    markup,
    print_table,
)
from relunorm.clock import TIME_LIMIT, Clock
from relunorm.display.shown import counted, plain
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from relunorm.cli.training.fit_models import Baseline, Predict
    from relunorm.io.table import Table
    from relunorm.network import Network

#: Distance from an affine function, as a share of the predictions' range, that nobody notices.
PLANE = 1e-3
#: Share of a time limit that the simpler models may take.
SIMPLER = 0.2
#: Change of a prediction by float32, as a share of the target's range, that is worth a note.
FLOAT32_SHARE = 1e-3


@examples(
    "relunorm fit table.csv --target y -o model.onnx",
    "relunorm fit table.csv --target kind --classify --hidden 32",
)
def fit(
    data: Annotated[
        str, typer.Argument(help="A table: .csv (also .gz), .parquet, or .npz with x and y.")
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of the column to predict (an .npz has y already); repeat it for several."
        ),
    ] = None,
    drop: options.Drop = None,
    classify: Annotated[
        bool, typer.Option("--classify", help="The target holds classes, numbers or words.")
    ] = False,
    pieces: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="One input: fit so many straight pieces, with a proved lower bound on the error "
            "of any such fit and how far above it this one is at most.",
        ),
    ] = None,
    hidden: Annotated[
        str, typer.Option(help="ReLU units; one number per hidden layer, such as 20 or 20,10.")
    ] = "20",
    out: Annotated[
        str | None,
        typer.Option("-o", "--out", help="Write the network here; the ending says the format."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(help="Draw the pieces of --pieces, or else the effect of every input (.png)."),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            help="auto, exact, greedy, deep, adam, slsqp, bfgs, lbfgs; to classify logistic, adam."
        ),
    ] = "auto",
    constraint: Annotated[str, typer.Option(help="tight, bounded, unit or none.")] = "tight",
    alpha: Annotated[
        str, typer.Option(help="Penalty on the output weights; auto chooses it by hold-out.")
    ] = "auto",
    restarts: Annotated[
        int, typer.Option(min=1, help="Fits from different seeds; the best one is kept.")
    ] = 1,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Restarts at a time, or threads of one fit.")
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows kept aside to measure the error; 0.2, none for pieces."
        ),
    ] = None,
    one_hot: Annotated[
        bool, typer.Option("--one-hot", help="A column of words becomes one column a word.")
    ] = False,
    missing: Annotated[
        str, typer.Option(help="Empty cells of the inputs: refuse, or median to fill them.")
    ] = "refuse",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds, start-up aside; the simpler models get a fifth of them at most, and the "
            "best network until then is kept."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Fit a small ReLU network to DATA and compare it with a linear model and boosted trees.

    Ctrl-C or a spent time limit keeps the best network found so far and says so.

    Exit code 3: the time limit ended the fit before the rounds that are done without one. A limit
    that leaves time for more than those is used up, and that is a finished fit, exit code 0.
    """
    from relunorm.cli.training.fit_table import check_filled, read, split

    check_model_out(out)
    check_writable(plot)
    if missing not in ("refuse", "median"):
        raise InvalidInputError(f"--missing {missing}: use refuse or median")
    if pieces is not None and (classify or len(target or []) > 1):
        raise InvalidInputError(
            "--pieces fits one number; it goes with one --target, no --classify"
        )
    if pieces is not None and (hidden, solver, alpha) != ("20", "auto", "auto"):
        raise InvalidInputError(
            "--pieces says how many units there are and how they are found: leave --hidden, "
            "--solver and --alpha out"
        )
    table = read(Path(data), target or [], drop or [], classify, one_hot, missing == "median")
    share = (0.2 if pieces is None else 0.0) if holdout is None else holdout
    train, held = split(table, share, seed, classify)
    check_filled(train, Path(data))
    clock = Clock(time_limit)
    settings = {
        "hidden": _widths(hidden),
        "solver": solver,
        "constraint": None if constraint == "none" else constraint,
        "alpha": _penalty(alpha),
        "n_jobs": jobs,
        "time_limit": clock,
        "random_state": seed,
        "device": device,
        "missing": missing,
        "verbose": not quiet and not json,
    }
    if pieces is not None:
        _check_pieces(table, data)
        settings |= {"hidden": pieces - 1, "solver": "exact", "alpha": 0.0}
    if not classify:
        settings["restarts"] = restarts
    elif restarts > 1:
        raise InvalidInputError("--restarts is for regression; --classify has its own starts")
    simpler = _baselines(train, classify, clock.part(share=SIMPLER))
    model = _fit(train, settings, classify)
    document = _report(model, simpler, table, train, held, data)
    if out is not None:
        _write(_network(model, table, document), model.stopped_, Path(out))
        document["output"] = out
        document["notes"] += _float32_note(model, train, Path(out))
    if pieces is not None:
        from relunorm.train.effects import PiecewiseLinear

        found = PiecewiseLinear.of(model, train.x, train.y)  # type: ignore[arg-type]
        document["pieces"] = found.to_dict()
        if plot is not None:
            found.plot((table.names[0], table.target or "y")).savefig(plot, dpi=150)
    elif plot is not None:
        _draw_effects(model, train, plot, document)
    if plot is not None:
        document["plot"] = plot
    emit(document, json, lambda console: _render(console, document))
    raise typer.Exit(3 if model.stopped_ == TIME_LIMIT else 0)


def _check_pieces(table: Table, source: str) -> None:
    if table.x.shape[1] != 1:
        names = ", ".join(table.names[:10])
        raise InvalidInputError(
            f"{source}: --pieces fits one input, but there are {table.x.shape[1]} ({names}); keep "
            "one column beside the target"
        )


def _draw_effects(model: Any, train: Table, plot: str, document: dict[str, Any]) -> None:
    from relunorm.cli.training.fit_models import filler
    from relunorm.train.effects import feature_effects, plot_effects

    effects = feature_effects(model.network_, filler(train)(train.x), names=train.names)
    assert train.y is not None
    target = train.target or "y"
    labels = [target] if train.y.ndim == 1 else target.split(", ")
    if "classes" in document:
        classes, binary = document["classes"], len(document["classes"]) == 2
        labels = [f"log-odds of {classes[1]}"] if binary else [f"score of {c}" for c in classes]
    several = model.network_.output_size != len(labels)  # an .npz names its columns of y once
    plot_effects(effects, labels=None if several else labels).savefig(plot, dpi=150)


def _widths(text: str) -> tuple[int, ...]:
    expected = f"--hidden {text}: expected positive numbers, such as 20 or 20,10"
    widths = numbers(text, int, expected)
    if min(widths) < 1:
        raise InvalidInputError(expected)
    return tuple(widths)


def _penalty(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"--alpha {text}: expected auto or a number") from None


def _fit(train: Table, settings: dict[str, Any], classify: bool) -> Any:
    from relunorm.train.classifier import ReLUClassifier
    from relunorm.train.regressor import ReLURegressor

    kind = ReLUClassifier if classify else ReLURegressor
    with warnings.catch_warnings():
        # an interrupted fit is reported in the document, not as a warning
        warnings.simplefilter("ignore", RuntimeWarning)
        return kind(**settings).fit(train.x, _labels(train.y) if classify else train.y)


def _labels(y: Any) -> Any:
    """Classes as whole numbers, as far as float64 tells them apart."""
    import numpy as np

    return y.astype(np.int64) if np.abs(y).max() <= 2.0**53 else y


def _baselines(train: Table, classify: bool, clock: Clock) -> list[Baseline]:
    """Simpler models; Ctrl-C leaves the rest of them out, for it must not cost the network."""
    from relunorm.cli.training import fit_models

    fit = fit_models.classification_baselines if classify else fit_models.regression_baselines
    found: list[Baseline] = []
    with suppress(KeyboardInterrupt):
        for baseline in fit(train, clock):
            found.append(baseline)
    return found


def _compared(
    model: Any, simpler: list[Baseline], train: Table, held: Table | None
) -> list[dict[str, Any]]:
    """The network and simpler models, with their errors; the simplest one second."""
    from relunorm.cli.training import fit_models

    def errors(name: str, predict: Predict) -> dict[str, Any]:
        if hasattr(model, "classes_"):
            found = fit_models.classification_errors(predict, model.classes_, train, held)
        else:
            found = fit_models.regression_errors(predict, train, held)
        return {"model": name, **found}

    own = model.predict_proba if hasattr(model, "classes_") else model.predict
    known = [(one.name, one.predict) for one in simpler if one.predict is not None]
    return [errors(name, predict) for name, predict in [("relu network", own), *known]]


def _report(
    model: Any,
    simpler: list[Baseline],
    table: Table,
    train: Table,
    held: Table | None,
    source: str,
) -> dict[str, Any]:
    classify = hasattr(model, "classes_")
    rows = _compared(model, simpler, train, held)
    notes = [one.note for one in simpler if one.note] + _better(rows, table, held)
    asked = model.hidden if isinstance(model.hidden, tuple) else (model.hidden,)
    document = {
        "schema": "relunorm.fit/1",
        "source": source,
        "target": table.target,
        "inputs": list(table.names),
        "train_rows": len(train.x),
        "holdout_rows": 0 if held is None else len(held.x),
        "network": repr(model.network_),
        "units": model.network_.units,
        "solver": model.solver_,
        "alpha": model.alpha_,
        "iterations": model.n_iter_,
        "stopped": model.stopped_,
        "errors": plain(rows),
        "notes": _notes(model, table, train, sum(asked)) + notes,
    }
    if classify:
        names = table.classes or [str(value) for value in model.classes_.tolist()]
        document["classes"] = [names[int(k)] for k in model.classes_] if table.classes else names
        document["stretch"] = model.stretch_
    else:
        document["optimality_gap"] = plain(model.optimality_gap_)
        document["lower_bound_mse"] = plain(model.lower_bound_)
    return document


def _notes(model: Any, table: Table, train: Table, asked: int) -> list[str]:
    import numpy as np

    notes, units = [], model.network_.units
    if model.stopped_:
        notes.append(f"stopped early ({model.stopped_}): this is the best network until then")
    if table.y is not None and np.ptp(table.y) == 0:
        notes.append("the target is constant, and so is the network")
    else:
        notes += _plane(model, train)
    if not hasattr(model, "classes_") and _two_whole_numbers(table.y):
        notes.append("the target holds two whole numbers only; if they are classes, --classify")
    if units < asked:
        were = f"{counted(asked, 'unit')} {'was' if asked == 1 else 'were'} asked for"
        notes.append(f"{were}, {units} placed: at most one for two rows")
    if units > len(train.x):
        many = f"{counted(units, 'unit')} for {counted(len(train.x), 'row')}"
        notes.append(f"{many}: it can repeat them, not explain them")
    return notes


def _plane(model: Any, train: Table) -> list[str]:
    """A note where the rows show no bend: the best affine function says the same as the network."""
    import numpy as np

    from relunorm.arithmetic.floats import at_most
    from relunorm.cli.training.fit_models import filler

    x = filler(train)(train.x)
    x = (x - x.mean(axis=0)) / np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1.0)
    flat = np.column_stack([x, np.ones(len(x))])
    values = model.network_(filler(train)(train.x))
    reach = np.ptp(values, axis=0).max()
    if len(x) < 2 * flat.shape[1] or not reach > 0 or not np.isfinite(values).all():
        return []
    off = np.abs(values - flat @ np.linalg.lstsq(flat, values, rcond=None)[0]).max() / reach
    if off > PLANE:
        return []
    kind = "straight line" if x.shape[1] == 1 else "plane"
    simple = "logistic regression" if hasattr(model, "classes_") else "a linear model"
    return [
        f"the network turned out to be a {kind} (on the rows fitted an affine function of the "
        f"inputs, to within {at_most(100 * max(off, 1e-12), 1)} % of its range): {simple} says the "
        "same with fewer numbers"
    ]


def _two_whole_numbers(y: Any) -> bool:
    """Whether a target to regress on looks like the labels of two classes."""
    import numpy as np

    if y is None or y.ndim > 1:
        return False
    values = np.unique(y)
    return len(values) == 2 and bool((values == np.round(values)).all())


def _better(rows: list[dict[str, Any]], table: Table, held: Table | None) -> list[str]:
    """A note where the simplest model is better by more than a twentieth, or is missing."""
    import numpy as np

    if len(rows) == 1:
        return ["interrupted before simpler models were fitted: there is nothing to compare with"]
    kind = "rmse" if "train_rmse" in rows[0] else "log_loss"
    part = "holdout" if held is not None else "train"
    rounding = 1e-9 * float(np.abs(table.y).max()) if table.y is not None else 0.0
    own, simpler = (row[f"{part}_{kind}"] for row in rows[:2])
    if "outputs" in rows[0]:  # of several targets each counts by its own spread
        scores = [[one[f"{part}_r2"] for one in row["outputs"]] for row in rows[:2]]
        own, simpler = (math.sqrt(max(0.0, 1 - np.nanmean(r2))) for r2 in scores)
        rounding = 1e-9
    if not own > 1.05 * simpler + rounding:
        return []
    where = "on the rows held out" if held is not None else "on these few rows"
    simple = "a linear model" if kind == "rmse" else "logistic regression"
    return [f"{simple} predicts better {where}: use that instead"]


def _network(model: Any, table: Table, document: dict[str, Any]) -> Network:
    """The fitted network with its classes and what it needs to read the same table again."""
    from dataclasses import replace

    from relunorm.io import load

    network, columns, at = load(model), [], 0
    for column in table.columns:
        fill = None
        if model.missing == "median":  # of words, a gap is 0 in all their inputs
            fill = 0.0 if column.words else float(model.imputed_[at])
        columns.append(replace(column, fill=fill))
        at += len(column.inputs)
    head = network.head
    if "classes" in document and table.classes:
        head = replace(head, classes=tuple(document["classes"]))
    return network.replace(head=head, columns=columns)


def _write(network: Network, stopped: str, path: Path) -> None:
    """Save the network; an .onnx of a fit that was cut short says so in its metadata."""
    if path.suffix.lower() == ".onnx":
        from relunorm.io.onnx.write import write_onnx

        write_onnx(network, path, stopped=stopped)
    else:
        from relunorm.io import save

        save(network, path)


def _float32_note(model: Any, train: Table, path: Path) -> list[str]:
    """A note if an .onnx, which is float32, predicts otherwise than the network."""
    if path.suffix.lower() != ".onnx":
        return []
    import numpy as np

    from relunorm.io import load

    assert train.y is not None
    with np.errstate(over="ignore", invalid="ignore"):
        whole = train.x[~np.isnan(train.x).any(axis=1)]  # gaps are filled before the network
        rounded = whole.astype(np.float32).astype(np.float64)
    if not len(whole):
        return []
    exact = model.network_(whole)
    finite = bool(np.isfinite(rounded).all())
    change = np.abs(load(path)(rounded) - exact).max() if finite else math.inf
    spread = np.ptp(train.y, axis=0).max() or np.abs(train.y).max()  # of a constant, its size
    if change <= FLOAT32_SHARE * spread:
        return []
    return [
        f"{path.name} is float32, as runtimes expect, and differs by up to {change:.3g} from the "
        "network; inputs with a large offset (times, years) lose their digits: subtract it first, "
        "or write .npz"
    ]


def _render(console: Console, document: dict[str, Any]) -> None:
    title = f"{markup(document['source'])}: {markup(document['target'] or 'y')}"
    rows = f"{document['train_rows']:,} rows to fit, {document['holdout_rows']:,} held out"
    console.print(f"[bold]{title}[/bold], {rows}")
    kinds = ("rmse", "r2") if "optimality_gap" in document else ("log_loss", "accuracy")
    words = {"rmse": "RMSE", "r2": "R²", "log_loss": "log-loss", "accuracy": "accuracy"}
    parts = {"train": "train", "holdout": "held-out"}
    columns = [
        (f"{part}_{kind}", f"{parts[part]} {words[kind]}") for kind in kinds for part in parts
    ]
    grid = []
    several = "outputs" in document["errors"][0]
    for row in document["errors"]:
        for one in row["outputs"] if several else [row]:
            values = ["-" if one[key] is None else f"{one[key]:.4g}" for key, _ in columns]
            grid.append([row["model"], *([markup(one["target"])] if several else []), *values])
    heads = ("model", *(["target"] if several else []), *(title for _, title in columns))
    print_table(console, heads, grid)
    console.print(
        f"{markup(document['network'])}, solver {document['solver']}, penalty "
        f"{document['alpha']:g}, {counted(document['iterations'], 'iteration')}"
    )
    if "pieces" in document:
        _render_pieces(console, document["pieces"])
    if document.get("optimality_gap") is not None:
        from relunorm.arithmetic.floats import at_most

        gap = at_most(100 * document["optimality_gap"], 3)
        console.print(
            f"certified: the squared error is at most {gap} % above the smallest of any "
            "network of this size"
        )
    for note in document["notes"]:
        console.print(f"[yellow]note:[/yellow] {note}")
    if "output" in document:
        console.print(f"written to {markup(document['output'])}")
    if "plot" in document:
        console.print(f"drawn in {markup(document['plot'])}")


def _render_pieces(console: Console, found: dict[str, Any]) -> None:
    ends = list(zip(found["knots"], found["values"], strict=True))
    rows = []
    for number, slope in enumerate(found["slopes"], start=1):
        (a, low), (b, high) = ends[number - 1], ends[number]
        rows.append([str(number), *(f"{value:.5g}" for value in (a, b, low, high, slope))])
    heads = ("piece", "from", "to", "value at its start", "at its end", "slope")
    print_table(console, heads, rows)
    bound = found["lower_bound_mse"]
    shown = "" if bound is None else f", at least {bound:.5g} for any fit with so many pieces"
    mse = "beyond float64" if found["mse"] is None else f"{found['mse']:.5g}"
    console.print(f"mean squared error {mse}{shown}")
