"""Good points early: gradient-sign ascent from many starts at once."""

from __future__ import annotations

import numpy as np

from relunorm.domain import Ball, Box
from relunorm.domain.base import lengths
from relunorm.extrema.problem import Search, project

#: Starts and steps of the ascent.
STARTS, STEPS = 64, 12


def ascend(search: Search, random_state: int | np.random.Generator | None = 0) -> None:
    """Improve ``search.lower``: an estimate from below for a few passes through the net.

    On a box each start jumps to the corner its gradient points to, then half-way back and so on; on
    other domains it walks along the gradient with shrinking steps.
    """
    rng = np.random.default_rng(random_state)
    domain, network = search.domain, search.network
    points = np.concatenate([domain.center[None], domain.sample(STARTS, rng)])
    search.offer(points)
    half = domain.bounding_box.halfwidth
    for step in range(STEPS):
        gradient = network.jacobian(points)[:, 0]
        if isinstance(domain, Box):
            corner = np.where(gradient > 0, domain.hi, domain.lo)
            corner = np.where(gradient == 0, points, corner)
            share = 1.0 if step % 3 == 0 else rng.uniform(0.05, 0.6, (len(points), 1))
            points = points + share * (corner - points)
        elif isinstance(domain, Ball):
            length = lengths(gradient)[:, None]
            unit = np.divide(gradient, length, out=np.zeros_like(gradient), where=length > 0)
            points = project(points + domain.reach * 0.7**step * unit, domain)
        else:
            length = np.maximum(np.linalg.norm(gradient * half, axis=1, keepdims=True), 1e-300)
            moved = points + 0.7**step * half * half * gradient / length
            points = np.where(domain.contains(moved)[:, None], moved, points)
        search.offer(points)
        if search.decided() or search.out_of_time():
            return
