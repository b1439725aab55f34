"""One test per erratum of seed 004; each fails on the printed statement (docs/errata.md)."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from relunorm.batchnorm import (
    Tree,
    arccos_kernel,
    check_invariant,
    cluster_count,
    fixed_points,
    gamma,
    gram_step,
    invariant_alpha,
    invariant_gram,
    kernel_gram,
    negative_transformation,
    odd_points,
    odd_state,
    positive_transformation,
    propagate,
    rank_bounds,
    rank_condition,
    sample_neuron_counts,
    symmetric_state,
    theorem14,
)


def circle(n):
    t = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(t), np.sin(t)])


def test_example_after_definition_1():
    """Printed: n cells of measure 1/n. Correct: 2n cells of measure 1/(2n)."""
    found = gamma(circle(7))
    assert found.cells == 14 != 7
    assert found.gamma == pytest.approx(1 / 14)
    assert found.gamma != pytest.approx(1 / 7)


def test_proof_of_lemma_2():
    """Printed (18)-(20): pushing w across the nearest hyperplane changes that sign alone. It need
    not: here x_1 has the smallest |w.x| and the push along it changes the sign at x_2 as well."""
    w = np.array([1.0, 0.0])
    x1, x2 = np.array([1.0, 0.0]), np.array([1.1, 10.0])
    assert abs(w @ x1) < abs(w @ x2)
    for epsilon in (1e-1, 1e-3, 1e-6):
        moved = w - (1 + epsilon) * (w @ x1) / np.linalg.norm(x1) * x1
        assert moved @ x1 < 0
        assert moved @ x2 < 0  # printed: > 0


def test_lemma_2_itself_holds():
    """The rank of a batch that lacks one rises with probability at least gamma."""
    rng = np.random.default_rng(0)
    X = circle(5)
    W = rng.standard_normal((4, 2))
    hidden = np.maximum(W @ X.T, 0)
    assert np.linalg.matrix_rank(hidden) == 4
    rises = [
        np.linalg.matrix_rank(np.vstack([hidden, np.maximum(rng.standard_normal(2) @ X.T, 0)])) == 5
        for _ in range(2000)
    ]
    assert np.mean(rises) >= gamma(X).gamma


def test_expected_neurons_by_half_the_printed_bound():
    """Printed: E[y] <= n/gamma, with (26)-(27) bounding y_t by gamma(X^(t+1)), which for t = n does
    not exist. Correct: gamma(X^(t)), and 2 + (n-1)/(2 gamma) suffices."""
    X = circle(5)
    bounds = rank_bounds(5, gamma(X).gamma)
    counts = sample_neuron_counts(X, 400)
    assert counts.mean + 4 * counts.error < bounds.sharper < bounds.printed / 2
    # y_1: one point, gamma(X^(1)) = 1/2, E[y_1] = 2 exactly; gamma(X^(2)) would allow more
    first = sample_neuron_counts(X[:1], 4000)
    assert abs(first.mean - 1 / gamma(X[:1]).gamma) < 4 * first.error
    assert 1 / gamma(X[:2]).gamma > 2.4
    assert abs(first.mean - rank_bounds(1, 0.5).sharper) < 4 * first.error  # half of n/gamma is 1


def test_corollary_4_needs_centred_columns():
    """Printed: no two columns of X collinear. (0,1), (1,1), (3,1) are not, yet the rank stays 2."""
    X = np.array([[0.0, 1], [1, 1], [3, 1]])
    condition = rank_condition(X, recenter=True)
    assert condition.printed_applies
    assert not condition.applies
    W = np.random.default_rng(0).standard_normal((5000, 2))
    z = W @ X.T
    z = z - z.mean(axis=1, keepdims=True)
    hidden = np.maximum(z / z.std(axis=1, keepdims=True), 0)
    assert np.linalg.matrix_rank(hidden, tol=1e-8) == condition.attainable == 2 < 3


def test_theorem_13_is_about_the_expected_gram_matrix():
    """Printed: E[X] is invariant, so |E x_1|^2 = 1. It is 1/pi."""
    alpha = invariant_alpha(8)
    assert check_invariant(alpha * gram_step(invariant_gram(8))).holds
    width, rng = 20_000, np.random.default_rng(0)
    x = np.array([[1.0, 0]] + [[0, 1 / 7]] * 7)
    mean = np.zeros(width)
    for _ in range(200):
        z = rng.standard_normal((width, 2)) @ (x - x.mean(axis=0)).T
        mean += np.maximum(z[:, 0], 0) * math.sqrt(2 * alpha / width) / 200
    assert mean @ mean == pytest.approx(1 / math.pi, abs=0.02)


def test_theorem_14_items_1_and_2_are_about_squared_norms():
    """Printed: E|x_1'| = 1. By Jensen it is below 1 at finite width; E|x_1'|^2 = 1."""
    rng, width = np.random.default_rng(0), 3
    # every entry of x_1' is ReLU of N(0, 2/width)
    entries = np.maximum(rng.standard_normal((200_000, width)) * math.sqrt(2 / width), 0)
    norms = np.linalg.norm(entries, axis=1)
    assert (norms**2).mean() == pytest.approx(1, abs=0.01)
    assert norms.mean() < 0.9
    gram = np.diag([2.0, 0, 0, 0]) + 0.001 * np.pad(np.ones((3, 3)), ((1, 0), (1, 0)))
    assert theorem14(gram).odd_norm == pytest.approx(1)


@pytest.mark.parametrize("n", [3, 10, 1000])
def test_theorem_14_hypothesis_excludes_invariant_representations(n):
    """Printed: an invariant representation with R > n/(n-1). Def. 12 gives R^2 = 1 + 1/(n-1)^2."""
    found = theorem14(invariant_gram(n))
    assert found.radius**2 == pytest.approx(1 + 1 / (n - 1) ** 2)
    assert not found.radius > n / (n - 1)
    assert not found.hypothesis


@pytest.mark.parametrize("n", [5, 20])
def test_definition_12_is_unstable(n):
    """Printed: a stability result. Squared distances in the cluster grow by alpha > 1 a layer."""
    gram = invariant_gram(n)
    tiny = 1e-10
    gram[1, 1] += tiny
    alpha = invariant_alpha(n)
    after = alpha * gram_step(gram)
    before_d = gram[1, 1] + gram[2, 2] - 2 * gram[1, 2]
    after_d = after[1, 1] + after[2, 2] - 2 * after[1, 2]
    assert alpha > 1
    assert after_d / before_d == pytest.approx(alpha, rel=1e-3)


@pytest.mark.parametrize(("n", "degrees"), [(10, 45.20), (20, 24.54), (50, 10.38), (100, 5.294)])
def test_the_attractor_is_equiangular(n, degrees):
    """Printed: the cluster collapses to a point. It settles at about 3 pi / n."""
    state = odd_state(n)
    assert state.stable
    assert math.degrees(state.angle) == pytest.approx(degrees, abs=0.005)
    assert math.degrees(state.angle) > 1
    assert state.norm_ratio * (n - 1) == pytest.approx(1, abs=2.2 / n)


def test_small_batches_have_no_odd_point_and_the_symmetric_state_is_stable():
    """Printed: consistent for all batches, after enough layers. Not for n <= 6; and at infinite
    width not for batches near the symmetric state, which attracts (its basin shrinks with n)."""
    for n in range(3, 7):
        assert [p.kind for p in fixed_points(n)] == ["symmetric"]
    for n in (8, 20, 100):
        assert symmetric_state(n).stable
    X = np.random.default_rng(0).standard_normal((8, 200))
    assert propagate(X, 600, method="infinite", rescale=False).onset() is None


def test_onset_is_later_in_wider_networks():
    def median(width):
        onsets = []
        for seed in range(9):
            X = np.random.default_rng(seed).standard_normal((8, 50))
            run = propagate(X, 1500, width, rescale=False, random_state=seed)
            onsets.append(run.onset() or 1500)
        return np.median(onsets)

    assert median(50) * 2 < median(800)


def test_the_odd_point_is_not_always_the_largest_input():
    digits = load_digits().data / 16
    largest, others = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = digits[rng.choice(len(digits), 10, replace=False)]
        run = propagate(X, 400, 200, rescale=False, random_state=seed)
        odd = odd_points(run.grams[-1]).points
        if len(odd) == 1:
            same = odd[0] == np.argmax(np.linalg.norm(X, axis=1))
            largest, others = largest + same, others + (not same)
    assert others > 0
    assert largest + others > 10


def test_rescaling_without_recentering_needs_the_second_moment():
    """Printed (2) is a deviation about the mean; 60 degrees come from the second moment."""
    X = load_digits().data[:10] / 16
    rms = propagate(X, 30, method="infinite", recenter=False).mean_angles()[-1]
    std = propagate(X, 30, method="infinite", recenter=False, statistic="std").mean_angles()[-1]
    assert math.degrees(rms) == pytest.approx(60, abs=1)
    assert math.degrees(std) < 2


def test_the_angle_of_full_batch_norm_falls_with_the_batch():
    """Printed: about 75 degrees, without n. It is arccos J(-1/(n-1)): 75 to the degree for 9 or 10
    points, within two and a half degrees for 6 to 29."""
    angles = {n: math.degrees(symmetric_state(n).angle) for n in range(5, 32)}
    for n in (5, 10, 29):  # rescaled or not
        assert math.degrees(symmetric_state(n, rescale=True).angle) == angles[n]
    assert [n for n, angle in angles.items() if round(angle) == 75] == [9, 10]
    assert [n for n, angle in angles.items() if abs(angle - 75) <= 2.5] == list(range(6, 30))
    hundred = math.degrees(symmetric_state(100, rescale=True).angle)
    assert hundred == pytest.approx(math.degrees(math.acos(arccos_kernel(-1 / 99))))
    assert hundred == pytest.approx(71.74, abs=0.005)


def test_theorem_10_equation_31():
    """Printed: c_3 - c_2 stays the same while the number of clusters does. The smallest
    interior gap does not shrink; c_3 - c_2 changes with a negative transformation."""
    x = np.array([0.0, 1, 3, 4, 20])
    y = negative_transformation(x)
    assert cluster_count(y) == cluster_count(x)
    before, after = np.unique(x), np.unique(y)
    assert after[2] - after[1] != pytest.approx(before[2] - before[1])
    assert np.diff(after)[1:-1].min() == pytest.approx(np.diff(before)[1:-1].min())


def test_theorem_11_is_loose():
    """Printed: norm ratio up to 3/(n-2). Sharp: at most sqrt(2/((n-1)^2+1)), under half of it."""
    rng = np.random.default_rng(0)
    for n in (10, 50):
        limits = [Tree(rng.standard_normal(n)).limit() for _ in range(50)]
        sharp = math.sqrt(2 / ((n - 1) ** 2 + 1))
        assert max(limit.norm_ratio for limit in limits) <= sharp * (1 + 1e-12)
        assert sharp < limits[0].printed_norm_bound / 1.9
        # item 4: (12) and (87) read sqrt(2 pi), (88) sqrt(2) pi, which is what (85) gives:
        # arccos x >= pi/2 - pi x / 2 at x = 4 / (sqrt(2) (n-2)); the sharp deficit is below both
        proof = math.pi / 2 * 4 / (math.sqrt(2) * (n - 2))
        assert math.pi / 2 - limits[0].printed_angle_bound == pytest.approx(proof)
        deficit = max(math.pi / 2 - limit.angle for limit in limits)
        sharp = math.asin(1 / math.sqrt(2 * ((n - 1) ** 2 + 1)))
        assert deficit <= sharp * (1 + 1e-12) < math.sqrt(2 * math.pi) / (n - 2) < proof


def test_the_tree_needs_no_exponential_number_of_rows():
    """Printed: exponential build-up in complexity. At most n - 2 rows are not two-cluster rows."""
    counts = Tree(np.random.default_rng(0).standard_normal(30)).run(60).clusters()
    assert sum(counts.three_or_more[0].values()) <= 28 < 2**60


def test_arccos_kernel_exceeds_the_product_only_off_the_ray():
    """Printed: K(x, y) > x.y for x != y. Equal on one ray: y = 2x."""
    x = np.array([1.0, 2.0, -1.0])
    points = np.array([x, 2 * x, [1.0, 0, 0]])
    gram = points @ points.T
    kernel = kernel_gram(gram)
    assert kernel[0, 1] == pytest.approx(gram[0, 1], rel=1e-12)
    assert kernel[0, 2] > gram[0, 2]


def test_rank_of_a_product_is_at_most_the_smaller():
    """Printed: rank(AB) <= max(rank A, rank B)."""
    A, B = np.diag([1.0, 0, 0]), np.eye(3)
    ranks = np.linalg.matrix_rank(A), np.linalg.matrix_rank(B)
    assert np.linalg.matrix_rank(A @ B) == min(ranks) < max(ranks)


def test_equation_19_pushes_short_points_not_far_enough():
    """Printed: (w - (1+e) (w.x/|x|) x).x < 0. With |x| = 1/2 it stays positive; |x|^2 is right."""
    w, x = np.array([1.0, 0.0]), np.array([0.5, 0.0])
    for power, negative in ((1, False), (2, True)):
        moved = w - 1.001 * (w @ x) / np.linalg.norm(x) ** power * x
        assert (moved @ x < 0) == negative


def test_waiting_times_are_not_independent():
    """Printed before (28): y_1, ..., y_n are independent. For two points at a right angle y_2 = 0
    needs a row before the first that is positive on x_1, so it never goes with y_1 = 1."""
    z = np.random.default_rng(0).standard_normal((4000, 40, 2)) > 0
    first = z[:, :, 0].argmax(axis=1)
    ready = ((np.arange(40) < first[:, None]) & z[:, :, 1]).any(axis=1)
    assert not ready[first == 0].any()
    assert ready[first > 0].mean() > 0.5


def test_equation_48_lacks_the_weight_of_l2():
    """Printed: the numerator of (48) is the weight of L_1 alone. It is that of L_1 and L_2."""
    n = 8
    gram = Tree(np.r_[-4.0, np.linspace(-1, 1, n - 2), 4.1]).jump(20_000).gram(normalize=True)
    two, one = gram[1, 0], gram[1, -1]
    ends = (n - 1) ** 2 * one + two
    assert gram[1, 1] / gram[0, 0] == pytest.approx((one + two) / ends, rel=1e-9)
    assert gram[1, 1] / gram[0, 0] > 1.5 * one / ends


def test_equation_42_leaves_out_the_last_point():
    """Printed: rows split 1 and n-1 keep all of 2, ..., n together. The last point may be alone."""
    rows = [np.array([0.0, 1.0, 2.2, 2.9, 5.0])]
    for _ in range(7):
        rows = [f(row) for row in rows for f in (positive_transformation, negative_transformation)]
    split = [row for row in rows if sorted(np.unique(row, return_counts=True)[1]) == [1, 4]]
    assert any(np.ptp(row[1:]) > 0 for row in split)
    assert all(np.ptp(row[1:-1]) == 0 for row in split)


def test_equation_92_divides_by_the_last_norm():
    """Printed: the product of points 2 and n over |x_2| |x_1|. The right side is over |x_n|."""
    n = 8
    gram = Tree(np.r_[-4.0, np.linspace(-1, 1, n - 2), 5.0]).jump(20_000).gram(normalize=True)
    ratio = gram[1, 0] / gram[1, -1]  # (B + D) / (A + C)
    right = 1 / math.sqrt((1 + (n - 1) ** 2 * ratio) * (1 + ratio))
    first, second, last = np.sqrt(np.diag(gram))[[0, 1, -1]]
    assert gram[1, -1] / (second * last) == pytest.approx(right, rel=1e-9)
    assert gram[1, -1] / (second * first) != pytest.approx(right, rel=0.1)


def test_projections_that_put_the_cluster_below_the_mean_empty_it():
    """Printed: those with w nu > mu map many more points to zero than those with w nu < mu."""
    rng = np.random.default_rng(0)
    x = 0.01 * rng.normal(size=(20, 10))
    x[0, 0] += 1.0
    z = (x - x.mean(axis=0)) @ rng.normal(size=(10, 500))
    zeros, above = (z <= 0).sum(axis=0), z[1:].mean(axis=0) > 0
    assert zeros[~above].mean() > 2 * zeros[above].mean()


def test_equation_35d_is_not_strict():
    """Printed: x_max - mean falls strictly from one negative transformation to the next. With none
    between nothing has happened yet; with a positive one between it does fall."""
    x = np.array([0.0, 1, 1.1, 1.2, 1.3, 3.5])
    first = negative_transformation(x)
    last = negative_transformation(first)
    assert cluster_count(x) == cluster_count(first) == cluster_count(last) == 6
    assert last.mean() == pytest.approx((1 - 5 / 6) * (first.max() - first.mean()))  # (35c), equal
    assert last.mean() < (1 - 2 / 6) * x.mean()  # (35f)
    x = np.array([0.0, 1, 1.1, 3, 3, 3, 3, 3, 3, 3])
    first = negative_transformation(x)
    kept = positive_transformation(first)
    assert cluster_count(x) == cluster_count(first) == cluster_count(kept) == 4
    assert kept.max() - kept.mean() < 0.99 * (first.max() - first.mean())  # (35d)


def test_equation_31_holds_for_positive_transformations():
    """Where it is stated: c_3 - c_2 stays while positive transformations keep the clusters."""
    x = np.array([0.0, 0, 0, 0, 3, 4, 6])
    y = positive_transformation(x)
    assert cluster_count(y) == cluster_count(x) == 4
    assert np.diff(np.unique(y))[1] == pytest.approx(np.diff(np.unique(x))[1])


def test_a_point_that_stands_out_is_the_odd_one():
    """Printed: the odd point is typically the largest input. For digits as they are it is one in
    ten, by chance; made twice as long, the largest is."""
    digits = load_digits().data / 16
    hits = {1.0: 0, 2.0: 0}
    for factor in hits:
        for seed in range(12):
            rng = np.random.default_rng(seed)
            X = digits[rng.choice(len(digits), 10, replace=False)]
            largest = np.argmax(np.linalg.norm(X, axis=1))
            X[largest] *= factor
            run = propagate(X, 400, 200, rescale=False, random_state=seed)
            hits[factor] += odd_points(run.grams[-1]).points == (largest,)
    assert hits[1.0] < 6 < hits[2.0]


def test_theorem_14_item_4_needs_another_hypothesis():
    """Printed for invariant representations, none of which meets R > n/(n-1); without that word the
    cluster shrinks."""
    points = np.zeros((10, 6))
    points[0, 0] = 1.5
    points[1:, 1] = 1 / 9
    points[1:] += 1e-3 * np.random.default_rng(0).standard_normal((9, 6))
    found = theorem14(points @ points.T)
    assert found.hypothesis
    assert found.contraction < 1
    assert not any(theorem14(invariant_gram(n)).hypothesis for n in (3, 10, 100))


def descendants(row, layers):
    rows = [np.asarray(row, dtype=float)]
    for _ in range(layers):
        rows = [f(row) for row in rows for f in (positive_transformation, negative_transformation)]
    return np.array(rows)


def test_rows_split_one_from_the_rest_keep_all_inner_points_together():
    """Printed after (41): the points {2, ..., n-2}. (42) needs {2, ..., n-1}, which holds."""
    rows = descendants([0.0, 1.0, 2.2, 2.9, 4.0, 7.0], 8)
    split = [row for row in rows if sorted(np.unique(row, return_counts=True)[1]) == [1, 5]]
    together = {i + 1 for i in range(6) if all(row[i] == row[2] for row in split)}
    assert together == {2, 3, 4, 5} != {2, 3, 4}


def test_equation_63_is_for_a_range_of_points():
    """Printed: i in {3, n-2}. (63) holds for i from 3 to n-2."""
    n, squares = 8, np.zeros(8)
    splits = {1: 1.0, n - 1: 1.3, 2: 0.7, n - 2: 1.1}
    for split, c in splits.items():
        row = np.r_[np.zeros(split), np.full(n - split, c)]
        squares += (descendants(row, 1) ** 2).sum(axis=0)
    wanted = sum((1 if m in (1, n - 1) else 4) * c**2 for m, c in splits.items()) / n**2
    found = {i + 1 for i in range(n) if squares[i] == pytest.approx(wanted, rel=1e-12)}
    assert found == {3, 4, 5, 6} != {3, 6}


def test_a_row_at_layer_t_has_its_rows_at_layer_t_plus_T():
    """Printed: a three-cluster row at layer t generates 2^T rows at layer T."""
    t, T = 2, 3
    row = [0.0, 0.7, 1.9, 1.9, 1.9]
    assert len(descendants(row, T - t)) == 2 != 2**T
    later = descendants(row, (t + T) - t)
    assert len(later) == 2**T
    assert [cluster_count(r) for r in later].count(3) == 1


def test_d_of_t_belongs_to_the_other_three_cluster_rows():
    """Printed: D(T) is of the rows (1, 1, n-2), as C(T) is. (76) needs the rows (n-2, 1, 1)."""
    n, T = 8, 12

    def exponent(row, split):
        """Sum of c^2 over the descendants at T - 1 whose first cluster has ``split`` points."""
        rows = descendants(row, T - 1)
        own = [r for r in rows if cluster_count(r) == 2 and (r != r[0]).argmax() == split]
        return sum(r.max() ** 2 for r in own)

    left = np.r_[0.0, 0.6, np.ones(n - 2)]
    right = 3 * left[::-1]
    truth = sum((descendants(row, T)[:, -1] ** 2).sum() for row in (left, right))
    c, d = exponent(left, 1), exponent(right, n - 1)
    assert truth == pytest.approx(c / n**2 + ((n - 1) / n) ** 2 * d, rel=0.05)
    assert truth > 3 * (c / n**2 + ((n - 1) / n) ** 2 * exponent(left, 1))


def splits(rows):
    """How many points the first cluster of every two-cluster row has."""
    two = [row for row in rows if cluster_count(row) == 2]
    return {int((row != row[0]).argmax()) for row in two}


@pytest.mark.parametrize(("n", "stable", "found"), [(5, 1, 4), (6, 2, 5)])
def test_unbalanced_rows_may_be_missing_when_rows_are_stable(n, stable, found):
    """Printed after (41): L^(t) is not empty, and after (71): A(T), ..., D(T) are positive for
    every T >= 1. Equally spaced points: neither, at the first stable layers; later both."""
    layers = [descendants(np.arange(n), t) for t in range(found + 1)]
    assert all(cluster_count(row) <= 3 for row in layers[stable])
    for rows in layers[stable:found]:
        assert not {1, n - 1} & splits(rows)
    assert splits(descendants(np.arange(n), 9)) >= {1, 2, n - 2, n - 1}


def test_equation_62_is_negative_for_three_points():
    """Printed: (61) <= (62). For n = 3 the factor (n-1)^2/(2n-7) is negative."""
    for n in (3, 4, 5, 20):
        a, q = ((n - 1) / n) ** 2, (4 + (n - 2) ** 2) / n**2
        total = sum(a**s * q ** (9 - s) for s in range(1, 10))
        assert (total <= (n - 1) ** 2 / (2 * n - 7) * a**9) == (n > 3)


def test_a_middle_cluster_at_the_mean_leaves_two_clusters_twice():
    """Printed (figure 8): one child always has three clusters."""
    children = descendants([0.0, 1.0, 2.0], 1)
    assert [cluster_count(child) for child in children] == [2, 2]
    assert sorted(cluster_count(child) for child in descendants([0.0, 1.1, 2.0], 1)) == [2, 3]
