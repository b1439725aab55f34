"""How the kernels are compiled.

A kernel only reads and writes arrays that its caller owns, so it needs no reference counting. numba
counts references of every array it touches all the same, also of those inside a tuple, and in
loops of a few dozen flops the counting was measured to take a third of the time. ``_nrt=False``
turns it off; such a function cannot allocate. ``error_model="numpy"`` leaves out checks for
division by zero. Integers and truth values written out in a call are typed (``np.int64(0)``): numba
would compile what is called once more for that very constant. ``fastmath`` and ``forceinline`` are
said even where they are off: numba lets a function that leaves them open inherit those of the
caller that is compiled first, and sums of a proof would be reordered or not by chance.
"""

from __future__ import annotations

from typing import Any

from numba import njit as _njit

from relunorm.compiled import addresses as addresses  # lets kernels take groups
from relunorm.compiled.fragments import FragmentCompiler, KernelCompiler

njit: Any = _njit  # its stubs do not know every option


def _can_cache() -> bool:
    """Whether numba finds a place to keep compiled code: beside the sources or in the user's cache.

    Where it finds none (a read-only installation without a home directory) it would refuse to
    compile at all; then every process compiles for itself.
    """

    def probe() -> None:
        return None

    try:
        njit(cache=True)(probe)
    except RuntimeError:
        return False
    return True


options: dict[str, Any] = {
    "cache": _can_cache(),
    "nogil": True,
    "error_model": "numpy",
    "fastmath": False,
    "forceinline": False,
    "no_cfunc_wrapper": True,
    "pipeline_class": KernelCompiler,
}
_part = {
    **options,
    "cache": False,
    "no_cpython_wrapper": True,
    "pipeline_class": FragmentCompiler,
}
_inlined = {**_part, "_nrt": False, "forceinline": True}

#: For functions that allocate their results.
allocating = njit(**options)
#: For functions that allocate nothing.
kernel = njit(**options, _nrt=False)
#: For parts of kernels, not callable from Python (see `fragments`).
part = njit(**_part)
#: For parts that allocate nothing. Only kernels that allocate nothing may take arrays from them.
kernel_part = njit(**_part, _nrt=False)
#: The same where only a search is steered: sums may be reordered, which makes them vector
#: instructions.
loose_part = njit(**{**_part, "_nrt": False, "fastmath": {"reassoc", "contract", "nsz"}})
#: For small parts of kernels: always inlined, so that no tuple of arrays is copied.
inner = njit(**_inlined)
#: Inlined, and sums may be reordered.
inner_sum = njit(**{**_inlined, "fastmath": {"reassoc", "contract"}})
