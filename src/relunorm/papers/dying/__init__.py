"""Seed 002, "The effect of Target Normalization and Momentum on Dying ReLU", re-run.

The world that its claims rest on, and its exhibits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.dying.basins import basin, dead_below, firing_probability, linear_above
from relunorm.dying.target import TargetScaler, rescale_targets, single_factor
from relunorm.network import Network
from relunorm.papers.dying.basin_maps import figure3, figure4, figure5
from relunorm.papers.dying.dead_layers import scaling, setting
from relunorm.papers.dying.one_unit import appendix_c, unit
from relunorm.papers.dying.oscillation import affine, figure2, momentum
from relunorm.papers.dying.target_scales import figure1, figure6, read_sample
from relunorm.papers.dying.unit_loss import gradient, loss, trajectory
from relunorm.papers.exhibit import Make, World, he_network

Array = NDArray[np.float64]
Table = dict[str, tuple[Array, Array]]


def scaled_targets(y: Array, gamma: float) -> Array:
    """(1): targets of scale gamma."""
    return TargetScaler(gamma=gamma).fit_transform(y)


def standard_normal_plane() -> tuple[Array, Array]:
    """Gauss-Hermite points and weights of the standard normal in the plane."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    weights = weights / weights.sum()
    points = np.array(list(itertools.product(nodes, nodes)))
    return points, np.outer(weights, weights).ravel()


def relu(z: Array) -> Array:
    return np.maximum(z, 0.0)


def affine_model(z: Array) -> tuple[Array, Array]:
    """Section 4's model: its output and the slope of that, at w.x + b."""
    return z, np.ones_like(z)


def rotation(w: Array, rng: np.random.Generator) -> Array:
    """A random unitary U with U w = (0, ..., 0, |w|), as (13) asks: a Householder reflection, then
    a random orthogonal matrix of the first L - 1 axes."""
    length = float(np.linalg.norm(w))
    axis = w - np.append(np.zeros(len(w) - 1), length)
    reflection = np.eye(len(w))
    if np.linalg.norm(axis) > 1e-14 * length:
        reflection -= 2 * np.outer(axis, axis) / (axis @ axis)
    turn = np.eye(len(w))
    turn[:-1, :-1] = np.linalg.qr(rng.normal(size=(len(w) - 1, len(w) - 1)))[0]
    return turn @ reflection


def relu_gradient(z: Any) -> Any:
    """The rectifier of a torch network, whose gradient is 0 where it is off."""
    import torch

    return torch.relu(z)


def train(plan: Any, tables: Table) -> list[dict[str, Any]]:
    """Figure 1's networks: one dict per run with data, gamma, delta, optimizer, seed, mse, dead."""
    from relunorm.dying.scale_sweep import Sweep, SweepResult

    found = Sweep(plan, tables).run()
    return [dict(zip(SweepResult.COLUMNS, row, strict=True)) for row in found.rows]


def train_deep(plan: Any, x: Array, y: Array) -> dict[Any, Any]:
    """Figure 6's networks: setting -> shares born dead, dead after a third, dead, per seed."""
    from relunorm.papers.dying.deep_training import train_deep

    return train_deep(plan, x, y)


@dataclass(frozen=True)
class Dying(World):
    """One unit's loss, gradient, cones and paths; the momentum system; and training."""

    inputs: Callable[[], tuple[Array, Array]] = standard_normal_plane
    relu: Callable[[Array], Array] = relu
    model: Callable[[Array], tuple[Array, Array]] = affine_model
    gradient: Callable[..., Any] = gradient
    loss: Callable[..., Any] = loss
    firing_probability: Callable[..., Any] = firing_probability
    dead_below: Callable[[float], float] = dead_below
    linear_above: Callable[[float], float] = linear_above
    rotation: Callable[[Array, np.random.Generator], Array] = rotation
    trajectory: Callable[..., Any] = trajectory
    basin: Callable[..., Any] = basin
    momentum: Callable[..., Any] = momentum
    scaled_targets: Callable[[Array, float], Array] = scaled_targets
    single_factor: Callable[..., float | None] = single_factor
    rescale: Callable[..., Any] = rescale_targets
    activation: Callable[[Any], Any] = relu_gradient
    network: Callable[..., Network] = he_network
    train: Callable[..., list[dict[str, Any]]] = train
    train_deep: Callable[..., dict[Any, Any]] = train_deep


WORLD = Dying
EXHIBITS: dict[str, Make] = {
    make.__name__: make
    for make in (
        figure1, figure2, figure3, figure4, figure5, figure6, setting, affine, unit, appendix_c,
        scaling,
    )
}  # fmt: skip

__all__ = ["EXHIBITS", "WORLD", "Dying", "read_sample"]
