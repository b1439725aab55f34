"""Training against its peers, one thread, same data: ``python benchmarks/training.py``.

Sections (all by default): figures, peers, batched, large. geotorch and pwlf are used where they can
be imported, else their rows say so. Times are CPU seconds of one fit.
"""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from record import record
from training_peers import PEERS, NotInstalled

from relunorm.train.bound import spline_bound
from relunorm.train.estimator import ReLURegressor
from relunorm.train.lm import minimize
from relunorm.train.shallow import Bounds, ShallowProblem
from relunorm.train.spline import SplineProblem, stratified_knots

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
NOTE = "CPU seconds of one fit, one thread."


def franke(p: np.ndarray) -> np.ndarray:
    """Franke's function on [0, 1]^2 (seed 001, eq. 5.4)."""
    x, y = 9 * p[:, 0], 9 * p[:, 1]
    return (
        0.75 * np.exp(-((x - 2) ** 2 + (y - 2) ** 2) / 4)
        + 0.75 * np.exp(-((x + 1) ** 2) / 49 - (y + 1) / 10)
        + 0.5 * np.exp(-((x - 7) ** 2 + (y - 3) ** 2) / 4)
        - 0.2 * np.exp(-((x - 4) ** 2) - (y - 7) ** 2)
    )


def paper_data(d: int, seed: int) -> tuple[np.ndarray, ...]:
    """Training and validation rows of seed 001, section 5: a fresh draw per seed."""
    rng = np.random.default_rng(1000 + seed)
    n = 200 if d == 1 else 500
    x, held = rng.random((n, d)), rng.random((1000, d))
    target = franke if d == 2 else lambda p: np.sin(4 * np.pi * p[:, 0])
    return x, target(x), held, target(held)


def timed(run: Callable[[], object]) -> tuple[object, float]:
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def score(model, x, y, held, truth) -> tuple[float, float]:
    return (
        float(np.mean((model.predict(x) - y) ** 2)),
        float(np.mean((model.predict(held) - truth) ** 2)),
    )


def figures(seeds: int) -> None:
    rows = [*spline_rows(seeds), *shallow_rows(seeds), *deep_rows(seeds)]
    header = ["problem", "settings", "train MSE median (max)", "target", "validation median",
              "CPU s median (max)", "failures"]  # fmt: skip
    note = f"{seeds} draws of data, one fit each. A failure leaves over 1 % of the variance."
    record("training: figures", header, rows, f"{NOTE} {note}")


def spline_rows(seeds: int) -> list[list[object]]:
    ours, bare, bfgs = [], [], []
    for seed in range(seeds):
        x, y, held, truth = paper_data(1, seed)
        order = np.argsort(x[:, 0])
        sizes = (np.ones(len(x)), 20), (np.ones(len(x)), 18)
        bound, fewer = (spline_bound(x[order, 0], y[order], w, k).value / 200 for w, k in sizes)
        for kept, settings, base in (
            (ours, {}, bound),
            (bare, {"skip": False}, fewer),
            (bfgs, {"solver": "bfgs"}, bound),
        ):
            model = ReLURegressor(hidden=20, random_state=seed, **settings)
            _, seconds = timed(lambda model=model, x=x, y=y: model.fit(x, y))
            error, validation = score(model, x, y, held, truth)
            kept.append((error, validation, seconds, error / base))
    result = []
    for name, kept, target in (
        ("exact, 20 knots + affine", ours, "<= 1.02 bound in 5 s, 2 in 0.1 s"),
        ("exact, 20 units of (2.10), no bias", bare, "<= best 18 knots + affine"),
        ("bfgs, 20 units + affine", bfgs, "-"),
    ):
        table = np.array(kept)
        row = summary("sin(4 pi x)", name, table, target, 0.5)
        row[2] = (
            f"{row[2]}; over the bound {np.median(table[:, 3]):.6g}x ({table[:, 3].max():.6g}x)"
        )
        result.append(row)
    return result


def shallow_rows(seeds: int) -> list[list[object]]:
    runs = (
        ("greedy, n_init=2", {"n_init": 2}, "<= 2.6e-5, validation 7e-5, one BFGS fit's time"),
        ("greedy, default", {}, "-"),
        ("greedy, 10 s", {"time_limit": 10.0}, "<= 1.5e-5, validation 7e-5"),
        ("bfgs", {"solver": "bfgs"}, "-"),
    )
    return [measured(2, (40,), name, settings, target, seeds) for name, settings, target in runs]


def deep_rows(seeds: int) -> list[list[object]]:
    runs = (
        (1, (20, 10), "<= 9e-5, no failure"),
        (1, (5, 5, 5, 5), "<= 7e-4, 5 % failures"),
        (2, (20, 10), "<= 3.2e-5"),
        (2, (10, 10, 10, 10), "<= 3.2e-5"),
    )
    plain = {"skip": False}
    return [
        measured(d, hidden, name, {**plain, **settings}, goal, seeds)
        for d, hidden, target in runs
        for name, settings, goal in (
            ("deep, no skip", {}, target),
            ("lbfgs, no skip", {"solver": "lbfgs"}, "-"),
        )
    ]


def measured(d, hidden, name, settings, target, seeds) -> list[object]:
    kept = []
    for seed in range(seeds):
        x, y, held, truth = paper_data(d, seed)
        model = ReLURegressor(hidden=hidden, random_state=seed, **settings)
        _, seconds = timed(lambda model=model, x=x, y=y: model.fit(x, y))
        kept.append((*score(model, x, y, held, truth), seconds))
    structure = "{" + ",".join(map(str, (d, *hidden, 1))) + "}"
    label = f"{'sin(4 pi x)' if d == 1 else 'Franke'} {structure}"
    row = summary(label, name, np.array(kept), target, 0.5 if d == 1 else 0.08)
    print(row, flush=True)
    return row


def summary(
    problem: str, name: str, table: np.ndarray, target: str, variance: float
) -> list[object]:
    train, validation, seconds = np.median(table[:, :3], axis=0)
    failures = int((table[:, 0] > 0.01 * variance).sum())
    return [
        problem,
        name,
        f"{train:.3e} ({table[:, 0].max():.3e})",
        target,
        f"{validation:.3e}",
        f"{seconds:.3f} ({table[:, 2].max():.3f})",
        f"{failures}/{len(table)}",
    ]


def peers(seeds: int, wanted: list[str]) -> None:
    rows = []
    for problem, hidden, draw in problems():
        if wanted and problem not in wanted:
            continue
        found: dict[str, object] = {}
        for name, make in PEERS.items():
            found[name] = peer_results(make, hidden, draw, seeds)
        best = min(v[1] for v in found.values() if isinstance(v, tuple))
        for name, value in found.items():
            if not isinstance(value, tuple):
                rows.append([problem, name, value, "", "", "", ""])
                continue
            train, error, seconds, failures, count = value
            mark = " *" if error <= 1.02 * best else ""
            rows.append([problem, name, train, f"{error:.4g}{mark}", error / best, seconds,
                         f"{failures}/{count}"])  # fmt: skip
            print(rows[-1], flush=True)
    header = ["problem", "method", "train MSE", "held-out MSE", "x best", "CPU s", "failures"]
    note = (
        f"Medians over the same {seeds} draws of data; * within 2 % of the best. Every method with "
        "its defaults on standardized inputs and targets, networks with the same number of units. "
        "A failure is a held-out error above that of predicting the mean."
    )
    record("training: peers", header, rows, f"{NOTE} {note}")


def problems():
    from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

    yield "sin(4 pi x)", 20, lambda seed: paper_data(1, seed)
    yield "Franke", 40, lambda seed: paper_data(2, seed)
    yield "diabetes", 20, lambda seed: split(*load_diabetes(return_X_y=True), seed)
    makers = ((make_friedman1, 1.0), (make_friedman2, 100.0), (make_friedman3, 0.1))
    for number, (make, noise) in enumerate(makers, start=1):
        yield (
            f"friedman{number}",
            20,
            lambda seed, m=make, e=noise: split(*m(600, noise=e, random_state=seed), seed),
        )
    for path in sorted(SHARED.glob("*.npz")):
        with np.load(path) as held:
            x, y = held["x"].astype(float), held["y"].astype(float)
        yield path.stem, 20, lambda seed, x=x, y=y: split(x, y, seed)


def split(x: np.ndarray, y: np.ndarray, seed: int, most: int = 1500) -> tuple[np.ndarray, ...]:
    """Three quarters to fit (at most 1,500 rows), the rest to measure (at most 2,000)."""
    order = np.random.default_rng(seed).permutation(len(x))
    count = min(most, 3 * len(x) // 4)
    a, b = order[:count], order[count : count + 2000]
    return x[a], y[a], x[b], y[b]


def peer_results(make, hidden, draw, seeds):
    kept, failures = [], 0
    for seed in range(seeds):
        x, y, held, truth = draw(seed)
        try:
            model = make(hidden, seed, x.shape[1])
        except NotInstalled as error:
            return str(error)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, seconds = timed(lambda model=model, x=x, y=y: model.fit(x, y))
            train, error = score(model, x, y, held, truth)
        if not error < np.var(truth):
            failures += 1
        kept.append((train, error, seconds))
    train, error, seconds = np.nanmedian(np.array(kept), axis=0)
    return float(train), float(error), float(seconds), failures, len(kept)


def batched() -> None:
    x = np.sort(np.random.default_rng(0).random(200))
    inputs = torch.from_numpy(x)
    targets = torch.sin(4 * torch.pi * inputs)
    knots = stratified_knots(x[0], x[-1], 256, 20, torch.Generator().manual_seed(0))
    rows = inputs[:, None]
    general = ShallowProblem(rows, targets[:, None], Bounds.around(rows))
    ones = torch.ones(256, 20, 1, dtype=torch.float64)
    table = []
    for name, problem, start in (
        ("spline engine", SplineProblem(inputs, targets), (knots,)),
        ("general engine", general, (ones, -knots)),
    ):
        for size in (256, 1):
            part = tuple(p[:size] for p in start)
            runs = [
                timed(lambda q=problem, s=part: minimize(q, s, iterations=30)) for _ in range(4)
            ]
            found, seconds = min(runs[1:], key=lambda pair: pair[1])
            losses = found.loss / 200  # type: ignore[attr-defined]
            failed = float((~(losses < 0.005)).double().mean())
            table.append(
                [name, size, size / seconds, f"{100 * failed:.1f} %", float(losses.median())]
            )
    seconds = timed(lambda: adam_alone(inputs, targets))[1]
    table.append(["torch Adam, 2,000 steps, one by one", 1, 1 / seconds, "-", ""])
    header = ["engine", "networks at once", "networks/s", "failures", "median MSE"]
    record("training: many networks at once, {1,20,1}", header, table, NOTE + " Best of 3.")


def adam_alone(x: torch.Tensor, y: torch.Tensor) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1))
    net.double()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(2000):
        optimizer.zero_grad()
        (net(x[:, None])[:, 0] - y).square().mean().backward()
        optimizer.step()


def large(rows: int) -> None:
    """A million rows of 20 inputs by ``adam``, and plain torch with the same batches."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 20))
    y = np.abs(x[:, 0]) + np.maximum(x[:, 1] - x[:, 2], 0) + 0.1 * rng.normal(size=rows)
    table = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = {"batch": 1024, "epochs": 5}
    model = ReLURegressor(hidden=64, solver="adam", random_state=0, options=options, verbose=True)
    _, ours = timed(lambda: model.fit(x, y))
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    _, theirs = timed(lambda: plain_torch(x, y, 64, 1024, 5))
    error = float(np.mean((model.predict(x[:100_000]) - y[:100_000]) ** 2))
    table.append(["adam", ours, 5 * rows / ours, theirs / ours, f"{peak:.0f}", error])
    table.append(["plain torch", theirs, 5 * rows / theirs, 1.0, "", ""])
    header = ["method", "CPU s", "rows/s", "speed / plain torch", "extra MiB (data 160)", "MSE"]
    note = f"{rows:,} x 20, 64 units, batches of 1,024, 5 epochs, noise variance 0.01."
    record("training: large data", header, table, f"{NOTE} {note}")


def plain_torch(x: np.ndarray, y: np.ndarray, units: int, batch: int, epochs: int) -> None:
    inputs = torch.from_numpy((x - x.mean(0)) / x.std(0)).float()
    targets = torch.from_numpy((y - y.mean()) / y.std()).float()[:, None]
    net = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], units), torch.nn.ReLU(), torch.nn.Linear(units, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        order = torch.randperm(len(inputs))
        for at in range(0, len(order), batch):
            pick = order[at : at + batch]
            optimizer.zero_grad()
            (net(inputs[pick]) - targets[pick]).square().mean().backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=["figures", "peers", "batched", "large"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--problems", nargs="*", default=[], help="peers: only these problems")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "figures" in arguments.sections:
        figures(arguments.seeds)
    if "batched" in arguments.sections:
        batched()
    if "large" in arguments.sections:
        large(arguments.rows)
    if "peers" in arguments.sections:
        peers(arguments.seeds, arguments.problems)


if __name__ == "__main__":
    main()
