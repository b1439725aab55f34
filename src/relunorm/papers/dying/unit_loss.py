"""Expected loss and gradients of one ReLU unit on Gaussian inputs, in closed form.

With z = w.x + b, y = Gamma.x + Delta and x ~ N(0, I):

    surrogate   L = E (relu(z) - y)^2 / 2         (seed 002, eq. 24 with the term it lacks)
    rectified   L = E (relu(z) - relu(y))^2 / 2   (seed 002, eq. 10 with eq. 5)

No rotation is needed: everything depends on |w|, h = b / |w| and the projection u.Gamma with
u = w / |w|. Exact up to rounding. See docs/errata.md for what the seed prints differently.
`trajectory` follows units down that gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, owens_t

from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError

Target = Literal["surrogate", "rectified"]
Array = NDArray[np.float64]

#: Beyond this many deviations phi and Phi are 0 or 1 in float64; clipping keeps inf * 0 away.
FAR = 40.0


class _Unit(NamedTuple):
    """One or many units, broadcast against their targets."""

    w: Array  # (..., d)
    b: Array  # (...)
    target: Array  # Gamma, (..., d)
    delta: Array  # (...)
    length: Array  # |w|
    u: Array  # w / |w|; 0 where w = 0
    h: Array  # b / |w|, clipped to +-FAR
    p: Array  # u.Gamma
    cdf: Array  # Phi(h)
    pdf: Array  # phi(h)


def normal_pdf(x: Array) -> Array:
    """The standard normal density."""
    return np.exp(-0.5 * np.square(x)) * 0.3989422804014327


def loss(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike,
    delta: ArrayLike = 0.0,
    target: Target = "surrogate",
) -> Array:
    """Expected loss of units (w, b) against the target Gamma.x + Delta, rectified or not.

    Args:
        w: shape (..., d). b: shape (...).
        gamma: the vector Gamma, shape (..., d); a scalar means d = 1.
        delta: Delta, shape (...).
        target: ``surrogate`` (the linear target) or ``rectified`` (its positive part).

    >>> round(float(loss([1.0, 2.0], 0.5, [1.0, 2.0], 0.5, target="rectified")), 12)
    0.0
    """
    q = _unit(w, b, gamma, delta)
    if _kind(target) == "surrogate":
        across = np.square(q.target).sum(-1) - q.p**2
        active = _second_moment(q, (q.length - q.p), q.b - q.delta, _across(q))
        inactive = (across + q.p**2 + q.delta**2) - _second_moment(q, q.p, q.delta, across)
        return 0.5 * (active + inactive)
    size = np.linalg.norm(q.target, axis=-1)
    own = _square_mean(q.length, q.b) + _square_mean(size, q.delta)
    return np.maximum(0.5 * own - _cross(q, size), 0.0)


def gradient(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike,
    delta: ArrayLike = 0.0,
    target: Target = "surrogate",
) -> tuple[Array, Array]:
    """dL/dw and dL/db of `loss`.

    Surrogate: dL/dw = (w - Gamma) Phi(h) + ((u.Gamma) h - Delta) phi(h) u and
    dL/db = (|w| - u.Gamma) phi(h) + (b - Delta) Phi(h), equal to seed 002 (27)-(29).
    Rectified (Stein's lemma): dL/dw = w Phi(h) - Gamma P(z>0, y>0) - u phi(h) E[relu(y) | z=0] and
    dL/db = E relu(z) - E[1{z>0} relu(y)].

    >>> gw, gb = gradient([0.0, -1.0], -60.0, [1.0, 1.0])  # deep in the dead cone
    >>> float(abs(gw).max()), float(gb)
    (0.0, 0.0)
    """
    q = _unit(w, b, gamma, delta)
    if _kind(target) == "surrogate":
        along = (q.p * q.h - q.delta) * q.pdf
        gw = (q.w - q.target) * q.cdf[..., None] + along[..., None] * q.u
        return gw, (q.length - q.p) * q.pdf + (q.b - q.delta) * q.cdf
    size = np.linalg.norm(q.target, axis=-1)
    both, first = _overlap(q, size)
    at_edge = q.pdf * _edge_mean(q, size)
    gw = q.w * q.cdf[..., None] - q.target * both[..., None] - at_edge[..., None] * q.u
    return gw, q.length * q.pdf + q.b * q.cdf - first


def bivariate_cdf(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> Array:
    """P(X < h, Y < k) for standard normals of correlation rho, by Owen's T function (Owen 1956).

    >>> float(bivariate_cdf(0.0, 0.0, 0.5))  # 1/4 + asin(rho) / (2 pi)
    0.33333333333333337
    """
    h, k, rho = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (h, k, rho)))
    s = np.sqrt(np.maximum((1 - rho) * (1 + rho), 0.0))
    ph, pk = ndtr(h), ndtr(k)
    with np.errstate(divide="ignore", invalid="ignore"):
        th = owens_t(h, (k - rho * h) / (h * s))
        tk = owens_t(k, (h - rho * k) / (k * s))
    # At h = 0 Owen's T is atan(a) / (2 pi) with a = +-inf by the sign of k, and 0 when k = 0 too.
    th = np.where(h == 0, 0.25 * np.sign(k), th)
    tk = np.where(k == 0, 0.25 * np.sign(h), tk)
    opposite = (h * k < 0) | ((h * k == 0) & (h + k < 0))
    value = 0.5 * (ph + pk) - th - tk - 0.5 * opposite
    value = np.where((h == 0) & (k == 0), 0.25 + np.arcsin(rho) / (2 * np.pi), value)
    value = np.where(rho >= 1, np.minimum(ph, pk), value)
    value = np.where(rho <= -1, np.maximum(ph - ndtr(-k), 0.0), value)
    return np.clip(value, 0.0, np.minimum(ph, pk))


def _second_moment(q: _Unit, along: Array, constant: Array, across: Array) -> Array:
    """E[1{z>0} (a.x + c)^2] with a split into its part along u and the square of the rest."""
    return (
        (across + constant**2) * q.cdf
        + along**2 * (q.cdf - q.h * q.pdf)
        + 2 * along * constant * q.pdf
    )


def _across(q: _Unit) -> Array:
    """|a|^2 less its part along u, for a = w - Gamma; w has no part across."""
    return np.maximum(np.square(q.target).sum(-1) - q.p**2, 0.0)


def _square_mean(size: Array, mean: Array) -> Array:
    """E relu(s t + m)^2 for t ~ N(0, 1)."""
    h = _ratio(mean, size)
    return (size**2 + mean**2) * ndtr(h) + size * mean * normal_pdf(h)


def _split(q: _Unit, size: Array) -> tuple[Array, Array, Array]:
    """Correlation of z and y, k = Delta / |Gamma|, and the deviation of y given z."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(size > 0, q.p / size, 0.0)
    rho = np.clip(np.where(np.isfinite(rho), rho, 0.0), -1.0, 1.0)
    rest = q.target - q.p[..., None] * q.u
    return rho, _ratio(q.delta, size), np.linalg.norm(rest, axis=-1)


def _overlap(q: _Unit, size: Array) -> tuple[Array, Array]:
    """P(z>0, y>0) and E[1{z>0} relu(y)]."""
    rho, k, rest = _split(q, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(size > 0, rest / size, 0.0)
    # For parallel w and Gamma the two edges are one: the same numerator with opposite signs, so
    # that rounding cannot count both or neither.
    parallel = spread <= 1e-14
    rho = np.where(parallel, np.sign(rho), rho)
    spread = np.where(parallel, 0.0, spread)
    at_z = k - rho * q.h
    at_y = np.where(parallel, -rho * at_z, q.h - rho * k)
    both = bivariate_cdf(q.h, k, rho)
    z_edge = q.p * q.pdf * ndtr(_ratio(at_z, spread, 0.0))
    y_edge = size * normal_pdf(k) * ndtr(_ratio(at_y, spread, 0.0))
    return both, q.delta * both + z_edge + y_edge


def _edge_mean(q: _Unit, size: Array) -> Array:
    """E[relu(y) | z = 0]."""
    _, _, rest = _split(q, size)
    mean = q.delta - q.p * q.h
    ratio = _ratio(mean, rest)
    return mean * ndtr(ratio) + rest * normal_pdf(ratio)


def _cross(q: _Unit, size: Array) -> Array:
    """E[relu(z) relu(y)] = w.E[1{z>0} relu(y) x] + b E[1{z>0} relu(y)]."""
    both, first = _overlap(q, size)
    along = q.length * q.p * both + q.length * q.pdf * _edge_mean(q, size)
    return along + q.b * first


def _ratio(top: Array, bottom: Array, undefined: float = -FAR) -> Array:
    """top / bottom, clipped to +-FAR, with a stated value for 0 / 0 (relu(0) never fires)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = top / bottom
    return np.clip(np.where(np.isnan(ratio), undefined, ratio), -FAR, FAR)


def _kind(target: str) -> str:
    if target not in ("surrogate", "rectified"):
        raise InvalidInputError(f"target {target!r}: use surrogate or rectified")
    return target


def _unit(w: ArrayLike, b: ArrayLike, gamma: ArrayLike, delta: ArrayLike) -> _Unit:
    w, goal = np.asarray(w, dtype=np.float64), np.asarray(gamma, dtype=np.float64)
    w = w if w.ndim else w[None]
    goal = goal if goal.ndim else goal[None]
    try:
        w, goal = np.broadcast_arrays(w, goal)
        b, delta = (
            np.broadcast_to(np.asarray(v, dtype=np.float64), w.shape[:-1]) for v in (b, delta)
        )
    except ValueError:
        raise InvalidInputError(
            f"w {np.shape(w)}, b {np.shape(b)}, gamma {np.shape(gamma)} and delta "
            f"{np.shape(delta)} do not fit together: expected (..., d), (...), (..., d), (...)"
        ) from None
    if not all(np.isfinite(v).all() for v in (w, b, goal, delta)):
        raise InvalidInputError("w, b, gamma and delta must be finite")
    length = np.linalg.norm(w, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(length[..., None] > 0, w / length[..., None], 0.0)
    h = _ratio(b, length)
    p = (u * goal).sum(-1)
    return _Unit(w, b, goal, delta, length, u, h, p, ndtr(h), normal_pdf(h))


class Trajectory(NamedTuple):
    """Where units were, recorded every ``every`` updates."""

    w: NDArray[np.float64]
    b: NDArray[np.float64]
    steps: NDArray[np.int64]


def trajectory(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike = 1.0,
    delta: float = 0.0,
    *,
    eta: float = 0.1,
    beta: float = 0.0,
    steps: int = 1000,
    every: int = 1,
    target: Target = "surrogate",
) -> Trajectory:
    """Follow units under m <- beta m + (1 - beta) grad L, theta <- theta - eta m, from m = 0.

    The expected gradient is exact, so nothing here is random. Cost: one `gradient` per update.

    >>> path = trajectory([[0.2, 0.3]], [0.5], [1.0, 0.0], steps=2000)
    >>> path.w[-1].round(3).tolist(), path.b[-1].round(3).tolist()
    ([[1.0, 0.0]], [0.0])
    """
    if steps < 0 or every < 1:
        raise InvalidInputError(f"steps={steps} and every={every}: expected >= 0 and >= 1")
    if not (math.isfinite(eta) and eta > 0 and 0 <= beta < 1):
        raise InvalidInputError(
            f"eta={eta} and beta={beta}: expected a step size above 0 and a momentum in [0, 1)"
        )
    w, b = _pair(w, b, gamma)
    mw, mb = np.zeros_like(w), np.zeros_like(b)
    ws, bs, at = [w.copy()], [b.copy()], [0]
    for step in range(1, steps + 1):
        gw, gb = gradient(w, b, gamma, delta, target)
        mw = beta * mw + (1 - beta) * gw
        mb = beta * mb + (1 - beta) * gb
        w, b = w - eta * mw, b - eta * mb
        if step % every == 0 or step == steps:
            ws.append(w)
            bs.append(b)
            at.append(step)
    return Trajectory(np.array(ws), np.array(bs), np.array(at, dtype=np.int64))


def vector_field(
    w: ArrayLike,
    b: ArrayLike,
    gamma: ArrayLike = 1.0,
    delta: float = 0.0,
    target: Target = "surrogate",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The direction of steepest descent, -grad L, at units of one input (figure 3) or more.

    The field is homogeneous: for k > 0, field(k theta, k gamma, k delta) = k field(theta, gamma,
    delta).
    """
    scalar = np.ndim(w) == np.ndim(b)
    w, b = _pair(w, b, gamma)
    gw, gb = gradient(w, b, gamma, delta, target)
    return (-gw[..., 0] if scalar else -gw), -gb


@dataclass(frozen=True)
class CriticalPoints:
    """All points where the surrogate gradient vanishes.

    For finite h = b/|w| the gradient is zero only at the optimum: across w it is
    (w - Gamma) Phi(h), along w and b it is a Gram matrix [[Phi - h phi, phi], [phi, Phi]], whose
    determinant E[1]E[1 t^2] - E[1 t]^2 is positive by Cauchy-Schwarz. What is left is w = 0, b < 0.
    """

    optimum: NDArray[np.float64]
    saddle_direction: NDArray[np.float64]
    saddle_loss: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.dying.critical_points/1",
            **entries(self, "optimum saddle_direction saddle_loss"),
        }


def critical_points(gamma: ArrayLike, delta: float = 0.0) -> CriticalPoints:
    """The optimum and the ray of saddles of the surrogate loss. Exact.

    >>> points = critical_points([1.0, 0.0])
    >>> points.optimum.tolist(), points.saddle_direction.tolist(), points.saddle_loss
    ([1.0, 0.0, 0.0], [0.0, 0.0, -1.0], 0.5)
    """
    goal = np.atleast_1d(np.asarray(gamma, dtype=np.float64))
    if goal.ndim != 1 or not np.isfinite(goal).all() or not np.any(goal):
        raise InvalidInputError(f"gamma has shape {goal.shape}; expected a finite non-zero vector")
    direction = np.append(np.zeros(len(goal)), -1.0)
    return CriticalPoints(
        np.append(goal, delta), direction, float(loss(np.zeros_like(goal), -1.0, goal, delta))
    )


def _pair(
    w: ArrayLike, b: ArrayLike, gamma: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    w, b = np.array(w, dtype=np.float64), np.array(b, dtype=np.float64)
    if w.shape == b.shape and np.ndim(gamma) == 0:
        w = w[..., None]
    if w.shape[:-1] != b.shape:
        raise InvalidInputError(
            f"w has shape {w.shape} and b {b.shape}; expected (..., d) and (...)"
        )
    return w, b
