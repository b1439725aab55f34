"""The monitor, and revival, as Lightning callbacks."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters.callback import Reviving, Watching, framework, on_first_use


def _callback() -> Any:
    return framework("lightning.pytorch.callbacks", "pytorch_lightning.callbacks").Callback


def _monitor() -> type:
    base = _callback()

    class DeadUnits(Watching, base):
        """Watches the module from the start of fit to its end and logs every ``log_every`` batches.

        Args:
            log_every: updates between logs.
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, log_every: int = 100, **options: Any):
            self.log_every, self.options = log_every, options

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            # A LightningModule's own forward need not run: training_step may call its parts.
            self.start(_watched(pl_module))

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if trainer.global_step % self.log_every == 0:
                for name, value in self.numbers().items():
                    pl_module.log(name, value)

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self.stop()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.stop()

    return DeadUnits


def _revival() -> type:
    base = _callback()

    class Revive(Reviving, base):
        """Revives units while the module is trained, from the start of fit to its end.

        Args:
            **options: of `Reviver` (rule, every, tau, ...).
        """

        def __init__(self, **options: Any):
            self.options = options

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            self.start(_watched(pl_module))
            self._done = trainer.global_step

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if trainer.global_step > self._done:  # gradients may be gathered over several batches
                self._done = trainer.global_step
                self.after_update(trainer.optimizers[0])

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self.stop()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.stop()

    return Revive


def _watched(module: Any) -> Any:
    """Which module to watch: the only child, where there is one, as forward hooks need a call."""
    children = [c for c in module.children() if any(True for _ in c.parameters())]
    return children[0] if len(children) == 1 else module


__getattr__ = on_first_use(globals(), DeadUnits=_monitor, Revive=_revival)
