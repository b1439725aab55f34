"""Seed 000, "Normalization of Single-Layer ReLU Networks", re-run."""

from relunorm.papers.rescaling.lemma import EXHIBITS

__all__ = ["EXHIBITS"]
