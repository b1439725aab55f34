"""Worlds in which a claim on seed 003 comes out otherwise."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from relunorm.lipschitz.methods.theorem6 import theorem6
from relunorm.network import Activation, Network
from relunorm.papers.exhibit import he_network
from relunorm.papers.pieces import (
    constant_bound,
    count_bound,
    indicator,
    path_sums,
    pattern,
    power_bound,
    product,
    spectral_bound,
    tight_frame,
)
from relunorm.papers.pieces.examples import FIGURE2
from relunorm.regions.enumerate import regions
from relunorm.regions.region import region_at


class Lying:
    """Another object but for some attributes."""

    def __init__(self, truth, **lies):
        self.__dict__["truth"], self.__dict__["lies"] = truth, lies

    def __getattr__(self, name):
        return self.lies[name] if name in self.lies else getattr(self.truth, name)

    def __len__(self):
        return len(self.truth)


def lossy(net, domain):
    """The last region is lost."""
    found = regions(net, domain)
    return found.select(np.arange(len(found) - 1))


def lossy_plane(net, domain):
    """The last region of networks of two hidden layers is lost, in the whole plane alone."""
    return lossy(net, domain) if domain is None and len(net.layers) == 2 else regions(net, domain)


def wrong_maps(net, domain):
    """The regions of a network whose output is a little higher."""
    weights, biases = net.weights()
    return regions(Network.from_weights(weights, [np.asarray(b) + 1e-3 for b in biases]), domain)


def leaky_regions(net, domain):
    """The regions of a network whose units pass a tenth when they are off."""
    found = regions(net, domain)
    (first, second, _), _ = net.weights()
    coarse, parents = found.layer(1)
    gates = np.where(coarse.patterns, 1.0, 0.1)
    lines = np.asarray(second) @ (gates[:, :, None] * np.asarray(first))
    lie = Lying(coarse, affine=lambda: (lines, coarse.affine()[1]))
    return Lying(found, layer=lambda k: (lie, parents))


def torn(net, domain):
    """Every region's map shifted by its own amount."""
    found = regions(net, domain)
    A, c = found.affine()
    return Lying(found, affine=lambda: (A, c + 1e-3 * np.arange(len(c))[:, None]))


def biased_regions(net, domain):
    """The regions of the network with biases."""
    weights, biases = net.weights()
    rng = np.random.default_rng(0)
    return regions(Network.from_weights(weights, [rng.normal(size=len(b)) for b in biases]), domain)


def translated_regions(net, domain):
    """The regions of the network moved to (1, -0.5): cones, but not with their tips at 0."""
    weights, biases = net.weights()
    first = np.asarray(biases[0]) - np.asarray(weights[0]) @ [1.0, -0.5]
    return regions(Network.from_weights(weights, [first, *biases[1:]]), domain)


def affine_maps(net, domain):
    """Cones whose maps are all a little higher."""
    found = regions(net, domain)
    A, c = found.affine()
    return Lying(found, affine=lambda: (A, c + 1e-3))


def other_adjacency(net, domain):
    """Neighbours drawn at random."""
    found = regions(net, domain)
    chance = np.random.default_rng(0).random((len(found), len(found))) < 0.5
    from scipy.sparse import csr_matrix

    return Lying(found, adjacency=lambda: csr_matrix(chance))


def always_on(rng, widths, bias=0.5):
    """A network whose units are all on: one region."""
    weights, _ = he_network(rng, widths, bias).weights()
    high = [np.full(n, 1e3) for n in widths[1:]]
    return Network.from_weights([np.abs(np.asarray(w)) for w in weights], high)


def negated_b2(net, domain):
    """The regions of the network with the biases of its second layer negated."""
    weights, (first, second, *rest) = net.weights()
    return regions(Network.from_weights(weights, [first, -np.asarray(second), *rest]), domain)


def ungated(net, thetas):
    """(10) without its last diagonal matrix."""
    return product(net, [*thetas[:-1], np.ones_like(thetas[-1])])


def doubled_paths(weights, supports):
    """Every coefficient twice as large."""
    total, paths = path_sums(weights, supports)
    return 2 * total, paths


def positive_paths(weights, supports):
    """Path sums of the absolute weights."""
    return path_sums([np.abs(w) for w in weights], supports)


def by_steps(slope):
    """The indicator of [0, 1] itself, by two steps: a network that is not continuous."""
    return Network.from_weights(
        [[[1.0], [1.0]], [[1.0, -1.0]]], [[0.0, -1.0], [0.0]], Activation("step")
    )


def loose_frame(rng, bound):
    """A frame that is not tight."""
    return tight_frame(rng, bound) * np.array([[1.0], [1.0], [1.1]])


def shifted_region(net, x):
    """Maps, atoms and bias a little off."""
    found = region_at(net, x)
    A, c = found.affine
    atoms = found.atoms()
    lie = Lying(
        atoms,
        bias=atoms.bias + 1e-3,
        error=atoms.error + 1e-3,
        coefficients=atoms.coefficients + 1e-3,
    )
    return Lying(found, affine=(A, c + 1e-3), atoms=lambda: lie)


def swapped_region(net, x):
    """The bits of the first layer exchanged."""
    found = region_at(net, x)
    first, *rest = found.configuration
    return Lying(found, configuration=(first[::-1], *rest))


def fewer_supports(net, x):
    """The last active unit before the eight outputs is forgotten."""
    found = region_at(net, x)
    if net.widths[-1] < 8:
        return found
    return Lying(found, supports=(*found.supports[:-1], found.supports[-1][:-1]))


@cache
def lower_bounds(factor):
    """Theorem 6 with every bound multiplied."""

    def wrong(net, **options):
        found = theorem6(net, **options)
        names = ("count", "paths", "spectral")
        lies = {name: factor * getattr(found, name) for name in names}
        lies["gradients"] = tuple(factor * g for g in found.gradients)
        return Lying(found, **lies)

    return wrong


class SlopeOneAtZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        (z,) = ctx.saved_tensors
        return gradient * (z >= 0)


LOWER_POWER = {"power_bound": lambda width, weight, power: 0.9 * power_bound(width, weight, power)}


def other_side(net, x):
    return ~pattern(net, x)


def of_figure2(net, domain):
    return regions(FIGURE2, domain)


def closed_pattern(net, x):
    """A unit at 0 is on."""
    return np.hstack([z >= 0 for z in net.preactivations(x)])


PLANTED = {
    "Introduction: dense in L^p": (
        {"indicator": by_steps},
        {"indicator": lambda slope: indicator(10.0)},
    ),
    "Section 2: the dual of a tight frame": (
        {"tight_frame": lambda rng, bound: tight_frame(rng, 1.0)},
        {"tight_frame": loose_frame},
    ),
    "(5)-(9) rectifier as a diagonal matrix": (
        {"pattern": other_side},
        {"pattern": closed_pattern},
    ),
    "(10) affine map of a configuration": ({"product": ungated}, {"region_at": shifted_region}),
    "Section 3.1: M1 = 0 has the zero configuration only": (
        {"pattern": lambda net, x: 0 * pattern(net, x)},
        {"pattern": other_side},
    ),
    "Example 1": {"pattern": other_side},
    "Example 2, regions of the first layer": {"region_at": swapped_region},
    "Example 2, zero configuration": (
        {"network": lambda rng, widths: he_network(rng, widths, 0.0)},
        {"regions": negated_b2},
    ),
    "Example 2, number of regions": {"regions": lossy},
    "Figure 1": {"regions": of_figure2},
    "Figure 2, left": {"regions": leaky_regions},
    "Figure 2, right": (
        {"regions": of_figure2},
        {"regions": translated_regions},
    ),
    "ours: configurations need an interior": {"regions": lossy},
    "Proposition 3 (i)": ({"regions": wrong_maps}, {"product": ungated}),
    "Proposition 3 (ii)": {"regions": lossy},
    "Proposition 3, index of Theta": {"network": always_on},
    "footnote 1: pieces agree on their boundaries": {"regions": torn},
    "Corollary 4 (i)": ({"regions": wrong_maps}, {"regions": lossy_plane}),
    "Corollary 4 (ii)": (
        {"regions": biased_regions},
        {"regions": translated_regions},
        {"regions": affine_maps},
    ),
    "ours: one bit apart is not adjacent": {"regions": other_adjacency},
    "Theorem 5 (i)": ({"path_sums": doubled_paths}, {"region_at": shifted_region}),
    "Theorem 5 (ii)": ({"path_sums": positive_paths}, {"region_at": shifted_region}),
    "Theorem 5 (iii), (11)": ({"path_sums": positive_paths}, {"region_at": shifted_region}),
    "(12) coefficients and bias": ({"region_at": swapped_region}, {"region_at": shifted_region}),
    "after (12): range of a piece": {"region_at": fewer_supports},
    "Theorem 6 (i)": {"count_bound": lambda weight, supports: 0.99 * count_bound(weight, supports)},
    "Theorem 6 (i), global": {
        "global_bound": lambda weight, width, layers: 0.99 * constant_bound(weight, width, layers)
    },
    "ours: Theorem 6 (i) is tight": {"theorem6": lower_bounds(1.01)},
    "Theorem 6 (ii)": {
        "spectral_bound": lambda sigma, layers: 0.99 * spectral_bound(sigma, layers)
    },
    "ours: path sums": {"theorem6": lower_bounds(0.99)},
    "ours: product of spectral norms": {"theorem6": lower_bounds(0.99)},
    "Section 3.2: C <= 1/N": (
        {"global_bound": lambda weight, width, layers: (1.1 * weight * width) ** layers},
        {"global_bound": lambda weight, width, layers: (0.8 * weight * width) ** layers},
    ),
    "Section 3.2: Frobenius norms": {"frobenius": lambda matrix: float(np.abs(matrix).max())},
    "(13) backward pass": {"relu": lambda z: torch.nn.functional.leaky_relu(z, 0.1)},
    "(13) derivative at 0": ({"pattern": closed_pattern}, {"relu": SlopeOneAtZero.apply}),
    "before (14): norm of a matrix": {"norm_factor": lambda m, n: max(m, n) ** 0.5},
    "(14) largest gradient": ({"last_weight": 0.5}, LOWER_POWER),
    "(15) smoothness": ({"last_weight": 0.5}, LOWER_POWER),
    "after (15): a difference of inputs": {
        "network": lambda rng, widths: he_network(rng, widths, 0.0)
    },
    "Section 3.2: smoothness in x": ({"last_weight": 0.5}, LOWER_POWER),
}
