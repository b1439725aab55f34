"""The monitor, and revival, as Hugging Face Trainer callbacks."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters.callback import Reviving, Watching, framework, on_first_use


def _monitor() -> type:
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


def _revival() -> type:
    class Revive(Reviving, framework("transformers").TrainerCallback):
        """Revives units while the Trainer trains its model.

        Args:
            **options: of `Reviver` (rule, every, tau, ...).
        """

        def __init__(self, **options: Any):
            self.options = options

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
        ) -> None:
            self.start(model)

        def on_step_end(
            self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
        ) -> None:
            # accelerate wraps the optimizer in one that has no state of its own.
            self.after_update(getattr(optimizer, "optimizer", optimizer))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.stop()

    return Revive


__getattr__ = on_first_use(globals(), DeadUnits=_monitor, Revive=_revival)
