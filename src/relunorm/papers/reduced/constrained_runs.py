"""Figures 5.1 to 5.8 of seed 001: unconstrained runs against constrained ones from the same starts.

Each exhibit shows the paper's picture and a table over many starts with quartiles, failures, a sign
test and a test of the spread. The picture has a further column, of deep structures in full only:
what this package's own solver finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.claim import LEVEL, Claim
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.reduced import Reduced

claim, exhibit = words_of("reduced")

Array = NDArray[np.float64]
Rows = tuple[tuple[Any, ...], ...]

#: A run whose error exceeds this share of the target's variance has failed.
FAILED = 0.01
#: Points of an axis, for pictures and for the cut y = 0.2 x.
TICKS = np.linspace(0, 1, 81)


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
    """One structure on one function."""

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
        """The runs from one start, not yet trained."""
        from relunorm.train.regressor import ReLURegressor

        options = {"max_iter": self.steps}
        kinds: dict[str, dict[str, Any]] = {"unconstrained": {"solver": "bfgs"}} | {
            label: {"solver": "slsqp", "constraint": constraint}
            for label, constraint in self.constraints.items()
        }
        common: dict[str, Any] = {
            "hidden": self.hidden,
            "skip": False,
            "random_state": start,
            "options": options,
        }
        return {label: ReLURegressor(**common, **kind) for label, kind in kinds.items()}

    def own(self, start: int) -> Any:
        """What this package would train."""
        from relunorm.train.regressor import ReLURegressor

        hidden = self.hidden[0] if len(self.hidden) == 1 else self.hidden
        return ReLURegressor(hidden=hidden, skip=False, random_state=start)

    def tiny(self) -> Experiment:
        """A few units and updates, for planted worlds."""
        return replace(
            self, hidden=tuple(min(6, h) for h in self.hidden), steps=min(30, self.steps)
        )


ONE = {"constrained (5.2)": "bounded", "constrained (5.3)": "tight"}
MANY = {"constrained (4.3), corrected (4.5)": "bounded"}
SHALLOW_SINE = Experiment(1, (20,), ONE, 500)
SHALLOW_FRANKE = Experiment(2, (40,), {"constrained (2.10)": "bounded"}, 150)


def compare(world: Reduced, experiment: Experiment, starts: list[int]) -> dict[str, Any]:
    """Errors (train, validation) of every run from every start, those along the cut of two inputs,
    and the fitted models."""
    x, y, held, truth = experiment.data(world.random_state)
    errors: dict[str, list[tuple[float, float]]] = {}
    fitted: dict[str, list[Any]] = {}
    cut = np.column_stack([TICKS, 0.2 * TICKS])[:, : experiment.inputs]
    along: dict[str, list[float]] = {}
    for start in starts:
        for label, model in experiment.models(start).items():
            model = world.fit(model, label, x, y)
            pair = [float(np.mean((model.predict(a) - b) ** 2)) for a, b in ((x, y), (held, truth))]
            errors.setdefault(label, []).append((pair[0], pair[1]))
            fitted.setdefault(label, []).append(model)
            gaps = model.predict(cut) - experiment.target(cut)
            along.setdefault(label, []).append(float(np.mean(gaps**2)))
    found = {"errors": errors, "along": along, "models": fitted, "variance": float(y.var())}
    return {**found, "x": x, "y": y}


def table(results: dict[str, Any]) -> Rows:
    """Per run: quartiles of the training error, validation median, failures of the training, and
    two tests against the unconstrained run, both of the errors on the validation samples, which are
    those that the paper evaluates.

    The sign test counts starts at which the run is better; p is the two-sided binomial probability
    of so uneven a count. The spread is the standard deviation of the log error over the starts; its
    p is Pitman's and Morgan's test of two paired variances, by ranks: log errors a and b of the
    same starts spread alike iff a + b and a - b are uncorrelated.
    """
    base = np.array(results["errors"]["unconstrained"])[:, 1]
    rows = []
    for label, pairs in results["errors"].items():
        train, held = np.array(pairs).T
        low, middle, high = np.quantile(train, [0.25, 0.5, 0.75])
        failed = int((train > FAILED * results["variance"]).sum())
        wins, p = sign_test(held, base)
        shown = (float(v) for v in (middle, low, high, np.median(held)))
        spread, tested = spread_test(held, base)
        rows.append((label, *shown, failed, len(train), wins, p, spread, tested))
    return tuple(rows)


def sign_test(errors: Array, base: Array) -> tuple[int, float]:
    """Starts at which ``errors`` is smaller, and the two-sided p of the sign test."""
    from scipy.stats import binomtest

    wins, losses = int((errors < base).sum()), int((errors > base).sum())
    return wins, float(binomtest(wins, wins + losses).pvalue) if wins + losses else float("nan")


def spread_test(errors: Array, base: Array) -> tuple[float, float]:
    """Deviation of the log errors, and the two-sided p of a spread other than that of ``base``."""
    from scipy.stats import spearmanr

    a, b = np.log(errors), np.log(base)
    if len(a) < 3 or np.ptp(a - b) == 0 or np.ptp(a + b) == 0:
        return float(a.std()), float("nan")
    found: Any = spearmanr(a + b, a - b)
    return float(a.std()), float(found.pvalue)


COLUMNS = (
    "run", "train MSE median", "lower quartile", "upper quartile", "validation median", "failures",
    "starts", "better than unconstrained", "sign test p", "spread of log error", "spread test p",
)  # fmt: skip


def _better(item: str, rows: Rows, full: bool) -> Claim:
    """The constrained run that does worst against the unconstrained one, by a sign test."""

    def against(row: dict[str, Any]) -> float:
        more = row["better than unconstrained"] > row["starts"] / 2
        return row["sign test p"] if more else 1.0

    row = max(_constrained(rows), key=against)
    told = (row["better than unconstrained"], row["sign test p"], row["starts"], full)
    return _signs(item, *told, run=row["run"])


def _signs(item: str, wins: int, p: float, n: int, full: bool, **words: str) -> Claim:
    """A sign test of ``wins`` of ``n`` starts; what decides neither way is called too short."""
    more = wins > n / 2
    short = _short(1.0 if more else p, n, full)
    return claim(item, p if more else 1.0, short=short, wins=wins, n=n, **words)


def _steadier(item: str, rows: Rows, full: bool) -> Claim:
    """The constrained run whose errors spread most, against the unconstrained one."""
    spread = "spread of log error"
    free = next(row for row in _dicts(rows) if row["run"] == "unconstrained")
    row = max(_constrained(rows), key=lambda row: row[spread])
    less, p = row[spread] < free[spread], row["spread test p"]
    short = _short(1.0 if less else p, row["starts"], full)
    ratio = row[spread] / free[spread]
    return claim(item, p if less else 1.0, short=short, run=row["run"], ratio=ratio)


def _short(p_against: float, starts: int, full: bool) -> str:
    """Why an undecided test is no refutation; nothing if it decides against the claim."""
    if p_against <= LEVEL:
        return ""
    return f"{starts} starts of a limited number of steps do not decide it" + (
        "" if full else "; --full runs 20"
    )


def _dicts(rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _constrained(rows: Rows) -> list[dict[str, Any]]:
    return [row for row in _dicts(rows) if row["run"].startswith("constrained")]


def figure(
    world: Reduced, *, number: str, experiment: Experiment, shown: tuple[int, ...], quick: int
) -> Exhibit:
    """Constrained and unconstrained training from the same starts: any of figures 5.4 to 5.8.

    Judged by a sign test of the errors, of one input by a test of their spread, too, and of two
    inputs by a sign test of the errors along the cut.

    Args:
        shown: numbers of the starts that are drawn. quick: starts of a quick run; 20 in full.
    """
    starts = list(range(world.size(quick, 20, 6)))
    experiment = experiment.tiny() if world.tiny else experiment
    results = compare(world, experiment, starts)
    rows = table(results)
    free, held = (np.array(errors) for errors in results["along"].values())
    wins, p = sign_test(held, free)
    item = f"Figure {number}"
    if experiment.inputs == 1:
        second = _steadier(f"{item}: less sensitive to the start", rows, world.full)
    else:
        second = _signs(f"{item}: along y = 0.2 x", wins, p, len(starts), world.full)
    return exhibit(
        world.settings(starts=starts, steps=experiment.steps, cut_wins=wins, cut_p=p),
        f"figure{number}",
        _better(item, rows, world.full),
        second,
        columns=COLUMNS,
        rows=rows,
        figure=_draw(world, experiment, results, shown),
    )


def figures51(world: Reduced) -> Exhibit:
    """Three sets of random starts on sin(4 pi x), one for each of figures 5.1, 5.2 and 5.3: the
    unconstrained run (BFGS), the constrained one (5.2) and the tighter one (5.3) (both SLSQP) from
    the same starts, 20 units and an output bias, compared by their errors on 1,000 validation
    samples. Each figure is judged by its own set of starts, the rest by all of them.
    """
    each = world.size(10, 20, 6)
    experiment = SHALLOW_SINE.tiny() if world.tiny else SHALLOW_SINE
    sets = [list(range(k * each, (k + 1) * each)) for k in range(3)]
    results = [compare(world, experiment, starts) for starts in sets]
    tables = {f"5.{k + 1}": table(found) for k, found in enumerate(results)}
    pooled = {
        "errors": {
            label: [pair for found in results for pair in found["errors"][label]]
            for label in results[0]["errors"]
        },
        "variance": results[0]["variance"],
    }
    tables["all"] = table(pooled)
    general, tight = (np.array(pooled["errors"][label])[:, 1] for label in ONE)
    wins, p = sign_test(tight, general)
    first = {key: [found["errors"][key][0] for found in results] for key in pooled["errors"]}
    models = {key: [found["models"][key][0] for found in results] for key in pooled["errors"]}
    drawn = {**results[0], "errors": first, "models": models}
    return exhibit(
        world.settings(sets=sets, steps=experiment.steps, tight_wins=wins, tight_p=p),
        "figure5.1-3",
        *(_better(f"Figure {k}", tables[k], world.full) for k in ("5.1", "5.2", "5.3")),
        _signs("Section 5.1: (5.3) against (5.2)", wins, p, 3 * each, world.full),
        _steadier("Section 5.1: less sensitive to the start", tables["all"], world.full),
        columns=("figure", *COLUMNS),
        rows=[(k, *row) for k, rows in tables.items() for row in rows],
        figure=_draw(world, experiment, drawn, (0, 1, 2)),
    )


def _draw(
    world: Reduced, experiment: Experiment, results: dict[str, Any], shown: tuple[int, ...]
) -> Any:
    if world.tiny:
        return None
    if world.full or len(experiment.hidden) == 1:  # a deep one costs as much as all the starts
        own = [experiment.own(start).fit(results["x"], results["y"]) for start in shown]
        errors = [float(np.mean((m.predict(results["x"]) - results["y"]) ** 2)) for m in own]
        results = {
            "errors": {**results["errors"], "relunorm, auto": [(e, e) for e in errors]},
            "models": {**results["models"], "relunorm, auto": own},
        }
    draw = _draw_sine if experiment.inputs == 1 else _draw_franke
    return draw(experiment, results, list(range(len(shown))))


def _draw_sine(experiment: Experiment, results: dict[str, Any], shown: list[int]) -> Any:
    """One row per shown start, one column per run; the exact function dashed."""
    labels = list(results["models"])
    size = (3.2 * len(labels), 2.6 * len(shown))
    figure, axes = empty_figure(size, len(shown), len(labels), experiment.label)
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
    figure, axes = empty_figure(size, len(labels), 2, f"{experiment.label}, start {shown[0]}")
    ticks = TICKS
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


#: Figure -> its structure, the starts that are drawn, the starts of a quick run.
DEEPER: dict[str, tuple[Experiment, tuple[int, ...], int]] = {
    "5.4": (SHALLOW_FRANKE, (0,), 8),
    "5.5": (Experiment(1, (20, 10), MANY, 60), (0, 1, 2), 8),
    "5.6": (Experiment(1, (5,) * 4, MANY, 100), (0, 1, 2), 8),
    "5.7": (Experiment(2, (20, 10), MANY, 60), (0,), 6),
    "5.8": (Experiment(2, (10,) * 4, MANY, 60), (0,), 6),
}


def _one_of(number: str, experiment: Experiment, shown: tuple[int, ...], quick: int) -> Any:
    """`figure` for one of them, whose docstring says what that one runs."""
    made = partial(figure, number=number, experiment=experiment, shown=shown, quick=quick)
    function = "sin(4 pi x)" if experiment.inputs == 1 else "Franke's function"
    samples = 200 if experiment.inputs == 1 else 500
    constrained = " and ".join(experiment.constraints).removeprefix("constrained ")
    made.__doc__ = (
        f"{function} by {experiment.structure}, {samples} samples: unconstrained (BFGS) against "
        f"constrained by {constrained} (SLSQP) from the same {quick} starts (20 in full), "
        f"{experiment.steps} steps at most, all with an output bias, compared by the mean squared "
        "error on 1,000 validation samples"
        + (" and at 81 points of y = 0.2 x." if experiment.inputs == 2 else ".")
    )
    return made


FIGURES: dict[str, Callable[..., Exhibit]] = {
    "figure5.1-3": figures51,
    **{f"figure{number}": _one_of(number, *own) for number, own in DEEPER.items()},
}
