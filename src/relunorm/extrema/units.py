"""Branch and bound on the signs of units, for inputs of high dimension.

A node fixes the signs of some units. Its bound is a Lagrangian: backward linear bounds in which
every undecided unit has a free slope alpha between its two slopes, and every decided unit a
multiplier beta >= 0 for the sign it must keep. Any alpha and beta give a sound bound (Xu et al.
2021, Wang et al. 2021, "alpha, beta-CROWN"); a few steps of projected ascent make it good. The
derivative of the bound comes from one forward pass through the chosen lines at the maximising
corner. All nodes of a batch are done together by matrix products.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Ball, Domain, Polytope
from relunorm.domain.base import lengths
from relunorm.extrema.problem import Search
from relunorm.extrema.relaxation import SLACK, UnitBounds, unit_bounds
from relunorm.network import Affine, Layer, Network

Batch = NDArray[np.float64]

#: Nodes bounded together, and steps of ascent per node (the root gets more).
BATCH, STEPS, ROOT_STEPS = 64, 30, 80

#: First step length of the ascent and the factor it shrinks by.
RATE, DECAY = 0.3, 0.96


@dataclass(frozen=True, eq=False)
class _Node:
    signs: NDArray[np.int8]  # per unit: 1 active, -1 inactive, 0 open
    alpha: NDArray[np.float64]
    beta: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Bounded:
    upper: NDArray[np.float64]  # (n,)
    corner: Batch  # (n, d) maximisers
    alpha: Batch
    beta: Batch
    gain: Batch  # (n, units): how much relaxing each open unit costs the bound


def split_units(search: Search) -> None:
    """Run until the interval closes, a target decides, or time is up; updates ``search``."""
    network = search.network
    box = search.domain.bounding_box
    clock = search.clock.part(share=0.5)
    bounds = unit_bounds(network, box.lo[None], box.hi[None], search.domain, clock=clock)
    units = network.units
    low = np.concatenate([*(a[0] for a in bounds.lows), np.zeros(0)])
    high = np.concatenate([*(a[0] for a in bounds.highs), np.zeros(0)])
    signs = np.where(high <= 0, -1, np.where(low >= 0, 1, 0)).astype(np.int8)
    root = _Node(signs, (high > -low).astype(np.float64), np.zeros(units))
    first = _bound(search, bounds, [root], ROOT_STEPS)
    heap = [(-float(first.upper[0]), 0, _child(root, first, 0), first.gain[0])]
    count, settled = 1, -np.inf
    while heap:
        search.upper = max(search.lower, -heap[0][0], settled)
        search.report()
        if -heap[0][0] <= search.floor or search.decided() or search.out_of_time():
            return
        taken = [heapq.heappop(heap) for _ in range(min(BATCH // 2, len(heap)))]
        pending = [-entry[0] for entry in taken]
        children: list[_Node] = []
        limits: list[float] = []
        for bound, _, node, gain in taken:
            if -bound <= search.floor:
                continue
            unit = int(np.argmax(np.where(node.signs == 0, gain, -1.0)))
            if node.signs[unit] != 0:
                settled = max(settled, min(_leaf(search, node), -bound))
                continue
            for sign in (-1, 1):
                signs = node.signs.copy()
                signs[unit] = sign
                children.append(_Node(signs, node.alpha, node.beta))
                limits.append(-bound)
        if children:
            search.upper = max([search.lower, settled, *pending, *(-h[0] for h in heap[:1])])
            found = _bound(search, bounds, children, STEPS)
            search.nodes += len(children)
            for i, node in enumerate(children):
                value = min(float(found.upper[i]), limits[i])
                if value > search.floor:
                    entry = (-value, count, _child(node, found, i), found.gain[i])
                    heapq.heappush(heap, entry)
                    count += 1
    search.upper = max(search.lower, search.floor, settled)


def _child(node: _Node, found: _Bounded, i: int) -> _Node:
    return _Node(node.signs, found.alpha[i], found.beta[i])


def _bound(search: Search, bounds: UnitBounds, nodes: list[_Node], steps: int) -> _Bounded:
    """Upper bounds by projected ascent on alpha and beta; the best of all steps is kept."""
    signs = np.array([n.signs for n in nodes])
    alpha, beta = np.array([n.alpha for n in nodes]), np.array([n.beta for n in nodes])
    best: _Bounded | None = None
    size = np.abs(np.concatenate([*(a[0] for a in bounds.highs), np.zeros(0)])) + np.abs(
        np.concatenate([*(a[0] for a in bounds.lows), np.zeros(0)])
    )
    moment = [np.zeros_like(alpha), np.zeros_like(alpha)], [np.zeros_like(beta)] * 2
    for step in range(steps + 1):
        found, slope_alpha, slope_beta = _evaluate(search, bounds, signs, alpha, beta)
        best = found if best is None else _keep(best, found)
        if step == 0 or step == steps:
            search.offer(found.corner)
        if step == steps or (best.upper <= search.floor).all() or search.out_of_time():
            break
        rate = RATE * DECAY**step
        alpha = np.clip(alpha - rate * _adam(moment[0], slope_alpha, step), 0.0, 1.0)
        scale = np.maximum(np.abs(search.lower), 1e-3) / np.maximum(size, 1e-9)
        beta = np.maximum(beta - rate * scale * _adam(moment[1], slope_beta, step), 0.0)
        beta = np.where(signs == 0, 0.0, beta)
    assert best is not None
    return best


def _adam(moment: list[Batch], gradient: Batch, step: int) -> Batch:
    """Adam's normalised direction (Kingma and Ba 2015); updates the two moments."""
    moment[0] = 0.9 * moment[0] + 0.1 * gradient
    moment[1] = 0.99 * moment[1] + 0.01 * gradient**2
    mean = moment[0] / (1 - 0.9 ** (step + 1))
    spread = np.sqrt(moment[1] / (1 - 0.99 ** (step + 1)))
    return mean / np.maximum(spread, 1e-12)


def _keep(old: _Bounded, new: _Bounded) -> _Bounded:
    better = new.upper < old.upper
    pick = better[:, None]
    return _Bounded(
        np.where(better, new.upper, old.upper),
        np.where(pick, new.corner, old.corner),
        np.where(pick, new.alpha, old.alpha),
        np.where(pick, new.beta, old.beta),
        np.where(pick, new.gain, old.gain),
    )


def _evaluate(
    search: Search, bounds: UnitBounds, signs: NDArray[np.int8], alpha: Batch, beta: Batch
) -> tuple[_Bounded, Batch, Batch]:
    """The bound at given alpha and beta, and its derivatives with respect to them."""
    network, count = search.network, len(signs)
    held = {k: np.tile(mx.dense(m), (count, 1)) for k, m in network.output.terms.items()}
    constant = np.full(count, network.output.bias[0])
    weight = np.abs(constant)
    slopes: list[Batch] = []
    shifts: list[Batch] = []
    given: list[Batch] = []
    gain = np.zeros(signs.shape)
    cuts = np.concatenate([[0], np.cumsum([layer.width for layer in network.layers])]).astype(int)
    for index in range(len(network.layers) - 1, -1, -1):
        layer = network.layers[index]
        part = slice(cuts[index], cuts[index + 1])
        c = held.pop(index + 1, np.zeros((count, layer.width)))
        slope, shift = _lines(
            c, bounds.lows[index], bounds.highs[index], signs[:, part], alpha[:, part], layer
        )
        gain[:, part] = np.abs(c) * np.abs(_gap(bounds.lows[index], bounds.highs[index], layer))
        gain[:, part] += 1e-3 * np.abs(c * shift)
        a = c * slope + beta[:, part] * signs[:, part]
        constant = constant + np.einsum("nu,nu->n", c, shift) + a @ layer.affine.bias
        weight = weight + np.abs(c * shift).sum(axis=1) + np.abs(a) @ np.abs(layer.affine.bias)
        for source, matrix in layer.affine.terms.items():
            extra = a @ matrix
            held[source] = held[source] + extra if source in held else np.asarray(extra)
        slopes.append(slope)
        shifts.append(shift)
        given.append(c)
    form = held.get(0, np.zeros((count, network.input_size)))
    upper, corner = _support(search.domain, form)
    size = weight + np.abs(form) @ np.maximum(
        np.abs(search.domain.bounding_box.lo), np.abs(search.domain.bounding_box.hi)
    )
    upper = upper + constant + 100 * SLACK * size
    da, db = _derivatives(search, corner, slopes[::-1], shifts[::-1], given[::-1], signs, bounds)
    return _Bounded(upper, corner, alpha, beta, gain), da, db


def _lines(
    c: Batch, low: Batch, high: Batch, signs: NDArray[np.int8], alpha: Batch, layer: Layer
) -> tuple[Batch, Batch]:
    """The line used for each unit: exact where decided, else above or below by the sign of c."""
    below, above = layer.activation.slopes
    width = np.maximum(high - low, 1e-300)
    chord = np.clip((above * high - below * low) / width, min(below, above), max(below, above))
    shift = above * high - chord * high
    use_chord = (c > 0) == (below <= above)
    open_slope = np.where(use_chord, chord, below + alpha * (above - below))
    slope = np.where(signs > 0, above, np.where(signs < 0, below, open_slope))
    return slope, np.where((signs == 0) & use_chord, shift, 0.0)


def _gap(low: Batch, high: Batch, layer: Layer) -> Batch:
    """The height of the triangle between the chord and the kink."""
    below, above = layer.activation.slopes
    width = np.maximum(high - low, 1e-300)
    return np.where((low < 0) & (high > 0), (above - below) * high * -low / width, 0.0)


def _support(domain: Domain, form: Batch) -> tuple[NDArray[np.float64], Batch]:
    """Maximum and a maximiser of linear forms: over a ball itself, else over the bounding box."""
    if isinstance(domain, Ball):
        length = lengths(form)[:, None]
        unit = np.divide(form, length, out=np.zeros_like(form), where=length > 0)
        corner = domain.center + domain.reach * unit
        return form @ domain.center + domain.reach * length[:, 0], corner
    box = domain.bounding_box
    corner = np.where(form > 0, box.hi, box.lo)
    return np.einsum("nd,nd->n", form, corner), corner


def _derivatives(
    search: Search,
    corner: Batch,
    slopes: list[Batch],
    shifts: list[Batch],
    given: list[Batch],
    signs: NDArray[np.int8],
    bounds: UnitBounds,
) -> tuple[Batch, Batch]:
    """d upper / d alpha and d upper / d beta: one forward pass through the chosen lines."""
    network = search.network
    values: list[Batch] = [corner]
    alphas, betas = [np.zeros((len(corner), 0))], [np.zeros((len(corner), 0))]
    start = 0
    for index, layer in enumerate(network.layers):
        part = slice(start, start + layer.width)
        start += layer.width
        z = layer.affine(values)
        below, above = layer.activation.slopes
        free = (signs[:, part] == 0) & ((given[index] > 0) != (below <= above))
        alphas.append(np.where(free, given[index] * z * (above - below), 0.0))
        betas.append(np.where(signs[:, part] != 0, signs[:, part] * z, 0.0))
        values.append(slopes[index] * z + shifts[index])
    return np.concatenate(alphas, axis=1), np.concatenate(betas, axis=1)


def _leaf(search: Search, node: _Node) -> float:
    """All units decided: the output is affine, and one linear programme is exact."""
    from relunorm.compiled.simplex import EMPTY, FOUND, maximize, workspace

    network, domain = search.network, search.domain
    rows, rhs, gradient, constant = _walls(network, node.signs)
    if isinstance(domain, Polytope):
        rows, rhs = np.concatenate([rows, domain.A]), np.concatenate([rhs, domain.b])
    length = np.linalg.norm(rows, axis=1)
    flat = length <= 1e-14 * np.abs(rhs)
    if (rhs[flat] < 0).any():
        return -np.inf
    rows, rhs = rows[~flat] / length[~flat, None], rhs[~flat] / length[~flat]
    box, work = domain.bounding_box, workspace(network.input_size, search.stop)
    status = maximize(
        gradient, rows, rhs, len(rhs), box.lo.copy(), box.hi.copy(), search.floor - constant, work
    )
    if status == FOUND:
        search.offer(work.x[None])
        value = float(gradient @ work.x + constant)
        # What rounding leaves between the programme and the network is inside the tolerance.
        return value if value > search.floor else -np.inf
    return -np.inf if status in (EMPTY, 0) else np.inf


def _walls(
    network: Network, signs: NDArray[np.int8]
) -> tuple[Batch, NDArray[np.float64], NDArray[np.float64], float]:
    """The half-spaces rows . x <= rhs of a full pattern, and the affine map there."""
    size = network.input_size
    maps: list[tuple[Batch, NDArray[np.float64]]] = [(np.eye(size), np.zeros(size))]
    rows, rhs = [np.zeros((0, size))], [np.zeros(0)]
    start = 0

    def compose(affine: Affine) -> tuple[Batch, NDArray[np.float64]]:
        A, c = np.zeros((affine.size, size)), affine.bias.copy()
        for source, matrix in affine.terms.items():
            A, c = A + matrix @ maps[source][0], c + matrix @ maps[source][1]
        return A, c

    for layer in network.layers:
        A, c = compose(layer.affine)
        sign = signs[start : start + layer.width].astype(np.float64)
        start += layer.width
        rows.append(-sign[:, None] * A)
        rhs.append(sign * c)
        below, above = layer.activation.slopes
        slope = np.where(sign > 0, above, below)
        maps.append((slope[:, None] * A, slope * c))
    gradient, constant = compose(network.output)
    return np.concatenate(rows), np.concatenate(rhs), gradient[0], float(constant[0])
