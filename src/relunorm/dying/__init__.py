"""Dying ReLU (seed 002): tools to see, explain, prevent and revive; the theory of one unit.

What of the theory only the paper's re-run needs lives in `relunorm.papers.dying.theory` and is
reached from here. Names are imported on first use, so that the theory loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relunorm.lazy import on_first_use

_THEORY = "relunorm.papers.dying.theory"

_HOME = {
    "TargetScaler": "target",
    "RunningTargetScaler": "target",
    "firing_probability": "cones",
    "cone_position": "cones",
    "dead_below": "cones",
    "linear_above": "cones",
    "in_dead_cone": "cones",
    "in_linear_cone": "cones",
    "loss": f"{_THEORY}.unit_loss",
    "gradient": f"{_THEORY}.unit_loss",
    "bivariate_cdf": f"{_THEORY}.unit_loss",
    "momentum": f"{_THEORY}.oscillation",
    "MomentumSystem": f"{_THEORY}.oscillation",
    "beta_star": f"{_THEORY}.oscillation",
    "trajectory": f"{_THEORY}.trajectories",
    "vector_field": f"{_THEORY}.trajectories",
    "critical_points": f"{_THEORY}.trajectories",
    "basin": "basins",
    "BasinMap": "basins",
    "rescale_targets": f"{_THEORY}.rescale",
    "single_factor": f"{_THEORY}.rescale",
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
    from relunorm.dying.watch.monitor import DeadUnitMonitor as DeadUnitMonitor
    from relunorm.dying.watch.report import MonitorReport as MonitorReport
    from relunorm.papers.dying.theory.oscillation import MomentumSystem as MomentumSystem
    from relunorm.papers.dying.theory.oscillation import beta_star as beta_star
    from relunorm.papers.dying.theory.oscillation import momentum as momentum
    from relunorm.papers.dying.theory.rescale import rescale_targets as rescale_targets
    from relunorm.papers.dying.theory.rescale import single_factor as single_factor
    from relunorm.papers.dying.theory.trajectories import critical_points as critical_points
    from relunorm.papers.dying.theory.trajectories import trajectory as trajectory
    from relunorm.papers.dying.theory.trajectories import vector_field as vector_field
    from relunorm.papers.dying.theory.unit_loss import bivariate_cdf as bivariate_cdf
    from relunorm.papers.dying.theory.unit_loss import gradient as gradient
    from relunorm.papers.dying.theory.unit_loss import loss as loss

__getattr__, __dir__ = on_first_use(__name__, _HOME)
