"""Where tasks run: threads of this process, or tasks that joblib carries away, to clusters that are
started and closed here if need be.

joblib is imported where it is first needed: searches ask for their `Placement` without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import numpy as np

from relunorm.errors import InvalidInputError, RelunormError, optional_packages

#: Seconds a Dask scheduler has to answer.
ANSWER = 30

#: Seconds a Dask cluster may be without any worker, as while all of them start again.
PATIENCE = 60

#: Memory for the objects of a Ray started here; runs are small.
RAY_MEMORY = 100 * 2**20


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


@contextmanager
def placed(
    backend: str | None, scheduler: str | None = None, workers: int | None = None
) -> Iterator[None]:
    """Run what joblib runs inside the block on a backend.

    Args:
        backend: one of `BACKENDS`; None leaves the choice to an ambient ``joblib.parallel_config``
            (without one: loky if ``workers`` is given, else one task after the other).
        scheduler: address of the backend's running cluster (of Dask ``tcp://host:8786``). Without
            it a cluster of local processes is started, and closed at the end of the block.
        workers: tasks at a time; all cores if omitted. A running cluster decides for itself.
    """
    import joblib

    check(backend, scheduler, workers)
    if backend is None and workers is None:
        yield
    elif backend in CLUSTERS:
        with CLUSTERS[backend](scheduler, workers):
            yield
    elif backend == "sequential":
        with joblib.parallel_config(backend="sequential", n_jobs=1):
            yield
    else:
        options: dict[str, Any] = {} if backend is None else {"backend": backend}
        if backend == "loky":  # also for libraries that a run is the first to import
            options["inner_max_num_threads"] = 1
        with joblib.parallel_config(n_jobs=-1 if workers is None else workers, **options):
            yield


def check(backend: str | None, scheduler: str | None, workers: int | None) -> None:
    """Refuse what `placed` does not know."""
    if backend is not None and backend not in BACKENDS:
        raise InvalidInputError(f"backend {backend!r} is not known; use {', '.join(BACKENDS)}")
    if scheduler is not None and backend not in CLUSTERS:
        clusters = " or ".join(map(repr, CLUSTERS))
        raise InvalidInputError(
            f"scheduler {scheduler!r} needs backend={clusters}, not {backend!r}"
        )
    worker_count(workers)


def _count(workers: int | None) -> int:
    import joblib

    return joblib.cpu_count() if workers in (None, -1) else int(workers)


@cache
def _telling_dask_backend() -> type:
    """joblib's Dask backend, told of tasks whose workers died, and used for one worker too.

    Distributed starts a task again when its worker dies, and after a few deaths marks it as failed
    (``KilledWorker``). joblib's backend then fills the future but never calls back, so that the
    caller waits for ever; here an error calls back too. And where there is one job at a time joblib
    runs it in the calling process: wrong for a cluster of one worker, or of one that is left while
    another starts again.
    """
    from joblib._dask import DaskDistributedBackend

    class Lost(Exception):
        """In place of a result, what happened."""

    class TellingDaskBackend(DaskDistributedBackend):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **{"wait_for_workers_timeout": PATIENCE, **options})

        def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Any:
            future = super().submit(func, callback)

            def tell(done: Future[Any]) -> None:
                error = done.exception()
                if error is not None and callback is not None:
                    callback(Lost(error))

            future.add_done_callback(tell)
            return future

        def effective_n_jobs(self, n_jobs: int) -> int:
            try:
                return max(2, super().effective_n_jobs(n_jobs))
            except TimeoutError:
                raise InvalidInputError(
                    f"the Dask cluster has no worker after {self.wait_for_workers_timeout} s; "
                    "start some with `dask worker ADDRESS`"
                ) from None

        def retrieve_result_callback(self, out: Any) -> Any:
            if isinstance(out, Lost):
                raise out.args[0]
            try:
                return super().retrieve_result_callback(out)
            except CancelledError as error:
                raise RelunormError(
                    f"the Dask scheduler has gone ({error}). What a store holds is kept; run again"
                ) from error

    return TellingDaskBackend


@contextmanager
def _dask(scheduler: str | None, workers: int | None) -> Iterator[None]:
    import joblib

    with optional_packages():
        from distributed import Client, LocalCluster
    joblib.register_parallel_backend("relunorm-dask", _telling_dask_backend())
    if scheduler is None:
        # Port 0: any free one, so that two clusters do not quarrel over the dashboard's.
        options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        with (
            LocalCluster(n_workers=_count(workers), threads_per_worker=1, **options) as cluster,
            Client(cluster, set_as_default=False) as client,
            joblib.parallel_config(backend="relunorm-dask", n_jobs=-1, client=client),
        ):
            yield
        return
    try:
        client = Client(scheduler, set_as_default=False, timeout=ANSWER)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"no Dask scheduler answers at {scheduler!r} ({error}); start one with `dask "
            "scheduler` and give its address, such as tcp://host:8786"
        ) from None
    with client, joblib.parallel_config(backend="relunorm-dask", n_jobs=-1, client=client):
        yield


@contextmanager
def _ray(scheduler: str | None, workers: int | None) -> Iterator[None]:
    import joblib

    with optional_packages():
        import ray
        from ray.util.joblib import register_ray
    register_ray()
    started = not ray.is_initialized()
    if started:
        _start_ray(ray, scheduler, workers)
    try:
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        jobs = cpus if workers in (None, -1) else min(int(workers), cpus)
        # With one job joblib would not use Ray at all, so a single core gets two turns.
        with joblib.parallel_config(backend="ray", n_jobs=max(jobs, 2)):
            yield
    finally:
        if started:
            ray.shutdown()


def _start_ray(ray: Any, scheduler: str | None, workers: int | None) -> None:
    address = scheduler or os.environ.get("RAY_ADDRESS")
    # Workers find what the caller can import.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "runtime_env": {"env_vars": {"PYTHONPATH": path}},
    }
    if address is None:
        options |= {
            "num_cpus": max(2, _count(workers)),
            "include_dashboard": False,
            "object_store_memory": RAY_MEMORY,
        }
    else:
        options |= {"address": address}
    try:
        ray.init(**options)
    except (OSError, ValueError, RuntimeError, ConnectionError) as error:
        where = f"no Ray cluster answers at {address!r}" if address else "Ray does not start here"
        raise InvalidInputError(f"{where}: {error}") from error


#: Backends that can join a running cluster, or start one: from its address and a number of workers.
CLUSTERS: dict[str, Callable[[str | None, int | None], AbstractContextManager[None]]] = {
    "dask": _dask,
    "ray": _ray,
}
BACKENDS = ("sequential", "threading", "loky", *CLUSTERS)
