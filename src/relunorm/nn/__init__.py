"""Torch modules: batch normalization whose parts can be switched, and initialization by data."""

from relunorm.nn.batchnorm import DecomposedBatchNorm, decompose
from relunorm.nn.datapoint import DatapointInit, datapoint_init_

__all__ = ["DatapointInit", "DecomposedBatchNorm", "datapoint_init_", "decompose"]
