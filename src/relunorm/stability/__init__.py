"""Stability: which units can change sign over a domain, decided exactly and provably."""

from __future__ import annotations

from relunorm.stability.proof import Proofs
from relunorm.stability.replay import Replay, replay
from relunorm.stability.result import LayerStability, Stability
from relunorm.stability.stability import stability

__all__ = ["LayerStability", "Proofs", "Replay", "Stability", "replay", "stability"]
