"""A bound on the difference of two networks that sees all units of a layer at once.

Linear bounds let every unit of a layer be at its worst independently of the others, which no input
does. Here the difference is written as an affine function of numbers y in [-1, 1]: the inputs, s_i
that says where relu(z_i) is between its lines, and t_i for the difference of every open unit:

    relu(z) = a z + r (1 + s) / 2,      |2 relu(z) - z|  = |z| ,
    d'      = (e + m t) / 2,            |m t|           <= |e| ,      m = max |e| .

Both lines on the right say that |K_i(y)| <= |F_i(y)| for affine functions K_i, F_i of y. Since also
1 - y^2 >= 0, for all multipliers q, lam >= 0 that make the form on the right negative
semidefinite

    c.y  <=  max over all y of  c.y + sum q (1 - y^2) + sum lam (F(y)^2 - K(y)^2) .

Any such multipliers give a bound; descent finds good ones. (The S-procedure with the same
multipliers as in LipSDP, Fazlyab et al., NeurIPS 2019, here for a box and two networks.)

`certified` computes the bound for given multipliers with all that rounding can do: a Cholesky
factorization that succeeds proves that the matrix is positive semidefinite up to a multiple of
its trace (Rump, BIT 46, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relunorm.arithmetic.floats import UNIT, slack
from relunorm.bounds.pairs.linear import LayerBounds
from relunorm.bounds.pairs.pair import Pair, PairedMap
from relunorm.bounds.relaxation import Kink, lines
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array, Vector

RELU = Kink(0.0, 1.0, step=False)

#: Numbers y that a matrix may couple; a step of the descent costs the cube of that.
MOST = 1500

#: Steps of the first descent for a row; twice as many whenever it is taken up again.
STEPS = 12

#: How far logarithms of multipliers move, in shares of what would balance each alone, and at most.
RATE, FARTHEST = 0.4, 1.0

#: What the barrier may cost at first, as a share of the bound; a hundredth of that in the end.
BARRIER = 0.5

#: How far below what is asked a descent goes, for the rounding that is added.
BEYOND = 0.97

#: Multiples of multipliers that are tried for a row, around what suits its coupled numbers.
SCALES = 2.0 ** np.linspace(-4.0, 4.0, 65)

#: A row is left when a descent from its own multipliers lowers its bound by less than this share.
GAIN = 0.02


@dataclass(frozen=True, eq=False)
class Forms:
    """The difference as affine functions of y, the constant first.

    Attributes:
        output: (outputs, 1 + size).
        output_error: how far they can be off.
        large, small: (constraints, 1 + size), F and K, scaled to at most 1.
        columns: the number of s_i or t_i for every constraint.
        share, weight: K is this share of F, plus its own s_i or t_i times the weight.
        excess: what errors can take from F^2 - K^2, at most.
    """

    output: Array
    output_error: Vector
    large: Array
    small: Array
    columns: NDArray[np.intp]
    share: Vector
    weight: Vector
    excess: Vector

    @property
    def coupled(self) -> NDArray[np.bool_]:
        """The numbers that meet others in some constraint."""
        several = (self.small != 0).sum(axis=1) > 1
        return (self.large[:, 1:] != 0).any(axis=0) | (self.small[several, 1:] != 0).any(axis=0)


def affine_forms(pair: Pair, layers: list[LayerBounds], lo: Vector, hi: Vector) -> Forms:
    """Write the difference over one box in terms of y."""
    relu = [lines(RELU, *known.z) for known in layers]
    bent = [np.flatnonzero(line.rise > 0) for line in relu]
    largest = [np.maximum(-known.e[0], known.e[1]) for known in layers]
    free = [np.flatnonzero(k.open & (m > 0)) for k, m in zip(layers, largest, strict=True)]
    d = len(lo)
    size = d + sum(map(len, bent)) + sum(map(len, free))
    start = np.zeros((d, 1 + size))
    start[:, 0] = lo / 2 + hi / 2
    start[np.arange(d), 1 + np.arange(d)] = hi / 2 - lo / 2
    own, gaps = [start], [np.zeros((d, 1 + size))]
    own_error, gap_error = [4 * UNIT * (np.abs(lo) + np.abs(hi))], [np.zeros(d)]
    at, large, small, columns, excess = 1 + d, [], [], [], []
    shares, weights = [], []
    for index, known in enumerate(layers):
        affine = pair.maps[index]
        z, z_error = _own(pair, affine, own, own_error)
        e, e_error = _gap(pair, affine, own, own_error, gaps, gap_error)
        below, bend = known.kink.below, 1.0 - known.kink.below
        steep, rise = relu[index].above, relu[index].rise
        slope, lift = below + bend * steep, bend * rise / 2
        value = slope[:, None] * z
        value[:, 0] += lift
        i = bent[index]
        place = at + np.arange(len(i))
        value[i, place] += lift[i]
        reach = np.maximum(-known.z[0], known.z[1])[i, None]
        large.append(z[i] / reach)
        small.append((2 * steep[i, None] - 1) * large[-1])
        share = rise[i] / reach[:, 0]
        small[-1][:, 0] += share
        small[-1][np.arange(len(i)), place] += share
        columns.append(place - 1)
        shares.append(2 * steep[i] - 1)
        weights.append(share)
        excess.append(2 * _excess(z_error[i] / reach[:, 0], large[-1]))
        at += len(i)
        own.append(value)
        own_error.append(slope * z_error + 16 * UNIT * (np.abs(value).sum(axis=1) + lift))
        open_, m = known.open, largest[index]
        half = below + bend * np.where(m == 0, 0.0, 0.5)
        kept = np.where(open_, half, known.fast)  # not open: the slope that it has
        change = kept[:, None] * e
        i = free[index]
        change[i, at + np.arange(len(i))] += bend * m[i] / 2
        gaps.append(change)
        gap_error.append(kept * e_error + 16 * UNIT * np.abs(change).sum(axis=1))
        large.append(e[i] / m[i, None])
        small.append(np.zeros_like(large[-1]))
        small[-1][np.arange(len(i)), at + np.arange(len(i))] = 1.0
        columns.append(at - 1 + np.arange(len(i)))
        shares.append(np.zeros(len(i)))
        weights.append(np.ones(len(i)))
        excess.append(_excess(e_error[i] / m[i], large[-1]))
        at += len(i)
    output, error = _gap(pair, pair.maps[-1], own, own_error, gaps, gap_error)
    return Forms(
        output,
        error,
        np.concatenate(large),
        np.concatenate(small),
        np.concatenate(columns),
        np.concatenate(shares),
        np.concatenate(weights),
        np.concatenate(excess),
    )


def _excess(off: Vector, form: Array) -> Vector:
    """How much the square of a form of size at most 1 changes if the form is off by this much."""
    off = off + 16 * UNIT * (1 + np.abs(form).sum(axis=1))
    return 2 * off * (1 + off) * (1 + 2.0**-20) + off * off


def _own(
    pair: Pair, affine: PairedMap, own: list[Array], errors: list[Vector]
) -> tuple[Array, Vector]:
    """z, and how far it can be off."""
    terms = [(W, own[source], errors[source]) for source, W in affine.W.items()]
    return _added(pair, affine.b, own[0].shape[1], terms)


def _gap(
    pair: Pair,
    affine: PairedMap,
    own: list[Array],
    own_error: list[Vector],
    gaps: list[Array],
    gap_error: list[Vector],
) -> tuple[Array, Vector]:
    """e, and how far it can be off."""
    terms = []
    for source in affine.W:
        terms.append((affine.D[source], own[source], own_error[source]))
        terms.append((affine.V[source], gaps[source], gap_error[source]))
    return _added(pair, affine.shift, own[0].shape[1], terms)


def _added(
    pair: Pair, constant: Vector, width: int, terms: Iterable[tuple[Array, Array, Vector]]
) -> tuple[Array, Vector]:
    """A constant and matrices times forms, and how far the sum is off if the forms are by so much.

    The constant of a form comes first.
    """
    total = np.zeros((len(constant), width))
    total[:, 0] = constant
    size, error = np.abs(constant), np.zeros(len(constant))
    for matrix, form, off in terms:
        total += matrix @ form
        size = size + np.abs(matrix) @ np.abs(form).sum(axis=1)
        error = error + np.abs(matrix) @ off
    return total, error * (1 + 2.0**-20) + slack(size, pair.operations)


class Quadratic:
    """The problem of one box, ready for rows of the output.

    Numbers that no row reads are maximised by themselves; those that remain are coupled by H.
    """

    def __init__(self, forms: Forms):
        coupled = forms.coupled
        number = np.cumsum(coupled) - 1
        self.forms, self.coupled = forms, coupled
        self.F0, self.F = forms.large[:, 0], forms.large[:, 1:][:, coupled]
        self.K0, self.K = forms.small[:, 0], forms.small[:, 1:][:, coupled]
        inside = coupled[forms.columns]
        #: constraints whose own number is coupled; those of the others are maximised separately
        self.inside, self.own = np.flatnonzero(inside), number[forms.columns[inside]]
        self.last = np.flatnonzero(~inside)
        self.size, self.multipliers = int(coupled.sum()), len(self.F0)
        self.alone = ~coupled
        self.alone[forms.columns] = False

    def objective(self, row: int, sign: float) -> tuple[float, Vector, Vector, float]:
        """Constant, coupled coefficients, those of ``last`` and the sum of those alone."""
        c = sign * self.forms.output[row]
        columns = self.forms.columns[self.last]
        return c[0], c[1:][self.coupled], c[1:][columns], float(np.abs(c[1:][self.alone]).sum())

    def start(self, row: int, sign: float) -> Vector:
        """Multipliers to begin with, as logarithms: diagonal dominance makes H definite."""
        _, c, last, _ = self.objective(row, sign)
        scale = max(np.abs(c).sum() + np.abs(last).sum(), 1e-300)
        floor = 1e-3 * scale / max(self.size, 1)
        q = np.maximum(np.abs(c), floor) / 2
        lam = np.empty(self.multipliers)
        lam[self.inside] = 0.5 * q[self.own]
        lam[self.last] = 0.5 * np.maximum(np.abs(last), floor) / 2
        q[self.own] *= 0.5
        size = np.abs(self.F)
        q = q + 0.5 * (size.T @ (lam * size.sum(axis=1))) + floor
        return np.log(np.concatenate([q, lam]))

    def matrix(self, q: Vector, lam: Vector) -> Array:
        """H of the form -y.H y: q, and the squares of K less those of F."""
        H = (self.K.T * lam) @ self.K - (self.F.T * lam) @ self.F
        H[np.arange(self.size), np.arange(self.size)] += q
        return H

    def linear(self, lam: Vector) -> Vector:
        """What the constraints add to c."""
        return 2 * self.F.T @ (lam * self.F0) - 2 * self.K.T @ (lam * self.K0)

    def descend(
        self, p: Vector, row: int, sign: float, steps: int, goal: float, clock: Clock
    ) -> Vector:
        """Better multipliers for a row, by steps inside the definite matrices down to a goal.

        The derivative by a multiplier is a difference of two sums of squares; a step moves its
        logarithm by a share of that of their quotient, which is 0 where they are equal.
        """
        c0, c, last, alone = self.objective(row, sign)
        best, kept, previous, rate = np.inf, p, p, RATE
        for step in range(steps):
            if clock.expired():
                break
            found = self._balance(p, c, last, c0 + alone, BARRIER * 10 ** (-2 * step / steps))
            if found is None:
                p, rate = (p + previous) / 2, 0.7 * rate
                continue
            value, quotient = found
            if value < best:
                best, kept = value, p
            if value <= goal:
                break
            rate = min(1.1 * rate, RATE)
            move = np.clip(np.log(quotient), -FARTHEST, FARTHEST)
            previous, p = p, p - rate * move
        return kept

    def _balance(
        self, p: Vector, c: Vector, last: Vector, rest: float, share: float
    ) -> tuple[float, Vector] | None:
        """The bound, and what raises over what lowers it with every multiplier; None if indefinite.

        A barrier is counted with the latter: what it costs is about this share of the bound.
        """
        from scipy.linalg import get_lapack_funcs

        q, lam = np.exp(p[: self.size]), np.exp(p[self.size :])
        part, weight = self.forms.share, self.forms.weight
        inside, own = self.inside, self.own
        # the same as `matrix`, with K = part F + weight y_own put in
        scaled = np.sqrt(lam * np.maximum(1 - part * part, 0.0))[:, None] * self.F
        H = -(scaled.T @ scaled)  # half the work of two different factors
        mixed = (lam * part * weight)[inside, None] * self.F[inside]
        H[own] += mixed
        H[:, own] += mixed.T
        H[own, own] += (lam * weight * weight)[inside]
        H[np.arange(self.size), np.arange(self.size)] += q
        factorize, invert, solve = get_lapack_funcs(("potrf", "potri", "trtrs"), (H,))
        factor, failed = factorize(H, lower=1)
        if failed:
            return None
        G, _ = invert(factor, lower=1)
        G = np.tril(G) + np.tril(G, -1).T
        h = c + self.linear(lam)
        y = G @ h / 2
        moved = self.F @ y
        e, t = self.F0 + moved, self.K0 + part * moved
        t[inside] += weight[inside] * y[own]
        t[self.last] = np.minimum(1.0, np.abs(last) / (2 * lam[self.last]))
        value = (
            rest
            + q.sum()
            + lam @ (self.F0**2 - self.K0**2)
            + h @ y / 2
            + self._separate(lam[self.last], last).sum()
        )
        barrier = share * max(value, 0.0) / self.size + 1e-300
        # F.G F row by row, by the factor of H
        at, large = np.diag(G), (solve(factor, self.F.T, lower=1)[0] ** 2).sum(axis=0)
        small = part * part * large
        crossed = np.einsum("ij,ij->i", self.F[inside], G[own])
        small[inside] += 2 * (part * weight)[inside] * crossed
        small[inside] += (weight * weight)[inside] * at[own]
        up = np.concatenate([np.ones(self.size), e * e + barrier * large])
        down = np.concatenate([y * y + barrier * at, t * t + barrier * np.maximum(small, 0.0)])
        return float(value), (up + 1e-300) / (down + 1e-300)

    @staticmethod
    def _separate(lam: Vector, c: Vector) -> Vector:
        """max of c t - lam t^2 over |t| <= 1, lam > 0."""
        size = np.abs(c)
        return np.where(2 * lam <= size, size - lam, size * size / (4 * lam))

    def certified(self, p: Vector, rows: list[tuple[int, float]]) -> Vector:
        """Bounds of ``sign * output`` for rows (output, sign) that hold in real arithmetic.

        Each row takes the multiple of the multipliers that suits it best.
        """
        q, lam = np.exp(p[: self.size]), np.exp(p[self.size :])
        n = self.size
        H = self.matrix(q, lam)
        squares = (self.F * self.F + self.K * self.K).sum(axis=1)
        trace = float(q.sum() + lam @ squares)
        # entries of H, then the factorization: each is off by a few roundings of its trace
        shift = 8 * (self.multipliers + n + 16) * UNIT * trace
        try:
            np.linalg.cholesky(H)
        except np.linalg.LinAlgError:
            return np.full(len(rows), np.inf)
        H[np.arange(n), np.arange(n)] += shift
        G = np.linalg.inv(H)
        size_H = np.abs(H)
        r = self.linear(lam)
        sum_r = 2 * (np.abs(self.F).T @ (lam * np.abs(self.F0)))
        sum_r += 2 * (np.abs(self.K).T @ (lam * np.abs(self.K0)))
        base = q.sum() + lam @ (self.F0**2 - self.K0**2 + self.forms.excess)
        sum_base = q.sum() + lam @ (self.F0**2 + self.K0**2 + self.forms.excess)
        found = np.empty(len(rows))
        for k, (row, sign) in enumerate(rows):
            c0, c, last, alone = self.objective(row, sign)
            # t (base + r.G r / 4) + c.G c / (4 t) and the separate part, least among some t
            one, over = base + r @ G @ r / 4, c @ G @ c / 4
            tries = np.clip(np.sqrt(over / max(one, 1e-300)), 1e-6, 1e6) * SCALES
            separate = self._separate(tries[:, None] * lam[self.last], last).sum(axis=1)
            scale = float(tries[np.argmin(tries * one + over / tries + separate)])
            h = c + scale * r
            w = G @ h / (2 * scale)
            left = h - 2 * scale * (H @ w)
            bulk = np.abs(h) + np.abs(c) + scale * (sum_r + 2 * (size_H @ np.abs(w)))
            value = c0 + alone + scale * base + scale * (w @ (H @ w)) + np.abs(left).sum()
            value += self._separate(scale * lam[self.last], last).sum()
            value += 2 * scale * shift * n
            size = abs(c0) + alone + scale * sum_base + scale * (np.abs(w) @ (size_H @ np.abs(w)))
            size += bulk.sum() + np.abs(last).sum()
            error = slack(np.array(size), 2 * (self.multipliers + n) + 64)
            found[k] = np.nextafter(value + error + self.forms.output_error[row], np.inf)
        return np.where(np.isnan(found), np.inf, found)


def tighten(
    pair: Pair,
    layers: list[LayerBounds],
    box: tuple[Vector, Vector],
    upper: Vector,
    enough: Callable[[], float],
    clock: Clock,
    tell: Callable[[float], None],
) -> tuple[Vector, list[Vector], bool]:
    """Lower the bounds of g - f, then of f - g, over one box, the largest first.

    Args:
        upper: (2 outputs,), what is known.
        enough: the bound at which to stop.
        tell: called with the largest bound now and then.

    Returns:
        the bounds, the multipliers from which `repeat` finds them again, and whether Ctrl-C ended
        it.
    """
    upper, used = upper.copy(), []
    problem = Quadratic(affine_forms(pair, layers, *box))
    if not 0 < problem.size <= MOST or not problem.multipliers:
        return upper, used, False
    rows = _rows(len(upper) // 2)
    own: dict[int, Vector] = {}  # multipliers of every row that was looked at
    turns = np.zeros(len(upper), dtype=int)
    reached = np.full(len(upper), np.inf)  # by a row's own multipliers, at first above ``upper``
    settled = np.zeros(len(upper), dtype=bool)
    try:
        while not clock.expired():
            k = int(upper.argmax())
            if upper[k] <= enough() or settled[k]:
                break
            begin = own[k] if k in own else problem.start(*rows[k])
            steps, goal = STEPS << int(turns[k]), enough() * BEYOND ** (1 + turns[k])
            own[k] = problem.descend(begin, *rows[k], steps, goal, clock)
            found = problem.certified(own[k], rows)
            settled[k] = turns[k] and found[k] > (1 - GAIN) * reached[k]
            turns[k] += 1
            reached[k] = min(reached[k], found[k])
            if (found < upper).any():
                used.append(own[k])
            upper = np.minimum(upper, found)
            tell(float(upper.max()))
    except KeyboardInterrupt:
        return upper, used, True
    return upper, used, False


def repeat(
    pair: Pair,
    layers: list[LayerBounds],
    box: tuple[Vector, Vector],
    upper: Vector,
    used: list[Vector],
) -> Vector:
    """The bounds that multipliers prove.

    Raises:
        InvalidInputError: they do not fit the networks.
    """
    problem = Quadratic(affine_forms(pair, layers, *box))
    for p in used:
        if p.shape != (problem.size + problem.multipliers,) or not np.isfinite(p).all():
            raise InvalidInputError("a proof has multipliers of other networks")
        upper = np.minimum(upper, problem.certified(p, _rows(len(upper) // 2)))
    return upper


def _rows(outputs: int) -> list[tuple[int, float]]:
    """The rows of g - f, then of f - g: output and sign."""
    return [(k % outputs, 1.0 if k < outputs else -1.0) for k in range(2 * outputs)]
