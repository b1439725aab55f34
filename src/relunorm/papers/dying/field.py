"""Figure 3 of seed 002: the field of one unit, its optimum and its attracting line."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import Check
from relunorm.papers.dying.basin_maps import SURFACE, WINDOWS, sides_dead, starts
from relunorm.papers.dying.laws import Dying
from relunorm.papers.dying.one_unit import left_at
from relunorm.papers.dying.theory.trajectories import vector_field
from relunorm.papers.exhibit import Exhibit, costs, empty_figure

claim = claims_of("dying")

#: Weights at which the attracting line is located.
LINE = (0.2, 0.5, 0.8)


@costs(3)
def figure3(world: Dying) -> Exhibit:
    """The vector field of one unit at four scales; where starts on a grid over [-2, 2]^2 end
    without momentum, by quadrants; the loss's minimum for Delta = 0 and 0.1; and the line in the
    lower right quadrant at gamma 0.1, 0.01 and 0.001, with two paths towards it."""
    rows = []
    for gamma in world.size((1.0, 0.1, 0.01, 0.001), (1.0, 0.1, 0.01, 0.001), (1.0, 0.001)):
        found = starts(world, gamma, 0.0)
        half = found.axis < 0
        lower_left = found.classes[np.ix_(half, half)]
        # an update moves w by about eta gamma at most: starts nearer to w = 0 may jump across it
        away = found.classes[np.ix_(half, found.axis < -found.eta * gamma)]
        shares = [100 * float((part == 1).mean()) for part in (lower_left, away)]
        sides = [sides_dead(found, window)[1] for window in WINDOWS]
        rows.append((gamma, shares[0], min(sides), _left_in_cone(world, gamma), shares[1]))
    table = np.array(rows)
    gammas = [row[0] for row in rows]
    best = {shift: [_optimum(world, gamma, shift) for gamma in gammas] for shift in (0.0, 0.1)}
    nearer = all(b[0] < a[0] for a, b in pairwise(best[0.0]))
    lines = np.array([[_attracting_line(world, g, w) for w in LINE] for g in (0.1, 0.01, 0.001)])
    moved = bool((np.diff(lines, axis=0) < 0).all() and lines[0].min() > SURFACE)
    pulled = max(_approach(world, gamma) for gamma in (0.1, 0.01))
    return Exhibit(
        "figure3",
        "Figure 3: gradient descent on one unit",
        (
            "gamma",
            "lower left dead %",
            "right half dead %, least over the squares",
            "gradient in the dead cone / bound",
            "lower left, w < -eta gamma, dead %",
        ),
        tuple(rows),
        "The prose sends the lower left quadrant to the ground truth; all of it dies but for "
        "starts so close to w = 0 that one update carries them across. That the right side dies "
        "more as gamma falls holds.",
        None if world.tiny else _draw_fields([row[0] for row in rows]),
        world.settings(),
        (
            claim("Figure 3", table[-1, 2]),
            claim("Figure 3: gradients in the dead cone", table[:, 3].max()),
            claim(
                "Section 5: the optimum ends between the cones",
                max(best[0.0][-1][1], best[0.1][-1][1]) if nearer else math.nan,
                max(ratio for _, ratio in best[0.0]) if nearer else math.nan,
            ),
            claim(
                "Section 5: an attracting line",
                Check(
                    f"largest b/|w| of the line at w = 0.2, 0.5, 0.8, gamma 0.001 (at least "
                    f"{lines[0].min():.3g} at 0.1; paths from both sides are left {pulled:.2g} "
                    "of their distance)",
                    lines[-1].max() if moved and pulled < 0.5 else math.nan,
                    "<",
                    SURFACE,
                ),
            ),
            claim("Section 5: lower left quadrant", table[:, 1].min(), table[:, 4].min()),
        ),
    )


def _left_in_cone(world: Dying, gamma: float) -> float:
    """The gradient's norm in the dead cone over that of the affine model and over the bound of
    (27)-(29), at most."""
    w = np.tile([-1.0, -0.3, -0.1, 0.1, 0.3, 1.0], 3)
    h = np.repeat([4.0, 6.0, 8.0], 6)
    b = -h * np.abs(w)
    gw, gb = world.gradient(w[:, None], b, gamma)
    return float((np.hypot(gw[:, 0], gb) / np.hypot(w - gamma, b) / left_at(h)).max())


def _optimum(world: Dying, gamma: float, delta: float) -> tuple[float, float]:
    """|(w, b)| and |b|/|w| of the minimum of the loss, searched from twice its scale."""
    from scipy.optimize import minimize

    options = {"xatol": 1e-9, "fatol": 1e-18}
    found: Any = minimize(
        lambda v: float(world.loss([gamma * v[0]], gamma * v[1], [gamma], delta)) / gamma**2,
        [2.0, delta / gamma + 1.0],
        method="Nelder-Mead",
        options=options,
    )
    w, b = gamma * found.x
    return math.hypot(w, b), abs(b) / abs(w)


def _attracting_line(world: Dying, gamma: float, w: float) -> float:
    """h = b/w at which descent stops turning at this w, if it turns towards it from all h below
    and from all above; else NaN."""

    def falls(h: Any) -> Any:
        gw, gb = world.gradient(np.full((np.size(h), 1), w), np.ravel(h) * w, gamma)
        return gb - np.ravel(h) * gw[:, 0] > 0

    grid = np.linspace(-32.0, -0.02, 400)
    turns = falls(grid)
    if turns[0] or not turns[-1] or (np.diff(turns.astype(int)) < 0).any():
        return math.nan
    k = int(turns.argmax())
    low, high = grid[k - 1], grid[k]
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if falls(middle)[0] else (middle, high)
    return float(high)


def _approach(world: Dying, gamma: float) -> float:
    """Two paths of descent of length 1 from w = 1, one from above the line and one from below: what
    is left of their distance from it, at most; infinite without a line."""
    line = _attracting_line(world, gamma, 1.0)
    if math.isnan(line):
        return math.inf
    w, b = np.ones(2), np.array([0.4, 1.3]) * line
    start = np.abs(b - line)
    for _ in range(500):
        gw, gb = world.gradient(w[:, None], b, gamma)
        length = np.hypot(gw[:, 0], gb)
        w, b = w - 2e-3 * gw[:, 0] / length, b - 2e-3 * gb / length
    ends = [_attracting_line(world, gamma, float(at)) for at in w]
    return float((np.abs(b - w * ends) / start).max())


def _draw_fields(gammas: list[float]) -> Any:
    figure, axes = empty_figure((14, 3.7), 1, len(gammas))
    for ax, gamma in zip(axes, gammas, strict=True):
        _draw_field(gamma, ax)
        ax.label_outer()
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label="log10 |gradient|")
    return figure


def _draw_field(gamma: float, ax: Any, extent: float = 2.0) -> None:
    """Streamlines of gradient descent over the size of the gradient (figure 3)."""
    from relunorm.dying.basins import MARK, draw_cone

    axis = np.linspace(-extent, extent, 161)
    w, b = np.meshgrid(axis, axis)
    dw, db = vector_field(w, b, gamma)
    size = np.log10(np.maximum(np.hypot(dw, db), 1e-9))
    ax.imshow(
        size, origin="lower", extent=(-extent, extent, -extent, extent), cmap="viridis",
        vmin=-5, vmax=0.5, aspect="equal",
    )  # fmt: skip
    ax.streamplot(axis, axis, dw, db, color="white", density=0.9, linewidth=0.5, arrowsize=0.6)
    draw_cone(ax, extent)
    ax.plot(gamma, 0.0, zorder=5, **MARK)
    ax.set(xlim=(-extent, extent), ylim=(-extent, extent), xlabel="w", ylabel="b")
    ax.set_title(f"$\\gamma$={gamma:g}", fontsize=9)
