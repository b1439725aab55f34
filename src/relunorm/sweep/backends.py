"""Where tasks run: joblib's backends, with clusters that are started and closed here if need be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib

from relunorm.errors import InvalidInputError, MissingDependencyError
from relunorm.sweep.ambient import worker_count

#: Seconds a Dask scheduler has to answer.
ANSWER = 30

BACKENDS = ("sequential", "threading", "loky", "dask", "ray")

#: Memory for the objects of a Ray started here; runs are small.
RAY_MEMORY = 100 * 2**20


@contextmanager
def placed(
    backend: str | None, scheduler: str | None = None, workers: int | None = None
) -> Iterator[None]:
    """Run what joblib runs inside the block on a backend.

    Args:
        backend: one of `BACKENDS`; None leaves the choice to an ambient ``joblib.parallel_config``
            (without one: loky if ``workers`` is given, else one task after the other).
        scheduler: address of a running Dask scheduler (``tcp://host:8786``) or Ray cluster. Without
            it a cluster of local processes is started, and closed at the end of the block.
        workers: tasks at a time; all cores if omitted. A running cluster decides for itself.
    """
    check(backend, scheduler, workers)
    if backend is None and workers is None:
        yield
    elif backend == "dask":
        with _dask(scheduler, workers):
            yield
    elif backend == "ray":
        with _ray(scheduler, workers):
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
    if scheduler is not None and backend not in ("dask", "ray"):
        raise InvalidInputError(
            f"scheduler {scheduler!r} needs backend='dask' or 'ray', not {backend!r}"
        )
    worker_count(workers)


def _count(workers: int | None) -> int:
    return joblib.cpu_count() if workers in (None, -1) else int(workers)


@contextmanager
def _dask(scheduler: str | None, workers: int | None) -> Iterator[None]:
    try:
        from distributed import Client, LocalCluster

        from relunorm.sweep.dask_backend import register
    except ImportError as error:
        raise MissingDependencyError(
            f"backend='dask' needs dask and distributed ({error}): pip install 'relunorm[dask]'"
        ) from None
    register()
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
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise MissingDependencyError(
            f"backend='ray' needs ray ({error}): pip install 'relunorm[ray]'"
        ) from None
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
