"""The monitor as a Lightning callback."""

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
        from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found]
    except ImportError:
        try:
            from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found]
        except ImportError:
            raise MissingDependencyError(
                "this callback needs Lightning: pip install lightning"
            ) from None

    class DeadUnits(Callback):
        """Watches the module from the start of fit to its end and logs every ``log_every`` batches.

        Args:
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, log_every: int = 100, **options: Any):
            self.log_every, self.options = log_every, options
            self.monitor: DeadUnitMonitor | None = None

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            # A LightningModule's own forward need not run: training_step may call its parts.
            self.monitor = DeadUnitMonitor(_watched(pl_module), **self.options)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if self.monitor is not None and (trainer.global_step % self.log_every == 0):
                self.monitor.log_to(lambda name, value, step: pl_module.log(name, value))

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            if self.monitor is not None:
                self.monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.on_fit_end(trainer, pl_module)

    DeadUnits.__qualname__ = "DeadUnits"  # so that it can be pickled
    return DeadUnits


def _watched(module: Any) -> Any:
    """Which module to watch: the only child, where there is one, as forward hooks need a call."""
    children = [c for c in module.children() if any(True for _ in c.parameters())]
    return children[0] if len(children) == 1 else module
