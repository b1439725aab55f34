"""The monitor as a skorch callback."""

from __future__ import annotations

from typing import Any

from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.errors import MissingDependencyError

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
