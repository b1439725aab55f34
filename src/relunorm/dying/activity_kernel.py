"""On how many samples each unit is active, and how large it is, in one pass over the activations.

Between two rectifiers a training step sweeps megabytes of weights through the caches, so code that
runs once a step runs cold: three torch calls on 128 x 512 activations were measured at 20 us warm
and at 90 us within a step. Here one call by address reads the activations once. Counts are exact,
sums of sizes to float64 rounding after adding four neighbours in the activations' own type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import cfunc, types
from numba.np.numpy_support import carray


def _activity(values, outer, units, inner, active, sizes):  # pragma: no cover - compiled
    """Write into ``active`` the entries above 0 of each unit, into ``sizes`` their absolute sum."""
    counts, totals = carray(active, (units,)), carray(sizes, (units,))
    if inner > 1:  # convolutions: a unit's entries lie together
        planes = carray(values, (outer, units, inner))
        for j in range(units):
            count, total = 0, 0.0
            for i in range(outer):
                for k in range(inner):
                    x = planes[i, j, k]
                    count += x > 0
                    total += abs(x)
            counts[j], totals[j] = count, total
        return
    rows = carray(values, (outer, units))
    for j in range(units):
        counts[j], totals[j] = 0.0, 0.0
    whole = outer - outer % 4
    for i in range(0, whole, 4):  # four rows at a time: a quarter of the stores
        for j in range(units):
            a, b, c, d = rows[i, j], rows[i + 1, j], rows[i + 2, j], rows[i + 3, j]
            counts[j] += ((a > 0) + (b > 0)) + ((c > 0) + (d > 0))
            totals[j] += (abs(a) + abs(b)) + (abs(c) + abs(d))
    for i in range(whole, outer):
        for j in range(units):
            x = rows[i, j]
            counts[j] += x > 0
            totals[j] += abs(x)
    for j in range(units):
        if totals[j] == np.inf:  # four may be too large for their type together: once more, alone
            total = 0.0
            for i in range(outer):
                total += abs(rows[i, j])
            totals[j] = total


_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, *[ctypes.c_ssize_t] * 3, ctypes.c_void_p, ctypes.c_void_p
)


def _compiled(kind: Any) -> Callable[[int, int, int, int, int, int], None]:
    out = types.CPointer(types.float64)
    size = types.intp
    signature = types.void(types.CPointer(kind), size, size, size, out, out)
    # Sums may be reordered, which vector instructions need; NaN and infinities stay what they are.
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": {"reassoc", "contract"}}
    try:
        made: Any = cfunc(signature, cache=True, **options)(_activity)
    except RuntimeError:  # numba finds no place to keep compiled code
        made = cfunc(signature, **options)(_activity)
    call: Any = _CALL(made.address)
    call.owner = made  # the code lives as long as this
    return call


#: Per type of activations: f(values, outer, units, inner, active, sizes), addresses of a contiguous
#: (outer, units, inner) block and of two float64 rows of ``units`` entries that are written over.
ACTIVITY = {torch.float32: _compiled(types.float32), torch.float64: _compiled(types.float64)}
