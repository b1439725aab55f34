"""How far inputs can move before the class changes: proved radii of some rows of the data."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile, zip_longest
from typing import Any

import numpy as np

from relunorm.clock import Clock
from relunorm.display.shown import counted, plain
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.questions.certify import certify
from relunorm.questions.robustness import Robustness, RowRobustness
from relunorm.report.case import Case
from relunorm.report.numbers import Kind
from relunorm.report.registry import NotAsked

#: Rows that are certified, at most, and how many at least share the time.
MOST_ROWS, SHARING = 100, 8
#: Of the rows with the smallest margins so many are looked at more closely; so many are certified.
CANDIDATES, NEAREST = 64, 12
#: Rows that are listed one by one.
LISTED = 12
#: The width of an interval of radii that is narrow enough for a page.
TOLERANCE = 0.05
#: Work of one pass, in multiplications, above which a row does not end in its share of the time.
MOST_WORK = 20_000_000


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`certify` without a radius: for each row an interval around the largest safe one.

    In turn a row of a random sample, which the shares and the median are about, and one of those
    whose class changes nearest by, for the weakest rows. Where inputs have very different scales,
    in units of each input's own spread.
    """
    if case.x is None:
        raise NotAsked("no data was given: robustness is that of the rows of a table")
    if case.y is None:
        raise NotAsked(
            "no target was given: for a classifier name the column that holds the classes, for a "
            "regression ask relunorm certify with --delta"
        )
    if case.classes is None:
        raise NotAsked(
            "the target holds no classes: for a regression ask relunorm certify with --delta"
        )
    outputs = case.network(case.x)
    decided = case.classes.decided(outputs)
    if decided is None:
        raise InvalidInputError("the classes of the target do not match the outputs")
    if case.network.parameters > MOST_WORK:
        raise InvalidInputError("the network is too large to certify rows beside the other parts")
    case.network.check_decides("ask about what comes before with network.without_head()")
    network = case.network.without_head()  # the class is the same; labels are its numbers
    scaled = _scales_differ(case.x)
    scale = _spreads(case.x) if scaled else None
    clock = Clock(seconds)
    sample = np.random.default_rng(0).permutation(len(case.x))[:MOST_ROWS].tolist()
    near = _nearest(network, case.x, outputs, decided == case.y, scale)
    rows: dict[int, RowRobustness] = {}
    for k in dict.fromkeys(k for pair in zip_longest(near, sample) for k in pair if k is not None):
        share = clock.left() / max(SHARING - len(rows), 1)
        one = certify(
            network, case.x[[k]], label=case.y[[k]], scale=scale, time_limit=share,
            tolerance=TOLERANCE,
        ).rows[0]  # fmt: skip
        rows[k] = replace(one, row=k)
        if clock.expired():
            break
    picks = list(takewhile(lambda k: k in rows, sample))  # later ones are there for being near
    found = Robustness(tuple(rows[k] for k in picks), np.inf, None, clock.elapsed())
    every: Kind = "bound" if len(picks) == case.rows else "estimate"
    side = {"side": "lower"} if every == "bound" else {}
    weakest = sorted(rows.values(), key=lambda row: (row.radius[1], row.radius[0]))
    # a wrong row is safe nowhere, as on the curve
    certified = sum(row.correct and row.radius[0] > 0 for row in found.rows)
    return {
        "norm": "inf",
        "rows": {"kind": "exact", "value": len(found.rows), "of": case.rows},
        "nearest": {"kind": "exact", "value": len(rows) - len(picks)},
        "certified": {"kind": "exact", "value": certified},
        "median": {"kind": every, "value": plain(found.half_safe), **side},
        "curve": {"kind": every, "rows": plain(found.curve())},
        "weakest": {
            "kind": "bound",
            "rows": [_row(row, case.row(row.row)) for row in weakest[:LISTED]],
        },
        "scales_differ": scaled,
        "partial": _missing(list(rows.values())),
    }


def _missing(rows: list[RowRobustness]) -> str:
    """What is not known of the rows that were looked at."""
    unsafe = sum(row.correct and not row.radius[0] > 0 for row in rows)
    unended = sum(row.verdict == "unknown" for row in rows)
    if unsafe and unsafe == sum(row.correct for row in rows):
        return "no row could be certified in the time given"
    if unsafe:
        return f"{unsafe} of {counted(len(rows), 'row')} could not be certified in the time given"
    return (
        f"{unended} of {counted(len(rows), 'row')} {'has' if unended == 1 else 'have'} no upper end"
        if unended
        else ""
    )


def _nearest(
    network: Network,
    inputs: np.ndarray,
    outputs: np.ndarray,
    right: np.ndarray,
    scale: np.ndarray | None,
) -> list[int]:
    """Rows that are right and whose class changes nearest by, to first order."""
    at = np.arange(len(outputs))
    ranked = np.argsort(outputs, axis=1)
    margins = np.abs(outputs[:, 0])
    if outputs.shape[1] > 1:
        margins = outputs[at, ranked[:, -1]] - outputs[at, ranked[:, -2]]
    picks = np.argsort(np.where(right, margins, np.inf), kind="stable")[:CANDIDATES]
    picks = picks[right[picks]]
    if not len(picks):
        return []
    slopes = network.jacobian(inputs[picks]) * (1.0 if scale is None else scale)
    rows = np.arange(len(picks))
    steepest = slopes[rows, ranked[picks, -1]]
    if outputs.shape[1] > 1:
        steepest = steepest - slopes[rows, ranked[picks, -2]]
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # where it is flat, the margin says nothing
        distance = np.nan_to_num(margins[picks] / np.abs(steepest).sum(axis=1), posinf=np.inf)
    return picks[np.argsort(distance, kind="stable")[:NEAREST]].tolist()


def _row(row: RowRobustness, number: int) -> dict[str, Any]:
    low, high = row.radius
    return {
        "row": number,
        "label": row.label,
        "correct": row.correct,
        "safe": plain(low),
        "attacked": plain(high),
    }


def _scales_differ(x: np.ndarray) -> bool:
    """Whether a step that is small for one input is large for another."""
    spread = _deviations(x)
    moving = np.sort(spread[spread > 0])
    return bool(len(moving) > 1 and moving[-1] > 20 * moving[(len(moving) - 1) // 2])


def _spreads(x: np.ndarray) -> np.ndarray:
    """Each input's standard deviation; the median of all for constant ones."""
    spread = _deviations(x)
    spread[spread == 0] = np.median(spread[spread > 0])
    return spread


def _deviations(x: np.ndarray) -> np.ndarray:
    """Each input's standard deviation; 0 for constant ones, whatever their mean is rounded to."""
    return np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 0.0)
