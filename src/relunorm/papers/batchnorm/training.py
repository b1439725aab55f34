"""The exhibits of seed 004 that train networks: figure 2, and the initialization of the Discussion.

The paper refers figure 2 to the supplementary code of Daneshmand et al. (2020), which it does not
print. Here it is run twice: with one optimizer for all arms, so that an arm differs in the named
thing alone, and (in full) with a learning rate of its own for each arm, which mixes the effect of
the arm with that of its step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.papers import words_of
from relunorm.papers.claim import Claim
from relunorm.papers.exhibit import Exhibit, Sample, empty_figure

if TYPE_CHECKING:
    from relunorm.papers.batchnorm import BatchNorm

claim, exhibit = words_of("batchnorm")

Array = NDArray[np.float64]
#: Arm -> (batch norm, He initialization).
ARMS = {
    "batch norm, default init": (True, False),
    "no batch norm, default init": (False, False),
    "no batch norm, He init": (False, True),
}
#: Learning rates of SGD: one for all, or each arm its own (of 0.003, 0.01, 0.03, 0.1 a best one at
#: depth 24).
SAME_RATE = 0.03
OWN_RATE = {
    "batch norm, default init": 0.1,
    "no batch norm, default init": 0.1,
    "no batch norm, He init": 0.01,
}
SETUPS = ("same optimizer", "own learning rate")
#: Singular values below this share of the largest do not count in figure 2's rank.
RANK_TOLERANCE = 0.01


def figure2(world: BatchNorm) -> Exhibit:
    """Deep networks of width 128 on digits with batch norm, without it, and without it from He's
    initialization: rank of the last hidden layer at the start, training accuracy at the end."""
    depths = world.size((4, 16), (4, 8, 16, 24), (12,))
    seeds, epochs, points = world.size((2, 40, 400), (5, 60, 500), (1, 80, 100))
    x, y = labelled(world.sample, points, world.random_state)
    rows = []
    # the set-up that mixes the arm with its step decides nothing and costs as much again
    for setup in SETUPS if world.full else SETUPS[:1]:
        for name, (norm, he) in ARMS.items():
            rate = SAME_RATE if setup == "same optimizer" else OWN_RATE[name]
            for depth in depths:
                runs = [
                    world.train_deep(x, y, depth, norm, he, rate, epochs, world.random_state + seed)
                    for seed in range(seeds)
                ]
                ranks, softs, accuracies = np.array(runs).T
                means = (ranks.mean(), softs.mean(), accuracies.mean(), accuracies.min())
                rows.append((setup, name, depth, *map(float, means)))
    return exhibit(
        world.settings(seeds=seeds, epochs=epochs, points=len(x)),
        "figure2",
        *_low_rank_trains(rows, max(depths)),
        rows=rows,
        note=f"Rank counts singular values above {RANK_TOLERANCE:g} of the largest; SGD, "
        "batches of 50, width 128.",
        figure=None if world.tiny else _draw_figure2(rows),
    )


def _low_rank_trains(rows: list[tuple[Any, ...]], depth: int) -> tuple[Claim, Claim]:
    own = {row[1]: row[3:] for row in rows if row[0] == SETUPS[0] and row[2] == depth}
    (norm, *_), (_, _, stuck, _), (low, _, reached, _) = (own[arm] for arm in ARMS)
    low = low / norm
    small, right = default_variance(128)
    return (
        claim("Figure 2", reached if low < 0.5 else 0.0, depth=depth, low=low),
        claim(
            "Figure 2: the default variance is too small",
            stuck if reached >= 0.95 and small < right else math.nan,
            depth=depth,
            small=small,
            reached=reached,
            right=right,
        ),
    )


def default_variance(width: int) -> tuple[float, float]:
    """Variance of a square layer's weights times the fan-in: PyTorch's default, and He's."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(width, width)
        default = width * float(layer.weight.detach().var())
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        return default, width * float(layer.weight.detach().var())


def initialization(world: BatchNorm) -> Exhibit:
    """One hidden layer with one neuron per data point (kinks at three heights between its response
    to its own point and to the next) against He's and torch's initialization on digits, Adam:
    accuracy on the points and on 1,000 never seen."""
    seeds, epochs = world.size((6, 60), (8, 200), (3, 40))
    sizes = world.size((50,), (50, 100, 200), (20,))
    kinds = ("datapoint 0.0", "datapoint 0.5", "datapoint 0.9", "He", "torch default")
    rows, tests = [], {}
    for count in sizes:
        for kind in kinds:
            runs = [
                world.train_shallow(world.sample, count, kind, epochs, world.random_state + seed)
                for seed in range(seeds)
            ]
            start, train, test = np.array(runs).T
            tests[count, kind] = float(train.min()), float(test.mean())
            error = test.std(ddof=1) / np.sqrt(seeds)
            means = (start.mean(), train.mean(), test.mean(), error)
            rows.append((count, kind, *map(float, means)))
    (fitted, own), (_, other) = (tests[sizes[0], kind] for kind in ("datapoint 0.5", "He"))
    return exhibit(
        world.settings(seeds=seeds, epochs=epochs),
        "initialization",
        claim(
            "Discussion: one neuron per point",
            own - other if fitted >= 0.95 else math.nan,
            sizes=sizes[0],
            fitted=fitted,
            seeds=seeds,
        ),
        claim(
            "Discussion: an orthogonal representation",
            _largest_cosine(world.represent(world.sample.subset(sizes[0], 0))),
            sizes=sizes[0],
        ),
        rows=rows,
    )


def represent(x: Array) -> Array:
    """Points after a layer with one neuron for each, (points, neurons)."""
    import torch
    from torch import nn

    from relunorm.nn.initialization import datapoint_init_

    layer = nn.Linear(x.shape[1], len(x))
    datapoint_init_(layer, x)
    with torch.no_grad():
        return torch.relu(layer(torch.tensor(x, dtype=torch.float32))).numpy().astype(np.float64)


def _largest_cosine(values: Array) -> float:
    """Of two rows; infinite if a row has more than one entry other than 0, or none."""
    if ((values != 0).sum(axis=1) != 1).any():
        return float("inf")
    norms = np.linalg.norm(values, axis=1)
    cosines = np.abs(values @ values.T) / np.outer(norms, norms)
    return float((cosines - np.diag(np.diag(cosines))).max())


def labelled(data: Sample, points: int, random_state: int) -> tuple[Any, Any]:
    import torch

    if data.y is None:
        raise InvalidInputError(
            f"{data.source}: training needs class labels; name their column with --target"
        )
    order = np.random.default_rng(random_state).permutation(len(data.x))[:points]
    x = torch.tensor(data.x[order], dtype=torch.float32)
    return x, torch.tensor(data.y[order])


def train_deep(
    x: Any, y: Any, depth: int, norm: bool, he: bool, rate: float, epochs: int, seed: int
) -> tuple[float, float, float]:
    """(rank, soft rank at the last hidden layer before training, training accuracy after)."""
    import torch
    from torch import nn

    from relunorm.batchnorm.probes import geometry

    classes = int(y.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        fan_in = x.shape[1]
        for _ in range(depth):
            linear = nn.Linear(fan_in, 128)
            if he:
                _he(linear)
            parts += [linear, *([nn.BatchNorm1d(128)] if norm else []), nn.ReLU()]
            fan_in = 128
        model = nn.Sequential(*parts, nn.Linear(128, classes))
        probe = geometry(model, x, [str(len(parts) - 1)], rank_tolerance=RANK_TOLERANCE)[-1]
        optimizer = torch.optim.SGD(model.parameters(), rate)
        _fit(model, optimizer, x, y, epochs)
        return probe.rank, probe.soft_rank, _accuracy(model, x, y)


def train_shallow(
    data: Sample, count: int, kind: str, epochs: int, seed: int
) -> tuple[float, float, float]:
    """(training accuracy after 5 epochs, at the end, test accuracy)."""
    import torch
    from torch import nn

    from relunorm.nn.initialization import datapoint_init_

    x, y = labelled(data, count + 1000, seed)
    x, y, x_test, y_test = x[:count], y[:count], x[count:], y[count:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = nn.Linear(x.shape[1], count)
        model = nn.Sequential(hidden, nn.ReLU(), nn.Linear(count, int(y.max()) + 1))
        if kind.startswith("datapoint"):
            datapoint_init_(hidden, x, threshold=float(kind.split()[1]))
        elif kind == "He":
            _he(hidden)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        _fit(model, optimizer, x, y, 5)
        early = _accuracy(model, x, y)
        _fit(model, optimizer, x, y, epochs - 5)
        return early, _accuracy(model, x, y), _accuracy(model, x_test, y_test)


def _he(linear: Any) -> None:
    from torch import nn

    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)


def _fit(model: Any, optimizer: Any, x: Any, y: Any, epochs: int) -> None:
    import torch

    for _ in range(epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x), 50):
            batch = order[start : start + 50]
            if len(batch) < 2:
                continue
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()


def _accuracy(model: Any, x: Any, y: Any) -> float:
    import torch

    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def _draw_figure2(rows: list[tuple[Any, ...]]) -> Any:
    shown = [setup for setup in SETUPS if any(row[0] == setup for row in rows)]
    figure, axes = empty_figure((3.7 * (1 + len(shown)), 3.8), 1, 1 + len(shown))
    # He's crosses stay visible on top of batch norm's discs, where both train fully
    for (name, _), marker in zip(ARMS.items(), ("o", "s", "x"), strict=True):
        panels = [(axes[0], SETUPS[0], 3)]
        panels += [(ax, setup, 5) for ax, setup in zip(axes[1:], shown, strict=True)]
        for ax, setup, column in panels:
            points = [(r[2], r[column]) for r in rows if r[0] == setup and r[1] == name]
            ax.plot(*zip(*points, strict=True), marker=marker, ms=6, label=name)
    axes[0].set(title="rank at the start", ylabel="rank of the last hidden layer", yscale="log")
    axes[0].set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes[0].minorticks_off()
    for ax, setup in zip(axes[1:], shown, strict=True):
        title = f"training accuracy,\n{setup}"
        ax.set(ylim=(0, 1.05), ylabel="share of training points right", title=title)
    for ax in axes:
        ax.set(xlabel="depth (hidden layers)", xticks=sorted({r[2] for r in rows}))
    axes[1].legend(fontsize=8, loc="center right")
    return figure
