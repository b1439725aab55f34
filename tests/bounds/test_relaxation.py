"""Lines over activations: above and below everywhere, and the same wherever they are written."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from relunorm.arithmetic.dyadic import fractions
from relunorm.bounds.nodes import kernel
from relunorm.bounds.relaxation import (
    Kink,
    chord,
    chord_slope,
    default_tilt,
    lines,
    relu_chord,
    remainder,
    slope,
    tangent,
)
from relunorm.compiled.jit import kernel as compiled

KINKS = [Kink(a, b, step=False) for a, b in ((0.0, 1.0), (0.1, 1.0), (-0.5, 1.0), (2.0, 1.0))]


def intervals() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    size = 10.0 ** rng.integers(-8, 9, (2, 400))
    return -size[0] * rng.random(400), size[1] * rng.random(400)


@pytest.mark.parametrize("kink", [*KINKS, Kink(1.0, 1.0, step=False)])
def test_lines_hold_at_both_ends_and_at_the_kink(kink: Kink) -> None:
    low, high = intervals()
    high[:40], low[40:80] = low[:40] / 2, high[40:80] / 2  # one sign only
    found = lines(kink, low, high)
    for k in range(len(low)):
        ends = [low[k], high[k], *([0.0] if low[k] < 0 < high[k] else [])]
        for z in map(Fraction, ends):
            value = z * Fraction(kink.above if z > 0 else kink.below)
            above = Fraction(found.above[k]) * z + Fraction(found.rise[k])
            below = Fraction(found.below[k]) * z + Fraction(found.drop[k])
            slack = Fraction(2.0**-50) * (abs(value) + 2 * abs(z))
            assert below - slack <= value <= above + slack


@pytest.mark.parametrize("kink", KINKS)
def test_arrays_numbers_and_fractions_agree(kink: Kink) -> None:
    low, high = intervals()
    slopes, tilts = chord_slope(kink, low, high), default_tilt(low, high)
    for k, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        exact = chord(*map(Fraction, (kink.below, kink.above, a, b)))
        assert abs(Fraction(slopes[k]) - exact) <= Fraction(2.0**-49)
        assert abs(Fraction(chord(kink.below, kink.above, a, b)) - exact) <= Fraction(2.0**-49)
        side = tangent(kink.below, kink.above, a, b)
        assert side == (kink.above if tilts[k] == 1.0 else kink.below)
        assert side == tangent(*map(Fraction, (kink.below, kink.above, a, b)))


@pytest.mark.parametrize("kink", [*KINKS, Kink(1.0, 1.0, False), Kink(0.0, 0.0, True, 0.25)])
def test_fractions_are_not_rounded(kink: Kink) -> None:
    """The slope of the rule, and the least line of that slope that lies above."""
    low, high = intervals()
    high[:40], low[40:80], high[80:90], low[90:100] = low[:40] / 2, high[40:80] / 2, 0.0, 0.0
    low, high = fractions(low), fractions(high)
    lam = fractions(np.random.default_rng(5).normal(size=len(low))) / 3
    lam[::17] = Fraction(0)
    exact, any_slope = kink.exact, fractions(low.astype(float) % 3 - 1)
    a = slope(exact, lam, low, high)
    rest = remainder(exact, lam, a, low, high)
    other = remainder(exact, lam, any_slope, low, high)
    for j, (w, first, last) in enumerate(zip(lam, low, high, strict=True)):
        sides, bent = (exact.below, exact.above), first < 0 < last
        convex = bent and w * exact.gap > 0
        assert a[j] == w * (chord(*sides, first, last) if convex else tangent(*sides, first, last))
        values = [(z, w * z * (sides[1] if z > 0 else sides[0])) for z in (first, last)]
        values += [(Fraction(0), Fraction(0))] if bent else []
        if kink.step:
            values = [(z, w * (z > 0)) for z in (first, last) if z]
            values += [(Fraction(0), Fraction(0))] if first < 0 <= last else []
            values += [(Fraction(0), w)] if first <= 0 < last else []
            values += [(Fraction(0), w * exact.at_zero)] if first <= 0 <= last else []
        assert rest[j] == max(v - a[j] * z for z, v in values)
        assert other[j] == max(v - any_slope[j] * z for z, v in values)
        assert all(isinstance(x[j], (Fraction, int)) for x in (a, rest, other))


def test_what_is_compiled_is_the_same() -> None:
    @compiled
    def all_of_them(low, high, out):
        for k in range(len(low)):
            out[k, 0], out[k, 1] = kernel.chord(low[k], high[k])
            out[k, 2] = kernel.tangent(0.0, 1.0, low[k], high[k])

    low, high = intervals()
    out = np.empty((len(low), 3))
    all_of_them(low, high, out)
    relu = lines(KINKS[0], low, high)
    for k, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        assert (*relu_chord(a, b), tangent(0.0, 1.0, a, b)) == tuple(out[k])
        s, shift = (Fraction(x) for x in out[k, :2])
        assert shift >= -s * Fraction(a)
        assert shift >= (1 - s) * Fraction(b) - Fraction(2.0**-53) * Fraction(b)
    np.testing.assert_allclose(out[:, 0], relu.above, rtol=1e-15)
    assert (np.abs(out[:, 1] - relu.rise) <= 2.0**-50 * (high - low)).all()
    np.testing.assert_array_equal(out[:, 2], relu.below)
