"""The monitor as a Hugging Face Trainer callback."""

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
        from transformers import TrainerCallback  # type: ignore[import-not-found]
    except ImportError:
        raise MissingDependencyError(
            "this callback needs transformers: pip install transformers"
        ) from None

    class DeadUnits(TrainerCallback):
        """Watches the Trainer's model; adds its numbers to every log the Trainer writes."""

        def __init__(self, **options: Any):
            self.options = options
            self.monitor: DeadUnitMonitor | None = None

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
        ) -> None:
            self.monitor = DeadUnitMonitor(model, **self.options)

        def on_log(
            self,
            args: Any,
            state: Any,
            control: Any,
            logs: dict[str, float] | None = None,
            **_: Any,
        ) -> None:
            if self.monitor is not None and logs is not None and self.monitor.batches:
                scalars = self.monitor.report().scalars()
                found = {f"relu/{name}": value for name, value in scalars.items()}
                logs.update(found)  # for the reporters that come after
                if state.log_history:
                    state.log_history[-1].update(found)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.monitor is not None:
                self.monitor.close()

    DeadUnits.__qualname__ = "DeadUnits"  # so that it can be pickled
    return DeadUnits
