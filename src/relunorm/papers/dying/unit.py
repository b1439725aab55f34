"""Seed 002's Section 5 and Appendix C: one ReLU unit, its cones, its loss and its gradients."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from relunorm.dying.unit_loss import normal_pdf
from relunorm.papers.claim import Check, Claim
from relunorm.papers.dying.laws import ROUNDING, Dying
from relunorm.papers.exhibit import Exhibit, from_claims

Array = NDArray[np.float64]
#: A unit that fires less often is called dead.
EPSILON = 1e-3


def unit(world: Dying) -> Exhibit:
    """200 random units of three inputs: firing shares sampled at 20,000 points, loss and gradients
    against quadrature, differences and the rotated closed forms."""
    rng = world.rng
    w, b, goal, delta = random_units(rng, 200)
    inside = -world.dead_below(EPSILON) - 0.01, world.dead_below(EPSILON) - 0.01
    above = -world.linear_above(EPSILON) + 0.01, world.linear_above(EPSILON) + 0.01
    dead = [float(world.firing_probability([1.0], h)) for h in inside]
    off = [1 - float(world.firing_probability([1.0], h)) for h in above]
    printed, corrected = _loss_gradients(world)
    rotated = max(_rotated_error(world, *one) for one in zip(w, b, goal, delta, strict=True))
    field, scaled = (
        np.column_stack(world.gradient(k * w[:, :1], k * b, 0.7 * k, 0.2 * k)) for k in (1.0, 5.0)
    )
    return from_claims(
        "unit",
        "Section 5: one ReLU unit",
        (
            Claim(
                "(21)-(23) firing probability",
                "a unit fires with probability Phi(b/|w|)",
                Check("largest deviation in standard errors", _sampled(world, w, b), "<=", 5),
                basis="5 standard errors: the largest of 200 sampled shares",
            ),
            Claim(
                "after (23): dead cone",
                "b/|w| below -Phi^-1(eps) is dead (eps = 0.001)",
                Check("firing probability just inside the cone", dead[0], "<", EPSILON),
                "below Phi^-1(eps)",
                Check("firing probability just inside", dead[1], "<", EPSILON),
            ),
            Claim(
                "after (23): linear cone",
                "b/|w| above Phi^-1(eps) is linear",
                Check("probability of being off just inside the cone", off[0], "<", EPSILON),
                "above -Phi^-1(eps)",
                Check("probability of being off just inside", off[1], "<", EPSILON),
            ),
            Claim(
                "(24) loss",
                "the loss counts active inputs only",
                Check("largest difference of its slope from (26)", printed, "<=", 1e-6),
                "plus half the squared target where the unit is off; (25)-(26) are its gradient",
                Check("largest difference of its slope from (26)", corrected, "<=", 1e-6),
                basis="the accuracy of a central difference",
            ),
            Claim(
                "(25)-(26) gradients",
                "the gradients are E[1{active} (a.x + c) x] and E[1{active} (a.x + c)]",
                Check("largest difference from quadrature", _quadrature_error(world), "<=", 1e-6),
                basis="the accuracy of the quadrature",
            ),
            Claim(
                "(27)-(29) rotated gradients",
                "in coordinates with w along the last axis the gradients are sums of Phi(b/|w|) "
                "and phi(b/|w|)",
                Check("largest difference from the rotation-free form", rotated, "<=", ROUNDING),
            ),
            Claim(
                "Section 5: critical points",
                "the gradient vanishes at the optimum and on w = 0, b < 0",
                Check("largest gradient there", _critical(world), "<=", ROUNDING),
            ),
            Claim(
                "Section 5: saddle points",
                "the points with w = 0 and b < 0 are saddle points of the loss",
                Check(
                    "largest of its change towards Gamma, and its fall away from it",
                    _saddles(world),
                    "<",
                    0,
                ),
            ),
            Claim(
                "Section 5: linear cone is affine",
                "where b/|w| >= 4 the gradients are those of the affine model",
                Check("largest relative difference", _linear_cone(world), "<=", left_at(4.0)),
                basis="what (27)-(29) leave at the paper's 4: Phi(-4) + (1 + sqrt(17)) phi(4)",
            ),
            Claim(
                "ours: the field is homogeneous",
                "(in no paper) field(k theta, k gamma, k Delta) = k field(theta, gamma, Delta)",
                Check("largest difference", np.abs(scaled - 5 * field).max(), "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
    )


def appendix_c(world: Dying) -> Exhibit:
    """100 units whose weights lie along the last axis, and 100 whose weights do not, in rotated
    coordinates."""
    rng = world.rng
    goal = along_last(0.8)
    images, fixed, others, formula = [], [], [], []
    for w_last, b, delta in rng.normal(size=(100, 3)):
        w, rho = along_last(w_last), np.sign(w_last)
        U = world.rotation(w)
        image = U @ goal
        images.append(max(np.abs(image[:-1]).max(), abs(abs(image[-1]) - 0.8)))
        v = along_last(rng.normal())
        fixed.append(max(np.abs(U @ v - rho * v).max(), np.abs(U.T @ v - rho * v).max()))
        gw, gb = world.gradient(w, b, goal, delta)
        a, c, h = w_last - 0.8, b - delta, b / abs(w_last)
        cdf, pdf = float(world.firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
        others.append(np.abs(gw[:-1]).max())
        formula.append(abs(gw[-1] - (a * cdf + rho * (c - rho * a * h) * pdf)))
        formula.append(abs(float(gb) - (rho * a * pdf + c * cdf)))
    apart = [world.rotation(w) @ (w - goal) for w in rng.normal(size=(100, 3))]
    return from_claims(
        "appendix_c",
        "Appendix C: gradients of the last weight",
        (
            Claim(
                "(30)-(32) one weight",
                "with a rotated error along the last axis: closed forms of the gradients of w_L "
                "and b; the other weights do not move",
                Check("largest difference", max(*others, *formula), "<=", ROUNDING),
            ),
            Claim(
                "Lemma C.1",
                "if the rotated error lies along the last axis, U Gamma = (0, ..., 0, +-gamma)",
                Check("largest difference", max(images), "<=", ROUNDING),
            ),
            Claim(
                "Lemma C.2",
                "only a w along the last axis has a rotated error along it",
                Check(
                    "smallest part across, for w not along it",
                    min(np.abs(error[:-1]).max() for error in apart),
                    ">",
                    ROUNDING,
                ),
            ),
            Claim(
                "Lemma C.3",
                "if the rotated error lies along the last axis, U v = U' v = sign(w_L) v for every "
                "v on that axis",
                Check("largest difference", max(fixed), "<=", ROUNDING),
            ),
            Claim(
                "Proposition C.1",
                "if the rotated error lies along the last axis, dL/dw_i = 0 for the other weights, "
                "and (31)-(32) hold for w_L and b",
                Check("largest difference", max(*others, *formula), "<=", ROUNDING),
            ),
        ),
        settings=world.settings(),
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


def _sampled(world: Dying, w: Array, b: Array) -> float:
    x = world.rng.normal(size=(20_000, 3))
    share = np.array([(x @ unit > -bias).mean() for unit, bias in zip(w, b, strict=True)])
    p = world.firing_probability(w, b)
    return float((np.abs(share - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / len(x))).max())


def _nodes(w: float, b: float) -> tuple[Array, Array]:
    """x and weights with E[1{w x + b > 0} f(x)] = weights @ f(x), one standard normal input: the
    trapezoid rule from the kink on."""
    edge = -b / w
    x = np.linspace(edge, edge + np.sign(w) * 24, 200_001)
    weights = normal_pdf(x) * abs(x[1] - x[0])
    weights[[0, -1]] /= 2
    return x, weights


def _printed_loss(w: float, b: float, gamma: float, delta: float) -> float:
    """(24): active inputs only."""
    x, weights = _nodes(w, b)
    return float(weights @ ((w - gamma) * x + b - delta) ** 2) / 2


def _full_loss(world: Dying, w: float, b: float, gamma: float, delta: float) -> float:
    return float(world.loss([w], b, [gamma], delta))


def _loss_gradients(world: Dying) -> tuple[float, float]:
    """How far dL/db of (24) as printed, and with the lacking term, is from (26)."""
    step, worst = 1e-4, [0.0, 0.0]
    for w, b, gamma, delta in world.rng.normal(size=(10, 4)):
        x, weights = _nodes(w, b)
        wanted = float(weights @ ((w - gamma) * x + b - delta))
        for k, f in enumerate((_printed_loss, partial(_full_loss, world))):
            slope = (f(w, b + step, gamma, delta) - f(w, b - step, gamma, delta)) / (2 * step)
            worst[k] = max(worst[k], abs(slope - wanted))
    return worst[0], worst[1]


def _quadrature_error(world: Dying) -> float:
    worst = 0.0
    for w, b, gamma, delta in world.rng.normal(size=(10, 4)):
        gw, gb = world.gradient([w], b, [gamma], delta)
        x, weights = _nodes(w, b)
        error = weights * ((w - gamma) * x + b - delta)
        worst = max(worst, abs(error @ x - float(gw[0])), abs(error.sum() - float(gb)))
    return worst


def _rotated_error(world: Dying, w: Array, b: float, goal: Array, delta: float) -> float:
    """(27)-(29), in rotated coordinates, against the rotation-free gradient."""
    U, h = world.rotation(w), b / np.linalg.norm(w)
    a, c = U @ (w - goal), b - delta
    cdf, pdf = float(world.firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
    rotated = a * cdf
    rotated[-1] += (c - a[-1] * h) * pdf
    gw, gb = world.gradient(w, b, goal, delta)
    return float(max(np.abs(U.T @ rotated - gw).max(), abs(a[-1] * pdf + c * cdf - gb)))


def _critical(world: Dying) -> float:
    goal = np.array([0.6, -0.8])
    at = [(goal, 0.3), *((1e-2 * np.array([s, 1.0]), -1.0) for s in (-1.0, 0.0, 1.0))]
    found = [world.gradient(w, b, goal, 0.3) for w, b in at]
    return float(max(max(np.abs(gw).max(), abs(float(gb))) for gw, gb in found))


def _saddles(world: Dying) -> float:
    """The larger of: the loss's change from w = 0 towards Gamma, and its fall away from it."""
    changes = []
    for b in (-0.3, -1.0, -2.0):
        at = [float(world.loss([k * abs(b) / 4], b, [1.0], 0.2)) for k in (1.0, 1e-9, -1.0)]
        changes += [at[0] - at[1], at[1] - at[2]]
    return max(changes)


def left_at(h: float) -> float:
    """The largest relative difference of (27)-(29) from (17)-(18) where b/|w| = h."""
    from scipy.stats import norm

    return float(norm.cdf(-h) + (1 + np.hypot(1, h)) * norm.pdf(h))


def _linear_cone(world: Dying) -> float:
    w, _, goal, delta = random_units(world.rng, 200)
    b = np.linalg.norm(w, axis=1) * world.rng.uniform(4, 6, 200)
    gw, gb = world.gradient(w, b, goal, delta)
    affine = np.column_stack([w - goal, b - delta])
    found = np.column_stack([gw, gb])
    return float((np.linalg.norm(found - affine, axis=1) / np.linalg.norm(affine, axis=1)).max())
