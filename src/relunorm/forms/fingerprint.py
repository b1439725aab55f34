"""`fingerprint`: one short name for all copies of a function."""

from __future__ import annotations

import hashlib

import numpy as np

from relunorm import matrix as mx
from relunorm.clock import Clock, Listener
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.forms.comparison.shallow import shallow_cost, shallow_form
from relunorm.forms.outward import unit_ranges
from relunorm.forms.removal.reduced import nothing_known, proved
from relunorm.forms.shapes.canonical import canonical, pin_inputs, without_stages
from relunorm.io.border import Model, Place, accepts
from relunorm.matrix import Vector
from relunorm.network import Affine, Layer, Network
from relunorm.regions.balance import at_size
from relunorm.stability import Stability, stability

#: Up to this many products a shallow network is written in rational arithmetic.
RATIONAL = 5_000_000


@accepts("network", domains=("domain",))
@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def fingerprint(
    network: Model,
    domain: Place | None = None,
    digits: int | None = None,
    *,
    analysis: Stability | None = None,
    time_limit: float | Clock | None = None,
    progress: Listener | None = None,
    random_state: int = 0,
) -> str:
    """The sha256 of the canonical form, as hex.

    Without ``digits`` it is exact: the same for every copy that was permuted, split, padded with
    units that do nothing, or rescaled by powers of two; for one hidden layer over a box, a ball or
    all of space, the same if and only if the functions are. With ``digits=n`` parameters are
    rounded to n digits of the largest entry of their row first, so that copies rescaled in floating
    point agree too, unless a parameter lies within rounding noise of a rounding boundary; then two
    copies can differ and `compare` decides.

    Args:
        domain: where the function matters; None for all of space.
        digits: 1 to 15, or None for exact.
        analysis: the result of `stability` on this network (`Network.folded` if it has linear
            stages) and domain, if at hand.
        time_limit: wall seconds. A fingerprint has no parts: where they do not suffice for the
            form, a `TimeLimitError` says so.

    With one hidden layer over a box, a ball or all of space equal fingerprints mean equal
    functions, and different ones different functions. Elsewhere the canonical form is written with
    sums in doubled precision that are rounded to float64 at the end: equal fingerprints mean
    functions that agree up to that rounding (a few 1e-16 of the largest values on the way), or up
    to ``digits``; different ones prove nothing. A head (softmax, ...) is hashed as it is, behind
    the form of what comes before it. Cost: the stability analysis.

    >>> first = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])
    >>> second = Network.from_weights([[[-4.0], [2.0]], [[0.25, 0.5]]])
    >>> fingerprint(first) == fingerprint(second)
    True
    """
    if digits is not None and not 1 <= digits <= 15:
        raise InvalidInputError(f"digits is {digits}, expected 1 to 15 or None")
    clock = Clock(time_limit)
    given = network.folded()
    ending, network = f" {network.head.steps}" if network.head else "", network.without_head()
    base = network.folded()
    reach = None
    if domain is not None:
        domain.check_dimension(base.input_size)
        reach = reach_of(domain)
        if analysis is not None:
            analysis.check(given, domain)
    rational = domain is None or domain.rational
    if digits is None and shallow_cost(network) <= RATIONAL and rational:
        return _hash("shallow", shallow_form(network, domain).digest, ending)
    # multiplied out in doubled precision, which does not depend on the order of what is summed
    exact = at_size(without_stages(network, clock))
    found = None if domain is None else analysis
    if domain is not None and found is None:
        found = stability(
            exact,
            domain,
            time_limit=clock.part(share=0.5),
            progress=progress,
            random_state=random_state,
        )
    straight = nothing_known(exact) if found is None else proved(exact, found)
    ranges = unit_ranges(exact, reach, found)
    pinned = pin_inputs(exact, domain)
    form = canonical(pinned, straight, ranges, reach, digits=digits, clock=clock).network
    form = form.replace(input_shape=form.input_size, output_shape=())
    if digits is None:
        return _hash("exact", form.digest, ending)
    form, powers = rounded(form, digits)
    return _hash(f"digits {digits}", f"{form.digest} {powers}", ending)


def rounded(network: Network, digits: int) -> tuple[Network, list[list[int]]]:
    """Every parameter rounded to ``digits`` digits of the largest entry of its row.

    Returns:
        the network of the rounded parameters as integers, and per map the power of ten that every
        row's integers are to be multiplied by.
    """
    found = [_rounded(affine, digits) for affine in network.maps]
    maps = [affine for affine, _ in found]
    layers = [
        Layer(affine, layer.activation) for affine, layer in zip(maps, network.layers, strict=False)
    ]
    return network.replace(layers=layers, output=maps[-1]), [powers for _, powers in found]


def _rounded(affine: Affine, digits: int) -> tuple[Affine, list[int]]:
    largest = np.abs(affine.bias)
    for matrix in affine.terms.values():
        largest = np.maximum(largest, np.abs(mx.dense(matrix)).max(axis=1))
    # the exponent after rounding: 0.99999 counts as 1.0, like its copy 1.00001
    leading = [int(f"{size:.{digits - 1}e}".partition("e")[2]) if size else 0 for size in largest]
    powers = [power - digits + 1 for power in leading]
    # in two steps, because 10^-powers alone can leave the range of float64
    half = np.array(powers) // 2
    steps = [10.0 ** (-half), 10.0 ** (half - np.array(powers))]

    def whole(entries: Vector, axes: tuple[int, ...]) -> Vector:
        first, second = (np.expand_dims(step, axes) for step in steps)
        return np.round(entries * first * second) + 0.0

    terms = {k: whole(mx.dense(m), (1,)) for k, m in affine.terms.items()}
    return Affine(terms, whole(affine.bias, ())), powers


def _hash(kind: str, digest: str, ending: str) -> str:
    text = f"relunorm.fingerprint/1 {kind} {digest}{ending}"
    return hashlib.sha256(text.encode()).hexdigest()
