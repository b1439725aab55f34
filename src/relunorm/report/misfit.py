"""A model and rows that do not fit together: whether they do, and what would make them fit.

Columns in another order, inputs that were scaled in training and are not here, classes in another
order: the answers are then no better than one that looks at no input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.report.case import Case
from relunorm.report.numbers import finite

Array = NDArray[np.float64]

#: Columns up to which every order of them is tried, and rows that are tried, at most.
ORDERED, TRIED = 5, 500
#: With fewer rows one of so many changes fits by chance, and none is tried.
FEWEST = 30
#: Of what is wrong at the baseline so much must become right for a remedy to be named.
GAIN = 0.5
#: How far the mean share found of a class may be above chance for answers that say nothing.
CHANCE = 1.2


def of_classes(table: NDArray[np.intp], case: Case) -> dict[str, Any] | None:
    """Whether always answering the commonest class is as good, of a table of confusions."""
    rows, right, most = table.sum(), np.trace(table), table.sum(axis=1).max()
    if right == rows or right > most:
        return None
    there = table.sum(axis=1) > 0
    balanced = (np.diag(table)[there] / table.sum(axis=1)[there]).mean()
    x, y = _some_rows(case)
    truth = y.astype(np.intp)
    baseline = np.bincount(truth).max() / len(truth)
    return {
        "kind": "estimate",
        "whole": bool(balanced <= CHANCE / there.sum()),
        "remedy": _remedy(case, x, lambda rows: _accuracy(case, rows, truth), baseline),
    }


def of_numbers(errors: list[dict[str, Any]], case: Case) -> dict[str, Any] | None:
    """Whether always answering the mean is better, of some output or (``whole``) of every one."""
    known = [row["r2"] for row in errors if row["r2"] is not None]
    if not any(r2 < 0 for r2 in known):
        return None
    x, y = _some_rows(case)
    truth = y.reshape(len(y), -1)
    return {
        "kind": "estimate",
        "whole": all(r2 < 0 for r2 in known),
        "remedy": _remedy(case, x, lambda rows: _r2(case, rows, truth), 0.0),
    }


def _some_rows(case: Case) -> tuple[Array, Array]:
    """Rows from all over the table, which may be sorted, and their targets."""
    assert case.x is not None
    assert case.y is not None
    picks = np.unique(np.linspace(0, len(case.x) - 1, min(len(case.x), TRIED)).astype(int))
    return case.x[picks], case.y[picks]


def _remedy(
    case: Case, x: Array, score: Callable[[Array], float], baseline: float
) -> dict[str, Any] | None:
    """The change of the inputs that helps most, if one makes the model fit."""
    if len(x) < FEWEST:
        return None
    tried = [(score(rows), words) for words, rows in _changes(case, x)]
    best, words = max(tried, default=(-np.inf, ""))
    if not best >= baseline + GAIN * (1 - baseline):
        return None
    return {"words": words, "score": finite(best)}


def _changes(case: Case, x: Array) -> Iterator[tuple[str, Array]]:
    """Rows as a model may have been trained on them."""
    low, width = x.min(axis=0), np.ptp(x, axis=0)
    spread = np.where(width > 0, x.std(axis=0), 1.0)
    yield "each input is standardized (mean 0, deviation 1)", (x - x.mean(axis=0)) / spread
    yield "each input is scaled to 0 to 1", (x - low) / np.where(width > 0, width, 1.0)
    yield "inputs are divided by 255", x / 255
    if x.ndim == 2 and x.shape[1] <= ORDERED:
        for order in list(permutations(range(x.shape[1])))[1:]:
            names = ", ".join(case.names[k] for k in order)
            yield f"the columns stand in the order {names}", x[:, order]


def _accuracy(case: Case, x: Array, truth: NDArray[np.intp]) -> float:
    assert case.classes is not None
    decided = case.classes.decided(case.network(x))
    if decided is None:
        return 0.0
    count = len(case.classes.names)
    table = np.zeros((count, count))
    np.add.at(table, (truth, decided), 1)
    right = np.trace(table)
    if case.classes.guessed:  # nor is the order of the classes known
        from scipy.optimize import linear_sum_assignment

        right = table[linear_sum_assignment(table, maximize=True)].sum()
    return float(right / len(truth))


def _r2(case: Case, x: Array, truth: Array) -> float:
    """The smallest R2 of an output whose target varies."""
    outputs = case.network(x)
    said = case.network.head(outputs, case.network.output_shape).reshape(truth.shape)
    varies = np.ptp(truth, axis=0) > 0
    if not varies.any() or not np.isfinite(said).all():
        return -np.inf
    rest = ((said - truth) ** 2).mean(axis=0)[varies] / truth.var(axis=0)[varies]
    return float(1 - rest.max())
