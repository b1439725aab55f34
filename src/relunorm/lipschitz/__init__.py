"""Lipschitz constants: one method per file, `front.lipschitz` in front of them.

The package is callable, so that ``relunorm.lipschitz(network)`` means the function whether or not
something imported this package (and thereby bound its name) before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `relunorm.lipschitz.front.lipschitz`."""
        from relunorm.lipschitz.front import lipschitz

        return lipschitz(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
lipschitz = sys.modules[__name__]
