"""The monitor as a Keras 3 callback, on the torch backend."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters.callback import Watching, framework, on_first_use
from relunorm.errors import InvalidInputError


def _build() -> type:
    keras = framework("keras")

    class DeadUnits(Watching, keras.callbacks.Callback):
        """Watches the model during fit and adds its numbers to the epoch logs.

        Needs KERAS_BACKEND=torch: there a Keras model is a torch module and its calls can be seen.

        Args:
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, **options: Any):
            super().__init__()
            if keras.config.backend() != "torch":
                raise InvalidInputError(
                    f"Keras runs on {keras.config.backend()}; the monitor sees torch calls only: "
                    "set KERAS_BACKEND=torch before importing keras"
                )
            self.options = options

        def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
            self.start(self.model)

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            if logs is not None:
                logs.update({name.replace("/", "_"): v for name, v in self.numbers().items()})

        def on_train_end(self, logs: dict[str, float] | None = None) -> None:
            self.stop()

    return DeadUnits


__getattr__ = on_first_use(globals(), DeadUnits=_build)
