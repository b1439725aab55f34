"""Worlds in which a claim on seed 002 comes out otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from asked import asked_once
from planted_pieces import Lying

from relunorm.dying.basins import basin, dead_below, firing_probability, linear_above
from relunorm.network import Network
from relunorm.papers.dying import (
    rotation,
    scaled_targets,
    standard_normal_plane,
    train,
    train_deep,
)
from relunorm.papers.dying.oscillation import momentum
from relunorm.papers.dying.unit_loss import gradient, loss, trajectory
from relunorm.papers.exhibit import he_network

basin = asked_once(basin)


def biased(*args, **kwargs):
    """Every gradient a little too large in the bias."""
    gw, gb = gradient(*args, **kwargs)
    return gw, gb + 1e-3


def crooked(*args, **kwargs):
    """Every gradient a little too large in every weight."""
    gw, gb = gradient(*args, **kwargs)
    return gw + 1e-3, gb


def of_one_target(*args, target="surrogate", **kwargs):
    return gradient(*args, **kwargs)


def same_factors(net, gamma):
    """Every parameter multiplied by the same number."""
    factor = gamma ** (1 / (len(net.layers) + 1))
    weights, biases = net.weights()
    return Network.from_weights(
        [factor * np.asarray(w) for w in weights], [factor * np.asarray(b) for b in biases]
    )


def similar(e, b):
    """Another matrix with the eigenvalues of (20) and, from rest, with its errors: the momentum has
    the wrong sign and twice the size."""
    found, scale = momentum(e, b), np.diag([-2.0, 1.0])
    return Lying(found, matrix=scale @ np.asarray(found.matrix) @ np.linalg.inv(scale))


def wide_inputs():
    """Inputs of variance 2."""
    points, weights = standard_normal_plane()
    return np.sqrt(2) * points, weights


@cache
def other_momentum(eta=lambda e: e, beta=lambda b: b):
    """The momentum system of another step size or momentum."""

    def system(e, b):
        return momentum(eta(e), beta(b))

    return system


@cache
def always(value):
    """The same number whatever is given."""
    return lambda _: value


@cache
def other_basin(gamma=lambda g: g, beta=lambda b: b, change=lambda found: found):
    def wrong(g, b, **options):
        return change(basin(gamma(g), beta(b), **options))

    return wrong


def mirrored(found):
    """Classes of w and -w exchanged."""
    return replace(found, classes=found.classes[:, ::-1])


@cache
def everybody(kind):
    """Every start ends alike: 0 at the optimum, 1 dead."""
    return lambda found: replace(
        found, classes=np.full_like(found.classes, kind), optimum=100.0 * (kind == 0)
    )


def deeper(found):
    """Dead units stop far inside the cone."""
    return replace(found, b=10 * found.b - 10)


def shallow(found):
    """Dead units stop at b/|w| = -0.5, far from the cone."""
    return replace(found, b=np.where(found.classes == 1, -0.5 * np.abs(found.w), found.b))


@cache
def shares(**dead):
    """Training whose share of dead units at the small scale is given by the optimizer."""

    def wrong(plan, tables):
        return [
            {**run, "dead": dead.get(run["optimizer"].replace(" beta1=0", "_bare"), 0.0)}
            if run["gamma"] < 1
            else {**run, "dead": 0.0}
            for run in train(plan, tables)
        ]

    return wrong


def relabelled(where):
    """Errors of the runs ``where`` holds made tiny: the fit does not degrade there."""

    def wrong(plan, tables):
        return [
            {**run, "mse": run["mse"] * 1e-9} if where(run) else run for run in train(plan, tables)
        ]

    return wrong


TRAINED = {}


def few_updates(plan, x, y):
    """Deep training cut to three updates, once for all worlds that start from it."""
    key = replace(plan, updates=3)
    if key not in TRAINED:
        TRAINED[key] = train_deep(key, x, y)
    return TRAINED[key]


def deep_world(change):
    """Deep training with another outcome: change(depth, born) gives the shares dead at the end and
    after a third of the updates."""

    def wrong(plan, x, y):
        found = few_updates(plan, x, y)
        return {
            key: (born, *[change(key[2], np.array(born))] * 2) for key, (born, *_) in found.items()
        }

    return wrong


def die_with_depth(depth, born):
    return born + 0.01 * depth * (1 + np.arange(len(born)))


def die_when_flat(depth, born):
    return born + 0.2 / depth * (1 + np.arange(len(born)))


def all_alive(plan, x, y):
    """Nobody is born dead."""
    found = few_updates(plan, x, y)
    return {key: tuple([0.0] * len(born) for _ in range(3)) for key, (born, *_) in found.items()}


def born_alike(plan, x, y):
    """Perceptrons of every depth are born with the same share of dead units."""
    found = few_updates(plan, x, y)
    return {
        key: ([0.3] * len(born) if key[0] == "mlp" else born, *rest)
        for key, (born, *rest) in found.items()
    }


def born_undecided(plan, x, y):
    """One seed of the deeper perceptrons is born with no dead unit."""
    found = born_alike(plan, x, y)
    return {
        key: ([0.0] * len(born) if key[2] == 1 else [*born[:-1], 0.0], *rest)
        for key, (born, *rest) in found.items()
        if key[0] == "mlp"
    } | {key: deaths for key, deaths in found.items() if key[0] != "mlp"}


def lifted(w, b, goal, delta):
    """A loss whose minimum has a bias too small by 1."""
    return loss(w, b + 1.0, goal, delta)


def flattened(w, rng):
    """A "rotation" that throws away all but the last coordinate."""
    return np.diag([0.0] * (len(w) - 1) + [1.0]) @ rotation(w, rng)


def doubled(w, rng):
    """Twice a rotation."""
    return 2 * rotation(w, rng)


def unchanged(z):
    return z


def later(eta):
    return eta + 1.0


def fires_less(w, b):
    return 0.98 * firing_probability(w, b)


def sheared(w, rng):
    """A matrix that maps w as it should, and is not unitary: it adds first to last coordinates."""
    shear = np.eye(len(w))
    shear[-1, 0] = 0.1
    return shear @ rotation(w, rng)


def turned(w, rng):
    """A random unitary matrix that does not depend on w."""
    return np.linalg.qr(rng.normal(size=(len(w), len(w))))[0]


DEPTHS = (
    {"train_deep": deep_world(die_with_depth)},
    {"train_deep": deep_world(die_when_flat)},
)
PLANTED = {
    "Figure 1, error at small gamma": {"train": relabelled(lambda run: run["gamma"] < 1)},
    "Figure 1, error at large gamma": {"train": relabelled(lambda run: run["gamma"] > 1)},
    "Figure 1, error away from delta 0": {"train": relabelled(lambda run: run["delta"] > 0)},
    "Figure 1, dead units": ({"train": shares(adam=1.0)}, {"train": shares(adam=1.0, sgd=1.0)}),
    "Figure 1: only with momentum": (
        {"train": shares(adam=1.0)},
        {"train": shares(adam=1.0, adam_bare=1.0)},
    ),
    "Figure 1: gamma is a variance": {"scaled_targets": lambda y, g: scaled_targets(y, g**0.5)},
    "(3)-(4) rotated target": (
        {"loss": lambda w, b, goal, delta: loss(w, b, goal, delta + w[0])},
        {"rotation": turned},
    ),
    "(11) equal errors": {"relu": unchanged},
    "(12) larger errors": {"relu": unchanged},
    "Section 3: same sign": ({"relu": unchanged}, {"relu": np.abs}),
    "ours: signs in expectation": {"gradient": of_one_target},
    "(13)-(14) rotation": ({"rotation": turned}, {"rotation": flattened}),
    "(17)-(18) affine gradients": {"inputs": wide_inputs},
    "(19)-(20) momentum system": (
        {"momentum": other_momentum(eta=lambda e: 1.01 * e)},
        {"momentum": similar},
        {"model": lambda z: (z + 0.01 * z**2, 1.0 + 0.02 * z)},
    ),
    "Section 4: right half": (
        {"momentum": other_momentum(beta=lambda b: max(b, 0.05))},
        {"momentum": other_momentum(eta=later)},
        {"momentum": other_momentum(beta=always(0.0))},
    ),
    "Section 4: step sizes up to 2": {"momentum": other_momentum(eta=later)},
    "Section 4: independent of gamma": {"model": lambda z: (np.maximum(z, 0.0), 1.0 * (z > 0))},
    "Figure 2": {"momentum": other_momentum(eta=lambda e: 2 * e)},
    "ours: where the eigenvalues become complex": {
        "momentum": other_momentum(eta=lambda e: 1.001 * e)
    },
    "Figure 2: ends at 1": {"momentum": other_momentum(beta=lambda b: 0.9 * b)},
    "Figure 2: oscillation": (
        {"momentum": other_momentum(beta=always(0.0))},
        {"momentum": other_momentum(beta=lambda b: b + 0.05 * (b < 0.7))},
    ),
    "(21)-(23) firing probability": {"firing_probability": fires_less},
    "after (23): dead cone": (
        {"dead_below": lambda eps: -dead_below(eps)},
        {"dead_below": lambda eps: 2 * dead_below(eps)},
    ),
    "after (23): linear cone": (
        {"linear_above": lambda eps: -linear_above(eps)},
        {"linear_above": lambda eps: 2 * linear_above(eps)},
    ),
    "(24) loss": {"loss": lambda w, b, goal, delta: 1.1 * loss(w, b, goal, delta)},
    "(25)-(26) gradients": ({"gradient": biased}, {"gradient": crooked}),
    "(27)-(29) rotated gradients": (
        {"firing_probability": fires_less},
        {"rotation": turned},
    ),
    "Section 5: critical points": {"gradient": biased},
    "Section 5: saddle points": {
        "loss": lambda w, b, goal, delta: loss(-np.sign(w @ goal) * w, b, goal, delta)
    },
    "Section 5: the optimum ends between the cones": {"loss": lifted},
    "Section 5: an attracting line": {
        "gradient": lambda w, b, gamma, **more: gradient(w, b, 1.0, **more)
    },
    "Section 5: starts in the linear cone": {"basin": other_basin(beta=always(0.9))},
    "Section 5: from the linear cone into the dead one": (
        {"basin": other_basin(beta=always(0.0))},
        {"basin": other_basin(change=shallow)},
    ),
    "Section 5: linear cone is affine": {"gradient": lambda *a: [1.1 * g for g in gradient(*a)]},
    "ours: the field is homogeneous": {"gradient": biased},
    "(30)-(32) one weight": {"rotation": doubled},
    "Lemma C.1": {"rotation": doubled},
    "Lemma C.2": {"rotation": flattened},
    "Lemma C.3": {"rotation": sheared},
    "Proposition C.1": {"firing_probability": fires_less},
    "Figure 3": {"basin": other_basin(gamma=always(1.0))},
    "Figure 3: gradients in the dead cone": {"gradient": biased},
    "Section 5: lower left quadrant": {"basin": other_basin(change=everybody(0))},
    "Figure 4: the region switches sign": {"basin": other_basin(gamma=always(1.0))},
    "Figure 4: the majority converges": (
        {"basin": other_basin(change=everybody(0))},
        {"basin": other_basin(change=everybody(1))},
    ),
    "Section 5: dead units stop on the cone's surface": {"basin": other_basin(change=deeper)},
    "Figure 5": (
        {"basin": other_basin(gamma=always(1.0))},
        {"basin": other_basin(change=everybody(1))},
    ),
    "Figure 5, caption": (
        {"basin": other_basin(beta=always(0.99))},
        {"basin": other_basin(beta=always(0.0))},
    ),
    "Figure 5: no change up to beta 0.7": (
        {"basin": other_basin(beta=lambda b: 0.9 if b == 0.7 else b)},
        {"basin": other_basin(beta=always(0.0))},
    ),
    "Figure 5: the interior fills": {"basin": other_basin(beta=always(0.0))},
    "ours: momentum at gamma 1": {"basin": other_basin(gamma=always(0.01))},
    "Figure 6, born dead": (
        {"train_deep": all_alive},
        {"train_deep": born_alike},
        {"train_deep": born_undecided},
    ),
    "Figure 6, depth": DEPTHS,
    "Figure 6, residual depth": DEPTHS,
    "Figure 6, faster with depth": DEPTHS,
    "Figure 6, SGD": DEPTHS[0],
    "Figure 6, caption: gradients": {"activation": unchanged},
    "Section 6: one unit rescales": {
        "trajectory": lambda w, b, gamma, **more: trajectory(w, b, gamma**1.1, **more)
    },
    "Theorem D.1": (
        {"single_factor": lambda net, gamma: None},
        {"network": lambda rng, widths, bias: he_network(rng, widths, 1e-12 * bias)},
    ),
    "Theorem D.1, proof: gamma_n and alpha_n": {"rescale": same_factors},
    "ours: layer-wise rescaling": {"rescale": lambda net, gamma: net},
}
