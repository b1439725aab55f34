"""Seed 002's equations (3) to (32), appendices B to D, and their errata, as numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.dying.cones import dead_below, firing_probability, linear_above
from relunorm.dying.oscillation import momentum
from relunorm.dying.rescale import rescale_targets, single_factor
from relunorm.dying.target import TargetScaler
from relunorm.dying.trajectories import trajectory, vector_field
from relunorm.dying.unit_loss import gradient, loss, normal_pdf
from relunorm.network import Network
from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import Exhibit, Make, Sample, from_claims, shows

Array = NDArray[np.float64]
#: Rounding of a few hundred float64 operations on values of order one.
ROUNDING = 1e-10
EPSILON = 1e-3


@shows(
    "Figure 1: gamma is a variance",
    "(3)-(4) rotated target",
    "(11) equal errors",
    "(12) larger errors",
    "Section 3: same sign",
    "(13)-(14) rotation",
)
def setting(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section 3: the scale of the targets, the linear surrogate, the rotations."""
    rng = np.random.default_rng(random_state)
    scaled = TargetScaler(gamma=0.1).fit_transform(rng.normal(3, 7, 1000))
    w, b, goal, delta = _units(rng, 200)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turned = np.abs(loss(w @ turn.T, b, goal @ turn.T, delta) - loss(w, b, goal, delta)).max()
    z, y = rng.normal(size=(2, 100_000))
    exact, surrogate = np.maximum(z, 0) - np.maximum(y, 0), np.maximum(z, 0) - y
    above = np.maximum(y, 0) >= np.maximum(z, 0)
    on = z > 0
    larger = ~above
    opposite = _opposite_gradients(rng)
    rotation = max(np.abs(_rotation(v) @ v - _last(np.linalg.norm(v))).max() for v in w)
    return from_claims(
        "setting",
        "Section 3: targets, surrogate and rotations",
        (
            Claim(
                "Figure 1: gamma is a variance",
                "gamma = 0.1 is the variance of the targets",
                Check("variance of the targets", scaled.var(), "=", 0.1, 1e-6),
                "it is their standard deviation",
                Check("standard deviation", scaled.std(), "=", 0.1, 1e-6),
            ),
            Claim(
                "(3)-(4) rotated target",
                "rotating the target changes nothing but the coordinates",
                Check("largest change of the loss", turned, "<=", ROUNDING),
            ),
            Claim(
                "(11) equal errors",
                "where the rectified target is at least the output, both errors are equal",
                Check(
                    "largest difference", np.abs(exact - surrogate)[above].max(), "<=", ROUNDING
                ),
                "times the unit's activity, that is in the gradients, they are",
                Check(
                    "largest difference of the products",
                    np.abs((exact - surrogate) * on)[above].max(),
                    "<=",
                    ROUNDING,
                ),
            ),
            Claim(
                "(12) larger errors",
                "elsewhere the exact error is at least the surrogate's, which is >= 0",
                Check("share of points", (exact >= surrogate)[larger].mean(), "=", 1),
                "reversed: 0 < exact <= surrogate",
                Check(
                    "share of points",
                    ((exact > 0) & (exact <= surrogate))[larger].mean(),
                    "=",
                    1,
                ),
            ),
            Claim(
                "Section 3: same sign",
                "gradients with the surrogate have the sign of the exact ones",
                Check("share of units whose expected gradients oppose", opposite, "=", 0),
                "at every point x, not in expectation",
                Check(
                    "share of points whose gradients oppose",
                    ((exact * surrogate < 0) & on).mean(),
                    "=",
                    0,
                ),
            ),
            Claim(
                "(13)-(14) rotation",
                "a unitary U maps w to (0, ..., 0, |w|)",
                Check("largest difference", rotation, "<=", ROUNDING),
            ),
        ),
        settings={"random_state": random_state},
    )


@shows(
    "(17)-(18) affine gradients",
    "(19)-(20) momentum system",
    "Section 4: right half",
    "Section 4: step sizes up to 2",
    "Section 4: independent of gamma",
)
def affine(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section 4: gradient descent with momentum on an affine model."""
    a, c = np.array([0.7, -1.3]), 0.4
    x, weight = _plane()
    errors = x @ a + c
    quadrature = np.append((weight * errors) @ x - a, weight @ errors - c)
    etas, betas = np.linspace(0.01, 0.99, 50), np.linspace(0, 0.99, 50)
    values = _eigenvalues(etas, betas)
    large = _eigenvalues(np.linspace(1.01, 1.99, 50), betas)
    scaled = [momentum(0.1, 0.9).errors(200, start=g) / g for g in (1.0, 1e-3)]
    return from_claims(
        "affine",
        "Section 4: the momentum system",
        (
            Claim(
                "(17)-(18) affine gradients",
                "dL/dw = w - Gamma and dL/db = b - Delta",
                Check(
                    "largest difference from quadrature", np.abs(quadrature).max(), "<=", ROUNDING
                ),
            ),
            Claim(
                "(19)-(20) momentum system",
                "updates (6)-(7) are powers of the matrix (20)",
                Check("largest difference over 200 updates", _by_updates(), "<=", ROUNDING),
            ),
            Claim(
                "Section 4: right half",
                "all eigenvalues lie strictly inside the right half of the unit circle",
                Check("smallest real part over eta, beta", values.real.min(), ">", 1e-12),
                "inside the circle, in the closed right half: one is 0 at beta = 0",
                Check(
                    "smallest real part",
                    values.real.min() if np.abs(values).max() < 1 else -1.0,
                    ">=",
                    -1e-12,
                ),
            ),
            Claim(
                "Section 4: step sizes up to 2",
                "for 1 < eta < 2 they stay inside the unit circle and can be negative",
                Check(
                    "largest modulus",
                    np.abs(large).max() if large.real.min() < 0 else np.inf,
                    "<",
                    1,
                ),
            ),
            Claim(
                "Section 4: independent of gamma",
                "the behaviour depends on eta and beta only",
                Check(
                    "difference of the paths at two scales",
                    np.abs(scaled[0] - scaled[1]).max(),
                    "<=",
                    ROUNDING,
                ),
            ),
        ),
    )


@shows(
    "(21)-(23) firing probability",
    "after (23): dead cone",
    "after (23): linear cone",
    "(24) loss",
    "(25)-(26) gradients",
    "(27)-(29) rotated gradients",
    "Section 5: critical points",
    "Section 5: linear cone is affine",
    "derived: the field is homogeneous",
)
def unit(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section 5: one ReLU unit, its cones, its loss and its gradients."""
    rng = np.random.default_rng(random_state)
    w, b, goal, delta = _units(rng, 200)
    inside = -dead_below(EPSILON) - 0.01, dead_below(EPSILON) - 0.01
    above = -linear_above(EPSILON) + 0.01, linear_above(EPSILON) + 0.01
    dead = [float(firing_probability([1.0], h)) for h in inside]
    off = [1 - float(firing_probability([1.0], h)) for h in above]
    printed, corrected = _loss_gradients(rng)
    rotated = max(_rotated_error(*one) for one in zip(w, b, goal, delta, strict=True))
    field = np.array(vector_field(w[:, 0], b, 0.7, 0.2))
    scaled = np.array(vector_field(5 * w[:, 0], 5 * b, 3.5, 1.0))
    return from_claims(
        "unit",
        "Section 5: one ReLU unit",
        (
            Claim(
                "(21)-(23) firing probability",
                "a unit fires with probability Phi(b/|w|)",
                Check("largest deviation in standard errors", _sampled(rng, w, b), "<=", 5),
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
            ),
            Claim(
                "(25)-(26) gradients",
                "expectations over active inputs",
                Check(
                    "largest difference from quadrature", _quadrature_error(rng), "<=", 1e-6
                ),
            ),
            Claim(
                "(27)-(29) rotated gradients",
                "closed forms in rotated coordinates",
                Check("largest difference from the rotation-free form", rotated, "<=", ROUNDING),
            ),
            Claim(
                "Section 5: critical points",
                "the gradient vanishes at the optimum and on w = 0, b < 0",
                Check("largest gradient there", _critical(), "<=", ROUNDING),
            ),
            Claim(
                "Section 5: linear cone is affine",
                "where b/|w| >= 4 the gradients are those of the affine model",
                Check("largest relative difference", _linear_cone(rng), "<=", 2e-3),
            ),
            Claim(
                "derived: the field is homogeneous",
                "(in no paper) field(k theta, k gamma, k Delta) = k field(theta, gamma, Delta)",
                Check("largest difference", np.abs(scaled - 5 * field).max(), "<=", ROUNDING),
            ),
        ),
        settings={"random_state": random_state},
    )


@shows("(30)-(32) one weight", "Lemma C.1", "Lemma C.2", "Lemma C.3", "Proposition C.1")
def appendix_c(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Appendix C: only the last weight moves once the others have converged."""
    rng = np.random.default_rng(random_state)
    goal = _last(0.8)
    images, fixed, others, formula = [], [], [], []
    for w_last, b, delta in rng.normal(size=(100, 3)):
        w, rho = _last(w_last), np.sign(w_last)
        U = _rotation(w)
        image = U @ goal
        images.append(max(np.abs(image[:-1]).max(), abs(abs(image[-1]) - 0.8)))
        v = _last(rng.normal())
        fixed.append(max(np.abs(U @ v - rho * v).max(), np.abs(U.T @ v - rho * v).max()))
        gw, gb = gradient(w, b, goal, delta)
        a, c, h = w_last - 0.8, b - delta, b / abs(w_last)
        cdf, pdf = float(firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
        others.append(np.abs(gw[:-1]).max())
        formula.append(abs(gw[-1] - (a * cdf + rho * (c - rho * a * h) * pdf)))
        formula.append(abs(float(gb) - (rho * a * pdf + c * cdf)))
    apart = [_rotation(w) @ (w - goal) for w in rng.normal(size=(100, 3))]
    return from_claims(
        "appendix_c",
        "Appendix C: gradients of the last weight",
        (
            Claim(
                "(30)-(32) one weight",
                "the closed forms of the last weight and the bias; the others do not move",
                Check("largest difference", max(*others, *formula), "<=", ROUNDING),
            ),
            Claim(
                "Lemma C.1",
                "then U Gamma = (0, ..., 0, +-gamma)",
                Check("largest difference", max(images), "<=", ROUNDING),
            ),
            Claim(
                "Lemma C.2",
                "only a w along the last axis has a rotated error along it",
                Check(
                    "smallest part across, for w not along it",
                    min(np.abs(error[:-1]).max() for error in apart),
                    ">",
                    1e-6,
                ),
            ),
            Claim(
                "Lemma C.3",
                "U v = U' v = sign(w_L) v on the last axis",
                Check("largest difference", max(fixed), "<=", ROUNDING),
            ),
            Claim(
                "Proposition C.1",
                "dL/dw_i = 0 for the others, and the closed forms for w_L and b",
                Check("largest gradient of the others", max(others), "<=", ROUNDING),
            ),
        ),
        settings={"random_state": random_state},
    )


@shows(
    "Figure 6, caption: gradients",
    "Section 6: one unit rescales",
    "Theorem D.1",
    "erratum: layer-wise rescaling",
)
def scaling(data: Sample | None = None, full: bool = False, random_state: int = 0) -> Exhibit:
    """Section 6 and Appendix D: dead layers, and moving a scale into the parameters."""
    rng = np.random.default_rng(random_state)
    moving, still = _dead_layer()
    start = rng.normal(size=(2, 50))
    paths = [
        trajectory(g * start[0], g * start[1], g, steps=300, beta=0.9) for g in (1.0, 1e-3)
    ]
    proportional = np.abs(paths[1].w[-1] / 1e-3 - paths[0].w[-1]).max()
    biased, plain = ([_chain(rng, biases) for _ in range(10)] for biases in (True, False))
    x = rng.normal(size=(100, 3))
    works = sum(_scales(net, single_factor(net, 0.5), 0.5, x) for net in plain)
    left = min(_best_factor(net, 0.5, x) for net in biased)
    layerwise = max(
        np.abs(rescale_targets(net, 0.5)(x) - 0.5 * net(x)).max() for net in (*biased, *plain)
    )
    return from_claims(
        "scaling",
        "Section 6 and Theorem D.1: dead layers and scales",
        (
            Claim(
                "Figure 6, caption: gradients",
                "with one dead layer all gradients vanish but that of the last bias",
                Check("other tensors that still move (second of three dead)", moving, "=", 0),
                "they vanish up to the next layer's weights; its bias and later layers move",
                Check("largest gradient up to there", still if moving == 2 else np.inf, "=", 0),
            ),
            Claim(
                "Section 6: one unit rescales",
                "scaling the start of one unit by gamma makes its path proportional",
                Check("largest difference after 300 updates", proportional, "<=", 1e-8),
            ),
            Claim(
                "Theorem D.1",
                "no single factor on all parameters scales a network's output by gamma",
                Check("of 10 networks without biases, those for which one does", works, "=", 0),
                "no factor does so for all parameters; without biases gamma^(1/(N+1)) does",
                Check("least that any factor leaves, with biases", left, ">", 1e-3),
            ),
            Claim(
                "erratum: layer-wise rescaling",
                "(implied) the scale cannot be moved into the parameters",
                Check("largest difference with W_n a, b_n a^n", layerwise, ">", 1e-6),
                "it can, exactly: W_n a and b_n a^n with a = gamma^(1/(N+1))",
                Check("largest difference", layerwise, "<=", ROUNDING),
            ),
        ),
        settings={"random_state": random_state},
    )


def _units(rng: np.random.Generator, count: int) -> tuple[Array, Array, Array, Array]:
    return (
        rng.normal(size=(count, 3)),
        rng.normal(size=count),
        rng.normal(size=(count, 3)),
        rng.normal(size=count),
    )


def _last(value: float) -> Array:
    return np.array([0.0, 0.0, value])


def _rotation(w: Array) -> Array:
    """A unitary U with U w = (0, ..., 0, |w|): a Householder reflection (13)."""
    goal = np.zeros_like(w)
    goal[-1] = np.linalg.norm(w)
    axis = w - goal
    if np.linalg.norm(axis) < 1e-14 * goal[-1]:
        return np.eye(len(w))
    return np.eye(len(w)) - 2 * np.outer(axis, axis) / (axis @ axis)


def _plane() -> tuple[Array, Array]:
    """Gauss-Hermite points and weights of the standard normal in the plane."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    points = np.array(list(itertools.product(nodes, nodes)))
    return points, np.outer(weights, weights).ravel()


def _opposite_gradients(rng: np.random.Generator) -> float:
    w, b = rng.normal(size=(4000, 1)), rng.normal(size=4000)
    exact, surrogate = (gradient(w, b, 1.0, target=t)[1] for t in ("rectified", "surrogate"))
    return float((exact * surrogate < -1e-6).mean())


def _eigenvalues(etas: Array, betas: Array) -> NDArray[np.complex128]:
    pairs = itertools.product(etas, betas)
    return np.array([np.linalg.eigvals(momentum(e, b).matrix) for e, b in pairs], dtype=complex)


def _by_updates() -> float:
    """(6)-(7) on an affine parameter, update by update, against the powers of (20)."""
    worst = 0.0
    for eta, beta in ((0.1, 0.0), (0.1, 0.9), (0.5, 0.99), (1.5, 0.3)):
        m, a, found = 0.0, 1.0, []
        for _ in range(201):
            found.append(a)
            m = beta * m + (1 - beta) * a
            a = a - eta * m
        worst = max(worst, float(np.abs(momentum(eta, beta).errors(200) - found).max()))
    return worst


def _sampled(rng: np.random.Generator, w: Array, b: Array) -> float:
    x = rng.normal(size=(20_000, 3))
    share = (x @ w.T + b > 0).mean(axis=0)
    p = firing_probability(w, b)
    return float((np.abs(share - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / len(x))).max())


def _active(w: float, b: float, f: Any) -> float:
    """E[1{w x + b > 0} f(x)] for one standard normal x, by the trapezoid rule from the kink on."""
    from scipy.integrate import trapezoid

    edge = -b / w
    t = np.linspace(edge, edge + np.sign(w) * 24, 200_001)
    return float(np.sign(w) * trapezoid(f(t) * normal_pdf(t), t))


def _loss_gradients(rng: np.random.Generator) -> tuple[float, float]:
    """How far dL/db of (24) as printed, and with the lacking term, is from (26)."""
    step, worst = 1e-4, [0.0, 0.0]
    for w, b, gamma, delta in rng.normal(size=(10, 4)):
        wanted = _active(w, b, lambda x: (w - gamma) * x + b - delta)

        def printed(shift: float) -> float:
            c = b + shift - delta
            return _active(w, b + shift, lambda x: ((w - gamma) * x + c) ** 2 / 2)

        def corrected(shift: float) -> float:
            return float(loss([w], b + shift, [gamma], delta))

        for k, f in enumerate((printed, corrected)):
            slope = (f(step) - f(-step)) / (2 * step)
            worst[k] = max(worst[k], abs(slope - wanted))
    return worst[0], worst[1]


def _quadrature_error(rng: np.random.Generator) -> float:
    worst = 0.0
    for w, b, gamma, delta in rng.normal(size=(10, 4)):
        gw, gb = gradient([w], b, [gamma], delta)
        by_w = _active(w, b, lambda x: ((w - gamma) * x + b - delta) * x)
        by_b = _active(w, b, lambda x: (w - gamma) * x + b - delta)
        worst = max(worst, abs(by_w - float(gw[0])), abs(by_b - float(gb)))
    return worst


def _rotated_error(w: Array, b: float, goal: Array, delta: float) -> float:
    """(27)-(29), in rotated coordinates, against the rotation-free gradient."""
    U, h = _rotation(w), b / np.linalg.norm(w)
    a, c = U @ (w - goal), b - delta
    cdf, pdf = float(firing_probability([1.0], h)), float(normal_pdf(np.array(h)))
    rotated = a * cdf
    rotated[-1] += (c - a[-1] * h) * pdf
    gw, gb = gradient(w, b, goal, delta)
    return float(max(np.abs(U.T @ rotated - gw).max(), abs(a[-1] * pdf + c * cdf - gb)))


def _critical() -> float:
    goal = np.array([0.6, -0.8])
    at = [(goal, 0.3), *((1e-2 * np.array([s, 1.0]), -1.0) for s in (-1.0, 0.0, 1.0))]
    found = [gradient(w, b, goal, 0.3) for w, b in at]
    return float(max(max(np.abs(gw).max(), abs(float(gb))) for gw, gb in found))


def _linear_cone(rng: np.random.Generator) -> float:
    w, _, goal, delta = _units(rng, 200)
    b = np.linalg.norm(w, axis=1) * rng.uniform(4, 6, 200)
    gw, gb = gradient(w, b, goal, delta)
    affine = np.column_stack([w - goal, b - delta])
    found = np.column_stack([gw, gb])
    return float((np.linalg.norm(found - affine, axis=1) / np.linalg.norm(affine, axis=1)).max())


def _chain(rng: np.random.Generator, biases: bool) -> Network:
    sizes = (3, 7, 5, 2)
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)]
    return Network.from_weights(weights, [rng.normal(size=len(w)) * biases for w in weights])


def _multiplied(net: Network, factor: float) -> Network:
    weights, biases = net.weights()
    return Network.from_weights(
        [factor * np.asarray(w) for w in weights], [factor * np.asarray(b) for b in biases]
    )


def _scales(net: Network, factor: float | None, gamma: float, x: Array) -> bool:
    if factor is None:
        return False
    return bool(np.abs(_multiplied(net, factor)(x) - gamma * net(x)).max() < ROUNDING)


def _best_factor(net: Network, gamma: float, x: Array) -> float:
    """The least relative difference any factor on all parameters leaves."""
    wanted = gamma * net(x)
    gaps = [np.abs(_multiplied(net, nu)(x) - wanted).max() for nu in np.linspace(0.01, 1.5, 300)]
    return float(min(gaps) / np.abs(wanted).max())


def _dead_layer() -> tuple[int, float]:
    """Tensors but the last bias that move with layer 2 of 3 dead, and the largest gradient of
    those up to W_3."""
    import torch

    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5), torch.nn.ReLU(),
        torch.nn.Linear(5, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1),
    ).double()  # fmt: skip
    gen = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.rand(p.shape, generator=gen, dtype=torch.float64) + 0.1)
        model[2].bias.fill_(-1e3)  # type: ignore[union-attr, operator]
    x = torch.rand(20, 3, generator=gen, dtype=torch.float64)
    (model(x) - 1e4).square().mean().backward()
    sizes = {name: float(p.grad.abs().max()) for name, p in model.named_parameters()}  # type: ignore[union-attr]
    early = ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight")
    moving = sum(size > 0 for name, size in sizes.items() if name != "6.bias")
    return moving, max(sizes[name] for name in early)


EXHIBITS: dict[str, Make] = {
    "setting": setting,
    "affine": affine,
    "unit": unit,
    "appendix_c": appendix_c,
    "scaling": scaling,
}
