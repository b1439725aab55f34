"""The targets of seed 001's examples, on as many draws of the data as asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from record import record

from relunorm.papers.reduced import Experiment
from relunorm.train.regressor import ReLURegressor
from relunorm.train.solve.bound import spline_bound
from relunorm.train.solve.crossing import crossing_bound

#: The first draw of the benchmark as it is run by default; settings were chosen on draws near it.
CHOSEN_ON = 1000


@dataclass(frozen=True)
class Goal:
    """What a row has to reach; None where nothing is asked.

    Attributes:
        train, validation: medians of the mean squared error over the draws.
        seconds: CPU seconds at most, on every draw.
        failures: share of the draws that may fail.
        ratio: error over the certified bound at most, on every draw.
        peer_time: the median time may not exceed that of the row named ``bfgs``.
    """

    train: float | None = None
    validation: float | None = None
    seconds: float | None = None
    failures: float | None = None
    ratio: float | None = None
    peer_time: bool = False

    def text(self) -> str:
        parts = [
            f"train {self.train:.3g}" if self.train else "",
            f"validation {self.validation:.3g}" if self.validation else "",
            f"{self.ratio:g}x the bound" if self.ratio else "",
            f"{self.seconds:g} s" if self.seconds else "",
            "one BFGS fit's time" if self.peer_time else "",
            "" if self.failures is None else f"{100 * self.failures:g} % failures",
        ]
        return ", ".join(part for part in parts if part) or "-"

    def misses(self, table: np.ndarray, failed: int, other: float) -> str:
        """Which parts are not reached; "yes" if all are, "-" if nothing is asked."""
        train, validation, seconds = np.median(table[:, :3], axis=0)
        checks = (
            ("train", self.train, train),
            ("validation", self.validation, validation),
            ("seconds", self.seconds, table[:, 2].max()),
            ("ratio", self.ratio, table[:, 3].max() if table.shape[1] > 3 else 0.0),
            ("time", other if self.peer_time else None, seconds),
            ("failures", self.failures, failed / len(table)),
        )
        asked = [(name, found <= limit) for name, limit, found in checks if limit is not None]
        missed = [name for name, reached in asked if not reached]
        return "-" if not asked else ("no: " + ", ".join(missed) if missed else "yes")


def paper_data(d: int, draw: int) -> tuple[np.ndarray, ...]:
    """Training and validation rows of seed 001, section 5."""
    return Experiment(d, (), {}, 0).data(draw)


def timed(run: Callable[[], object]) -> tuple[object, float]:
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def score(model, x, y, held, truth) -> tuple[float, float]:
    return (
        float(np.mean((model.predict(x) - y) ** 2)),
        float(np.mean((model.predict(held) - truth) ** 2)),
    )


def figures(draws: range, wanted: list[str], note: str) -> None:
    """One table: every example of the paper, its target and whether it was reached.

    ``wanted`` limits it to some of spline, shallow and deep.
    """
    parts = {"spline": spline_rows, "shallow": shallow_rows, "deep": deep_rows}
    rows = [row for name in wanted or parts for row in parts[name](draws)]
    header = ["problem", "settings", "train MSE median (max)", "target", "reached",
              "validation median", "CPU s median (max)", "failures"]  # fmt: skip
    which = f"Draws {draws[0]} to {draws[-1]}, one fit each, the draw's number as random_state. "
    failed = "A failure leaves over 1 % of the variance."
    record("training: figures", header, rows, f"{note} {which}{failed}")


def spline_rows(draws: range) -> list[list[object]]:
    runs = (
        ("exact, 20 knots + affine", {}, 20, Goal(ratio=1.02, seconds=5.0)),
        ("exact, time_limit=0.08", {"time_limit": 0.08}, 20, Goal(ratio=2.0, seconds=0.1)),
        ("exact, 20 units of (2.10), no bias", {"skip": False}, 18, Goal(ratio=1 + 1e-6)),
        ("bfgs, 20 units + affine", {"solver": "bfgs"}, 20, Goal()),
    )
    result = []
    for name, settings, knots, goal in runs:
        table = np.array([fitted(1, (20,), draw, settings, knots) for draw in draws])
        row = summary("sin(4 pi x)", name, table, goal, 0.5)
        row[2] = f"{row[2]}; over the bound {np.median(table[:, 3]):.6g}x "
        row[2] += f"({table[:, 3].max():.6g}x)"
        result.append(row)
    return result


def shallow_rows(draws: range) -> list[list[object]]:
    runs = (
        ("bfgs", {"solver": "bfgs"}, Goal()),
        ("greedy, n_init=2", {"n_init": 2}, Goal(2.6e-5, 7e-5, peer_time=True)),
        ("greedy, default", {}, Goal()),
        ("greedy, 10 s", {"time_limit": 10.0}, Goal(1.5e-5, 7e-5)),
    )
    result, other = [], float("inf")
    for name, settings, goal in runs:
        table = np.array([fitted(2, (40,), draw, settings) for draw in draws])
        if name == "bfgs":
            other = float(np.median(table[:, 2]))
        result.append(summary("Franke {2,40,1}", name, table, goal, 0.08, other))
    return result


def deep_rows(draws: range) -> list[list[object]]:
    runs = (
        (1, (20, 10), Goal(9e-5, failures=0.0)),
        (1, (5, 5, 5, 5), Goal(7e-4, failures=0.05)),
        (2, (20, 10), Goal(3.2e-5)),
        (2, (10, 10, 10, 10), Goal(3.2e-5)),
    )
    result = []
    for d, hidden, goal in runs:
        structure = "{" + ",".join(map(str, (d, *hidden, 1))) + "}"
        label, variance = (("sin(4 pi x)", 0.5), ("Franke", 0.08))[d - 1]
        for name, settings, asked in (
            ("deep, no skip", {}, goal),
            ("lbfgs, no skip", {"solver": "lbfgs"}, Goal()),
        ):
            table = np.array(
                [fitted(d, hidden, draw, {"skip": False, **settings}) for draw in draws]
            )
            result.append(summary(f"{label} {structure}", name, table, asked, variance))
    return result


def fitted(d: int, hidden, draw: int, settings: dict, knots: int = 0) -> tuple[float, ...]:
    """Train error, validation error, seconds and, for a number of knots, error over the bound."""
    x, y, held, truth = paper_data(d, draw)
    model = ReLURegressor(hidden=hidden, random_state=draw, **settings)
    _, seconds = timed(lambda: model.fit(x, y))
    train, validation = score(model, x, y, held, truth)
    if not knots:
        return train, validation, seconds
    return train, validation, seconds, train / certified(x[:, 0], y, knots)


@cache
def _bound(x: bytes, y: bytes, knots: int) -> float:
    rows = np.frombuffer(x), np.frombuffer(y)
    weight = np.ones(len(rows[0]))
    best = ReLURegressor(hidden=knots, random_state=0).fit(rows[0][:, None], rows[1])
    upper = float(np.square(best.predict(rows[0][:, None]) - rows[1]).sum())
    found = crossing_bound(*rows, weight, knots, (1 + 1e-9) * upper)
    plain = spline_bound(*rows, weight, knots).value
    return (plain if found is None else found.value) / len(weight)


def certified(x: np.ndarray, y: np.ndarray, knots: int) -> float:
    """Mean squared error that no spline with so many knots can beat."""
    order = np.argsort(x)
    return _bound(x[order].tobytes(), y[order].tobytes(), knots)


def summary(
    problem: str, name: str, table: np.ndarray, goal: Goal, variance: float, other: float = 0.0
) -> list[object]:
    train, validation, seconds = np.median(table[:, :3], axis=0)
    failures = int((~(table[:, 0] <= 0.01 * variance)).sum())
    row: list[object] = [
        problem,
        name,
        f"{train:.3e} ({table[:, 0].max():.3e})",
        goal.text(),
        goal.misses(table, failures, other),
        f"{validation:.3e}",
        f"{seconds:.3f} ({table[:, 2].max():.3f})",
        f"{failures}/{len(table)}",
    ]
    print(row, flush=True)
    return row
