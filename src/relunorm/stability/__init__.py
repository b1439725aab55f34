"""Stability: which units can change sign over a domain, decided exactly and provably."""

from __future__ import annotations

from relunorm.stability.bound_proofs import Proofs
from relunorm.stability.bound_replay import Replay, replay
from relunorm.stability.stability import stability
from relunorm.stability.verdicts import LayerStability, Stability

__all__ = ["LayerStability", "Proofs", "Replay", "Stability", "replay", "stability"]
