"""Torch modules and functions on torch modules; names are imported on first use (PEP 562)."""

from relunorm.lazy import on_first_use

_HOME, __getattr__, __dir__ = on_first_use(__name__)
__all__ = sorted(_HOME)  # pyrefly: ignore[unresolvable-dunder-all]
