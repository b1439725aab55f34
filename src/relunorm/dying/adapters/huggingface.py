"""The monitor as a Hugging Face Trainer callback."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters.callback import Watching, framework, on_first_use


def _build() -> type:
    class DeadUnits(Watching, framework("transformers").TrainerCallback):
        """Watches the Trainer's model; adds its numbers to every log the Trainer writes.

        Args:
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, **options: Any):
            self.options = options

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
        ) -> None:
            self.start(model)

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None,
            **_: Any,
        ) -> None:  # fmt: skip
            if logs is None:
                return
            found = self.numbers()
            logs.update(found)  # for the reporters that come after
            if state.log_history:
                state.log_history[-1].update(found)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.stop()

    return DeadUnits


__getattr__ = on_first_use(globals(), _build)
