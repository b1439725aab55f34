"""Running exhibits: a sweep with one run per exhibit, its rows in DIR/runs.sqlite.

A row holds the exhibit's document and the hashes of the files it wrote; it counts as long as the
folder holds just these files. Its key hashes the settings and the source of the whole package.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import inspect
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import relunorm
from relunorm.clock import INTERRUPTED, Clock, Listener, Progress, Teller
from relunorm.papers import PAPERS, TITLES, exhibits, read_sample, statements, world_of
from relunorm.papers.exhibit import Exhibit, Make, draw_margins
from relunorm.sweep.function import identify, source_version
from relunorm.sweep.record import Run
from relunorm.sweep.store import Store
from relunorm.sweep.sweep import sweep

#: Said of the items of an exhibit that raised; not a verdict.
FAILED = "failed"

#: The rows of a folder's exhibits.
STORE = "runs.sqlite"

#: Modules that local workers share, and what tells libraries to use one thread.
SHARED = ["torch._dynamo", "matplotlib.pyplot", "matplotlib.backends.backend_svg", "contourpy"]
SHARED += ["sklearn.datasets", "scipy.stats"]
SHARED += ["relunorm.regions.enumerate", "relunorm.stability.stability"]
SHARED += ["relunorm.train.estimator_base", "relunorm.search.engine", "relunorm.dying.scale_sweep"]
SHARED += ["relunorm.papers.run", *PAPERS.values(), "relunorm.papers.frozen"]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    def items(self) -> tuple[str, ...]:
        """What its claims are to decide."""
        return tuple(statements(self.paper)["exhibits"][self.name])

    @property
    def cost(self) -> float:
        """Processor seconds of the quick version, for the order and the time left only."""
        return statements(self.paper)["costs"].get(self.name, 1.0)

    @property
    def parameters(self) -> dict[str, Any]:
        """The run as the store knows it; data counts by name and content."""
        content = None
        if self.data is not None and Path(self.data).is_file():
            content = hashlib.sha256(Path(self.data).read_bytes()).hexdigest()
        return {**asdict(self), "content": content}


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        document: the exhibit as JSON-safe data; None if it failed.
    """

    task: Task
    document: dict[str, Any] | None
    error: str = ""
    reused: bool = False
    seconds: float = 0.0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per item of the checklist this exhibit decides."""
        make = self.task.make
        start = {
            "paper": self.task.paper,
            "seed": TITLES[self.task.paper].split(":")[0].split()[1],
            "exhibit": self.task.name,
        }
        code = {"code": code_of(make)["place"], "ran": what_ran(make)}
        if self.document is None:
            said = {"numbers": self.error, "number": self.error, "basis": "", "verdict": FAILED}
            empty = {"printed": "", "corrected": "", **said}
            return [{**start, "item": item, **empty, **code} for item in self.task.items]
        keep = ("item", "printed", "corrected", "numbers", "number", "basis", "verdict")
        claims = self.document["claims"]
        return [{**start, **{k: claim[k] for k in keep}, **code} for claim in claims]


@dataclass(frozen=True)
class MakeExhibit:
    """The function of the sweep: make an exhibit and save it under ``folder``/PAPER.

    The folder is no part of a run's key: its store moves with it.
    """

    folder: Path | None
    sweep_name = "relunorm.papers:exhibit"

    def __call__(self, paper: str, name: str, content: str | None, **more: Any) -> dict[str, Any]:
        task = Task(paper, name, **more)
        home = None if self.folder is None else self.folder / paper
        sample = read_sample(paper, task.data, task.target)
        found = task.make(world_of(paper, sample, task.full, task.random_state))
        _check_items(task, found)
        if found.figure is None and home is not None:
            found = replace(found, figure=draw_margins(found.claims))
        facts = {"paper": paper, "has_figure": found.figure is not None}
        written = [] if home is None else found.save(home, **facts)
        hashes = {path.name: _hash(path) for path in written}
        document = {**found.to_dict(), **facts}
        del found, sample
        give_back_memory()
        return {"document": document, "files": hashes}


def run_tasks(
    tasks: Sequence[Task],
    folder: str | Path | None = None,
    jobs: int | None = 1,
    progress: Listener | None = None,
    backend: str | None = None,
    scheduler: str | None = None,
) -> list[Outcome]:
    """Run exhibits and save them under ``folder``/PAPER; what is there already is not run again.

    Args:
        tasks: the exhibits. folder: where to write; None writes nothing. Workers on other machines
            must see it under the same path.
        progress: called with a `Progress` for every outcome as it comes, its fact; may raise
            KeyboardInterrupt to stop.

    Returns:
        the outcomes, in the order of ``tasks``. An exhibit that raises is an outcome with an error,
        tried again next time. Interrupting loses the exhibits that are running, nothing else.
    """
    home = None if folder is None else Path(folder).resolve()
    outcomes: dict[Task, Outcome] = {}
    teller = Teller(progress, Clock())

    def tell(outcome: Outcome) -> None:
        outcomes[outcome.task] = outcome
        teller("exhibits", len(outcomes), len(order), outcome=outcome)

    # The longest first, so that no core ends up with a long one alone.
    order = sorted(dict.fromkeys(tasks), key=lambda task: -task.cost)
    function, version = MakeExhibit(home), code_version()
    who = identify(function, {}, version, stored=home is not None)
    known = {who.key(who.complete(task.parameters)): task for task in order}
    with _store(home) as store:
        kept = {} if store is None else _kept(store, known, home)
        for key, run in kept.items():
            tell(_outcome(known[key], run, home, reused=True))

        def listen(said: Progress) -> None:
            latest = said.facts["latest"]
            if latest is not None:
                tell(_outcome(known[latest.key], latest, home))

        with shared_imports() if backend in (None, "loky") and jobs != 1 else nullcontext():
            found = sweep(
                function,
                [known[key].parameters for key in known if key not in kept],
                store=store,
                backend=backend,
                scheduler=scheduler,
                workers=jobs,
                progress=listen,
                retry_failed=True,
                version=version,
            )
    if found.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return [outcomes[task] for task in tasks]


@contextmanager
def shared_imports() -> Iterator[None]:
    """Local workers started inside the block are forked from one process that has imported what
    most exhibits need, so that it is in memory once and not once a worker. On Linux: elsewhere
    libraries do not survive a fork.
    """
    if sys.platform != "linux":
        yield
        return
    from joblib.externals.loky.backend import context

    multiprocessing.set_forkserver_preload(SHARED)
    before, threads = context.get_start_method(), {name: os.environ.get(name) for name in THREADS}
    context.set_start_method("forkserver", force=True)
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for libraries that read it when imported
    try:
        yield
    finally:
        context.set_start_method(before, force=True)
        for name, value in threads.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def give_back_memory() -> None:
    """What an exhibit has freed goes back to the system before the next one, where glibc can."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


@lru_cache(maxsize=1)
def code_version() -> str:
    """A hash of every source file of the package."""
    return source_version(relunorm)


def _store(home: Path | None) -> AbstractContextManager[Store | None]:
    if home is None:
        return nullcontext()
    home.mkdir(parents=True, exist_ok=True)
    return Store(home / STORE)


def _kept(store: Store, known: dict[str, Task], home: Path | None) -> dict[str, Run]:
    """The runs that need not be done again; those whose files are gone are taken out."""
    done = {key: run for key, run in store.find(known).items() if run.status == "done"}
    kept = {key: run for key, run in done.items() if _intact(known[key], run, home)}
    store.discard(done.keys() - kept.keys())
    return {key: kept[key] for key in known if key in kept}


def _intact(task: Task, run: Run, home: Path | None) -> bool:
    """Whether the folder holds the files just as the run wrote them."""
    files = (run.result or {}).get("files", {})
    return home is None or all(_hash(home / task.paper / n) == h for n, h in files.items())


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _outcome(task: Task, run: Run, home: Path | None, reused: bool = False) -> Outcome:
    result = run.result
    if result is None:
        return Outcome(task, None, run.message or "", reused, run.seconds)
    if not reused and not _intact(task, run, home):
        text = f"its files are not in {home}: workers must see the folder under the same path"
        return Outcome(task, None, text, reused, run.seconds)
    files = [] if home is None else [str(home / task.paper / name) for name in result["files"]]
    return Outcome(task, {**result["document"], "files": files}, "", reused, run.seconds)


def _check_items(task: Task, found: Exhibit) -> None:
    promised, given = set(task.items), {claim.item for claim in found.claims}
    if promised != given:
        raise ValueError(
            f"{task.paper} {task.name} promised {sorted(promised - given)} and did not give it"
            if promised - given
            else f"{task.paper} {task.name} gave {sorted(given - promised)} without promising it"
        )


def what_ran(make: Make) -> str:
    """The first paragraph of the docstring of what makes an exhibit.

    >>> from relunorm.papers import exhibits
    >>> what_ran(exhibits("rescaling")["lemma1"])[:15]
    'Random networks'
    """
    text = inspect.getdoc(make) or ""
    return " ".join(text.split("\n\n")[0].split())


def code_of(make: Make) -> dict[str, str]:
    """Where the code of an exhibit is: the name of its function, the line of its file, its text.

    >>> from relunorm.papers import exhibits
    >>> code_of(exhibits("dying")["figure4"])["name"]
    'relunorm.papers.dying.basin_maps.figure4'
    """
    function: Any = getattr(make, "func", make)  # behind a partial
    lines, first = inspect.getsourcelines(function)
    module = function.__module__
    place = f"src/{module.replace('.', '/')}.py:{first}"
    return {"name": f"{module}.{function.__qualname__}", "place": place, "text": "".join(lines)}
