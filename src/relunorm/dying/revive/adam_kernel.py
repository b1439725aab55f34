"""The loop behind `FreshUnits`: young entries move on after the optimizer's own step.

One pass over a parameter; in torch's operations the same takes eight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from relunorm.compiled.jit import inner, kernel
from relunorm.compiled.language.kinds import Array

FAST = "contract"


@partial(inner, fast=FAST)
def _grown(ages, f, constant, rows, size, young):
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


@partial(inner, fast=FAST)
def _moved(p, m, v, rate, root, step, usual, least):
    """An entry that went by ``step`` and ``usual``, as if by ``rate`` and ``root``.

    The old stay as they are, and so do entries whose second moment has overflowed.
    """
    size = math.sqrt(v)
    then, now = size * usual + least, size * root + least
    bottom = then * now
    new = p + m * ((step * now - rate * then) / bottom)
    return new if (rate > step or root > usual) and 0.0 < bottom < math.inf else p


@partial(kernel, fast=FAST)
def renew(ages, f, young, constant, p, m, v):
    """Age rows and columns by one update, and move their entries as Adam does at their age.

    ``ages`` (2, rows + columns) holds beta^age; ``f`` (2, rows + columns + 2) and ``young``
    (columns) are written over; ``constant``: beta1, beta2, the learning rate, the optimizer's own
    step, the root of its second correction, and epsilon.
    """
    rows, columns, inner = p.shape
    size = rows + columns
    count = _grown(ages, f, constant, rows, size, young)
    for i in range(size + 1):
        f[1, i] = 1 / f[1, i]
    step, usual, least = f[0, size], f[1, size], f[0, size + 1]
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


def _compiled(dtype: str) -> Callable[..., None]:
    """By addresses: powers, factors, picked; rows, columns, inner; constants, and three tensors."""
    double, each = Array("float64", 1), Array(dtype, 3)
    table = Array("float64", 2), Array(dtype, 2), Array("int64", 1), double
    run = renew.by_address(*table, each, each, each)

    def call(
        powers: int, factors: int, picked: int, rows: int, columns: int, inner: int,
        constants: int, parameter: int, first: int, second: int,
    ) -> None:  # fmt: skip
        size, shape = rows + columns, (rows, columns, inner)
        run(
            powers, 2, size, factors, 2, size + 2, picked, columns, constants, 6,
            parameter, *shape, first, *shape, second, *shape,
        )  # fmt: skip

    return call


#: By type of the parameter.
RENEW = {torch.float32: _compiled("float32"), torch.float64: _compiled("float64")}
