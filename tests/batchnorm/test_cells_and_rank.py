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
from relunorm.batchnorm._cone_cut import cone_of
from relunorm.batchnorm._cone_measure import ConeMeasure
from relunorm.batchnorm._orthant_measure import OrthantMeasure
from relunorm.batchnorm.cells import distinct_lines
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError


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
    # ray estimates of single cells have a few per cent of error; counting 1e-3 absolute
    tolerance = 0.004 if k <= 3 else 0.02
    np.testing.assert_allclose(found.volumes, counted, atol=tolerance)


def test_higher_dimension_states_coverage_and_error():
    X = np.random.default_rng(3).standard_normal((8, 4))
    found = gamma(X)
    assert found.kind == "estimate"
    assert found.cells_total == 128
    assert found.coverage > 0.95
    assert 0 < found.error < found.gamma
    again = gamma(X, random_state=5, samples=20_000)
    assert abs(again.volumes.sum() - 1) < 0.1
    json.dumps(found.to_dict(), allow_nan=False)


def test_orthant_is_estimated_without_bias():
    """Four orthogonal points: every cell has measure 1/16."""
    found = gamma(np.eye(4), samples=20_000)
    assert abs(found.gamma - 1 / 16) < 5 * found.error + 1e-12
    assert found.rivals == found.ties == 7
    assert found.doubt == ""  # equal cells leave nothing open
    assert "16 of them equally small" in repr(found)
    assert found.coverage == 1


def test_rivals_that_are_not_known_to_be_equal_leave_a_doubt():
    """x_i = x_j in five dimensions: 120 equal cells, each measured with an error."""
    X = np.array([np.eye(5)[i] - np.eye(5)[j] for i in range(5) for j in range(i)])
    found = gamma(X, samples=50)
    assert found.rivals > found.ties == 0
    assert "as small within the error" in found.doubt


def test_thin_cells_beyond_three_dimensions():
    """A wedge of angle 1e-6 cut by two orthogonal planes: atan(1e-6) / (8 pi)."""
    X = np.eye(4)[[0, 1, 2, 3, 0]]
    X[4, 1] = 1e-6
    found = gamma(X)
    truth = np.arctan(1e-6) / (8 * np.pi)
    assert abs(found.gamma - truth) < 5 * found.error < 0.05 * truth
    assert found.cells == found.cells_total == 24


@pytest.mark.parametrize("seed", range(4))
def test_products_of_exact_arrangements(seed):
    """Points in two orthogonal subspaces: cells are products, so gamma is the product of both."""
    rng = np.random.default_rng(seed)
    space, plane = rng.standard_normal((6, 3)), rng.standard_normal((4, 2))
    for other in (np.eye(1), plane):
        k = 3 + other.shape[1]
        X = np.zeros((6 + len(other), k))
        X[:6, :3], X[6:, 3:] = space, other
        X = X @ np.linalg.qr(rng.standard_normal((k, k)))[0]
        found = gamma(X, random_state=seed)
        parts = gamma(space), gamma(other)
        truth = parts[0].gamma * parts[1].gamma
        assert abs(found.gamma - truth) < 5 * found.error < 0.1 * truth
        assert found.cells == parts[0].cells * parts[1].cells
        assert abs(found.volumes.sum() - 1) < 0.05


def test_the_smallest_cell_does_not_depend_on_the_seed():
    X = np.random.default_rng(101).normal(size=(5, 4))
    found = [gamma(X, random_state=seed) for seed in range(8)]
    values = np.array([f.gamma for f in found])
    assert values.max() < 1.1 * values.min()
    assert {f.doubt for f in found} == {""}
    assert len({f.signs[f.smallest].tobytes() for f in found}) == 1


def test_more_cells_than_can_be_listed():
    found = gamma(np.random.default_rng(0).standard_normal((12, 5)), max_cells=300)
    assert found.cells <= 300
    assert found.cells_total is None
    assert "missed" in found.doubt
    every = gamma(np.random.default_rng(0).standard_normal((12, 5)))
    assert every.gamma < found.gamma + 5 * found.error


@pytest.mark.parametrize(("n", "k", "seed"), [(16, 4, 0), (16, 4, 1), (12, 5, 2), (9, 6, 3)])
def test_thin_corners_lead_to_the_smallest_cell(n, k, seed):
    """A fifth of the cells or less is collected; listing all of them is the oracle."""
    X = np.random.default_rng(seed).standard_normal((n, k))
    every, found = gamma(X, max_cells=5000), gamma(X, max_cells=100, random_state=seed)
    assert every.doubt == ""
    assert every.coverage == every.seen.share == 1
    assert found.cells <= 100
    assert found.coverage == pytest.approx(found.cells / every.cells)
    assert abs(found.gamma - every.gamma) < 5 * math.hypot(found.error, every.error)
    smallest = every.signs[every.smallest]
    assert found.signs[found.smallest].tobytes() in (smallest.tobytes(), (-smallest).tobytes())
    # what the cells found hold, from the measures of the full list
    volume = {s.tobytes(): v for s, v in zip(every.signs, every.volumes, strict=True)}
    held = sum(volume[s.tobytes()] for s in found.signs)
    assert abs(found.seen.share - held) < 5 * found.seen.error + 0.01
    json.dumps(found.to_dict(), allow_nan=False)


def test_thin_corners_of_a_degenerate_arrangement():
    """x_i = x_j in six dimensions: 720 equal cells, many hyperplanes through every ray."""
    pairs = [(i, j) for i in range(6) for j in range(i)]
    X = np.array([np.eye(6)[i] - np.eye(6)[j] for i, j in pairs])
    found = gamma(X, max_cells=100)
    assert abs(found.gamma - 1 / 720) < 5 * found.error
    assert found.coverage < found.cells / 720  # Cover's count is an upper bound here


def test_cells_too_complex_to_measure(monkeypatch):
    from relunorm.batchnorm import _cone_measure

    monkeypatch.setattr(_cone_measure, "MAX_PIECES", 0)
    found = gamma(np.random.default_rng(0).standard_normal((7, 5)), max_cells=50)
    assert found.to_dict()["error"] is None
    assert "rough" in found.doubt


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e200])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_scale_of_the_batch_does_not_matter(factor, k):
    X = np.random.default_rng(0).standard_normal((5, k))
    assert gamma(X * factor).gamma == pytest.approx(gamma(X).gamma, rel=1e-9 if k < 4 else 0.1)
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
    assert "the time limit ended the search" in beyond.doubt
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


@pytest.mark.parametrize(("n", "d"), [(14, 64), (25, 30), (30, 20)])
def test_a_time_limit_holds_in_many_dimensions(n, d):
    """On a clock that moves by 0.1 ms whenever it is read: 20 s to minutes before."""
    read = iter(range(10**9))
    clock = Clock(0.002, read=lambda: 1e-4 * next(read))
    found = gamma(np.random.default_rng(0).standard_normal((n, d)), time_limit=clock)
    assert next(read) < 100
    assert 2 <= found.cells < 100  # 2,000 were collected whatever the limit
    assert "time limit" in found.doubt
    json.dumps(found.to_dict(), allow_nan=False)


def test_simplicial_cones_in_many_dimensions():
    """Correlations of 1/2: all k positive has probability 1/(k + 1), exactly."""
    rng = np.random.default_rng(0)
    for k in (5, 14, 25):
        measure = OrthantMeasure(np.linalg.cholesky((np.eye(k) + 1) / 2))
        measure.sample(20_000, rng)
        assert measure.error < 0.02 / (k + 1)
        assert abs(measure.value - 1 / (k + 1)) < 4 * measure.error


def test_simplicial_cones_by_both_measures():
    rng = np.random.default_rng(1)
    for k in (4, 6, 7):
        inner = rng.standard_normal((k, k))
        inner /= np.linalg.norm(inner, axis=1, keepdims=True)
        one = OrthantMeasure(inner)
        other = ConeMeasure(cone_of(inner, np.ones(k, np.int8), lambda: False), lambda: False)
        for measure in (one, other):
            measure.sample(10_000, rng)
        assert abs(one.value - other.value) < 4 * np.hypot(one.error, other.error)


def test_as_many_points_as_dimensions_are_measured():
    """14 points in 64 dimensions ended with an infinite error; orthogonal ones are known."""
    found = gamma(np.random.default_rng(0).standard_normal((14, 64)), max_cells=60, samples=500)
    assert 0 < found.error < 0.1 * found.gamma
    assert found.gamma < 2.0**-14
    assert gamma(np.eye(14), max_cells=20, samples=10).gamma == pytest.approx(2.0**-14)


@pytest.mark.parametrize("zeros", [0, 1, 3])
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
