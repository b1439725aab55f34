"""Where batches end under recentering and ReLU, and the parts of batch norm one at a time: figure 1
and Sections II and III of seed 004, and what docs/errata.md found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.batchnorm.gram import odd_points
from relunorm.papers import words_of
from relunorm.papers.batchnorm.figures import cluster_angle, until_odd
from relunorm.papers.claim import share_above
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]


def attractor_angle(world: BatchNorm) -> Exhibit:
    """The stable states at infinite width for batches of 4 to 100 points, beside networks of width
    1,000; batches of 4 to 30 digits through networks of width 500 (4 to 6) and 100; and a symmetric
    batch of eight points, at infinite width and at width 50."""
    sizes = [4, 5, 6, 7, 8, 10, 14, 20, 30, 50, 70, 100] + ([200, 500, 1000] if world.full else [])
    sizes = [4, 5, 6, 7, 8] if world.tiny else sizes
    states = {n: world.odd_state(n) for n in sizes}
    found = [n for n in sizes if states[n] is not None]
    measured = {} if world.tiny else _finite_clusters(world, (8, 10, 20))
    rows = []
    for n in sizes:
        state, symmetric = states[n], world.symmetric_state(n)
        angle = math.degrees(state.angle) if state is not None else float("nan")
        ratio = state.norm_ratio * (n - 1) if state is not None else float("nan")
        own = (math.degrees(symmetric.angle), symmetric.rate, measured.get(n, float("nan")))
        rows.append((n, angle, 540 / n, ratio, *own))
    symmetric = max(row[5] for row in rows)
    small = [_time_odd(world, n, seed) for n in (4, 5, 6) for seed in range(2)]
    limit = world.size(3000, 3000, 300)
    ends = [
        until_odd(world, world.sample.subset(n, s), 100, limit, s)[0].grams[-1]
        for n in (8, 10, 20, 30)
        for s in range(world.random_state, world.random_state + 5)
    ]
    large = [odd_points(gram).count == 1 for gram in ends]
    wide = world.propagate(np.eye(8), 300, method="infinite", rescale=False).onset()
    narrow = max(until_odd(world, np.eye(8), 50, limit, s)[1] for s in range(3))
    return exhibit(
        world.settings(),
        "attractor_angle",
        claim("Section III: every batch", sum(large), batches=len(large)),
        claim(
            "ours: from seven points on",
            min(found) if symmetric < 1 and max(small) < 0.5 else math.nan,
            count=len(small),
            share=100 * max(small),
        ),
        claim(
            "Section III: a symmetric batch has no odd point",
            narrow if wide is None else math.nan,
            limit=limit,
        ),
        rows=rows,
        figure=None if world.tiny else _draw_attractor(found, states, measured),
    )


def onset_width(world: BatchNorm) -> Exhibit:
    """The layer where a point of eight digits escapes, in networks of several widths."""
    from scipy.stats import mannwhitneyu

    n = 8
    widths = world.size([100, 200, 400, 1000], [100, 200, 400, 1000, 2000, 3000], [50, 400])
    seeds, limit = world.size(15, 40, 6), world.size(5_000, 20_000, 1500)
    rows, onsets = [], {}
    for width in widths:
        found = []
        for seed in range(seeds):
            X = world.sample.subset(n, world.random_state + seed)
            found.append(until_odd(world, X, width, limit, world.random_state + seed)[1])
        low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
        onsets[width] = found
        late = sum(layer >= limit for layer in found)
        rows.append((width, float(middle), float(low), float(high), late))
    p = mannwhitneyu(onsets[widths[-1]], onsets[widths[0]], alternative="greater").pvalue
    return exhibit(
        world.settings(n=n, seeds=seeds, limit=limit),
        "onset_width",
        claim("ours: onset and width", float(p)),
        rows=rows,
        figure=None if world.tiny else _draw_onset(n, rows),
    )


def parts(world: BatchNorm) -> Exhibit:
    """Ten digits through networks with rescaling alone, recentering alone, and recentering with
    ReLU; which point of batches of digits escapes, the longest one as it is and made twice as
    long; 2,000 projections of clusters of 19 points with one a hundred standard deviations off."""
    X = world.sample.subset(10, world.random_state)
    state, width = world.random_state, world.size(1000, 1000, 300)
    depth = world.size(600, 600, 300)
    linear = world.propagate(X, depth, width, "linear", False, True, random_state=state)
    cosines = mean_cosines(linear)
    relu = (
        None
        if world.tiny
        else world.propagate(X, 600, width, "relu", False, True, random_state=state)
    )
    kept, far = _recentering_alone(world, X), 100.0
    above, below, error = _emptied(world, far)
    counted = (
        f"less 4 standard errors ({above:.1f} of 19 for those above, {below:.1f} for those below)"
    )
    decided = (above > 9.5) != (below > 9.5)
    batches = world.size(40, 100, 12)
    (odd_digits, same_digits), (odd, same) = (
        _odd_is_largest(world, batches, factor) for factor in (1.0, 2.0)
    )
    spread = _same_law(world, X, world.size(12, 40, 8))
    return exhibit(
        world.settings(),
        "parts",
        claim(
            "Figure 1, IV: rescaling alone",
            cosines[-1],
            depth=depth,
            width=width,
            limit=2 / math.sqrt(width),
        ),
        claim("Section II: recentering alone", kept),
        claim(
            "Section III: which projections empty the cluster",
            above - below - 4 * error if decided else math.nan,
            below - above - 4 * error if decided else math.nan,
            counted=counted,
            far=far,
        ),
        claim(
            "Remark: the odd point is the largest", share_above(same, odd, 0.5), same=same, odd=odd
        ),
        claim(
            "ours: the odd point among equals",
            share_above(odd_digits - same_digits, odd_digits, 0.5),
            same_digits=same_digits,
            odd_digits=odd_digits,
        ),
        claim("ours: sampling in the batch's span", spread),
        figure=None if relu is None else draw_parts(cosines, relu),
    )


def _time_odd(world: BatchNorm, n: int, seed: int) -> float:
    """In which share of the second half of the layers of width 500 one of n digits is odd."""
    X = world.sample.subset(n, world.random_state + seed)
    layers = world.size(1000, 5000, 300)
    run = world.propagate(X, layers, 500, rescale=False, random_state=world.random_state + seed)
    return float(np.mean([odd_points(g).count == 1 for g in run.grams[layers // 2 :]]))


def _recentering_alone(world: BatchNorm, X: Array) -> float:
    """Recentering at every linear layer against centring the input once, same weights."""
    options: dict[str, Any] = {"nl": "linear", "rescale": False, "method": "weights"}
    options["random_state"] = world.random_state
    every = world.propagate(X, 5, 300, recenter=True, **options)
    once = world.propagate(X - X.mean(axis=0), 5, 300, recenter=False, **options)
    gaps = [
        np.abs(a / np.trace(a) - b / np.trace(b)).max()
        for a, b in zip(every.grams[1:], once.grams[1:], strict=True)
    ]
    return float(max(gaps))


def _emptied(world: BatchNorm, far: float) -> tuple[float, float, float]:
    """Points of a cluster of 19 mapped to zero, means over batches: by projections with w nu > mu,
    by those with w nu < mu, and the standard error of the difference; the 20th point is ``far``
    standard deviations off."""
    rng = world.rng
    found = []
    for _ in range(20):
        X = rng.normal(size=(20, 10))
        X[0, 0] += far
        z = ((X - X.mean(axis=0)) @ rng.normal(size=(10, 100)))[1:]
        zeros, above = (world.relu(z) == 0).sum(axis=0), z.mean(axis=0) > 0
        found.append((zeros[above].mean(), zeros[~above].mean()))
    many, few = np.array(found).T
    error = (many - few).std(ddof=1) / math.sqrt(len(found))
    return float(many.mean()), float(few.mean()), float(error)


def _odd_is_largest(world: BatchNorm, runs: int, factor: float) -> tuple[int, int]:
    """(runs with one odd point, those where it is the input of largest norm), that input made
    ``factor`` times as long."""
    found = same = 0
    for seed in range(world.random_state, world.random_state + runs):
        X = np.array(world.sample.subset(10, seed))
        largest = int(np.argmax(np.linalg.norm(X, axis=1)))
        X[largest] *= factor
        run = world.propagate(X, 400, 200, rescale=False, random_state=seed)
        odd = odd_points(run.grams[-1]).points
        if len(odd) == 1:
            found += 1
            same += odd[0] == largest
    return found, same


def _same_law(world: BatchNorm, X: Array, runs: int) -> float:
    """Mean angle after 10 layers, weights against the batch's span, in standard errors."""
    a, b = (
        np.array(
            [
                world.propagate(X, 10, 60, method=method, random_state=s).mean_angles()[-1]
                for s in range(runs)
            ]
        )
        for method in ("weights", "gram")
    )
    return float(abs(a.mean() - b.mean()) / math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / runs))


def _finite_clusters(world: BatchNorm, sizes: tuple[int, ...]) -> dict[int, float]:
    """Mean cluster angle of width-1000 networks started at the attractor's side, in degrees."""
    measured = {}
    for n in sizes:
        state = world.odd_state(n)
        if state is None:
            continue
        root = np.linalg.cholesky(state.gram + 1e-12 * np.eye(n))
        layers = world.size(400, 2000)
        run = world.propagate(root, layers, 1000, rescale=False, random_state=world.random_state)
        inside = [pair for pair in run.grams[len(run.grams) // 2 :] if odd_points(pair).count == 1]
        angles = [cluster_angle(gram) for gram in inside]
        measured[n] = math.degrees(float(np.mean(angles))) if angles else float("nan")
    return measured


def mean_cosines(run: Any) -> list[float]:
    """Mean |cosine| of pairs after layers 1, 2, ... to the last."""
    return [float(np.abs(np.cos(run.angles(k))).mean()) for k in range(1, run.layers + 1)]


def draw_parts(cosines: list[float], relu: Any) -> Any:
    """Figure 1's part IV beside the same with ReLU."""
    figure, (ax,) = empty_figure((6.4, 3.8))
    ax.semilogx(np.arange(1, len(cosines) + 1), cosines, label="rescaling alone (linear)")
    with_relu = mean_cosines(relu)
    ax.semilogx(np.arange(1, len(with_relu) + 1), with_relu, label="rescaling and ReLU")
    ax.set(xlabel="layer", ylabel="mean |cosine| of pairs", ylim=(0, 1),
           title="10 digits through a random network of width 1000")  # fmt: skip
    ax.legend()
    return figure


def _draw_attractor(found: list[int], states: dict[int, Any], measured: dict[int, float]) -> Any:
    figure, (ax,) = empty_figure((5.5, 4))
    ax.loglog(found, [math.degrees(states[n].angle) for n in found], "o-", label="infinite width")
    ax.loglog(found, [540 / n for n in found], ":", color="grey", label=r"$3\pi/n$")
    ax.loglog(list(measured), list(measured.values()), "x", ms=8, label="width 1000, measured")
    least = math.degrees(states[found[-1]].angle)
    ax.set(xticks=found, yticks=[y for y in (0.5, 1, 2, 5, 10, 20, 40, 60) if y > 0.9 * least])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.set(
        title="Angle within the cluster at the attractor", xlabel="batch size n", ylabel="degrees"
    )
    ax.legend()
    return figure


def _draw_onset(n: int, rows: list[tuple[Any, ...]]) -> Any:
    from matplotlib.ticker import LogLocator

    figure, (ax,) = empty_figure((5.5, 4))
    table = np.array([row[:4] for row in rows], dtype=float)
    errors = [table[:, 1] - table[:, 2], table[:, 3] - table[:, 1]]
    ax.errorbar(table[:, 0], table[:, 1], yerr=errors, fmt="o-", capsize=3)
    ax.set(
        title=f"Layer where a point escapes\n(n = {n}, median and quartiles)",
        xlabel="width",
        ylabel="layer",
        xscale="log",
        yscale="log",
        xticks=[row[0] for row in rows],
    )
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    return figure
