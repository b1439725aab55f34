"""The monitor, and revival, as skorch callbacks."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters import Reviving, Watching, framework, on_first_use


def _callbacks() -> tuple[type, type]:
    base = framework("skorch.callbacks").Callback

    class DeadUnits(Watching, base):
        """Watches the net's module during fit and records its numbers in the net's history.

        Args:
            window, tau: of `DeadUnitMonitor`; named, as skorch sets and clones parameters by name.
        """

        def __init__(self, window: int = 100, tau: float = 0.025):
            self.window, self.tau = window, tau

        def on_train_begin(self, net: Any, *_: Any, **__: Any) -> None:
            self.options = {"window": self.window, "tau": self.tau}
            self.start(net.module_)

        def on_epoch_end(self, net: Any, **_: Any) -> None:
            for name, value in self.numbers().items():
                net.history.record(name, value)

        on_train_end = Watching.ended

    class Revive(Reviving, base):
        """Revives units while the net is fitted.

        Args:
            rule, every, tau, pull: of `Reviver`; named, as skorch sets and clones by name.
        """

        def __init__(
            self, rule: str = "redo", every: int = 50, tau: float = 0.025, pull: float | None = None
        ):
            self.rule, self.every, self.tau, self.pull = rule, every, tau, pull

        def on_train_begin(self, net: Any, *_: Any, **__: Any) -> None:
            names = ("rule", "every", "tau", "pull")
            self.options = {name: getattr(self, name) for name in names}
            self.start(net.module_)

        def on_batch_end(self, net: Any, *_: Any, training: bool = False, **__: Any) -> None:
            if training:
                self.after_update(net.optimizer_)

        on_train_end = Reviving.ended

    return DeadUnits, Revive


__getattr__ = on_first_use(globals(), _callbacks)
