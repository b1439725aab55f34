"""The outputs along one line, piece by piece; of one input, the whole function."""

from __future__ import annotations

from typing import Any

import numpy as np

from relunorm.display.shown import counted, plain
from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.regions.lines import Line, along
from relunorm.report.case import Case
from relunorm.report.numbers import quantity
from relunorm.report.plane import Array, main_direction, printed

#: Numbers the profile may hold at once: breakpoints times the widest value.
MAX_VALUES = 1 << 27
#: Breakpoints that are printed, at most.
MAX_PRINTED = 4000


def compute(case: Case, seconds: float) -> dict[str, Any]:
    """`along` the main direction of the data or the domain."""
    network = case.few_outputs
    start, end, words = main_direction(case)
    _check_size(network, start, end)
    found = along(network, start, end)
    length = float(np.linalg.norm(end - start))
    at = found.points()[:, 0] if network.input_size == 1 else found.breakpoints * length
    step = -(-len(at) // MAX_PRINTED)
    picks = np.unique(np.append(np.arange(0, len(at), step), len(at) - 1))
    short = f"{found.merged:,} shorter than 1e-10 of the line are left out" if found.merged else ""
    pieces, distinct = (
        quantity(count, "bound", short, "lower")
        if short
        else quantity(count, "exact" if found.certain else "estimate")
        for count in (len(found), found.distinct)
    )
    return {
        "words": words,
        "one_input": network.input_size == 1,
        "start": {"kind": "exact", "values": printed(start)},
        "end": {"kind": "exact", "values": printed(end)},
        "pieces": pieces,
        "distinct": distinct,
        "knots": {
            "kind": "exact",
            "at": plain(at[picks]),
            "values": plain(found.values[picks]),
            "layer": _layers(found)[picks].tolist(),
            "every": step,
        },
        "layers": {"kind": "exact", "rows": _rows(case)},
    }


def _check_size(network: Network, start: Array, end: Array) -> None:
    """Refuse a line that many units change along: the values at all breakpoints are held at once.

    Units that differ between the ends are counted; those that change and change back are not, so
    this is a guess within a factor.
    """
    changed = sum(
        int(((z[0] > 0) != (z[1] > 0)).sum()) for z in network.preactivations([start, end])
    )
    values = (2 * changed + 2) * max(network.widths)
    if values > MAX_VALUES:
        raise InvalidInputError(
            f"{counted(changed, 'unit')} change between the ends of the line, and the pieces "
            f"would hold about {values:,} values at once"
        )


def _layers(line: Line) -> np.ndarray:
    """For every breakpoint the first layer (counted from 1) that changes there; 0 for the ends."""
    ends = np.cumsum([line.network.layers[i].width for i in line.network.hidden])
    first = [int(units[0]) if len(units) else -1 for units in line.crossings()]
    inner = [
        0 if unit < 0 else int(np.searchsorted(ends, unit, side="right")) + 1 for unit in first
    ]
    return np.array([0, *inner, 0])


def _rows(case: Case) -> list[dict[str, Any]]:
    layers = [case.network.layers[i] for i in case.network.hidden]
    return [{"name": layer.name, "width": layer.width} for layer in layers[:200]]
