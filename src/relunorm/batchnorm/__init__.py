"""Batch normalization taken apart: probes and random deep networks.

The exact models of seed 004 (the tree, cells and ranks, fixed points, invariants) are what its
re-run rests on: they live in `relunorm.papers.batchnorm.theory` and are reached from here.
Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relunorm.lazy import on_first_use

_THEORY = "relunorm.papers.batchnorm.theory"

_HOME = {
    "CellVolumes": f"{_THEORY}.cells",
    "ClusterCounts": f"{_THEORY}.tree",
    "FixedPoint": f"{_THEORY}.fixed_points",
    "Geometry": "probes",
    "LayerGeometry": "probes",
    "NeuronCounts": f"{_THEORY}.rank",
    "OddTest": "measure",
    "Propagation": "random_nets",
    "RankBounds": f"{_THEORY}.rank",
    "RankCondition": f"{_THEORY}.rank",
    "Tree": f"{_THEORY}.tree",
    "TreeLimit": f"{_THEORY}.tree_limit",
    "arccos_kernel": "gram",
    "cell_count": f"{_THEORY}.cells",
    "center_gram": "gram",
    "check_invariant": f"{_THEORY}.invariants",
    "cluster_count": f"{_THEORY}.tree",
    "cluster_sizes": "measure",
    "fixed_points": f"{_THEORY}.fixed_points",
    "gamma": f"{_THEORY}.cells",
    "geometry": "probes",
    "gram_derivative": f"{_THEORY}.fixed_points",
    "gram_step": "gram",
    "invariant_alpha": f"{_THEORY}.invariants",
    "invariant_gram": f"{_THEORY}.invariants",
    "kernel_gram": "gram",
    "negative_transformation": f"{_THEORY}.tree",
    "odd_points": "measure",
    "odd_state": f"{_THEORY}.fixed_points",
    "pair_angles": "measure",
    "positive_transformation": f"{_THEORY}.tree",
    "propagate": "random_nets",
    "rank_bounds": f"{_THEORY}.rank",
    "rank_condition": f"{_THEORY}.rank",
    "sample_neuron_counts": f"{_THEORY}.rank",
    "soft_rank": "measure",
    "symmetric_state": f"{_THEORY}.fixed_points",
    "theorem13": f"{_THEORY}.invariants",
    "theorem14": f"{_THEORY}.invariants",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from relunorm.batchnorm.gram import arccos_kernel as arccos_kernel
    from relunorm.batchnorm.gram import center_gram as center_gram
    from relunorm.batchnorm.gram import gram_step as gram_step
    from relunorm.batchnorm.gram import kernel_gram as kernel_gram
    from relunorm.batchnorm.measure import OddTest as OddTest
    from relunorm.batchnorm.measure import cluster_sizes as cluster_sizes
    from relunorm.batchnorm.measure import odd_points as odd_points
    from relunorm.batchnorm.measure import pair_angles as pair_angles
    from relunorm.batchnorm.measure import soft_rank as soft_rank
    from relunorm.batchnorm.probes import Geometry as Geometry
    from relunorm.batchnorm.probes import LayerGeometry as LayerGeometry
    from relunorm.batchnorm.probes import geometry as geometry
    from relunorm.batchnorm.random_nets import Propagation as Propagation
    from relunorm.batchnorm.random_nets import propagate as propagate
    from relunorm.papers.batchnorm.theory.cells import CellVolumes as CellVolumes
    from relunorm.papers.batchnorm.theory.cells import cell_count as cell_count
    from relunorm.papers.batchnorm.theory.cells import gamma as gamma
    from relunorm.papers.batchnorm.theory.fixed_points import FixedPoint as FixedPoint
    from relunorm.papers.batchnorm.theory.fixed_points import fixed_points as fixed_points
    from relunorm.papers.batchnorm.theory.fixed_points import gram_derivative as gram_derivative
    from relunorm.papers.batchnorm.theory.fixed_points import odd_state as odd_state
    from relunorm.papers.batchnorm.theory.fixed_points import symmetric_state as symmetric_state
    from relunorm.papers.batchnorm.theory.invariants import check_invariant as check_invariant
    from relunorm.papers.batchnorm.theory.invariants import invariant_alpha as invariant_alpha
    from relunorm.papers.batchnorm.theory.invariants import invariant_gram as invariant_gram
    from relunorm.papers.batchnorm.theory.invariants import theorem13 as theorem13
    from relunorm.papers.batchnorm.theory.invariants import theorem14 as theorem14
    from relunorm.papers.batchnorm.theory.rank import NeuronCounts as NeuronCounts
    from relunorm.papers.batchnorm.theory.rank import RankBounds as RankBounds
    from relunorm.papers.batchnorm.theory.rank import RankCondition as RankCondition
    from relunorm.papers.batchnorm.theory.rank import rank_bounds as rank_bounds
    from relunorm.papers.batchnorm.theory.rank import rank_condition as rank_condition
    from relunorm.papers.batchnorm.theory.rank import sample_neuron_counts as sample_neuron_counts
    from relunorm.papers.batchnorm.theory.tree import ClusterCounts as ClusterCounts
    from relunorm.papers.batchnorm.theory.tree import Tree as Tree
    from relunorm.papers.batchnorm.theory.tree import cluster_count as cluster_count
    from relunorm.papers.batchnorm.theory.tree import (
        negative_transformation as negative_transformation,
    )
    from relunorm.papers.batchnorm.theory.tree import (
        positive_transformation as positive_transformation,
    )
    from relunorm.papers.batchnorm.theory.tree_limit import TreeLimit as TreeLimit

__getattr__, __dir__ = on_first_use(__name__, _HOME)
