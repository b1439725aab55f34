"""Sections 3 and 6 and Appendix D of seed 002: the setting, dead layers and scales."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.network import Network
from relunorm.papers import words_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.dying.one_unit import active_points, along_last, random_units
from relunorm.papers.exhibit import Exhibit

if TYPE_CHECKING:
    from relunorm.papers.dying import Dying

claim, exhibit = words_of("dying")

Array = NDArray[np.float64]
#: Scales of Section 6 and Theorem D.1: below 1 and above.
GAMMAS = (1e-3, 0.5, 3.0)


def setting(world: Dying) -> Exhibit:
    """1,000 scaled targets; 200 random units with targets rotated onto the last axis, seen at 20
    points each; 100,000 pairs of output and target; and 4,000 units whose expected gradients are
    known in closed form, the pair farthest apart checked by quadrature."""
    rng = world.rng
    scaled = world.scaled_targets(rng.normal(3, 7, 1000), 0.1)
    units = list(zip(*random_units(rng, 200), strict=True))
    turned = max(_turned_target(world, rng, *unit) for unit in units)
    z, y = rng.normal(size=(2, 100_000))
    f = world.relu
    error, surrogate = f(z) - f(y), f(z) - y
    above = f(y) >= f(z)
    on = z > 0
    larger = ~above
    turns = max(_rotation_error(world.rotation(unit[0], rng), unit[0]) for unit in units)
    return exhibit(
        world.settings(),
        "setting",
        claim("Figure 1: gamma is a variance", scaled.var(), scaled.std()),
        claim("(3)-(4) rotated target", turned),
        claim(
            "(11) equal errors",
            np.abs(error - surrogate)[above].max(),
            np.abs((error - surrogate) * on)[above].max(),
        ),
        claim(
            "(12) larger errors",
            (error >= surrogate)[larger].mean(),
            ((error > 0) & (error <= surrogate))[larger].mean(),
        ),
        claim(
            "Section 3: same sign",
            (_alike(error, surrogate) & _alike(error * on, surrogate * on)).mean(),
            _alike(error * on, surrogate * on).mean(),
        ),
        claim("ours: signs in expectation", _opposite_gradients(world)),
        claim("(13)-(14) rotation", turns),
    )


def scaling(world: Dying) -> Exhibit:
    """A network with its first, its second or its third of three layers dead, through torch's
    autograd; 50 units followed for 300 updates at four scales, with and without momentum; and 18
    random networks of one to three hidden layers, half of them without biases, with all parameters
    rescaled for gamma 0.001, 0.5 and 3."""
    rng = world.rng
    caption = [_dead_layer(world, layer) for layer in (1, 2, 3)]
    shapes = ((3, 7, 2), (3, 7, 5, 2), (3, 6, 5, 4, 2))
    x = rng.normal(size=(100, 3))
    biased, plain = (
        [world.network(rng, shape, bias) for shape in shapes for _ in range(world.size(3, 3, 1))]
        for bias in (1.0, 0.0)
    )
    works = [_scales(net, world.single_factor(net, g), g, x) for net in plain for g in GAMMAS]
    left = min(_best_factor(net, gamma, x) for net in biased for gamma in GAMMAS)
    pairs = [(net, gamma) for net in (*biased, *plain) for gamma in GAMMAS]
    layerwise = max(_gap(world.rescale(net, g)(x), g * net(x)) for net, g in pairs)
    above = [_factor_gaps(world, net, gamma) for net in biased for gamma in (0.5, 3.0)]
    return exhibit(
        world.settings(),
        "scaling",
        claim(
            "Figure 6, caption: gradients",
            max(moving for moving, _ in caption),
            (
                max(still for _, still in caption)
                if [moving for moving, _ in caption] == [4, 2, 0]
                else math.nan
            ),
        ),
        claim("Section 6: one unit rescales", _proportional(world, rng.normal(size=(2, 50)))),
        claim("Theorem D.1", sum(works), left if all(works) else math.nan, works=len(works)),
        claim(
            "Theorem D.1, proof: gamma_n and alpha_n",
            min(min(gaps) for gaps in above),
            (
                min(min(gaps[1:]) for gaps in above)
                if max(abs(gaps[0]) for gaps in above) <= ROUNDING
                else math.nan
            ),
        ),
        claim("ours: layer-wise rescaling", layerwise),
    )


def _alike(first: Array, second: Array) -> NDArray[np.bool_]:
    """Where two numbers are identical or of one sign: 0 is like 0 only."""
    return np.sign(first) == np.sign(second)


def _turned_target(
    world: Dying, rng: np.random.Generator, w: Array, b: float, goal: Array, delta: float
) -> float:
    """(3) at 20 points, and how the loss changes if unit and target are seen through
    the rotation O."""
    turn = world.rotation(goal, rng)
    last = along_last(float(np.linalg.norm(goal)))
    x = rng.normal(size=(20, 3))
    targets = np.abs(x @ goal - (x @ turn.T) @ last).max()
    losses = world.loss(turn @ w, b, last, delta) - world.loss(w, b, goal, delta)
    return float(max(targets, abs(losses)))


def _rotation_error(U: Array, w: Array) -> float:
    """(13), and how far U is from unitary."""
    gap = np.abs(U @ w - along_last(float(np.linalg.norm(w)))).max()
    return float(max(gap, np.abs(U.T @ U - np.eye(len(w))).max()))


def _opposite_gradients(world: Dying) -> float:
    """The share of units whose expected gradients dL/db, with the rectified target and with the
    surrogate, oppose; NaN unless quadrature agrees for the unit whose two are farthest apart."""
    rng = world.rng
    w, b = rng.normal(size=(4000, 1)), rng.normal(size=4000)
    rectified, surrogate = (
        world.gradient(w, b, 1.0, target=t)[1] for t in ("rectified", "surrogate")
    )
    k = int((rectified * surrogate).argmin())
    x, weights = active_points(w[k], float(b[k]))
    z, y = x[:, 0] * w[k] + b[k], x[:, 0]
    # relu(y) has a kink inside: the rule for polynomials is good to three digits there
    seen = [float(weights @ (z - target)) for target in (np.maximum(y, 0.0), y)]
    if np.abs(np.array(seen) - [rectified[k], surrogate[k]]).max() > 1e-3:
        return math.nan
    return float((rectified * surrogate < -1e-6).mean())


def _multiplied(net: Network, factor: float) -> Network:
    weights, biases = net.weights()
    return Network.from_weights(
        [factor * np.asarray(w) for w in weights], [factor * np.asarray(b) for b in biases]
    )


def _gap(found: Array, wanted: Array) -> float:
    """How far outputs are from those wanted, as a share of the largest of these."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _scales(net: Network, factor: float | None, gamma: float, x: Array) -> bool:
    return factor is not None and _gap(_multiplied(net, factor)(x), gamma * net(x)) < ROUNDING


def _best_factor(net: Network, gamma: float, x: Array) -> float:
    """The least relative difference any factor on all parameters leaves: a grid, then a local
    minimum to full accuracy, so that an exact factor would leave rounding."""
    from scipy.optimize import minimize_scalar

    wanted = gamma * net(x)

    def gap(factor: float) -> float:
        return _gap(_multiplied(net, factor)(x), wanted)

    grid = np.geomspace(1e-4, 10.0, 120)
    best = grid[int(np.argmin([gap(nu) for nu in grid]))]
    options = {"xatol": 1e-12}
    found: Any = minimize_scalar(
        gap, bounds=(best / 1.15, best * 1.15), method="bounded", options=options
    )
    return min(gap(best), float(found.fun))


def _factor_gaps(world: Dying, net: Network, gamma: float) -> list[float]:
    """Per layer, how much more (40)-(44) with all alpha_i = nu multiply biases than weights, as a
    share (less, for gamma < 1), read off the rescaled network."""
    scaled = world.rescale(net, gamma)
    alphas, gammas = (
        [
            float(np.median(np.asarray(new) / np.asarray(old)))
            for new, old in zip(scaled.weights()[part], net.weights()[part], strict=True)
        ]
        for part in (0, 1)
    )
    side = math.copysign(1.0, gamma - 1)
    return [side * (g / a - 1) for a, g in zip(alphas, gammas, strict=True)]


def _proportional(world: Dying, start: Array) -> float:
    """How far the paths of units at other scales are from gamma times those at 1, relative to the
    largest parameter of the path."""
    worst = 0.0
    for beta in (0.0, 0.9):
        paths = [
            world.trajectory(g * start[0], g * start[1], g, steps=300, beta=beta)
            for g in (1.0, *GAMMAS)
        ]
        one = np.concatenate([paths[0].w[..., 0], paths[0].b])
        for gamma, path in zip(GAMMAS, paths[1:], strict=True):
            found = np.concatenate([path.w[..., 0], path.b]) / gamma
            worst = max(worst, float(np.abs(found - one).max() / np.abs(one).max()))
    return worst


def _dead_layer(world: Dying, dead: int) -> tuple[int, float]:
    """Tensors but the last bias that move with layer ``dead`` of 3 dead, and the largest gradient
    of those up to the next layer's weights."""
    import torch

    gen = torch.Generator().manual_seed(0)
    shapes = [(5, 3), (5, 5), (5, 5), (1, 5)]
    weights = [torch.rand(s, generator=gen, dtype=torch.float64) + 0.1 for s in shapes]
    biases = [torch.rand(s[0], generator=gen, dtype=torch.float64) + 0.1 for s in shapes]
    biases[dead - 1].fill_(-1e3)
    value = torch.rand(20, 3, generator=gen, dtype=torch.float64)
    for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
        value = value @ w.requires_grad_().T + b.requires_grad_()
        value = world.activation(value) if k < 3 else value
    (value - 1e4).square().mean().backward()
    sizes = [[float(p.grad.abs().max()) for p in part] for part in (weights, biases)]  # type: ignore[union-attr]
    moving = sum(size > 0 for size in sizes[0] + sizes[1][:-1])
    return moving, max(sizes[0][: dead + 1] + sizes[1][:dead])
