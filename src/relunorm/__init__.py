"""Exact answers about ReLU networks.

Names are imported on first use (PEP 562), so that ``import relunorm`` stays light: torch, onnx,
numba and scikit-learn are loaded only by the calls that need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name -> module that defines it (the name itself where a module is meant).
_HOME = {
    "DeadUnitMonitor": "relunorm.dying.monitor",
    "diagnose": "relunorm.dying.diagnosis",
    "Activation": "relunorm.network",
    "Affine": "relunorm.network",
    "Layer": "relunorm.network",
    "Network": "relunorm.network",
    "Ball": "relunorm.domain",
    "Box": "relunorm.domain",
    "Domain": "relunorm.domain",
    "Polytope": "relunorm.domain",
    "batchnorm": "relunorm.batchnorm",
    "dying": "relunorm.dying",
    "geometry": "relunorm.batchnorm.probes",
    "nn": "relunorm.nn",
    "load": "relunorm.io",
    "save": "relunorm.io",
    "to_keras": "relunorm.io.keras",
    "to_onnx": "relunorm.io.onnx_write",
    "to_sklearn": "relunorm.io.sklearn",
    "to_torch": "relunorm.io.torch_write",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from relunorm import batchnorm as batchnorm
    from relunorm import dying as dying
    from relunorm import nn as nn
    from relunorm.batchnorm.probes import geometry as geometry
    from relunorm.domain import Ball as Ball
    from relunorm.domain import Box as Box
    from relunorm.domain import Domain as Domain
    from relunorm.domain import Polytope as Polytope
    from relunorm.dying.diagnosis import diagnose as diagnose
    from relunorm.dying.monitor import DeadUnitMonitor as DeadUnitMonitor
    from relunorm.io import load as load
    from relunorm.io import save as save
    from relunorm.io.keras import to_keras as to_keras
    from relunorm.io.onnx_write import to_onnx as to_onnx
    from relunorm.io.sklearn import to_sklearn as to_sklearn
    from relunorm.io.torch_write import to_torch as to_torch
    from relunorm.network import Activation as Activation
    from relunorm.network import Affine as Affine
    from relunorm.network import Layer as Layer
    from relunorm.network import Network as Network


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'relunorm' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
