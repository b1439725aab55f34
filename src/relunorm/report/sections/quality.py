"""How well the network does on the data: right classes, or errors against the target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.display.shown import counted, plain
from relunorm.errors import InvalidInputError
from relunorm.report import misfit
from relunorm.report.case import Case
from relunorm.report.numbers import Kind
from relunorm.report.registry import NotAsked

Array = NDArray[np.float64]

#: Classes up to which every confusion is counted, and mistakes that are listed.
MAX_CLASSES, MAX_MISTAKES = 30, 12
#: Rows that are listed one by one: the least sure, or those with the largest errors.
LISTED = 12
#: Outputs of a regression that are listed, at most: those that are worst.
MAX_NUMBERS = 20
#: Bars of the histogram of margins, points of a scatter plot, and of all scatter plots.
BARS, DOTS, ALL_DOTS = 24, 600, 3000


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """Accuracy, confusion and margins of a classifier, or by label; errors of a regression."""
    if case.x is None:
        raise NotAsked("no data was given: it takes a table with the right answers")
    if case.y is None:
        raise NotAsked("no target was given: name the column that holds the right answers")
    outputs = case.network(case.x)
    if not np.isfinite(outputs).all():
        raise InvalidInputError("some outputs are beyond float64")
    kind: Kind = "exact" if case.all_rows else "estimate"
    if case.classes is not None:
        return {"on": case.inputs_in_words, **_classes(case, outputs, kind)}
    if _several_labels(case, outputs):
        return {"on": case.inputs_in_words, **_labels(case.y, outputs > 0, kind)}
    returned = case.network.head(outputs, case.network.output_shape).reshape(len(outputs), -1)
    return {"on": case.inputs_in_words, **_numbers(case, returned, kind)}


def _classes(case: Case, outputs: Array, kind: Kind) -> dict[str, Any]:
    assert case.classes is not None
    assert case.y is not None
    names = case.classes.names
    case.network.check_decides("ask about what comes before with network.without_head()")
    if case.classes.guessed:  # nobody said which output speaks for which class
        kind = "estimate"
    decided = case.classes.decided(outputs)
    if decided is None:
        count = "1 class" if len(names) == 1 else f"{len(names):,} classes"
        heads = counted(outputs.shape[1], "output")
        raise InvalidInputError(
            f"the target has {count} and the network {heads}: counting right answers takes several "
            "classes with one output for each, or two classes and one output"
        )
    truth = case.y.astype(np.intp)
    right = decided == truth
    table = np.zeros((len(names), len(names)), dtype=np.intp)
    np.add.at(table, (truth, decided), 1)
    margins, second = _margins(outputs, decided)
    return {
        "type": "classes",
        "accuracy": {"kind": kind, "right": int(right.sum()), "rows": len(right)},
        "baseline": {"kind": "exact" if case.all_rows else "estimate", **_commonest(table)},
        "answers": {"kind": "exact", "different": len(np.unique(decided))},
        "recall": {"kind": kind, **_recall(table)},
        "misfit": misfit.of_classes(table, case),
        "rule": "largest" if outputs.shape[1] > 1 else "sign",
        "confusion": {
            "kind": kind,
            "rows": table.tolist() if len(names) <= MAX_CLASSES else None,
            "mistakes": _mistakes(table),
        },
        "margins": {"kind": kind, **_histogram(margins, right)},
        "unsure": {
            "kind": "exact",
            "rows": [
                {
                    "row": case.row(k),
                    "label": int(truth[k]),
                    "answer": int(decided[k]),
                    "next": int(second[k]),
                    "margin": plain(margins[k]),
                }
                for k in np.argsort(margins, kind="stable")[:LISTED]
            ],
        },
    }


def _commonest(table: NDArray[np.intp]) -> dict[str, Any]:
    """The class that most rows have: how many are right if it is always answered."""
    rows = table.sum(axis=1)
    return {"label": int(rows.argmax()), "right": int(rows.max())}


def _recall(table: NDArray[np.intp]) -> dict[str, Any]:
    """Which share of each class is found, the worst first, and the mean of these shares."""
    rows, right, said = table.sum(axis=1), np.diag(table), table.sum(axis=0)
    there = np.flatnonzero(rows)
    share = right[there] / rows[there]
    worst = there[np.argsort(share, kind="stable")][:MAX_CLASSES]
    return {
        "balanced": plain(share.mean()),
        "rows": [
            {"label": int(k), "rows": int(rows[k]), "right": int(right[k]), "said": int(said[k])}
            for k in worst
        ],
    }


def _several_labels(case: Case, outputs: Array) -> bool:
    """Whether every output says yes or no for itself, and the target does so too."""
    assert case.y is not None
    each = [step.kind for step in case.network.head.steps[:1]] == ["sigmoid"]
    alike = outputs.shape == case.y.shape and outputs.shape[1] > 1
    return each and alike and bool(np.isin(case.y, (0, 1)).all())


def _labels(truth: Array, said: NDArray[np.bool_], kind: Kind) -> dict[str, Any]:
    """Of a model that may give several labels at once: rows that are right, label by label."""
    right, told = said == truth, said & (truth > 0)
    counts = zip(
        *(part.sum(axis=0).tolist() for part in (right, truth > 0, said, told)), strict=True
    )
    return {
        "type": "labels",
        "accuracy": {"kind": kind, "right": int(right.all(axis=1).sum()), "rows": len(truth)},
        "labels": {
            "kind": kind,
            "rows": [
                dict(zip(("right", "have", "said", "both"), row, strict=True))
                for row in list(counts)[:MAX_CLASSES]
            ],
        },
    }


def _margins(outputs: Array, decided: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """How far the winning output is above the next one, and which that is."""
    if outputs.shape[1] == 1:
        return np.abs(outputs[:, 0]), 1 - decided
    rest = outputs.copy()
    rest[np.arange(len(rest)), decided] = -np.inf
    second = rest.argmax(axis=1)
    at = np.arange(len(outputs))
    return outputs[at, decided] - outputs[at, second], second


def _mistakes(table: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The most frequent confusions."""
    wrong = table - np.diag(np.diag(table))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_MISTAKES]
    pairs = (np.unravel_index(at, table.shape) for at in order)
    return [
        {"label": int(i), "answer": int(j), "count": int(wrong[i, j])}
        for i, j in pairs
        if wrong[i, j]
    ]


def _histogram(margins: Array, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Margins of right and of wrong answers, counted over the same bars."""
    top = float(np.quantile(margins, 0.99)) or float(margins.max()) or 1.0
    edges = np.linspace(0.0, top, BARS + 1)
    clipped = np.minimum(margins, top)
    return {
        "edges": plain(edges),
        "right": np.histogram(clipped[right], edges)[0].tolist(),
        "wrong": np.histogram(clipped[~right], edges)[0].tolist(),
    }


def _numbers(case: Case, outputs: Array, kind: Kind) -> dict[str, Any]:
    assert case.y is not None
    truth = case.y.reshape(len(case.y), -1)
    if truth.shape[1] != outputs.shape[1]:
        raise InvalidInputError(
            f"the target has {counted(truth.shape[1], 'column')} and the network "
            f"{counted(outputs.shape[1], 'output')}, so errors cannot be counted; if the target "
            "holds classes, name them with --classes (classes= in Python)"
        )
    error = outputs - truth
    found = [_error(error[:, k], truth[:, k]) for k in range(truth.shape[1])]
    # an output whose target does not vary has no R2: it comes last
    by_r2 = sorted(range(len(found)), key=lambda k: np.inf if (r := found[k]["r2"]) is None else r)
    listed = sorted(by_r2[:MAX_NUMBERS])
    units = np.array([row["spread"] or 1.0 for row in found])  # outputs may have other units
    worst = np.argsort(-np.abs(error / units).max(axis=1), kind="stable")[:LISTED]
    dots = min(len(truth), DOTS, ALL_DOTS // len(listed))
    picks = np.unique(np.linspace(0, len(truth) - 1, dots).astype(int))
    return {
        "type": "numbers",
        "misfit": misfit.of_numbers(found, case),
        "errors": {
            "kind": kind,
            "of": len(found),
            "worst": by_r2[0],
            "rows": [{"output": k, "name": case.output_name(k), **found[k]} for k in listed],
        },
        "scatter": {
            "kind": kind,
            "rows": [
                {
                    "output": k,
                    "actual": plain(truth[picks, k]),
                    "predicted": plain(outputs[picks, k]),
                }
                for k in listed
            ],
        },
        "worst": {
            "kind": "exact",
            "rows": [_worst(case, int(k), truth, outputs, units) for k in worst],
        },
    }


def _error(error: Array, truth: Array) -> dict[str, Any]:
    rms = float(np.sqrt(np.mean(error**2)))
    varies = np.ptp(truth) > 0  # the deviation of 0.1, 0.1, ... is not 0 after rounding
    spread = float(truth.std()) if varies else 0.0
    return {
        "rms": plain(rms),
        "mean_abs": plain(np.abs(error).mean()),
        "bias": plain(error.mean()),
        "largest": plain(np.abs(error).max()),
        "spread": plain(spread),
        "r2": plain(1 - (rms / spread) ** 2) if spread > 0 else None,
    }


def _worst(case: Case, k: int, truth: Array, outputs: Array, units: Array) -> dict[str, Any]:
    at = int(np.abs((outputs[k] - truth[k]) / units).argmax())
    return {
        "row": case.row(k),
        "output": at,
        "actual": plain(truth[k, at]),
        "predicted": plain(outputs[k, at]),
    }
