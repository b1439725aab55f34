"""Torch modules and functions on torch modules; names are imported on first use (PEP 562)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relunorm.lazy import on_first_use

#: Public name -> module that defines it.
_HOME = {
    "DatapointInit": "relunorm.nn.datapoint",
    "DecomposedBatchNorm": "relunorm.nn.batchnorm",
    "constrain": "relunorm.nn.reduced_space",
    "datapoint_init_": "relunorm.nn.datapoint",
    "decompose": "relunorm.nn.batchnorm",
    "live_init_": "relunorm.nn.live",
    "release": "relunorm.nn.reduced_space",
}

__all__ = [
    "DatapointInit",
    "DecomposedBatchNorm",
    "constrain",
    "datapoint_init_",
    "decompose",
    "live_init_",
    "release",
]

if TYPE_CHECKING:
    from relunorm.nn.batchnorm import DecomposedBatchNorm as DecomposedBatchNorm
    from relunorm.nn.batchnorm import decompose as decompose
    from relunorm.nn.datapoint import DatapointInit as DatapointInit
    from relunorm.nn.datapoint import datapoint_init_ as datapoint_init_
    from relunorm.nn.live import live_init_ as live_init_
    from relunorm.nn.reduced_space import constrain as constrain
    from relunorm.nn.reduced_space import release as release

__getattr__, __dir__ = on_first_use(__name__, _HOME)
