"""Seed 003, "Deep Representation with ReLU Neural Networks" (Heinecke, Hwang), re-run."""

from relunorm.papers.pieces.partition import EXHIBITS

__all__ = ["EXHIBITS"]
