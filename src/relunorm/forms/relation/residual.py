"""What is left of f - g once every unit the two networks share has been identified.

A finished walk writes both outputs over one basis. The basis functions that the difference still
needs form a network of their own, usually far smaller than the two side by side: shared units
appear once, so their contributions cancel before anything is bounded. `search` maximises it in all
directions at once by branch and bound.
"""

from __future__ import annotations

import numpy as np

from relunorm.clock import NO_LIMIT, Clock, Teller
from relunorm.domain import Domain
from relunorm.forms import outward
from relunorm.forms.relation.relate import Walk
from relunorm.forms.removal.reduced import Reduced, drop_unobserved
from relunorm.forms.rewrite import grounded
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network
from relunorm.stability.proof import Proofs
from relunorm.stability.replay import replay


def residual(walk: Walk) -> tuple[Network, Vector]:
    """The network h of the difference and e with |f - g - h| <= e over the domain.

    Exact up to e, which holds all rounding and all tolerated mismatches of units.
    """
    first, second = walk.sides
    f, f_error = walk.substitute(first, first.network.output)
    g, g_error = walk.substitute(second, second.network.output)
    form, error = walk.minus(f, g, np.ones(f.size))
    number, layers = {0: 0}, []
    # basis functions are units of the two networks; the residual computes them from their forms,
    # which is off by the forms' errors, carried upwards
    off: dict[int, Vector] = {0: np.zeros(len(walk.ranges[0].lo))}
    for block, basis in enumerate(walk.blocks):
        if basis is None or not basis.forms.size:
            continue
        steep = max(map(abs, basis.activation.slopes))
        off[block] = steep * (basis.error + _carried(basis.forms, off))
        layers.append(Layer(_renumbered(basis.forms, number, walk), basis.activation))
        number[block] = len(layers)
    output = _renumbered(form, number, walk)
    network = Network(layers, output, input_shape=first.network.input_shape)
    total = outward.up(error + f_error + g_error + _carried(form, off), 8)
    return drop_unobserved(Reduced.whole(network)).network, total


def _carried(form: Affine, off: dict[int, Vector]) -> Vector:
    carried = np.zeros(form.size)
    for block, matrix in form.terms.items():
        if block in off:
            carried = carried + abs(matrix) @ off[block]
    return outward.up(carried, outward.inner_size(form))


def _renumbered(form: Affine, number: dict[int, int], walk: Walk) -> Affine:
    terms = {number[k]: m for k, m in form.terms.items() if k in number}
    last = max(number, key=lambda block: number[block])
    return grounded(Affine(terms, form.bias), number[last], len(walk.ranges[last].lo))


def linear_bounds(network: Network, walk: Walk, clock: Clock = NO_LIMIT) -> tuple[Vector, Vector]:
    """Sound bounds on the outputs of a network by intervals and backward linear bounds."""
    found = replay(network, walk.reach.domain, Proofs(box_duals=walk.reach.box_duals), clock=clock)
    return found.output_lower, found.output_upper


def search(
    network: Network,
    domain: Domain,
    below: float,
    factor: float | None,
    clock: Clock,
    tell: Teller,
    random_state: int,
) -> tuple[float, Vector]:
    """A bound on the largest output in size by branch and bound, and the best input it found.

    One search over all outputs and both signs, in units of ``below``. It ends when the bound is at
    most ``factor`` times what was found; with None, when every part of the domain is bounded by
    ``below`` or an input exceeds it.
    """
    from relunorm.search.engine import Search

    outputs = network.output_size
    rows = np.concatenate([np.eye(outputs), -np.eye(outputs)]) / below
    groups = [(row[None], np.zeros(1)) for row in rows]
    if factor is None:
        found = Search(network, domain, groups, target=1.0, below=1.0, random_state=random_state)
    else:  # closed at 1 + tolerance / 2 times the value found
        tolerance = 2 * (factor - 1) + 1e-9
        found = Search(network, domain, groups, tolerance=tolerance, random_state=random_state)
    found.run(clock, tell)
    # a row divided by ``below`` is off by a rounding of every weight
    return float(np.nextafter(found.upper * below * (1 + 2.0**-50), np.inf)), found.point
