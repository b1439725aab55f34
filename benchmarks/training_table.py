"""Every method on every problem with the same tuning effort: error, time and failures."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record import record
from training_figures import paper_data, score, timed
from training_peers import GP_ROWS, NEEDS, PEERS, Peer, installed

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

#: Rows to fit on and to measure on, at most, for every method.
FIT_ROWS, MEASURED_ROWS = 1000, 2000

Draw = Callable[[int], tuple[np.ndarray, ...]]
Key = tuple[str, str, int]


def peers(draws: range, wanted: list[str], cells: Path | None, measuring: bool, note: str) -> None:
    """Measure every cell that is not in the file yet, then print and record the table."""
    found = read_cells(cells)
    # one draw of everything before the next, so that a run cut short has all problems
    for draw in draws if measuring else ():
        for problem, hidden, make in problems():
            if wanted and problem not in wanted:
                continue
            for name, peer in PEERS.items():
                key = (problem, name, draw)
                if key in found or missing(peer, name, hidden, problem):
                    continue
                found[key] = measure(peer, hidden, draw, make)
                if cells is not None:
                    with cells.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([*key, found[key]]) + "\n")
                print(*key, found[key], flush=True)
    names = [p for p, _, _ in problems() if not wanted or p in wanted]
    report(found, draws, names, note)


def read_cells(cells: Path | None) -> dict[Key, dict[str, Any]]:
    """Cells of an earlier run."""
    if cells is None or not cells.exists():
        return {}
    lines = (json.loads(line) for line in cells.read_text(encoding="utf-8").splitlines())
    return {(problem, name, draw): cell for problem, name, draw, cell in lines}


def missing(peer: Peer, name: str, hidden: tuple[int, ...], problem: str) -> str:
    """Why a method has no row for a problem, or ""."""
    inputs = 1 if problem.startswith("sin") else 2
    if inputs not in peer.inputs:
        return f"{'one input' if 1 in peer.inputs else 'several inputs'} only"
    if len(hidden) > 1 and not peer.network:
        return "no layers: see the shallow problem"
    if name in NEEDS and not installed(NEEDS[name]):
        return f"{NEEDS[name]} is not installed"
    return ""


def measure(peer: Peer, hidden: tuple[int, ...], draw: int, make: Draw) -> dict[str, Any]:
    """Three settings by one hold-out, then all rows with the best; a broken fit is a failure."""
    x, y, held, truth = make(draw)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            setting, tuning = timed(lambda: tuned(peer, hidden, draw, x, y))
            model = peer.make(hidden, draw, setting)  # type: ignore[arg-type]
            _, seconds = timed(lambda: model.fit(x, y))
            train, error = score(model, x, y, held, truth)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as fault:
            return {"fault": str(fault)[:200]}
    return {
        "train": train,
        "error": error,
        "seconds": seconds,
        "tuning": tuning,
        "setting": setting,
        "failed": not error < float(np.var(truth)),
    }


def tuned(peer: Peer, hidden: tuple[int, ...], draw: int, x: np.ndarray, y: np.ndarray) -> dict:
    """The setting with the smallest error on one fifth of the rows, fitted on the others."""
    order = np.random.default_rng([draw, 1]).permutation(len(x))
    held, kept = order[: len(x) // 5], order[len(x) // 5 :]
    errors = []
    for setting in peer.settings:
        model = peer.make(hidden, draw, setting).fit(x[kept], y[kept])
        error = float(np.mean((model.predict(x[held]) - y[held]) ** 2))
        errors.append(error if np.isfinite(error) else np.inf)
    return peer.settings[int(np.argmin(errors))]


def problems() -> Iterator[tuple[str, tuple[int, ...], Draw]]:
    """Name, hidden layers and the data of a draw."""
    from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

    for d, name, hidden in (
        (1, "sin", (20,)),
        (2, "Franke", (40,)),
        (1, "sin {1,20,10,1}", (20, 10)),
        (1, "sin {1,5,5,5,5,1}", (5, 5, 5, 5)),
        (2, "Franke {2,20,10,1}", (20, 10)),
        (2, "Franke {2,10,10,10,10,1}", (10, 10, 10, 10)),
    ):
        yield name, hidden, lambda draw, d=d: paper_data(d, draw)
    x, y = load_diabetes(return_X_y=True)
    yield "diabetes", (20,), lambda draw, x=x, y=y: split(x, y, draw)
    makers = ((make_friedman1, 1.0), (make_friedman2, 100.0), (make_friedman3, 0.1))
    for number, (make, noise) in enumerate(makers, start=1):
        yield (
            f"friedman{number}",
            (20,),
            lambda draw, m=make, e=noise: split(*m(600, noise=e, random_state=draw), draw),
        )
    for path in sorted(SHARED.glob("*.npz")):
        with np.load(path) as held:
            x, y = held["x"].astype(float), held["y"].astype(float)
        yield path.stem, (20,), lambda draw, x=x, y=y: split(x, y, draw)


def split(x: np.ndarray, y: np.ndarray, draw: int) -> tuple[np.ndarray, ...]:
    """Three quarters of the rows to fit and the rest to measure, at most the numbers above."""
    order = np.random.default_rng(draw).permutation(len(x))
    count = min(FIT_ROWS, 3 * len(x) // 4)
    a, b = order[:count], order[count : count + MEASURED_ROWS]
    return x[a], y[a], x[b], y[b]


def report(found: dict[Key, dict[str, Any]], draws: range, names: list[str], note: str) -> None:
    rows, first = [], {}
    hidden_of = {name: hidden for name, hidden, _ in problems()}
    for problem in names:
        table = {}
        for name in PEERS:
            cells = [found[problem, name, d] for d in draws if (problem, name, d) in found]
            if cells:
                table[name] = middle(cells)
        ranked = sorted(table, key=lambda name: table[name][1])
        if not ranked:
            continue
        best = table[ranked[0]][1]
        first[problem] = ranked[0]
        for name, peer in PEERS.items():
            if name in table:
                train, error, fit, tuning, failed, count = table[name]
                rank = ranked.index(name) + 1
                rows.append([problem, name, train, error, error / best, rank, fit, tuning,
                             f"{failed}/{count}"])  # fmt: skip
            else:
                why = missing(peer, name, hidden_of[problem], problem) or "not measured"
                rows.append([problem, name, why, "", "", "", "", "", ""])
    header = ["problem", "method", "train MSE", "held-out MSE", "x best", "rank", "CPU s, one fit",
              "CPU s, tuning", "failures / draws"]  # fmt: skip
    record("training: peers", header, rows, f"{note} {explained(draws)}")
    wins = [[name, ", ".join(p for p in first if first[p] == name) or "-"] for name in PEERS]
    record("training: peers, who wins", ["method", "smallest median held-out error"], wins, note)


def middle(cells: list[dict[str, Any]]) -> tuple[float, float, float, float, int, int]:
    """Medians over the draws; a fit that broke counts as an infinite error."""
    kept = [[c.get(k, np.inf) for k in ("train", "error", "seconds", "tuning")] for c in cells]
    train, error, seconds, tuning = (float(v) for v in np.median(np.array(kept), axis=0))
    failed = sum(bool(cell.get("failed", True)) for cell in cells)
    return train, error, seconds, tuning, failed, len(cells)


def explained(draws: range) -> str:
    return (
        f"Medians over draws from {draws[0]} on, the same for all methods (the last column counts "
        "them). Equal effort: every method has three settings of its own main knob "
        "(training_peers.py), chosen on one fifth of the training rows and refitted on all; "
        "inputs and targets standardized; networks with the same hidden layers. At most "
        f"{FIT_ROWS:,} rows to fit and {MEASURED_ROWS:,} to measure; the Gaussian process chooses "
        f"its kernel's parameters on {GP_ROWS} rows and predicts from all. A failure is a held-out "
        "error above that of predicting the mean, or a fit that breaks."
    )
