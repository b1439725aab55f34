"""Seed 002, "The effect of Target Normalization and Momentum on Dying ReLU", re-run."""

from relunorm.papers.dying.maps import EXHIBITS, MEASURED, read_sample

__all__ = ["EXHIBITS", "MEASURED", "read_sample"]
