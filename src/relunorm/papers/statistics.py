"""The statistical tests that limits of claims refer to, each at the level `LEVEL`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: A difference is believed if a test gives it at most this probability; fixed before any run.
LEVEL = 0.05


def more_often(larger: Sequence[float], smaller: Sequence[float]) -> tuple[float, float]:
    """One-sided sign test of paired runs: the p of "the first is larger", and of the opposite.

    Five pairs that all agree give 1/32, below the level; four do not.

    >>> more_often([2, 3, 4, 5, 6], [1, 1, 1, 1, 1])
    (0.03125, 1.0)
    """
    from scipy.stats import binomtest

    gaps = np.asarray(larger, dtype=np.float64) - np.asarray(smaller, dtype=np.float64)
    up, down = int((gaps > 0).sum()), int((gaps < 0).sum())
    if up + down == 0:
        return 1.0, 1.0
    pair = (binomtest(k, up + down, alternative="greater").pvalue for k in (up, down))
    first, second = (float(p) for p in pair)
    return first, second


def share_above(hits: int, trials: int, chance: float) -> float:
    """Binomial test of "the share is above chance", one-sided p; 1 without trials.

    >>> share_above(9, 10, 0.5) < 0.05 < share_above(7, 10, 0.5)
    True
    """
    from scipy.stats import binomtest

    return float(binomtest(hits, trials, chance, "greater").pvalue) if trials else 1.0
