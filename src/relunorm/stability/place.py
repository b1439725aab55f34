"""Where the mixed-integer programmes of a call are solved: threads here, or a joblib backend."""

from __future__ import annotations

import os
from contextlib import ExitStack

from relunorm.sweep.ambient import ambient_jobs


class Place:
    """A backend that is opened when first needed and closed at the end of the block.

    Most calls end before the first mixed-integer programme; they shall not start processes.
    """

    def __init__(self, backend: str | None, scheduler: str | None, workers: int | None):
        self.backend, self.scheduler, self.workers = backend, scheduler, workers
        self.threads = workers or os.cpu_count() or 1
        self._stack, self._is_open = ExitStack(), False

    def open(self) -> bool:
        """Whether tasks go to joblib; from the first such answer on its backend is in place."""
        chosen = self.backend is not None or self.scheduler is not None
        if not chosen and (self.workers is not None or ambient_jobs() == 1):
            return False
        if not self._is_open:
            from relunorm.sweep.backends import placed

            self._stack.enter_context(placed(self.backend, self.scheduler, self.workers))
            self._is_open = True
        return True

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
