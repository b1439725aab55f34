"""What one input does to the output: the exact partial dependence of a ReLU network, and a network
of one input as straight pieces.

With one input moving and the others held at a row's values the network is piecewise linear, and
`regions.lines.along` knows all its kinks. Partial dependence (Friedman 2001), the mean of these
curves over rows, is piecewise linear too: it is found at every kink of every row, not on a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.regions.lines import along

if TYPE_CHECKING:
    from relunorm.train.regressor import ReLURegressor


Floats = NDArray[np.float64]

#: Rows that are averaged over at most, unless told otherwise; curves of single rows in a picture.
ROWS, DRAWN = 200, 30


@dataclass(frozen=True, eq=False, repr=False)
class FeatureEffect:
    """The mean output as one input moves over the range it has in the data.

    Attributes:
        feature: number of the input.
        name: its name.
        knots: (k,) every value of it where the mean has a kink, ascending, and both ends.
        values: (k, m) the mean there; between them it is linear.
        curves: (knots, values) of every row, whose mean it is.
        data: (rows,) the values that the input has in these rows.
    """

    feature: int
    name: str
    knots: Floats
    values: Floats
    curves: tuple[tuple[Floats, Floats], ...]
    data: Floats

    def __call__(self, t: ArrayLike) -> Floats:
        """The mean output (n, m) at values t of the input."""
        t = np.atleast_1d(np.asarray(t, dtype=np.float64))
        return np.column_stack([np.interp(t, self.knots, column) for column in self.values.T])

    @property
    def size(self) -> float:
        """How far the effect moves the output: largest minus smallest mean, over all outputs."""
        return float(np.ptp(self.values, axis=0).max())

    def to_dict(self) -> dict[str, Any]:
        return {**entries(self, "feature name knots values"), "rows": len(self.curves)}

    def plot(
        self, ax: Any = None, output: int | None = None, labels: Sequence[str] | None = None
    ) -> Any:
        """The mean, up to `DRAWN` rows behind it, and the data as ticks; returns the figure.

        Args:
            output: the one to draw; of several outputs all means without their rows if omitted.
            labels: what the outputs are.
        """
        count = self.values.shape[1]
        if labels is None:
            labels = ["output"] if count == 1 else [f"output {k}" for k in range(count)]
        shown = list(range(count)) if output is None else [output]
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(4.2, 3.2), layout="constrained").subplots()
        if len(shown) == 1:
            for knots, values in self.curves[:DRAWN]:
                ax.plot(knots, values[:, shown[0]], color="#9aa7b8", lw=0.6, alpha=0.6)
        for k in shown:
            red = {"color": "#b3261e"} if len(shown) == 1 else {}
            ax.plot(self.knots, self.values[:, k], lw=2, label=labels[k], **red)
        ends = ax.get_xaxis_transform()
        ax.plot(self.data, np.zeros_like(self.data), "|", color="black", ms=6, transform=ends)
        ax.set(xlabel=self.name, ylabel=labels[shown[0]] if len(shown) == 1 else "outputs")
        return ax.figure

    def __repr__(self) -> str:
        return f"FeatureEffect({self.name!r}, {len(self.knots):,} knots, size {self.size:.4g})"


def feature_effects(
    network: Network,
    x: ArrayLike,
    features: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    *,
    rows: int = ROWS,
    random_state: int = 0,
) -> list[FeatureEffect]:
    """The partial dependence of the network on each input, exactly, for these rows.

    PD_j(t) = mean over rows i of f(x_i with x_ij = t), for t over the range of column j. Exact up
    to rounding; cost one walk along a line for each row and input.

    Args:
        network: relu or leaky units; a fitted estimator's ``network_``.
        x: (n, d) rows to average over.
        features: numbers of the inputs; all that vary if omitted.
        names: one for each column of x.
        rows: above so many rows that many are drawn at random.

    >>> net = Network.from_weights([[[1.0, 0.0]], [[2.0]]], [[-1.0], [0.0]])  # 2 relu(x_0 - 1)
    >>> effect = feature_effects(net, [[0.0, 5.0], [3.0, 7.0]], [0])[0]
    >>> effect.knots.tolist(), effect.values.ravel().tolist()
    ([0.0, 1.0, 3.0], [0.0, 0.0, 4.0])
    """
    table = np.asarray(x, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != network.input_size or not np.isfinite(table).all():
        raise InvalidInputError(
            f"x has shape {table.shape}; expected finite rows of {network.input_size} inputs"
        )
    low, high = table.min(axis=0), table.max(axis=0)
    if len(table) > rows:
        pick = np.random.default_rng(random_state).permutation(len(table))[:rows]
        table = table[np.sort(pick)]
    names = [f"x{k}" for k in range(table.shape[1])] if names is None else list(names)
    chosen = np.flatnonzero(high > low) if features is None else np.asarray(features, np.intp)
    wrong = [int(k) for k in chosen if not 0 <= k < table.shape[1] or not high[k] > low[k]]
    if wrong:
        raise InvalidInputError(f"features {wrong}: no such inputs, or inputs that do not vary")
    return [_effect(network, table, int(k), names[k], low[k], high[k]) for k in chosen]


def _effect(
    network: Network, table: Floats, feature: int, name: str, low: float, high: float
) -> FeatureEffect:
    curves = []
    for row in table:
        ends = np.stack([row, row])
        ends[:, feature] = low, high
        line = along(network, ends)
        curves.append((low + (high - low) * line.breakpoints, line.values))
    knots = np.unique(np.concatenate([at for at, _ in curves]))
    values = np.zeros((len(knots), network.output_size))
    for at, found in curves:
        for output, column in enumerate(found.T):
            values[:, output] += np.interp(knots, at, column)
    return FeatureEffect(
        feature, name, knots, values / len(curves), tuple(curves), table[:, feature].copy()
    )


def plot_effects(
    effects: Sequence[FeatureEffect],
    output: int | None = None,
    most: int = 12,
    labels: Sequence[str] | None = None,
) -> Any:
    """One panel an input, largest effect first, at most ``most``; returns the figure.

    ``output`` and ``labels`` as in `FeatureEffect.plot`.
    """
    from matplotlib.figure import Figure

    shown = sorted(effects, key=lambda effect: -effect.size)[:most]
    if not shown:
        raise InvalidInputError("no input varies, so there is no effect to draw")
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.7 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for ax, effect in zip(axes, shown, strict=False):
        effect.plot(ax, output, labels)
        ax.label_outer()
        ax.tick_params(labelbottom=True)
        ax.set_xlabel(effect.name)
    if output is None and shown[0].values.shape[1] > 1:
        axes[0].legend(fontsize="small")
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    return figure


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseLinear:
    """A continuous piecewise-linear fit of rows (x, y).

    Attributes:
        x, y: the rows.
        knots: (k + 1,) where the k pieces begin and end, the data's ends included.
        values: (k + 1,) the fit there.
        mse: its mean squared error; infinite beyond float64.
        lower_bound: mean squared error that no fit with as many pieces can beat, or None.
        gap: mse / lower_bound - 1, or None.
    """

    x: Floats
    y: Floats
    knots: Floats
    values: Floats
    mse: float
    lower_bound: float | None
    gap: float | None

    @classmethod
    def of(cls, model: ReLURegressor, x: ArrayLike, y: ArrayLike) -> PiecewiseLinear:
        """The pieces of a fitted regressor with one input, and its certificate.

        Args:
            x, y: the rows it was fitted to.

        >>> from relunorm import ReLURegressor
        >>> x = np.linspace(0, 1, 60)
        >>> model = ReLURegressor(hidden=1, solver="exact").fit(x[:, None], np.abs(x - 0.25))
        >>> PiecewiseLinear.of(model, x, np.abs(x - 0.25)).knots.round(6).tolist()
        [0.0, 0.25, 1.0]
        """
        x, y = (np.asarray(part, dtype=np.float64).ravel() for part in (x, y))
        network = model.network_
        if network.input_size != 1 or network.output_size != 1 or len(x) != len(y):
            raise InvalidInputError(
                f"{network!r} and {len(x)} values: pieces are drawn for one input and one output"
            )
        line = along(network, [x.min()], [x.max()])
        knots = x.min() + (x.max() - x.min()) * line.breakpoints
        with np.errstate(over="ignore"):  # squares of huge targets have no float64
            mse = float(np.mean((network(x[:, None])[:, 0] - y) ** 2))
        found = model.lower_bound_, model.optimality_gap_
        return cls(x, y, knots, line.values[:, 0], mse, *found)

    @property
    def slopes(self) -> Floats:
        """(k,) of the pieces; infinite where floats cannot tell their ends apart."""
        with np.errstate(divide="ignore"):
            return np.diff(self.values) / np.diff(self.knots)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pieces": len(self.slopes),
            **entries(self, "knots values slopes mse"),
            "lower_bound_mse": self.lower_bound,
            "gap": None if self.gap is None or not np.isfinite(self.gap) else self.gap,
        }

    def plot(self, names: tuple[str, str] = ("x", "y")) -> Any:
        """Rows, fit and knots; beside them the error, the bound under it and the gap."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(5, 1))
        left.plot(self.x, self.y, ".", color="#8a97a8", ms=4)
        left.plot(self.knots, self.values, color="#b3261e", lw=2)
        left.plot(self.knots[1:-1], self.values[1:-1], "o", color="#b3261e", mec="white", ms=8)
        left.set(xlabel=names[0], ylabel=names[1])
        shown = f"{len(self.slopes)} pieces, mean squared error {self.mse:.4g}"
        if np.isfinite(self.mse):
            right.bar(0, self.mse, color="#b3261e", width=0.6)
        if self.lower_bound is not None:
            right.bar(1, self.lower_bound, color="#3b5b92", width=0.6)
            right.axhline(self.lower_bound, color="#3b5b92", lw=1, ls=":")
            shown += f"; no such fit below {self.lower_bound:.4g}"
            if self.gap is not None and np.isfinite(self.gap):
                shown += f" (gap at most {100 * self.gap:.3g} %)"
        figure.suptitle(shown, fontsize=10)
        right.set_xticks([0, 1], ["fit", "bound"])
        right.set_ylabel("mean squared error")
        return figure

    def __repr__(self) -> str:
        gap = "not certified" if self.gap is None else f"gap at most {100 * self.gap:.3g} %"
        return f"PiecewiseLinear({len(self.slopes)} pieces, mse {self.mse:.4g}, {gap})"
