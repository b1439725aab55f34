"""LipSDP-neuron by our own barrier method on the diagonal multipliers.

Along any segment of inputs, unit i with slopes in [a, b] satisfies (y - a g)(y - b g) <= 0, where g
is the change of its pre-activation and y that of its value. With multipliers t_i >= 0, if

    S(rho, t) = rho E_x - C^T C + sum_i t_i (u_i v_i^T + v_i u_i^T)  >= 0,
    u_i = e_i - a w_i,   v_i = e_i - b w_i,

over all values z = (x, units), then |C z|^2 <= rho |x|^2: sqrt(rho) is an l2 Lipschitz constant
(Fazlyab, Robey, Hassani, Morari, Pappas 2019, LipSDP-neuron; written this way it needs no chain:
w_i is unit i's row over all earlier values, so skips and any depth come for free).

We minimise rho - mu (log det S + sum log t_i) by Newton steps. The multipliers are diagonal and
every term has rank two, so the Hessian is made of entries of four products with S^-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg as sl

from relunorm import matrix as mx
from relunorm.arithmetic.floats import scaled_up
from relunorm.clock import Clock
from relunorm.errors import InvalidNetworkError
from relunorm.lipschitz.norms import is_positive_definite, round_up
from relunorm.matrix import Array, Vector
from relunorm.network import Network
from relunorm.regions.balance import to_size

METHOD = "LipSDP"

#: Largest number of inputs plus units the dense method takes on.
MAX_SIZE = 3000

#: Products and factorisations of the whole matrix before the first look at the clock.
STEPS_AT_LEAST = 12

#: A bound this small is as good as zero: nothing is left to improve.
TINY = 1e-100

#: Exponents of the largest weights of all maps may add up to this: Newton's matrices hold fourth
#: powers of what is beyond it, and inverses of them.
HARMLESS = 40

#: Problems smaller than this are solved with one BLAS thread.
ONE_THREAD = 400

#: Stop when the duality gap of the barrier is below this share of rho.
RELATIVE_GAP = 1e-6


@dataclass(frozen=True, eq=False)
class _Problem:
    """S(rho, t) in the coordinates z = (x, units): rows of U and V per unit, C for the outputs."""

    inputs: int
    U: Array
    V: Array
    C: Array
    layers: tuple[slice, ...]

    def matrix(self, rho: float, t: Vector) -> Array:
        half = (self.U.T * t) @ self.V
        S = half + half.T - self.C.T @ self.C
        S[np.diag_indices(self.inputs)] += rho
        return S


def lipsdp(network: Network, time_limit: float | Clock | None = None) -> float:
    """A sound upper bound on the l2 Lipschitz constant; any depth, skips and vector outputs.

    The multipliers found are not trusted: the value returned is one for which a Cholesky
    factorisation with a rounding margin proved S >= 0. Cost: about 30 Newton steps, each a few
    products of matrices of size inputs + units (at most `MAX_SIZE`).

    >>> from relunorm.network import Network
    >>> round(lipsdp(Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])), 4)  # |x|
    1.0
    """
    network, exponent = to_size(network.folded(), HARMLESS)
    return scaled_up(_bound(_problem(network), Clock(time_limit)), exponent)


def _bound(problem: _Problem, clock: Clock) -> float:
    if not len(problem.U):
        return _certified(problem, np.zeros(0))
    from threadpoolctl import threadpool_limits

    # Below some hundred rows a second BLAS thread costs more than it brings, a busy machine aside.
    # What overflows on the way proves nothing, and says so: the last factorisation fails.
    threads = threadpool_limits(1 if problem.U.shape[1] < ONE_THREAD else None, user_api="blas")
    with threads, np.errstate(over="ignore", invalid="ignore"):
        rho, t = _start(problem)
        best = _certified(problem, t)
        if best <= TINY:
            return best
        _, t = _minimize(problem, rho, t, clock)
        return min(best, _certified(problem, t))


def shortest(network: Network) -> float:
    """Operations before `lipsdp` can first look at the clock, about: the start and its proof.

    None for a network beyond `MAX_SIZE`, which is refused at once.
    """
    size = network.input_size + network.units
    return 0.0 if size > MAX_SIZE else STEPS_AT_LEAST * float(size) ** 3


def _problem(network: Network) -> _Problem:
    size = network.input_size + network.units
    if any(layer.activation.kind == "step" for layer in network.layers):
        raise InvalidNetworkError("LipSDP: a step unit jumps, so its slope has no bound")
    rows = {i: mx.dense(a.terms[0]) for i, a in enumerate(network.maps) if 0 in a.terms}
    reduced = min(network.input_size, sum(len(r) for r in rows.values()))
    if network.units + reduced > MAX_SIZE:
        raise InvalidNetworkError(
            f"LipSDP: {size} inputs and units, but the dense solver stops at {MAX_SIZE}"
        )
    # f sees x only through the rows that read it: an orthonormal basis of them loses nothing.
    stacked = np.concatenate(list(rows.values())) if rows else np.zeros((0, network.input_size))
    inputs = network.input_size
    if len(stacked) < inputs:
        reduced_rows = (
            np.asarray(np.linalg.qr(stacked.T, "r")).T if len(stacked) else np.zeros((0, 0))
        )
        inputs = reduced_rows.shape[1]
        cuts = np.cumsum([len(r) for r in rows.values()])[:-1]
        if rows:
            rows = dict(zip(rows, np.split(reduced_rows, cuts), strict=True))
    starts = inputs + np.concatenate(([0], np.cumsum([layer.width for layer in network.layers])))

    def full(index: int) -> Array:
        affine = [*network.maps][index]
        matrix = np.zeros((affine.size, inputs + network.units))
        for source, term in affine.terms.items():
            if source == 0:
                matrix[:, :inputs] = rows[index]
            else:
                matrix[:, starts[source - 1] : starts[source]] = mx.dense(term)
        return matrix

    U = np.zeros((network.units, inputs + network.units))
    V = np.zeros_like(U)
    for index, layer in enumerate(network.layers):
        place = slice(starts[index] - inputs, starts[index + 1] - inputs)
        weight = full(index)
        unit = np.zeros_like(weight)
        unit[:, starts[index] : starts[index + 1]] = np.eye(layer.width)
        lo, hi = sorted(layer.activation.slopes)
        U[place], V[place] = unit - lo * weight, unit - hi * weight
    layers = tuple(slice(int(a), int(b)) for a, b in pairwise(starts))
    return _Problem(inputs, U, V, full(len(network.layers)), layers)


def _start(problem: _Problem) -> tuple[float, Vector]:
    """A strictly feasible point: from the last layer back, eliminate one layer's values at a time.

    With Q the form still to be dominated, t above half the largest eigenvalue of Q on the layer
    makes the layer's block negative definite; its maximum is a form in the earlier values.
    """
    Q = problem.C.T @ problem.C
    t = np.empty(len(problem.U))
    for block in reversed(problem.layers):
        own = slice(block.start - problem.inputs, block.stop - problem.inputs)
        top = float(np.max(sl.eigvalsh(Q[block, block])))
        scale = max(top, 1e-6 * float(np.abs(Q).max()), 1e-12)
        t[own] = 1.05 * scale
        U, V = problem.U[own], problem.V[own]
        half = 1.05 * scale * (U.T @ V)
        Q = Q - half - half.T
        early = slice(0, block.start)
        solved = np.linalg.solve(Q[block, block], Q[block, early])
        schur = Q[early, early] - Q[early, block] @ solved
        Q = np.zeros_like(Q)
        Q[early, early] = (schur + schur.T) / 2
    x = slice(0, problem.inputs)
    rho = float(np.max(sl.eigvalsh(Q[x, x]), initial=0.0))
    return 1.05 * max(rho, 1e-300), t


def _minimize(problem: _Problem, rho: float, t: Vector, clock: Clock) -> tuple[float, Vector]:
    """Follow the central path by Newton steps; every iterate is strictly feasible."""
    size = problem.inputs + 2 * len(t)
    mu = rho / size
    for _ in range(200):
        if clock.expired():
            break
        step = _newton(problem, rho, t, mu)
        if step is None:
            break
        direction, decrement = step
        length = _line_search(problem, rho, t, mu, direction, decrement)
        if length == 0.0:
            break
        rho, t = rho + length * direction[0], t + length * direction[1:]
        if decrement < 0.5:
            if mu * size < RELATIVE_GAP * rho:
                break
            mu *= 0.1
    return rho, t


def _newton(problem: _Problem, rho: float, t: Vector, mu: float) -> tuple[Vector, float] | None:
    """The Newton direction in (rho, t) of the barrier function over mu, and its decrement."""
    U, V, x = problem.U, problem.V, slice(0, problem.inputs)
    try:
        factor = sl.cho_factor(problem.matrix(rho, t), lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    P: Any = sl.cho_solve(factor, np.eye(U.shape[1]), check_finite=False)
    PU, PV = P @ U.T, P @ V.T
    uv = U @ PV
    gradient = np.empty(len(t) + 1)
    gradient[0] = 1 / mu - np.trace(P[x, x])
    gradient[1:] = -2 * np.diagonal(uv) - 1 / t
    hessian = np.empty((len(t) + 1, len(t) + 1))
    hessian[0, 0] = np.sum(P[x, x] ** 2)
    hessian[0, 1:] = hessian[1:, 0] = 2 * np.sum(PU[x] * PV[x], axis=0)
    hessian[1:, 1:] = 2 * ((U @ PU) * (V @ PV) + uv * uv.T)
    hessian[np.arange(1, len(t) + 1), np.arange(1, len(t) + 1)] += 1 / t**2
    if not (np.diagonal(hessian) > 0).all():
        return None
    scale = 1 / np.sqrt(np.diagonal(hessian))
    try:
        inner = sl.cho_factor(hessian * scale * scale[:, None], lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    direction = -scale * sl.cho_solve(inner, scale * gradient, check_finite=False)
    return direction, float(np.sqrt(max(-direction @ gradient, 0.0)))


def _line_search(
    problem: _Problem, rho: float, t: Vector, mu: float, direction: Vector, decrement: float
) -> float:
    """A step length that stays feasible and decreases the barrier function; 0 when none does."""
    change = direction[1:]
    shrinking = change < 0
    limit = float((t[shrinking] / -change[shrinking]).min(initial=np.inf))
    length = min(1.0, 0.95 * limit)
    start = _barrier(problem, rho, t, mu)
    for _ in range(40):
        value = _barrier(problem, rho + length * direction[0], t + length * change, mu)
        if value <= start - 1e-4 * length * decrement**2 + 1e-12 * abs(start):
            return length
        length *= 0.5
    return 0.0


def _barrier(problem: _Problem, rho: float, t: Vector, mu: float) -> float:
    try:
        factor = sl.cholesky(problem.matrix(rho, t), lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.inf
    return rho / mu - 2 * float(np.log(np.diagonal(factor)).sum()) - float(np.log(t).sum())


def _certified(problem: _Problem, t: Vector) -> float:
    """The square root of a rho near the best for these multipliers, proved feasible."""
    x, rest = slice(0, problem.inputs), slice(problem.inputs, None)
    S = problem.matrix(0.0, t)
    try:
        factor = sl.cho_factor(S[rest, rest], check_finite=False)
        schur = S[x, x] - S[x, rest] @ sl.cho_solve(factor, S[rest, x], check_finite=False)
        floor = float(np.min(sl.eigvalsh((schur + schur.T) / 2), initial=0.0))
    except np.linalg.LinAlgError:
        return np.inf
    value, growth = max(-floor, 0.0), 1e-12
    while growth < 1e3:
        candidate = value * (1 + growth) + 1e-300
        if is_positive_definite(problem.matrix(candidate, t)):
            return round_up(float(np.sqrt(candidate)), 8 * problem.U.shape[1])
        growth *= 4
    return np.inf
