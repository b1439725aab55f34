"""The monitor as a skorch callback."""

from __future__ import annotations

from typing import Any

from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.errors import MissingDependencyError


def __getattr__(name: str) -> Any:
    # The framework is imported when the class is first asked for, not with this module.
    if name != "DeadUnits":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _build()
    return found


def _build() -> type:
    try:
        from skorch.callbacks import Callback  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError("this callback needs skorch: pip install skorch") from None

    class DeadUnits(Callback):
        """Watches the net's module during fit and records its numbers in the net's history."""

        def __init__(self, window: int = 100, tau: float = 0.025):
            self.window, self.tau = window, tau

        def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
            self.monitor_ = DeadUnitMonitor(net.module_, window=self.window, tau=self.tau)

        def on_epoch_end(self, net: Any, **_: Any) -> None:
            for name, value in self.monitor_.report().scalars().items():
                net.history.record(f"relu/{name}", value)

        def on_train_end(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
            self.monitor_.close()

    DeadUnits.__qualname__ = "DeadUnits"  # so that it can be pickled
    return DeadUnits
