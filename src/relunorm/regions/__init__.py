"""Linear regions of piecewise affine networks: listed, located, measured, drawn.

``relunorm.regions`` is this package and, called, the function `relunorm.regions.enumerate.regions`:
importing any module in here makes Python bind the package to that name, so the package itself must
be what users call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """List every linear region of a network on a domain; see `enumerate.regions`."""
        from relunorm.regions.enumerate import regions

        return regions(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
regions = sys.modules[__name__]
