"""Seed 004, "Batch Normalization Decomposed" (Nachum, Bondaschi, Gastpar, Khina), re-run.

Figures 3, 5 and 6 and the two figures for what docs/errata.md found; figure 2 and the
initialization of the Discussion train networks and live in `relunorm.papers.batchnorm.training`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from relunorm.batchnorm.cells import gamma
from relunorm.batchnorm.fixed_points import odd_state, symmetric_state
from relunorm.batchnorm.invariants import theorem13
from relunorm.batchnorm.measure import odd_points
from relunorm.batchnorm.random_nets import Propagation, propagate
from relunorm.batchnorm.rank import rank_bounds, sample_neuron_counts
from relunorm.batchnorm.tree import Tree
from relunorm.papers.batchnorm.training import figure2, initialization
from relunorm.papers.exhibit import Exhibit, Sample

#: The three ways to rescale and recenter that figures 5 and 6 compare.
ARMS: dict[str, dict[str, Any]] = {
    "rms, no recentering": {"recenter": False},
    "full": {"recenter": True},
    "std, no recentering (eq. 2)": {"recenter": False, "statistic": "std"},
}


def figure3(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """One odd point and a cluster after many layers of recentering and ReLU."""
    n, width = 20, 500
    X = data.subset(n, random_state)
    run, layers = _until_odd(X, width, 20_000 if full else 5_000, random_state)
    odd = odd_points(run.grams[-1])
    angles = _after_before(run)
    marked = _touches(n, odd.points)
    figure, axes = _figure(1, 2, "Recentering and ReLU: one point escapes", (9, 4))
    _project(axes[0], run, odd.points, random_state)
    _scatter(axes[1], angles, marked)
    within = np.degrees(angles[~marked, 1])
    between = np.degrees(angles[marked, 1]) if marked.any() else np.array([np.nan])
    state = odd_state(n)
    limit = math.degrees(state.angle) if state is not None else float("nan")
    norms = np.sqrt(np.diag(run.grams[-1]))
    rest = np.delete(norms, odd.points) if odd.points else norms
    rows = (
        ("layers until a point is odd", layers, "enough"),
        ("odd points", odd.count, "1"),
        ("angle within the cluster (degrees)", float(within.mean()), f"0; attractor {limit:.2f}"),
        ("angle odd point - cluster (degrees)", float(between.mean()), "90"),
        ("norm ratio x (n-1)", float(rest.mean() / norms.max() * (n - 1)), "1"),
    )
    earlier = math.degrees(_cluster_angle(run.grams[3 * run.layers // 4]))
    note = (
        "The cluster does not collapse to a point (docs/errata.md). At infinite width it settles "
        f"at {limit:.2f} degrees; here it is at {within.mean():.1f} at the last layer, and was at "
        f"{earlier:.1f} {run.layers - 3 * run.layers // 4} layers before."
    )
    return Exhibit(
        "figure3",
        "Figure 3: the batch after many layers with recentering and ReLU",
        ("quantity", "measured", "paper"),
        rows,
        note,
        figure,
        {"n": n, "width": width, "random_state": random_state, "data": data.source},
    )


def figure5(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Angles before and after layer 30, by what is normalized."""
    n, width, layers, seeds = 100, 1000, 30, 100 if full else 3
    figure, axes = _figure(1, 3, "Angles before and after layer 30 (n = 100, width 1000)", (12, 4))
    rows = []
    paper = {"rms, no recentering": "60", "full": "75", "std, no recentering (eq. 2)": ""}
    centred = replace(data, x=data.x - data.x.mean(axis=0))
    for ax, (name, parts) in zip(axes, ARMS.items(), strict=True):
        inputs = {"as given": data}  # the last one is drawn
        if "statistic" in parts:  # the one arm that remembers the mean of the data
            inputs = {"less their mean": centred, **inputs}
        for (label, sample), size in product(inputs.items(), (10, n)):
            means = []
            for seed in range(seeds):
                X = sample.subset(size, random_state + seed)
                run = propagate(X, layers, width, random_state=random_state + seed, **parts)
                means.append(np.degrees(run.mean_angles()[-1]))
            wide = _wide_angle(X, layers, parts)
            spread = float(np.std(means, ddof=1))
            rows.append((name, label, size, np.mean(means), spread, wide, paper[name]))
        _scatter(ax, _after_before(run), None)
        ax.set_title(name)
    note = (
        "The paper's 60 degrees need the second moment; eq. (2)'s deviation about the mean "
        "collapses the batch. Its 75 degrees are arccos J(-1/(n-1)) for n of 9 or 10; at n = 100 "
        "it is 71.74."
    )
    return Exhibit(
        "figure5",
        "Figure 5: effect of recentering on angles",
        ("normalization", "inputs", "n", "mean angle", "sd over runs", "infinite width", "paper"),
        tuple(rows),
        note,
        figure,
        {"width": width, "layers": layers, "seeds": seeds, "data": data.source},
    )


def _wide_angle(X: Any, layers: int, parts: dict[str, Any]) -> float | None:
    """Mean angle at infinite width, degrees; None where the map has none.

    Dividing by a deviation about a mean that is left in has no finite second moment for points that
    span at most two dimensions about it.
    """
    kept = parts.get("statistic") == "std" and not parts["recenter"]
    if kept and np.linalg.matrix_rank(X - X.mean(axis=0)) <= 2:
        return None
    return float(np.degrees(propagate(X, layers, method="infinite", **parts).mean_angles()[-1]))


def figure6(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Activity of a neuron over the batch, with and without recentering."""
    n, width, layers, seeds = 100, 1000, 30, 20 if full else 3
    names = ("rms, no recentering", "full")
    figure, axes = _figure(
        1, 2, "Response of one neuron over 100 inputs, after 30 layers", (9, 3.6)
    )
    rows = []
    for ax, name in zip(axes, names, strict=True):
        shares = []
        for seed in range(seeds):
            X = data.subset(n, random_state + seed)
            run = propagate(X, layers, width, random_state=random_state + seed, **ARMS[name])
            active = (_activations(run) > 0).mean(axis=0)
            shares.append((active >= 0.9).mean())
        rows.append((name, 100 * np.mean(shares), 100 * np.std(shares, ddof=1), 100 * active.max()))
        responses = _activations(run)[:, int(np.argmax(active))]
        ax.hist(responses / responses.max(), bins=20)
        ax.set(
            title=f"{name}:\nthe broadest neuron ({active.max():.0%} of inputs)",
            xlabel="response / its largest",
            ylabel="inputs",
        )
    return Exhibit(
        "figure6",
        "Figure 6: activity of neurons with and without recentering",
        ("normalization", "broadly responding %", "sd over runs", "broadest neuron active on %"),
        tuple(rows),
        "Broad: active on at least 90 % of the inputs. The paper: some without "
        "recentering, none with.",
        figure,
        {"n": n, "width": width, "layers": layers, "seeds": seeds, "data": data.source},
    )


def attractor_angle(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """The angle of the cluster at the stable state against the batch size (errata)."""
    sizes = [5, 6, 7, 8, 10, 14, 20, 30, 50, 70, 100] + ([200, 500, 1000] if full else [])
    states = {n: odd_state(n) for n in sizes}
    found = [n for n in sizes if states[n] is not None]
    measured = _finite_clusters(data, (8, 10, 20), random_state, full)
    rows = []
    for n in sizes:
        state, symmetric = states[n], symmetric_state(n)
        angle = math.degrees(state.angle) if state is not None else float("nan")
        ratio = state.norm_ratio * (n - 1) if state is not None else float("nan")
        finite = measured.get(n, float("nan"))
        rows.append(
            (n, angle, 540 / n, ratio, math.degrees(symmetric.angle), symmetric.rate, finite)
        )
    figure, (ax,) = _figure(1, 1, "", (5.5, 4))
    ax.loglog(found, [math.degrees(states[n].angle) for n in found], "o-", label="infinite width")  # type: ignore[union-attr]
    ax.loglog(found, [540 / n for n in found], ":", color="grey", label=r"$3\pi/n$")
    ax.loglog(list(measured), list(measured.values()), "x", ms=8, label="width 1000, measured")
    least = math.degrees(states[found[-1]].angle)  # type: ignore[union-attr]
    ax.set(xticks=found, yticks=[y for y in (0.5, 1, 2, 5, 10, 20, 40, 60) if y > 0.9 * least])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.set(
        title="Angle within the cluster at the attractor", xlabel="batch size n", ylabel="degrees"
    )
    ax.legend()
    return Exhibit(
        "attractor_angle",
        "Errata: the cluster is equiangular at about 3 pi / n, not a point",
        (
            "n",
            "cluster angle",
            "3 pi/n",
            "norm ratio x (n-1)",
            "symmetric angle",
            "symmetric rate",
            "width 1000",
        ),
        tuple(rows),
        "Degrees. No odd state for n <= 6. The symmetric state is stable (rate < 1), so "
        "finite width decides the onset.",
        figure,
        {"random_state": random_state, "data": data.source},
    )


def onset_width(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """The layer where an odd point appears against the width (errata)."""
    from matplotlib.ticker import LogLocator

    n, widths, seeds = 8, [100, 200, 400, 1000] + ([2000, 3000] if full else []), 40 if full else 15
    limit = 20_000 if full else 5_000
    rows = []
    for width in widths:
        found = []
        for seed in range(seeds):
            X = data.subset(n, random_state + seed)
            found.append(_until_odd(X, width, limit, random_state + seed)[1])
        low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
        rows.append((width, middle, low, high, sum(layer >= limit for layer in found)))
    figure, (ax,) = _figure(1, 1, "", (5.5, 4))
    table = np.array([row[:4] for row in rows], dtype=float)
    errors = [table[:, 1] - table[:, 2], table[:, 3] - table[:, 1]]
    ax.errorbar(table[:, 0], table[:, 1], yerr=errors, fmt="o-", capsize=3)
    ax.set(
        title=f"Layer where a point escapes\n(n = {n}, median and quartiles)",
        xlabel="width",
        ylabel="layer",
        xscale="log",
        yscale="log",
        xticks=widths,
    )
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    return Exhibit(
        "onset_width",
        "Errata: the odd point appears later in wider networks",
        ("width", "median onset", "lower quartile", "upper quartile", "not within the limit"),
        tuple(rows),
        "The symmetric state attracts at infinite width, so fluctuations of a finite "
        "width must carry the batch out of it.",
        figure,
        {"n": n, "seeds": seeds, "limit": limit, "data": data.source},
    )


def theorem3(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Neurons until full rank, sampled, against n/gamma and n/(2 gamma)."""
    rows = []
    for n in (3, 5, 7, 9):
        t = 2 * np.pi * np.arange(n) / n
        X = np.column_stack([np.cos(t), np.sin(t)])
        volumes = gamma(X)
        counts = sample_neuron_counts(X, 2000 if full else 300, random_state=random_state)
        bounds = rank_bounds(n, volumes.gamma)
        rows.append(
            (n, volumes.gamma, 1 / n, counts.mean, counts.error, bounds.sharper, bounds.printed)
        )
    return Exhibit(
        "theorem3",
        "Theorem 3: neurons until full rank, n equally spaced points (odd n)",
        ("n", "gamma", "printed gamma", "E[y]", "error", "n/(2 gamma)", "n/gamma"),
        tuple(rows),
        "gamma is 1/(2n), not 1/n.",
    )


def theorem11(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """The tree model's limit against the printed bounds."""
    rng = np.random.default_rng(random_state)
    rows = []
    for n in (5, 10, 20, 50, 100):
        limits = [Tree(rng.standard_normal(n)).limit() for _ in range(200 if full else 50)]
        printed = limits[0].printed_norm_bound
        ratios = [limit.norm_ratio for limit in limits]
        angles = [math.degrees(limit.angle) for limit in limits]
        least = math.degrees(limits[0].printed_angle_bound or 0.0)
        rows.append((n, min(ratios), max(ratios), printed, min(angles), max(angles), least))
    return Exhibit(
        "theorem11",
        "Theorem 11: sharp limits of the tree model beside the printed bounds",
        ("n", "norm ratio from", "to", "printed bound", "angle from", "to", "printed bound "),
        tuple(rows),
        "norm ratio sqrt((1+r)/((n-1)^2+r)), r in [0, 1] the ratio of the two extreme weights.",
    )


def theorem13_table(data: Sample, full: bool = False, random_state: int = 0) -> Exhibit:
    """Theorem 13 as printed and as it holds."""
    rows = []
    for n in (3, 10, 100):
        found = theorem13(n)
        rows.append((n, found.alpha, found.expected_gram.holds, found.printed_odd_norm, 1.0))
    return Exhibit(
        "theorem13",
        "Theorem 13: holds for the expected Gram matrix, not for the expectation",
        ("n", "alpha", "expected Gram invariant", "|E x_1|^2", "printed"),
        tuple(rows),
        "alpha is also the growth of squared distances within the cluster: Def. 12 is unstable.",
    )


EXHIBITS = {
    "figure2": figure2,
    "figure3": figure3,
    "figure5": figure5,
    "figure6": figure6,
    "attractor_angle": attractor_angle,
    "onset_width": onset_width,
    "theorem3": theorem3,
    "theorem11": theorem11,
    "theorem13": theorem13_table,
    "initialization": initialization,
}


def _until_odd(X: Any, width: int, limit: int, random_state: int) -> tuple[Propagation, int]:
    """Recentering and ReLU until a point is odd, then a fifth more; (last run, onset)."""
    rng = np.random.default_rng(random_state)
    done, step = 0, 100
    run = propagate(X, step, width, rescale=False, random_state=rng)
    while run.onset() is None and done + step < limit:
        done += step
        run = propagate(_activations(run), step, width, rescale=False, random_state=rng)
    first = run.onset()
    if first is None:
        return run, limit
    onset = done + first
    more = max(50, onset // 5)
    return propagate(_activations(run), more, width, rescale=False, random_state=rng), onset


def _finite_clusters(
    data: Sample, sizes: tuple[int, ...], random_state: int, full: bool
) -> dict[int, float]:
    """Mean cluster angle of width-1000 networks started at the attractor's side, in degrees."""
    measured = {}
    for n in sizes:
        state = odd_state(n)
        if state is None:
            continue
        root = np.linalg.cholesky(state.gram + 1e-12 * np.eye(n))
        run = propagate(root, 2000 if full else 400, 1000, rescale=False, random_state=random_state)
        inside = [pair for pair in run.grams[len(run.grams) // 2 :] if odd_points(pair).count == 1]
        angles = [_cluster_angle(gram) for gram in inside]
        measured[n] = math.degrees(float(np.mean(angles))) if angles else float("nan")
    return measured


def _cluster_angle(gram: np.ndarray) -> float:
    points = odd_points(gram).points
    rest = np.delete(np.delete(gram, points, 0), points, 1)
    norms = np.sqrt(np.diag(rest))
    cosines = (rest / np.outer(norms, norms))[np.triu_indices(len(rest), 1)]
    return float(np.arccos(np.clip(cosines, -1, 1)).mean())


def _activations(run: Propagation) -> np.ndarray:
    if run.activations is None:
        raise ValueError("an infinite-width run has no activations")
    return run.activations


def _after_before(run: Propagation) -> np.ndarray:
    return np.column_stack([run.angles(-2), run.angles(-1)])


def _touches(n: int, points: tuple[int, ...]) -> np.ndarray:
    """Which pairs i < j hold one of ``points``."""
    i, j = np.triu_indices(n, 1)
    return np.isin(i, points) | np.isin(j, points)


def _figure(rows: int, columns: int, title: str, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def _project(ax: Any, run: Propagation, odd: tuple[int, ...], random_state: int) -> None:
    points = _activations(run)
    plane = np.random.default_rng(random_state).standard_normal((points.shape[1], 2))
    flat = points @ np.linalg.qr(plane)[0]
    red = np.isin(np.arange(len(flat)), odd)
    ax.plot(*flat[~red].T, "o", ms=4, label="cluster")
    ax.plot(*flat[red].T, "o", ms=6, color="tab:red", label="odd")
    ax.set(title="a random 2-D projection", xlabel="one direction", ylabel="another")
    ax.legend(fontsize=8)


def _scatter(ax: Any, angles: np.ndarray, marked: np.ndarray | None) -> None:
    degrees = np.degrees(angles)
    plain = np.ones(len(degrees), bool) if marked is None else ~marked
    ax.plot(degrees[plain, 0], degrees[plain, 1], ".", ms=3)
    if marked is not None and marked.any():
        ax.plot(degrees[marked, 0], degrees[marked, 1], ".", ms=4, color="tab:red")
    top = max(95.0, float(np.nanmax(degrees)))
    ax.plot([0, top], [0, top], color="grey", lw=0.8, ls=":")
    ax.set(
        xlabel="angle before the layer (degrees)",
        ylabel="after it (degrees)",
        xlim=(0, top),
        ylim=(0, top),
    )
