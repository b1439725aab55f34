"""The loop behind `FreshUnits`: one pass over the moments of a parameter's young entries.

torch needs seven passes and as many temporaries for the same, a tenth of a training step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from numba import cfunc, njit, types
from numba.np.numpy_support import carray


@njit(inline="always")
def _factors(before, beta, t):  # pragma: no cover - compiled
    """The two factors of `optimizer_state`, from beta^age before the update; (1, 0) if old."""
    if before <= 0.0 or beta <= 0.0:
        return 1.0, 0.0
    ahead, now = 1.0 - beta**t, 1.0 - before * beta
    growth = ahead / (1.0 - beta ** (t - 1.0)) if t > 1.0 else 1.0
    return growth * (1.0 - before) / now, max((1.0 - beta) / beta * (ahead / now - 1.0), 0.0)


def _age_moments(powers, factors, young, rows, columns, inner, t, beta1, beta2,
                gradient, first, second, largest, top):  # fmt: skip  # pragma: no cover
    """Age rows and columns by one update; prepare the moments of entries that are young.

    ``powers`` (2, rows + columns) holds beta^age; ``factors`` (4, rows + columns) and ``young``
    (columns) are written over; ``top`` says whether there is a ``largest``.
    """
    size = rows + columns
    ages, f = carray(powers, (2, size)), carray(factors, (4, size))
    picked = carray(young, (columns,))
    count, early = 0, False  # young columns, and whether any of them counts for beta1
    for i in range(size):
        a, b = _factors(ages[0, i], beta1, t)
        c, d = _factors(ages[1, i], beta2, t)
        f[0, i], f[1, i], f[2, i], f[3, i] = a, b, c, d
        if i >= rows and ages[1, i] > 0.0:
            picked[count] = i - rows
            count += 1
            early = early or ages[0, i] > 0.0
        ages[0, i] = ages[0, i] * beta1 if ages[0, i] > 1e-20 else 0.0
        ages[1, i] *= beta2
    g = carray(gradient, (rows, columns, inner))
    m = carray(first, (rows, columns, inner))
    v = carray(second, (rows, columns, inner))
    x = carray(largest, (rows, columns, inner))
    for i in range(rows):
        r1, k1, r2, k2 = f[0, i], f[1, i], f[2, i], f[3, i]
        old = ages[1, i] <= 0.0
        if old and 4 * count < columns:  # few young columns, or none
            for n in range(count):
                j = picked[n]
                at = rows + j
                for k in range(inner):
                    here = g[i, j, k]
                    m[i, j, k] = m[i, j, k] * f[0, at] + f[1, at] * here
                    v[i, j, k] = v[i, j, k] * f[2, at] + f[3, at] * here * here
                    if top:
                        x[i, j, k] *= f[2, at]
            continue
        if inner == 1:
            if early or ages[0, i] > 0.0:
                for j in range(columns):
                    r, w = f[0, rows + j], f[1, rows + j]
                    r, w = (r if r < r1 else r1), (w if w > k1 else k1)
                    m[i, j, 0] = m[i, j, 0] * r + w * g[i, j, 0]
            for j in range(columns):
                r, w = f[2, rows + j], f[3, rows + j]
                r, w = (r if r < r2 else r2), (w if w > k2 else k2)
                v[i, j, 0] = v[i, j, 0] * r + w * g[i, j, 0] * g[i, j, 0]
            if top:
                for j in range(columns):
                    r = f[2, rows + j]
                    x[i, j, 0] *= r if r < r2 else r2
            continue
        for j in range(columns):
            at = rows + j
            ra, ka = min(r1, f[0, at]), max(k1, f[1, at])
            rb, kb = min(r2, f[2, at]), max(k2, f[3, at])
            if ka > 0.0 or ra < 1.0:
                for k in range(inner):
                    m[i, j, k] = m[i, j, k] * ra + ka * g[i, j, k]
            for k in range(inner):
                v[i, j, k] = v[i, j, k] * rb + kb * g[i, j, k] * g[i, j, k]
            if top:
                for k in range(inner):
                    x[i, j, k] *= rb


_CALL = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 3, *[ctypes.c_ssize_t] * 3, *[ctypes.c_double] * 3,
    *[ctypes.c_void_p] * 4, ctypes.c_ssize_t,
)  # fmt: skip


def _compiled(kind: Any) -> Callable[..., None]:
    power, each, size = types.CPointer(types.float64), types.CPointer(kind), types.intp
    signature = types.void(
        power, each, types.CPointer(types.int64), size, size, size,
        types.float64, types.float64, types.float64, each, each, each, each, size,
    )  # fmt: skip
    options: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
    try:
        made: Any = cfunc(signature, cache=True, **options)(_age_moments)
    except RuntimeError:  # numba finds no place to keep compiled code
        made = cfunc(signature, **options)(_age_moments)
    call: Any = _CALL(made.address)
    call.owner = made  # the code lives as long as this
    return call


#: By type of the moments.
AGE_MOMENTS = {
    torch.float32: _compiled(types.float32),
    torch.float64: _compiled(types.float64),
}
