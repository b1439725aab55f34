"""A monitor's numbers as TensorBoard scalars."""

from __future__ import annotations

from typing import Any

from relunorm.dying.watch.monitor import Log


def to_tensorboard(writer: Any) -> Log:
    """A ``log`` for `DeadUnitMonitor` that writes to a torch or tensorboardX ``SummaryWriter``."""

    def log(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)

    return log
