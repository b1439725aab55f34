"""Where a monitor's numbers go: loggers here, and one thin file per training framework.

Each file is imported by name (``from relunorm.dying.adapters.lightning import DeadUnits``), so that
no framework is needed for another.
"""

from __future__ import annotations

import re
from typing import Any

from relunorm.dying.watch.monitor import Log
from relunorm.errors import MissingDependencyError


def to_tensorboard(writer: Any) -> Log:
    """A ``log`` for `DeadUnitMonitor` that writes to a torch or tensorboardX ``SummaryWriter``."""

    def log(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)

    return log


def to_mlflow(client: Any = None) -> Log:
    """A ``log`` for `DeadUnitMonitor` that writes to the active MLflow run.

    The share of dead units in the model is the metric ``relu/dead``, that of a site
    ``relu/dead.SITE``.

    Args:
        client: anything with ``log_metric(key, value, step=...)``; the module mlflow by default.
    """
    if client is None:
        try:
            import mlflow as client  # type: ignore[import-not-found,no-redef]
        except ImportError:
            raise MissingDependencyError(
                "logging to MLflow needs mlflow: pip install mlflow"
            ) from None

    def log(name: str, value: float, step: int) -> None:
        # MLflow allows letters, digits and _-./ and spaces in a key; a second call is "act#1". Its
        # file store makes a key a path: relu/dead, a file, cannot hold relu/dead/act as well.
        group, _, rest = name.partition("/")
        key = f"{group}/{rest.replace('/', '.')}" if rest else group
        client.log_metric(re.sub(r"[^\w\-./ ]", "_", key), value, step=step)

    return log
