"""Seed 003, Sections 1 and 2: what it says of density and of frames on the way."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relunorm.network import Network
from relunorm.papers.checklist import claims_of
from relunorm.papers.claim import ROUNDING
from relunorm.papers.exhibit import Exhibit, from_claims
from relunorm.papers.pieces.laws import Pieces

claim = claims_of("pieces")

#: Slopes of the networks that approximate the indicator of [0, 1].
SLOPES = tuple(10.0**k for k in range(1, 7))


def background(world: Pieces) -> Exhibit:
    """Networks of four units that approximate the indicator of [0, 1], with slopes 10 to 1e6: their
    errors in L^1, L^2 and L^4 by quadrature and beside the jumps; and 20 tight frames of five
    vectors in three dimensions with bounds A = B between 0.2 and 3."""
    networks = [world.indicator(slope) for slope in SLOPES]
    beside = min(_error_beside_jumps(net) for net in networks)
    off = max(
        abs(_error(net, slope, p) / _classical(slope, p) - 1)
        for net, slope in zip(networks, SLOPES, strict=True)
        for p in (1, 2, 4)
    )
    falls = max(_classical(SLOPES[-1], p) / _classical(SLOPES[0], p) for p in (1, 2, 4))
    same, divided = _reconstructions(world)
    return from_claims(
        "background",
        "Introduction and Section 2: density and tight frames",
        (
            claim(
                "Introduction: dense in L^p", beside, off if falls < 0.1 else math.nan, falls=falls
            ),
            claim("Section 2: the dual of a tight frame", same, divided),
        ),
        settings=world.settings(),
    )


def _error_beside_jumps(net: Network) -> float:
    """The largest difference from the indicator of [0, 1] just left and right of 0 and of 1."""
    step = 1e-13
    x = np.array([[-step], [step], [1 - step], [1 + step]])
    return float(np.abs(net(x)[:, 0] - [0.0, 1.0, 1.0, 0.0]).max())


def _error(net: Network, slope: float, p: int) -> float:
    """The error in L^p: Gauss and Legendre on the four ramps, and the largest value elsewhere."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    ramp = 0.5 / slope
    total = 0.0
    for low, value in ((-ramp, 0.0), (0.0, 1.0), (1 - ramp, 1.0), (1.0, 0.0)):
        x = low + ramp * (nodes + 1) / 2
        total += ramp / 2 * float(weights @ np.abs(net(x[:, None])[:, 0] - value) ** p)
    x = np.array([-1.0, -2 * ramp, 2 * ramp, 0.5, 1 - 2 * ramp, 1 + 2 * ramp, 2.0])
    rest = np.abs(net(x[:, None])[:, 0] - ((x > 0) & (x < 1))).max()
    return math.inf if rest > 1e-6 else total ** (1 / p)


def _classical(slope: float, p: int) -> float:
    """The error of two ramps of this slope in L^p: 2 times the integral of (slope t)^p twice."""
    return float((2 * 2**-p / (slope * (p + 1))) ** (1 / p))


def _reconstructions(world: Pieces) -> tuple[float, float]:
    """How far F F* y, and F F* y / A^2, are from y, for tight frames; NaN unless (1) is met with
    equality."""
    rng, gaps = world.rng, []
    for bound in np.geomspace(0.2, 3.0, 20):
        F = world.tight_frame(rng, float(bound))
        y: NDArray[np.float64] = rng.normal(size=(3, 50))
        sizes = np.linalg.norm(F.T @ y, axis=0) / np.linalg.norm(y, axis=0)
        met = 1.0 if np.ptp(sizes) <= ROUNDING else math.nan
        back = F @ F.T @ y
        pair = [np.linalg.norm(v - y, axis=0) for v in (back, back / sizes.mean() ** 2)]
        gaps.append([met * float((gap / np.linalg.norm(y, axis=0)).max()) for gap in pair])
    same, divided = np.array(gaps).max(axis=0)
    return float(same), float(divided)
