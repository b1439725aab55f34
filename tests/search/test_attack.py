"""Attacks and walks: points that are as good as the pieces around them allow, and inside."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from relunorm import Activation, Ball, Box, Network, Polytope
from relunorm.clock import NO_LIMIT
from relunorm.search.attack import Attack
from relunorm.search.pieces import Walk, walkable


def random_network(seed: int, inputs: int, outputs: int, kind: str = "relu") -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise([inputs, 12, 12, outputs])]
    activation = Activation(kind, 0.1)
    return Network.from_weights(
        weights, [0.3 * rng.normal(size=len(w)) for w in weights], activation
    )


def least(network: Network, points: np.ndarray, A: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return (rhs - network(points) @ A.T).min(axis=1)


@pytest.mark.parametrize("seed", range(6))
def test_a_walk_ends_where_nothing_near_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed, 3, 2, "leaky" if seed % 2 else "relu")
    box = Box([-1.0] * 3, [1.0] * 3)
    sides = np.vstack([np.eye(3), -np.eye(3), np.ones(3)]), [*np.ones(6), 0.5]
    domain = Polytope(*sides) if seed % 3 == 0 else box
    A, rhs = -np.eye(2), np.array([0.1, -0.2])
    start = domain.sample(1, rng)[0]
    end = Walk(network, domain).up(start, A, rhs, NO_LIMIT, np.inf)
    value = least(network, end[None], A, rhs)[0]
    assert domain.contains(end[None], tolerance=1e-9).all()
    assert value >= least(network, start[None], A, rhs)[0]
    near = end + 1e-3 * rng.uniform(-1, 1, (4000, 3))
    near = near[domain.contains(near)]
    assert least(network, near, A, rhs).max() <= value + 2e-6


def test_a_walk_climbs_a_concave_function_to_its_top() -> None:
    top = np.array([0.3, -0.6, 0.1, 0.45])
    first = np.vstack([np.eye(4), -np.eye(4)])
    network = Network.from_weights(
        [first, -np.ones((1, 8))], [np.concatenate([-top, top]), np.zeros(1)]
    )  # -|x - top|_1: the sign of the gradient never stops to alternate
    walk = Walk(network, Box.cube(4))
    for start in Box.cube(4).sample(5, 0):
        assert np.allclose(walk.up(start, -np.eye(1), np.zeros(1), NO_LIMIT, np.inf), top)


def test_attacks_know_the_best_of_every_group() -> None:
    network = random_network(1, 4, 3)
    box = Box.cube(4)
    groups = [(-np.eye(3)[[j]], np.zeros(1)) for j in range(3)]
    attack = Attack(network, box, groups, 0)
    attack.run(NO_LIMIT)
    boxes = np.tile(box.lo, (attack.starts, 1)), np.tile(box.hi, (attack.starts, 1))
    for _ in range(12):
        attack.more(NO_LIMIT, np.inf, boxes, box.center)
    sampled = network(box.sample(20_000, 3)).max(axis=0)
    assert (attack.values >= sampled).all()
    assert np.allclose(np.diag(network(attack.points)), attack.values)
    assert box.contains(attack.points).all()
    assert attack.value == attack.values.max()


def test_where_pieces_are_curved_or_jump_nothing_walks() -> None:
    network = random_network(0, 3, 1)
    assert walkable(network, Box.cube(3))
    assert not walkable(network, Ball(np.zeros(3), 1.0))
    step = Network.from_weights([np.eye(3), np.ones((1, 3))], activation="step")
    assert not walkable(step, Box.cube(3))
    attack = Attack(network, Ball(np.zeros(3), 1.0), [(-np.eye(1), np.zeros(1))], 0)
    attack.run(NO_LIMIT)
    assert attack.walk is None
    assert np.isfinite(attack.value)
