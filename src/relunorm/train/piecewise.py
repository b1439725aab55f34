"""A network of one input as what it is: straight pieces, their knots, and how good they can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.regions.lines import along

if TYPE_CHECKING:
    from relunorm.train.regressor import ReLURegressor

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseLinear:
    """A continuous piecewise-linear fit of rows (x, y).

    Attributes:
        x, y: the rows.
        knots: (k + 1,) where the k pieces begin and end, the data's ends included.
        values: (k + 1,) the fit there.
        mse: its mean squared error.
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
        mse = float(np.mean((network(x[:, None])[:, 0] - y) ** 2))
        found = model.lower_bound_, model.optimality_gap_
        return cls(x, y, knots, line.values[:, 0], mse, *found)

    @property
    def slopes(self) -> Floats:
        """(k,) of the pieces."""
        return np.diff(self.values) / np.diff(self.knots)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
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
