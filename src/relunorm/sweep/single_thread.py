"""One numerical thread, so that the same call gives the same bits wherever it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread for BLAS, OpenMP and torch, as far as they are loaded by now.

    Sums on two threads are added in another order than on one. A task is the unit of parallelism
    here, so its own threads would only be in the way of its neighbours.
    """
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    with threadpool_limits(1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)
