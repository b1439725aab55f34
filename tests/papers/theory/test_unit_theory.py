"""Closed forms against Monte Carlo (10^7 samples), finite differences and quadrature."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import relunorm.dying as dying
from relunorm.errors import InvalidInputError

SAMPLES = 10_000_000
CHUNK = 500_000


def monte_carlo(w, b, goal, delta, seed):
    """Means and standard errors of loss, dL/dw, dL/db for both targets, straight from (10)."""
    rng = np.random.default_rng(seed)
    d = len(w)
    sums = np.zeros((2, 2, d + 2))  # target, moment, (loss, grad w, grad b)
    for _ in range(SAMPLES // CHUNK):
        x = rng.standard_normal((CHUNK, d))
        z, y = x @ w + b, x @ goal + delta
        on = z > 0
        for k, t in enumerate((y, np.maximum(y, 0))):
            error = np.maximum(z, 0) - t
            terms = np.column_stack([error**2 / 2, (on * error)[:, None] * x, on * error])
            sums[k, 0] += terms.sum(0)
            sums[k, 1] += np.square(terms).sum(0)
    mean = sums[:, 0] / SAMPLES
    deviation = np.sqrt(np.maximum(sums[:, 1] / SAMPLES - mean**2, 0) / SAMPLES)
    return mean, deviation


@pytest.mark.parametrize(
    ("w", "b", "goal", "delta"),
    [
        ([0.7, -1.1, 0.4], 0.3, [0.2, 0.9, -0.5], -0.4),
        ([-0.3, 0.8, 0.1], -0.9, [1.0, 0.5, 0.0], 0.6),
    ],
)
def test_loss_and_gradient_agree_with_monte_carlo(w, b, goal, delta):
    mean, deviation = monte_carlo(np.array(w), b, np.array(goal), delta, seed=3)
    for k, target in enumerate(("surrogate", "rectified")):
        gw, gb = dying.gradient(w, b, goal, delta, target)
        formula = np.concatenate([[dying.loss(w, b, goal, delta, target)], gw, [gb]])
        assert np.abs((formula - mean[k]) / deviation[k]).max() < 4


@pytest.mark.parametrize("target", ["surrogate", "rectified"])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_is_the_derivative_of_the_loss(target, seed):
    rng = np.random.default_rng(seed)
    goal, delta = rng.normal(size=3), float(rng.normal())
    theta = rng.normal(size=4)

    def value(t):
        return float(dying.loss(t[:3], t[3], goal, delta, target))

    # Fourth-order differences at h = 2e-3: truncation ~1e-11, rounding ~1e-13.
    h, found = 2e-3, np.empty(4)
    for i in range(4):
        e = np.eye(4)[i] * h
        near, far = value(theta + e) - value(theta - e), value(theta + 2 * e) - value(theta - 2 * e)
        h6 = value(theta + 3 * e) - value(theta - 3 * e)
        found[i] = (45 * near - 9 * far + h6) / (60 * h)
    gw, gb = dying.gradient(theta[:3], theta[3], goal, delta, target)
    np.testing.assert_allclose(np.append(gw, gb), found, atol=1e-9, rtol=0)


@pytest.mark.parametrize("target", ["surrogate", "rectified"])
@pytest.mark.parametrize("w", [0.8, -0.6])
def test_one_input_agrees_with_quadrature(target, w):
    b, gamma, delta = 0.35, 1.3, -0.2

    def integrand(x):
        y = gamma * x + delta
        y = y if target == "surrogate" else max(y, 0.0)
        return 0.5 * (max(w * x + b, 0.0) - y) ** 2 * norm.pdf(x)

    points = sorted([-b / w, -delta / gamma])
    exact = quad(integrand, -12, 12, points=points, epsabs=1e-13, limit=200)[0]
    assert float(dying.loss([w], b, gamma, delta, target)) == pytest.approx(exact, abs=1e-11)


def test_zero_weight_is_a_constant_unit():
    for b, expected in ((2.0, 0.5 * (1 + 4)), (-2.0, 0.5)):
        assert float(dying.loss([0.0, 0.0], b, [1.0, 0.0])) == pytest.approx(expected)
    # relu(0 x + 2) against relu(x): E (2 - relu(x))^2 / 2
    exact = 0.5 * (4 - 4 * norm.pdf(0) + 0.5)
    assert float(dying.loss([0.0], 2.0, 1.0, target="rectified")) == pytest.approx(exact)


def test_field_is_homogeneous():
    rng = np.random.default_rng(0)
    w, b, goal, delta, k = rng.normal(size=3), 0.4, rng.normal(size=3), -0.3, 0.01
    for target in ("surrogate", "rectified"):
        small = dying.gradient(k * w, k * b, k * goal, k * delta, target)
        large = dying.gradient(w, b, goal, delta, target)
        np.testing.assert_allclose(small[0], k * large[0], rtol=1e-12)
        np.testing.assert_allclose(small[1], k * large[1], rtol=1e-12)


def test_bivariate_cdf_against_scipy_and_limits():
    rng = np.random.default_rng(1)
    for _ in range(20):
        h, k, rho = rng.normal(), rng.normal(), rng.uniform(-0.95, 0.95)
        exact = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([h, k])
        assert float(dying.bivariate_cdf(h, k, rho)) == pytest.approx(exact, abs=1e-7)
    assert float(dying.bivariate_cdf(0.3, 0.7, 1.0)) == pytest.approx(norm.cdf(0.3))
    assert float(dying.bivariate_cdf(0.3, 0.7, -1.0)) == pytest.approx(
        norm.cdf(0.3) - norm.cdf(-0.7)
    )
    for h in (-0.5, 0.5):
        assert float(dying.bivariate_cdf(0.0, h, 0.0)) == pytest.approx(
            0.5 * norm.cdf(h), abs=1e-15
        )


def test_firing_probability_with_covariance_against_monte_carlo():
    rng = np.random.default_rng(5)
    root = rng.normal(size=(3, 3))
    mean, covariance = rng.normal(size=3), root @ root.T
    w, b = rng.normal(size=3), -0.4
    hits = 0
    for _ in range(SAMPLES // CHUNK):
        x = rng.standard_normal((CHUNK, 3)) @ root.T + mean
        hits += int((x @ w + b > 0).sum())
    p = float(dying.firing_probability(w, b, mean, covariance))
    assert abs(hits / SAMPLES - p) < 4 * np.sqrt(p * (1 - p) / SAMPLES)


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="fit together"):
        dying.loss([1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(InvalidInputError, match="finite"):
        dying.gradient([np.nan], 0.0, 1.0)
    with pytest.raises(InvalidInputError, match="surrogate or rectified"):
        dying.loss([1.0], 0.0, 1.0, target="other")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="epsilon"):
        dying.dead_below(0.7)
    with pytest.raises(InvalidInputError, match=r"\[0, 1\)"):
        dying.momentum(0.1, 1.0)
    for covariance in ([[1, 2], [2, 1]], [[1.0, 0.5], [0.4, 1.0]]):
        for ask in (dying.firing_probability, dying.in_dead_cone):
            with pytest.raises(InvalidInputError):
                ask([1, -1], 0.5, covariance=covariance)
    for options in ({"beta": 1.5}, {"eta": -1.0}):
        with pytest.raises(InvalidInputError):
            dying.trajectory([1.0], [0.0], **options)


@pytest.mark.parametrize(
    ("eta", "beta"),
    [
        *[(0.1, 0.0), (0.1, 0.9), (0.5, 0.3), (1.5, 0.2), (0.1, 0.99)],
        *[(1.5, 0.0), (3.0, 0.25), (2.9, 0.22), (3.0, 0.25 + 1e-12)],  # two negative eigenvalues
        *[(397.0, 0.99), (397.99, 0.99), (397.995, 0.99), (30.0, 0.9)],  # largest after many steps
        *[(250.0, 0.99), (310.0, 0.99)],  # an integer step meets a later turn better
        *[(2.7e-4, 0.9993), (1e-3, 0.9962)],
    ],
)
def test_momentum_system_against_brute_force(eta, beta):
    system = dying.momentum(eta, beta)
    expected = np.sort_complex(np.linalg.eigvals(system.matrix))
    # LAPACK finds a nearly double eigenvalue to the root of its rounding only.
    gap = abs(system.eigenvalues[0] - system.eigenvalues[1])
    atol = 1e-12 if gap > 1e-3 else 1e-7
    np.testing.assert_allclose(np.sort_complex(np.array(system.eigenvalues)), expected, atol=atol)
    m, a, path = 0.0, 1.0, [1.0]
    for _ in range(40_000):
        m = beta * m + (1 - beta) * a
        a -= eta * m
        path.append(a)
    assert system.overshoot == pytest.approx(max(0.0, -min(path)), abs=1e-12, rel=1e-10)


def error_after(eta: float, beta: float, steps: int) -> float:
    """The error after so many updates, by repeated squaring of A in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        e, b, one = Decimal(eta), Decimal(beta), Decimal(1)
        power, base = (one, 0 * one, 0 * one, one), (b, one - b, -e * b, one - e * (one - b))
        while steps:
            if steps % 2:
                power = product(power, base)
            base, steps = product(base, base), steps // 2
        return float(power[3])


def product(p, q):
    return (
        p[0] * q[0] + p[1] * q[2],
        p[0] * q[1] + p[1] * q[3],
        p[2] * q[0] + p[3] * q[2],
        p[2] * q[1] + p[3] * q[3],
    )


@pytest.mark.parametrize(
    ("eta", "above"), [(1e-8, 1e-9), (1e-8, 1e-12), (1e-4, 1e-6), (0.1, 1e-12), (0.1, 1e-15)]
)
def test_overshoot_just_above_the_threshold(eta, above):
    """The first turn takes up to 10^10 updates: once falling, then rising until near its end."""
    beta = dying.beta_star(eta) + above
    system = dying.momentum(eta, beta)
    assert system.oscillates
    low, high = 0, int(0.9 * system.period)
    while high - low > 2:
        one, two = low + (high - low) // 3, high - (high - low) // 3
        if error_after(eta, beta, one) > error_after(eta, beta, two):
            low = one
        else:
            high = two
    lowest = min(error_after(eta, beta, t) for t in range(low, high + 1))
    assert system.overshoot == pytest.approx(max(0.0, -lowest), rel=1e-6, abs=1e-300)


@pytest.mark.parametrize("eta", [0.01, 0.1, 0.9, 1.5, 3.0])
def test_oscillation_threshold_and_stability_limit(eta):
    threshold = dying.beta_star(eta)
    if threshold > 1e-6:
        assert not dying.momentum(eta, threshold * (1 - 1e-6)).oscillates
    assert dying.momentum(eta, min(threshold * (1 + 1e-6) + 1e-9, 0.999)).oscillates
    for beta in (0.0, 0.5, 0.9):
        limit = dying.momentum(eta, beta).stability_limit
        for near, stable in ((limit * (1 - 1e-6), True), (limit * (1 + 1e-6), False)):
            radius = np.abs(np.linalg.eigvals(dying.momentum(near, beta).matrix)).max()
            assert (radius < 1) == stable == dying.momentum(near, beta).stable


def test_trajectory_in_many_dimensions_matches_rotated_one():
    """With no error across w, only (|w|, b) move: appendix C, checked in 3-D against 1-D."""
    u = np.array([2.0, -1.0, 2.0]) / 3
    kw = {"eta": 0.1, "beta": 0.8, "steps": 50}
    line = dying.trajectory(0.5, -0.2, 1.0, **kw)
    space = dying.trajectory(0.5 * u, -0.2, u, **kw)
    np.testing.assert_allclose(space.w, line.w * u, atol=1e-12)
    np.testing.assert_allclose(space.b, line.b, atol=1e-12)


def test_critical_points():
    points = dying.critical_points([0.6, 0.8], 0.3)
    gw, gb = dying.gradient([0.6, 0.8], 0.3, [0.6, 0.8], 0.3)
    assert np.abs(gw).max() == 0
    assert gb == 0
    for scale in (0.1, 3.0):
        gw, gb = dying.gradient([0.0, 0.0], -scale, [0.6, 0.8], 0.3)
        assert np.abs(gw).max() == 0
        assert gb == 0
    rest = float(dying.loss([0.0, 0.0], -1.0, [0.6, 0.8], 0.3))
    assert points.saddle_loss == rest
    for direction in ([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]):
        near = float(dying.loss(0.4 * np.array(direction), -1.0, [0.6, 0.8], 0.3))
        assert (near < rest) == (np.dot(direction, [0.6, 0.8]) > 0)  # flat to every order along w


def test_covariances_that_rounding_has_touched_are_taken():
    x = np.random.default_rng(0).normal(size=(2, 40)).astype(np.float32)  # of rank 1
    cov = np.cov(x.T)
    found = dying.firing_probability(np.ones(40), 0.5, covariance=cov.astype(np.float32))
    np.testing.assert_allclose(found, dying.firing_probability(np.ones(40), 0.5, covariance=cov),
                               rtol=1e-6)  # fmt: skip
    assert dying.firing_probability([1.0], 0.5, covariance=[[0.0]]) == 1
    huge = dying.firing_probability([1e-150, 0.0], 1.0, covariance=1e300 * np.eye(2))
    np.testing.assert_allclose(huge, dying.firing_probability([1.0, 0.0], 1.0))
