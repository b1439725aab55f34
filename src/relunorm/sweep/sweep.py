"""`sweep`: a function over many parameters, resumed from a store, on any joblib backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relunorm.clock import INTERRUPTED, TIME_LIMIT, Clock, Listener, Teller
from relunorm.display.shown import entries
from relunorm.sweep.backends import placed
from relunorm.sweep.function import identify
from relunorm.sweep.record import Attempt, Run, Tabled, attempt, finite, table
from relunorm.sweep.store import Store
from relunorm.sweep.tasks import WorkerDiedError, spread


@dataclass(frozen=True, repr=False)
class Sweep(Tabled):
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
        return table(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; NaN and the infinities as text."""
        return {
            "schema": "relunorm.sweep/1",
            **entries(self, "function version total"),
            "finished": len(self.runs),
            "failed": len(self.failed),
            **entries(self, "resumed stopped seconds"),
            "rows": [finite(row) for row in self.table()],
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
        backend: one of `relunorm.sweep.backends.BACKENDS`, such as ``loky``; None honours an
            ambient ``joblib.parallel_config``.
        scheduler: address of the backend's running cluster.
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
    teller, interrupted = Teller(progress, clock), False
    with nullcontext() if opened is None or opened is store else closing(opened):
        known = {} if opened is None else opened.find(wanted)
        done = {k: run for k, run in known.items() if run.status == "done" or not retry_failed}
        failed = [key for key, run in done.items() if run.status == "failed"]
        keys, resumed = [key for key in wanted if key not in done], len(done)

        def tell(latest: Run | None = None) -> None:
            text = f"{len(done)} of {len(wanted)} runs"
            text += f", {len(failed)} failed" if failed else ""
            facts: dict[str, Any] = {"failed": len(failed), "latest": latest}
            teller(text, len(done), len(wanted), begun=resumed, **facts)

        with placed(backend, scheduler, workers) if keys else nullcontext():
            tell()
            texts = [wanted[key] for key in keys]
            call = partial(attempt, function, shared)
            attempts = spread(call, texts, go_on=lambda: not clock.expired())
            try:
                with closing(attempts):
                    for index, found in attempts:
                        if isinstance(found, WorkerDiedError):
                            found = Attempt("failed", str(found), 0.0)
                        key = keys[index]
                        asked = (key, who.function, who.version, texts[index])
                        run = Run(*asked, found.status, found.outcome, found.seconds)
                        if opened is not None:
                            opened.put(run)
                        done[key] = run
                        failed += [key] if run.status == "failed" else []
                        tell(run)
            except KeyboardInterrupt:
                interrupted = True
    missing = len(done) < len(wanted)
    return Sweep(
        runs=tuple(done[key] for key in wanted if key in done),
        function=who.function,
        version=who.version,
        total=len(wanted),
        resumed=resumed,
        stopped="" if not missing else INTERRUPTED if interrupted else TIME_LIMIT,
        seconds=clock.elapsed(),
    )
