"""Figures 3 to 5 of seed 002: where one unit goes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers.claim import Check, Claim
from relunorm.papers.dying.laws import Dying
from relunorm.papers.dying.unit import left_at
from relunorm.papers.exhibit import Exhibit, costs, empty_figure

#: The paper: in practice the limits "occur already at" b/|w| = -4, which it calls the cone.
SURFACE = -4.0
#: Weights at which the attracting line is located.
LINE = (0.2, 0.5, 0.8)
#: Half sides of the squares of starts, which the paper does not print: a verdict asks all of them.
WINDOWS = (0.2, 0.5, 1.0, 2.0)
#: How that is said.
EVERY = "the paper prints no window: every square [-r, r]^2 with r = 0.2, 0.5, 1 and 2"


@costs(3)
def figure3(world: Dying) -> Exhibit:
    """The vector field of one unit at four scales; where starts on a grid over [-2, 2]^2 end without
    momentum, by quadrants; the loss's minimum for Delta = 0 and 0.1; and the line in the lower right
    quadrant at gamma 0.1, 0.01 and 0.001, with two paths towards it."""
    rows = []
    for gamma in world.size((1.0, 0.1, 0.01, 0.001), (1.0, 0.1, 0.01, 0.001), (1.0, 0.001)):
        found = _basin(world, gamma, 0.0)
        half = found.axis < 0
        lower_left = found.classes[np.ix_(half, half)]
        # an update moves w by about eta gamma at most: starts nearer to w = 0 may jump across it
        away = found.classes[np.ix_(half, found.axis < -found.eta * gamma)]
        shares = [100 * float((part == 1).mean()) for part in (lower_left, away)]
        sides = [_sides(found, window)[1] for window in WINDOWS]
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
            Claim(
                "Figure 3",
                "at gamma = 0.001 most parameters from the right side end in the dead cone",
                Check("percent of the starts with w > 0 that die, least", table[-1, 2], ">", 50),
                basis=f"most: more than half; {EVERY}",
            ),
            Claim(
                "Figure 3: gradients in the dead cone",
                "gradients tend to zero there, and towards w = 0 in the lower half (the caption)",
                Check(
                    "largest norm over that of the affine model and over what (27)-(29) leave, "
                    "b/|w| = -4, -6, -8, every gamma",
                    table[:, 3].max(),
                    "<=",
                    1,
                ),
                basis="(27)-(29) leave Phi(-h) + (1 + sqrt(1 + h^2)) phi(h) at most at b/|w| = -h: "
                "7e-4 at the paper's -4, 5e-14 at -8",
            ),
            Claim(
                "Section 5: the optimum ends between the cones",
                "as gamma falls the optimum nears the origin and lies between the two cones",
                Check(
                    "largest |b|/|w| of the loss's minimum at gamma 0.001, Delta 0 and 0.1",
                    max(best[0.0][-1][1], best[0.1][-1][1]) if nearer else math.nan,
                    "<",
                    -SURFACE,
                ),
                "for Delta = 0 only, and then at every gamma; else it ends in one of the cones",
                Check(
                    "largest |b|/|w| of the minimum, Delta = 0, gamma 1 to 0.001",
                    max(ratio for _, ratio in best[0.0]) if nearer else math.nan,
                    "<",
                    -SURFACE,
                ),
                basis="the paper's 4 for the cones' surfaces",
            ),
            Claim(
                "Section 5: an attracting line",
                "a line in the lower right quadrant attracts; it moves towards the dead cone as "
                "gamma falls and ends inside it",
                Check(
                    f"largest b/|w| of the line at w = 0.2, 0.5, 0.8, gamma 0.001 (at least "
                    f"{lines[0].min():.3g} at 0.1; paths from both sides are left {pulled:.2g} "
                    "of their distance)",
                    lines[-1].max() if moved and pulled < 0.5 else math.nan,
                    "<",
                    SURFACE,
                ),
                basis="the paper's -4 for the cone's surface: outside at 0.1, inside at 0.001; "
                "attracts: from both sides, at least half of the way",
            ),
            Claim(
                "Section 5: lower left quadrant",
                "it evolves to the linear cone and then to the ground truth",
                Check("percent of it that dies, least over gamma", table[:, 1].min(), "<", 50),
                "all of it dies without momentum that a single update does not carry across w = 0",
                Check("percent of it with w < -eta gamma that dies", table[:, 4].min(), "=", 100),
                basis="it evolves so: at least half of it; all: all of it",
            ),
        ),
    )


@costs(2)
def figure4(world: Dying) -> Exhibit:
    """Starts on a grid over [-2, 2]^2 without momentum, at four scales: where they end."""
    pairs = [(gamma, 0.0) for gamma in (1.0, 0.1, 0.01, 0.001)]
    found, rows, picture = _maps(world, pairs)
    sides = [_sides(one) for one in found]
    small = [_sides(one, window) for one in found[2:] for window in WINDOWS]
    surface = [_stops(one)[0] for one in found]
    shares = [one.optimum for one in found]
    every = [[_optimum_share(one, window) for window in WINDOWS] for one in found]
    return Exhibit(
        "figure4",
        "Figure 4: basins without momentum",
        COLUMNS,
        rows,
        f"Without momentum the optimum's share falls from {shares[0]:.0f}% to {shares[-1]:.0f}%, "
        "and both sides die. The window [-2, 2]^2 and the four scales are ours; a start that stops "
        "within gamma / 2 of the optimum has reached it.",
        picture,
        world.settings(grid=len(found[0].axis), eta=0.1),
        (
            Claim(
                "Figure 4: the region switches sign",
                "the region that dies lies at w < 0 for gamma = 1 and at w > 0 for small gamma",
                Check(
                    f"percent dead at w < 0, gamma 0.01 and 0.001, least ({sides[0][0]:.0f} at "
                    "gamma 1)",
                    min(left for left, _ in small),
                    "<",
                    50,
                ),
                "it spreads from w < 0 to both sides",
                Check(
                    f"percent dead of either side, gamma 0.001, least ({sides[0][1]:.0f} at w > 0, "
                    "gamma 1)",
                    min(map(min, small[len(WINDOWS) :]))
                    if sides[0][1] < 50 < sides[0][0]
                    else math.nan,
                    ">",
                    50,
                ),
                basis=f"lies at: more than half of that side dies, and less than half elsewhere; {EVERY}",
            ),
            Claim(
                "Figure 4: the majority converges",
                "without momentum most starts reach the optimum, small gamma alone does not prevent "
                "it",
                Check("percent reaching it at gamma 0.001, at most", max(every[3]), ">", 50),
                "at gamma 1 and 0.1, not at 0.001",
                Check(
                    "percent reaching it at gamma 1 and 0.1, least (a minority at 0.001)",
                    min(*every[0], *every[1]) if max(every[3]) < 50 else math.nan,
                    ">",
                    50,
                ),
                basis=f"the majority: more than half; 0.001: the paper's small scale; {EVERY}",
            ),
            Claim(
                "Section 5: starts in the linear cone",
                "without momentum starts in and near the linear cone approach the ground truth",
                Check(
                    "smallest share of the starts with b/|w| > 3 that reaches it, percent, every "
                    "gamma",
                    min(_from_linear_cone(one, 0, 3.0) for one in found),
                    "=",
                    100,
                ),
                basis="the paper's 4 for the cone, 3 for near it; all of them",
            ),
            Claim(
                "Section 5: dead units stop on the cone's surface",
                "units that die stop on the surface of the dead cone, not in its interior",
                Check(
                    "percent of those from outside that stop within 1 of b/|w| = -4, least",
                    min(surface),
                    ">",
                    50,
                ),
                basis="the paper's -4 for the surface, within 1 for on it; more than half",
            ),
        ),
    )


@costs(6)
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
    late = [change for beta, change in zip(betas, changed, strict=True) if beta > 0.7]
    inside = [_stops(one)[1] for one in small]
    large = [at[1.0, beta].optimum for beta in betas]
    return Exhibit(
        "figure5",
        "Figure 5: basins with momentum",
        COLUMNS,
        rows,
        "The caption should say 'with momentum'. At gamma = 0.1, beta = 0.99 some starts still "
        "move when time is up. A start stops as in the paper, at an update below 1e-6, if the "
        "gradient is below 1e-3 too: momentum has turning points.",
        picture,
        world.settings(grid=len(found[0].axis), eta=0.1),
        (
            Claim(
                "Figure 5",
                "at gamma = 0.001 more momentum leads to more dying, until few starts are left",
                Check(
                    f"largest fall of the dead share with beta, percent (it rises from "
                    f"{dead[0]:.0f} to {dead[-1]:.0f})",
                    max(a - b for a, b in pairwise(dead))
                    if few[-1] < 10 and dead[-1] > dead[0]
                    else math.nan,
                    "<=",
                    0,
                ),
                basis=f"few: less than a tenth of them at beta = 0.99; {EVERY}",
            ),
            Claim(
                "Figure 5, caption",
                "the figure, in which only small regions reach the optimum, is without momentum",
                Check("percent reaching it without momentum, most", few[0], "<", 10),
                "with momentum, as the text says",
                Check("percent reaching it at beta = 0.99, most", few[-1], "<", 10),
                basis=f"small regions: less than a tenth; {EVERY}",
            ),
            Claim(
                "Figure 5: no change up to beta 0.7",
                "up to beta = 0.7 the results are those without momentum, beyond it they are worse",
                Check(
                    f"percent of the starts that end otherwise, gamma 0.001, at most (at least "
                    f"{min(late):.1f} beyond)",
                    max(early) if min(late) > 5 else math.nan,
                    "<=",
                    5,
                ),
                basis="the same: less than a twentieth of the starts end otherwise, our reading",
            ),
            Claim(
                "Section 5: from the linear cone into the dead one",
                "with momentum, starts in the linear cone can oscillate into the dead cone",
                Check(
                    "percent of the starts with b/|w| > 4 that die, gamma 0.001, beta 0.99 "
                    "(none without momentum)",
                    _from_linear_cone(small[-1], 1)
                    if _from_linear_cone(small[0], 1) == 0
                    else math.nan,
                    ">",
                    0,
                ),
            ),
            Claim(
                "Figure 5: the interior fills",
                "with momentum more and more units stop in the interior of the dead cone",
                Check(
                    f"smallest rise with beta of the percent stopping beyond b/|w| = -5 from "
                    f"outside ({inside[0]:.2g} to {inside[-1]:.2g})",
                    min(b - a for a, b in pairwise(inside)),
                    ">",
                    0,
                ),
                basis="the interior: deeper than the paper's -4 by more than 1",
            ),
            Claim(
                "ours: momentum at gamma 1",
                "(in no paper) at gamma = 1 momentum helps",
                Check(
                    "smallest rise of the optimum's share over beta = 0, percent",
                    min(large[1:]) - large[0],
                    ">",
                    0,
                ),
            ),
        ),
    )


COLUMNS = (
    "gamma", "beta", "optimum %", "dead %", "other %", "dead % at w < 0", "dead % at w > 0",
    "stop at the surface %", "stop in the interior %",
)  # fmt: skip


def _basin(world: Dying, gamma: float, beta: float) -> Any:
    """Where starts over [-2, 2]^2 end; half of gamma from the optimum counts as there, since at
    gamma = 0.001 the paper's tolerance of 1e-6 stops paths a tenth of gamma before it."""
    return world.basin(gamma, beta, grid=world.size(101, 201, 41), near=0.5)


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


def _from_linear_cone(found: Any, kind: int, above: float = -SURFACE) -> float:
    """Percent of the starts with b/|w| above the given number that end so: 0 at the optimum, 1
    dead."""
    w, b = np.meshgrid(found.axis, found.axis)
    return 100 * float((found.classes[b > above * np.abs(w)] == kind).mean())


def _window(found: Any, half: float) -> Any:
    """Which coordinates of the grid are in [-half, half]."""
    return np.abs(found.axis) <= half + 1e-9


def _optimum_share(found: Any, half: float) -> float:
    """Percent of the starts in the square [-half, half]^2 that reach the optimum."""
    inside = _window(found, half)
    return 100 * float((found.classes[np.ix_(inside, inside)] == 0).mean())


def _sides(found: Any, half: float = 2.0) -> tuple[float, float]:
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
    found = [_basin(world, gamma, beta) for gamma, beta in pairs]
    rows = []
    for one in found:
        shares = (one.optimum, one.dead, one.other, *_sides(one))
        rows.append((one.gamma, one.beta, *shares, *_stops(one)))
    return found, tuple(rows), None if world.tiny else _draw_maps(found)


def _draw_maps(found: list[Any]) -> Any:
    from relunorm.dying.plots import basin_legend, plot_basin

    columns = min(len(found), 7 if len(found) > 4 else 4)
    lines = -(-len(found) // columns)
    # Square panels must find room for their titles: the layout reserves none for them by itself.
    figure, axes = empty_figure((3.2 * columns, 3.7 * lines + 0.5), lines, columns)
    for ax, one in zip(axes, found, strict=False):
        plot_basin(one, ax)
        ax.label_outer()
    basin_legend(figure)
    return figure


def _draw_fields(gammas: list[float]) -> Any:
    from relunorm.dying.plots import field_bar, plot_field

    figure, axes = empty_figure((14, 3.7), 1, len(gammas))
    for ax, gamma in zip(axes, gammas, strict=True):
        plot_field(gamma, ax)
        ax.label_outer()
    field_bar(figure, axes)
    return figure
