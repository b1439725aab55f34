"""Dying ReLU (seed 002): the theory of one unit, and tools to see, explain, prevent and revive.

Names are imported on first use, so that the theory loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relunorm.lazy import on_first_use

_HOME = {
    "TargetScaler": "target",
    "RunningTargetScaler": "target",
    "firing_probability": "cones",
    "cone_position": "cones",
    "dead_below": "cones",
    "linear_above": "cones",
    "in_dead_cone": "cones",
    "in_linear_cone": "cones",
    "loss": "unit_loss",
    "gradient": "unit_loss",
    "bivariate_cdf": "unit_loss",
    "momentum": "oscillation",
    "MomentumSystem": "oscillation",
    "beta_star": "oscillation",
    "trajectory": "trajectories",
    "vector_field": "trajectories",
    "critical_points": "trajectories",
    "basin": "basins",
    "BasinMap": "basins",
    "rescale_targets": "rescale",
    "single_factor": "rescale",
    "DeadUnitMonitor": "watch.monitor",
    "MonitorReport": "watch.report",
    "wiring": "revive.wiring",
    "he_": "revive.initial",
    "randomized_asymmetric_": "revive.initial",
    "lsuv_": "revive.initial",
    "live_": "revive.initial",
    "balance_": "revive.kept_function",
    "redo_": "revive.replace",
    "revive_live_": "revive.replace",
    "Reviver": "revive.schedule",
    "ContinualBackprop": "revive.continual",
    "diagnose": "diagnosis.diagnose",
    "Diagnosis": "diagnosis.diagnose",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from relunorm.dying.basins import BasinMap as BasinMap
    from relunorm.dying.basins import basin as basin
    from relunorm.dying.cones import cone_position as cone_position
    from relunorm.dying.cones import dead_below as dead_below
    from relunorm.dying.cones import firing_probability as firing_probability
    from relunorm.dying.cones import in_dead_cone as in_dead_cone
    from relunorm.dying.cones import in_linear_cone as in_linear_cone
    from relunorm.dying.cones import linear_above as linear_above
    from relunorm.dying.diagnosis.diagnose import Diagnosis as Diagnosis
    from relunorm.dying.diagnosis.diagnose import diagnose as diagnose
    from relunorm.dying.oscillation import MomentumSystem as MomentumSystem
    from relunorm.dying.oscillation import beta_star as beta_star
    from relunorm.dying.oscillation import momentum as momentum
    from relunorm.dying.rescale import rescale_targets as rescale_targets
    from relunorm.dying.rescale import single_factor as single_factor
    from relunorm.dying.revive.continual import ContinualBackprop as ContinualBackprop
    from relunorm.dying.revive.initial import he_ as he_
    from relunorm.dying.revive.initial import live_ as live_
    from relunorm.dying.revive.initial import lsuv_ as lsuv_
    from relunorm.dying.revive.initial import randomized_asymmetric_ as randomized_asymmetric_
    from relunorm.dying.revive.kept_function import balance_ as balance_
    from relunorm.dying.revive.replace import redo_ as redo_
    from relunorm.dying.revive.replace import revive_live_ as revive_live_
    from relunorm.dying.revive.schedule import Reviver as Reviver
    from relunorm.dying.revive.wiring import wiring as wiring
    from relunorm.dying.target import RunningTargetScaler as RunningTargetScaler
    from relunorm.dying.target import TargetScaler as TargetScaler
    from relunorm.dying.trajectories import critical_points as critical_points
    from relunorm.dying.trajectories import trajectory as trajectory
    from relunorm.dying.trajectories import vector_field as vector_field
    from relunorm.dying.unit_loss import bivariate_cdf as bivariate_cdf
    from relunorm.dying.unit_loss import gradient as gradient
    from relunorm.dying.unit_loss import loss as loss
    from relunorm.dying.watch.monitor import DeadUnitMonitor as DeadUnitMonitor
    from relunorm.dying.watch.report import MonitorReport as MonitorReport

__getattr__, __dir__ = on_first_use(__name__, _HOME)
