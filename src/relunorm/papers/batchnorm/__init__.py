"""Seed 004, "Batch Normalization Decomposed" (Nachum, Bondaschi, Gastpar, Khina), re-run."""

from relunorm.papers.batchnorm.attractor import attractor_angle, onset_width, parts
from relunorm.papers.batchnorm.figures import figure3, figure5, figure6
from relunorm.papers.batchnorm.invariance import invariance, theorem13
from relunorm.papers.batchnorm.laws import BatchNorm
from relunorm.papers.batchnorm.limit import theorem11
from relunorm.papers.batchnorm.rank import rank, theorem3
from relunorm.papers.batchnorm.three_clusters import appendix_e
from relunorm.papers.batchnorm.training import figure2, initialization
from relunorm.papers.batchnorm.tree import tree
from relunorm.papers.exhibit import Make

WORLD = BatchNorm
EXHIBITS: dict[str, Make] = {
    make.__name__: make
    for make in (
        figure2, figure3, figure5, figure6, attractor_angle, onset_width, parts, theorem3, rank,
        tree, theorem11, appendix_e, theorem13, invariance, initialization,
    )
}  # fmt: skip

__all__ = ["EXHIBITS", "WORLD", "BatchNorm"]
