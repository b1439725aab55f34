"""Where the parts of one search run: threads of this process, or tasks that joblib carries away."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from relunorm.errors import InvalidInputError


def ambient_jobs() -> int:
    """Jobs of the ``joblib.parallel_config`` around the caller; 1 without one.

    Whoever made one has imported joblib, so nothing is imported here.
    """
    joblib = sys.modules.get("joblib")
    return 1 if joblib is None else int(joblib.effective_n_jobs(None))


class Placement:
    """What ``workers``, ``backend`` and ``scheduler`` of a search mean, checked.

    Tasks travel (``far``) with a backend, and inside a ``joblib.parallel_config`` of several jobs
    where no number of workers is given; else ``threads`` share the work here.

    >>> Placement(workers=2).threads, Placement(workers=2).far, Placement(backend="loky").far
    (2, False, True)
    """

    def __init__(
        self,
        workers: int | None = None,
        backend: str | None = None,
        scheduler: str | None = None,
    ):
        self.threads = worker_count(workers)
        self.asked = backend, scheduler, workers
        self.far = backend is not None or scheduler is not None
        if self.far:
            from relunorm.sweep.backends import check

            check(*self.asked)
        elif workers is None:
            self.far = ambient_jobs() > 1
        self._inside = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have what joblib runs in the block run there; within itself this does nothing more."""
        if self._inside or not self.far:
            yield
            return
        from relunorm.sweep.backends import placed

        with placed(*self.asked):
            self._inside = True
            try:
                yield
            finally:
                self._inside = False


def worker_count(workers: int | None) -> int:
    """How many workers: 1 by default, all cores for -1."""
    if workers is None:
        return 1
    whole = isinstance(workers, (int, np.integer)) and not isinstance(workers, bool)
    if not whole or (workers < 1 and workers != -1):
        raise InvalidInputError(f"workers is {workers!r}; expected at least 1, or -1 for all cores")
    return (os.cpu_count() or 1) if workers == -1 else int(workers)
