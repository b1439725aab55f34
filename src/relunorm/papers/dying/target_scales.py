"""Figures 1 and 6 of seed 002, networks trained at many target scales, and the data they take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.papers import words_of
from relunorm.papers.claim import LEVEL, Claim, more_often
from relunorm.papers.exhibit import Exhibit, Sample, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.dying import Dying

claim, exhibit = words_of("dying")

#: Scales and shifts of the targets whose fits are compared with those of (1, 0).
SMALL, LARGE, SHIFT = 1e-4, 1e2, 10.0


def read_sample(data: str | None, target: str | None) -> Sample:
    """The regression data of the command line: a file with its target, or scikit-learn's."""
    source = "diabetes" if data is None else data if target is None else f"{data}?target={target}"
    (name, (x, y)), *_ = load_tables([source]).items()
    return Sample(x, y, name)  # type: ignore[arg-type]


def figure1(world: Dying) -> Exhibit:
    """One hidden layer trained on one data set (the paper has four) at several scales and shifts of
    the targets, 5 seeds. Fits by Adam: 64 units, 4,000 updates. Dead units: 200 units, 18,000
    updates, Adam with and without momentum at gamma 1e-4 and 1, gradient descent at 1e-4.

    Full: 8 seeds, 200 units and 20,000 updates for all of it (250,000 in the paper); `relunorm
    dying sweep` runs the paper's length in pieces, with checkpoints, over several data sets.
    """
    fits, deaths = _plans(world)
    tables: Tables = {
        world.sample.source: (world.sample.x, np.asarray(world.sample.y, dtype=np.float64))
    }
    error = [run for plan in fits for run in world.train(plan, tables)]
    dead = [run for plan in deaths for run in world.train(plan, tables)]
    if world.full:  # Adam's runs serve for both
        dead = [r for r in error if r["delta"] == 0 and r["gamma"] in (SMALL, 1.0)] + dead
    rows = [
        (part, run["optimizer"], run["gamma"], run["delta"], run["seed"], run["mse"], run["dead"])
        for part, runs in (("fit", error), ("dead units", dead))
        for run in runs
    ]
    return exhibit(
        world.settings(updates=deaths[0].updates),
        "figure1",
        _fit("small gamma", error, fits[0].updates, gamma=SMALL, delta=0.0),
        _fit("large gamma", error, fits[0].updates, gamma=LARGE, delta=0.0),
        _fit("away from delta 0", error, fits[0].updates, gamma=1.0, delta=SHIFT),
        *_dead_units(dead, deaths[0].updates),
        rows=rows,
        figure=None if world.tiny else _draw_figure1(error, dead),
    )


def _plans(world: Dying) -> tuple[list[Any], list[Any]]:
    """The trainings behind the fits, and those behind the dead units."""
    from relunorm.dying.scale_sweep import Plan, by_name

    names = (world.sample.source,)
    seeds = tuple(world.random_state + k for k in range(world.size(5, 8)))
    size = world.size((64, 4000), (200, 20_000), (8, 100))
    common: dict[str, Any] = {"hidden": size[0], "updates": size[1]}
    adam = by_name(["adam"])
    fits = [
        Plan(names, (SMALL, 1.0, LARGE), (0.0,), adam, seeds, **common),
        Plan(names, (1.0,), (SHIFT,), adam, seeds, **common),
    ]
    rules = by_name(["adam beta1=0"] if world.full else ["adam", "adam beta1=0"])
    size = world.size((200, 18_000), (200, 20_000), (8, 50))
    common = {"hidden": size[0], "updates": size[1]}
    deaths = [
        Plan(names, (SMALL, 1.0), (0.0,), rules, seeds, **common),
        Plan(names, (SMALL,), (0.0,), by_name(["sgd"]), seeds, **common),
    ]
    return fits, deaths


def _fit(where: str, runs: list[dict[str, Any]], updates: int, gamma: float, delta: float) -> Claim:
    def errors(gamma: float, delta: float) -> list[float]:
        found = [run for run in runs if run["gamma"] == gamma and run["delta"] == delta]
        return [run["mse"] for run in sorted(found, key=lambda run: run["seed"])]

    there, normal = errors(gamma, delta), errors(1.0, 0.0)
    worse, better = more_often(there, normal)
    item = f"Figure 1, error {where}" if where[0] == "a" else f"Figure 1, error at {where}"
    ratio = float(np.median(np.array(there) / np.array(normal)))
    return claim(
        item,
        worse,
        short="" if better <= LEVEL else "the seeds do not decide it on this one data set",
        gamma=gamma,
        delta=delta,
        ratio=ratio,
        updates=updates,
    )


def _dead_units(runs: list[dict[str, Any]], updates: int) -> list[Claim]:
    def shares(rule: str, gamma: float, what: str = "dead") -> list[float]:
        own = [run for run in runs if run["optimizer"] == rule and run["gamma"] == gamma]
        return [float(run[what]) for run in sorted(own, key=lambda run: run["seed"])]

    def more(rule: str) -> tuple[list[float], float, float]:
        """Percent more dead at the small scale than at 1, per seed, and the p of more and fewer."""
        small, one = shares(rule, SMALL), shares(rule, 1.0)
        return [100 * (a - b) for a, b in zip(small, one, strict=True)], *more_often(small, one)

    adam, bare, sgd = more("adam"), more("adam beta1=0"), shares("sgd", SMALL)
    fitted = float(np.median(shares("sgd", SMALL, "mse")))
    undecided = f"{updates:,} updates: the seeds do not decide it"
    against = adam[2] <= LEVEL or more_often(sgd, [0.0] * len(sgd))[0] <= LEVEL
    return [
        claim(
            "Figure 1, dead units",
            adam[1] if max(sgd) <= 0 else 1.0,
            short="" if against else undecided,
            gamma=SMALL,
            more=np.mean(adam[0]),
            most=100 * max(sgd),
            fitted=fitted,
            updates=updates,
        ),
        claim(
            "Figure 1: only with momentum",
            max(bare[0]) if adam[1] <= LEVEL else float("nan"),
            bare[1],
            short=undecided,
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


def figure6(world: Dying) -> Exhibit:
    """Perceptrons and residual networks with batch norm of several depths trained at gamma = 1e-4
    by Adam and SGD; units born dead are not counted as dying. "Faster": after a third of the
    updates. Batch norm takes the batch's statistics at the start and at the end.

    Full: depths 1, 2, 4 and 8, 8 seeds, 64 units, 3,000 updates.
    """
    from relunorm.papers.dying.deep_training import DeepPlan

    quick = DeepPlan(depths=(1, 4), seeds=tuple(range(5)), width=32, updates=1500)
    plan = world.size(quick, DeepPlan(), replace(quick, width=8, updates=60))
    plan = replace(plan, seeds=tuple(world.random_state + s for s in plan.seeds))
    found = world.train_deep(plan, world.sample.x, np.asarray(world.sample.y, dtype=np.float64))
    rows = [
        (*setting, *(100 * float(np.mean(shares)) for shares in deaths))
        for setting, deaths in found.items()
    ]
    return exhibit(
        world.settings(updates=plan.updates, gamma=plan.gamma, seeds=list(plan.seeds)),
        "figure6",
        *tuple(_depth_claims(plan, found)),
        rows=rows,
        figure=None if world.tiny else _draw_figure6(plan, rows),
    )


def _depth_claims(plan: Any, found: dict[Any, Any]) -> list[Claim]:
    low, high = min(plan.depths), max(plan.depths)
    undecided = f"the seeds do not decide it after {plan.updates:,} updates"

    def added(kind: str, optimizer: str, depth: int, when: int = 2) -> list[float]:
        """Dead less born dead in the worst layer, per seed, after a third (1) or at the end (2)."""
        deaths = found[kind, optimizer, depth]
        return [d - b for b, d in zip(deaths[0], deaths[when], strict=True)]

    def deeper(item: str, kind: str, when: int = 2) -> Claim:
        deep, flat = (added(kind, "adam", depth, when) for depth in (high, low))
        more, fewer = more_often(deep, flat)
        means = [100 * float(np.mean(part)) for part in (flat, deep)]
        return claim(
            item,
            more,
            short="" if fewer <= LEVEL else undecided,
            high=high,
            low=low,
            means=means,
            fewer=fewer,
        )

    born = {depth: found["mlp", "adam", depth][0] for depth in (low, high)}
    residual = max(found["residual", "adam", high][0])
    at_birth = more_often(born[high], born[low])
    some = at_birth[1] > LEVEL and any(a > b for a, b in zip(born[high], born[low], strict=True))
    sgd = [added(kind, "sgd", depth) for kind in plan.kinds for depth in plan.depths]
    killed = min(more_often(part, [0.0] * len(part))[0] for part in sgd)
    return [
        claim(
            "Figure 6, born dead",
            at_birth[0] if residual == 0 else 1.0,
            short="the seeds do not decide it" if some and residual == 0 else "",
            high=high,
            low=low,
        ),
        deeper("Figure 6, depth", "mlp"),
        deeper("Figure 6, residual depth", "residual"),
        deeper("Figure 6, faster with depth", "mlp", when=1),
        claim(
            "Figure 6, SGD",
            100 * max(map(max, sgd)),
            short="" if killed <= LEVEL else undecided,
            killed=killed,
        ),
    ]


def _draw_figure6(plan: Any, rows: list[tuple[Any, ...]]) -> Any:
    figure, axes = empty_figure((9, 3.8), 1, 2)
    for ax, kind in zip(axes, plan.kinds, strict=True):
        for optimizer in plan.optimizers:
            own = [row for row in rows if row[:2] == (kind, optimizer)]
            ax.plot(plan.depths, [row[5] for row in own], "o-", label=optimizer)
        ax.plot(plan.depths, [row[3] for row in own], ":", color="0.5", label="at initialisation")
        ax.set(xlabel="hidden layers", ylabel="dead in the worst layer, %", ylim=(-3, 103))
        ax.set_xticks(plan.depths)
        ax.set_title("perceptron" if kind == "mlp" else "residual + batch norm")
        ax.legend()
    return figure


Tables = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def load_tables(sources: Iterable[str], target: str | None = None) -> Tables:
    """Data sets by name; ``target`` is the column to predict of files that name none.

    - ``diabetes``: scikit-learn's 442 patients; ``friedman``: 1,000 generated rows of Friedman's
      first function
    - ``FILE`` or ``FILE?target=COLUMN``: a table that `relunorm.io.table` reads
    - ``openml:NAME``: by `sklearn.datasets.fetch_openml`, which needs a network
    """
    tables: Tables = {}
    sources = list(sources)
    if target is not None and not any(map(_is_file, sources)):
        raise InvalidInputError(
            f"target {target!r} names a column of a file, but {', '.join(sources)} have their own"
        )
    for source in sources:
        named = source if target is None or not _is_file(source) else f"{source}?target={target}"
        name, table = _one(named)
        if name in tables:
            raise InvalidInputError(f"two data sets are called {name!r}")
        tables[name] = table
    return tables


def _is_file(source: str) -> bool:
    """Whether it is a file whose target is not yet named."""
    named = source in ("diabetes", "friedman") or source.startswith("openml:")
    return not named and "?target=" not in source


def _one(source: str) -> tuple[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    if source == "diabetes":
        from sklearn.datasets import load_diabetes

        bunch: Any = load_diabetes()
        return source, (bunch.data, bunch.target)
    if source == "friedman":
        from sklearn.datasets import make_friedman1

        made: Any = make_friedman1(1000, 8, noise=1.0, random_state=0)
        return source, (made[0], made[1])
    if source.startswith("openml:"):
        return source[7:], _openml(source[7:])
    from relunorm.io.table import read_table

    file, _, target = source.partition("?target=")
    table = read_table(Path(file), target or None)
    if table.y is None:
        raise InvalidInputError(f"{file}: which column is the target? write {file}?target=COLUMN")
    if table.y.ndim != 1:
        raise InvalidInputError(
            f"{file}: the target has shape {table.y.shape}, expected one column"
        )
    return Path(file).stem, (table.x, table.y)


def _openml(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from urllib.error import URLError

    from sklearn.datasets import fetch_openml

    try:
        bunch: Any = fetch_openml(name, version=1, as_frame=False, parser="liac-arff")
    except (URLError, OSError) as error:
        raise InvalidInputError(
            f"openml:{name} could not be fetched ({error}); pass a file"
        ) from None
    x = np.asarray(bunch.data, dtype=np.float64)
    y = np.asarray(bunch.target, dtype=np.float64)
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y)
    return x[keep], y[keep]
