"""gamma(X), neuron counts and the rank conditions against sampling and linear algebra."""

import decimal
import json
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relunorm.batchnorm import (
    cell_count,
    gamma,
    propagate,
    rank_bounds,
    rank_condition,
    sample_neuron_counts,
)
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.papers.batchnorm.theory.weight_cells import distinct_lines


def circle(n):
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(t), np.sin(t)])


@pytest.mark.parametrize("n", [3, 5, 7, 21])
def test_odd_equally_spaced_points(n):
    found = gamma(circle(n))
    assert found.gamma == pytest.approx(1 / (2 * n), rel=1e-10)
    assert found.cells == 2 * n


def test_twelve_points_in_space():
    found = gamma(np.random.default_rng(0).standard_normal((12, 3)))
    assert found.cells == 134 == cell_count(12, 3)
    assert abs(found.volumes.sum() - 1) < 1e-9
    assert found.kind == "exact"


def sampled(lines, signs, samples=200_000):
    W = np.random.default_rng(1).standard_normal((samples, lines.shape[1]))
    weights = 2 ** np.arange(lines.shape[0])
    seen = np.bincount((W @ lines.T > 0) @ weights, minlength=2 ** len(lines)) / samples
    return seen[(signs > 0) @ weights]


@pytest.mark.parametrize(("n", "k"), [(6, 2), (7, 3), (7, 4), (8, 5)])
def test_volumes_against_counting(n, k):
    X = np.random.default_rng(n).standard_normal((n, k))
    found = gamma(X)
    counted = sampled(distinct_lines(X), found.signs)
    np.testing.assert_allclose(found.volumes, counted, atol=0.004)


def test_higher_dimension_states_coverage_and_error():
    X = np.vstack([np.eye(4), np.ones(4)])
    found = gamma(X)
    assert found.kind == "estimate"
    assert found.cells_total == found.cells == 30
    assert found.coverage == 1
    assert 0 < found.error < found.gamma
    assert found.volumes.sum() == pytest.approx(1)
    json.dumps(found.to_dict(), allow_nan=False)


def test_orthant_is_estimated_without_bias():
    """Four orthogonal points: every cell has measure 1/16, and all are as small."""
    found = [gamma(np.eye(4), samples=50, random_state=seed) for seed in range(40)]
    away = [(f.gamma - 1 / 16) / f.error for f in found]
    assert abs(np.mean(away)) < 4 / math.sqrt(40)
    assert {f.rivals for f in found} == {7}
    assert all("as small within the error" in f.doubt for f in found)


@pytest.mark.parametrize("seed", range(2))
def test_products_of_exact_arrangements(seed):
    """Points in two orthogonal subspaces: cells are products, so gamma is the product of both."""
    rng = np.random.default_rng(seed)
    space, plane = np.vstack([np.eye(3), np.ones(3)]), circle(7)[:3]
    for other in (np.eye(1), plane):
        k = 3 + other.shape[1]
        X = np.zeros((4 + len(other), k))
        X[:4, :3], X[4:, 3:] = space, other
        X = X @ np.linalg.qr(rng.standard_normal((k, k)))[0]
        found = gamma(X, random_state=seed)
        parts = gamma(space), gamma(other)
        truth = parts[0].gamma * parts[1].gamma
        assert found.error < 0.5 * truth
        assert abs(found.gamma - truth) < 5 * found.error
        assert found.cells == parts[0].cells * parts[1].cells


def test_cells_too_thin_to_be_met_are_said():
    """A wedge of angle 1e-6 cut by two orthogonal planes, atan(1e-6) / (8 pi), is not met."""
    X = np.eye(4)[[0, 1, 2, 3, 0]]
    X[4, 1] = 1e-6
    found = gamma(X)
    assert found.cells == 16 < cell_count(5, 4)
    assert found.cells_total is None
    assert "below about 4e-06 may have been missed" in found.doubt


def test_more_cells_than_are_kept():
    X = np.random.default_rng(0).standard_normal((12, 5))
    found, every = gamma(X, max_cells=300), gamma(X)
    assert found.cells == 300 < every.cells
    assert found.gamma == every.gamma
    few = gamma(X, samples=10)
    assert few.seen < 1
    # what the cells met hold, from the measures of the longer run
    volume = {s.tobytes(): v for s, v in zip(every.signs, every.volumes, strict=True)}
    held = sum(volume.get(s.tobytes(), 0.0) for s in few.signs)
    assert abs(few.seen - held) < 5 * few.seen_error


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e200])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_scale_of_the_batch_does_not_matter(factor, k):
    X = np.random.default_rng(0).standard_normal((5, k))
    assert gamma(X * factor).gamma == pytest.approx(gamma(X).gamma, rel=1e-9)
    assert rank_condition(X * factor).to_dict() == rank_condition(X).to_dict()
    assert sample_neuron_counts(X * factor, 5).mean == sample_neuron_counts(X, 5).mean


def test_scale_of_single_points_does_not_matter():
    assert gamma(np.diag([1e-160, 1, 1e160])).gamma == pytest.approx(1 / 8)


@pytest.mark.parametrize("options", [{"max_cells": 0}, {"samples": 0}])
def test_no_samples(options):
    with pytest.raises(InvalidInputError, match="at least 2"):
        gamma(np.eye(4), **options)
    with pytest.raises(InvalidInputError, match="at least 1"):
        sample_neuron_counts(np.eye(3), 0)


@pytest.mark.parametrize("random_state", [-1, "a", 0.5])
def test_bad_random_state(random_state):
    for call in (gamma, sample_neuron_counts, lambda X, **k: propagate(X, 2, 5, **k)):
        with pytest.raises(InvalidInputError, match="random_state"):
            call(np.eye(4), random_state=random_state)


def test_one_trial_is_json_safe():
    json.dumps(sample_neuron_counts(np.eye(3), 1).to_dict(), allow_nan=False)


def test_degenerate_batches():
    assert gamma([[1.0, 0], [2.0, 0], [-3.0, 0]]).gamma == 0.5
    doubled = np.vstack([circle(5), 2 * circle(5), [[0.0, 0.0]]])
    assert gamma(doubled).gamma == pytest.approx(0.1)
    flat = np.column_stack([circle(7), np.zeros(7)])
    assert gamma(flat).gamma == pytest.approx(1 / 14)
    cube = np.vstack([np.eye(3), [[1, 1, 0], [1, 0, 1], [0, 1, 1]]])  # three planes meet in lines
    found = gamma(cube)
    assert found.volumes.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(
        found.volumes, sampled(distinct_lines(cube), found.signs), atol=0.004
    )


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 2)), "0"),
        (np.empty((0, 2)), "shape"),
        ([[np.nan, 1.0]], "NaN"),
        ([1.0, 2.0], "shape"),
    ],
)
def test_bad_batches(X, message):
    with pytest.raises(InvalidInputError, match=message):
        gamma(X)


def test_neuron_counts_against_matrix_rank():
    X = np.random.default_rng(0).standard_normal((6, 2))
    counts = sample_neuron_counts(X, 200)
    rng = np.random.default_rng(9)
    slow = []
    for _ in range(200):
        rows = []
        while np.linalg.matrix_rank(np.array(rows) if rows else np.zeros((1, 6))) < 6:
            rows.append(np.maximum(rng.standard_normal(2) @ X.T, 0))
        slow.append(len(rows))
    error = np.hypot(counts.error, np.std(slow) / np.sqrt(200))
    assert abs(counts.mean - np.mean(slow)) < 4 * error
    assert counts.unfinished == 0


@pytest.mark.parametrize("X", [circle(5), circle(9)], ids=["5", "9"])
def test_bounds_hold(X):
    n = len(X)
    bounds = rank_bounds(n, gamma(X).gamma)
    counts = sample_neuron_counts(X, 200)
    assert counts.mean <= bounds.sharper <= bounds.printed
    sharp, loose = bounds.probability(2.5)
    assert 0 < loose <= sharp <= 1


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=2, max_size=7),
    st.booleans(),
)
def test_attainable_rank_equals_the_rank_at_great_width(points, recenter):
    X = np.array(points, dtype=float)
    moved = X - X.mean(axis=0) if recenter else X
    if not np.abs(moved).max() > 1e-9:
        return
    W = np.random.default_rng(0).standard_normal((2000, 2))
    rank = np.linalg.matrix_rank(np.maximum(W @ moved.T, 0), tol=1e-8)
    assert rank_condition(X, recenter=recenter).attainable == rank


def test_unreachable_rank_is_refused():
    with pytest.raises(InvalidInputError, match="rank 2 at any width"):
        sample_neuron_counts([[0.0, 1], [1, 1], [3, 1]], recenter=True)
    with pytest.raises(InvalidInputError, match="gamma"):
        rank_bounds(3, 0.0)
    with pytest.raises(InvalidInputError, match="alpha"):
        rank_bounds(3, 0.1).probability(0.5)


@pytest.mark.parametrize("size", [1e-3, 1e-7, 1e-10])
def test_small_triangles_keep_their_relative_accuracy(size):
    """x, y < 0 < x + y + size at height 1: a right triangle of area size^2 / 2."""
    found = gamma([[1, 0, 0], [0, 1, 0], [1, 1, size]])
    assert found.cells == 8
    assert found.gamma == pytest.approx(size**2 / 2 / (4 * np.pi), rel=max(size, 1e-16 / size))


def test_exact_cells_of_many_points_in_space():
    """60 planes: as many different cells as there can be, and their measures against counting."""
    X = np.random.default_rng(4).standard_normal((60, 3))
    found = gamma(X)
    assert found.cells == cell_count(60, 3) == len(np.unique(found.signs, axis=0))
    assert abs(found.volumes.sum() - 1) < 1e-12
    drawn = np.random.default_rng(5).standard_normal((20_000, 3)) @ distinct_lines(X).T
    share = {s.tobytes(): v for s, v in zip(found.signs, found.volumes, strict=True)}
    patterns, seen = np.unique(np.sign(drawn).astype(np.int8), axis=0, return_counts=True)
    expected = np.array([share[p.tobytes()] for p in patterns]) * 20_000
    often = expected > 20
    assert often.sum() > 100
    assert np.abs((seen - expected) / np.sqrt(expected))[often].max() < 5


def test_the_smallest_cell_in_space_can_be_stopped_and_watched():
    X = np.random.default_rng(4).standard_normal((30, 3))
    seen = []
    every = gamma(X, progress=lambda said: seen.append((said.done, said.total)))
    assert seen == [(k, 30) for k in range(3, 30)]
    early = gamma(X, time_limit=0)
    assert early.gamma > every.gamma
    assert early.kind == "estimate"
    assert early.cells_total is None
    assert "stopped after 3 of 30 hyperplanes" in early.doubt
    assert abs(early.volumes.sum() - 1) < 1e-12
    json.dumps(early.to_dict(), allow_nan=False)

    def interrupt(said):
        if said.done == 10:
            raise KeyboardInterrupt

    assert "stopped after 10 of 30" in gamma(X, progress=interrupt).doubt
    beyond = gamma(np.random.default_rng(0).standard_normal((8, 4)), time_limit=0)
    assert "the time limit ended the sampling" in beyond.doubt
    with pytest.raises(InvalidInputError, match="time_limit"):
        gamma(X, time_limit=-1)


def test_bad_cell_counts():
    for arguments in ((-1, 3), (0, 3), (3, 0), (2.5, 2)):
        with pytest.raises(InvalidInputError, match="whole number"):
            cell_count(*arguments)


def printed_7a(n, g, alpha):
    """(7a) as printed, in 800 digits."""
    with decimal.localcontext(decimal.Context(prec=800)):
        g, alpha = Decimal(g), Decimal(alpha)
        exponent = alpha / g * (1 / alpha).ln() + (alpha / g - 1) * ((alpha - g) / (1 - g)).ln()
        return float(1 - (-n * exponent).exp())


@pytest.mark.parametrize("g", [0.5, 0.1, 1e-6, 1e-11, 1e-16, 1e-310, 5e-324])
@pytest.mark.parametrize("alpha", [1.01, 3.0, 1000.0])
def test_probability_bounds_for_any_gamma(g, alpha):
    sharp, loose = rank_bounds(4, g).probability(alpha)
    assert sharp == pytest.approx(printed_7a(4, g, alpha), rel=1e-11)
    assert loose <= sharp + 1e-15
    json.dumps(rank_bounds(4, g).to_dict(), allow_nan=False)


def test_stopped_trials_are_said():
    found = sample_neuron_counts(np.eye(3), 20, limit=3)
    free = sample_neuron_counts(np.eye(3), 20, limit=10_000)
    # a trial that reaches full rank with the last neuron allowed is finished
    assert 0 < found.unfinished < 20
    assert found.mean < free.mean
    assert math.isinf(found.error)
    assert f"{found.unfinished} of them stopped at 3 neurons: y >= 3.00" in repr(found)
    assert found.to_dict()["mean_is_lower_bound"]
    assert not free.to_dict()["mean_is_lower_bound"]
    assert "+-" in repr(free)


@pytest.mark.parametrize("tolerance", [-1, 0, 1.0, np.nan, "a"])
def test_bad_tolerance(tolerance):
    with pytest.raises(InvalidInputError, match="tolerance"):
        sample_neuron_counts(np.eye(3), 2, tolerance=tolerance)


def test_a_time_limit_holds_in_many_dimensions():
    """On a clock that moves by 0.1 ms whenever it is read."""
    read = iter(range(10**9))
    clock = Clock(0.002, read=lambda: 1e-4 * next(read))
    found = gamma(np.random.default_rng(0).standard_normal((25, 30)), time_limit=clock)
    assert next(read) < 100
    assert found.cells >= 2
    assert "time limit" in found.doubt
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("zeros", [0, 1])
def test_points_that_nearly_share_a_line_are_said(zeros):
    """[[1, 0], [1, 1e-13], [0, 1]] was called 0.25, exact; it is 1.6e-14."""
    more = np.eye(2 + zeros)[2:]

    def batch(angle):
        flat = np.array([[1, 0], [1, angle], [0, 1]])
        return np.vstack([np.pad(flat, ((0, 0), (0, zeros))), more])

    found = gamma(batch(1e-13), samples=100)
    assert found.kind == "estimate"
    assert math.isinf(found.error)
    assert "1e-13 apart" in found.doubt
    assert "1.6e-14" in found.doubt
    apart = gamma(batch(1e-11), samples=100)
    assert "apart" not in apart.doubt
    assert apart.gamma == pytest.approx(1e-11 / (2 * np.pi) / 2**zeros, rel=0.1)


def test_proportional_points_are_one_line():
    x = np.random.default_rng(0).standard_normal((3, 50))
    rows = np.vstack([x, -x / 3, 0.1 * x, 1e200 * x])
    found = gamma(rows)
    assert (found.hyperplanes, found.kind, found.doubt) == (3, "exact", "")
