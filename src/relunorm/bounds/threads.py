"""How many BLAS threads to bound a network with."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from relunorm.network import Network

#: Networks narrower than this are bounded on one thread.
NARROW = 1_024


def few_threads(network: Network) -> AbstractContextManager[Any]:
    """One BLAS thread while bounding a narrow network; no change for a wide one.

    Small products are slower on several threads than on one (much slower on a busy machine), and
    on one thread the same call gives the same bits.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1 if max(network.widths) < NARROW else None, "blas")
