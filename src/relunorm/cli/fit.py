"""``relunorm fit``: a small ReLU network for a table, beside a linear model and boosted trees."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relunorm.cli.output import Json, emit, markup
from relunorm.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from relunorm.io.table import Table

#: Below this many rows there is nothing to learn from, and nothing to hold out.
FEWEST_ROWS = 3

#: Change of a prediction by float32, as a share of the target's range, that is worth a note.
FLOAT32_SHARE = 1e-3


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
    hidden: Annotated[
        str, typer.Option(help="ReLU units; one number per hidden layer, such as 20 or 20,10.")
    ] = "20",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the network here; the ending says the format."),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="auto, exact, greedy, deep, adam, slsqp, bfgs or lbfgs.")
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
        float, typer.Option(help="Share of the rows kept aside to measure the error.")
    ] = 0.2,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; the best network until then is kept.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
    progress: Annotated[bool, typer.Option(help="Show a progress bar on stderr.")] = True,
    json: Json = False,
) -> None:
    """Fit a small ReLU network to DATA and compare it with a linear model and boosted trees.

    Ctrl-C or a spent time limit keeps the best network found so far and says so.
    """
    if output is not None:
        _check_output(Path(output))
    table = _read(Path(data), target or [])
    train, held = _split(table, holdout, seed)
    settings = {
        "hidden": _widths(hidden),
        "solver": solver,
        "constraint": None if constraint == "none" else constraint,
        "alpha": _penalty(alpha),
        "restarts": restarts,
        "n_jobs": jobs,
        "time_limit": time_limit,
        "random_state": seed,
        "device": device,
        "verbose": progress and not json and sys.stderr.isatty(),
    }
    model = _fit(train, settings)
    document = _report(model, table, train, held, data)
    if output is not None:
        _write(model, Path(output))
        document["output"] = output
        document["notes"] += _float32_note(model, train, Path(output))
    emit(document, json, lambda console: _render(console, document))


def _check_output(path: Path) -> None:
    """A wrong ending or folder is an error before the fit, not after it."""
    from relunorm import io

    io.check_ending(path)
    if not path.resolve().parent.is_dir():
        raise InvalidInputError(f"{path}: the folder {path.resolve().parent} does not exist")


def _read(path: Path, targets: list[str]) -> Table:
    from relunorm.io.table import read_table

    table = read_table(path, target=targets[0] if targets else None)
    if len(targets) > 1:
        table = _with_further_targets(table, targets[1:], path)
    if table.y is None:
        names = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
        raise InvalidInputError(
            f"{path}: which column is to be predicted? Give --target; the columns are {names}"
        )
    if len(table.x) < FEWEST_ROWS:
        raise InvalidInputError(
            f"{path}: {len(table.x)} row{'s' if len(table.x) != 1 else ''} of data; a fit needs at "
            f"least {FEWEST_ROWS}"
        )
    _check_range(table, path)
    return table


def _with_further_targets(table: Table, names: list[str], path: Path) -> Table:
    """The columns of these names moved from the inputs to the targets."""
    import numpy as np

    missing = [name for name in names if name not in table.names]
    if missing or len(set(names)) < len(names):
        shown = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
        raise InvalidInputError(
            f"{path}: --target {' '.join(missing or names)}: expected further columns, each once; "
            f"beside {table.target!r} there are {shown}"
        )
    at = [table.names.index(name) for name in names]
    left = [k for k in range(len(table.names)) if k not in at]
    if not left:
        raise InvalidInputError(f"{path}: every column is a target; no input is left")
    assert table.y is not None
    y = np.column_stack([table.y, table.x[:, at]])
    kept = tuple(table.names[k] for k in left)
    return replace(
        table, x=table.x[:, left], y=y, names=kept, target=", ".join([table.target, *names])
    )


def _check_range(table: Table, path: Path) -> None:
    """Values that no scaling can bring to order one are refused by the column's name."""
    import numpy as np

    from relunorm.train.scaling import Scaling

    assert table.y is not None
    ones, y = np.ones(len(table.x)), table.y.reshape(len(table.x), -1)
    Scaling.of(table.x, ones, f"{path}: the input", table.names)
    Scaling.of(y, ones, f"{path}: the target", [table.target or "y"] * y.shape[1])


def _split(table: Table, holdout: float, seed: int) -> tuple[Table, Table | None]:
    """Rows to fit on and rows to measure on; fewer than ten rows are all used for the fit."""
    import numpy as np

    if not 0 <= holdout < 1:
        raise InvalidInputError(f"--holdout {holdout:g}: expected a share from 0 to less than 1")
    n = len(table.x)
    count = round(n * holdout) if n >= 10 else 0
    if count == 0:
        return table, None
    if n - count < FEWEST_ROWS:
        raise InvalidInputError(
            f"--holdout {holdout:g} of {n} rows leaves {n - count} to fit; at least {FEWEST_ROWS} "
            "are needed: hold out less"
        )
    order = np.random.default_rng([seed, 5]).permutation(n)
    assert table.y is not None
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    return tuple(replace(table, x=table.x[i], y=table.y[i]) for i in (kept, held))  # type: ignore[return-value]


def _widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in text.split(","))
    except ValueError:
        widths = ()
    if not widths or min(widths) < 1:
        raise InvalidInputError(f"--hidden {text}: expected positive numbers, such as 20 or 20,10")
    return widths


def _penalty(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"--alpha {text}: expected auto or a number") from None


def _fit(train: Table, settings: dict[str, Any]) -> Any:
    from relunorm.train.estimator import ReLURegressor

    with warnings.catch_warnings():
        # an interrupted fit is reported in the document, not as a warning
        warnings.simplefilter("ignore", RuntimeWarning)
        return ReLURegressor(**settings).fit(train.x, train.y)


def _report(
    model: Any, table: Table, train: Table, held: Table | None, source: str
) -> dict[str, Any]:
    import numpy as np

    rows = [{"model": "relu network", **_errors(model.predict, train, held)}]
    rows += [{"model": name, **_errors(p, train, held)} for name, p in _baselines(train).items()]
    assert table.y is not None
    notes = []
    if model.stopped_:
        notes.append(f"stopped early ({model.stopped_}): this is the best network until then")
    if np.ptp(table.y) == 0:
        notes.append("the target is constant, and so is the network")
    units, asked = model.network_.units, sum(model.hidden)
    if units < asked:
        notes.append(f"{asked} units were asked for, {units} placed: at most one for two rows")
    if units > len(train.x):
        notes.append(f"{units} units for {len(train.x)} rows: it can repeat them, not explain them")
    measured = "holdout_rmse" if held is not None else "train_rmse"
    if rows[0][measured] > 1.05 * rows[1][measured] + 1e-9 * float(np.abs(table.y).max()):
        where = "on the rows held out" if held is not None else "on these few rows"
        notes.append(f"a linear model predicts better {where}: use that instead")
    return {
        "schema": "relunorm.fit/1",
        "source": source,
        "target": table.target,
        "inputs": list(table.names),
        "train_rows": len(train.x),
        "holdout_rows": 0 if held is None else len(held.x),
        "network": repr(model.network_),
        "units": units,
        "solver": model.solver_,
        "alpha": model.alpha_,
        "iterations": model.n_iter_,
        "optimality_gap": _finite(model.optimality_gap_),
        "lower_bound_mse": _finite(model.lower_bound_),
        "stopped": model.stopped_,
        "errors": [{k: _finite(v) for k, v in row.items()} for row in rows],
        "notes": notes,
    }


def _write(model: Any, path: Path) -> None:
    """Save the network; an .onnx of a fit that was cut short says so in its metadata."""
    if path.suffix.lower() == ".onnx":
        from relunorm.io.onnx_write import write_onnx

        write_onnx(model.network_, path, stopped=model.stopped_)
    else:
        from relunorm.io import save

        save(model.network_, path)


def _float32_note(model: Any, train: Table, path: Path) -> list[str]:
    """A note if an .onnx, which is float32, predicts otherwise than the network."""
    if path.suffix.lower() != ".onnx":
        return []
    import numpy as np

    from relunorm.io import load

    assert train.y is not None
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = train.x.astype(np.float32).astype(np.float64)
    exact = model.network_(train.x)
    finite = bool(np.isfinite(rounded).all())
    change = np.abs(load(path)(rounded) - exact).max() if finite else math.inf
    if change <= FLOAT32_SHARE * np.ptp(train.y, axis=0).max():
        return []
    return [
        f"{path.name} is float32, as runtimes expect, and differs by up to {change:.3g} from the "
        "network; inputs with a large offset (times, years) lose their digits: subtract it first, "
        "or write .npz"
    ]


def _baselines(train: Table) -> dict[str, Any]:
    """A least-squares plane and scikit-learn's histogram boosting with default settings."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.multioutput import MultiOutputRegressor

    from relunorm.train.scaling import Scaling

    assert train.y is not None
    ones = np.ones(len(train.x))
    y = train.y.reshape(len(ones), -1)
    inputs, targets = Scaling.of(train.x, ones, "x"), Scaling.of(y, ones, "y")

    def design(x):
        return np.column_stack([np.ones(len(x)), inputs.apply(x)])

    plane = np.linalg.lstsq(design(train.x), targets.apply(y), rcond=None)[0]
    trees = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0))
    trees.fit(inputs.apply(train.x), targets.apply(y))

    def back(values):
        scaled = values * targets.scale + targets.shift
        return scaled[:, 0] if train.y is not None and train.y.ndim == 1 else scaled

    return {
        "linear": lambda x: back(design(x) @ plane),
        "gradient boosting": lambda x: back(trees.predict(inputs.apply(x))),
    }


def _errors(predict: Any, train: Table, held: Table | None) -> dict[str, float]:
    """Root mean squared errors and R^2, computed so that huge values do not overflow."""
    import numpy as np

    result: dict[str, float] = {}
    for name, part in (("train", train), ("holdout", held)):
        if part is None:
            result[f"{name}_rmse"] = result[f"{name}_r2"] = math.nan
            continue
        assert part.y is not None
        unit = float(np.abs(part.y).max()) or 1.0
        residual = (predict(part.x) - part.y) / unit
        centered = (part.y - part.y.mean(axis=0)) / unit
        total = float((centered**2).sum())
        squares = float((residual**2).sum())
        result[f"{name}_rmse"] = unit * math.sqrt(squares / residual.size)
        result[f"{name}_r2"] = 1 - squares / total if total > 0 else math.nan
    return result


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table as Grid

    title = f"{markup(document['source'])}: {markup(document['target'] or 'y')}"
    rows = f"{document['train_rows']:,} rows to fit, {document['holdout_rows']:,} held out"
    console.print(f"[bold]{title}[/bold], {rows}")
    grid = Grid("model", "train RMSE", "held-out RMSE", "train R²", "held-out R²")
    for row in document["errors"]:
        values = [row[k] for k in ("train_rmse", "holdout_rmse", "train_r2", "holdout_r2")]
        grid.add_row(row["model"], *("-" if v is None else f"{v:.4g}" for v in values))
    console.print(grid)
    console.print(
        f"{markup(document['network'])}, solver {document['solver']}, penalty "
        f"{document['alpha']:g}, {document['iterations']:,} iterations"
    )
    if document["optimality_gap"] is not None:
        gap = document["optimality_gap"]
        console.print(f"certified: no network of this size fits more than {100 * gap:.3g} % better")
    for note in document["notes"]:
        console.print(f"[yellow]note:[/yellow] {note}")
    if "output" in document:
        console.print(f"written to {markup(document['output'])}")
