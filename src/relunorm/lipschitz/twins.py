"""Units whose kinks are the same up to rounding, but not exactly.

Between the kinks of two such units lies a region too thin for float64 to see, and its Jacobian may
be anything: S (relu(x - 0.3) - 10 relu(0.1 x - 0.03)) is steep on an interval of length 1e-17. A
search of regions knows nothing about it, so it gives no upper bound for a network that has twins.
Rewritten copies of a network in one with it, and thresholds 1e-15 apart, are what makes them.

Exactly equal kinks (rows that are multiples of each other by a power of two and a sign, computed
alike) leave no room between them and do not count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.domain import Domain
from relunorm.network import Network
from relunorm.regions.tolerance import ROUNDING

Array = NDArray[np.float64]

#: Points at which the kinks are compared.
POINTS = 24

#: Scaled forms nearer than this are the same up to rounding.
NEAR = 64 * ROUNDING


def has_twins(network: Network, domain: Domain | None) -> bool:
    """Whether units of one layer have the same kink up to rounding at one of a few points.

    Args:
        network: without linear stages.
    """
    rng = np.random.default_rng(0)
    d = network.input_size
    if domain is None:
        points = np.concatenate([np.zeros((1, d)), rng.standard_normal((POINTS, d))])
    else:
        points = np.concatenate([domain.center[None], domain.sample(POINTS, rng)])
    return any(_has_twins_at(network, point, domain) for point in points)


def _has_twins_at(network: Network, point: Array, domain: Domain | None) -> bool:
    d = len(point)
    center = np.zeros(d) if domain is None else domain.bounding_box.center
    half = np.ones(d) if domain is None else domain.bounding_box.halfwidth
    # Forms in t with x = half t + center, a column for the constant behind the gradient.
    values: list[Array] = [np.column_stack([np.diag(half), center])]
    place = np.append(np.divide(point - center, half, out=np.zeros(d), where=half > 0), 1.0)
    for layer in network.layers:
        forms = np.zeros((layer.width, d + 1))
        forms[:, d] = layer.affine.bias
        read = (layer.affine.bias != 0).astype(float)
        for source, matrix in layer.affine.terms.items():
            forms += matrix @ values[source]
            some: Any = matrix != 0
            read += some.astype(float) @ (values[source] != 0).any(axis=1).astype(float)
        # A multiple of one earlier unit has its kink, which is a wall of the region already.
        if _has_near_pair(forms[read > 1]):
            return True
        below, above = layer.activation.slopes
        values.append(np.where(forms @ place > 0, above, below)[:, None] * forms)
    return False


def _has_near_pair(forms: Array) -> bool:
    """Whether two rows are multiples of each other up to rounding, but not by powers of two."""
    length = np.linalg.norm(forms[:, :-1], axis=1)
    given, forms = forms[length > 0], forms[length > 0] / length[length > 0, None]
    near = np.abs(forms[:, -1]) < 2 * np.sqrt(forms.shape[1])  # others miss the domain
    given, forms = given[near], forms[near]
    first = np.argmax(np.abs(forms[:, :-1]) > 0.1 / forms.shape[1], axis=1)
    lead = given[np.arange(len(given)), first]
    forms = forms * np.sign(lead)[:, None]
    order = np.argsort(forms @ np.cos(np.arange(1.0, forms.shape[1] + 1)), kind="stable")
    one, two = order[:-1], order[1:]
    gap = np.abs(forms[one] - forms[two]).max(axis=1, initial=0.0)
    ratio = lead[two] / lead[one]
    doubled = np.abs(np.frexp(ratio)[0]) == 0.5
    same = doubled & (given[two] == ratio[:, None] * given[one]).all(axis=1)
    return bool(((gap < NEAR) & ~same).any())
