"""Training against its peers, one thread, same data: ``python benchmarks/training.py``.

Sections (all by default): figures, peers, batched, large. geotorch and pwlf are used where they can
be imported, else their rows say so. Times are CPU seconds of one fit. The peers take an hour of CPU
time for 5 draws; with ``--cells FILE`` a run that was stopped goes on where it was.
"""
# ruff: noqa: E402  (thread limits must be set before numpy is imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import resource
from pathlib import Path

import numpy as np
import torch
from record import record
from training_figures import CHOSEN_ON, figures, timed
from training_table import peers

from relunorm.train.problem.levenberg_marquardt import minimize
from relunorm.train.problem.one_layer import Bounds, ShallowProblem
from relunorm.train.problem.spline import SplineProblem, stratified_knots
from relunorm.train.regressor import ReLURegressor

NOTE = "CPU seconds of one fit, one thread."


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


def large(rows: int, epochs: list[int]) -> None:
    """A million rows of 20 inputs by ``adam``, and plain torch with the same batches."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 20))
    y = np.abs(x[:, 0]) + np.maximum(x[:, 1] - x[:, 2], 0) + 0.1 * rng.normal(size=rows)
    table = []
    for count in epochs:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        options = {"batch": 1024, "epochs": count}
        model = ReLURegressor(
            hidden=64, solver="adam", random_state=0, options=options, verbose=True
        )
        ours, theirs, peak = float("inf"), float("inf"), 0.0
        # in turn, so that a busy machine is as busy for both
        for turn in range(3):
            ours = min(ours, timed(lambda m=model: m.fit(x, y))[1])
            if turn == 0:
                peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            theirs = min(theirs, timed(lambda c=count: plain_torch(x, y, 64, 1024, c))[1])
        error = float(np.mean((model.predict(x[:100_000]) - y[:100_000]) ** 2))
        table.append(
            [count, "adam", ours, count * rows / ours, theirs / ours, f"{peak:.0f}", error]
        )
        table.append([count, "plain torch", theirs, count * rows / theirs, 1.0, "", ""])
    header = ["epochs", "method", "CPU s", "rows/s", "speed / plain torch",
              "further MiB at peak (data 160)", "MSE"]  # fmt: skip
    note = (
        f"{rows:,} x 20, 64 units, batches of 1,024, noise variance 0.01; the best of three fits "
        "each, in turn. The whole fit counts: checks, scaling and the last least squares."
    )
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
    parser.add_argument("--draws", type=int, default=CHOSEN_ON, help="number of the first draw")
    parser.add_argument(
        "--problems", nargs="*", default=[], help="only these (figures: spline ...)"
    )
    parser.add_argument("--cells", type=Path, help="peers: keep finished cells here and go on")
    parser.add_argument("--report", action="store_true", help="peers: only what the cells hold")
    parser.add_argument("--epochs", type=int, nargs="*", default=[5, 2, 1], help="of large")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draws = range(arguments.draws, arguments.draws + arguments.seeds)
    if "figures" in arguments.sections:
        figures(draws, arguments.problems, NOTE)
    if "batched" in arguments.sections:
        batched()
    if "large" in arguments.sections:
        large(arguments.rows, arguments.epochs)
    if "peers" in arguments.sections:
        peers(draws, arguments.problems, arguments.cells, not arguments.report, NOTE)


if __name__ == "__main__":
    main()
