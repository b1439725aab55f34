"""What one input does to the output: the exact partial dependence of a ReLU network.

With one input moving and the others held at a row's values the network is piecewise linear, and
`regions.lines.along` knows all its kinks. Partial dependence (Friedman 2001), the mean of these
curves over rows, is piecewise linear too: it is found at every kink of every row, not on a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.regions.lines import along

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
        """JSON-safe."""
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
    if len(table) > rows:
        pick = np.random.default_rng(random_state).permutation(len(table))[:rows]
        low, high = table.min(axis=0), table.max(axis=0)
        table = table[np.sort(pick)]
    else:
        low, high = table.min(axis=0), table.max(axis=0)
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
