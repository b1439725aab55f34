"""How the kernels are compiled.

A kernel only reads and writes arrays that its caller owns, so it needs no reference counting. numba
counts references of every array it touches all the same, also of those inside a tuple, and in
loops of a few dozen flops the counting was measured to take a third of the time. ``_nrt=False``
turns it off; such a function cannot allocate. ``error_model="numpy"`` leaves out checks for
division by zero.
"""

from __future__ import annotations

from typing import Any

from numba import njit as _njit

njit: Any = _njit  # its stubs do not know every option

#: For functions that allocate nothing.
kernel = njit(cache=True, nogil=True, _nrt=False, error_model="numpy")
#: The same for small parts of kernels: always inlined, so that no tuple of arrays is copied.
inner = njit(cache=True, nogil=True, _nrt=False, error_model="numpy", forceinline=True)
#: Inlined, and sums may be reordered (dot products become vector instructions).
inner_sum = njit(
    cache=True,
    nogil=True,
    _nrt=False,
    error_model="numpy",
    forceinline=True,
    fastmath={"reassoc", "contract"},
)
#: For functions that allocate their results.
allocating = njit(cache=True, nogil=True, error_model="numpy")
