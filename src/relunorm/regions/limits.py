"""What an engine raises when a case is beyond it, so that another can take over."""

from __future__ import annotations

from relunorm.errors import RelunormError


class CellLimitError(RelunormError, ValueError):
    """A cell has more walls than a word has bits (64); the sign tree has no such limit."""
