"""Products of small matrices in kernels.

A matrix is an array, where in it the matrix begins, and how far its rows are apart. So matrices of
all sizes share one array, and products are added in place to a part of a larger matrix. Tiles of
four rows and two times eight columns stay in registers: what BLAS gains by packing large matrices
costs more than it saves on those of a few dozen rows.
"""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import loose_part
from relunorm.compiled.operations import eight, keep


@loose_part
def add_product(a, a_at, a_wide, b, b_at, b_wide, c, c_at, c_wide, rows, inner, columns):  # type: ignore[no-untyped-def]
    """c += a b, of rows x inner and inner x columns."""
    whole = rows - rows % 4
    for r in range(0, whole, 4):
        at, to, j = a_at + r * a_wide, c_at + r * c_wide, 0
        while j + 16 <= columns:
            _two_wide(a, at, a_wide, b, b_at + j, b_wide, c, to + j, c_wide, inner)
            j += 16
        while j < columns:
            some = min(columns - j, 8)
            _one_wide(a, at, a_wide, b, b_at + j, b_wide, c, to + j, c_wide, inner, some)
            j += 8
    for r in range(whole, rows):
        for j in range(0, columns, 8):
            some, to, row = min(columns - j, 8), c_at + r * c_wide + j, b_at + j
            total = eight(c, to, some)
            for k in range(inner):
                total += a[a_at + r * a_wide + k] * eight(b, row, some)
                row += b_wide
            keep(c, to, some, total)


@loose_part
def _two_wide(a, at, a_wide, b, b_at, b_wide, c, to, c_wide, inner):  # type: ignore[no-untyped-def]
    """Four rows, two times eight columns."""
    i0, i1, i2, i3 = at, at + a_wide, at + 2 * a_wide, at + 3 * a_wide
    o0, o1, o2, o3 = to, to + c_wide, to + 2 * c_wide, to + 3 * c_wide
    l0, l1, l2, l3 = eight(c, o0), eight(c, o1), eight(c, o2), eight(c, o3)
    r0, r1, r2, r3 = eight(c, o0 + 8), eight(c, o1 + 8), eight(c, o2 + 8), eight(c, o3 + 8)
    row = b_at
    for k in range(inner):
        left, right = eight(b, row), eight(b, row + 8)
        w0, w1, w2, w3 = eight(a[i0 + k]), eight(a[i1 + k]), eight(a[i2 + k]), eight(a[i3 + k])
        l0 += w0 * left
        r0 += w0 * right
        l1 += w1 * left
        r1 += w1 * right
        l2 += w2 * left
        r2 += w2 * right
        l3 += w3 * left
        r3 += w3 * right
        row += b_wide
    c[o0 : o0 + 8], c[o1 : o1 + 8], c[o2 : o2 + 8], c[o3 : o3 + 8] = l0, l1, l2, l3
    o0, o1, o2, o3 = o0 + 8, o1 + 8, o2 + 8, o3 + 8
    c[o0 : o0 + 8], c[o1 : o1 + 8], c[o2 : o2 + 8], c[o3 : o3 + 8] = r0, r1, r2, r3


@loose_part
def _one_wide(a, at, a_wide, b, b_at, b_wide, c, to, c_wide, inner, some):  # type: ignore[no-untyped-def]
    """Four rows, eight columns or fewer."""
    i0, i1, i2, i3 = at, at + a_wide, at + 2 * a_wide, at + 3 * a_wide
    o0, o1, o2, o3 = to, to + c_wide, to + 2 * c_wide, to + 3 * c_wide
    l0, l1 = eight(c, o0, some), eight(c, o1, some)
    l2, l3 = eight(c, o2, some), eight(c, o3, some)
    row = b_at
    for k in range(inner):
        left = eight(b, row, some)
        l0 += a[i0 + k] * left
        l1 += a[i1 + k] * left
        l2 += a[i2 + k] * left
        l3 += a[i3 + k] * left
        row += b_wide
    keep(c, o0, some, l0)
    keep(c, o1, some, l1)
    keep(c, o2, some, l2)
    keep(c, o3, some, l3)


@loose_part
def add_product_turned(a, a_at, a_wide, b, b_at, b_wide, c, c_at, c_wide, rows, inner, columns):  # type: ignore[no-untyped-def]
    """c += a b', of rows x inner and columns x inner."""
    even, whole = rows - rows % 2, columns - columns % 4
    for r in range(0, even, 2):
        at, to = a_at + r * a_wide, c_at + r * c_wide
        for j in range(0, whole, 4):
            _two_by_four(a, at, a_wide, b, b_at + j * b_wide, b_wide, c, to + j, c_wide, inner)
    for r in range(rows):
        for j in range(whole if r < even else 0, columns):
            at, row, total = a_at + r * a_wide, b_at + j * b_wide, eight(0.0)
            for k in range(0, inner, 8):
                some = min(inner - k, 8)
                total += eight(a, at + k, some) * eight(b, row + k, some)
            c[c_at + r * c_wide + j] += np.sum(total)


@loose_part
def _two_by_four(a, at, a_wide, b, b_at, b_wide, c, to, c_wide, inner):  # type: ignore[no-untyped-def]
    i0, i1, i2, i3 = b_at, b_at + b_wide, b_at + 2 * b_wide, b_at + 3 * b_wide
    s0, s1, s2, s3 = eight(0.0), eight(0.0), eight(0.0), eight(0.0)
    t0, t1, t2, t3 = eight(0.0), eight(0.0), eight(0.0), eight(0.0)
    for k in range(0, inner, 8):
        some = min(inner - k, 8)
        v, w = eight(a, at + k, some), eight(a, at + a_wide + k, some)
        x0, x1 = eight(b, i0 + k, some), eight(b, i1 + k, some)
        x2, x3 = eight(b, i2 + k, some), eight(b, i3 + k, some)
        s0 += v * x0
        t0 += w * x0
        s1 += v * x1
        t1 += w * x1
        s2 += v * x2
        t2 += w * x2
        s3 += v * x3
        t3 += w * x3
    c[to] += np.sum(s0)
    c[to + 1] += np.sum(s1)
    c[to + 2] += np.sum(s2)
    c[to + 3] += np.sum(s3)
    c[to + c_wide] += np.sum(t0)
    c[to + c_wide + 1] += np.sum(t1)
    c[to + c_wide + 2] += np.sum(t2)
    c[to + c_wide + 3] += np.sum(t3)
