"""The tree model of recentering and ReLU (seed 004, Section III), in polynomial time.

Layer t+1 applies to every row x of layer t both ReLU(x - mean) and ReLU(mean - x), so after t
layers a one-dimensional batch of n points is a 2^t x n matrix (eq. 9, 10). Its Gram matrix needs no
doubling:

- A row with c clusters has children with c+ and c- clusters, c+ + c- = c + 2 (less one for a
  cluster that lies exactly on the mean). So the sum over rows of (clusters - 2) never exceeds
  n - 2, and at most n - 2 of the 2^t rows have three clusters or more. They are kept one by one.
- All other rows have two clusters, one of them at 0. Those split after m points enter the Gram
  matrix through two sums, A_m and B_m, and a layer is A' = (m/n)^2 (A+B), B' = ((n-m)/n)^2 (A+B).

A layer costs O(n). (The paper's own count of rows is exponential; this reduction is derived here,
see docs/errata.md.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relunorm.arguments import from_tensor, real_numbers, vector
from relunorm.batchnorm.gram import angles_of
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.papers.batchnorm.theory.coordinate import (
    ExactState,
    FloatState,
    TreeLimit,
    limit_gram,
    limit_of,
)

#: How many layers `Tree.limit` takes in exact arithmetic to reach the stable one.
EXACT_LAYERS = 10_000


def positive_transformation(x: ArrayLike) -> NDArray[np.float64]:
    """ReLU(x - mean(x)) (Def. 5).

    >>> positive_transformation([0.0, 1.0, 5.0]).tolist()
    [0.0, 0.0, 3.0]
    """
    x = vector(x)
    return np.maximum(x - x.mean(), 0.0)


def negative_transformation(x: ArrayLike) -> NDArray[np.float64]:
    """ReLU(mean(x) - x) (Def. 5).

    >>> negative_transformation([0.0, 1.0, 5.0]).tolist()
    [2.0, 1.0, 0.0]
    """
    x = vector(x)
    return np.maximum(x.mean() - x, 0.0)


def cluster_count(x: ArrayLike) -> int:
    """c(x): how many different entries a vector has (Def. 6)."""
    return len(set(vector(x).tolist()))  # ten times faster than np.unique on a short one


@dataclass(frozen=True)
class ClusterCounts:
    """How the rows of one layer are clustered, coordinate by coordinate.

    Attributes:
        three_or_more: per coordinate, how many rows have 3, 4, ... clusters (a dict by count).
        two_cluster_splits: per coordinate, the splits m that occur among two-cluster rows.
        excess: per coordinate, the sum over rows of (clusters - 2).
        ties: clusters that lay exactly on their row's mean so far; each lowers the sum by one.
        faded: clusters lost to rounding: of rows that shrank below the range of floats and were
            dropped, and clusters too near to each other beside the row's mean to stay apart.
        conserved: whether excess + ties + faded equals c(x) - 2 in every coordinate.
    """

    depth: int
    three_or_more: tuple[dict[int, int], ...]
    two_cluster_splits: tuple[tuple[int, ...], ...]
    excess: tuple[int, ...]
    ties: tuple[int, ...]
    faded: tuple[int, ...]
    conserved: bool

    @property
    def stable(self) -> bool:
        """Whether every row has at most three clusters (Def. 8)."""
        return all(max(counts, default=0) <= 3 for counts in self.three_or_more)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "relunorm.tree_clusters/1",
            "depth": self.depth,
            "three_or_more": [{str(k): v for k, v in c.items()} for c in self.three_or_more],
            **entries(self, "two_cluster_splits excess ties faded conserved stable"),
        }


class Tree:
    """The tree model of a batch; `run`, `step` and `jump` return the tree at another depth.

    Args:
        x: n numbers (one coordinate) or an (n, d) array, one tree per coordinate. In exact mode
            integers, fractions or floats (taken at their exact binary value).
        exact: integers instead of floats: no rounding, ties decided exactly, slower with depth.

    Exactness: in float mode equal to brute force to about 1e-14; a cluster within 16 ulp of its
    row's mean counts as on it. Cost: O(n d) a layer, `jump` and `limit` O(n d) layers-independent
    steps.

    >>> tree = Tree([0.0, 1.0, 3.0, 9.0])
    >>> tree.run(3)
    Tree(n=4, depth=3)
    >>> tree.limit().odd
    (3,)
    >>> bool(abs(tree.run(14).gram() - tree.jump(14).gram()).max() < 1e-15)
    True
    """

    def __init__(self, x: ArrayLike, *, exact: bool = False):
        columns = _columns(x, exact)
        self._orders, self._states, self._clusters = [], [], []
        for column in columns:
            order, values, ends = _sorted_clusters(column)
            self._orders.append(order)
            self._clusters.append(len(values))
            if len(values) == 1:
                self._states.append(None)  # a constant coordinate is 0 from the first layer on
            elif exact:
                self._states.append(ExactState.start(tuple(map(Fraction, values)), ends))
            else:
                self._states.append(FloatState.start(tuple(map(float, values)), ends))
        if all(state is None for state in self._states):
            raise InvalidInputError(
                f"all {len(columns[0])} points of the batch are equal: recentering sends them to "
                "0, so there is no geometry to follow; give at least two different points"
            )
        self.exact = exact
        self.n = len(columns[0])
        self.depth = 0
        self._constants = [
            c[0] if s is None else None for c, s in zip(columns, self._states, strict=True)
        ]

    def step(self) -> Tree:
        """One layer on."""
        return self.run(self.depth + 1)

    def run(self, depth: int) -> Tree:
        """The tree at ``depth``, every layer taken."""
        return self._moved(depth, "advance")

    def jump(self, depth: int) -> Tree:
        """The tree at ``depth`` in closed form from the stability layer on (floats), any depth.

        A three-cluster row with gaps p, r and outer clusters of k0 and k2 points moves by
        u <- (k0/n)(u - v) while u = k0 p > v = k2 r and v <- (k2/n)(v - u) while v > u; runs of
        equal cases are geometric sums, and rows that fell below 1e-20 of the whole are dropped
        (`clusters().faded`).
        """
        return self._moved(depth, "jump")

    def _moved(self, depth: int, verb: str) -> Tree:
        depth = _depth(depth, self.depth)
        steps = depth if verb == "jump" else depth - self.depth
        states = [None if s is None else getattr(s, verb)(steps) for s in self._states]
        return self._with(states, depth)

    def _with(self, states: list[Any], depth: int) -> Tree:
        other = object.__new__(Tree)
        other.__dict__.update(self.__dict__)
        other._states, other.depth = states, depth
        return other

    def gram(self, *, normalize: bool = False) -> NDArray[np.float64]:
        """The Gram matrix <x_i, x_j> of the points' representations at this depth.

        Args:
            normalize: divide by the trace, which also reads depths where the plain one underflows.
        """
        if self.exact:
            whole = self.gram_exact()
            if normalize:
                trace = sum(whole[i, i] for i in range(self.n))
                whole = whole / trace
            try:
                return _not_vanished(whole.astype(np.float64))
            except OverflowError:
                raise _too_large() from None
        parts = [(s.exponent, s.gram(), o) for s, o in self._live()]
        if not self.depth:
            # what constant coordinates add; recentering removes them afterwards
            halves = [math.frexp(c) for c in self._constants if c]
            parts += [(e, np.full((self.n, self.n), m * m), self._orders[0]) for m, e in halves]
        top = max(exponent for exponent, _, _ in parts)
        total = np.zeros((self.n, self.n))
        for exponent, part, order in parts:
            back = np.argsort(order)
            total += part[np.ix_(back, back)] * 2.0 ** (2 * (exponent - top))
        if normalize:
            return total / np.trace(total)
        if 2 * top > 1000:
            raise _too_large()
        return _not_vanished(total * 2.0 ** (2 * top))

    def _live(self) -> list[tuple[Any, NDArray[np.int64]]]:
        """The state and the order of every coordinate that is not constant."""
        pairs = zip(self._states, self._orders, strict=True)
        return [(state, order) for state, order in pairs if state is not None]

    def gram_exact(self) -> NDArray[np.object_]:
        """The Gram matrix in fractions (exact mode only)."""
        if not self.exact:
            raise InvalidInputError("this tree is in floats; build it with Tree(x, exact=True)")
        total = np.full((self.n, self.n), Fraction(0), dtype=object)
        for state, order in zip(self._states, self._orders, strict=True):
            if state is not None:
                back = np.argsort(order)
                total = total + state.gram()[np.ix_(back, back)] * state.unit
        if not self.depth:
            total = total + sum(
                (Fraction(c) ** 2 for c in self._constants if c is not None), Fraction(0)
            )
        return total

    def norms(self) -> NDArray[np.float64]:
        """Norms of the points' representations, largest 1."""
        norms = np.sqrt(np.diag(self.gram(normalize=True)))
        return norms / norms.max()

    def angles(self) -> NDArray[np.float64]:
        """Angles between the points' representations, radians; NaN where one of them is 0."""
        return angles_of(self.gram(normalize=True))

    def clusters(self) -> ClusterCounts:
        """Cluster counts of all 2^depth rows and the conservation law (see the module's head)."""
        counts, splits, excess, ties, faded = [], [], [], [], []
        for state, start in zip(self._states, self._clusters, strict=True):
            rows = () if state is None else state.rows
            sizes = [len(values) for values, _ in rows]
            counts.append({c: sizes.count(c) for c in sorted(set(sizes)) if c > 2})
            excess.append(sum(c - 2 for c in sizes))
            ties.append(0 if state is None else state.ties)
            # a constant coordinate has c - 2 = -1, which no row carries
            faded.append(min(0, start - 2) if state is None else state.faded)
            present = (
                () if state is None else (m for m in range(1, self.n) if state.A[m] or state.B[m])
            )
            splits.append(tuple(present))
        sums = zip(excess, ties, faded, self._clusters, strict=True)
        conserved = all(e + t + f == c - 2 for e, t, f, c in sums)
        return ClusterCounts(
            self.depth,
            tuple(counts),
            tuple(splits),
            tuple(excess),
            tuple(ties),
            tuple(faded),
            conserved,
        )

    def stability_layer(self, limit: int = 1_000_000) -> int:
        """t0: the first layer, from here, where every row has at most three clusters (Thm 10)."""
        found = self.depth
        for state in self._states:
            if state is not None:
                after = state.advance(limit, until_stable=True)
                if any(len(values) > 3 for values, _ in after.rows):
                    raise InvalidInputError(f"no stable layer within {limit} layers")
                found = max(found, after.depth)
        return found

    def limit(self) -> TreeLimit:
        """The geometry at infinite depth, in closed form.

        With S_m the limit of (A_m + B_m)/q^t at the two extreme splits and r = S_min/S_max:
        norm ratio sqrt((1+r)/((n-1)^2+r)), cosine r/sqrt((1+r)((n-1)^2+r)) for distinct points
        (sharp, derived; Theorem 11 prints bounds). With f equal smallest and l equal largest points
        the splits are f and n-l, and the more unbalanced one alone decides. See `TreeLimit` for
        what counts as odd where points are equal or have several coordinates.
        """
        horizon = 1 << 62
        n, found = self.n, []
        for state, order in zip(self._states, self._orders, strict=True):
            if state is None:
                continue
            within = EXACT_LAYERS if self.exact else 1_000_000
            stable = state.settled(state.depth + within)
            if any(len(values) > 3 for values, _ in stable.rows):
                hint = "; build the tree without exact=True" if self.exact else ""
                raise InvalidInputError(f"no stable layer within {within} layers{hint}")
            weight, q, _ = stable.weights(horizon)
            log_scale = 2 * stable.exponent - stable.depth * math.log2(q)
            found.append((q, log_scale, weight, order))
        q = max(item[0] for item in found)
        top = max(log for rate, log, _, _ in found if rate == q)
        gram, ratio = np.zeros((n, n)), 0.0
        for rate, log, weight, order in found:
            if rate == q:
                part, ratio = limit_gram(n, weight)
                back = np.argsort(order)
                gram += part[np.ix_(back, back)] * 2.0 ** (log - top)
        alone = len(found) == 1
        distinct = alone and max(self._clusters) == n
        return limit_of(gram, ratio if alone else None, q, distinct)

    def __repr__(self) -> str:
        coordinates = f", coordinates={len(self._states)}" if len(self._states) > 1 else ""
        mode = ", exact" if self.exact else ""
        return f"Tree(n={self.n}, depth={self.depth}{coordinates}{mode})"


def _not_vanished(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """A Gram matrix that is not below what floats hold, as that of different points never is 0."""
    if not gram.any():
        raise InvalidInputError(
            "the Gram matrix is too small for floats; ask for normalize=True or rescale the batch"
        )
    return gram


def _too_large() -> InvalidInputError:
    return InvalidInputError(
        "the Gram matrix of a batch this large is beyond floats; ask for normalize=True"
    )


def _columns(x: ArrayLike, exact: bool) -> list[list[Any]]:
    array = _objects(x) if exact else real_numbers("the batch", x).astype(np.float64, copy=False)
    if array.ndim not in (1, 2):
        raise InvalidInputError(f"the batch has shape {array.shape}, expected (n,) or (n, d)")
    if array.shape[0] < 2 or array.size == 0:
        raise InvalidInputError(
            f"the batch has shape {array.shape}: recentering needs at least two points"
        )
    if exact:
        return [[_fraction(v) for v in column] for column in array.reshape(len(array), -1).T]
    if not np.isfinite(array).all():
        raise InvalidInputError("the batch holds NaN or infinite entries")
    return [column.tolist() for column in array.reshape(len(array), -1).T]


def _objects(x: Any) -> NDArray[np.object_]:
    """The entries as they are, without a detour through floats."""
    if hasattr(x, "detach"):
        x = from_tensor("the batch", x)
    if np.ma.is_masked(x):
        raise InvalidInputError("the batch has masked entries; fill or drop them first")
    try:
        return np.array(x, dtype=object)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the batch is not an array of numbers: {error}") from None


def _fraction(value: Any) -> Fraction:
    try:
        return Fraction(value.item() if isinstance(value, np.generic) else value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"exact mode needs integers, fractions or finite floats, found {value!r}"
        ) from None


def _sorted_clusters(column: list[Any]) -> tuple[NDArray[np.int64], list[Any], tuple[int, ...]]:
    order = np.array(sorted(range(len(column)), key=column.__getitem__))
    values, ends = [], []
    for position, index in enumerate(order):
        if values and column[index] == values[-1]:
            ends[-1] = position + 1
        else:
            values.append(column[index])
            ends.append(position + 1)
    return order, values, tuple(ends)


def _depth(depth: int, current: int) -> int:
    if not isinstance(depth, (int, np.integer)) or isinstance(depth, bool):
        raise InvalidInputError(f"depth is {depth!r}, expected a whole number")
    if depth >= 1 << 62:
        raise InvalidInputError(f"depth is {depth}, expected less than 2^62; limit() goes further")
    if depth < current:
        raise InvalidInputError(f"depth {depth} lies before this tree's depth {current}")
    return int(depth)
