"""The monitor as a Keras 3 callback, on the torch backend."""

from __future__ import annotations

from typing import Any

from relunorm.dying.monitor import DeadUnitMonitor
from relunorm.errors import InvalidInputError, MissingDependencyError


def __getattr__(name: str) -> Any:
    # The framework is imported when the class is first asked for, not with this module.
    if name != "DeadUnits":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _build()
    return found


def _build() -> type:
    try:
        import keras  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError("this callback needs Keras 3: pip install keras") from None

    class DeadUnits(keras.callbacks.Callback):
        """Watches the model during fit and adds its numbers to the epoch logs.

        Needs KERAS_BACKEND=torch: there a Keras model is a torch module and its calls can be seen.
        """

        def __init__(self, **options: Any):
            super().__init__()
            if keras.config.backend() != "torch":
                raise InvalidInputError(
                    f"Keras runs on {keras.config.backend()}; the monitor sees torch calls only: "
                    "set KERAS_BACKEND=torch before importing keras"
                )
            self.options = options
            self.monitor: DeadUnitMonitor | None = None

        def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
            model: Any = self.model
            self.monitor = DeadUnitMonitor(model, **self.options)

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            if self.monitor is not None and logs is not None and self.monitor.batches:
                scalars = self.monitor.report().scalars()
                logs.update({f"relu_{name.replace('/', '_')}": v for name, v in scalars.items()})

        def on_train_end(self, logs: dict[str, float] | None = None) -> None:
            if self.monitor is not None:
                self.monitor.close()

    DeadUnits.__qualname__ = "DeadUnits"  # so that it can be pickled
    return DeadUnits
