"""Figures 4 and 5 of seed 002: where the starts of one unit end."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import Check
from relunorm.papers.dying.laws import Dying
from relunorm.papers.exhibit import Exhibit, costs, empty_figure

claim = claims_of("dying")

#: The paper: in practice the limits "occur already at" b/|w| = -4, which it calls the cone.
SURFACE = -4.0
#: Half sides of the squares of starts, which the paper does not print: a verdict asks all of them.
WINDOWS = (0.2, 0.5, 1.0, 2.0)
#: How that is said.
EVERY = "the paper prints no window: every square [-r, r]^2 with r = 0.2, 0.5, 1 and 2"


@costs(2)
def figure4(world: Dying) -> Exhibit:
    """Starts on a grid over [-2, 2]^2 without momentum, at four scales: where they end."""
    pairs = [(gamma, 0.0) for gamma in (1.0, 0.1, 0.01, 0.001)]
    found, rows, picture = _maps(world, pairs)
    sides = [sides_dead(one) for one in found]
    small = [sides_dead(one, window) for one in found[2:] for window in WINDOWS]
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
            claim(
                "Figure 4: the region switches sign",
                Check(
                    f"percent dead at w < 0, gamma 0.01 and 0.001, least ({sides[0][0]:.0f} at "
                    "gamma 1)",
                    min(left for left, _ in small),
                    "<",
                    50,
                ),
                Check(
                    f"percent dead of either side, gamma 0.001, least ({sides[0][1]:.0f} at w > 0, "
                    "gamma 1)",
                    min(map(min, small[len(WINDOWS) :]))
                    if sides[0][1] < 50 < sides[0][0]
                    else math.nan,
                    ">",
                    50,
                ),
                basis=(
                    f"lies at: more than half of that side dies, less than half elsewhere; {EVERY}"
                ),
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
    late = [share - dead[0] for beta, share in zip(betas, dead, strict=True) if beta > 0.7]
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
            claim(
                "Figure 5",
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
            claim("Figure 5, caption", few[0], few[-1]),
            claim(
                "Figure 5: no change up to beta 0.7",
                Check(
                    f"percent of the starts that end otherwise, gamma 0.001, at most (beyond, at "
                    f"least {min(late):.1f} percent more die)",
                    max(early) if min(late) > 5 else math.nan,
                    "<=",
                    5,
                ),
            ),
            claim(
                "Section 5: from the linear cone into the dead one",
                (
                    _from_linear_cone(small[-1], 1)
                    if _from_linear_cone(small[0], 1) == 0
                    else math.nan
                ),
            ),
            claim(
                "Figure 5: the interior fills",
                Check(
                    f"smallest rise with beta of the percent stopping beyond b/|w| = -5 from "
                    f"outside ({inside[0]:.2g} to {inside[-1]:.2g})",
                    min(b - a for a, b in pairwise(inside)),
                    ">",
                    0,
                ),
            ),
            claim("ours: momentum at gamma 1", min(large[1:]) - large[0]),
        ),
    )


COLUMNS = (
    "gamma", "beta", "optimum %", "dead %", "other %", "dead % at w < 0", "dead % at w > 0",
    "stop at the surface %", "stop in the interior %",
)  # fmt: skip


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
