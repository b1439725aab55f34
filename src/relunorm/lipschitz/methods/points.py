"""A lower bound by search: points whose Jacobian has a large norm."""

from __future__ import annotations

import numpy as np

from relunorm import matrix as mx
from relunorm.clock import Clock
from relunorm.domain import Domain
from relunorm.errors import InvalidInputError
from relunorm.lipschitz.kinks import is_differentiable, near_kink, rounding_of, slope_sums
from relunorm.lipschitz.norms import ROUNDOFF, of_errors, operator_norms
from relunorm.lipschitz.search.windows import kink_radius
from relunorm.matrix import Array, Vector
from relunorm.network import Network

METHOD = "search"

#: Jacobian entries evaluated in one batch.
BATCH_ENTRIES = 1 << 21

#: Numbers that the products behind a batch of Jacobians may take (64 MB).
BATCH_WORK = 1 << 23

#: Populations of the first half of a search.
ISLANDS = 12

#: Points of the elite whose units are flipped one by one.
FLIP_PARENTS = 16

#: Points at a kink per batch for which it is checked whether the kink is a real one.
CLOSER_LOOKS = 4


def search(
    network: Network,
    domain: Domain | None = None,
    norm: float = 2.0,
    rounds: int = 60,
    time_limit: float | Clock | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> tuple[float, Vector]:
    """The largest norm of the Jacobian that was found, and the point: a true lower bound.

    Starts from samples of the domain (without one: Gaussian directions at radii over six decades
    around the first layer's kinks), then rounds of moves from an elite: steps of random length
    along random, coordinate and gradient directions, and segments between elites. A point counts
    only if the Jacobian there is the derivative on a whole region (`kinks`). An estimate of the
    constant from below.
    """
    rng = np.random.default_rng(random_state)
    clock = Clock(time_limit)
    entries = max(network.output_size * network.input_size, max(network.widths))
    count = int(np.clip(BATCH_ENTRIES // entries, 16, 1024))
    count = max(16, min(count, BATCH_WORK // (network.output_size * max(network.widths))))
    # without a domain half of the radius: about where the kink of a typical unit lies
    scale = domain.bounding_box.halfwidth.max() if domain is not None else kink_radius(network) / 2
    scale = float(scale) or 1.0

    def evolved(points: Array, values: Vector, count: int, rounds: int) -> tuple[Array, Vector]:
        """Rounds of moves from an elite of points; the last generation and its scores."""
        for _ in range(rounds):
            if clock.expired():
                break
            order = np.argsort(-values, kind="stable")[: max(8, count // 16)]
            elite, best = points[order], values[order]
            base = elite[(rng.random(count) ** 2 * len(elite)).astype(int)]
            moved = np.where(
                rng.random((count, 1)) < 0.5,
                _crossings(network, base, rng),
                _moves(base, elite, scale, rng),
            )
            crossed = flips(network, elite, count // 2, rng)
            moved[: len(crossed)] = crossed
            moved = clipped(moved, domain)
            points = np.concatenate([elite, moved])
            values = np.concatenate([best, _scores(network, moved, norm, domain)])
        return points, values

    # Separate populations first: one good region found early must not crowd out the others.
    parts = []
    for _ in range(ISLANDS):
        points = _starts(network, domain, count // 4, scale, rng)
        values = _scores(network, points, norm, domain)
        parts.append(evolved(points, values, count // 4, 1 + rounds // 6))
        if clock.expired():
            break
    points, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    points, values = evolved(points, values, count, rounds // 2)
    top = int(np.argmax(values))
    return at_point(network, points[top], norm, domain), points[top]


def at_point(network: Network, point: Vector, norm: float, domain: Domain | None = None) -> float:
    """The norm of the Jacobian on the region around a point, rounded down; 0 where in doubt."""
    value = float(_scores(network, np.asarray(point)[None], norm, domain)[0])
    if value <= 0.0:
        return 0.0
    # Cancellation: the Jacobian is off by the rounding of its path sums, not of itself.
    bulk = slope_sums(network, point)
    lost = rounding_of(network) * of_errors(bulk, norm)
    value = value * (1 - 8 * sum(bulk.shape) * ROUNDOFF) - lost
    return max(value, 0.0)


def _starts(
    network: Network, domain: Domain | None, count: int, scale: float, rng: np.random.Generator
) -> Array:
    if domain is not None:
        return domain.sample(count, rng)
    directions = rng.standard_normal((count, network.input_size))
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    return directions * scale * 10.0 ** rng.uniform(-2.0, 4.0, (count, 1))


def _moves(base: Array, elite: Array, scale: float, rng: np.random.Generator) -> Array:
    """Steps of lengths over four decades, some along few axes, some along segments of the elite."""
    count, size = base.shape
    length = scale * 10.0 ** rng.uniform(-3.5, 0.5, (count, 1))
    steps = rng.standard_normal((count, size)) / np.sqrt(size)
    axis = rng.random(count) < 0.3
    steps[axis] *= rng.random((int(axis.sum()), size)) < 2.0 / size
    between = rng.random(count) < 0.2
    other = elite[rng.integers(len(elite), size=count)]
    blend = rng.uniform(-0.5, 1.5, (count, 1))
    return np.where(between[:, None], base + blend * (other - base), base + length * steps)


def _crossings(network: Network, base: Array, rng: np.random.Generator) -> Array:
    """Walk along a random direction just past the kink of one of the nearest units."""
    count, size = base.shape
    direction = rng.standard_normal((count, size))
    values, rates, ends = [base], [direction], []
    for layer in network.layers:
        z = layer.affine(values)
        slope = layer.activation.derivative(z)
        # The bias has rate 0: subtract it from the affine map of the rates.
        rate = layer.affine(rates) - layer.affine.bias
        with np.errstate(divide="ignore", invalid="ignore"):
            end = -z / rate
        ends.append(np.where(np.isfinite(end), end, np.inf))
        rates.append(rate * slope)
        values.append(layer.activation.apply_(z))
    if not ends:
        return base
    crossing = np.concatenate(ends, axis=1)
    order = np.argsort(np.abs(crossing), axis=1)
    rank = np.minimum(rng.geometric(0.25, count), crossing.shape[1]) - 1
    rows = np.arange(count)
    chosen, after = order[rows, rank], order[rows, np.minimum(rank + 1, crossing.shape[1] - 1)]
    reach = crossing[rows, chosen]
    with np.errstate(invalid="ignore"):  # inf - inf: no unit changes along the direction
        gap = np.abs(crossing[rows, after]) - np.abs(reach)
        length = np.abs(reach) + np.where(np.isfinite(gap), 0.5 * gap, 0.1 * np.abs(reach))
    length = np.where(np.isfinite(length), length, 0.0)
    return base + (np.sign(reach) * length)[:, None] * direction


def flips(network: Network, elite: Array, count: int, rng: np.random.Generator) -> Array:
    """Cross the kink of one unit along its own gradient: a coordinate search in patterns."""
    size, units = elite.shape[1], network.units
    if not units or FLIP_PARENTS * units * size > BATCH_ENTRIES:
        return elite[:0]
    parents = elite[:FLIP_PARENTS]
    values: list[Array] = [parents]
    rates = [np.broadcast_to(np.eye(size), (len(parents), size, size))]
    heights, gradients = [], []
    for layer in network.layers:
        z = layer.affine(values)
        rate = np.zeros((len(parents), layer.width, size))
        for source, matrix in layer.affine.terms.items():
            rate = rate + np.matmul(mx.dense(matrix), rates[source])
        heights.append(z.copy())
        gradients.append(rate)
        rates.append(rate * layer.activation.derivative(z)[:, :, None])
        values.append(layer.activation.apply_(z))
    z, g = np.concatenate(heights, axis=1), np.concatenate(gradients, axis=1)
    who, unit = rng.integers(len(parents), size=count), rng.integers(units, size=count)
    normal = g[who, unit]
    square = np.maximum(np.einsum("nd,nd->n", normal, normal), 1e-300)
    beyond = 1 + 10.0 ** rng.uniform(-4, 0, count)
    with np.errstate(over="ignore"):
        step = np.minimum(np.abs(beyond * z[who, unit] / square), 1e12)
    return parents[who] - (np.sign(z[who, unit]) * step)[:, None] * normal


def clipped(points: Array, domain: Domain | None) -> Array:
    """Back into the domain: exact for a box and a ball; points outside a polytope move inward."""
    if domain is None:
        return points
    if domain.as_box is not None or domain.as_ball is not None:
        return domain.project(points)
    for _ in range(6):
        outside = ~domain.contains(points)
        points[outside] = (points[outside] + domain.center) / 2
    points[~domain.contains(points)] = domain.center
    return points


def _scores(network: Network, points: Array, norm: float, domain: Domain | None) -> Vector:
    """Norms of the Jacobians; -1 for points where some unit is within rounding of its kink."""
    values = operator_norms(network.jacobian(points), norm)
    near = np.flatnonzero(near_kink(network, points, domain))
    # The best of the points at a kink get a closer look: the unit may vanish on a whole region.
    closer = near[np.argsort(-values[near])[:CLOSER_LOOKS]]
    kept = [i for i in closer if is_differentiable(network, points[i], domain)]
    scores = values.copy()
    scores[near] = -1.0
    scores[kept] = values[kept]
    return scores


def check_lipschitz(network: Network) -> None:
    """Refuse step units: a network that jumps has no Lipschitz constant."""
    for index, layer in enumerate(network.layers):
        if layer.activation.kind == "step":
            raise InvalidInputError(
                f"layer {index} ({layer.name or 'unnamed'}) has step units: the network jumps, so "
                "it has no Lipschitz constant"
            )
