"""Seed 001, "Reducing Parameter Space for Neural Network Training" (Qin, Zhou, Xiu), re-run.

Figures 5.1 to 5.8 compare an unconstrained run with constrained ones from identical starts; each
exhibit shows the paper's picture and a table over many starts with quartiles, failures and a sign
test, beside the best that this package finds. Theorems 3.2 and 3.3 become a plot of error against
width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers.exhibit import Exhibit

Array = NDArray[np.float64]

#: A run whose error exceeds this share of the target's variance has failed.
FAILED = 0.01


def sine(x: Array) -> Array:
    """f(x) = sin(4 pi x) on [0, 1] (5.1)."""
    return np.sin(4 * np.pi * x[:, 0])


def franke(p: Array) -> Array:
    """Franke's function on [0, 1]^2 (5.4).

    >>> round(float(franke(np.array([[0.2, 0.2]]))[0]), 4)
    1.2186
    """
    x, y = 9 * p[:, 0], 9 * p[:, 1]
    return (
        0.75 * np.exp(-((x - 2) ** 2 + (y - 2) ** 2) / 4)
        + 0.75 * np.exp(-((x + 1) ** 2) / 49 - (y + 1) / 10)
        + 0.5 * np.exp(-((x - 7) ** 2 + (y - 3) ** 2) / 4)
        - 0.2 * np.exp(-((x - 4) ** 2) - (y - 7) ** 2)
    )


@dataclass(frozen=True)
class Experiment:
    """One structure on one function.

    Attributes:
        inputs: 1 for the sine, 2 for Franke's function.
        hidden: units per hidden layer.
        constraints: constrained runs to compare, by label.
        steps: iterations each run may take.
    """

    inputs: int
    hidden: tuple[int, ...]
    constraints: dict[str, str]
    steps: int

    @property
    def target(self) -> Callable[[Array], Array]:
        return sine if self.inputs == 1 else franke

    @property
    def label(self) -> str:
        """What is fitted by what, for the pictures."""
        return f"{'sin(4πx)' if self.inputs == 1 else 'Franke’s function'} by {self.structure}"

    @property
    def structure(self) -> str:
        return "{" + ",".join(map(str, (self.inputs, *self.hidden, 1))) + "}"

    def data(self, random_state: int) -> tuple[Array, Array, Array, Array]:
        """200 (500 in two dimensions) rows to train on and 1,000 to validate on."""
        rng = np.random.default_rng(random_state)
        x = rng.random((200 if self.inputs == 1 else 500, self.inputs))
        held = rng.random((1000, self.inputs))
        return x, self.target(x), held, self.target(held)

    def models(self, start: int) -> dict[str, Any]:
        """The runs from one start; the last is this package's own solver."""
        from relunorm.train.estimator import ReLURegressor

        free = ReLURegressor(hidden=self.hidden, skip=False, random_state=start)
        steps = {"max_iter": self.steps}
        runs = {"unconstrained": free.set_params(solver="bfgs", options=steps)}
        for label, constraint in self.constraints.items():
            settings = {"constraint": constraint, "options": steps, "random_state": start}
            runs[label] = ReLURegressor(hidden=self.hidden, solver="slsqp", skip=False, **settings)
        own = self.hidden[0] if len(self.hidden) == 1 else self.hidden
        runs["relunorm, auto"] = ReLURegressor(hidden=own, skip=False, random_state=start)
        return runs


ONE = {"constrained (5.2)": "bounded", "constrained (5.3)": "tight"}
MANY = {"constrained (4.3), corrected (4.5)": "bounded"}
SHALLOW_SINE = Experiment(1, (20,), ONE, 500)
SHALLOW_FRANKE = Experiment(2, (40,), {"constrained (2.10)": "bounded"}, 150)


def compare(experiment: Experiment, starts: list[int], random_state: int) -> dict[str, Any]:
    """Errors (train, validation) of every run from every start, and the fitted models."""
    x, y, held, truth = experiment.data(random_state)
    errors: dict[str, list[tuple[float, float]]] = {}
    fitted: dict[str, list[Any]] = {}
    for start in starts:
        for label, model in experiment.models(start).items():
            model.fit(x, y)
            pair = [float(np.mean((model.predict(a) - b) ** 2)) for a, b in ((x, y), (held, truth))]
            errors.setdefault(label, []).append((pair[0], pair[1]))
            fitted.setdefault(label, []).append(model)
    return {"errors": errors, "models": fitted, "variance": float(y.var()), "x": x, "y": y}


def table(results: dict[str, Any]) -> tuple[tuple[Any, ...], ...]:
    """Per run: quartiles of the training error, validation median, failures, sign test.

    The sign test counts starts at which the run is better than the unconstrained one; p is the
    two-sided binomial probability of so uneven a count.
    """
    from scipy.stats import binomtest

    base = np.array(results["errors"]["unconstrained"])[:, 0]
    rows = []
    for label, pairs in results["errors"].items():
        train, held = np.array(pairs).T
        low, middle, high = np.quantile(train, [0.25, 0.5, 0.75])
        failed = int((train > FAILED * results["variance"]).sum())
        wins, losses = int((train < base).sum()), int((train > base).sum())
        p = binomtest(wins, wins + losses).pvalue if wins + losses else float("nan")
        shown = (float(v) for v in (middle, low, high, np.median(held)))
        rows.append((label, *shown, failed, len(train), wins, float(p)))
    return tuple(rows)


COLUMNS = ("run", "train MSE median", "lower quartile", "upper quartile", "validation median",
           "failures", "starts", "better than unconstrained", "sign test p")  # fmt: skip


def figure(
    data: Any = None,
    full: bool = False,
    random_state: int = 0,
    *,
    name: str,
    experiment: Experiment,
    shown: tuple[int, ...],
    quick: int,
) -> Exhibit:
    """Any of figures 5.1 to 5.8.

    Args:
        data: not used; the paper's data is generated.
        full: 20 starts in the table instead of ``quick``.
        shown: numbers of the starts that are drawn.
    """
    starts = list(range(20 if full else quick))
    results = compare(experiment, starts, random_state)
    draw = _draw_sine if experiment.inputs == 1 else _draw_franke
    picture = draw(experiment, results, [starts.index(s) for s in shown])
    return Exhibit(
        name,
        f"Figure {name.removeprefix('figure')}: {experiment.structure}",
        COLUMNS,
        table(results),
        "Constrained and unconstrained runs start from the same function. Failures leave more than "
        "1 % of the variance.",
        picture,
        {"starts": starts, "random_state": random_state, "steps": experiment.steps},
    )


def universality(data: Any = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Theorems 3.2 and 3.3: networks of the reduced space are dense; error against width.

    Root mean squared error on a fine grid, and the rate: the slope of log error over log width.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from relunorm.train.estimator import ReLURegressor

    figure, axes = _axes(1, 1, "Error against width in the reduced space", (6, 4.5))
    rows: list[tuple[Any, ...]] = []
    for inputs, widths in ((1, (5, 10, 20, 40)), (2, (10, 20, 40, 80 if full else 60))):
        experiment = Experiment(inputs, (1,), {}, 0)
        rng = np.random.default_rng(random_state)
        x, grid = rng.random((2000, inputs)), rng.random((4000, inputs))
        errors = []
        for width in widths:
            model = ReLURegressor(hidden=width, alpha=0.0, random_state=random_state, n_init=2)
            model.fit(x, experiment.target(x))
            gap = model.predict(grid) - experiment.target(grid)
            errors.append(float(np.sqrt(np.mean(gap**2))))
        rate = float(np.polyfit(np.log(widths), np.log(errors), 1)[0])
        label = "sin(4πx)" if inputs == 1 else "Franke"
        axes[0].loglog(widths, errors, "o-", label=f"{label}: rate {rate:.2f}")
        rows += [(label, w, e, rate) for w, e in zip(widths, errors, strict=True)]
    ticks = sorted({row[1] for row in rows})
    axes[0].set_xticks(ticks, [str(tick) for tick in ticks])
    axes[0].xaxis.set_minor_locator(NullLocator())
    # less than two decades: powers of ten alone would leave one label
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[0].set_xlabel("hidden units")
    axes[0].set_ylabel("root mean squared error")
    axes[0].legend()
    return Exhibit(
        "universality",
        "Theorems 3.2 and 3.3: error against width",
        ("function", "units", "RMS error", "rate"),
        tuple(rows),
        "A linear spline with free knots has rate -2 for a smooth function of one variable.",
        figure,
        {"rows": 2000, "random_state": random_state},
    )


def _axes(rows: int, columns: int, title: str, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    return figure, list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def _draw_sine(experiment: Experiment, results: dict[str, Any], shown: list[int]) -> Any:
    """One row per shown start, one column per run; the exact function dashed."""
    labels = list(results["models"])
    size = (3.2 * len(labels), 2.6 * len(shown))
    figure, axes = _axes(len(shown), len(labels), experiment.label, size)
    grid = np.linspace(0, 1, 400)[:, None]
    for row, start in enumerate(shown):
        for column, label in enumerate(labels):
            ax = axes[row * len(labels) + column]
            model = results["models"][label][start]
            ax.plot(grid, experiment.target(grid), "k--", linewidth=0.8, label="sin(4πx)")
            ax.plot(grid, model.predict(grid), label="network")
            if len(experiment.hidden) == 1:
                knots = _knots(model.network_)
                ax.plot(knots, model.predict(knots[:, None]), "C1.", label="knots")
            ax.set_title(_caption(label, results, start), fontsize=9)
            ax.set_xlabel("x")
            ax.set_ylabel(f"start {start}\nf(x)" if column == 0 else "f(x)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _caption(label: str, results: dict[str, Any], start: int) -> str:
    return f"{label}\ntrain MSE {results['errors'][label][start][0]:.1e}"


def _knots(network: Any) -> Array:
    """Where the units of one hidden layer over one input switch, inside [0, 1]."""
    affine = network.layers[0].affine
    knots = -affine.bias / np.asarray(affine.terms[0])[:, 0]
    return np.sort(knots[(knots > 0) & (knots < 1)])


def _draw_franke(experiment: Experiment, results: dict[str, Any], shown: list[int]) -> Any:
    """Contours 0 to 1 by 0.1 and the cut y = 0.2 x, one row per run."""
    from matplotlib.lines import Line2D

    labels = list(results["models"])
    size = (8, 3 * len(labels) + 0.8)
    figure, axes = _axes(len(labels), 2, f"{experiment.label}, start {shown[0]}", size)
    ticks = np.linspace(0, 1, 81)
    mesh = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    flat = mesh.reshape(-1, 2)
    cut = np.column_stack([ticks, 0.2 * ticks])
    for row, label in enumerate(labels):
        model = results["models"][label][shown[0]]
        left, right = axes[2 * row], axes[2 * row + 1]
        levels = np.linspace(0, 1, 11)
        surfaces = ((model.predict(flat), "solid"), (experiment.target(flat), "dashed"))
        for values, style in surfaces:
            lines = left.contour(ticks, ticks, values.reshape(81, 81), levels, linestyles=style)
            if style == "dashed":
                left.clabel(lines, levels[1::2], fontsize=7, fmt="%.1f")
        left.set_title(_caption(label, results, shown[0]), fontsize=9)
        right.plot(ticks, experiment.target(cut), "k--", linewidth=0.8)
        right.plot(ticks, model.predict(cut))
        right.set_title("along y = 0.2 x", fontsize=9)
        left.set(xlabel="x", ylabel="y")
        right.set(xlabel="x", ylabel="f(x, 0.2 x)")
    # the same two styles left and right: contours take their color from the level
    styles = [Line2D([], [], color="k", linestyle=style) for style in ("dashed", "solid")]
    names = ["Franke's function", "network (contours 0 to 1 by 0.1)"]
    figure.legend(styles, names, loc="outside lower center", ncols=2)
    return figure


def _exhibit(name: str, experiment: Experiment, *shown: int, quick: int) -> Callable[..., Exhibit]:
    return partial(figure, name=name, experiment=experiment, shown=shown, quick=quick)


#: Every figure by name, in the paper's order: (data, full, random_state) -> Exhibit.
EXHIBITS: dict[str, Callable[..., Exhibit]] = {
    "figure5.1": _exhibit("figure5.1", SHALLOW_SINE, 0, quick=10),
    "figure5.2": _exhibit("figure5.2", SHALLOW_SINE, 1, quick=10),
    "figure5.3": _exhibit("figure5.3", SHALLOW_SINE, 2, quick=10),
    "figure5.4": _exhibit("figure5.4", SHALLOW_FRANKE, 0, quick=8),
    "figure5.5": _exhibit("figure5.5", Experiment(1, (20, 10), MANY, 60), 0, 1, 2, quick=8),
    "figure5.6": _exhibit("figure5.6", Experiment(1, (5, 5, 5, 5), MANY, 100), 0, 1, 2, quick=8),
    "figure5.7": _exhibit("figure5.7", Experiment(2, (20, 10), MANY, 60), 0, quick=6),
    "figure5.8": _exhibit("figure5.8", Experiment(2, (10, 10, 10, 10), MANY, 60), 0, quick=6),
    "universality": universality,
}
