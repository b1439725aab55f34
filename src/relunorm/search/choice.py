"""Which cut to make at a node, compiled.

While more than ``theta`` units are open a coordinate is halved (`widest`), then units are decided:
the one with the largest predicted gain, its score at the bound's maximiser times the gain per score
that its cuts have had so far. While little is known of a unit its cut is tried first (reliability
branching, Achterberg et al. 2005); trying coordinates costs more than it gains.
"""

from __future__ import annotations

import numpy as np

from relunorm.bounds.nodes.kernel import part
from relunorm.search.halves import splits


@part
def scores(node, m, jump, lam, z, y, v, score):  # type: ignore[no-untyped-def]
    """What each open unit may cost the bound.

    The height of its line over the unit itself at the maximiser, and a share of the whole triangle;
    for a step, how far its value moves the bound.
    """
    lo, hi, low, high = node.lo, node.hi, node.low, node.high
    for j in range(m):
        if low[j] >= 0.0 or high[j] <= 0.0:
            score[j] = 0.0
            continue
        triangle = abs(lam[j]) * high[j] * -low[j] / (high[j] - low[j])
        score[j] = max(lam[j] * (y[j] - max(z[j], 0.0)), 0.0) + 1e-2 * triangle
        value_at = jump[int(node.units[j])]
        if value_at >= 0:
            score[j] += abs(v[value_at]) * (hi[value_at] - lo[value_at])


@part
def widest(node, d, m, real, lam, v, tilt):  # type: ignore[no-untyped-def]
    """The coordinate of the domain to be cut, or -1 where none can be.

    A product: how much a coordinate has to do with what the bound loses in open units, times how
    much it has to do with their being open. ``tilt`` gets the slopes of units by coordinates, with
    the units below them on their chords, and behind those the two sums.
    """
    lo, hi, T, low, high, steep = node.lo, node.hi, node.rows, node.low, node.high, node.steep
    lost, wide = m * real, (m + 1) * real
    for k in range(real):
        tilt[lost + k], tilt[wide + k] = 1e-3 * abs(v[k]) * (hi[k] - lo[k]), 1e-9
    for j in range(m):
        for k in range(real):
            tilt[j * real + k] = T[j, k]
        for i in range(int(node.reads[j]) + 1):
            w = T[j, d + i] * steep[i]
            if w != 0.0:
                for k in range(real):
                    tilt[j * real + k] += w * tilt[i * real + k]
        if low[j] < 0.0 and high[j] > 0.0:
            triangle = abs(lam[j]) * high[j] * -low[j] / (high[j] - low[j])
            for k in range(real):
                moved = abs(tilt[j * real + k]) * (hi[k] - lo[k])
                share = min(moved / (high[j] - low[j]), 1.0)
                tilt[lost + k] += triangle * share
                tilt[wide + k] += share
    best, most = -1, 0.0
    for k in range(real):
        score = tilt[lost + k] * tilt[wide + k]
        if splits(lo[k], hi[k]) and (best < 0 or score > most):
            best, most = k, score
    return best


@part
def promise(node, m, score, learned, rank):  # type: ignore[no-untyped-def]
    """Predicted gain of every unit: the product over both sides of score times learned ratio."""
    every = len(learned) - 2
    for i in range(m):
        value = 1.0
        for side in range(2):
            name = int(node.units[i])
            who = name if learned[name, side, 1] > 0.0 else every
            total, count = learned[who, side, 0], learned[who, side, 1]
            ratio = total / count if count > 0.0 else 1.0
            value *= max(ratio, 1e-3) * score[i]
        rank[i] = value if score[i] > 0.0 else -1.0


@part
def learn(node, i, learned, side, gain):  # type: ignore[no-untyped-def]
    """Keep a measured gain, in shares of the score, for the unit and for all units."""
    for who in (int(node.units[i]), len(learned) - 2):
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
