"""Running exhibits: in parallel, resumable, one failure not stopping the rest."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relunorm.papers import TITLES, exhibits, read_sample
from relunorm.papers.exhibit import Exhibit, Make, cost_of, items_of, source_of
from relunorm.papers.finished import finished, run_key

#: Said of the items of an exhibit that raised; not a verdict.
FAILED = "failed"


@dataclass(frozen=True)
class Task:
    """One exhibit to run."""

    paper: str
    name: str
    full: bool = False
    random_state: int = 0
    data: str | None = None
    target: str | None = None

    @property
    def make(self) -> Make:
        return exhibits(self.paper)[self.name]

    @property
    def key(self) -> str:
        settings: dict[str, Any] = dict(self.__dict__)
        if self.data is not None and Path(self.data).is_file():  # the same name, other content
            settings["modified"] = Path(self.data).stat().st_mtime_ns
        return run_key(settings)


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        document: the exhibit as JSON-safe data; None if it failed.
        error: what went wrong, or "".
        reused: whether the folder already held it.
        seconds: by the clock. cpu: processor seconds of the process that ran it.
    """

    task: Task
    document: dict[str, Any] | None
    error: str = ""
    reused: bool = False
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per item of the checklist this exhibit decides."""
        make = self.task.make
        start = {
            "paper": self.task.paper,
            "seed": TITLES[self.task.paper].split(":")[0].split()[1],
            "exhibit": self.task.name,
        }
        code = {"code": code_of(make)[0]["place"]}
        if self.document is None:
            said = {"numbers": self.error, "number": self.error, "verdict": FAILED}
            empty = {"printed": "", "corrected": "", **said}
            return [{**start, "item": item, **empty, **code} for item in items_of(make)]
        keep = ("item", "printed", "corrected", "numbers", "number", "verdict")
        claims = self.document["claims"]
        return [{**start, **{k: claim[k] for k in keep}, **code} for claim in claims]


def run_tasks(
    tasks: Sequence[Task],
    folder: str | Path | None = None,
    jobs: int = 1,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run exhibits and save them under ``folder``/PAPER; what is there already is not run again.

    Args:
        tasks: the exhibits. folder: where to write; None writes nothing.
        jobs: processes to use.
        progress: told of every outcome as it comes.

    Returns:
        the outcomes, in the order of ``tasks``. An exhibit that raises is an outcome with an error.
        Interrupting loses the exhibits that are running, nothing else.
    """
    outcomes: dict[Task, Outcome] = {}
    for outcome in _outcomes(tasks, None if folder is None else Path(folder), jobs):
        outcomes[outcome.task] = outcome
        if progress is not None:
            progress(outcome)
    return [outcomes[task] for task in tasks]


def _outcomes(tasks: Sequence[Task], folder: Path | None, jobs: int) -> Iterator[Outcome]:
    left = []
    for task in tasks:
        document = None if folder is None else finished(folder / task.paper, task.name, task.key)
        if document is None:
            left.append(task)
        else:
            yield Outcome(task, document, reused=True)
    if jobs == 1 or len(left) < 2:
        yield from (_attempt(task, folder) for task in left)
        return
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # The longest first, so that no core ends up with a long one alone.
    left.sort(key=lambda task: -cost_of(task.make))
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool: Any = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
        try:
            for outcome in pool(delayed(_attempt)(task, folder) for task in tuple(left)):
                left.remove(outcome.task)
                yield outcome
        except TerminatedWorkerError as error:
            text = f"a process was killed, perhaps for memory; run again: {error}"
            yield from (Outcome(task, None, text) for task in left)


def _attempt(task: Task, folder: Path | None) -> Outcome:
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        found = task.make(
            read_sample(task.paper, task.data, task.target),
            full=task.full,
            random_state=task.random_state,
        )
        _check_items(task, found)
        document = _save(task, found, folder)
    except Exception as error:  # one exhibit's failure is a row of the table
        text = f"{type(error).__name__}: {error}"
        return Outcome(task, None, text, False, *_spent(wall, cpu))
    return Outcome(task, document, "", False, *_spent(wall, cpu))


def _spent(wall: float, cpu: float) -> tuple[float, float]:
    return time.perf_counter() - wall, time.process_time() - cpu


def _check_items(task: Task, found: Exhibit) -> None:
    promised, given = set(items_of(task.make)), {claim.item for claim in found.claims}
    if promised != given:
        raise ValueError(
            f"{task.paper} {task.name} promised {sorted(promised - given)} and did not give it"
            if promised - given
            else f"{task.paper} {task.name} gave {sorted(given - promised)} without promising it"
        )


def _save(task: Task, found: Exhibit, folder: Path | None) -> dict[str, Any]:
    more = {"paper": task.paper, "key": task.key, "has_figure": found.figure is not None}
    files: list[str] = []
    if folder is not None:
        files = [str(path) for path in found.save(folder / task.paper, **more)]
    return {**found.to_dict(), **more, "files": files}


def code_of(make: Make) -> list[dict[str, Any]]:
    """Where an exhibit's code is: the function that makes it and, if apart, the one that judges it.

    >>> from relunorm.papers import exhibits
    >>> code_of(exhibits("dying")["figure4"])[0]["name"]
    'relunorm.papers.dying.figure4'
    """
    found = []
    for function in (source_of(make), getattr(make, "judge", None)):
        if function is None:
            continue
        lines, first = inspect.getsourcelines(function)
        module = function.__module__
        file = module.replace(".", "/") + ".py"
        place = f"src/{file}:{first}"
        name = f"{module}.{function.__qualname__}"
        found.append({"name": name, "place": place, "text": "".join(lines)})
    return found
