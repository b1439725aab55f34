"""Bounds on boxes against values without any rounding, in both precisions of rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from relunorm import Activation, Affine, Layer, Network
from relunorm.bounds.pairs.condensed import memory
from relunorm.bounds.pairs.condensed.kernel import Bounder
from relunorm.bounds.pairs.condensed.units import OFF, ON, OPEN
from relunorm.bounds.pairs.pair import pair_up

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def exact(network: Network, x: list[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """The outputs at a point and all pre-activations."""
    values, units = [x], []
    for layer in network.layers:
        z, below = _affine(layer.affine, values), Fraction(layer.activation.slopes[0])
        units += z
        values.append([v if v > 0 else below * v for v in z])
    return _affine(network.output, values), units


def _affine(affine: Affine, values: list[list[Fraction]]) -> list[Fraction]:
    total = [Fraction(v) for v in affine.bias.tolist()]
    for source, matrix in affine.terms.items():
        for r, row in enumerate(np.asarray(matrix).tolist()):
            total[r] += sum(Fraction(w) * v for w, v in zip(row, values[source], strict=True))
    return total


def changed(network: Network, rng: np.random.Generator, share: float) -> Network:
    def affine(a: Affine) -> Affine:
        terms = {s: m * (1 + share * rng.normal(size=m.shape)) for s, m in a.terms.items()}
        return Affine(terms, a.bias * (1 + share * rng.normal(size=a.size)))

    layers = [Layer(affine(x.affine), x.activation) for x in network.layers]
    return network.replace(layers=layers, output=affine(network.output))


def chain(rng: np.random.Generator, inputs: int, scale: float = 1.0) -> Network:
    widths = [inputs, 6, 7, 5, 2]
    shapes = [(b, a) for a, b in pairwise(widths)]
    weights = [rng.normal(0, scale, shape) for shape in shapes]
    return Network.from_weights(weights, [rng.normal(0, 0.3, b) for b, _ in shapes])


def closed(rng: np.random.Generator, inputs: int) -> Network:
    """All units keep their signs: only rounding is between a bound and the largest value."""
    weights, biases, most = [], [], 2.0
    for columns, rows in pairwise([inputs, 8, 8, 8, 2]):
        w = rng.normal(size=(rows, columns))
        lot = most * abs(w).sum(axis=1)
        weights.append(w)
        biases.append(1.1 * lot)
        most = 2.1 * float(lot.max())
    return Network.from_weights(weights, biases)


def cancelling(rng: np.random.Generator, inputs: int) -> Network:
    """Units in pairs that are nearly equal and nearly cancel: sizes are far above ranges."""
    wide, weights = 8, []
    for columns, rows in ((inputs, wide), (wide, wide), (wide, wide), (wide, wide), (wide, 1)):
        w = rng.normal(0, 30, (rows, columns))
        if columns == wide:
            w[:, 1::2] = -w[:, ::2] * (1 + 1e-5 * rng.normal(size=(rows, wide // 2)))
        if rows == wide:
            w[1::2] = w[::2] * (1 + 1e-5 * rng.normal(size=(wide // 2, columns)))
        weights.append(w)
    return Network.from_weights(weights, [rng.normal(0, 1, len(w)) for w in weights])


def branching(rng: np.random.Generator, inputs: int) -> Network:
    """Leaky units, inputs and layers that are read further on."""

    def affine(rows: int, **widths: int) -> Affine:
        terms = {int(s[1:]): rng.normal(size=(rows, n)) for s, n in widths.items()}
        return Affine(terms, rng.normal(size=rows))

    first = Layer(affine(6, s0=inputs), Activation("leaky", 0.1))
    second = Layer(affine(5, s0=inputs, s1=6))
    third = Layer(affine(4, s1=6, s2=5), Activation("leaky", 0.3))
    return Network([first, second, third], affine(3, s0=inputs, s2=5, s3=4), input_shape=inputs)


KINDS = {"chain": chain, "closed": closed, "cancelling": cancelling, "branching": branching}


def check(first: Network, second: Network, lo: np.ndarray, hi: np.ndarray, dtype: np.dtype) -> bool:
    """Bounds of boxes, the first of which holds the others, and signs are true at points.

    Returns:
        whether all bounds are finite.
    """
    rng = np.random.default_rng(0)
    pair = pair_up(first, second)
    assert pair is not None
    bounder, (count, inputs) = Bounder(pair, lo[0], hi[0]), lo.shape
    assert bounder.flat.row_W.dtype == dtype
    upper = np.empty((count, 2 * pair.maps[-1].size))
    score, corner = np.empty_like(lo), np.empty_like(lo)
    signs = np.full((count, bounder.units), OPEN, dtype=np.int8)
    bounder.bound(lo[:1], hi[:1], signs[:1], upper[:1], score[:1], corner[:1])
    signs[1:] = signs[0]
    bounder.bound(lo[1:], hi[1:], signs[1:], upper[1:], score[1:], corner[1:])
    for k in range(count):
        points = [*product(*zip(lo[k], hi[k], strict=True))][:12]
        points += [*np.clip(rng.uniform(lo[k], hi[k], (4, inputs)), lo[k], hi[k]), corner[k]]
        for point in points:
            x = [Fraction(float(v)) for v in point]
            (f, z), (g, y) = exact(first, x), exact(second, x)
            gap = [b - a for a, b in zip(f, g, strict=True)]
            for value, most in zip([*gap, *(-v for v in gap)], upper[k], strict=True):
                assert most == np.inf or value <= Fraction(float(most))
            for sign, *both in zip(signs[k], z, y, strict=True):
                assert sign != ON or min(both) >= 0
                assert sign != OFF or max(both) <= 0
    return bool(np.isfinite(upper).all())


def boxes(rng: np.random.Generator, inputs: int, at: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """One around six others: small, tiny, flat and a point."""
    lo = at + rng.uniform(-1, 0.8, (7, inputs))
    hi = lo + rng.uniform(0, 1, (7, inputs)) * np.array([[1, 1, 0.1, 1e-3, 1e-8, 1, 0]]).T
    lo[5, 0] = hi[5, 0]
    lo[0], hi[0] = lo.min(axis=0), hi.max(axis=0)
    return lo, hi


@pytest.mark.parametrize("share", [0.3, 1e-3, 1e-7, 1e-13])
@pytest.mark.parametrize("inputs", [1, 3, 7])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_bounds_hold_without_rounding(
    kind: str, inputs: int, share: float, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(inputs)
    made = KINDS[kind](rng, inputs)
    if dtype is DOUBLE:
        monkeypatch.setattr(memory, "LEAST", np.inf)
    assert check(made, changed(made, rng, share), *boxes(rng, inputs), dtype)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-33, DOUBLE), (1e-20, SINGLE), (1e-9, SINGLE), (1e2, SINGLE), (1e30, DOUBLE)],
)
def test_weights_may_be_huge_or_tiny(scale: float, dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    made = chain(rng, 2, scale)
    assert check(made, changed(made, rng, 1e-2), *boxes(rng, 2), dtype)


@pytest.mark.parametrize("scale", [1e6, 1e12, 1e20, 1e38])
def test_bounds_that_overflow_are_infinite(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", np.inf)
    rng = np.random.default_rng(1)
    made = chain(rng, 2, scale)
    assert check(made, changed(made, rng, 1e-2), *boxes(rng, 2), SINGLE) == (scale < 1e7)


@pytest.mark.parametrize(("at", "dtype"), [(1e3, SINGLE), (1e10, SINGLE), (1e40, DOUBLE)])
def test_boxes_may_be_far_from_zero(at: float, dtype: np.dtype) -> None:
    """What is counted from the middle of a box does not see how far that is from zero."""
    rng = np.random.default_rng(2)
    made = chain(rng, 3)
    lo, hi = boxes(rng, 3, at)
    assert check(made, changed(made, rng, 1e-2), lo, hi, dtype)


def test_rows_in_float32_lose_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    made = chain(rng, 3)
    pair = pair_up(made, changed(made, rng, 1e-3))
    assert pair is not None
    lo, hi = boxes(rng, 3)
    found = []
    for least in (memory.LEAST, np.inf):
        monkeypatch.setattr(memory, "LEAST", least)
        bounder, upper = Bounder(pair, lo[0], hi[0]), np.empty((len(lo), 4))
        signs = np.full((len(lo), bounder.units), OPEN, dtype=np.int8)
        bounder.bound(lo, hi, signs, upper, np.empty_like(lo), np.empty_like(lo))
        found.append(upper)
    single, double = found
    assert (single != double).any()
    assert (abs(single - double) <= 1e-3 * abs(double).max(axis=1, keepdims=True)).all()


def _kinked(height: float, apart: float, at: float, second: str) -> tuple[Network, Network]:
    """Ranges are wide, and differences largest where z nearly changes sign at the middle."""
    ones = np.ones((1, 1))
    open_ = [ones, np.array([[height - 2 * apart]]), ones]
    biases = [np.zeros(1), np.array([apart - at]), np.zeros(1)]
    if second == "on":
        biases[1] = np.array([2 * apart + at])
    first = [ones, np.array([[height]]), ones]
    own = [np.zeros(1), np.array([-at]), np.zeros(1)]
    return Network.from_weights(first, own), Network.from_weights(open_, biases)


@pytest.mark.parametrize("second", ["open", "on"])
@pytest.mark.parametrize("height", [1.0, 3.0])
@pytest.mark.parametrize("apart", [4.9e-5, 2e-4])
def test_slopes_that_are_rounded_keep_their_lines_above(apart, height, second):
    least = np.inf
    for at in np.linspace(4e-6, 6e-6, 60):
        first, other = _kinked(height, apart * height, float(at) * height, second)
        pair = pair_up(first, other)
        assert pair is not None
        lo, hi = -np.ones((1, 1)), np.ones((1, 1))
        bounder, upper = Bounder(pair, lo[0], hi[0]), np.empty((1, 2))
        signs = np.full((1, bounder.units), OPEN, dtype=np.int8)
        bounder.bound(lo, hi, signs, upper, np.empty((1, 1)), np.empty((1, 1)))
        for x in (-1.0, 0.0, 1.0, *np.linspace(0, 2e-4, 9)):
            (f,), (g,) = (exact(n, [Fraction(float(x))])[0] for n in (first, other))
            assert Fraction(float(upper[0, 0])) >= g - f
            assert Fraction(float(upper[0, 1])) >= f - g
        least = min(least, float(upper.min()))
    assert np.isfinite(least)
