"""Forms, fingerprints and comparison of step networks and at extreme scales."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import relunorm as rn
from relunorm.arithmetic.certain import exact_output
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.forms.shapes import FORMS
from relunorm.stability import stability

LINE = rn.Box([-1.0], [1.0])
build = rn.Network.from_weights


def test_eps_is_kept_by_deep_step_networks() -> None:
    """Half a unit of change below a jump can move the output by the whole jump."""
    weights, biases = [[[1.0]], [[0.001]], [[5.0]]], [[0.0], [-0.0005], [0.0]]
    deep = build(weights, biases, "step")
    points = np.linspace(-1, 1, 41)[:, None]
    small = rn.normalize(deep, "minimal", LINE, eps=0.01).network
    assert np.abs(small(points) - deep(points)).max() <= 0.01
    top = rn.normalize(deep, "minimal", LINE, eps=3.0).network  # the last step may go: 2.5
    assert top.units == 0
    assert np.abs(top(points) - deep(points)).max() <= 3.0


@pytest.mark.parametrize("seed", range(20))
def test_eps_is_kept_by_random_step_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [2, 4, 4, 2]
    weights = [rng.normal(size=(b, a)) * 0.1 for a, b in pairwise(sizes)]
    network = build(weights, [0.05 * rng.normal(size=b) for b in sizes[1:]], "step")
    points = rng.uniform(-1, 1, (500, 2))
    small = rn.normalize(network, "minimal", rn.Box.cube(2, -1, 1), eps=0.1)
    assert np.abs(small.network(points) - network(points)).max() <= 0.1 + 1e-12


def test_rounded_fingerprint_sees_powers_of_ten() -> None:
    first, second = (build([[[1.0], [-1.0]], [[s, 2 * s]]]) for s in (1.0, 10.0))
    for digits in (1, 3, 15):
        assert rn.fingerprint(first, LINE, digits) != rn.fingerprint(second, LINE, digits)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e300, 1e-310])
def test_rounded_fingerprint_at_a_power_of_ten(size: float) -> None:
    """The largest entry just below and just above 10^k rounds to the same number."""
    below, above = (build([[[1.0]], [[size * s]]]) for s in (1 - 1e-9, 1 + 1e-9))
    assert rn.fingerprint(below, LINE, 3) == rn.fingerprint(above, LINE, 3)
    other = build([[[1.0]], [[size * 1.01]]])
    assert rn.fingerprint(below, LINE, 3) != rn.fingerprint(other, LINE, 3)


TINY = build([[[1e-200]], [[1e-200]], [[1e300]]])
DOUBLE = build([[[1e-200]], [[2e-200]], [[1e300]]])
LONG = rn.Box([0.0], [1e100])
SCALES = [
    (TINY, LONG),
    (build([[[1e-160]], [[1e-160]], [[1e-160]], [[1e200]], [[1e200]]]), LONG),
    (build([[[1e200]], [[1e200]], [[1e-200]], [[1e-100]]]), rn.Box([0.0], [1e-200])),
    (build([[[1e300], [1e300]], [[1e-310, 1e-310]]]), LINE),
    (build([[[1e308, 1e308]], [[1.0]]]), rn.Box.cube(2, -1e-5, 1e-5)),
    (build([[[1e-310]], [[1e300]]], [[1e-311], [0.0]]), LINE),
]


def test_compare_does_not_underflow() -> None:
    """The two are x -> 1e-100 x and its double; scaled by powers of two both rows became 0."""
    found = rn.compare(TINY, DOUBLE, LONG, time_limit=5)
    assert found.verdict == "different"
    point = found.witness
    true = abs(exact_output(TINY, point)[0] - exact_output(DOUBLE, point)[0])
    assert 1e-9 < found.lower <= true
    assert rn.compare(TINY, TINY, LONG).verdict == "equal"


@pytest.mark.parametrize("case", range(len(SCALES)))
@pytest.mark.parametrize("form", FORMS)
def test_extreme_scales_are_kept_or_refused(case: int, form: str) -> None:
    network, domain = SCALES[case]
    points = domain.lo + np.linspace(0, 1, 5)[:, None] * (domain.hi - domain.lo)
    for place in (domain, None):
        if place is None and FORMS[form].needs_domain:
            continue
        result = kept_or_refused(lambda place=place: rn.normalize(network, form, place))
        if result is None:
            continue
        for point in points:
            old, new = (float(exact_output(n, point)[0]) for n in (network, result.network))
            assert abs(new - old) <= 1e-12 * abs(old) + 1e-300
        if result.certificate is not None:
            assert rn.verify(result.certificate, network, result.network).holds


@pytest.mark.parametrize("case", range(len(SCALES)))
def test_extreme_scales_in_fingerprint_and_compare(case: int) -> None:
    network, domain = SCALES[case]
    assert rn.compare(network, network, domain, time_limit=2).verdict == "equal"
    for digits in (None, 1, 15):
        kept_or_refused(lambda digits=digits: rn.fingerprint(network, domain, digits))


def kept_or_refused(call):
    """What the call gives, or None where it says that the numbers leave float64."""
    try:
        return call()
    except InvalidNetworkError as error:
        if not any(w in str(error) for w in ("underflow", "overflow", "two hidden layers")):
            raise
        return None


def test_an_analysis_must_be_of_this_network_and_domain() -> None:
    rng = np.random.default_rng(0)
    network, other = (
        build([rng.normal(size=(6, 3)), rng.normal(size=(6, 6)), rng.normal(size=(1, 6))])
        for _ in range(2)
    )
    narrow, wide = rn.Box.cube(3, -0.01, 0.01), rn.Box.cube(3, -1, 1)
    near = rn.Box.cube(3, -1, 1 + 1e-12)  # the same text
    for analysis in (
        stability(network, narrow),
        stability(network, near),
        stability(network, rn.Ball(np.zeros(3), 1.0)),
        stability(other, wide),
    ):
        with pytest.raises(InvalidInputError, match="another"):
            rn.compare(network, other, wide, analysis=(analysis, None))
        with pytest.raises(InvalidInputError, match="another"):
            rn.fingerprint(network, wide, 3, analysis=analysis)
        with pytest.raises(InvalidInputError, match="another"):
            rn.normalize(network, "minimal", wide, analysis=analysis)
    good = stability(network, wide)
    assert rn.normalize(network, "minimal", wide, analysis=good).stability is good
    assert rn.compare(network, network, rn.Box.cube(3, -1, 1), analysis=(good, good))


def test_bad_arguments_are_explained() -> None:
    network = build([[[1.0]], [[1.0]]])
    with pytest.raises(InvalidInputError, match="prefer"):
        rn.normalize(network, "minimal", LINE, prefer="foo")
    for wrong in (None, [], rn.Certificate([])):
        with pytest.raises(InvalidInputError, match="Certificate"):
            rn.verify(wrong, network, network)


@pytest.mark.parametrize("d", [3, 4])
def test_witness_in_a_flat_polytope(d: int) -> None:
    """Samples of the plane sum x = 0.3 leave it by rounding; some point inside must still do."""
    rows = np.vstack([np.eye(d), -np.eye(d), np.ones((1, d)), -np.ones((1, d))])
    slice_ = rn.Polytope(rows, [1.0] * (2 * d) + [0.3, -0.3])
    normal = np.eye(d)[:1] - np.eye(d)[1:2]
    first, second = (build([normal, [[s]]]) for s in (1.0, 1.25))
    found = rn.compare(first, second, slice_, time_limit=5)
    assert found.verdict == "different"
    assert slice_.contains(found.witness)[0]


@pytest.mark.parametrize("size", [1e-100, 1e-309])
def test_fingerprints_of_copies_with_weights_that_are_not_normal_numbers(size):
    """A unit split in two halves, and all units multiplied by powers of two."""
    first = np.array([[-5.0, 2.0], [4.0, -13.0]]) * size
    bias = np.array([2.75, -0.5]) * size
    net = rn.Network.from_weights(
        [first, [[1.0, 1.0], [1.0, 1.0]], [[-1.5, 0.6]]], [bias, [0.5, -0.5], [0.0]]
    )
    split, halves = [0, 1, 1], np.array([1.0, 0.5, 0.5])
    factors = np.array([16.0, 2.0, 64.0])
    copy = rn.Network.from_weights(
        [
            first[split] * factors[:, None],
            np.ones((2, 3)) * halves / factors,
            [[-1.5, 0.6]],
        ],
        [bias[split] * factors, [0.5, -0.5], [0.0]],
    )
    for domain in (None, rn.Box.cube(2)):
        assert rn.fingerprint(net, domain) == rn.fingerprint(copy, domain)
