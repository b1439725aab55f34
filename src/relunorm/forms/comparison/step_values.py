"""Networks of steps on an interval: finitely many values, all of them compared.

Where one input is read by steps alone, z = w x + b changes sign at x = -b/w and nowhere else.
Between two neighbouring thresholds every step, and so the network, is constant. Its values at the
thresholds, at one point between each two and at both ends are all it ever takes.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from relunorm import matrix as mx
from relunorm.arithmetic.certain import exact_output
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Domain
from relunorm.network import Network

#: Rational products that are computed, at most; about a microsecond each.
PRODUCTS = 2_000_000


def largest_difference(
    first: Network, second: Network, domain: Domain, clock: Clock = NO_LIMIT
) -> tuple[Fraction, float | None] | None:
    """max |f - g| over the interval, without rounding, and a float at which it is attained.

    Exact: both networks are evaluated in rational arithmetic on every piece of both. None where
    that does not apply (see `_thresholds`), would take more than `PRODUCTS`, or is not done by
    the end of the clock. In place of the float None where no piece holds one.

    >>> from relunorm import Box
    >>> up = Network.from_weights([[[1.0]], [[1.0]]], [[0.0], [0.0]], "step")
    >>> down = Network.from_weights([[[-1.0]], [[-1.0]]], [[0.0], [1.25]], "step")
    >>> largest_difference(up, down, Box([-1.0], [1.0]))
    (Fraction(1, 4), -1.0)
    """
    cuts = [_thresholds(network) for network in (first, second)]
    box = domain.as_box
    if cuts[0] is None or cuts[1] is None or box is None:
        return None
    lo, hi = Fraction(float(box.lo[0])), Fraction(float(box.hi[0]))
    ends = sorted({lo, hi} | {cut for cut in cuts[0] | cuts[1] if lo < cut < hi})
    if (first.parameters + second.parameters) * (2 * len(ends) - 1) > PRODUCTS:
        return None
    most, witness = Fraction(-1), None
    for low, high in [*((end, end) for end in ends), *pairwise(ends)]:
        if clock.expired():
            return None
        point = (low + high) / 2
        values = (exact_output(network, [point]) for network in (first, second))
        apart = max(abs(a - b) for a, b in zip(*values, strict=True))
        near = float(point)
        if apart > most or (apart == most and witness is None):
            inside = low == near == high or low < near < high  # exact: a Fraction and a float
            most, witness = apart, near if inside else None
    return most, witness


def _thresholds(network: Network) -> set[Fraction] | None:
    """Where its steps jump; None unless there is one input, read by nothing but steps alone."""
    if network.input_size != 1 or 0 in network.output.terms:
        return None
    found: set[Fraction] = set()
    for layer in network.layers:
        if 0 not in layer.affine.terms:
            continue
        if layer.activation.kind != "step" or len(layer.affine.terms) > 1:
            return None
        slopes = mx.dense(layer.affine.terms[0])[:, 0]
        for w, b in zip(slopes, layer.affine.bias, strict=True):
            if w:
                found.add(-Fraction(float(b)) / Fraction(float(w)))
    return found
