"""Figures 1 and 6 of seed 002: networks trained at many target scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from relunorm.dying.sweep import GAMMAS, RULES, Plan, Sweep, by_name
from relunorm.papers.exhibit import WORKSPACE, Exhibit, Sample
from relunorm.papers.regression_data import Tables, load_tables


def read_sample(data: str | None, target: str | None) -> Sample:
    """The regression data of the command line: a file with its target, or scikit-learn's."""
    source = "diabetes" if data is None else data if target is None else f"{data}?target={target}"
    (name, (x, y)), *_ = load_tables([source]).items()
    return Sample(x, y, name)  # type: ignore[arg-type]


def _tables(data: Sample) -> Tables:
    return {data.source: (data.x, np.asarray(data.y, dtype=np.float64))}


def figure1(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Error and dead units against the targets' scale, five optimizers.

    Full: 8 seeds and 250,000 updates, an hour and more on one thread; `relunorm dying sweep` runs
    the same on a GPU, in pieces, with checkpoints, over several data sets and shifts.
    """
    tables = _tables(data)
    if full:
        plan = Plan(tuple(tables))
    else:
        rules = by_name(["adam", "adam beta1=0", "sgd"])
        plan = Plan(tuple(tables), (1e-4, 1e-2, 1.0), (0.0,), rules, (0,), updates=20_000)
    plan = Plan(
        plan.data, plan.gammas, plan.deltas, plan.rules,
        tuple(random_state + s for s in plan.seeds), updates=plan.updates,
    )  # fmt: skip
    found = Sweep(plan, tables).run()
    figure, (left, right) = empty_figure(1, 2, (9, 3.8))
    rows = []
    for rule in plan.rules:
        by_gamma = [
            (
                gamma,
                found.mean("mse", optimizer=rule.name, gamma=gamma),
                found.mean("dead", optimizer=rule.name, gamma=gamma),
            )
            for gamma in plan.gammas
        ]
        rows += [(rule.name, gamma, mse, 100 * dead) for gamma, mse, dead in by_gamma]
        x, mse, dead = np.transpose(by_gamma)
        left.loglog(x, mse, "o-", label=rule.name, lw=1, ms=4)
        right.semilogx(x, 100 * dead, "o-", label=rule.name, lw=1, ms=4)
    left.set(xlabel="gamma", ylabel="MSE / gamma^2", title=f"fit, {data.source}")
    right.set(xlabel="gamma", ylabel="dead units, %", title=f"after {plan.updates:,} updates")
    right.legend(fontsize=8)
    note = (
        "Small gamma kills with Adam and not with SGD, as the paper shows; but Adam without "
        "momentum (beta1 = 0) kills more, so momentum is not the cause. Deaths come late: with "
        "fewer than about 10,000 updates there are none."
    )
    return Exhibit(
        "figure1",
        "Figure 1: error and dead units against the scale of the targets",
        ("optimizer", "gamma", "MSE / gamma^2", "dead %"),
        tuple(rows),
        note,
        figure,
        {"updates": plan.updates, "seeds": list(plan.seeds), "data": data.source},
    )


def figure6(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Dead units by depth: perceptrons and residual networks with batch norm, Adam and SGD.

    Full: 8 seeds, 64 units, 30,000 updates, on a GPU where there is one. With an output folder it
    keeps a checkpoint there until it is done.
    """
    import torch

    from relunorm.dying.deep_sweep import DeepPlan, DeepSweep

    plan = DeepPlan() if full else DeepPlan(depths=(1, 4), seeds=(0,), width=32, updates=3_000)
    plan = replace(plan, seeds=tuple(random_state + s for s in plan.seeds))
    folder = WORKSPACE.get() if full else None
    checkpoint = None if folder is None else folder / f"figure6-{random_state}.checkpoint"
    sweep = DeepSweep(
        plan, data.x, np.asarray(data.y, dtype=np.float64), checkpoint=checkpoint,
        device="cuda" if full and torch.cuda.is_available() else "cpu",
    )  # fmt: skip
    found = sweep.run()
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    rows = [
        (*setting, 100 * float(np.mean(born)), 100 * float(np.mean(dead)))
        for setting, (born, dead) in found.items()
    ]
    figure, axes = empty_figure(1, 2, (9, 3.8))
    for ax, kind in zip(axes, plan.kinds, strict=True):
        for optimizer in plan.optimizers:
            own = [row for row in rows if row[:2] == (kind, optimizer)]
            ax.plot(plan.depths, [row[4] for row in own], "o-", label=optimizer)
        ax.plot(plan.depths, [row[3] for row in own], ":", color="0.5", label="at initialisation")
        ax.set(xlabel="hidden layers", ylabel="dead in the worst layer, %", ylim=(-3, 103))
        ax.set_xticks(plan.depths)
        ax.set_title("perceptron" if kind == "mlp" else "residual + batch norm")
        ax.legend()
    note = (
        "gamma = 1e-4, means over the seeds. The caption's 'gradients are zero for all but the "
        "last biases' is wrong: with layer k dead, b_{k+1} and everything after it still moves."
    )
    return Exhibit(
        "figure6",
        "Figure 6: dead units in deeper networks",
        ("network", "optimizer", "depth", "born dead % (worst layer)", "dead % (worst layer)"),
        tuple(rows),
        note,
        figure,
        {"updates": plan.updates, "gamma": plan.gamma, "seeds": list(plan.seeds),
         "device": str(sweep.device), "data": data.source},
    )  # fmt: skip


def empty_figure(lines: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure of its own, outside pyplot, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(lines, columns)


#: What the full figure 1 trains, for the docs and the benchmark.
FULL = {"gammas": GAMMAS, "optimizers": [rule.name for rule in RULES], "seeds": 8}
