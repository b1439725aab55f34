"""`sweep`: a function over many parameters, resumed from a store, on any joblib backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.display.shown import entries
from relunorm.sweep import export
from relunorm.sweep.backends import placed
from relunorm.sweep.identity import Identity, identify
from relunorm.sweep.record import Attempt, Attempts, Run
from relunorm.sweep.store import Store
from relunorm.sweep.tasks import WorkerDiedError, spread


@dataclass(frozen=True, repr=False)
class Sweep(export.Tabled):
    """The finished runs of a sweep, in the order they were asked for.

    Attributes:
        runs: one per distinct set of parameters.
        function, version: what was run, and its code version.
        total: how many runs were asked for.
        resumed: how many of them were in the store already.
        stopped: "" or why some are missing: ``time limit`` or ``interrupted``.
        seconds: wall time of this call.
    """

    runs: tuple[Run, ...]
    function: str
    version: str
    total: int
    resumed: int = field(default=0, compare=False)
    stopped: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def complete(self) -> bool:
        """Whether every run was finished, failed or not."""
        return len(self.runs) == self.total

    @property
    def failed(self) -> tuple[Run, ...]:
        """The runs that failed."""
        return tuple(run for run in self.runs if run.status == "failed")

    def table(self) -> list[dict[str, Any]]:
        """Flat rows: parameters, status, message, results."""
        return export.table(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; NaN and the infinities as text."""
        return {
            "schema": "relunorm.sweep/1",
            **entries(self, "function version total"),
            "finished": len(self.runs),
            "failed": len(self.failed),
            **entries(self, "resumed stopped seconds"),
            "rows": [export.finite(row) for row in self.table()],
        }

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        parts = [f"{len(self.runs)} of {self.total} runs of {self.function}"]
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        parts += [f"{self.resumed} from the store"] if self.resumed else []
        parts += [f"stopped: {self.stopped}"] if self.stopped else []
        return f"Sweep({', '.join(parts)}, {self.seconds:.1f} s)"


def sweep(
    function: Callable[..., dict[str, Any]],
    runs: Iterable[Mapping[str, Any]],
    *,
    shared: Mapping[str, Any] | None = None,
    store: Store | str | Path | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Listener | None = None,
    time_limit: float | Clock | None = None,
    retry_failed: bool = False,
    version: str | None = None,
) -> Sweep:
    """Call ``function(**parameters)`` for every run, skipping those the store holds.

    The rows are the same on every backend: a run is one call on one numerical thread, its arguments
    are fresh copies, and its randomness comes from its parameters. Where the function takes a
    ``random_state`` that neither the run nor ``shared`` names, it is drawn from the hash of the
    function's name and the parameters, and stands in the row.

    Args:
        function: takes keywords, returns a dict of numbers, text, lists or dicts.
        runs: parameters as dicts of the same kinds of values; repeated ones are run once.
        shared: further keywords, the same for all runs and of any kind that travels: networks,
            torch modules (constrained ones are released on the way), arrays.
        store: where finished runs are kept, each on disk before the next is looked at.
        backend: ``loky``, ``threading``, ``dask``, ``ray`` or ``sequential``; None honours an
            ambient ``joblib.parallel_config``.
        scheduler: address of a running Dask scheduler or Ray cluster.
        workers: runs at a time.
        progress: called with a `Progress` after every run; its facts are the ``latest`` run (None
            at the start) and how many ``failed``. May raise to stop.
        time_limit: seconds after which no further run is begun; those under way are finished.
        retry_failed: whether runs the store holds as failed are tried again.
        version: the code version, in place of a hash of the function's module.

    Returns:
        the finished runs. A run that raises is recorded as failed and does not stop the others;
        one that kills its worker process likewise. KeyboardInterrupt keeps what is finished.

    >>> def square(x): return {"y": x * x}
    >>> sweep(square, [{"x": 1}, {"x": 2.5}]).table()[1]
    {'x': 2.5, 'status': 'done', 'message': None, 'y': 6.25}
    """
    clock = Clock(time_limit)
    shared = dict(shared or {})
    who = identify(function, shared, version, stored=store is not None)
    wanted = {who.key(text): text for text in map(who.complete, runs)}
    opened = store if isinstance(store, Store) else Store(store) if store is not None else None
    with nullcontext() if opened is None or opened is store else closing(opened):
        driver = _Driver(who, wanted, opened, Teller(progress, clock))
        driver.recall(retry_failed)
        with placed(backend, scheduler, workers) if driver.open else nullcontext():
            driver.run(Attempts(function, shared))
    return driver.result()


class _Driver:
    """The process that hands runs out and records what comes back."""

    def __init__(
        self,
        who: Identity,
        wanted: dict[str, str],
        store: Store | None,
        tell: Teller,
    ):
        self.who, self.wanted, self.store = who, wanted, store
        self.tell, self.clock = tell, tell.clock
        self.done: dict[str, Run] = {}
        self.resumed, self.failed, self.stopped = 0, 0, ""

    def recall(self, retry_failed: bool) -> None:
        """Take from the store what it holds."""
        if self.store is not None:
            for key, run in self.store.find(self.wanted).items():
                if run.status == "done" or not retry_failed:
                    self.done[key] = run
        self.resumed = len(self.done)
        self.failed = sum(run.status == "failed" for run in self.done.values())

    @property
    def open(self) -> list[str]:
        """Keys of the runs to be done."""
        return [key for key in self.wanted if key not in self.done]

    def run(self, attempts: Attempts) -> None:
        """Hand out the open runs and record them as they are finished."""
        keys = self.open
        self._tell()
        results = spread(attempts, [self.wanted[key] for key in keys], go_on=self._go_on)
        try:
            with closing(results):
                for index, attempt in results:
                    self._record(keys[index], attempt)
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED

    def _go_on(self) -> bool:
        if self.clock.expired():
            self.stopped = TIME_LIMIT
        return not self.stopped

    def _record(self, key: str, attempt: Attempt | WorkerDiedError) -> None:
        if isinstance(attempt, WorkerDiedError):
            attempt = Attempt("failed", str(attempt), 0.0)
        run = Run(
            key=key,
            function=self.who.function,
            version=self.who.version,
            text=self.wanted[key],
            status=attempt.status,
            outcome=attempt.outcome,
            seconds=attempt.seconds,
        )
        if self.store is not None:
            self.store.put(run)
        self.done[key] = run
        self.failed += run.status == "failed"
        self._tell(run)

    def _tell(self, latest: Run | None = None) -> None:
        done, total = len(self.done), len(self.wanted)
        text = f"{done} of {total} runs" + (f", {self.failed} failed" if self.failed else "")
        self.tell(text, done, total, begun=self.resumed, failed=self.failed, latest=latest)

    def result(self) -> Sweep:
        """The finished runs in the order they were asked for."""
        found = tuple(self.done[key] for key in self.wanted if key in self.done)
        return Sweep(
            runs=found,
            function=self.who.function,
            version=self.who.version,
            total=len(self.wanted),
            resumed=self.resumed,
            stopped=self.stopped if len(found) < len(self.wanted) else "",
            seconds=self.clock.elapsed(),
        )
