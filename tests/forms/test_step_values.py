"""Networks of steps on an interval: every value is compared, and none is believed from floats."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import relunorm as rn
from relunorm.clock import Clock
from relunorm.forms.comparison.shallow import largest_difference, shallow_form, steps_apart
from relunorm.network import Affine, Network
from relunorm.network.layer import Activation, Layer

BOX = rn.Box([-2.0], [2.0])


def steps(weights: list[Any], biases: list[Any], at_zero: float = 0.5) -> Network:
    return Network.from_weights(weights, biases, Activation("step", at_zero=at_zero))


def with_equal_rows(seed: int, grid: bool, merged: bool) -> tuple[Network, Network]:
    """A network 1-w-w-1 with equal rows, and one in which they are merged or share otherwise."""
    rng = np.random.default_rng(seed)
    w = int(rng.integers(3, 9))
    k = int(rng.integers(2, w))

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(-64, 65, shape) / 16.0 if grid else rng.normal(size=shape)

    rows, offsets = draw(k, 1), draw(k)
    copies = np.concatenate([np.arange(k), rng.integers(0, k, w - k)])
    read, biases, last, end = draw(w, w), draw(w), draw(1, w), draw(1)
    first = steps([rows[copies], read, last], [offsets[copies], biases, end])
    if merged:
        sums = np.stack([read[:, copies == g].sum(axis=1) for g in range(k)], axis=1)
        return first, steps([rows, sums, last], [offsets, biases, end])
    moved = read.copy()
    for g in range(k):
        some = np.flatnonzero(copies == g)
        if len(some) > 1:
            shift = draw(w)
            moved[:, some[0]] += shift
            moved[:, some[1]] -= shift
    return first, steps([rows[copies], moved, last], [offsets[copies], biases, end])


def value(net: Network, x: Fraction) -> list[Fraction]:
    """A chain of steps by the definition: dense sums of fractions, no code of the package."""
    values = [x]
    for k, affine in enumerate([*(layer.affine for layer in net.layers), net.output]):
        matrix = np.asarray(affine.terms[k])
        values = [
            sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(matrix.tolist(), affine.bias.tolist(), strict=True)
        ]
        if k < len(net.layers):
            zero = Fraction(net.layers[k].activation.at_zero)
            values = [Fraction(v > 0) if v else zero for v in values]
    return values


def oracle(first: Network, second: Network) -> Fraction:
    """max |f - g| on BOX: the networks jump nowhere but at the zeros of their first layers."""
    cuts = {Fraction(-2), Fraction(2)}
    for net in (first, second):
        affine = net.layers[0].affine
        for w, b in zip(np.asarray(affine.terms[0])[:, 0], affine.bias, strict=True):
            if w and -2 < -Fraction(float(b)) / Fraction(float(w)) < 2:
                cuts.add(-Fraction(float(b)) / Fraction(float(w)))
    line = sorted(cuts)
    line += [a + (b - a) / 3 for a, b in pairwise(line)]
    return max(
        abs(a - b) for x in line for a, b in zip(value(first, x), value(second, x), strict=True)
    )


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("grid", [False, True])
def test_equal_rows_merged_or_shared_otherwise(grid: bool, merged: bool) -> None:
    """Most of these were `unknown`: a jump was counted for every pair of related steps."""
    for seed in range(3):
        first, second = with_equal_rows(seed, grid, merged)
        gap = oracle(first, second)
        found = rn.compare(first, second, BOX, tolerance=0.0, time_limit=20)
        assert found.verdict == ("equal" if gap == 0 else "different")
        assert found.upper >= gap
        assert not grid or gap == 0


@pytest.mark.parametrize("seed", range(12))
def test_the_largest_difference_is_the_oracle_s(seed: int) -> None:
    first, second = with_equal_rows(seed, grid=bool(seed % 2), merged=True)
    rng = np.random.default_rng(seed)
    weights = [np.array(layer.affine.terms[k]) for k, layer in enumerate(second.layers)]
    weights.append(np.array(second.output.terms[2]))
    biases = [*(layer.affine.bias.copy() for layer in second.layers), second.output.bias.copy()]
    part = (weights if seed % 3 else biases)[seed % 3]
    part[tuple(rng.integers(0, n) for n in part.shape)] += 2.0 ** -int(rng.integers(1, 50))
    other = steps(weights, biases)
    found = largest_difference(first, other, BOX)
    assert found is not None
    gap = oracle(first, other)
    assert found[0] == gap
    if found[1] is not None:
        at = Fraction(found[1])
        assert (
            max(abs(a - b) for a, b in zip(value(first, at), value(other, at), strict=True)) == gap
        )
    assert (rn.compare(first, other, BOX, tolerance=0.0).verdict == "equal") == (gap == 0)


def test_a_single_point_counts() -> None:
    """They differ at one input alone: 1/2, which is a float, or 1/3, which is none."""
    for offset, verdict in ((-1.5, "different"), (-1.0, "unknown")):
        sides = [
            steps([[[3.0]], [[1.0]], [[1.0]]], [[offset], [-0.25], [0.0]], at_zero)
            for at_zero in (0.5, 0.0)
        ]
        found = rn.compare(sides[0], sides[1], BOX)
        assert (found.verdict, found.upper) == (verdict, 1.0)


def test_beyond_float64_nothing_is_said() -> None:
    huge = [[[1.0], [1.0]], [[1e308, 1e308]]]
    sides = [steps(huge, [[0.0, 0.0], [sign * 1e308]]) for sign in (1, -1)]
    found = largest_difference(sides[0], sides[1], BOX)
    assert found is not None
    assert found[0] == 2 * Fraction(1e308)


@pytest.mark.parametrize(
    "net",
    [
        Network.from_weights([[[1.0]], [[1.0]]]),
        Network.from_weights([[[1.0, 1.0]], [[1.0]]], activation="step"),
        Network(
            [Layer(Affine({0: np.ones((1, 1))}, np.zeros(1)), Activation("step"))],
            Affine({0: np.ones((1, 1)), 1: np.ones((1, 1))}, np.zeros(1)),
            input_shape=1,
        ),
        Network(
            [
                Layer(Affine({0: np.ones((1, 1))}, np.zeros(1)), Activation("step")),
                Layer(
                    Affine({0: np.ones((1, 1)), 1: np.ones((1, 1))}, np.zeros(1)),
                    Activation("step"),
                ),
            ],
            Affine({2: np.ones((1, 1))}, np.zeros(1)),
            input_shape=1,
        ),
    ],
    ids=["relu", "two inputs", "input to output", "input and steps read together"],
)
def test_where_it_does_not_apply(net: Network) -> None:
    box = rn.Box.cube(net.input_size)
    assert largest_difference(net, net, box) is None


def test_a_deadline_and_other_domains_end_it() -> None:
    net = steps([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    assert largest_difference(net, net, BOX, Clock(0)) is None
    assert largest_difference(net, net, rn.Ball([0.0], 1.0)) is None
    assert largest_difference(net, net, rn.Box([1.0], [1.0])) == (0, 1.0)


@pytest.mark.parametrize("at_zero", [0.5, 0.0, 3.0])
def test_merged_rows_of_one_hidden_layer(at_zero: float) -> None:
    """The merged weights are rounded, so the forms differ, by less than anyone can see."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows, offsets = rng.normal(size=(3, 4)), rng.normal(size=3)
        rows[:, 0] = np.abs(rows[:, 0])  # no unit is turned, which would move the constant, too
        copies = np.array([0, 1, 2, 0, 1, 0])
        last, end = rng.normal(size=(2, 6)), rng.normal(size=2)
        first = steps([rows[copies], last], [offsets[copies], end], at_zero)
        sums = np.stack([last[:, copies == g].sum(axis=1) for g in range(3)], axis=1)
        second = steps([rows, sums], [offsets, end], at_zero)
        box = rn.Box.cube(4)
        assert rn.compare(first, second, box).verdict in ("equal", "within")
        sums[1, 2] += 0.25
        other = steps([rows, sums], [offsets, end], at_zero)
        gap = steps_apart(shallow_form(first, box), shallow_form(other, box), box)
        points = rng.uniform(-1, 1, (400, 4))
        assert gap is not None
        assert np.abs(first(points) - other(points)).max() <= gap + 1e-12
        assert gap == pytest.approx(0.25 * max(1.0, at_zero))
        assert rn.compare(first, other, box).verdict == "different"


def test_forms_that_cannot_be_subtracted() -> None:
    box = rn.Box.cube(1)
    forms = [
        shallow_form(Network.from_weights([[[1.0]], [[1.0]]], activation=activation), box)
        for activation in (Activation("step"), Activation("step", at_zero=1.0), Activation("relu"))
    ]
    assert steps_apart(forms[0], forms[1], box) is None
    assert steps_apart(forms[2], forms[2], box) is None
    turned = steps([[[-1.0]], [[1.0]]], [[0.0], [0.0]], at_zero=1.0)  # step(-x): both are 1 at 0
    assert steps_apart(forms[1], shallow_form(turned, box), box) == 2
