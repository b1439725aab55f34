"""The monitor as a skorch callback."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters.callback import Watching, framework, on_first_use


def _build() -> type:
    class DeadUnits(Watching, framework("skorch.callbacks").Callback):
        """Watches the net's module during fit and records its numbers in the net's history.

        Args:
            window, tau: of `DeadUnitMonitor`; named, as skorch sets and clones parameters by name.
        """

        def __init__(self, window: int = 100, tau: float = 0.025):
            self.window, self.tau = window, tau

        def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
            self.options = {"window": self.window, "tau": self.tau}
            self.start(net.module_)

        def on_epoch_end(self, net: Any, **_: Any) -> None:
            for name, value in self.numbers().items():
                net.history.record(name, value)

        def on_train_end(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
            self.stop()

    return DeadUnits


__getattr__ = on_first_use(globals(), _build)
