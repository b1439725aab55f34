"""The monitor, and revival, as Hugging Face Trainer callbacks."""

from __future__ import annotations

from typing import Any

from relunorm.dying.adapters import Reviving, Watching, framework, on_first_use


def _callbacks() -> tuple[type, type]:
    base = framework("transformers").TrainerCallback

    class DeadUnits(Watching, base):
        """Watches the Trainer's model; adds its numbers to every log the Trainer writes.

        Args:
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
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

        on_train_end = Watching.ended

    class Revive(Reviving, base):
        """Revives units while the Trainer trains its model.

        Args:
            **options: of `Reviver` (rule, every, tau, ...).
        """

        def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
            self.start(model)

        def on_step_end(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
            # accelerate wraps the optimizer in one that has no state of its own.
            self.after_update(getattr(optimizer, "optimizer", optimizer))

        on_train_end = Reviving.ended

    return DeadUnits, Revive


__getattr__ = on_first_use(globals(), _callbacks)
