"""A picture of claims that have no other: how far each number is on which side of its limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relunorm.papers.claim import Check, Claim
from relunorm.papers.exhibit import empty_figure


def margin(check: Check) -> float:
    """The distance of a number from its limit as a share of the larger of the two, 1 at most,
    positive where the check passes; a little at least, so that a bar shows; -1 for NaN.

    >>> margin(Check("x", 1.0, "<=", 4.0)), margin(Check("x", 4.0, "<=", 1.0))
    (0.75, -0.75)
    """
    value, limit = float(check.value), float(check.limit)
    if check.relation == "=":
        value, limit = abs(value - limit), float(check.tolerance)
    scale = max(abs(value), abs(limit))
    if not np.isfinite(scale):
        return 1.0 if check.passed else -1.0
    share = abs(value - limit) / scale if scale else 0.0
    share = min(1.0, max(share, 0.02))
    return share if check.passed else -share


def draw_margins(claims: Sequence[Claim]) -> Any:
    """One bar per check: right of the line it passes, left of it it fails."""
    bars = []
    for claim in claims:
        bars.append((claim.item, margin(claim.check), "as printed"))
        if claim.corrected_check is not None:
            bars.append(("", margin(claim.corrected_check), "corrected"))
    figure, (ax,) = empty_figure((8, 0.9 + 0.26 * len(bars)))
    places = -np.arange(len(bars))
    for kind, color in (("as printed", "C0"), ("corrected", "C1")):
        own = [k for k, bar in enumerate(bars) if bar[2] == kind]
        ax.barh(places[own], [bars[k][1] for k in own], color=color, label=kind)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(places, [bar[0] for bar in bars], fontsize=8)
    ax.set(xlim=(-1.05, 1.05), xlabel="fails    |    distance from the limit    |    passes")
    ax.legend(fontsize=8, loc="lower right")
    return figure
