"""Seed 001, "Reducing Parameter Space for Neural Network Training" (Qin, Zhou, Xiu), re-run."""

from relunorm.papers.exhibit import Make, judged
from relunorm.papers.reduced.claims import JUDGES
from relunorm.papers.reduced.constrained_runs import FIGURES, Experiment, franke
from relunorm.papers.reduced.depth import depth, derived
from relunorm.papers.reduced.laws import Reduced
from relunorm.papers.reduced.theorems import density, identities, thresholds, unit_rows

WORLD = Reduced
EXHIBITS: dict[str, Make] = {
    **{name: judged(make, JUDGES[name]) for name, make in FIGURES.items()},
    "density": density,
    "identities": identities,
    "unit_rows": unit_rows,
    "thresholds": thresholds,
    "depth": depth,
    "derived": derived,
}

__all__ = ["EXHIBITS", "WORLD", "Experiment", "Reduced", "franke"]
