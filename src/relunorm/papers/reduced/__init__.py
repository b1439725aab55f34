"""Seed 001, "Reducing Parameter Space for Neural Network Training" (Qin, Zhou, Xiu), re-run."""

from relunorm.papers.reduced.figures import EXHIBITS, Experiment, franke

__all__ = ["EXHIBITS", "Experiment", "franke"]
