"""A model and rows that do not fit together: whether they do, and what would make them fit.

Columns in another order, inputs that were scaled in training and are not here, classes or targets
in another order, targets in other units: the answers are then no better than one that looks at no
input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import plain
from relunorm.report.case import Case

Array = NDArray[np.float64]

#: An R2 below this is hardly better than that of the mean.
HARDLY = 0.1
#: Columns up to which every order of them is tried, and rows that are tried, at most.
ORDERED, TRIED = 5, 500
#: With fewer rows one of so many changes fits by chance, and none is tried.
FEWEST = 30
#: Of what is wrong at the baseline so much must become right for a remedy to be named.
GAIN = 0.5
#: The share of rows from which on a class is so common that a weak model answers nothing else.
COMMON = 0.8
#: How far the mean share found of a class may be above chance for answers that say nothing.
CHANCE = 1.2


def of_classes(table: NDArray[np.intp], case: Case) -> dict[str, Any] | None:
    """Whether always answering the commonest class is as good, of a table of confusions.

    A model that finds the classes more often than chance, or that gives rare ones up for a class
    which most rows have, is no misfit but weak, unless something that was tried makes it fit.
    """
    rows, right, most = table.sum(), np.trace(table), table.sum(axis=1).max()
    if right == rows or right > most:
        return None
    there = table.sum(axis=1) > 0
    balanced = (np.diag(table)[there] / table.sum(axis=1)[there]).mean()
    x, y = _some_rows(case)
    truth = y.astype(np.intp)
    baseline = np.bincount(truth).max() / len(truth)
    remedy = _remedy(_answers(case, x), lambda said: _accuracy(case, said, truth), baseline)
    remedy = remedy or _remedy(_orders_of_classes(case, x, truth), lambda share: share, baseline)
    whole = bool(balanced <= CHANCE / there.sum())
    if remedy is None and (not whole or _gives_rare_ones_up(table)):
        return None
    return {"kind": "estimate", "whole": whole, "remedy": remedy}


def _gives_rare_ones_up(table: NDArray[np.intp]) -> bool:
    """Whether most rows have one class, and nearly all of them are answered so."""
    labels, answers, common = table.sum(axis=1), table.sum(axis=0), table.sum(axis=1).argmax()
    return bool(min(labels[common], answers[common]) >= COMMON * table.sum())


def of_numbers(errors: list[dict[str, Any]], case: Case) -> dict[str, Any] | None:
    """Whether always answering the mean is better, of some output or (``whole``) of every one.

    Or hardly worse, and something that was tried makes the model fit.
    """
    known = [row["r2"] for row in errors if row["r2"] is not None]
    if not any(r2 < HARDLY for r2 in known):
        return None
    x, y = _some_rows(case)
    truth = y.reshape(len(y), -1)
    remedy = _remedy(
        _answers(case, x), lambda said: _worst_r2(_said(case, said, truth), truth), 0.0
    )
    remedy = remedy or _remedy(_other_targets(case, x, truth), lambda r2: r2, 0.0)
    if remedy is None and not any(r2 < 0 for r2 in known):
        return None
    return {"kind": "estimate", "whole": all(r2 < HARDLY for r2 in known), "remedy": remedy}


def _some_rows(case: Case) -> tuple[Array, Array]:
    """Rows from all over the table, which may be sorted, and their targets."""
    assert case.x is not None
    assert case.y is not None
    picks = np.unique(np.linspace(0, len(case.x) - 1, min(len(case.x), TRIED)).astype(int))
    return case.x[picks], case.y[picks]


def _remedy(
    tried: Iterator[tuple[str, Any]], score: Callable[[Any], float], baseline: float
) -> dict[str, Any] | None:
    """What helps most, if it makes the model fit."""
    best, words = max(((score(found), words) for words, found in tried), default=(-np.inf, ""))
    if not best >= baseline + GAIN * (1 - baseline):
        return None
    return {"words": words, "score": plain(best)}


def _answers(case: Case, x: Array) -> Iterator[tuple[str, Array]]:
    """What the network says of rows as it may have been trained on them."""
    if len(x) >= FEWEST:
        for words, rows in _changes(case, x):
            yield words, case.network(rows)


def _orders_of_classes(
    case: Case, x: Array, truth: NDArray[np.intp]
) -> Iterator[tuple[str, float]]:
    """The share that is right with the classes in the order that suits the answers best."""
    assert case.classes is not None
    table = _confusions(case, case.network(x), truth)
    if case.classes.guessed or len(x) < FEWEST:
        return
    labels, outputs = _assigned(table)
    order = ", ".join(case.classes.names[k] for k in labels[np.argsort(outputs)])
    yield f"the classes stand in the order {order}", float(table[labels, outputs].sum() / len(x))


def _other_targets(case: Case, x: Array, truth: Array) -> Iterator[tuple[str, float]]:
    """R2 with the targets in another order, or in other units."""
    if len(x) < FEWEST:
        return
    said, width = _said(case, case.network(x), truth), truth.shape[1]
    if 1 < width <= ORDERED:
        for order in list(permutations(range(width)))[1:]:
            names = ", ".join(case.output_name(k) or str(k) for k in order)
            yield f"the targets stand in the order {names}", _worst_r2(said, truth[:, order])
    slope = ((said - said.mean(axis=0)) * (truth - truth.mean(axis=0))).mean(axis=0)
    slope /= np.where(said.var(axis=0) > 0, said.var(axis=0), 1.0)
    shift = truth.mean(axis=0) - slope * said.mean(axis=0)
    rates = ", ".join(f"{rate:.3g}" for rate in slope[:4])
    words = f"the target is counted in other units (about {rates} times the output)"
    yield words, _worst_r2(slope * said + shift, truth)


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


def _accuracy(case: Case, outputs: Array, truth: NDArray[np.intp]) -> float:
    assert case.classes is not None
    table = _confusions(case, outputs, truth)
    # of a guess the order of the classes is not known, either
    right = table[_assigned(table)].sum() if case.classes.guessed else np.trace(table)
    return float(right / len(truth))


def _confusions(case: Case, outputs: Array, truth: NDArray[np.intp]) -> NDArray[np.intp]:
    """How often each label gets each answer; nothing where outputs are no answers."""
    assert case.classes is not None
    count, decided = len(case.classes.names), case.classes.decided(outputs)
    table = np.zeros((count, count), dtype=np.intp)
    if decided is not None:
        np.add.at(table, (truth, decided), 1)
    return table


def _assigned(table: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The labels and the outputs that together get most rows right."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(table, maximize=True)


def _said(case: Case, outputs: Array, truth: Array) -> Array:
    said = case.network.head(outputs, case.network.output_shape)
    return np.asarray(said).reshape(truth.shape)


def _worst_r2(said: Array, truth: Array) -> float:
    """The smallest R2 of an output whose target varies."""
    varies = np.ptp(truth, axis=0) > 0
    if not varies.any() or not np.isfinite(said).all():
        return -np.inf
    rest = ((said - truth) ** 2).mean(axis=0)[varies] / truth.var(axis=0)[varies]
    return float(1 - rest.max())
