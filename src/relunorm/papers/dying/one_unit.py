"""Seed 002's Section 5 and Appendix C: one ReLU unit, its cones, its loss and its gradients."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.dying.unit_loss import normal_pdf
from relunorm.papers.exhibit import Exhibit

if TYPE_CHECKING:
    from relunorm.papers.dying import Dying

claim, exhibit = words_of("dying")

Array = NDArray[np.float64]
#: Units that fire less often are called dead.
EPSILONS = (1e-2, 1e-3, 1e-4)


def unit(world: Dying) -> Exhibit:
    """200 random units of three inputs: firing shares sampled at 20,000 points; loss (its slopes by
    differences, at ten units) and gradients against quadrature in three dimensions; the gradient at
    20 optima and towards 20 saddle points, the loss on both sides of up to 60."""
    rng = world.rng
    w, b, goal, delta = random_units(rng, world.size(200, 200, 40))
    units = list(zip(w, b, goal, delta, strict=True))
    wanted = [gradient_by_quadrature(*one) for one in units]
    printed, corrected = np.max([_loss_errors(world, *one) for one in units[:10]], axis=0)
    own = [world.gradient(*one) for one in units]
    rotated = []
    for one, (gw, gb) in zip(units, wanted, strict=True):
        U = world.rotation(one[0], rng)
        first, second = _rotated_gradient(world, U, *one)
        rotated.append(max(np.abs(first - U @ gw).max(), abs(second - gb)))
    dead = _cone(world, -1.0, world.dead_below)
    linear = _cone(world, 1.0, world.linear_above)
    mirrored = all(world.linear_above(eps) == -world.dead_below(eps) for eps in EPSILONS)
    inside = "how often just inside over eps (eps 0.01, 0.001, 0.0001; more than eps just outside)"
    return exhibit(
        world.settings(),
        "unit",
        claim("(21)-(23) firing probability", _sampled(world, w, b)),
        claim("after (23): dead cone", dead[0], dead[1], inside=inside),
        claim(
            "after (23): linear cone", linear[0], linear[1] if mirrored else math.nan, inside=inside
        ),
        claim("(24) loss", float(printed), float(corrected)),
        claim("(25)-(26) gradients", max(_apart(*pair) for pair in zip(own, wanted, strict=True))),
        claim("(27)-(29) rotated gradients", float(max(rotated))),
        claim("Section 5: critical points", _critical(world)),
        claim("Section 5: saddle points", _saddles(world)),
        claim("Section 5: linear cone is affine", _linear_cone(world)),
        claim(
            "ours: the field is homogeneous",
            max(_apart_by(world, k, units, own) for k in (0.01, 0.5, 5.0, 300.0)),
        ),
    )


def appendix_c(world: Dying) -> Exhibit:
    """Random unitary U with U w = (0, ..., 0, |w|), three inputs, random gamma: 100 with w on the
    last axis, which has a rotated error along it (asked for), and 100 with w at an angle of 0.001
    to pi/2 to that axis."""
    rng = world.rng
    lemma1, lemma3, rotated, direct, across = ([] for _ in range(5))
    for w_last, b, delta in rng.normal(size=(world.size(100, 100, 20), 3)):
        gamma = rng.uniform(0.1, 2.0)
        w, goal, rho = along_last(w_last), along_last(gamma), np.sign(w_last)
        U = world.rotation(w, rng)
        # Without the lemmas' hypothesis they say nothing: the number is NaN then.
        met = 1.0 if np.abs((U @ (w - goal))[:-1]).max() <= ROUNDING else math.nan
        image, v = U @ goal, along_last(rng.normal())
        lemma1.append(met * max(np.abs(image[:-1]).max(), abs(abs(image[-1]) - gamma)))
        lemma3.append(met * max(np.abs(U @ v - rho * v).max(), np.abs(U.T @ v - rho * v).max()))
        a, c, h = w_last - gamma, b - delta, b / abs(w_last)
        cdf, pdf = float(world.firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
        closed = along_last(a * cdf + rho * (c - rho * a * h) * pdf), rho * a * pdf + c * cdf
        first, second = _rotated_gradient(world, U, w, b, goal, delta)
        rotated.append(met * _apart(closed, (U.T @ first, second)))
        direct.append(met * _apart(closed, gradient_by_quadrature(w, b, goal, delta)))
    for angle in np.geomspace(1e-3, np.pi / 2, world.size(100, 100, 20)):
        turn, gamma = rng.uniform(0, 2 * np.pi), rng.uniform(0.1, 2.0)
        side = np.sin(angle) * np.array([np.cos(turn), np.sin(turn), 0.0])
        w = rng.uniform(0.1, 3.0) * (side + along_last(np.cos(angle) * rng.choice([-1, 1])))
        error = world.rotation(w, rng) @ (w - along_last(gamma))
        across.append(abs(np.linalg.norm(error[:-1]) / (gamma * np.sin(angle)) - 1))
    return exhibit(
        world.settings(),
        "appendix_c",
        claim("(30)-(32) one weight", float(max(rotated))),
        claim("Lemma C.1", float(max(lemma1))),
        claim("Lemma C.2", float(max(across))),
        claim("Lemma C.3", float(max(lemma3))),
        claim("Proposition C.1", float(max(direct))),
    )


def random_units(rng: np.random.Generator, count: int) -> tuple[Array, Array, Array, Array]:
    return (
        rng.normal(size=(count, 3)),
        rng.normal(size=count),
        rng.normal(size=(count, 3)),
        rng.normal(size=count),
    )


def along_last(value: float) -> Array:
    return np.array([0.0, 0.0, value])


def active_points(w: Array, b: float) -> tuple[Array, Array]:
    """x (n, L) and weights with E[1{w.x + b > 0} g(x)] = weights @ g(x) for standard normal inputs
    and g of degree five at most: Gauss and Legendre along w from the edge on, Gauss and Hermite
    across."""
    length, inputs = float(np.linalg.norm(w)), len(w)
    basis = np.linalg.qr(np.column_stack([w / length, np.eye(inputs)]))[0]
    basis[:, 0] = w / length
    low = max(-b / length, -12.0)
    half = (max(low, 0.0) + 12.0 - low) / 2
    (nodes, weights), across = _rules()
    along = low + half * (nodes + 1)
    axes, masses = [along], [half * weights * normal_pdf(along)]
    axes += [across[0]] * (inputs - 1)
    masses += [across[1] / across[1].sum()] * (inputs - 1)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, inputs)
    grid = np.stack(np.meshgrid(*masses, indexing="ij"), axis=-1).reshape(-1, inputs)
    return points @ basis.T, grid.prod(axis=1)


@cache
def _rules() -> tuple[Any, Any]:
    """Nodes and weights along w and across."""
    return np.polynomial.legendre.leggauss(160), np.polynomial.hermite_e.hermegauss(3)


def gradient_by_quadrature(w: Array, b: float, goal: Array, delta: float) -> tuple[Array, float]:
    """(25) and (26)."""
    x, weights = active_points(w, b)
    error = weights * (x @ (w - goal) + b - delta)
    return error @ x, float(error.sum())


def _apart(first: Any, second: Any) -> float:
    """The largest difference of two gradients (dL/dw, dL/db)."""
    return float(max(np.abs(first[0] - second[0]).max(), abs(float(first[1]) - second[1])))


def _apart_by(world: Dying, k: float, units: list[Any], own: list[Any]) -> float:
    """How far the gradients of k times the units and targets are from k times the gradients."""
    gaps = []
    for (w, b, goal, delta), (gw, gb) in zip(units, own, strict=True):
        first, second = world.gradient(k * w, k * b, k * goal, k * delta)
        gaps.append(_apart((first / k, second / k), (gw, float(gb))))
    return max(gaps)


def _cone(world: Dying, side: float, edge: Any) -> tuple[float, float]:
    """How often a unit inside the cone with the printed edge, and with the given one, is what it
    should not be, over eps, at most; NaN if that is rarer than eps just outside, too."""
    found = []
    for sign in (-1.0, 1.0):
        inside, outside = (
            [
                float(world.firing_probability([-side], -side * (sign * edge(eps) + step))) / eps
                for eps in EPSILONS
            ]
            for step in (0.01 * side, -0.01 * side)
        )
        found.append(max(inside) if min(outside) > 1 else math.nan)
    return found[0], found[1]


def _sampled(world: Dying, w: Array, b: Array) -> float:
    x = world.rng.normal(size=(20_000, 3))
    share = np.array([(x @ unit > -bias).mean() for unit, bias in zip(w, b, strict=True)])
    p = world.firing_probability(w, b)
    return float((np.abs(share - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / len(x))).max())


def _loss_errors(
    world: Dying, w: Array, b: float, goal: Array, delta: float
) -> tuple[float, float]:
    """How far (24), and the package's loss, are from (10), and their slopes from (25)-(26)."""

    def printed(w: Array, b: float) -> float:
        x, weights = active_points(w, b)
        return float(weights @ (x @ (w - goal) + b - delta) ** 2) / 2

    def own(w: Array, b: float) -> float:
        return float(world.loss(w, b, goal, delta))

    x, weights = active_points(-w, -b)
    value = printed(w, b) + float(weights @ (x @ goal + delta) ** 2) / 2
    gw, gb = gradient_by_quadrature(w, b, goal, delta)
    step, worst = 1e-4, []
    for f in (printed, own):
        slopes = [f(w + step * e, b) - f(w - step * e, b) for e in np.eye(len(w))]
        slopes.append(f(w, b + step) - f(w, b - step))
        gaps = np.array(slopes) / (2 * step) - np.append(gw, gb)
        worst.append(max(abs(f(w, b) - value), float(np.abs(gaps).max())))
    return worst[0], worst[1]


def _rotated_gradient(
    world: Dying, U: Array, w: Array, b: float, goal: Array, delta: float
) -> tuple[Array, float]:
    """(27)-(29): U dL/dw and dL/db."""
    h, a, c = b / np.linalg.norm(w), U @ (w - goal), b - delta
    cdf, pdf = float(world.firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
    rotated = a * cdf
    rotated[-1] += (c - a[-1] * h) * pdf
    return rotated, float(a[-1] * pdf + c * cdf)


def _critical(world: Dying) -> float:
    """The largest gradient at optima and at points towards or on w = 0, b < 0."""
    w, b, goal, delta = random_units(world.rng, 20)
    below = -np.abs(b)
    towards = np.abs(b / 10 / np.linalg.norm(w, axis=1))[:, None] * w
    places = ((goal, delta), (towards, below), (np.zeros_like(w), below))
    found = [world.gradient(*at, goal, delta) for at in places]
    return float(max(max(np.abs(gw).max(), np.abs(gb).max()) for gw, gb in found))


def _saddles(world: Dying) -> float:
    """The largest of: the loss's changes from w = 0 towards Gamma, and its falls away from it."""
    rng, changes = world.rng, []
    for b in np.repeat([-0.3, -1.0, -2.0], 20):
        goal, d = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
        if d @ goal < 0.3:
            d = (d + goal) / np.linalg.norm(d + goal)
        if d @ goal < 0.3:
            continue  # nearly across: neither towards Gamma nor away from it
        here = float(world.loss(np.zeros(3), b, goal, 0.2))
        for h in (4, 5, 6):
            both = [float(world.loss(s * abs(b) / h * d, b, goal, 0.2)) for s in (1, -1)]
            changes += [both[0] - here, here - both[1]]
    return max(changes)


def left_at(h: Any) -> Any:
    """The largest relative difference of (27)-(29) from (17)-(18) where b/|w| = h."""
    from scipy.stats import norm

    return norm.cdf(-h) + (1 + np.hypot(1, h)) * norm.pdf(h)


def _linear_cone(world: Dying) -> float:
    w, _, goal, delta = random_units(world.rng, 200)
    h = world.rng.uniform(4, 7, 200)
    b = np.linalg.norm(w, axis=1) * h
    gw, gb = world.gradient(w, b, goal, delta)
    affine = np.column_stack([w - goal, b - delta])
    found = np.column_stack([gw, gb])
    gaps = np.linalg.norm(found - affine, axis=1) / np.linalg.norm(affine, axis=1)
    return float((gaps / left_at(h)).max())
