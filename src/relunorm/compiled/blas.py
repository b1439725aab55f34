"""Products of matrices in kernels that count no references: BLAS, where numba's dot would allocate.

A matrix is an array, where in it the matrix begins, and how far its rows are apart. So matrices of
all sizes share one array, and products are added in place to a part of a larger matrix.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.linalg import check_blas_return, ensure_blas

from relunorm.compiled.fields import INDEX, begin_of

LETTER, POINTER, REAL = ir.IntType(8), ir.IntType(8).as_pointer(), ir.DoubleType()

#: kind, is a turned, is b turned, sizes, 1, a and how far its columns are apart, b, 1, c.
_MATRIX = POINTER, INDEX
_GEMM = ir.FunctionType(
    ir.IntType(32), [*(LETTER,) * 3, *(INDEX,) * 3, POINTER, *_MATRIX, *_MATRIX, POINTER, *_MATRIX]
)


def _adding(turned: str) -> Any:
    """c += a b, or c += a b' where ``turned`` is "t", of rows x inner and inner x columns."""

    def typed(
        context: Any, a: Any, at: Any, wide: Any, b: Any, b_at: Any, b_wide: Any,
        c: Any, c_at: Any, c_wide: Any, rows: Any, inner: Any, columns: Any,
    ) -> Any:  # fmt: skip
        ensure_blas()
        kinds, three = (a, b, c), (types.int64,) * 3
        if not all(kind.dtype == types.float64 and kind.layout == "C" for kind in kinds):
            raise TypeError("a kernel multiplies contiguous arrays of float64")

        def call(target: Any, builder: Any, signature: Any, values: Any) -> Any:
            one = builder.bitcast(cgutils.alloca_once_value(builder, REAL(1.0)), POINTER)

            def matrix(number: int) -> tuple[Any, Any]:
                array, first, apart = values[3 * number : 3 * number + 3]
                begin = begin_of(target.data_model_manager[kinds[number]], builder, array)
                return builder.bitcast(builder.gep(begin, [first]), POINTER), apart

            # BLAS goes by columns: c' = b' a'
            letters = [LETTER(ord(letter)) for letter in ("d", turned, "n")]
            sizes = values[11], values[9], values[10]
            gemm = cgutils.get_or_insert_function(builder.module, _GEMM, "numba_xxgemm")
            given = [*letters, *sizes, one, *matrix(1), *matrix(0), one, *matrix(2)]
            check_blas_return(target, builder, builder.call(gemm, given))
            return target.get_dummy_value()

        two = types.int64, types.int64
        return types.none(a, *two, b, *two, c, *two, *three), call

    return intrinsic(typed)


add_product: Any = _adding("n")
add_product_turned: Any = _adding("t")
