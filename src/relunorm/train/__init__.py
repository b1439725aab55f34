"""Training in the reduced parameter space: unit rows, thresholds in the support interval.

What the reduced space buys is compactness: it can be sampled so that every unit is live, gridded,
and searched greedily. Each solver is one file; all of them share one batched engine.
"""

from __future__ import annotations
