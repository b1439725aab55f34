"""Figures 3, 5 and 6 of seed 004: batches after many layers of random networks."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from relunorm.batchnorm.gram import odd_points, pair_angles
from relunorm.batchnorm.random_nets import Propagation
from relunorm.papers import words_of
from relunorm.papers.claim import Check, Claim, more_often
from relunorm.papers.exhibit import Exhibit, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

#: The three ways to rescale and recenter that figures 5 and 6 compare.
ARMS: dict[str, dict[str, Any]] = {
    "rms, no recentering": {"recenter": False},
    "full": {"recenter": True},
    "std, no recentering (eq. 2)": {"recenter": False, "statistic": "std"},
}
#: The paper prints angles in multiples of five degrees.
ABOUT = 2.5


def figure3(world: BatchNorm) -> Exhibit:
    """Several batches of twenty digits through layers of width 500 with recentering and ReLU until
    a point is odd, and a fifth more; the first one is drawn."""
    n, width, batches = 20, world.size(500, 500, 200), world.size(5, 20, 2)
    state = world.odd_state(n)
    limit = math.degrees(state.angle) if state is not None else float("nan")
    seeds = range(world.random_state, world.random_state + batches)
    runs = [until_odd(world, world.sample.subset(n, s), width, 5_000, s) for s in seeds]
    rows = [_escaped(k, run, layers) for k, (run, layers) in enumerate(runs)]
    run = runs[0][0]
    odd, angles = odd_points(run.grams[-1]).points, _after_before(run)
    least = 90 - math.degrees(world.angle_constant(n))
    table = np.array(rows, dtype=float)
    single = bool((table[:, 2] == 1).all())
    within = float(table[:, 3].mean()) if single else math.nan
    return exhibit(
        world.settings(n=n, width=width),
        "figure3",
        claim(
            "Figure 3",
            float(table[:, 4].min()) if single else math.nan,
            batches=batches,
            least=least,
        ),
        claim("Figure 3, the cluster is one point", within, within, limit=limit, half=limit / 2),
        claim(
            "Discussion: active for the odd point only",
            float(table[:, 7].sum()) if single else math.nan,
        ),
        rows=rows,
        note="Degrees. The cluster does not collapse to a point (docs/errata.md): at infinite "
        f"width it settles at {limit:.2f} degrees, here it is at {within:.1f} in the mean.",
        figure=None if world.tiny else _draw_figure3(world, run, odd, angles, _touches(n, odd)),
    )


def _escaped(batch: int, run: Propagation, layers: int) -> tuple[Any, ...]:
    """A row of figure 3's table."""
    gram, values = run.grams[-1], activations(run)
    odd = odd_points(gram)
    if odd.count != 1:
        return (batch, layers, odd.count, *[math.nan] * 5)
    (point,) = odd.points
    others = np.delete(values, point, axis=0)
    angles, marked = np.degrees(_after_before(run)[:, 1]), _touches(len(gram), odd.points)
    norms = np.linalg.norm(others, axis=1)
    size = float(np.linalg.norm(values[point]))
    gaps = np.linalg.norm(others[:, None] - others[None], axis=2)
    large = np.median(values[point][values[point] > 0])
    means = (angles[~marked].mean(), angles[marked].mean(), size / norms.mean())
    return (
        batch,
        layers,
        1,
        *map(float, means),
        float(gaps.max() / size),
        int((others >= large).sum()),
    )


def figure5(world: BatchNorm) -> Exhibit:
    """Angles of pairs among 10 and among 100 digits after 30 layers of width 1,000, by what is
    normalized, over several draws (dividing by (2) alone also of digits less their mean); in full,
    beside infinite width."""
    n, width, layers = 100, world.size(1000, 1000, 300), 30
    seeds = world.size(3, 100, 2)
    rows, drawn = [], {}
    paper = {"rms, no recentering": "60", "full": "75", "std, no recentering (eq. 2)": ""}
    data = world.sample
    centred = replace(data, x=data.x - data.x.mean(axis=0))
    for name, parts in ARMS.items():
        inputs = {"as given": data}  # the last one is drawn
        if "statistic" in parts and not world.tiny:  # the one arm that remembers the mean
            inputs = {"less their mean": centred, **inputs}
        for (label, sample), size in product(inputs.items(), (10, n)):
            means, X = [], sample
            for seed in range(seeds):
                X = sample.subset(size, world.random_state + seed)
                state = world.random_state + seed
                run = world.propagate(X, layers, width, random_state=state, **parts)
                means.append(np.degrees(run.mean_angles()[-1]))
                drawn[name] = run
            wide = _wide_angle(world, X, layers, parts) if world.full else None
            spread = float(np.std(means, ddof=1))
            rows.append((name, label, size, float(np.mean(means)), spread, wide, paper[name]))
    return exhibit(
        world.settings(width=width, layers=layers, seeds=seeds),
        "figure5",
        *_angle_claims(world, rows),
        rows=rows,
        figure=None if world.tiny else _draw_figure5(drawn),
    )


def _angle_claims(world: BatchNorm, rows: list[tuple[Any, ...]]) -> list[Claim]:
    def of(name: str) -> list[tuple[int, float]]:
        """Sizes of batches, and their mean angles."""
        return [(row[2], row[3]) for row in rows if row[0] == name]

    def check(name: str, degrees: float) -> Check:
        """The mean angle nearest to ``degrees`` of all the batches tried."""
        sizes = " and ".join(f"{angle:.1f} at n = {n}" for n, angle in of(name))
        nearest = min((angle for _, angle in of(name)), key=lambda angle: abs(angle - degrees))
        return Check(f"degrees ({name}: {sizes}), the nearest", nearest, "=", degrees, ABOUT)

    def formula(n: int) -> float:
        return math.degrees(world.symmetric_state(n, rescale=True).angle)

    rms, both, std = ARMS
    return [
        claim("Figure 5, no recentering", check(rms, 60)),
        claim("Figure 5, statistic of (2)", check(std, 60), check(rms, 60)),
        claim("Figure 5, full", check(both, 75)),
        claim(
            "ours: the angle of full batch norm",
            max(abs(angle - formula(n)) for n, angle in of(both)),
        ),
    ]


def figure6(world: BatchNorm) -> Exhibit:
    """Responses of the neurons of layer 30 over 100 digits, with and without recentering."""
    n, width, layers = 100, world.size(1000, 1000, 300), 30
    seeds = world.size(5, 20, 5)
    names = ("rms, no recentering", "full")
    rows, drawn, broad, quiet = [], {}, {}, {}
    for name in names:
        broad[name], quiet[name] = [], []
        for seed in range(seeds):
            X = world.sample.subset(n, world.random_state + seed)
            state = world.random_state + seed
            run = world.propagate(X, layers, width, random_state=state, **ARMS[name])
            responses = activations(run)
            active = (responses > 0).mean(axis=0)
            small = (responses <= 0.1 * responses.max(axis=0)).mean(axis=0)
            broad[name].append(100 * float((active >= 0.9).mean()))
            quiet[name].append(100 * float((small > 0.5).mean()))
        drawn[name] = (run, active)
        means = (np.mean(broad[name]), 100 * active.max(), np.mean(quiet[name]))
        rows.append((name, *map(float, means)))
    without, full = names
    more = more_often(broad[without], broad[full])[0]
    silent = min(quiet[full])
    return exhibit(
        world.settings(n=n, width=width, layers=layers, seeds=seeds),
        "figure6",
        claim("Figure 6", more if silent > 50 else 1.0, silent=silent, seeds=seeds),
        rows=rows,
        figure=None if world.tiny else _draw_figure6(drawn),
    )


def _wide_angle(world: BatchNorm, X: Any, layers: int, parts: dict[str, Any]) -> float | None:
    """Mean angle at infinite width, degrees; None where the map has none.

    Dividing by a deviation about a mean that is left in has no finite second moment for points that
    span at most two dimensions about it.
    """
    kept = parts.get("statistic") == "std" and not parts["recenter"]
    if kept and np.linalg.matrix_rank(X - X.mean(axis=0)) <= 2:
        return None
    run = world.propagate(X, layers, method="infinite", **parts)
    return float(np.degrees(run.mean_angles()[-1]))


def until_odd(
    world: BatchNorm, X: Any, width: int, limit: int, random_state: int
) -> tuple[Propagation, int]:
    """Recentering and ReLU until a point is odd, then a fifth more; (last run, onset)."""
    rng = np.random.default_rng(random_state)
    done, step = 0, 100
    run = world.propagate(X, step, width, rescale=False, random_state=rng)
    while (first := run.onset()) is None and done + step < limit:
        done += step
        run = world.propagate(activations(run), step, width, rescale=False, random_state=rng)
    if first is None:
        return run, limit
    onset = done + first
    more = max(50, onset // 5)
    return world.propagate(activations(run), more, width, rescale=False, random_state=rng), onset


def _draw_figure3(
    world: BatchNorm, run: Propagation, odd: tuple[int, ...], angles: Any, marked: Any
) -> Any:
    figure, axes = empty_figure((9, 4), 1, 2, "Recentering and ReLU: one point escapes")
    _project(axes[0], run, odd, world.random_state)
    _scatter(axes[1], angles, marked)
    return figure


def _draw_figure5(drawn: dict[str, Propagation]) -> Any:
    title = "Angles before and after layer 30 (n = 100, width 1000)"
    figure, axes = empty_figure((12, 4), 1, len(drawn), title)
    for ax, (name, run) in zip(axes, drawn.items(), strict=True):
        _scatter(ax, _after_before(run), None)
        ax.set_title(name)
    return figure


def _draw_figure6(drawn: dict[str, tuple[Propagation, Any]]) -> Any:
    title = "Response of one neuron over 100 inputs, after 30 layers"
    figure, axes = empty_figure((9, 3.6), 1, len(drawn), title)
    for ax, (name, (run, active)) in zip(axes, drawn.items(), strict=True):
        responses = activations(run)[:, int(np.argmax(active))]
        ax.hist(responses / responses.max(), bins=20)
        ax.set(
            title=f"{name}:\nthe broadest neuron ({active.max():.0%} of inputs)",
            xlabel="response / its largest",
            ylabel="inputs",
        )
    return figure


def cluster_angle(gram: np.ndarray) -> float:
    """Mean angle among the points that are not odd, radians."""
    points = odd_points(gram).points
    return float(pair_angles(np.delete(np.delete(gram, points, 0), points, 1)).mean())


def activations(run: Propagation) -> np.ndarray:
    if run.activations is None:
        raise ValueError("an infinite-width run has no activations")
    return run.activations


def _after_before(run: Propagation) -> np.ndarray:
    return np.column_stack([run.angles(-2), run.angles(-1)])


def _touches(n: int, points: tuple[int, ...]) -> np.ndarray:
    """Which pairs i < j hold one of ``points``."""
    i, j = np.triu_indices(n, 1)
    return np.isin(i, points) | np.isin(j, points)


def _project(ax: Any, run: Propagation, odd: tuple[int, ...], random_state: int) -> None:
    points = activations(run)
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
