"""The monitor, and revival, as Lightning callbacks."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters import Reviving, Watching, framework, on_first_use


def _callbacks() -> tuple[type, type]:
    base = framework("lightning.pytorch.callbacks", "pytorch_lightning.callbacks").Callback

    class DeadUnits(Watching, base):
        """Watches the module from the start of fit to its end and logs every ``log_every`` batches.

        Args:
            log_every: updates between logs.
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, log_every: int = 100, **options: Any):
            super().__init__(**options)
            self.log_every = log_every

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            # A LightningModule's own forward need not run: training_step may call its parts.
            self.start(_watched(pl_module))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
            if trainer.global_step % self.log_every == 0:
                for name, value in self.numbers().items():
                    pl_module.log(name, value)

        on_fit_end = on_exception = Watching.ended

    class Revive(Reviving, base):
        """Revives units while the module is trained, from the start of fit to its end.

        Args:
            **options: of `Reviver` (rule, every, tau, ...).
        """

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            self.start(_watched(pl_module))
            self._done = trainer.global_step

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.global_step > self._done:  # gradients may be gathered over several batches
                self._done = trainer.global_step
                self.after_update(trainer.optimizers[0])

        on_fit_end = on_exception = Reviving.ended

    return DeadUnits, Revive


def _watched(module: Any) -> Any:
    """Which module to watch: the only child, where there is one, as forward hooks need a call."""
    children = [c for c in module.children() if any(True for _ in c.parameters())]
    return children[0] if len(children) == 1 else module


__getattr__ = on_first_use(globals(), _callbacks)
