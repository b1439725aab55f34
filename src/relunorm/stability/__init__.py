"""Stability: which units can change sign over a domain, decided exactly and provably."""

from __future__ import annotations

from relunorm.stability.engine import stability
from relunorm.stability.result import LayerStability, Stability

__all__ = ["LayerStability", "Stability", "stability"]
