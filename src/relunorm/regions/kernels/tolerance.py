"""The one criterion of all engines for when a unit has a sign on a cell (docs/regions.md)."""

from __future__ import annotations

#: A sign must be taken this far from the unit's hyperplane to count, in half-widths of the box.
TOLERANCE = 1e-10
#: Rounding of a sum, relative to the sum of its absolute terms.
ROUNDING = 32 * 2.0**-52


def quiet(dimension: int) -> float:
    """How far a form at a corner may be on the wrong side by rounding alone, like `ROUNDING`.

    4 d^2 units in the last place, which is what the interpolations behind a corner leave, but not
    more than `ROUNDING`. What reaches farther, and not as far as the tolerance, is a cell too thin
    to be listed.
    """
    return min(4.0 * dimension * dimension * 2.0**-52, ROUNDING)
