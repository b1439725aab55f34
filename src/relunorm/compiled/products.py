"""Products of small matrices in kernels.

A matrix is an array, where in it the matrix begins, and how far its rows are apart. So matrices of
all sizes share one array, and products are added in place to a part of a larger matrix. Tiles stay
in registers, of four rows and twice as many columns as one register holds (eight float64, sixteen
float32), at the edge of eight rows and one register:
what BLAS gains by packing large matrices costs more than it saves on those of a few dozen rows.
Where a tile reaches beyond the last row it computes that one several times. What is added to a
number is summed by itself, one product after the other: it has as many roundings as that has terms,
and one more.
"""

from __future__ import annotations

from relunorm.compiled.jit import fused_part
from relunorm.compiled.operations import keep, lanes, spread, width


@fused_part
def add_product(a, a_at, a_wide, b, b_at, b_wide, c, c_at, c_wide, rows, inner, columns):  # type: ignore[no-untyped-def]
    """c += a b, of rows x inner and inner x columns."""
    j, wide = 0, width(c)
    while j + wide < columns:
        some = min(columns - j - wide, wide)
        for r in range(0, rows, 4):
            _two_wide(
                a, a_at, a_wide, b, b_at + j, b_wide, c, c_at + j, c_wide, r, rows - 1, inner, some
            )
        j += 2 * wide
    if j < columns:
        some = columns - j
        for r in range(0, rows, 8):
            _one_wide(
                a, a_at, a_wide, b, b_at + j, b_wide, c, c_at + j, c_wide, r, rows - 1, inner, some
            )


@fused_part
def _two_wide(a, at, a_wide, b, b_at, b_wide, c, to, c_wide, r, last, inner, some):  # type: ignore[no-untyped-def]
    """Four rows from r on, a register of columns and some more."""
    wide = width(c)
    r1, r2, r3 = min(r + 1, last), min(r + 2, last), min(r + 3, last)
    i0, i1, i2, i3 = at + r * a_wide, at + r1 * a_wide, at + r2 * a_wide, at + r3 * a_wide
    o0, o1, o2, o3 = to + r * c_wide, to + r1 * c_wide, to + r2 * c_wide, to + r3 * c_wide
    zero = spread(0.0, c)
    l0 = l1 = l2 = l3 = m0 = m1 = m2 = m3 = zero
    row = b_at
    for k in range(inner):
        left, right = lanes(b, row), lanes(b, row + wide, some)
        w0, w1 = spread(a[i0 + k], c), spread(a[i1 + k], c)
        w2, w3 = spread(a[i2 + k], c), spread(a[i3 + k], c)
        l0 += w0 * left
        m0 += w0 * right
        l1 += w1 * left
        m1 += w1 * right
        l2 += w2 * left
        m2 += w2 * right
        l3 += w3 * left
        m3 += w3 * right
        row += b_wide
    # all before any is kept: rows may be the same
    l0 += lanes(c, o0)
    m0 += lanes(c, o0 + wide, some)
    l1 += lanes(c, o1)
    m1 += lanes(c, o1 + wide, some)
    l2 += lanes(c, o2)
    m2 += lanes(c, o2 + wide, some)
    l3 += lanes(c, o3)
    m3 += lanes(c, o3 + wide, some)
    keep(c, o0, wide, l0)
    keep(c, o1, wide, l1)
    keep(c, o2, wide, l2)
    keep(c, o3, wide, l3)
    keep(c, o0 + wide, some, m0)
    keep(c, o1 + wide, some, m1)
    keep(c, o2 + wide, some, m2)
    keep(c, o3 + wide, some, m3)


@fused_part
def _one_wide(a, at, a_wide, b, b_at, b_wide, c, to, c_wide, r, last, inner, some):  # type: ignore[no-untyped-def]
    """Eight rows from r on, some columns."""
    r1, r2, r3, r4 = min(r + 1, last), min(r + 2, last), min(r + 3, last), min(r + 4, last)
    r5, r6, r7 = min(r + 5, last), min(r + 6, last), min(r + 7, last)
    i0, i1, i2, i3 = at + r * a_wide, at + r1 * a_wide, at + r2 * a_wide, at + r3 * a_wide
    i4, i5, i6, i7 = at + r4 * a_wide, at + r5 * a_wide, at + r6 * a_wide, at + r7 * a_wide
    o0, o1, o2, o3 = to + r * c_wide, to + r1 * c_wide, to + r2 * c_wide, to + r3 * c_wide
    o4, o5, o6, o7 = to + r4 * c_wide, to + r5 * c_wide, to + r6 * c_wide, to + r7 * c_wide
    zero = spread(0.0, c)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
    row = b_at
    for k in range(inner):
        left = lanes(b, row, some)
        s0 += a[i0 + k] * left
        s1 += a[i1 + k] * left
        s2 += a[i2 + k] * left
        s3 += a[i3 + k] * left
        s4 += a[i4 + k] * left
        s5 += a[i5 + k] * left
        s6 += a[i6 + k] * left
        s7 += a[i7 + k] * left
        row += b_wide
    # all before any is kept: rows may be the same
    s0 += lanes(c, o0, some)
    s1 += lanes(c, o1, some)
    s2 += lanes(c, o2, some)
    s3 += lanes(c, o3, some)
    s4 += lanes(c, o4, some)
    s5 += lanes(c, o5, some)
    s6 += lanes(c, o6, some)
    s7 += lanes(c, o7, some)
    keep(c, o0, some, s0)
    keep(c, o1, some, s1)
    keep(c, o2, some, s2)
    keep(c, o3, some, s3)
    keep(c, o4, some, s4)
    keep(c, o5, some, s5)
    keep(c, o6, some, s6)
    keep(c, o7, some, s7)
