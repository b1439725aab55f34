"""Where a monitor's numbers go: loggers here, and one thin file per training framework.

Each file is imported by name (``from relunorm.dying.adapters.lightning import DeadUnits``), so that
no framework is needed for another. A callback must inherit from its framework's class, and the
framework is imported only when the callback is first asked for, not with the adapter's module (PEP
562). What the callbacks share is here: a monitor or a reviver from start to stop, and classes built
when asked for.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from relunorm.dying.revive.schedule import Reviver
from relunorm.dying.watch.monitor import DeadUnitMonitor, Log
from relunorm.errors import MissingDependencyError


def to_tensorboard(writer: Any) -> Log:
    """A ``log`` for `DeadUnitMonitor` that writes to a torch or tensorboardX ``SummaryWriter``."""

    def log(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)

    return log


def to_mlflow(client: Any = None) -> Log:
    """A ``log`` for `DeadUnitMonitor` that writes to the active MLflow run.

    The share of dead units in the model is the metric ``relu/dead``, that of a site
    ``relu/dead.SITE``.

    Args:
        client: anything with ``log_metric(key, value, step=...)``; the module mlflow by default.
    """
    if client is None:
        try:
            import mlflow as client  # type: ignore[import-not-found,no-redef]
        except ImportError:
            raise MissingDependencyError(
                "logging to MLflow needs mlflow: pip install mlflow"
            ) from None

    def log(name: str, value: float, step: int) -> None:
        # MLflow allows letters, digits and _-./ and spaces in a key; a second call is "act#1". Its
        # file store makes a key a path: relu/dead, a file, cannot hold relu/dead/act as well.
        group, _, rest = name.partition("/")
        key = f"{group}/{rest.replace('/', '.')}" if rest else group
        client.log_metric(re.sub(r"[^\w\-./ ]", "_", key), value, step=step)

    return log


class Watching:
    """A monitor on a model from `start` to `stop`; ``options`` are those of `DeadUnitMonitor`."""

    monitor: DeadUnitMonitor | None = None

    def __init__(self, **options: Any):
        super().__init__()
        self.options = options

    def start(self, model: Any) -> None:
        """Watch the model; a monitor left over from a run that broke off is closed."""
        self.stop()
        self.monitor = DeadUnitMonitor(model, **self.options)

    def stop(self) -> None:
        """Take the hooks off. The monitor and its report stay."""
        if self.monitor is not None:
            self.monitor.close()

    def ended(self, *_: Any, **__: Any) -> None:
        """A framework's hook for the end of a run."""
        self.stop()

    def numbers(self) -> dict[str, float]:
        """The report as flat numbers, empty before the first forward pass."""
        if self.monitor is None or not self.monitor.batches:
            return {}
        return {f"relu/{name}": v for name, v in self.monitor.report().scalars().items()}

    def __getstate__(self) -> dict[str, Any]:
        """Frameworks copy and save their callbacks; a monitor is bound to one model's hooks."""
        return {**self.__dict__, "monitor": None}


class Reviving:
    """A `Reviver` on a model from its first training pass on, whose input it takes as its batch;
    ``options`` are those of `Reviver`."""

    reviver: Reviver | None = None
    _given: Any = None
    _hook: Any = None
    _model: Any = None

    def __init__(self, **options: Any):
        super().__init__()
        self.options = options

    def start(self, model: Any) -> None:
        """Wait for the first training pass; a reviver left over from another run is closed."""
        self.stop()
        self.reviver, self._given, self._model = None, None, model
        self._hook = model.register_forward_pre_hook(self._first, with_kwargs=True)

    def _first(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not module.training:
            return
        if args and kwargs:
            named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            args, kwargs = (), dict(named)
        self._given = kwargs or args
        self._unhook()

    def after_update(self, optimizer: Any) -> None:
        """Count one update of the optimizer."""
        if self.reviver is None and self._given is not None:
            self.reviver = Reviver(self._model, self._given, optimizer, **self.options)
            self.reviver.updates, self._given = 1, None  # its monitor has not seen this one
        elif self.reviver is not None and self.reviver.monitor.watch is not None:
            self.reviver.step()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def stop(self) -> None:
        """Take the hooks off. The reviver and its history stay."""
        self._unhook()
        if self.reviver is not None:
            self.reviver.close()

    def ended(self, *_: Any, **__: Any) -> None:
        """A framework's hook for the end of a run."""
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Frameworks copy and save their callbacks; a reviver is bound to one model's hooks."""
        return {**self.__dict__, "reviver": None, "_given": None, "_hook": None, "_model": None}


def framework(*modules: str) -> Any:
    """The first of these modules that can be imported; the package to install is its first part."""
    for name in modules:
        try:
            return import_module(name)
        except ImportError:
            continue
    package = modules[0].split(".")[0]
    raise MissingDependencyError(f"this callback needs {package}: pip install {package}")


def on_first_use(namespace: dict[str, Any], build: Callable[[], Sequence[type]]) -> Any:
    """A module's ``__getattr__`` that makes its classes when one of them is first asked for."""

    def get(name: str) -> Any:
        if name not in ("DeadUnits", "Revive"):
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        for found in build():
            found.__qualname__ = found.__name__  # so that it can be pickled
            namespace[found.__name__] = found
        return namespace[name]

    return get
