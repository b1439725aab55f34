"""Products of matrices in kernels, by the BLAS that SciPy has.

A matrix is an array, where in it the matrix begins, and how far its rows are apart. So matrices of
all sizes share one array, and products are added in place to a part of a larger matrix.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from relunorm.compiled import machine
from relunorm.compiled.language.assembly import NONE, Value
from relunorm.compiled.language.kinds import INT, REAL, Array, KernelError
from relunorm.compiled.operations import intrinsic


@cache
def _gemm() -> int:
    """The address of SciPy's dgemm: sums of products, by columns, integers of 32 bits."""
    from scipy.linalg import cython_blas  # type: ignore[attr-defined]

    capsule = cython_blas.__pyx_capi__["dgemm"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(capsule, name(capsule))


machine.OUTSIDE["relunorm_dgemm"] = _gemm

_DGEMM = "declare void @relunorm_dgemm(" + ", ".join(["ptr"] * 13) + ")"


def _adding(turned: bool) -> Any:
    """c += a b, or c += a b' where it is turned, of rows x inner and inner x columns."""

    def make(body: Any, *given: Value) -> Value:
        if any(one.kind != Array("float64", 1) for one in (given[0], given[3], given[6])):
            raise KernelError("a kernel multiplies matrices in arrays of float64")
        body.program.declared["dgemm"] = _DGEMM

        def number(value: Value) -> str:
            place = body.slot("i32")
            part = body.make(f"trunc i64 {body.convert(value, INT).parts[0]} to i32")
            body.do(f"store i32 {part}, ptr {place}")
            return place

        def letter(sign: str) -> str:
            place = body.slot("i8")
            body.do(f"store i8 {ord(sign)}, ptr {place}")
            return place

        def matrix(first: int) -> tuple[str, str]:
            array, at, apart = given[first : first + 3]
            part = body.convert(at, INT).parts[0]
            begin = f"getelementptr inbounds double, ptr {array.parts[0]}, i64 {part}"
            return body.make(begin), number(apart)

        one = body.slot("double")
        body.do(f"store double {body.convert(body.constant(1.0), REAL).parts[0]}, ptr {one}")
        rows, inner, columns = map(number, given[9:12])
        # BLAS goes by columns: c' = b' a'
        order = letter("t" if turned else "n"), letter("n"), columns, rows, inner
        places = [*order, one, *matrix(3), *matrix(0), one, *matrix(6)]
        body.do(f"call void @relunorm_dgemm({', '.join(f'ptr {place}' for place in places)})")
        return NONE

    return intrinsic(make)


add_product: Any = _adding(False)
add_product_turned: Any = _adding(True)
