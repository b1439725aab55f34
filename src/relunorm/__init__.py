"""Exact answers about ReLU networks.

Names are imported on first use (PEP 562), so that ``import relunorm`` stays light: torch, onnx,
numba and scikit-learn are loaded only by the calls that need them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relunorm.errors import optional_packages as _optional_packages

__version__ = "0.1.0"

#: Public name -> module that defines it (the name itself where a module is meant).
_HOME = {
    "Activation": "relunorm.network",
    "Affine": "relunorm.network",
    "along": "relunorm.regions.lines",
    "Ball": "relunorm.domain",
    "batchnorm": "relunorm.batchnorm",
    "Box": "relunorm.domain",
    "Certificate": "relunorm.forms.certificate.certificate",
    "certify": "relunorm.questions.certify",
    "check": "relunorm.questions.check",
    "compare": "relunorm.forms.comparison.compare",
    "DeadUnitMonitor": "relunorm.dying.watch.monitor",
    "decide": "relunorm.extrema.maximize",
    "diagnose": "relunorm.dying.diagnosis.diagnose",
    "Domain": "relunorm.domain",
    "dying": "relunorm.dying",
    "errors": "relunorm.errors",
    "fingerprint": "relunorm.forms.fingerprint",
    "geometry": "relunorm.batchnorm.probes",
    "Layer": "relunorm.network",
    "lipschitz": "relunorm.lipschitz.front",
    "Head": "relunorm.network.head",
    "load": "relunorm.io",
    "load_regions": "relunorm.regions.views.storage",
    "maximize": "relunorm.extrema.maximize",
    "Network": "relunorm.network",
    "never_smallest": "relunorm.extrema.maximize",
    "nn": "relunorm.nn",
    "NormBall": "relunorm.domain",
    "normalize": "relunorm.forms.normalize",
    "on_plane": "relunorm.regions.planes",
    "Polytope": "relunorm.domain",
    "Region": "relunorm.regions.region",
    "region_at": "relunorm.regions.region",
    "Regions": "relunorm.regions.partition",
    "regions": "relunorm.regions.enumerate",
    "report": "relunorm.report.report",
    "Report": "relunorm.report.report",
    "ReLUClassifier": "relunorm.train.classifier",
    "ReLURegressor": "relunorm.train.estimator",
    "save": "relunorm.io",
    "sensitivity": "relunorm.questions.sensitivity",
    "Step": "relunorm.network.head",
    "Store": "relunorm.sweep.store",
    "Sweep": "relunorm.sweep.sweep",
    "sweep": "relunorm.sweep.sweep",
    "theorem6": "relunorm.lipschitz.methods.theorem6",
    "to_c": "relunorm.embedded.export",
    "to_keras": "relunorm.io.keras",
    "to_onnx": "relunorm.io.onnx.write",
    "to_sklearn": "relunorm.io.sklearn",
    "to_torch": "relunorm.io.torch.write",
    "verify": "relunorm.forms.certificate.verification",
    "warm_up": "relunorm.kernels",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from relunorm import batchnorm as batchnorm
    from relunorm import dying as dying
    from relunorm import errors as errors
    from relunorm import nn as nn
    from relunorm.batchnorm.probes import geometry as geometry
    from relunorm.domain import Ball as Ball
    from relunorm.domain import Box as Box
    from relunorm.domain import Domain as Domain
    from relunorm.domain import NormBall as NormBall
    from relunorm.domain import Polytope as Polytope
    from relunorm.dying.diagnosis.diagnose import diagnose as diagnose
    from relunorm.dying.watch.monitor import DeadUnitMonitor as DeadUnitMonitor
    from relunorm.embedded.export import to_c as to_c
    from relunorm.extrema.maximize import decide as decide
    from relunorm.extrema.maximize import maximize as maximize
    from relunorm.extrema.maximize import never_smallest as never_smallest
    from relunorm.forms.certificate.certificate import Certificate as Certificate
    from relunorm.forms.certificate.verification import verify as verify
    from relunorm.forms.comparison.compare import compare as compare
    from relunorm.forms.fingerprint import fingerprint as fingerprint
    from relunorm.forms.normalize import normalize as normalize
    from relunorm.io import load as load
    from relunorm.io import save as save
    from relunorm.io.keras import to_keras as to_keras
    from relunorm.io.onnx.write import to_onnx as to_onnx
    from relunorm.io.sklearn import to_sklearn as to_sklearn
    from relunorm.io.torch.write import to_torch as to_torch
    from relunorm.kernels import warm_up as warm_up
    from relunorm.lipschitz.front import lipschitz as lipschitz
    from relunorm.lipschitz.methods.theorem6 import theorem6 as theorem6
    from relunorm.network import Activation as Activation
    from relunorm.network import Affine as Affine
    from relunorm.network import Layer as Layer
    from relunorm.network import Network as Network
    from relunorm.network.head import Head as Head
    from relunorm.network.head import Step as Step
    from relunorm.questions.certify import certify as certify
    from relunorm.questions.check import check as check
    from relunorm.questions.sensitivity import sensitivity as sensitivity
    from relunorm.regions.enumerate import regions as regions
    from relunorm.regions.lines import along as along
    from relunorm.regions.partition import Regions as Regions
    from relunorm.regions.planes import on_plane as on_plane
    from relunorm.regions.region import Region as Region
    from relunorm.regions.region import region_at as region_at
    from relunorm.regions.views.storage import load_regions as load_regions
    from relunorm.report.report import Report as Report
    from relunorm.report.report import report as report
    from relunorm.sweep.store import Store as Store
    from relunorm.sweep.sweep import Sweep as Sweep
    from relunorm.sweep.sweep import sweep as sweep
    from relunorm.train.classifier import ReLUClassifier as ReLUClassifier
    from relunorm.train.estimator import ReLURegressor as ReLURegressor


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'relunorm' has no attribute {name!r}")
    with _optional_packages():
        module = import_module(home)
    value = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``relunorm.regions`` the function that users call.

    Importing a module of the package of the same name would bind the package there.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        package = isinstance(value, ModuleType) and _HOME.get(name, value.__name__)
        if not (package and package != value.__name__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
