"""Networks fitted per second by the batched engine on one GPU (or CPU): {1, 20, 1} on sin(4 pi x).

Imports torch, numpy and the engine only: ``PYTHONPATH=src python benchmarks/training_gpu.py``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from relunorm.train.problem.levenberg_marquardt import minimize
from relunorm.train.problem.one_layer import Bounds, ShallowProblem
from relunorm.train.problem.spline import SplineProblem, stratified_knots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--members", type=int, default=None, help="65,536 on a GPU, 256 on a CPU")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    members = arguments.members or (65_536 if device.type == "cuda" else 256)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, one thread"
    print(f"{name}, torch {torch.__version__}, float64, {arguments.iterations} iterations")
    x = np.sort(np.random.default_rng(0).random(200))
    inputs = torch.from_numpy(x).to(device)
    targets = torch.sin(4 * torch.pi * inputs)
    knots = stratified_knots(
        float(x[0]), float(x[-1]), members, 20, torch.Generator(device=device).manual_seed(0)
    )
    spline = SplineProblem(inputs, targets)
    measure("spline engine", spline, (knots,), arguments, device)
    general = min(members, 8192) if device.type == "cuda" else members
    rows = inputs[:, None]
    shallow = ShallowProblem(rows, targets[:, None], Bounds.around(rows))
    start = (torch.ones(general, 20, 1, dtype=torch.float64, device=device), -knots[:general])
    measure("general engine", shallow, start, arguments, device)


def measure(title, problem, start, arguments, device) -> None:
    """Best of some repeats after one warm-up: wall time on a GPU, CPU seconds on a CPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times = []
    for _ in range(arguments.repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = clock()
        found = minimize(problem, start, iterations=arguments.iterations)
        losses = (found.loss / 200).cpu()
        times.append(clock() - begin)
    best = min(times[1:])
    members = len(losses)
    # a failure: more than 1 % of the target's variance is left
    failed = float((~(losses < 0.005)).double().mean())
    print(
        f"{title}: {members:,} networks in {best:.3f} s = {members / best:,.0f} networks/s, "
        f"{100 * failed:.2f} % failures, MSE median {float(losses.median()):.3e}, "
        f"best {float(losses.min()):.3e}"
    )


if __name__ == "__main__":
    main()
