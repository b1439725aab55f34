"""Seed 002, "The effect of Target Normalization and Momentum on Dying ReLU", re-run."""

from relunorm.papers.dying.basin_maps import figure3, figure4, figure5
from relunorm.papers.dying.dead_layers import scaling, setting
from relunorm.papers.dying.laws import Dying
from relunorm.papers.dying.momentum import affine, figure2
from relunorm.papers.dying.one_unit import appendix_c, unit
from relunorm.papers.dying.target_scales import figure1, figure6, read_sample
from relunorm.papers.exhibit import Make

WORLD = Dying
EXHIBITS: dict[str, Make] = {
    make.__name__: make
    for make in (
        figure1, figure2, figure3, figure4, figure5, figure6, setting, affine, unit, appendix_c,
        scaling,
    )
}  # fmt: skip

__all__ = ["EXHIBITS", "WORLD", "Dying", "read_sample"]
