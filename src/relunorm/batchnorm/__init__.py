"""Batch normalization taken apart: probes, random deep networks, exact models (seed 004)."""

from relunorm.batchnorm.cells import CellVolumes, cell_count, gamma
from relunorm.batchnorm.fixed_points import (
    FixedPoint,
    fixed_points,
    gram_derivative,
    odd_state,
    symmetric_state,
)
from relunorm.batchnorm.gram import arccos_kernel, center_gram, gram_step, kernel_gram
from relunorm.batchnorm.invariants import (
    check_invariant,
    invariant_alpha,
    invariant_gram,
    theorem13,
    theorem14,
)
from relunorm.batchnorm.measure import OddTest, cluster_sizes, odd_points, pair_angles, soft_rank
from relunorm.batchnorm.probes import Geometry, LayerGeometry, geometry
from relunorm.batchnorm.random_nets import Propagation, propagate
from relunorm.batchnorm.rank import (
    NeuronCounts,
    RankBounds,
    RankCondition,
    rank_bounds,
    rank_condition,
    sample_neuron_counts,
)
from relunorm.batchnorm.tree import (
    ClusterCounts,
    Tree,
    cluster_count,
    negative_transformation,
    positive_transformation,
)
from relunorm.batchnorm.tree_limit import TreeLimit

__all__ = [
    "CellVolumes",
    "ClusterCounts",
    "FixedPoint",
    "Geometry",
    "LayerGeometry",
    "NeuronCounts",
    "OddTest",
    "Propagation",
    "RankBounds",
    "RankCondition",
    "Tree",
    "TreeLimit",
    "arccos_kernel",
    "cell_count",
    "center_gram",
    "check_invariant",
    "cluster_count",
    "cluster_sizes",
    "fixed_points",
    "gamma",
    "geometry",
    "gram_derivative",
    "gram_step",
    "invariant_alpha",
    "invariant_gram",
    "kernel_gram",
    "negative_transformation",
    "odd_points",
    "odd_state",
    "pair_angles",
    "positive_transformation",
    "propagate",
    "rank_bounds",
    "rank_condition",
    "sample_neuron_counts",
    "soft_rank",
    "symmetric_state",
    "theorem13",
    "theorem14",
]
