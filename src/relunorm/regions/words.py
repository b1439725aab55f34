"""Sets of units as words: unit i of a layer is bit 63 - i % 64 of word i // 64.

The most significant bit comes first, as in `np.packbits`, and the first unit of a set is the
number of leading zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from relunorm.regions.jit import inner

#: Units a word holds.
WORD = 64


def _leading_zeros(typingctx: Any, word: Any) -> Any:
    """The number of leading zeros of a word that is not zero: one instruction."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero_is_undefined = ir.Constant(ir.IntType(1), 1)
        return builder.ctlz(args[0], zero_is_undefined)

    return types.int64(types.uint64), emit


#: Called with the word alone; numba adds the context.
leading_zeros: Any = intrinsic(_leading_zeros)


@inner
def bit_of(index):  # type: ignore[no-untyped-def]
    """The word with only unit ``index`` (below 64) in it."""
    return np.uint64(0x8000000000000000) >> np.uint64(index)
