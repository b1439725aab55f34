"""Batch normalization taken apart: probes and random deep networks.

The exact models of seed 004 (the tree, cells and ranks, fixed points, invariants) are what its
re-run rests on: they live in `relunorm.papers.batchnorm` and are reached from here.
Names are imported on first use.
"""

from relunorm.lazy import on_first_use

_HOME, __getattr__, __dir__ = on_first_use(__name__)
__all__ = sorted(_HOME)  # pyrefly: ignore[unresolvable-dunder-all]
