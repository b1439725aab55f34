"""The loops behind `FreshUnits`: Adam's step at the age of every entry, one pass over a parameter.

`RENEW` moves young entries on after the optimizer's own step; in torch's operations the same takes
eight passes over the whole parameter. `fused_update` takes the place of torch's fused step.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from numba import cfunc, njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray


def _rounded_once(_, a, b, c):
    return a(a, b, c), lambda context, builder, signature, args: builder.fma(*args)


_fma: Any = intrinsic(_rounded_once)  # a b + c


@njit(inline="always")
def _grown(ages, f, constant, rows, size, young):  # pragma: no cover - compiled
    """Age rows and columns by one update; write ``f`` and ``young``, and count young columns.

    ``f`` gets lr / (1 - beta1^age) and sqrt(1 - beta2^age), and behind the last column what the
    optimizer takes for both, and epsilon.
    """
    f[0, size], f[1, size], f[0, size + 1] = constant[3], constant[4], constant[5]
    count = 0
    for i in range(size):
        f[0, i], f[1, i] = f[0, size], f[1, size]
        if ages[0, i] + ages[1, i] > 0.0:
            ages[0, i] *= constant[0]
            ages[1, i] *= constant[1]
            if i > 0 and ages[0, i] == ages[0, i - 1] and ages[1, i] == ages[1, i - 1]:
                f[0, i], f[1, i] = f[0, i - 1], f[1, i - 1]  # revived together
            else:
                f[0, i] = max(constant[3], constant[2] / (1.0 - ages[0, i]))
                f[1, i] = min(constant[4], math.sqrt(1.0 - ages[1, i]))
            if i >= rows:
                young[count] = i - rows
                count += 1
    return count


@njit(inline="always")
def _moved(p, m, v, rate, root, step, usual, least):  # pragma: no cover - compiled
    """An entry that went by ``step`` and ``usual``, as if by ``rate`` and ``root``.

    The old stay as they are, and so do entries whose second moment has overflowed.
    """
    size = math.sqrt(v)
    then, now = size * usual + least, size * root + least
    bottom = then * now
    new = p + m * ((step * now - rate * then) / bottom)
    return new if (rate > step or root > usual) and 0.0 < bottom < math.inf else p


def _renew(powers, factors, picked, rows, columns, inner, constants,
           parameter, first, second):  # fmt: skip  # pragma: no cover - compiled
    """Age rows and columns by one update, and move their entries as Adam does at their age.

    ``powers`` (2, rows + columns) holds beta^age; ``factors`` (2, rows + columns + 2) and
    ``picked`` (columns) are written over; ``constants``: beta1, beta2, the learning rate, the
    optimizer's own step, the root of its second correction, and epsilon.
    """
    size = rows + columns
    ages, constant = carray(powers, (2, size)), carray(constants, 6)
    f, young = carray(factors, (2, size + 2)), carray(picked, (columns,))
    shape = (rows, columns, inner)
    p, m, v = carray(parameter, shape), carray(first, shape), carray(second, shape)
    count = _grown(ages, f, constant, rows, size, young)
    for i in range(size + 1):
        f[1, i] = 1 / f[1, i]
    step, usual, least = f[0, size], f[1, size], f[0, size + 1]
    if columns == 1 and inner == 1:
        for i in range(rows):
            p[i, 0, 0] = _moved(
                p[i, 0, 0], m[i, 0, 0], v[i, 0, 0], f[0, i], f[1, i], step, usual, least
            )
        return
    for i in range(rows):  # an entry is as old as the younger of its row and its column
        r, s = f[0, i], f[1, i]
        if r == step and s == usual and 4 * count < columns:  # few young columns, or none
            for n in range(count):
                j = young[n]
                a, b = f[0, rows + j], f[1, rows + j]
                for k in range(inner):
                    p[i, j, k] = _moved(
                        p[i, j, k], m[i, j, k], v[i, j, k], a, b, step, usual, least
                    )
        elif inner == 1:
            for j in range(columns):
                a, b = f[0, rows + j], f[1, rows + j]
                a, b = (a if a > r else r), (b if b > s else s)
                p[i, j, 0] = _moved(p[i, j, 0], m[i, j, 0], v[i, j, 0], a, b, step, usual, least)
        else:
            for j in range(columns):
                a, b = max(r, f[0, rows + j]), max(s, f[1, rows + j])
                for k in range(inner):
                    p[i, j, k] = _moved(
                        p[i, j, k], m[i, j, k], v[i, j, k], a, b, step, usual, least
                    )


@njit(inline="always")
def _averaged(g, p, m, v, one, two, beta, added):  # pragma: no cover - compiled
    """Both moments after a gradient, each product added as torch's fused kernel adds it."""
    if added != 0:
        g = _fma(p, added, g)
    return _fma(one, g - m, m), _fma(two * g, g, v * beta)


def _update(powers, factors, picked, rows, columns, constants,
            parameter, first, second, gradient):  # fmt: skip  # pragma: no cover - compiled
    """Age by one update, and make Adam's step as torch's fused kernel does, rounding by rounding.

    ``constants`` as for `_renew`, then the decay that is added to gradients and the factor by which
    parameters decay. Young rows need not round as the kernel does and save a division.
    """
    size, shape = rows + columns, (rows, columns)
    ages, constant = carray(powers, (2, size)), carray(constants, 8)
    f, young = carray(factors, (2, size + 2)), carray(picked, (columns,))
    p, m, v = carray(parameter, shape), carray(first, shape), carray(second, shape)
    g = carray(gradient, shape)
    _grown(ages, f, constant, rows, size, young)
    step, usual, least = f[0, size], f[1, size], f[0, size + 1]
    one, two = types.float32(1 - constant[0]), types.float32(1 - constant[1])
    beta, added = types.float32(constant[1]), types.float32(constant[6])
    shrink, longest, lowest = types.float32(constant[7]), step, usual
    for j in range(rows, size):
        longest, lowest = max(longest, f[0, j]), min(lowest, f[1, j])
    for i in range(rows):
        r, s = f[0, i], f[1, i]
        if r < longest or s > lowest:
            for j in range(columns):
                a, b = f[0, rows + j], f[1, rows + j]
                a, b = (a if a > r else r), (b if b < s else s)
                x, y = _averaged(g[i, j], p[i, j], m[i, j], v[i, j], one, two, beta, added)
                m[i, j], v[i, j] = x, y
                p[i, j] = shrink * p[i, j] + (-a * x) / (math.sqrt(y) / b + least)
        elif r > step or s < usual:
            s = types.float32(1) / s  # one that is an integer would make it float64
            for j in range(columns):
                x, y = _averaged(g[i, j], p[i, j], m[i, j], v[i, j], one, two, beta, added)
                m[i, j], v[i, j] = x, y
                p[i, j] = shrink * p[i, j] + (-r * x) / (math.sqrt(y) * s + least)
        else:
            for j in range(columns):
                x, y = _averaged(g[i, j], p[i, j], m[i, j], v[i, j], one, two, beta, added)
                m[i, j], v[i, j] = x, y
                p[i, j] = shrink * p[i, j] + (-step * x) / (math.sqrt(y) / usual + least)


def _compiled(function: Any, signature: Any, **options: Any) -> Callable[..., None]:
    kinds = {types.intp: ctypes.c_ssize_t}
    options["error_model"] = "numpy"
    try:
        made: Any = cfunc(signature, cache=True, **options)(function)
    except RuntimeError:  # numba finds no place to keep compiled code
        made = cfunc(signature, **options)(function)
    arguments = [kinds.get(each, ctypes.c_void_p) for each in signature.args]
    call: Any = ctypes.CFUNCTYPE(None, *arguments)(made.address)
    call.owner = made  # the code lives as long as this
    return call


def _renewing(kind: Any) -> Callable[..., None]:
    double, each, size = types.CPointer(types.float64), types.CPointer(kind), types.intp
    signature = types.void(
        double, each, types.CPointer(types.int64), size, size, size, double, each, each, each
    )
    return _compiled(_renew, signature, fastmath={"contract"})


#: By type of the parameter.
RENEW = {torch.float32: _renewing(types.float32), torch.float64: _renewing(types.float64)}


@cache
def fused_update() -> Callable[..., None]:
    """`_update`, compiled when it is first asked for."""
    double, each, size = types.CPointer(types.float64), types.CPointer(types.float32), types.intp
    signature = types.void(
        double, each, types.CPointer(types.int64), size, size, double, each, each, each, each
    )
    return _compiled(_update, signature)
