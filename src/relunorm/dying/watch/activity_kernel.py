"""On how many samples each unit is active, and how large it is, in one pass over the activations.

One call by address reads the activations once, in the order of the memory: within a training step
three torch calls run cold (docs/dying.md). Counts are exact; sums of sizes are to float64 rounding
after adding a few neighbours (4 rows, or 256 places of a plane) in the activations' own type.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from relunorm.compiled.jit import REORDERED, Kernel
from relunorm.compiled.language.kinds import INT, Array


def activity(planes, counts, totals, pair, together):
    """Write into ``counts`` the entries above 0 of each unit, into ``totals`` their absolute sum.

    ``pair`` is 0 and 1 in the activations' type: sums in a wider one take twice the vectors. Of a
    plane so many entries are summed ``together``; were their number written here, the compiler
    would unroll the loop and use no vectors.
    """
    outer, units, inner = planes.shape
    for j in range(units):
        counts[j], totals[j] = 0.0, 0.0
    if inner > 1:  # convolutions: a unit's entries lie together
        zero, one = pair[0], pair[1]
        for i in range(outer):
            for j in range(units):
                for start in range(0, inner, together):
                    part = planes[i, j, start : start + together]
                    count = total = zero
                    for k in range(len(part)):
                        count += one if part[k] > zero else zero
                        total += abs(part[k])
                    counts[j] += count
                    totals[j] += total
    else:
        whole = outer - outer % 4
        for i in range(0, whole, 4):  # four rows at a time: a quarter of the stores
            for j in range(units):
                a, b = planes[i, j, 0], planes[i + 1, j, 0]
                c, d = planes[i + 2, j, 0], planes[i + 3, j, 0]
                counts[j] += ((a > 0) + (b > 0)) + ((c > 0) + (d > 0))
                totals[j] += (abs(a) + abs(b)) + (abs(c) + abs(d))
        for i in range(whole, outer):
            for j in range(units):
                x = planes[i, j, 0]
                counts[j] += x > 0
                totals[j] += abs(x)
    for j in range(units):
        if totals[j] == np.inf:  # some may be too large for their type together: once more, alone
            total = 0.0
            for i in range(outer):
                for k in range(inner):
                    total += abs(planes[i, j, k])
            totals[j] = total


#: NaN and infinities stay what they are.
_run = Kernel(activity, fast=REORDERED)


def _compiled(dtype: str) -> Callable[[int, int, int, int, int, int], None]:
    totals, pair = Array("float64", 1), np.array([0, 1], dtype)
    run = _run.by_address(Array(dtype, 3), totals, totals, Array(dtype, 1), INT)
    at = pair.ctypes.data

    def call(values: int, outer: int, units: int, inner: int, active: int, sizes: int) -> None:
        run(values, outer, units, inner, active, units, sizes, units, at, len(pair), 256)

    return call


#: Per type of activations: f(values, outer, units, inner, active, sizes), addresses of a contiguous
#: (outer, units, inner) block and of two float64 rows of ``units`` entries that are written over.
ACTIVITY = {torch.float32: _compiled("float32"), torch.float64: _compiled("float64")}
