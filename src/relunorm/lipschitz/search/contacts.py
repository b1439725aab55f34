"""Sides of units that a cell touches: whether they are empty, in rational arithmetic.

Where a cell stays clear of a unit's kink by more than rounding, the unit has one sign there. Where
the cell only touches the kink, float64 cannot tell whether the other side is empty or a region is
there: the kinks of relu(x) and relu(-x) meet exactly, those of relu(x - 0.3) and relu(0.1 x - 0.03)
leave an interval of length 1e-17 between them, with a Jacobian of its own.

A search for slopes names every such contact together with the walls that its linear programme rests
on. Here the multipliers of that programme are computed again, exactly and for the network as it was
given: if with them the walls show that the unit does not take the sign, nothing lies there.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.extrema.localize import Local
from relunorm.lipschitz.search.windows import HalfSpaces, Window
from relunorm.matrix import Vector
from relunorm.network import Affine
from relunorm.search.rational.programme import ONE, ZERO, Form, Row, combined

#: Multiplications up to which the forms behind a contact are computed exactly: some tenths of a
#: second. Contacts of larger networks stay open.
MOST_WORK = 100_000

#: Different contacts that one search looks at.
MOST_CONTACTS = 4000


class Contacts:
    """What is known of the contacts of searches.

    Args:
        local: what the searches look at, and what it stands for.
        half_spaces: (A, b), what else bounds the domain.
    """

    def __init__(self, local: Local, half_spaces: HalfSpaces | None = None):
        self.local, self._half_spaces = local, half_spaces
        self._known: dict[tuple[object, ...], bool] = {}
        self._forms = _Forms(local)

    def seen_through(self, window: Window) -> Window:
        """The window, its units with the rounding of what was folded into them."""
        sizes = self.local.unit_sizes
        if not sizes:
            return window
        more, size0 = np.concatenate(sizes), window.net.size0.copy()
        size0[: len(more)] += np.where(np.isfinite(more), more, 0.0)
        return replace(window, net=window.net._replace(size0=size0))

    def excludes(
        self,
        unit: int,
        side: int,
        bits: NDArray[np.int8],
        walls: list[tuple[int, int]],
        window: tuple[Vector, Vector, float | None],
        decided: bool,
    ) -> bool:
        """Whether no region of a cell lies on a side of a unit.

        Args:
            walls: what shows it: a side of the box (-1 - 2 i for the upper one of coordinate i,
                -2 - 2 i for the lower), or a row and whose side it is: 2 unit + bit, -1 for rows of
                the domain.
            window: its box, and what (t, s) is multiplied by in a window of the whole space.
            decided: whether the cell lies on that side: then it is flat if the unit moves at all.
        """
        last = max(unit, *(literal >> 1 for _, literal in walls))
        below = bits[: self._forms.units_below(last)].tobytes()
        names = tuple((row, literal) if literal < 0 else (0, literal) for row, literal in walls)
        key = (unit, side, below, names, window[0].tobytes(), window[1].tobytes(), decided)
        if key not in self._known:
            full = len(self._known) >= MOST_CONTACTS or self._forms.work(last) > MOST_WORK
            self._forms.enter(last, bits, window[2])
            self._known[key] = not full and self._is_empty(unit, side, walls, window, decided)
        return self._known[key]

    def _is_empty(
        self,
        unit: int,
        side: int,
        walls: list[tuple[int, int]],
        window: tuple[Vector, Vector, float | None],
        decided: bool,
    ) -> bool:
        sign = 1 if side else -1
        goal = self._forms.of(unit).times(sign)
        if decided and not any(goal.row):
            return False
        box: dict[int, tuple[int, Fraction]] = {}
        rest: list[Form] = []
        for row, literal in walls:
            if row < 0:
                i, upper = (-row - 1) // 2, row % 2 == 1
                box[i] = (-1 if upper else 1, self._end(i, upper, window))
            elif literal < 0:
                wall = self._of_domain(row)
                if wall is None:
                    return False
                rest.append(wall)
            else:
                rest.append(self._forms.of(literal >> 1).times(1 if literal & 1 else -1))
        flat = set(np.flatnonzero(window[0] == window[1]).tolist())
        return _never_positive(goal, rest, box, flat)

    def _end(self, i: int, upper: bool, window: tuple[Vector, Vector, float | None]) -> Fraction:
        """Where the domain, or a box that holds it, ends in coordinate i."""
        lo, hi, reach = window
        domain = self.local.domain
        if reach is not None or domain is None:
            return Fraction(float((hi if upper else lo)[i]))
        box = domain.bounding_box
        return Fraction(float((box.hi if upper else box.lo)[i]))

    def _of_domain(self, row: int) -> Form | None:
        """The row-th half-space of a polytope, of those that are not zero, as a form >= 0."""
        domain = self.local.domain
        if domain is None or self._half_spaces is None:
            return None
        A, b = self._half_spaces
        half = domain.bounding_box.halfwidth
        half = np.where(half > 0, half, 1.0)
        k = np.flatnonzero(np.linalg.norm(A * half, axis=1))[row]
        return Form([-Fraction(a) for a in A[k].tolist()], Fraction(float(b[k])))


class _Forms:
    """The units of a search as affine forms of its coordinates, for the bits of a cell, exactly."""

    def __init__(self, local: Local):
        self.network = local.original
        self._free, self._fixed = local.free.tolist(), local.fixed
        hidden = [k for k, layer in enumerate(self.network.layers) if layer.has_units]
        self._place: list[tuple[int, int]] = []  # layer and unit of every unit of the search
        self._number: dict[tuple[int, int], int] = {}
        self._stable: dict[int, Vector] = {}
        self._first: list[int] = []
        for k, (low, _), kept in zip(hidden, local.bounds, local.kept, strict=True):
            first = len(self._place)
            for i in kept.tolist():
                self._number[k, i] = len(self._place)
                self._place.append((k, i))
                self._first.append(first)
            below, above = self.network.layers[k].activation.slopes
            self._stable[k] = np.where(low >= 0, above, below)
        self._entries = [
            sum(mx.nnz(m) for m in layer.affine.terms.values()) for layer in self.network.layers
        ]
        self._bits: NDArray[np.int8] = np.zeros(0, np.int8)
        self._reach: Fraction | None = None
        self._below: bytes | None = None
        self._values: dict[tuple[int, int], Form] = {}

    def units_below(self, unit: int) -> int:
        """How many units of the search lie in layers before that of ``unit``."""
        return self._first[unit]

    def work(self, unit: int) -> int:
        """Multiplications behind the form of a unit."""
        return sum(self._entries[: self._place[unit][0] + 1]) * (len(self._free) + 1)

    def enter(self, unit: int, bits: NDArray[np.int8], reach: float | None) -> None:
        """Speak of the layer of ``unit`` and those below, on the cell with these bits."""
        below = bits[: self.units_below(unit)].tobytes()
        if below != self._below:  # else what these layers read is as it was
            self._below, self._values = below, {}
        self._bits = bits
        self._reach = None if reach is None else Fraction(reach)

    def of(self, unit: int) -> Form:
        """A unit's pre-activation; of the whole space all is gradient."""
        layer, i = self._place[unit]
        form = self._row(self.network.layers[layer].affine, i)
        if self._reach is None:
            return form
        return Form([*form.times(self._reach).row, form.const], ZERO)

    def _row(self, affine: Affine, i: int) -> Form:
        read = (
            (Fraction(w), self._value(source, j))
            for source, matrix in affine.terms.items()
            for j, w in zip(*(x.tolist() for x in mx.row_entries(matrix, i)), strict=True)
        )
        return combined(read, Fraction(float(affine.bias[i])), len(self._free))

    def _value(self, source: int, j: int) -> Form:
        if (source, j) not in self._values:
            self._values[source, j] = self._new_value(source, j)
        return self._values[source, j]

    def _new_value(self, source: int, j: int) -> Form:
        if source == 0:
            gradient = [Fraction(int(k == j)) for k in self._free]
            return Form(gradient, ZERO if j in self._free else Fraction(float(self._fixed[j])))
        layer = self.network.layers[source - 1]
        form = self._row(layer.affine, j)
        if not layer.has_units:
            return form
        number = self._number.get((source - 1, j))
        if number is None:
            return form.times(Fraction(float(self._stable[source - 1][j])))
        return form.times(Fraction(float(layer.activation.slopes[int(self._bits[number])])))


def _never_positive(
    goal: Form, walls: list[Form], box: dict[int, tuple[int, Fraction]], flat: set[int]
) -> bool:
    """Whether goal <= 0 follows from the walls, which are >= 0, by multipliers of all of them.

    Args:
        box: per coordinate that ends: -1 for the upper end and 1 for the lower one, and where.
        flat: the coordinates whose two ends are one.
    """
    size = len(goal.row)
    inside = [i for i in range(size) if i not in box]
    if len(inside) != len(walls):
        return False
    multipliers = _solved([[*(w.row[i] for w in walls), -goal.row[i]] for i in inside])
    if multipliers is None or any(by < 0 for by in multipliers):
        return False
    left = combined([(ONE, goal), *zip(multipliers, walls, strict=True)], ZERO, size)
    if any(sign * left.row[i] > 0 and i not in flat for i, (sign, _) in box.items()):
        return False
    return left.const + sum(left.row[i] * end for i, (_, end) in box.items()) <= 0


def _solved(rows: list[Row]) -> Row | None:
    """The solution of a square system, given as rows with their right-hand sides, if it has one."""
    n = len(rows)
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(n):
            if i != k and rows[i][k]:
                factor = rows[i][k] / rows[k][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [rows[k][n] / rows[k][k] for k in range(n)]
