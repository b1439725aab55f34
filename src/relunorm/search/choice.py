"""Which cut to make at a node, compiled.

While more than ``theta`` units are open a coordinate is halved, then units are decided.
Among cuts of one kind the one with the largest predicted gain is made: its score at the bound's
maximiser times the gain per score that cuts of this unit or coordinate have had so far; while
little is known of a cut it is tried first (reliability branching, Achterberg et al. 2005).
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.kernel import part


@part
def scores(node, d, m, real, jump, lam, z, y, v, score):  # type: ignore[no-untyped-def]
    """What each open unit, and behind them each coordinate, may cost the bound.

    A unit: the height of its line over the unit itself at the maximiser, and a share of the whole
    triangle; for a step, how far its value moves the bound. A coordinate of the domain (the first
    ``real`` ones): its share in the widths of the triangles.
    """
    lo, hi, T, low, high = node.lo, node.hi, node.rows, node.low, node.high
    for j in range(m):
        if low[j] >= 0.0 or high[j] <= 0.0:
            score[j] = 0.0
            continue
        triangle = abs(lam[j]) * high[j] * -low[j] / (high[j] - low[j])
        score[j] = max(lam[j] * (y[j] - max(z[j], 0.0)), 0.0) + 1e-2 * triangle
        value_at = jump[int(node.units[j])]
        if value_at >= 0:
            score[j] += abs(v[value_at]) * (hi[value_at] - lo[value_at])
    for k in range(real, d):
        score[m + k] = 0.0
    for k in range(real):
        width = hi[k] - lo[k]
        total = 1e-3 * abs(v[k]) * width
        if width > 0.0:
            for j in range(m):
                if low[j] >= 0.0 or high[j] <= 0.0:
                    continue
                w = high[j] - low[j]
                share = min(abs(T[j, k]) * width / w, 1.0)
                total += abs(lam[j]) * high[j] * -low[j] / w * share
        score[m + k] = total if width > 0.0 else 0.0


@part
def promise(node, m, first, last, units, score, learned, rank):  # type: ignore[no-untyped-def]
    """Predicted gain of every cut: the product over both sides of score times learned ratio."""
    kind = len(learned) - 3 + (0 if first == 0 else 1)
    for i in range(first, last):
        name = int(node.units[i]) if i < m else units + i - m
        value = 1.0
        for side in range(2):
            who = name if learned[name, side, 1] > 0.0 else kind
            total, count = learned[who, side, 0], learned[who, side, 1]
            ratio = total / count if count > 0.0 else 1.0
            value *= max(ratio, 1e-3) * score[i]
        rank[i] = value if score[i] > 0.0 else -1.0


@part
def learn(node, m, i, units, learned, side, gain):  # type: ignore[no-untyped-def]
    """Keep a measured gain, in shares of the score, for the cut and for its kind."""
    name = int(node.units[i]) if i < m else units + i - m
    for who in (name, len(learned) - 3 + (0 if i < m else 1)):
        learned[who, side, 0] += gain
        learned[who, side, 1] += 1.0


@part
def patience(node, d, theta, sides):  # type: ignore[no-untyped-def]
    """How many units may be open before they are decided: more in small boxes.

    Where many kinks meet in a point or along a face no box around it separates them. From three
    halvings of every side on, two more double the threshold.
    """
    halvings = 0.0
    for k in range(d):
        if node.hi[k] > node.lo[k]:
            halvings += np.log2(sides[k] / (node.hi[k] - node.lo[k]))
    return theta * 2.0 ** max(halvings / (2.0 * d) - 1.5, 0.0)


@part
def matters(score, n):  # type: ignore[no-untyped-def]
    """Whether some unit has a score."""
    highest = 0.0
    for j in range(n):
        highest = max(highest, score[j])
    return highest > 0.0
