"""What the framework callbacks share: a monitor from start to stop, and a class built when asked.

A callback must inherit from its framework's class, and the framework is imported only when the
callback is first asked for, not with the adapter's module (PEP 562).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.errors import MissingDependencyError


class Watching:
    """A monitor on a model from `start` to `stop`."""

    options: dict[str, Any]
    monitor: DeadUnitMonitor | None = None

    def start(self, model: Any) -> None:
        """Watch the model; a monitor left over from a run that broke off is closed."""
        self.stop()
        self.monitor = DeadUnitMonitor(model, **self.options)

    def stop(self) -> None:
        """Take the hooks off. The monitor and its report stay."""
        if self.monitor is not None:
            self.monitor.close()

    def numbers(self) -> dict[str, float]:
        """The report as flat numbers, empty before the first forward pass."""
        if self.monitor is None or not self.monitor.batches:
            return {}
        return {f"relu/{name}": v for name, v in self.monitor.report().scalars().items()}

    def __getstate__(self) -> dict[str, Any]:
        """Frameworks copy and save their callbacks; a monitor is bound to one model's hooks."""
        return {**self.__dict__, "monitor": None}


def framework(*modules: str) -> Any:
    """The first of these modules that can be imported; the package to install is its first part."""
    for name in modules:
        try:
            return import_module(name)
        except ImportError:
            continue
    package = modules[0].split(".")[0]
    raise MissingDependencyError(f"this callback needs {package}: pip install {package}")


def on_first_use(namespace: dict[str, Any], build: Callable[[], type]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that makes its class ``DeadUnits`` when it is first asked for."""

    def get(name: str) -> Any:
        if name != "DeadUnits":
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        found = namespace[name] = build()
        found.__qualname__ = name  # so that it can be pickled
        return found

    return get
