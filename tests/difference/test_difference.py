"""The difference of two similar networks: bounds that hold, are sharp, and meet in a search."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network
from relunorm.bounds.pairs.condensed.kernel import Bounder, bound_all
from relunorm.bounds.pairs.condensed.lines import relu_lines, relu_rest
from relunorm.bounds.pairs.condensed.units import OFF, ON, OPEN
from relunorm.bounds.pairs.linear import linear_bounds
from relunorm.bounds.pairs.pair import pair_up
from relunorm.clock import NO_LIMIT
from relunorm.compiled.jit import kernel
from relunorm.difference import boxes
from relunorm.difference.difference import bound_difference, repeat
from relunorm.difference.quadratic import Quadratic, affine_forms, tighten
from relunorm.domain.reach import reach_of
from relunorm.errors import InvalidInputError
from relunorm.forms.certificate.certificate import Certificate, seal
from relunorm.stability.bound_proofs import pack, unpacked


def random_net(rng: np.random.Generator, *widths: int) -> Network:
    pairs = list(pairwise(widths))
    return Network.from_weights(
        [rng.normal(0, np.sqrt(2 / a), (b, a)) for a, b in pairs],
        [rng.normal(0, 0.3, b) for _, b in pairs],
    )


def moved(network: Network, rng: np.random.Generator, share: float) -> Network:
    """A copy whose weights are off by about this share."""

    def affine(a: Affine) -> Affine:
        terms = {s: m * (1 + share * rng.normal(size=m.shape)) for s, m in a.terms.items()}
        return Affine(terms, a.bias * (1 + share * rng.normal(size=a.size)))

    layers = [Layer(affine(x.affine), x.activation) for x in network.layers]
    return network.replace(layers=layers, output=affine(network.output))


def leaky_with_skips(rng: np.random.Generator) -> Network:
    first = Layer(
        Affine({0: rng.normal(size=(6, 3))}, rng.normal(size=6)), Activation("leaky", 0.1)
    )
    second = Layer(
        Affine({0: rng.normal(size=(5, 3)), 1: rng.normal(size=(5, 6))}, rng.normal(size=5))
    )
    output = Affine({0: rng.normal(size=(2, 3)), 2: rng.normal(size=(2, 5))}, np.zeros(2))
    return Network([first, second], output, input_shape=3)


def rational(network: Network, x: Fraction) -> list[Fraction]:
    """A chain of relu layers at a point, without rounding."""
    values = [x]
    weights, biases = network.weights()
    for k, (W, b) in enumerate(zip(weights, biases, strict=True)):
        rows = zip(W.tolist(), b.tolist(), strict=True)
        values = [
            Fraction(c)
            + sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction())
            for row, c in rows
        ]
        if k + 1 < len(weights):
            values = [max(v, Fraction(0)) for v in values]
    return values


def largest_on_an_interval(first: Network, second: Network, lo: float, hi: float) -> Fraction:
    """max |f - g| of two networks with one input, at all kinks of both, without rounding."""
    points = [Fraction(lo), Fraction(hi)]
    for network in (first, second):
        for depth in range(1, len(network.layers) + 1):
            # the pre-activations of a layer are affine between the kinks of those before it
            head = Network.from_weights(*(part[:depth] for part in network.weights()))
            points = sorted(set(points))
            at = [rational(head, x) for x in points]
            for (x, left), (y, right) in pairwise(zip(points, at, strict=True)):
                crossed = [(a, b) for a, b in zip(left, right, strict=True) if a * b < 0]
                points = points + [x + (y - x) * a / (a - b) for a, b in crossed]
    gaps = (
        abs(a - b)
        for x in points
        for a, b in zip(rational(first, x), rational(second, x), strict=True)
    )
    return max(gaps)


@pytest.mark.parametrize("share", [0.5, 1e-2, 1e-6, 1e-13])
@pytest.mark.parametrize("kind", ["chain", "skips"])
def test_linear_bounds_hold_for_every_unit(kind: str, share: float) -> None:
    rng = np.random.default_rng(1)
    net = random_net(rng, 3, 7, 6, 2) if kind == "chain" else leaky_with_skips(rng)
    copy = moved(net, rng, share)
    lo = rng.uniform(-1, 0, (5, 3))
    hi = lo + rng.uniform(0.01, 1, (5, 3))
    pair = pair_up(net, copy)
    assert pair is not None
    for k in range(len(lo)):
        found = linear_bounds(pair, lo[k], hi[k])
        points = rng.uniform(lo[k], hi[k], (400, 3))
        points[:64] = np.where(rng.random((64, 3)) < 0.5, lo[k], hi[k])
        ours, theirs = net.preactivations(points), copy.preactivations(points)
        for known, z, y in zip(found.layers, ours, theirs, strict=True):
            size = 1e-13 * max(1.0, np.abs(z).max())  # of these sums
            for value, ends in ((z, known.z), (y - z, known.e), (y, known.y)):
                assert (value >= ends[0] - size).all()
                assert (value <= ends[1] + size).all()
        gap = copy(points) - net(points)
        assert (np.concatenate([gap, -gap], axis=1) <= found.upper + size).all()


@pytest.mark.parametrize("share", [0.3, 1e-2, 1e-6, 1e-13])
@pytest.mark.parametrize("kind", ["chain", "skips"])
def test_bounds_in_terms_of_open_units(kind: str, share: float) -> None:
    """They hold, also with the signs of a box around; they beat untuned ones; signs are true."""
    rng = np.random.default_rng(5)
    net = random_net(rng, 3, 7, 6, 5, 2) if kind == "chain" else leaky_with_skips(rng)
    copy = moved(net, rng, share)
    pair = pair_up(net, copy)
    assert pair is not None
    lo = rng.uniform(-1, 0, (12, 3))
    hi = lo + rng.uniform(0.01, 1, (12, 3))
    lo[0], hi[0] = lo.min(axis=0), hi.max(axis=0)
    lo[1, 2] = hi[1, 2]  # flat
    units = sum(layer.width for layer in net.layers)
    signs = np.full((12, units), OPEN, dtype=np.int8)
    upper, score, corner = np.empty((12, 4)), np.empty((12, 3)), np.empty((12, 3))
    bounder = Bounder(pair, lo[0], hi[0])
    bounder.bound(lo[:1], hi[:1], signs[:1], upper[:1], score[:1], corner[:1])
    signs[6:] = signs[0]  # of the box around
    lo.setflags(write=False)
    bounder.bound(lo[1:], hi[1:], signs[1:], upper[1:], score[1:], corner[1:])
    assert len(bound_all._ready) <= 2  # compiled once for all boxes of a precision
    assert (signs[1:] != OPEN).any()
    assert (corner[1:] == np.where(corner[1:] > lo[1:], hi[1:], lo[1:])).all()
    assert (score[1, 2], score.min() >= 0) == (0, True)
    plain = np.array([linear_bounds(pair, *ends).upper for ends in zip(lo, hi, strict=True)])
    assert np.median(upper / plain) <= 1 + 1e-4  # rows are in float32
    for k in range(len(lo)):
        points = rng.uniform(lo[k], hi[k], (400, 3))
        points[:64] = np.where(rng.random((64, 3)) < 0.5, lo[k], hi[k])
        gap = copy(points) - net(points)
        size = 1e-14 * max(1.0, np.abs(net(points)).max())  # of these sums
        assert (np.concatenate([gap, -gap], axis=1) <= upper[k] + size).all()
        for network in (net, copy):
            z = np.concatenate(network.preactivations(points), axis=1)
            assert (z[:, signs[k] == ON] >= -1e-13).all()
            assert (z[:, signs[k] == OFF] <= 1e-13).all()


@pytest.mark.parametrize("seed", range(12))
def test_a_search_closes_in_on_the_exact_maximum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = random_net(rng, 1, 6, 5, 2)
    copy = moved(net, rng, [1e-1, 1e-3, 1e-7, 1e-12][seed % 4])
    box = Box([-2.0], [1.5])
    exact = largest_on_an_interval(net, copy, -2.0, 1.5)
    best = [0.0]

    def offer(points: np.ndarray, around: np.ndarray) -> None:
        if len(points):
            best[0] = max(best[0], float(np.abs(net(points) - copy(points)).max()))

    reach = reach_of(box)
    found = bound_difference(net, copy, reach, offer, lambda: 1.01 * best[0], NO_LIMIT)
    assert found is not None
    assert Fraction(found.largest) >= exact
    again = repeat(net, copy, reach, found.cuts, [])
    np.testing.assert_allclose(again, found.upper, rtol=1e-9)
    if found.cuts:
        assert repeat(net, copy, reach, found.cuts[:-1], []).max() >= (1 - 1e-9) * found.largest
        for wrong in ((found.cuts[-1][0], 1), (2 * len(found.cuts) + 1, 0), found.cuts[0]):
            with pytest.raises(InvalidInputError):
                repeat(net, copy, reach, [*found.cuts, wrong], [])
    if seed % 4 < 3:  # at 1e-12 the floats of `offer` are too coarse to close in
        assert found.largest <= 1.02 * float(exact)


@pytest.mark.parametrize("seed", range(6))
def test_any_multipliers_give_a_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = random_net(rng, 1, 6, 5, 2)
    copy = moved(net, rng, 10.0 ** -rng.integers(1, 9))
    exact = largest_on_an_interval(net, copy, -2.0, 1.5)
    pair = pair_up(net, copy)
    assert pair is not None
    lo, hi = np.array([-2.0]), np.array([1.5])
    layers = linear_bounds(pair, lo, hi).layers
    problem = Quadratic(affine_forms(pair, layers, lo, hi))
    rows = [(k, sign) for k in (0, 1) for sign in (1.0, -1.0)]
    proved = 0
    for _ in range(20):
        p = problem.start(*rows[rng.integers(4)])
        p = p + 0.3 * rng.normal(size=len(p))
        bounds = problem.certified(p, rows)
        assert np.isinf(bounds).any() or Fraction(float(bounds.max())) >= exact
        proved += np.isfinite(bounds).all()
    assert proved


def test_units_bounded_together_beat_units_bounded_alone() -> None:
    rng = np.random.default_rng(0)
    net = random_net(rng, 24, 20, 20, 2)
    weights, biases = net.weights()
    noise = [w + 1e-3 * rng.normal(size=w.shape) for w in weights]
    copy = Network.from_weights(noise, biases)
    pair = pair_up(net, copy)
    assert pair is not None
    lo, hi = -np.ones(24), np.ones(24)
    alone = linear_bounds(pair, lo, hi)
    told: list[float] = []
    together, used, _ = tighten(
        pair, alone.layers, (lo, hi), alone.upper, lambda: 0.0, NO_LIMIT, told.append
    )
    again = repeat(net, copy, reach_of(Box(lo, hi)), [], used)
    np.testing.assert_allclose(again, together, rtol=1e-9)
    with pytest.raises(InvalidInputError):
        repeat(net, copy, reach_of(Box(lo, hi)), [], [used[0][:-1]])
    assert together.max() < 0.7 * alone.upper.max()
    assert told[-1] == together.max()
    points = rng.uniform(-1, 1, (20_000, 24))
    points[:5000] = np.sign(points[:5000])
    gap = copy(points) - net(points)
    assert (np.concatenate([gap, -gap], axis=1).max(axis=0) <= together).all()


@pytest.mark.parametrize("widths", [(1, 6, 5, 2), (12, 10, 10, 2)], ids=["boxes", "quadratic"])
def test_a_certificate_proves_what_was_found(widths, tmp_path) -> None:
    """Its bound is the one of the comparison, not that of related units, and it replays."""
    rng = np.random.default_rng(4)
    net = random_net(rng, *widths)
    copy = moved(net, rng, 1e-3)
    box = Box.cube(widths[0])
    first = rn.compare(net, copy, box, tolerance=1.0)
    found = rn.compare(net, copy, box, tolerance=(first.lower + first.upper) / 2, factor=1.05)
    assert "difference" in first.method
    for result in (first, found):
        proof = result.certificate
        assert proof is not None
        assert proof.document["difference"] is not None
        assert proof.bound == pytest.approx(result.upper, rel=1e-6)
        proof.save(tmp_path / "proof.json")
        assert rn.verify(Certificate.load(tmp_path / "proof.json"), net, copy).holds
        without = {**proof.document, "difference": None}
        without["digest"] = seal(without)
        assert not rn.verify(Certificate(without), net, copy).holds
        less = {**proof.document, "bounds": [0.9 * v for v in proof.bounds]}
        less["digest"] = seal(less)
        assert not rn.verify(Certificate(less), net, copy).holds
        made = proof.document["difference"]["cuts"]
        if made is not None and len(unpacked(made)):
            half = {**proof.document["difference"], "cuts": pack(unpacked(made) + 0.5)}
            broken = {**proof.document, "difference": half}
            broken["digest"] = seal(broken)
            assert not rn.verify(Certificate(broken), net, copy).holds


def test_reordered_and_missing_units_find_their_partners() -> None:
    rng = np.random.default_rng(3)
    net = random_net(rng, 4, 9, 7, 2)
    copy = moved(net, rng, 1e-4)
    (w0, w1, w2), (b0, b1, b2) = copy.weights()
    order = rng.permutation(9)
    other = Network.from_weights([w0[order], w1[:, order], w2], [b0[order], b1, b2])
    boxes = -np.ones(4), np.ones(4)
    first, second = pair_up(net, copy), pair_up(net, other)
    assert first is not None
    assert second is not None
    plain, found = linear_bounds(first, *boxes), linear_bounds(second, *boxes)
    assert np.allclose(found.upper, plain.upper, rtol=1e-9)
    shorter = Network.from_weights([w0, w1[:-1], w2[:, :-1]], [b0, b1[:-1], b2])
    for one, two in ((net, shorter), (shorter, net)):
        pair = pair_up(one, two)
        assert pair is not None
        assert pair.maps[1].size == 7
        upper = linear_bounds(pair, *boxes).upper
        points = rng.uniform(-1, 1, (2000, 4))
        gap = two(points) - one(points)
        assert (np.concatenate([gap, -gap], axis=1).max(axis=0) <= upper).all()


def test_layers_that_do_not_correspond_have_no_pair() -> None:
    rng = np.random.default_rng(0)
    assert pair_up(random_net(rng, 2, 3, 1), random_net(rng, 2, 3, 3, 1)) is None
    leaky = random_net(rng, 2, 3, 1)
    layers = [Layer(x.affine, Activation("leaky", 0.2)) for x in leaky.layers]
    assert pair_up(leaky, leaky.replace(layers=layers)) is None


def test_linear_stages_alone() -> None:
    """x -> w (a x + b) without a unit, and a copy of it with other roundings."""
    first, second = (
        Network(
            [Layer(Affine({0: [[scale * 0.7]]}, [scale * 0.3]), Activation("identity"))],
            Affine({1: [[3.0 / scale], [1e7 / scale]]}, [0.0, 0.0]),
            input_shape=1,
        )
        for scale in (1.0, 3.0)
    )
    found = rn.compare(first, second, Box([0.99], [1.01]), tolerance=1e-12)
    x = Fraction(1)
    values = [
        Fraction(w) * (Fraction(a) * x + Fraction(b))
        for w, a, b in ((1e7, 0.7, 0.3), (1e7 / 3.0, 3.0 * 0.7, 3.0 * 0.3))
    ]
    assert abs(values[0] - values[1]) <= Fraction(found.upper)


def test_networks_that_read_nothing() -> None:
    """Constants 0.5 w and 0.25 w': no matrix anywhere before the output."""
    first, second = (
        Network(
            [Layer(Affine({}, [0.0, 0.0])), Layer(Affine({}, [bias]))],
            Affine({2: [[weight]]}, [0.0]),
            input_shape=2,
        )
        for bias, weight in ((0.5, 3.0), (0.25, 6.0 + 2**-40))
    )
    found = rn.compare(first, second, Ball([0.0, 0.5], 1e-3), tolerance=0.0)
    assert found.lower <= 2**-42 <= found.upper


@kernel
def _lines_of(lines, low, high):  # type: ignore[no-untyped-def]
    relu_lines(lines, 0, low, high)


@pytest.mark.parametrize("ends", [(-1.5e308, 1e308), (-1e308, 1.5e308), (-1.0, 2.0), (-3.0, -1.0)])
def test_the_lines_around_relu_hold_at_both_ends(ends: tuple[float, float]) -> None:
    """Also where the length of the interval is more than a float."""
    lines = np.empty((3, 1))
    _lines_of(lines, *ends)
    steep, rise, flat = (Fraction(x) for x in lines[:, 0])
    off = Fraction(1, 10**12) * max(map(abs, map(Fraction, ends)))  # rounding is bounded elsewhere
    for z in map(Fraction, ends):
        assert flat * z <= max(z, 0) <= steep * z + rise + off


@kernel
def _rest_of(rest, steep, most, shift, over, corners):  # type: ignore[no-untyped-def]
    relu_rest(rest, 0, steep, most, shift, over, 0, corners, corners)


@pytest.mark.parametrize("seed", range(8))
def test_relu_is_nowhere_above_its_line_and_the_rest_at_corners(seed: int) -> None:
    """A convex function above z and a concave one below are drawn, and points of the square."""
    rng = np.random.default_rng(seed)
    at = np.array([[x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])
    twice = np.tile(at, (2, 1))  # eight corners at a time
    slopes, lifts = rng.normal(size=(2, 4, 2)), rng.uniform(0.1, 1, (2, 4))
    shift = rng.normal(size=3)  # of both functions, so that they may have any sign

    def ends(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        high, low = ((points @ s.T + h).max(axis=1) for s, h in zip(slopes, lifts, strict=True))
        both = points @ shift[:2] + shift[2]
        return high + both, both - low

    high, low = ends(twice)
    most = float(max(high.max(), -low.min(), 0.1))
    points = rng.uniform(-1, 1, (2000, 2))
    weights = np.prod((1 + points[:, None] * at) / 2, axis=2)  # of corners: where the points are
    upper, lower = ends(points)
    z = lower + rng.random(len(points)) * (upper - lower)
    assert (lower <= upper).all()
    for steep in (0.0, 0.3, 1.0):
        rest = np.empty(8)
        _rest_of(rest, steep, most, 0.5, np.concatenate([high, -low]), 8)
        assert (rest[:4] == rest[4:]).all()
        assert (np.maximum(z, 0) + 0.5 <= steep * z + weights @ rest[:4] + 1e-12).all()


@pytest.mark.parametrize("inputs", [6, 7, 8])
def test_bounds_hold_with_more_inputs_than_make_corners(inputs: int) -> None:
    rng = np.random.default_rng(inputs)
    net = random_net(rng, inputs, 8, 8, 2)
    copy = moved(net, rng, 1e-2)
    pair = pair_up(net, copy)
    assert pair is not None
    lo = rng.uniform(-1, 0, (6, inputs))
    hi = lo + rng.uniform(0.1, 1, (6, inputs))
    lo[:3, 0] = hi[:3, 0]  # flat
    signs = np.full((6, 16), OPEN, dtype=np.int8)
    upper, score, corner = np.empty((6, 4)), np.empty((6, inputs)), np.empty((6, inputs))
    Bounder(pair, lo.min(axis=0), hi.max(axis=0)).bound(lo, hi, signs, upper, score, corner)
    for k in range(6):
        assert ((corner[k] == lo[k]) | (corner[k] == hi[k])).all()
        points = rng.uniform(lo[k], hi[k], (4000, inputs))
        points[:1000] = np.where(rng.random((1000, inputs)) < 0.5, lo[k], hi[k])
        gap = copy(points) - net(points)
        assert (np.concatenate([gap, -gap], axis=1) <= upper[k] + 1e-13).all()


def test_a_box_that_needs_no_cut_has_a_proof() -> None:
    """Bounded as a box is, the whole of it may be enough."""
    rng = np.random.default_rng(0)
    net = random_net(rng, 2, 12, 12, 2)
    copy = moved(net, rng, 1e-3)
    pair, box = pair_up(net, copy), Box.cube(2, -0.5, 0.5)
    assert pair is not None
    plain = linear_bounds(pair, box.lo, box.hi).upper.max()
    goal = 0.999 * plain
    told: list[float] = []
    found = bound_difference(
        net, copy, reach_of(box), lambda *points: None, lambda: goal, NO_LIMIT,
        lambda upper, method: told.append(upper),
    )  # fmt: skip
    assert found is not None
    assert found.cuts == []
    assert told[-1] == found.largest <= goal
    again = repeat(net, copy, reach_of(box), [], [])
    np.testing.assert_allclose(again, found.upper, rtol=1e-9)
    result = rn.compare(net, copy, box, tolerance=float(goal), factor=1e9)
    assert result.certificate is not None
    assert result.upper <= goal
    assert rn.verify(result.certificate, net, copy).holds


def test_threads_bound_the_same_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many boxes as fit go to a thread at a time: here one."""
    rng = np.random.default_rng(7)
    net = random_net(rng, 2, 8, 8, 2)
    copy = moved(net, rng, 1e-3)
    reach = reach_of(Box.cube(2))
    root = bound_difference(net, copy, reach, lambda *points: None, lambda: np.inf, NO_LIMIT)
    assert root is not None
    goal = root.largest / 4
    monkeypatch.setattr(boxes, "PRODUCTS", 1)
    one, two = (
        bound_difference(
            net, copy, reach, lambda *points: None, lambda: goal, NO_LIMIT, workers=workers
        )
        for workers in (1, 2)
    )
    assert one is not None
    assert two is not None
    assert one.cuts
    assert one.cuts == two.cuts
    assert (one.upper == two.upper).all()
    assert one.largest <= goal
