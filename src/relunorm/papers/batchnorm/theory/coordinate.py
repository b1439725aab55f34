"""One coordinate of the tree model: the state after some layers, in floats or in exact integers;
and where the geometry goes as the depth grows (Theorem 11 of seed 004, sharp).

Both keep the rows with three or more clusters one by one and the two-cluster rows in two sums per
split (see `tree_model.py` for why that is enough). `FloatState` runs compiled;
`ExactState` multiplies each layer by n, so that integers stay integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import entries

#: A cluster nearer to the mean than this share of the row's span counts as lying on it.
TIE = 16 * float(np.finfo(np.float64).eps)

Row = tuple[tuple[float, ...], tuple[int, ...]]


def rate(m: int, n: int) -> float:
    """q_m = (m^2 + (n-m)^2) / n^2: what a layer leaves of the squares of two-cluster rows."""
    return (m * m + (n - m) * (n - m)) / (n * n)


@dataclass(frozen=True, eq=False)
class FloatState:
    """Rows and sums in float64; true squares are ``4**exponent`` times the stored ones."""

    n: int
    depth: int
    rows: tuple[Row, ...]
    A: NDArray[np.float64]
    B: NDArray[np.float64]
    exponent: float = 0.0
    ties: int = 0
    faded: int = 0
    #: gaps of three-cluster rows, where they are known better than by subtraction
    gaps: tuple[tuple[float, float], ...] | None = None

    @classmethod
    def start(cls, values: tuple[float, ...], ends: tuple[int, ...]) -> FloatState:
        zero = np.zeros(ends[-1] + 1)
        # squares of very large or small inputs would leave the range of floats
        shift = math.frexp(max(map(abs, values)))[1]
        scaled = tuple(math.ldexp(v, -shift) for v in values)
        return cls(ends[-1], 0, ((scaled, ends),), zero, zero, shift)

    def advance(self, steps: int, *, until_stable: bool = False) -> FloatState:
        """Take layers one by one, compiled."""
        from relunorm.papers.batchnorm.theory import tree_kernel as kernel

        n = self.n
        values, ends, pointer = np.zeros(3 * n + 8), np.zeros(3 * n + 8, np.int64), [0]
        for row_values, row_ends in self.rows:
            stop = pointer[-1] + len(row_values)
            values[pointer[-1] : stop], ends[pointer[-1] : stop] = row_values, row_ends
            pointer.append(stop)
        table = np.zeros(n + 3, np.int64)
        table[: len(pointer)] = pointer
        A, B = self.A.copy(), self.B.copy()
        taken, count, ties, lost, shift = kernel.run(
            n, values, ends, table, len(self.rows), A, B, steps, TIE, until_stable
        )
        spans = [slice(int(table[k]), int(table[k + 1])) for k in range(count)]
        rows = tuple((tuple(values[s].tolist()), tuple(ends[s].tolist())) for s in spans)
        return FloatState(
            n,
            self.depth + taken,
            rows,
            A,
            B,
            self.exponent + shift,
            self.ties + ties,
            self.faded + lost,
        )

    def weights(self, horizon: int) -> tuple[NDArray[np.float64], float, FloatState]:
        """S_m = A_m + B_m after ``horizon`` more layers over q^horizon, in closed form.

        Also q (the largest rate met) and the state the rows are left in. Needs rows with at most
        three clusters.
        """
        from relunorm.papers.batchnorm.theory import tree_kernel as kernel

        n = self.n
        splits = [m for m in range(1, n) if self.A[m] + self.B[m] > 0]
        splits += [m for _, ends in self.rows for m in ends[:-1]]
        q = max(rate(m, n) for m in splits)
        both = self.A + self.B
        weight = np.zeros(n + 1)
        for m in np.flatnonzero(both).tolist():
            weight[m] = both[m] * (rate(m, n) / q) ** horizon
        scale = max(
            both.max(), max((max(v) - min(v)) ** 2 for v, _ in self.rows) if self.rows else 0
        )
        rows, ties, faded = [], self.ties, self.faded
        gaps = self.gaps
        if gaps is None:
            gaps = tuple((abs(v[1] - v[0]), abs(v[2] - v[1])) for v, _ in self.rows)
        for (_, ends), (p, r) in zip(self.rows, gaps, strict=True):
            p, r, done, tied = kernel.jump_row(
                n, ends[0], ends[1] - ends[0], p, r, horizon, q, 1e-40 * scale, TIE, weight
            )
            ties += tied
            faded += int(done < horizon and not tied)
            if done == horizon and not tied:
                # the sums are kept in units of q^horizon, so the rows are too (half in squares)
                unit = q ** (-horizon / 2)
                rows.append(((0.0, p * unit, (p + r) * unit), ends))
        depth = self.depth + horizon
        exponent = self.exponent + horizon * math.log2(q) / 2
        left = FloatState(n, depth, tuple(rows), weight, np.zeros(n + 1), exponent, ties, faded)
        return weight, q, left

    def settled(self, depth: int) -> FloatState:
        """The first state with three-cluster rows only, at the latest the one at ``depth``."""
        state = self.advance(depth - self.depth, until_stable=True)
        # the batch itself is a row too, and may have two clusters
        pairs = any(len(values) == 2 for values, _ in state.rows)
        return state.advance(1) if pairs and state.depth < depth else state

    def jump(self, depth: int) -> FloatState:
        """The state at ``depth``: layer by layer until stable, then in closed form."""
        state = self.settled(depth)
        if depth - state.depth >= 2:
            state = state.weights(depth - state.depth - 1)[2]
        return state.advance(depth - state.depth)

    def gram(self) -> NDArray[np.float64]:
        """The Gram matrix over ``2**(2 * exponent)``."""
        return gram_of_sums(self.n, self.A, self.B) + gram_of_rows(self.n, self.rows)


@dataclass(frozen=True, eq=False)
class ExactState:
    """Rows and sums as integers; the true rows are ``1 / (denominator * n**depth)`` times them."""

    n: int
    depth: int
    rows: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    A: tuple[int, ...]
    B: tuple[int, ...]
    denominator: int = 1
    ties: int = 0
    faded: int = 0

    @classmethod
    def start(cls, values: tuple[Fraction, ...], ends: tuple[int, ...]) -> ExactState:
        denominator = math.lcm(*(v.denominator for v in values))
        whole = tuple(int(v * denominator) for v in values)
        zero = (0,) * (ends[-1] + 1)
        return cls(ends[-1], 0, ((whole, ends),), zero, zero, denominator)

    def advance(self, steps: int, *, until_stable: bool = False) -> ExactState:
        """Take layers one by one; numbers grow by 2 log2(n) bits a layer."""
        state = self
        for _ in range(steps):
            if until_stable and all(len(values) <= 3 for values, _ in state.rows):
                break
            state = state._step()
        return state

    def _step(self) -> ExactState:
        n = self.n
        A, B, ties = [0] * (n + 1), [0] * (n + 1), self.ties
        for m in range(1, n):
            both = self.A[m] + self.B[m]
            A[m], B[m] = m * m * both, (n - m) * (n - m) * both
        rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for values, ends in self.rows:
            sizes = [e - s for s, e in zip((0, *ends), ends, strict=False)]
            mean = sum(k * v for k, v in zip(sizes, values, strict=True))  # n times the mean
            moved = [n * v - mean for v in values]
            ties += sum(v == 0 for v in moved)
            sign = 1 if values[-1] > values[0] else -1
            low = [j for j, v in enumerate(moved) if v * sign < 0]
            high = [j for j, v in enumerate(moved) if v * sign > 0]
            if len(low) == 1:
                B[ends[0]] += moved[0] ** 2
            else:
                rows.append(((*(abs(moved[j]) for j in low), 0), (*(ends[j] for j in low), n)))
            if len(high) == 1:
                A[ends[-2]] += moved[-1] ** 2
            else:
                kept = (0, *(abs(moved[j]) for j in high))
                rows.append((kept, (ends[high[0] - 1], *(ends[j] for j in high))))
        return ExactState(
            n, self.depth + 1, tuple(rows), tuple(A), tuple(B), self.denominator, ties
        )

    def settled(self, depth: int) -> FloatState:
        """As `FloatState.settled`: exact up to there, so that no gap is lost beside a large one."""
        state = self.advance(depth - self.depth, until_stable=True)
        pairs = any(len(values) == 2 for values, _ in state.rows)
        return (state.advance(1) if pairs and state.depth < depth else state).to_float()

    def jump(self, depth: int) -> ExactState:
        """The state at ``depth``, layer by layer: exact arithmetic has no shortcut here."""
        return self.advance(depth - self.depth)

    @property
    def unit(self) -> Fraction:
        """What one unit of the integer Gram matrix is worth."""
        return Fraction(1, (self.denominator * self.n**self.depth) ** 2)

    def gram(self) -> NDArray[np.object_]:
        """The Gram matrix over `unit`, in Python integers."""
        whole = gram_of_sums(self.n, np.array(self.A, object), np.array(self.B, object))
        return whole + gram_of_rows(self.n, self.rows, object)

    def to_float(self) -> FloatState:
        """The same state rounded to float64 near scale 1."""
        tops = [s for s in (*self.A, *self.B) if s]
        tops += [max(map(abs, v)) ** 2 for v, _ in self.rows]
        half = (max(tops).bit_length() + 1) // 2
        square, linear = Fraction(1, 4**half), Fraction(1, 2**half)
        A = np.array([float(a * square) for a in self.A])
        B = np.array([float(b * square) for b in self.B])
        rows = tuple((tuple(float(v * linear) for v in values), e) for values, e in self.rows)
        gaps = None
        if all(len(values) == 3 for values, _ in self.rows):
            gaps = tuple(
                (float(abs(v[1] - v[0]) * linear), float(abs(v[2] - v[1]) * linear))
                for v, _ in self.rows
            )
        exponent = half - math.log2(self.denominator) - self.depth * math.log2(self.n)
        return FloatState(self.n, self.depth, rows, A, B, exponent, self.ties, self.faded, gaps)


def gram_of_sums(n: int, A: NDArray, B: NDArray) -> NDArray:
    """G_ij = sum_{m <= min(i,j)} A_m + sum_{m > max(i,j)} B_m, points counted from 0."""
    from_left = np.cumsum(A)[:n]
    from_right = np.cumsum(B[::-1])[::-1][1:]
    order = np.arange(n)
    low = np.minimum.outer(order, order)
    high = np.maximum.outer(order, order)
    return from_left[low] + from_right[high]


def gram_of_rows(n: int, rows: tuple[tuple[tuple, tuple], ...], dtype: type = float) -> NDArray:
    """The Gram matrix of rows given by clusters."""
    table = np.zeros((len(rows), n), dtype=dtype)
    for k, (values, ends) in enumerate(rows):
        start = 0
        for value, end in zip(values, ends, strict=True):
            table[k, start:end] = value
            start = end
    return table.T @ table


#: Representations closer than this share of the shorter one's norm are one; norms alike, equal.
SAME = 1e-6


@dataclass(frozen=True, eq=False)
class TreeLimit:
    """Where the geometry goes as the depth grows (Theorem 11, sharp).

    In the limit points fall into groups with one representation each. The group of smallest norm is
    the cluster; those whose norm is nearer to the largest than to the cluster's (by ratio) escape.
    If all groups have the same norm there is no cluster and nothing escapes (docs/batchnorm.md).

    Attributes:
        gram: the limit of the Gram matrix over its trace, in the order of the input.
        groups: the points that share a representation, groups of largest norm first.
        escaping: the groups that escape from the cluster.
        odd: the points that escape alone, one or two; empty if equal points escape together, if
            more than two groups escape, or if there is no cluster.
        norm_ratio: |cluster point| / |point of the largest group|; the paper's bound is 3/(n-2). 1
            without a cluster.
        cosine: between the cluster and the largest group; without a cluster, between the two groups
            furthest apart.
        ratio: r = S_min / S_max of the two extreme splits; 1 for a symmetric batch, 0 if only one
            counts; None for several coordinates.
        decay: the factor by which squared norms shrink per layer in the limit.
        printed_norm_bound, printed_angle_bound: Theorem 11's item 3, and item 4 with the sqrt(2) pi
            of (88) that its proof gives (docs/errata.md), radians; None where it says nothing:
            several coordinates, equal points, n < 3.
    """

    gram: NDArray[np.float64]
    groups: tuple[tuple[int, ...], ...]
    escaping: tuple[tuple[int, ...], ...]
    norm_ratio: float
    cosine: float
    ratio: float | None
    decay: float
    printed_norm_bound: float | None
    printed_angle_bound: float | None

    @property
    def odd(self) -> tuple[int, ...]:
        """The points that escape alone, one or two, in the order of the input; or none."""
        alone = len(self.escaping) <= 2 and all(len(group) == 1 for group in self.escaping)
        return tuple(sorted(i for group in self.escaping for i in group)) if alone else ()

    @property
    def angle(self) -> float:
        """Between the cluster and the largest group (see ``cosine``), radians."""
        return math.acos(min(1.0, self.cosine))

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.tree_limit/1",
            **entries(
                self,
                "odd groups escaping norm_ratio cosine angle ratio decay "
                "printed_norm_bound printed_angle_bound gram",
            ),
        }

    def __repr__(self) -> str:
        angle = f"angle={math.degrees(self.angle):.4f} degrees"
        if not self.escaping:
            return f"TreeLimit({len(self.groups)} groups of equal norm, no cluster, {angle})"
        what = f"odd={self.odd}"
        if len(self.escaping) > 2:
            what = f"no odd point, {len(self.escaping)} groups escape"
        elif not self.odd:
            what = f"no odd point, escaping={self.escaping}"
        return f"TreeLimit({what}, norm_ratio={self.norm_ratio:.6g}, {angle})"


def limit_gram(n: int, weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Gram matrix of the splits that decay slowest, and r = smaller / larger of their weights."""
    rates = {m: rate(m, n) for m in range(1, n) if weight[m] > 0}
    q = max(rates.values())
    splits = [m for m, rate in rates.items() if rate == q]
    gram = np.zeros((n, n))
    for m in splits:
        gram[m:, m:] += (m / n) ** 2 * weight[m]
        gram[:m, :m] += ((n - m) / n) ** 2 * weight[m]
    present = [weight[m] for m in splits]
    return gram, min(present) / max(present) if len(present) > 1 else 0.0


def limit_of(
    gram: NDArray[np.float64], ratio: float | None, q: float, theorem_applies: bool
) -> TreeLimit:
    """Read groups, norm ratio and cosine off the limit of the Gram matrix."""
    n = len(gram)
    gram = gram / np.trace(gram)
    groups = _groups(gram)
    norms = np.sqrt(np.diag(gram))[[group[0] for group in groups]]
    first = [group[0] for group in groups]
    cosines = gram[np.ix_(first, first)] / np.outer(norms, norms)
    escaping: list[tuple[int, ...]] = []
    norm_ratio, cosine = 1.0, float(cosines.min())
    if norms[-1] < (1 - SAME) * norms[0]:
        norm_ratio, cosine = float(norms[-1] / norms[0]), float(cosines[0, -1])
        # on a logarithmic scale
        border = math.sqrt(norms[-1] * norms[0]) * (1 - 1e-9)
        escaping = [group for group, norm in zip(groups, norms, strict=True) if norm >= border]
    printed = (None, None)
    if theorem_applies and n > 2:
        printed = (3 / (n - 2), math.pi / 2 - math.sqrt(2) * math.pi / (n - 2))
    return TreeLimit(gram, groups, tuple(escaping), norm_ratio, cosine, ratio, q, *printed)


def _groups(gram: NDArray[np.float64]) -> tuple[tuple[int, ...], ...]:
    """The points by representation, longest first."""
    squares = np.diag(gram)
    left = np.argsort(-squares, kind="stable")
    found = []
    while len(left):
        i = left[0]
        apart = squares[i] + squares[left] - 2 * gram[i, left]
        same = apart <= SAME**2 * np.minimum(squares[i], squares[left])
        same[0] = True
        found.append(tuple(sorted(left[same].tolist())))
        left = left[~same]
    return tuple(found)
