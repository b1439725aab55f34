"""Figures 3 to 5 of seed 002: the field of one unit, and where its starts end."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.dying.one_unit import left_at
from relunorm.papers.dying.unit_loss import vector_field
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.dying import Dying

claim, exhibit = words_of("dying")

#: The paper: in practice the limits "occur already at" b/|w| = -4, which it calls the cone.
SURFACE = -4.0
#: Half sides of the squares of starts, which the paper does not print: a verdict asks all of them.
WINDOWS = (0.2, 0.5, 1.0, 2.0)


def figure4(world: Dying) -> Exhibit:
    """Starts on a grid over [-2, 2]^2 without momentum, at four scales: where they end."""
    pairs = [(gamma, 0.0) for gamma in (1.0, 0.1, 0.01, 0.001)]
    found, rows, picture = _maps(world, pairs)
    sides = sides_dead(found[0])
    small = [sides_dead(one, window) for one in found[2:] for window in WINDOWS]
    surface = [_stops(one)[0] for one in found]
    shares = [one.optimum for one in found]
    every = [[_optimum_share(one, window) for window in WINDOWS] for one in found]
    return exhibit(
        world.settings(grid=len(found[0].axis), eta=0.1),
        "figure4",
        claim(
            "Figure 4: the region switches sign",
            min(left for left, _ in small),
            min(map(min, small[len(WINDOWS) :])) if sides[1] < 50 < sides[0] else math.nan,
            sides=sides,
        ),
        claim(
            "Figure 4: the majority converges",
            max(every[3]),
            min(*every[0], *every[1]) if max(every[3]) < 50 else math.nan,
        ),
        claim(
            "Section 5: starts in the linear cone",
            min(_from_linear_cone(one, 0, 3.0) for one in found),
        ),
        claim("Section 5: dead units stop on the cone's surface", min(surface)),
        rows=rows,
        note=f"Without momentum the optimum's share falls from {shares[0]:.0f}% to {shares[-1]:.0f}"
        "%, and both sides die. The window [-2, 2]^2 and the four scales are ours; a start that "
        "stops within gamma / 2 of the optimum has reached it.",
        figure=picture,
    )


def figure5(world: Dying) -> Exhibit:
    """The same starts with momentum, beta from 0.5 to 0.99, at small and at large scale."""
    betas = (0.0, 0.7, 0.99) if world.tiny else (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    gammas = world.size((1.0, 0.001), (1.0, 0.1, 0.01, 0.001))
    pairs = [(gamma, beta) for gamma in gammas for beta in betas]
    found, rows, picture = _maps(world, pairs)
    at = dict(zip(pairs, found, strict=True))
    small = [at[0.001, beta] for beta in betas]
    dead = [100 * float((one.classes == 1).mean()) for one in small]
    few = [max(_optimum_share(one, window) for window in WINDOWS) for one in small]
    changed = [100 * float((one.classes != small[0].classes).mean()) for one in small]
    early = [change for beta, change in zip(betas, changed, strict=True) if beta <= 0.7]
    late = [share - dead[0] for beta, share in zip(betas, dead, strict=True) if beta > 0.7]
    inside = [_stops(one)[1] for one in small]
    large = [at[1.0, beta].optimum for beta in betas]
    return exhibit(
        world.settings(grid=len(found[0].axis), eta=0.1),
        "figure5",
        claim(
            "Figure 5",
            max(a - b for a, b in pairwise(dead))
            if few[-1] < 10 and dead[-1] > dead[0]
            else math.nan,
            first=dead[0],
            last=dead[-1],
        ),
        claim("Figure 5, caption", few[0], few[-1]),
        claim(
            "Figure 5: no change up to beta 0.7",
            max(early) if min(late) > 5 else math.nan,
            late=min(late),
        ),
        claim(
            "Section 5: from the linear cone into the dead one",
            (_from_linear_cone(small[-1], 1) if _from_linear_cone(small[0], 1) == 0 else math.nan),
        ),
        claim(
            "Figure 5: the interior fills",
            min(b - a for a, b in pairwise(inside)),
            first=inside[0],
            last=inside[-1],
        ),
        claim("ours: momentum at gamma 1", min(large[1:]) - large[0]),
        rows=rows,
        figure=picture,
    )


def starts(world: Dying, gamma: float, beta: float) -> Any:
    """Where starts over [-2, 2]^2 end; half of gamma from the optimum counts as there, since at
    gamma = 0.001 the paper's tolerance of 1e-6 stops paths a tenth of gamma before it."""
    return world.basin(gamma, beta, grid=world.size(101, 201, 41), near=0.5)


def _from_linear_cone(found: Any, kind: int, above: float = -SURFACE) -> float:
    """Percent of the starts with b/|w| above the given number that end so: 0 at the optimum, 1
    stuck in the dead cone."""
    w, b = np.meshgrid(found.axis, found.axis)
    ends = found.classes == kind
    if kind == 1:
        ends &= found.b < SURFACE * np.abs(found.w)
    return 100 * float(ends[b > above * np.abs(w)].mean())


def _window(found: Any, half: float) -> Any:
    """Which coordinates of the grid are in [-half, half]."""
    return np.abs(found.axis) <= half + 1e-9


def _optimum_share(found: Any, half: float) -> float:
    """Percent of the starts in the square [-half, half]^2 that reach the optimum."""
    inside = _window(found, half)
    return 100 * float((found.classes[np.ix_(inside, inside)] == 0).mean())


def sides_dead(found: Any, half: float = 2.0) -> tuple[float, float]:
    """Percent dead at w < 0 and at w > 0, of the starts in the square [-half, half]^2."""
    inside, dead = _window(found, half), found.classes == 1
    sides = (found.axis < 0, found.axis > 0)
    left, right = (100 * float(dead[np.ix_(inside, inside & side)].mean()) for side in sides)
    return left, right


def _stops(found: Any) -> tuple[float, float]:
    """Of the starts outside the dead cone that died: percent at its surface, and deeper."""
    w, b = np.meshgrid(found.axis, found.axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        outside, ratio = b / np.abs(w) > SURFACE, found.b / np.abs(found.w)
    ends: NDArray[np.float64] = ratio[(found.classes == 1) & outside]
    if not len(ends):
        return math.nan, math.nan
    near, deep = np.abs(ends - SURFACE) <= 1, ends < SURFACE - 1
    return 100 * float(near.mean()), 100 * float(deep.mean())


def _maps(
    world: Dying, pairs: list[tuple[float, float]]
) -> tuple[list[Any], tuple[tuple[Any, ...], ...], Any]:
    found = [starts(world, gamma, beta) for gamma, beta in pairs]
    rows = []
    for one in found:
        shares = (one.optimum, one.dead, one.other, *sides_dead(one))
        rows.append((one.gamma, one.beta, *shares, *_stops(one)))
    return found, tuple(rows), None if world.tiny else _draw_maps(found)


def _draw_maps(found: list[Any]) -> Any:
    from relunorm.dying.basins import basin_legend, plot_basin

    columns = min(len(found), 7 if len(found) > 4 else 4)
    lines = -(-len(found) // columns)
    # Square panels must find room for their titles: the layout reserves none for them by itself.
    figure, axes = empty_figure((3.2 * columns, 3.7 * lines + 0.5), lines, columns)
    for ax, one in zip(axes, found, strict=False):
        plot_basin(one, ax)
        ax.label_outer()
    basin_legend(figure)
    return figure


#: Weights at which the attracting line is located.
LINE = (0.2, 0.5, 0.8)


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
    return exhibit(
        world.settings(),
        "figure3",
        claim("Figure 3", table[-1, 2]),
        claim("Figure 3: gradients in the dead cone", table[:, 3].max()),
        claim(
            "Section 5: the optimum ends between the cones",
            max(best[0.0][-1][1], best[0.1][-1][1]) if nearer else math.nan,
            max(ratio for _, ratio in best[0.0]) if nearer else math.nan,
        ),
        claim(
            "Section 5: an attracting line",
            lines[-1].max() if moved and pulled < 0.5 else math.nan,
            least=lines[0].min(),
            pulled=pulled,
            surface=SURFACE,
        ),
        claim("Section 5: lower left quadrant", table[:, 1].min(), table[:, 4].min()),
        rows=rows,
        figure=None if world.tiny else _draw_fields([row[0] for row in rows]),
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
    """Streamlines of gradient descent over the size of the gradient (figure 3)."""
    from relunorm.dying.basins import MARK, draw_cone

    figure, axes = empty_figure((14, 3.7), 1, len(gammas))
    axis = np.linspace(-2.0, 2.0, 161)
    w, b = np.meshgrid(axis, axis)
    for ax, gamma in zip(axes, gammas, strict=True):
        dw, db = vector_field(w, b, gamma)
        size = np.log10(np.maximum(np.hypot(dw, db), 1e-9))
        ax.imshow(
            size, origin="lower", extent=(-2, 2, -2, 2), cmap="viridis", vmin=-5, vmax=0.5,
            aspect="equal",
        )  # fmt: skip
        ax.streamplot(axis, axis, dw, db, color="white", density=0.9, linewidth=0.5, arrowsize=0.6)
        draw_cone(ax, 2.0)
        ax.plot(gamma, 0.0, zorder=5, **MARK)
        ax.set(xlim=(-2, 2), ylim=(-2, 2), xlabel="w", ylabel="b")
        ax.set_title(f"$\\gamma$={gamma:g}", fontsize=9)
        ax.label_outer()
    figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label="log10 |gradient|")
    return figure
