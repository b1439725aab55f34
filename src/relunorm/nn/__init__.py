"""Torch modules and functions on torch modules; names are imported on first use (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

#: Public name -> module that defines it.
_HOME = {
    "constrain": "relunorm.nn.constrain",
    "live_init_": "relunorm.nn.live",
    "release": "relunorm.nn.constrain",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from relunorm.nn.constrain import constrain as constrain
    from relunorm.nn.constrain import release as release
    from relunorm.nn.live import live_init_ as live_init_


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'relunorm.nn' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
