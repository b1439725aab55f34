"""Figures 1 and 6 of seed 002: networks trained at many target scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from relunorm.papers.claim import Check, Claim
from relunorm.papers.dying.laws import Dying
from relunorm.papers.exhibit import WORKSPACE, Exhibit, Sample, empty_figure, shows
from relunorm.papers.regression_data import Tables, load_tables
from relunorm.papers.statistics import LEVEL, larger_share, more_often

SIGNS = "one-sided sign test over the seeds, 5 % level (five seeds that agree give 1/32)"
FISHER = "Fisher's exact test of the numbers of dead units, one-sided, 5 % level"
#: Scales and shifts of the targets whose fits are compared with those of (1, 0).
SMALL, LARGE, SHIFT = 1e-4, 1e2, 10.0


def read_sample(data: str | None, target: str | None) -> Sample:
    """The regression data of the command line: a file with its target, or scikit-learn's."""
    source = "diabetes" if data is None else data if target is None else f"{data}?target={target}"
    (name, (x, y)), *_ = load_tables([source]).items()
    return Sample(x, y, name)  # type: ignore[arg-type]


@shows(
    "Figure 1, error at small gamma",
    "Figure 1, error at large gamma",
    "Figure 1, error away from delta 0",
    "Figure 1, dead units",
    "Figure 1: only with momentum",
    cost=18,
)
def figure1(world: Dying) -> Exhibit:
    """One hidden layer trained at several scales and shifts of the targets. Fits by Adam: 5 seeds,
    64 units, 4,000 updates. Dead units: 200 units, 20,000 updates, Adam with and without momentum
    and gradient descent.

    Full: 8 seeds, 200 units and 250,000 updates for all of it, hours on one thread; `relunorm dying
    sweep` runs the same on a GPU, in pieces, with checkpoints, over several data sets.
    """
    fits, deaths = _plans(world)
    tables: Tables = {
        world.sample.source: (world.sample.x, np.asarray(world.sample.y, dtype=np.float64))
    }
    error = [run for plan in fits for run in world.train(plan, tables)]
    dead = world.train(deaths, tables)
    rows = [
        (part, run["optimizer"], run["gamma"], run["delta"], run["seed"], run["mse"], run["dead"])
        for part, runs in (("fit", error), ("dead units", dead))
        for run in runs
    ]
    short = "" if world.full else f"{deaths.updates:,} updates, not 250,000"
    return Exhibit(
        "figure1",
        "Figure 1: error and dead units against scale and shift of the targets",
        ("part", "optimizer", "gamma", "delta", "seed", "MSE / gamma^2", "dead share"),
        tuple(rows),
        "Deaths come late: with fewer than about 10,000 updates there are none.",
        None if world.tiny else _draw_figure1(error, dead),
        world.settings(updates=deaths.updates),
        (
            _fit("small gamma", error, gamma=SMALL, delta=0.0),
            _fit("large gamma", error, gamma=LARGE, delta=0.0),
            _fit("away from delta 0", error, gamma=1.0, delta=SHIFT),
            *_dead_units(dead, deaths.hidden, short),
        ),
    )


def _plans(world: Dying) -> tuple[list[Any], Any]:
    """The trainings behind the fits, and those behind the dead units."""
    from relunorm.dying.sweep import Plan, by_name

    names = (world.sample.source,)
    seeds = tuple(world.random_state + k for k in range(world.size(5, 8)))
    size = world.size((64, 4000), (200, 250_000), (8, 200))
    common: dict[str, Any] = {"hidden": size[0], "updates": size[1]}
    adam = by_name(["adam"])
    fits = [
        Plan(names, (SMALL, 1.0, LARGE), (0.0,), adam, seeds, **common),
        Plan(names, (1.0,), (SHIFT,), adam, seeds, **common),
    ]
    rules = by_name(["adam", "adam beta1=0", "sgd"])
    deep = world.size((200, 20_000), (200, 250_000), (8, 200))
    alone = seeds[: world.size(1, 8)]
    return fits, Plan(names, (SMALL, 1.0), (0.0,), rules, alone, hidden=deep[0], updates=deep[1])


def _fit(where: str, runs: list[dict[str, Any]], gamma: float, delta: float) -> Claim:
    def errors(gamma: float, delta: float) -> list[float]:
        found = [run for run in runs if run["gamma"] == gamma and run["delta"] == delta]
        return [run["mse"] for run in sorted(found, key=lambda run: run["seed"])]

    there, normal = errors(gamma, delta), errors(1.0, 0.0)
    worse, better = more_often(there, normal)
    item = f"Figure 1, error {where}" if where[0] == "a" else f"Figure 1, error at {where}"
    ratio = float(np.median(np.array(there) / np.array(normal)))
    return Claim(
        item,
        "the fit is worse than with targets of mean 0 and variance 1",
        Check(
            f"p of a larger relative error at gamma {gamma:g}, delta {delta:g} ({ratio:.3g} times)",
            worse,
            "<=",
            LEVEL,
        ),
        short="" if better <= LEVEL else "the seeds do not decide it on this one data set",
        basis=SIGNS,
    )


def _dead_units(runs: list[dict[str, Any]], hidden: int, short: str) -> list[Claim]:
    def kills(rule: str) -> float:
        """p of more dead units at the small scale than at 1."""
        counts = []
        for gamma in (SMALL, 1.0):
            own = [r["dead"] for r in runs if r["optimizer"] == rule and r["gamma"] == gamma]
            counts += [round(hidden * sum(own)), hidden * len(own)]
        return larger_share(*counts)

    adam, bare, sgd = (kills(rule) for rule in ("adam", "adam beta1=0", "sgd"))
    return [
        Claim(
            "Figure 1, dead units",
            "smaller targets lead to more dead units with Adam, and not with gradient descent",
            Check(
                f"p of more dead at gamma {SMALL:g} than at 1, Adam",
                adam if sgd > LEVEL else 1.0,
                "<=",
                LEVEL,
            ),
            short=short,
            basis=FISHER,
        ),
        Claim(
            "Figure 1: only with momentum",
            "they do so only with momentum",
            Check(
                "p of more dead, Adam with beta1 = 0 (where Adam itself kills)",
                bare if adam <= LEVEL else float("nan"),
                ">",
                LEVEL,
            ),
            "Adam without momentum (beta1 = 0) kills too, so momentum is not the cause",
            Check("p of more dead, Adam with beta1 = 0", bare, "<=", LEVEL),
            short=short,
            basis=FISHER,
        ),
    ]


def _draw_figure1(error: list[dict[str, Any]], dead: list[dict[str, Any]]) -> Any:
    figure, (left, right) = empty_figure((9, 3.8), 1, 2)
    groups: dict[tuple[float, float], list[float]] = {}
    for run in error:
        groups.setdefault((run["gamma"], run["delta"]), []).append(run["mse"])
    labels = [f"gamma {g:g}\ndelta {d:g}" for g, d in groups]
    left.boxplot(list(groups.values()))
    left.set_xticks(range(1, len(labels) + 1), labels, fontsize=8)
    left.set(yscale="log", ylabel="MSE / gamma^2", title="fit by Adam")
    for rule in dict.fromkeys(run["optimizer"] for run in dead):
        own = [run for run in dead if run["optimizer"] == rule]
        gammas = sorted({run["gamma"] for run in own})
        shares = [100 * np.mean([r["dead"] for r in own if r["gamma"] == g]) for g in gammas]
        right.semilogx(gammas, shares, "o-", label=rule, lw=1, ms=4)
    right.set(xlabel="gamma", ylabel="dead units, %", title="dead units")
    right.legend(fontsize=8)
    return figure


@shows(
    "Figure 6, born dead",
    "Figure 6, depth",
    "Figure 6, residual depth",
    "Figure 6, faster with depth",
    "Figure 6, SGD",
    cost=20,
)
def figure6(world: Dying) -> Exhibit:
    """Perceptrons and residual networks with batch norm of several depths trained at gamma = 1e-4
    by Adam and SGD; units born dead are not counted as dying. "Faster": after a third of the
    updates.

    Full: 8 seeds, 64 units, 30,000 updates, on a GPU where there is one. With an output folder it
    keeps a checkpoint there until it is done.
    """
    from relunorm.dying.deep_sweep import DeepPlan

    quick = DeepPlan(depths=(1, 4), seeds=tuple(range(5)), width=32, updates=1500)
    plan = world.size(quick, DeepPlan(), replace(quick, width=8, updates=60))
    plan = replace(plan, seeds=tuple(world.random_state + s for s in plan.seeds))
    folder = WORKSPACE.get() if world.full else None
    checkpoint = None if folder is None else folder / f"figure6-{world.random_state}.checkpoint"
    data = world.sample.x, np.asarray(world.sample.y, dtype=np.float64)
    found = world.train_deep(plan, *data, checkpoint)
    early = world.train_deep(
        replace(plan, kinds=("mlp",), optimizers=("adam",), updates=plan.updates // 3), *data
    )
    rows = [
        (*setting, 100 * float(np.mean(born)), 100 * float(np.mean(dead)))
        for setting, (born, dead) in found.items()
    ]
    return Exhibit(
        "figure6",
        "Figure 6: dead units in deeper networks",
        ("network", "optimizer", "depth", "born dead % (worst layer)", "dead % (worst layer)"),
        tuple(rows),
        "gamma = 1e-4, means over the seeds.",
        None if world.tiny else _draw_figure6(plan, rows),
        world.settings(updates=plan.updates, gamma=plan.gamma, seeds=list(plan.seeds)),
        tuple(_depth_claims(plan, found, early)),
    )


def _depth_claims(plan: Any, found: dict[Any, Any], early: dict[Any, Any]) -> list[Claim]:
    low, high = min(plan.depths), max(plan.depths)

    def added(kind: str, optimizer: str, depth: int, runs: dict[Any, Any] = found) -> list[float]:
        """Dead less born dead in the worst layer, per seed."""
        born, dead = runs[kind, optimizer, depth]
        return [d - b for b, d in zip(born, dead, strict=True)]

    def deeper(item: str, printed: str, kind: str, runs: dict[Any, Any] = found) -> Claim:
        deep, flat = (added(kind, "adam", depth, runs) for depth in (high, low))
        more, fewer = more_often(deep, flat)
        means = [100 * float(np.mean(part)) for part in (flat, deep)]
        return Claim(
            item,
            printed,
            Check(
                f"p of more dying with {high} than with {low} layers ({means[0]:.1f} % and "
                f"{means[1]:.1f} % die)",
                more,
                "<=",
                LEVEL,
            ),
            # the paper prints neither its residual block nor how long it trains
            short="" if fewer <= LEVEL and kind == "mlp" else f"{plan.updates:,} updates",
            basis=SIGNS,
        )

    born = {kind: found[kind, "adam", high][0] for kind in plan.kinds}
    sgd = [added(kind, "sgd", depth) for kind in plan.kinds for depth in plan.depths]
    worst = min(more_often(part, [0.0] * len(part))[0] for part in sgd)
    return [
        Claim(
            "Figure 6, born dead",
            "units of deep perceptrons are born dead, those of residual networks are not",
            Check(
                "p of units born dead, perceptron (none in residual networks)",
                more_often(born["mlp"], [0.0] * len(born["mlp"]))[0]
                if max(born["residual"]) == 0
                else 1.0,
                "<=",
                LEVEL,
            ),
            basis=SIGNS,
        ),
        deeper("Figure 6, depth", "deeper perceptrons die more", "mlp"),
        deeper(
            "Figure 6, residual depth",
            "deeper residual networks with batch norm die more too",
            "residual",
        ),
        deeper(
            "Figure 6, faster with depth",
            "and they die faster (after a third of the updates)",
            "mlp",
            early,
        ),
        Claim(
            "Figure 6, SGD",
            "SGD adds no dead units during training",
            Check("smallest p of added dead units over networks and depths", worst, ">", LEVEL),
            basis=SIGNS,
        ),
    ]


def _draw_figure6(plan: Any, rows: list[tuple[Any, ...]]) -> Any:
    figure, axes = empty_figure((9, 3.8), 1, 2)
    for ax, kind in zip(axes, plan.kinds, strict=True):
        for optimizer in plan.optimizers:
            own = [row for row in rows if row[:2] == (kind, optimizer)]
            ax.plot(plan.depths, [row[4] for row in own], "o-", label=optimizer)
        ax.plot(plan.depths, [row[3] for row in own], ":", color="0.5", label="at initialisation")
        ax.set(xlabel="hidden layers", ylabel="dead in the worst layer, %", ylim=(-3, 103))
        ax.set_xticks(plan.depths)
        ax.set_title("perceptron" if kind == "mlp" else "residual + batch norm")
        ax.legend()
    return figure
