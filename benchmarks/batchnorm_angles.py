"""Angles after 30 layers of width 1000 on digits, by direct weights: every set-up, many runs.

    python benchmarks/batchnorm_angles.py --runs 20
    python benchmarks/batchnorm_angles.py --runs 10000 --device cuda --digits digits.npz

Needs torch and numpy alone, and nothing of this package: the oracle of what docs/batchnorm.md
states. All set-ups of a run share its weights, so rows are not independent of each other; runs are.
``--digits`` names an archive with ``data`` and ``target`` where scikit-learn is missing.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

LAYERS, WIDTH = 30, 1000
ARMS = ("rms", "full", "std")
PREPARED = ("as given", "less mean image", "columns standardized", "less mean of the batch")
CHOSEN = ("random", "first", "same of each class")
MEASURES = ("mean", "median", "before ReLU", "layer 29", "layer 31")

Prepared = dict[str, np.ndarray]


def prepare(data: np.ndarray) -> Prepared:
    """The data in every preparation. Scale is missing: without biases it changes no angle."""
    mean, deviation = data.mean(axis=0), data.std(axis=0)
    return {
        "as given": data,
        "less mean image": data - mean,
        "columns standardized": (data - mean) / np.where(deviation > 0, deviation, 1),
        "less mean of the batch": data,
    }


def choose(how: str, target: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    if how == "first":
        return np.arange(n)
    if how == "random":
        return rng.choice(len(target), n, replace=False)
    classes = [np.flatnonzero(target == c) for c in np.unique(target)]
    return np.concatenate([rng.choice(c, n // len(classes), replace=False) for c in classes])


def normalize(z: torch.Tensor, arm: str) -> torch.Tensor:
    """Over the batch, axis -2."""
    if arm == "rms":
        return z / z.square().mean(-2, keepdim=True).sqrt()
    mean = z.mean(-2, keepdim=True)
    deviation = (z - mean).square().mean(-2, keepdim=True).sqrt()
    return (z - mean if arm == "full" else z) / deviation


def angles(state: torch.Tensor) -> torch.Tensor:
    """All pairs i < j, degrees: (..., pairs)."""
    unit = state / state.norm(dim=-1, keepdim=True)
    i, j = torch.triu_indices(state.shape[-2], state.shape[-2], 1, device=state.device)
    return (unit @ unit.mT)[..., i, j].clamp(-1, 1).arccos().rad2deg()


def simulate(batches: dict[int, torch.Tensor], device: str) -> dict[int, np.ndarray]:
    """batches[n]: (set-ups, runs, n, d) -> (arms, set-ups, runs, measures)."""
    states = {n: x.expand(len(ARMS), *x.shape) for n, x in batches.items()}
    runs, inputs = next(iter(batches.values())).shape[1::2]
    found: dict[int, dict[str, torch.Tensor]] = {n: {} for n in batches}
    for layer in range(1, LAYERS + 2):
        fan_in = inputs if layer == 1 else WIDTH
        weights = torch.randn(runs, fan_in, WIDTH, dtype=torch.float64, device=device)
        for n, state in states.items():
            z = state @ (weights * (2 / fan_in) ** 0.5)
            z = torch.stack([normalize(z[a], arm) for a, arm in enumerate(ARMS)])
            states[n] = z.relu()
            if layer == LAYERS:
                found[n]["before ReLU"] = angles(z).mean(-1)
                after = angles(states[n])
                found[n]["mean"], found[n]["median"] = after.mean(-1), after.quantile(0.5, dim=-1)
            elif layer >= LAYERS - 1:
                found[n][f"layer {layer}"] = angles(states[n]).mean(-1)
    return {n: torch.stack([f[m] for m in MEASURES], -1).cpu().numpy() for n, f in found.items()}


def measure(
    data: np.ndarray, target: np.ndarray, runs: int, chunk: int, device: str, seed: int
) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    ways = prepare(data)
    parts: dict[int, list[np.ndarray]] = {10: [], 100: []}
    for start in range(0, runs, chunk):
        count = min(chunk, runs - start)
        batches = {}
        for n in parts:
            rows = {h: [choose(h, target, n, rng) for _ in range(count)] for h in CHOSEN}
            x = np.stack([ways[p][rows[h]] for p in PREPARED for h in CHOSEN])
            last = x[-len(CHOSEN) :]  # less the mean of the batch
            x[-len(CHOSEN) :] = last - last.mean(axis=-2, keepdims=True)
            batches[n] = torch.tensor(x, dtype=torch.float64, device=device)
        for n, values in simulate(batches, device).items():
            parts[n].append(values)
    return {n: np.concatenate(p, axis=2) for n, p in parts.items()}


def table(found: dict[int, np.ndarray]) -> str:
    header = ["statistic", "n", "digits", "chosen", "mean", "error", "sd of a run", "5 %", "95 %"]
    lines = [" | ".join([*header, *MEASURES[1:]]), " | ".join(["---"] * 13)]
    for a, arm in enumerate(ARMS):
        for n, values in found.items():
            for s in range(values.shape[1]):
                v = values[a, s]
                run = v[:, 0]
                sd = run.std(ddof=1)
                numbers = [run.mean(), sd / len(run) ** 0.5, sd, *np.quantile(run, (0.05, 0.95))]
                numbers += list(v[:, 1:].mean(axis=0))
                names = [arm, str(n), PREPARED[s // len(CHOSEN)], CHOSEN[s % len(CHOSEN)]]
                lines.append(" | ".join(names + [f"{x:.3f}" for x in numbers]))
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=0, help="runs at once (0: by device)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--digits", help="archive with data and target instead of scikit-learn's")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.digits:
        data, target = (np.load(given.digits)[k] for k in ("data", "target"))
    else:
        from sklearn.datasets import load_digits

        data, target = map(np.asarray, load_digits(return_X_y=True))
    chunk = given.chunk or (1 if given.device == "cpu" else 50)
    began = time.perf_counter()
    found = measure(data.astype(float), target, given.runs, chunk, given.device, given.seed)
    print(f"{given.runs} runs, {time.perf_counter() - began:.0f} s on {given.device}\n")
    print(table(found))


if __name__ == "__main__":
    main()
