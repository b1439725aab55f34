"""Seed 003, "Deep Representation with ReLU Neural Networks" (Heinecke, Hwang), re-run."""

from relunorm.papers.exhibit import Make
from relunorm.papers.pieces.examples import background, examples, figures12
from relunorm.papers.pieces.laws import Pieces
from relunorm.papers.pieces.maps import atoms, gradients, theorem6_table
from relunorm.papers.pieces.proposition3 import partition

WORLD = Pieces
EXHIBITS: dict[str, Make] = {
    "background": background,
    "figures12": figures12,
    "examples": examples,
    "partition": partition,
    "atoms": atoms,
    "theorem6": theorem6_table,
    "gradients": gradients,
}

__all__ = ["EXHIBITS", "WORLD", "Pieces"]
