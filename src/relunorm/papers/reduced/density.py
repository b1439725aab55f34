"""Theorems 3.1 to 3.3 of seed 001: which families of networks are dense, in the sup norm.

Density cannot be computed, but a family with an explicit error bound that falls to 0 is dense for
the function at hand. The function is sin(2 pi x) sin(2 pi y), half the difference of two waves
along the diagonals, and a wave is approximated along its direction by an interpolating spline (ReLU
units) or a staircase (step units) with k pieces. The classical bounds of these are
h^2/8 max |g''| and h/2 max |g'| with h the length of a piece; both fall to 0 with k.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Box
from relunorm.network import Activation, Network
from relunorm.papers.checklist import claims_of
from relunorm.papers.exhibit import Exhibit, empty_figure
from relunorm.papers.reduced.laws import RELU, STEP, Reduced

claim = claims_of("reduced")

Array = NDArray[np.float64]
#: Two unit directions and the wave number along them: sin sin = (cos - cos) / 2.
DIRECTIONS = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
WAVE = 2 * math.pi * math.sqrt(2)
SIGNS = (0.5, -0.5)
#: Outputs of networks whose weights go up to 1e4, added up: relative to the largest outgoing sum.
CLOSE = 1e-9


def approximant(
    activation: Activation, pieces: int, reach: float, rng: np.random.Generator
) -> tuple[Network, float]:
    """A network (2.1) with rows of any length, good on the square [-reach, reach]^2, and its
    classical bound on the sup error there."""
    far = reach * math.sqrt(2)
    knots = np.linspace(-far, far, pieces + 1)
    h = knots[1] - knots[0]
    spline = activation.kind == "relu"
    rows, biases, out = [], [], []
    for u, sign in zip(DIRECTIONS, SIGNS, strict=True):
        if spline:  # g(k_0) + s_0 (t - k_0) on both sides, then the jumps of the slope
            slopes = np.diff(np.cos(WAVE * knots)) / h
            rows += [np.tile(u, (pieces, 1)), -u[None], np.zeros((1, 2))]
            biases += [-knots[:-1], knots[:1], [1.0]]
            values = [slopes[:1], np.diff(slopes), -slopes[:1], [math.cos(WAVE * knots[0])]]
        else:  # the value at the middle of the first piece, then the jumps
            middles = np.cos(WAVE * (knots[:-1] + h / 2))
            rows += [np.tile(u, (pieces - 1, 1)), np.zeros((1, 2))]
            biases += [-knots[1:-1], [1.0]]
            values = [np.diff(middles), middles[:1]]
        out.append(sign * np.concatenate(values))
    w, b, c = np.vstack(rows), np.concatenate(biases), np.concatenate(out)
    scale = 10.0 ** rng.uniform(-2, 2, len(b))
    net = Network.from_weights(
        [w * scale[:, None], (c / scale if spline else c)[None]], [b * scale, [0.0]], activation
    )
    return net, (h * WAVE) ** 2 / 8 if spline else h * WAVE / 2


def polynomial_error(world: Reduced, units: int, degree: int) -> float:
    """Sup error of a fit of sin(8 pi x) on [0, 1] by ``units`` units with the activation
    t^degree, rows and thresholds random."""
    rng = world.rng
    x = np.linspace(0, 1, 801)
    w, b = rng.normal(size=units), rng.normal(size=units)
    features = world.polynomial(np.outer(x, w) + b, degree)
    y = np.sin(8 * math.pi * x)
    return float(np.abs(features @ np.linalg.lstsq(features, y, rcond=None)[0] - y).max())


def density(world: Reduced) -> Exhibit:
    """Explicit networks against sin(2 pi x) sin(2 pi y): as they are, with unit rows, and with unit
    rows and thresholds in [-X_B, X_B], ReLU and step, on two squares, in the sup norm; and fits by
    units with polynomial activations."""
    rng, rows = world.rng, []
    for activation in (RELU, STEP):
        for reach in (0.5, 1.0):
            box = Box.cube(2, -reach, reach)
            x = box.sample(world.size(4000, 20_000, 1000), world.random_state)
            for pieces in world.size((8, 32, 128), (8, 32, 128, 512), (8, 32)):
                net, bound = approximant(activation, pieces, reach, rng)
                rows.append((activation.kind, reach, pieces, bound, *_errors(world, net, box, x)))
    columns = (
        "activation", "reach", "pieces", "bound", "error (2.1)", "error (2.7)", "error (2.10)",
        "(2.7) differs by", "(2.10) differs by", "row norms off 1 by", "|b| / X_B",
    )  # fmt: skip
    table = {name: np.array([row[k] for row in rows]) for k, name in enumerate(columns)}
    units = world.size((5, 20, 80), (5, 20, 80, 320), (5, 80))
    flat = min(polynomial_error(world, u, degree) for u in units for degree in (1, 2, 3, 6))
    unit = np.maximum(table["(2.7) differs by"], table["row norms off 1 by"]).max()
    inside = table["|b| / X_B"].max() <= 1 + CLOSE

    def worst(name: str) -> float:
        return float((table[name] / table["bound"]).max())

    return Exhibit(
        "density",
        "Theorems 3.1 to 3.3: error against width in the sup norm",
        columns,
        tuple(rows),
        "The bounds fall to 0 with the number of pieces, so a ratio of at most 1 for every number "
        "of pieces is what density asks for. Units t^k span polynomials of degree k, which cannot "
        "follow k + 2 alternating extremes: their error is at least 1.",
        None if world.tiny else _draw(rows, [(u, polynomial_error(world, u, 2)) for u in units]),
        world.settings(),
        (
            claim("Theorem 3.1, if", worst("error (2.1)")),
            claim("Theorem 3.1, only if", flat),
            claim("Theorem 3.2, (3.3)", unit),
            claim("Theorem 3.2, dense", worst("error (2.7)")),
            claim(
                "Theorem 3.3, (3.4)",
                float(table["(2.10) differs by"].max()) if inside else math.inf,
            ),
            claim("Theorem 3.3, dense", worst("error (2.10)")),
        ),
    )


def _errors(world: Reduced, net: Network, box: Box, x: Array) -> tuple[float, ...]:
    """Sup errors of the three forms, how far the second and third are from the first, row norms
    and thresholds of the third."""
    unit = world.normalize(net, "unit", pure=True).network
    bounded = world.normalize(net, "bounded", box, pure=True).network
    y = world.target(x)
    values = [part(x)[:, 0] for part in (net, unit, bounded)]
    scale = max(1.0, float(np.abs(values[0]).max()))
    first = [part.layers[0].affine for part in (unit, bounded)]
    norms = [np.linalg.norm(np.asarray(a.terms[0]), axis=1) for a in first]
    radius = math.sqrt(2) * float(np.abs(box.hi).max())
    return (
        *(float(np.abs(v - y).max()) for v in values),
        *(float(np.abs(v - values[0]).max()) / scale for v in values[1:]),
        float(max(np.abs(n - 1).max() for n in norms)),
        float(np.abs(first[1].bias).max() / radius),
    )


def _draw(rows: list[tuple[Any, ...]], flat: list[tuple[int, float]]) -> Any:
    figure, (ax,) = empty_figure((6.4, 4.4))
    for color, kind in (("C0", "relu"), ("C1", "step")):
        own = [row for row in rows if row[0] == kind and row[1] == 1.0]
        pieces = [row[2] for row in own]
        ax.loglog(pieces, [row[6] for row in own], "o-", color=color, label=f"{kind}, (2.10)")
        ax.loglog(pieces, [row[3] for row in own], ":", color=color, label=f"{kind}, bound")
    ax.loglog(*zip(*flat, strict=True), "s-", color="C2", label="t^2 on sin(8 pi x)")
    ax.set(xlabel="pieces, or units", ylabel="sup error", title="Dense, and not dense")
    ax.legend()
    return figure
