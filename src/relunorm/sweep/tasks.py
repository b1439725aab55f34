"""Tasks spread over a joblib backend, each on one thread; a task that kills its worker fails alone.

A worker that dies takes the tasks under way with it, and with loky the whole pool. They are then
tried once more, one at a time: the one that dies alone is the culprit, the rest has lost nothing.

What travels is a parcel. Torch refuses to pickle a module with parametrizations
(`relunorm.nn.constrain`, weight and spectral norms). A parcel is a pickle in which each such
module, at any depth (inside an estimator, a list, a closure), stands as a released copy: the same
function, plain weights. The caller's object is not touched.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import cloudpickle

from relunorm.errors import InvalidInputError, RelunormError
from relunorm.sweep.backends import ambient_jobs

#: What the backends raise when a worker process is gone: loky, Dask, Ray.
DEATHS = frozenset({"BrokenProcessPool", "KilledWorker", "RayActorError", "WorkerCrashedError"})

#: This process; a process id would not do, since other machines count theirs as well.
HERE = uuid4().hex

#: Tasks per job and wave, on backends that cannot hand results over one by one.
WAVE = 8


class WorkerDiedError(RelunormError, RuntimeError):
    """A task took its worker process down, twice."""


def spread(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> Generator[tuple[int, Any], None, None]:
    """Yield ``(i, function(tasks[i]))`` as they are finished, in any order.

    Runs on the ambient joblib backend (`backends.placed`). Function, tasks and results travel as
    parcels whatever the backend, so a task cannot change what another one sees.

    Args:
        function: must not raise; what it raises ends everything.
        go_on: asked before a task is handed out; False ends the list there.

    Yields:
        the index of a task and its result, or a `WorkerDiedError` in place of one.

    >>> sorted(spread(len, ["a", "bcd"]))
    [(0, 1), (1, 3)]
    """
    parcel = pack(function, f"the function {getattr(function, '__qualname__', function)!r}")
    left = dict(enumerate(tasks))
    with single_threaded():
        while left and go_on():
            handed_out: set[int] = set()
            try:
                with _quietly_closing(_results(parcel, left, go_on, handed_out)) as results:
                    for index, result in results:
                        del left[index]
                        yield index, unpack(result)
                return
            except Exception as error:
                if not _is_death(error):
                    raise
            suspects = sorted(handed_out & left.keys())
            for index in suspects:
                yield index, _alone(parcel, left.pop(index))


@contextmanager
def _quietly_closing(results: Generator[Any, None, None]) -> Iterator[Iterator[Any]]:
    """Close the generator at the end, without joblib's advice on what then goes to waste."""
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\d+ tasks ", UserWarning)
            results.close()


def _alone(parcel: bytes, task: Any) -> Any:
    try:
        results = list(_results(parcel, {0: task}, lambda: True, set()))
    except Exception as error:
        if not _is_death(error):
            raise
        return WorkerDiedError("its worker process died")
    return unpack(results[0][1])


def _is_death(error: Exception) -> bool:
    return any(kind.__name__ in DEATHS for kind in type(error).__mro__)


def _results(
    parcel: bytes, left: dict[int, Any], go_on: Callable[[], bool], handed_out: set[int]
) -> Generator[tuple[int, bytes], None, None]:
    """Packed results in the order they arrive."""
    import joblib

    def calls(some: list[tuple[int, Any]]) -> Iterator[Any]:
        for index, task in some:
            if not go_on():
                return
            handed_out.add(index)
            # The parcel goes with every task, as bytes: joblib's Dask backend would scatter a large
            # object to one worker, and that worker's death would lose it for all.
            yield joblib.delayed(_call)(parcel, index, pack(task, "a task"), HERE)

    waiting = list(left.items())
    # One task a batch: what is finished is handed over at once, and the clock is looked at.
    options: dict[str, Any] = {"batch_size": 1, "pre_dispatch": "2*n_jobs"}
    try:
        parallel: Any = joblib.Parallel(return_as="generator_unordered", **options)
    except ValueError:  # a pool that returns all results together: multiprocessing, Ray
        options["pre_dispatch"] = "all"
        size = WAVE * ambient_jobs()
        with joblib.Parallel(**options) as pool:  # one pool for all waves: Ray's is slow to start
            together: Any = pool
            for start in range(0, len(waiting), size):
                if not go_on():
                    return
                yield from together(calls(waiting[start : start + size]))
    else:
        yield from parallel(calls(waiting))


def _call(parcel: bytes, index: int, task: bytes, driver: str) -> tuple[int, bytes]:
    """In the worker."""
    import joblib

    # A task is one unit of work: no backend inside it, and one thread (the driver has seen to its
    # own process, where threads would undo each other's settings).
    with joblib.parallel_config(backend="sequential", n_jobs=1):
        function, argument = _unpacked(parcel), unpack(task)
        if driver == HERE:
            return index, pack(function(argument), "the result")
        with single_threaded():
            return index, pack(function(argument), "the result")


def _unpacked(parcel: bytes) -> Any:
    try:
        return unpack(parcel)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"a worker cannot load the function: {error}. Workers need the same packages and "
            "modules as the caller; define the function in an installed module or in the script "
            "that is run"
        ) from error


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


def pack(value: Any, what: str = "the object") -> bytes:
    """A pickle of the value that any process with the same packages can read.

    >>> unpack(pack({"a": [1, 2]}))
    {'a': [1, 2]}
    """
    buffer = io.BytesIO()
    try:
        _Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise InvalidInputError(f"{what} cannot travel to another process: {error}") from error
    return buffer.getvalue()


def unpack(parcel: bytes) -> Any:
    """What was packed; a fresh copy on every call. For parcels of one's own making only."""
    return pickle.loads(parcel)


def plain(module: Any) -> Any:
    """A copy of a torch module without parametrizations that computes the same function."""
    from torch.nn.utils import parametrize

    module = copy.deepcopy(module)
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            own_class(part)
            # a bias first: what bounds it may depend on the weight
            for name in sorted(part.parametrizations, key=lambda name: name != "bias"):
                parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    return module


def own_class(part: Any) -> None:
    """A copy of the class that torch injected into a parametrized module, for this one alone.

    A deepcopy shares that class with its original, and taking a parametrization off deletes an
    attribute of it: the other module would lose its weights.
    """
    shared = type(part)
    kept = {k: v for k, v in vars(shared).items() if k not in ("__dict__", "__weakref__")}
    part.__class__ = type(shared.__name__, shared.__bases__, kept)


class _Packer(cloudpickle.CloudPickler):
    def reducer_override(self, obj: Any) -> Any:
        if _is_parametrized(obj):
            return _same, (plain(obj),)
        return super().reducer_override(obj)


def _is_parametrized(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return False
    return any(torch.nn.utils.parametrize.is_parametrized(part) for part in obj.modules())


def _same(module: Any) -> Any:
    return module
