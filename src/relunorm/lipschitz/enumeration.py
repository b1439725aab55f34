"""Exact constants by listing every region: the largest norm over all Jacobians."""

from __future__ import annotations

import time

import numpy as np

from relunorm.domain import Domain
from relunorm.lipschitz.norms import operator_norms
from relunorm.lipschitz.search import at_point
from relunorm.lipschitz.windows import windows
from relunorm.matrix import Vector
from relunorm.network import Network
from relunorm.regions.tree import FAILURES, STARTED, run

METHOD = "enumeration"

#: Regions listed between two looks at the clock.
CHUNK = 4096


def enumeration(
    network: Network,
    domain: Domain | None = None,
    norm: float = 2.0,
    time_limit: float | None = None,
) -> tuple[float, Vector, float, bool]:
    """The Lipschitz constant as (lower, witness, upper, finished), every region visited.

    Exact once finished (for a ball: of its bounding box); before that ``upper`` is infinite. Costs
    one visit per region: the sign tree without pruning.
    """
    deadline = np.inf if time_limit is None else time.monotonic() + time_limit
    best, witness, upper, done = 0.0, np.zeros(network.input_size), 0.0, True
    for window in windows(network, domain):
        d, _, units, outputs = (int(n) for n in window.net.shape)
        state = window.state()
        patterns = np.zeros((CHUNK, (units + 7) // 8), np.uint8)
        points, maps = np.zeros((CHUNK, d)), np.zeros((CHUNK, outputs * (d + 1)))
        while time.monotonic() <= deadline and state.at[STARTED] != 2:
            found = run(window.net, state, patterns, points, maps)
            if not found:
                break
            jacobians = maps[:found].reshape(found, outputs, d + 1)[:, :, :d] * window.rates
            values = operator_norms(jacobians, norm)
            top = int(np.argmax(values))
            upper = max(upper, float(values[top]))
            x = window.to_input(points[top])
            if x is not None and (domain is None or domain.contains(x, 1e-12)[0]):
                value = at_point(network, x, norm)
                if value > best:
                    best, witness = value, x
        done = done and state.at[STARTED] == 2 and not state.at[FAILURES]
    return best, witness, upper * (1 + 1e-12) if done else np.inf, done
