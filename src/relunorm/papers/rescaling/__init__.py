"""Seed 000, "Normalization of Single-Layer ReLU Networks", re-run."""

from relunorm.papers.rescaling.lemma import EXHIBITS, Rescaling

WORLD = Rescaling

__all__ = ["EXHIBITS", "WORLD", "Rescaling"]
