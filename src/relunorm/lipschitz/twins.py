"""Units whose kinks are the same up to rounding, but not exactly.

Between the kinks of two such units lies a region too thin for float64 to see, and its Jacobian may
be anything: S (relu(x - 0.3) - 10 relu(0.1 x - 0.03)) is steep on an interval of length 1e-17. A
search of regions knows nothing about it, so it gives no upper bound for a network that has twins.
Rewritten copies of a network in one with it, and thresholds 1e-15 apart, are what makes them.

Exactly equal kinks leave no room between them and do not count; whether they are is computed in
rational arithmetic.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.domain import Domain
from relunorm.network import Network
from relunorm.regions.tolerance import ROUNDING

Array = NDArray[np.float64]

#: Points at which the kinks are compared.
POINTS = 24

#: Kinks behind more weights than this are not compared exactly: near is then too near.
RATIONAL_WEIGHTS = 10_000

#: Scaled forms nearer than this are the same up to rounding.
NEAR = 64 * ROUNDING


def has_twins(network: Network, domain: Domain | None) -> bool:
    """Whether two units have the same kink up to rounding in the region of one of a few points.

    Args:
        network: as it was given: folding its stable units would round twins to equals.
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
    slopes: list[Array] = []
    kinks: list[tuple[int, int]] = []  # layer and number of the units in `found`
    found: list[Array] = []
    for index, layer in enumerate(network.layers):
        forms = np.zeros((layer.width, d + 1))
        forms[:, d] = layer.affine.bias
        read = (layer.affine.bias != 0).astype(float)
        for source, matrix in layer.affine.terms.items():
            forms += matrix @ values[source]
            some: Any = matrix != 0
            weight = 2.0 if source == 0 else 1.0
            read += weight * (some.astype(float) @ (values[source] != 0).any(axis=1).astype(float))
        # A multiple of one earlier unit has its kink, which is a wall of the region already.
        own = np.flatnonzero((read > 1) & layer.has_units)
        kinks += [(index, int(i)) for i in own]
        found.append(forms[own])
        below, above = layer.activation.slopes
        slopes.append(np.where(forms @ place > 0, above, below))
        values.append(slopes[-1][:, None] * forms)
    if not found:
        return False
    units = [kinks[i] for i in _near_pairs(np.concatenate(found)).ravel()]
    return bool(units) and not _are_equal(network, slopes, units)


def _near_pairs(forms: Array) -> NDArray[np.intp]:
    """Pairs of rows that are multiples of each other up to rounding, (n, 2)."""
    length = np.linalg.norm(forms[:, :-1], axis=1)
    kept = np.flatnonzero(np.abs(forms[:, -1]) < 2 * np.sqrt(forms.shape[1]) * length)
    forms = forms[kept] / length[kept, None]  # the kinks of others miss the domain
    first = np.argmax(np.abs(forms[:, :-1]) > 0.1 / forms.shape[1], axis=1)
    forms = forms * np.sign(forms[np.arange(len(forms)), first])[:, None]
    order = np.argsort(forms @ np.cos(np.arange(1.0, forms.shape[1] + 1)), kind="stable")
    gap = np.abs(np.diff(forms[order], axis=0)).max(axis=1, initial=0.0)
    near = np.flatnonzero(gap < NEAR)
    return kept[np.column_stack([order[near], order[near + 1]])]


def _are_equal(network: Network, slopes: list[Array], units: list[tuple[int, int]]) -> bool:
    """Whether units 0 and 1, 2 and 3, ... have exactly the same kink where units have these slopes.

    Args:
        units: the layer and the number of each.
    """
    last = max(index for index, _ in units)
    weights = sum(mx.nnz(m) for a in [*network.maps][: last + 1] for m in a.terms.values())
    if weights > RATIONAL_WEIGHTS:
        return False
    exact = np.vectorize(Fraction, otypes=[object])
    d = network.input_size
    values: list[Any] = [exact(np.eye(d, d + 1))]
    forms: list[Any] = []
    for k in range(last + 1):
        affine = network.layers[k].affine
        form = exact(np.zeros((affine.size, d + 1)))
        form[:, d] = exact(affine.bias)
        for source, matrix in affine.terms.items():
            form = form + exact(mx.dense(matrix)) @ values[source]
        forms.append(form)
        values.append(form * exact(slopes[k])[:, None])
    one = np.array([forms[index][i] for index, i in units[::2]])
    two = np.array([forms[index][i] for index, i in units[1::2]])
    first = np.argmax(one[:, :-1] != 0, axis=1)
    rows = np.arange(len(one))
    crossed = one * two[rows, first][:, None] - two * one[rows, first][:, None]
    return not (crossed != 0).any()
