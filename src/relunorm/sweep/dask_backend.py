"""joblib's Dask backend, told of tasks whose workers died, and used for one worker too.

Distributed starts a task again when its worker dies, and after a few deaths marks it as failed
(``KilledWorker``). joblib's backend then fills the future but never calls back, so that the caller
waits for ever; here an error calls back too. And where there is one job at a time joblib runs it in
the calling process: wrong for a cluster of one worker, or of one that is left while another starts
again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

import joblib
from joblib._dask import DaskDistributedBackend

from relunorm.errors import InvalidInputError, RelunormError

#: Seconds a cluster may be without any worker, as while all of them start again.
PATIENCE = 60


@dataclass(frozen=True)
class _Lost:
    """In place of a result."""

    error: BaseException


class TellingDaskBackend(DaskDistributedBackend):
    """Calls back on errors of the cluster, not only on results; never runs a task itself."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **{"wait_for_workers_timeout": PATIENCE, **options})

    def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Any:
        future = super().submit(func, callback)

        def tell(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None and callback is not None:
                callback(_Lost(error))

        future.add_done_callback(tell)
        return future

    def effective_n_jobs(self, n_jobs: int) -> int:
        try:
            return max(2, super().effective_n_jobs(n_jobs))
        except TimeoutError:
            raise InvalidInputError(
                f"the Dask cluster has no worker after {self.wait_for_workers_timeout} s; start "
                "some with `dask worker ADDRESS`"
            ) from None

    def retrieve_result_callback(self, out: Any) -> Any:
        if isinstance(out, _Lost):
            raise out.error
        try:
            return super().retrieve_result_callback(out)
        except CancelledError as error:
            raise RelunormError(
                f"the Dask scheduler has gone ({error}). What a store holds is kept; run again"
            ) from error


def register() -> None:
    """Make the backend known to joblib as ``relunorm-dask``."""
    joblib.register_parallel_backend("relunorm-dask", TellingDaskBackend)
