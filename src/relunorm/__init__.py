"""Exact answers about ReLU networks.

Names are imported on first use (PEP 562), so that ``import relunorm`` stays light: torch, onnx,
llvmlite and scikit-learn are loaded only by the calls that need them. They are listed in
``__init__.pyi``, which type checkers read too.
"""

import sys
from types import ModuleType
from typing import Any

from relunorm.lazy import on_first_use

__version__ = "0.1.0"
_HOME, __getattr__, _ = on_first_use(__name__)
__all__ = ["__version__", *sorted(_HOME)]  # pyrefly: ignore[unresolvable-dunder-all]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``relunorm.regions`` the function that users call.

    Importing a module of the package of the same name would bind the package there.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        function = _HOME.get(name, __name__) != __name__
        if not (function and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
