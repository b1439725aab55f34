"""Seed 004, "Batch Normalization Decomposed" (Nachum, Bondaschi, Gastpar, Khina), re-run."""

from relunorm.papers.batchnorm.figures import EXHIBITS

__all__ = ["EXHIBITS"]
