from relunorm.batchnorm.gram import OddTest as OddTest
from relunorm.batchnorm.gram import arccos_kernel as arccos_kernel
from relunorm.batchnorm.gram import center_gram as center_gram
from relunorm.batchnorm.gram import cluster_sizes as cluster_sizes
from relunorm.batchnorm.gram import gram_step as gram_step
from relunorm.batchnorm.gram import kernel_gram as kernel_gram
from relunorm.batchnorm.gram import odd_points as odd_points
from relunorm.batchnorm.gram import pair_angles as pair_angles
from relunorm.batchnorm.gram import soft_rank as soft_rank
from relunorm.batchnorm.probes import Geometry as Geometry
from relunorm.batchnorm.probes import LayerGeometry as LayerGeometry
from relunorm.batchnorm.probes import geometry as geometry
from relunorm.batchnorm.random_nets import Propagation as Propagation
from relunorm.batchnorm.random_nets import propagate as propagate
from relunorm.papers.batchnorm.invariance import check_invariant as check_invariant
from relunorm.papers.batchnorm.invariance import invariant_alpha as invariant_alpha
from relunorm.papers.batchnorm.invariance import invariant_gram as invariant_gram
from relunorm.papers.batchnorm.invariance import theorem14 as theorem14
from relunorm.papers.batchnorm.theory.coordinate import TreeLimit as TreeLimit
from relunorm.papers.batchnorm.theory.fixed_points import FixedPoint as FixedPoint
from relunorm.papers.batchnorm.theory.fixed_points import fixed_points as fixed_points
from relunorm.papers.batchnorm.theory.fixed_points import gram_derivative as gram_derivative
from relunorm.papers.batchnorm.theory.fixed_points import odd_state as odd_state
from relunorm.papers.batchnorm.theory.fixed_points import symmetric_state as symmetric_state
from relunorm.papers.batchnorm.theory.full_rank import NeuronCounts as NeuronCounts
from relunorm.papers.batchnorm.theory.full_rank import RankBounds as RankBounds
from relunorm.papers.batchnorm.theory.full_rank import RankCondition as RankCondition
from relunorm.papers.batchnorm.theory.full_rank import rank_bounds as rank_bounds
from relunorm.papers.batchnorm.theory.full_rank import rank_condition as rank_condition
from relunorm.papers.batchnorm.theory.full_rank import sample_neuron_counts as sample_neuron_counts
from relunorm.papers.batchnorm.theory.tree_model import ClusterCounts as ClusterCounts
from relunorm.papers.batchnorm.theory.tree_model import Tree as Tree
from relunorm.papers.batchnorm.theory.tree_model import cluster_count as cluster_count
from relunorm.papers.batchnorm.theory.tree_model import (
    negative_transformation as negative_transformation,
)
from relunorm.papers.batchnorm.theory.tree_model import (
    positive_transformation as positive_transformation,
)
from relunorm.papers.batchnorm.theory.weight_cells import CellVolumes as CellVolumes
from relunorm.papers.batchnorm.theory.weight_cells import cell_count as cell_count
from relunorm.papers.batchnorm.theory.weight_cells import gamma as gamma
