"""The one criterion of all engines for when a unit has a sign on a cell (docs/regions.md)."""

from __future__ import annotations

#: A sign must be taken this far from the unit's hyperplane to count, in half-widths of the box.
TOLERANCE = 1e-10
#: Rounding of a sum, relative to the sum of its absolute terms.
ROUNDING = 32 * 2.0**-52
