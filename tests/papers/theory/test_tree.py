"""The tree model against brute force (2^t rows), exact integers, and its own laws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relunorm.errors import InvalidInputError
from relunorm.papers.batchnorm.theory.tree_model import (
    Tree,
    cluster_count,
    negative_transformation,
    positive_transformation,
)


def brute_rows(x, depth):
    rows = np.array([x], dtype=np.float64)
    for _ in range(depth):
        moved = rows - rows.mean(axis=1, keepdims=True)
        rows = np.maximum(np.vstack([moved, -moved]), 0)
    return rows


def brute_gram(x, depth):
    rows = brute_rows(x, depth)
    return rows.T @ rows


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 12])
def test_equals_brute_force_to_depth_14(n):
    x = np.random.default_rng(n).standard_normal(n)
    tree = Tree(x)
    for depth in range(15):
        expected = brute_gram(x, depth)
        for found in (tree.run(depth).gram(), tree.jump(depth).gram()):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * expected.max())


def test_stepping_equals_running():
    tree = Tree([0.3, -1.0, 2.0, 0.7, 5.0])
    stepped = tree
    for _ in range(9):
        stepped = stepped.step()
    np.testing.assert_allclose(stepped.gram(), tree.run(9).gram(), rtol=1e-15)
    assert stepped.depth == 9
    assert tree.depth == 0


@settings(max_examples=60)
@given(st.lists(st.integers(-6, 6), min_size=2, max_size=7).filter(lambda v: len(set(v)) > 1))
def test_exact_mode_is_exact_with_ties_and_duplicates(values):
    """Fractions by brute force: no rounding anywhere, ties on the mean included."""
    rows = [[Fraction(v) for v in values]]
    n = len(values)
    tree = Tree(values, exact=True)
    for depth in range(7):
        found = tree.run(depth)
        expected = [[sum(r[i] * r[j] for r in rows) for j in range(n)] for i in range(n)]
        assert found.gram_exact().tolist() == expected
        counts = found.clusters()
        excess = sum(len(set(r)) - 2 for r in rows)
        assert counts.excess[0] == excess
        assert counts.conserved
        moved = [[v - sum(r) / n for v in r] for r in rows]
        rows = [[max(s * v, Fraction(0)) for v in r] for r in moved for s in (1, -1)]


@pytest.mark.parametrize("n", [5, 20, 60])
def test_exact_integers_against_floats_at_depth_300(n):
    x = np.random.default_rng(n).integers(-1000, 1000, n).tolist()
    exact, floats = Tree(x, exact=True).run(300), Tree(x).run(300)
    for found in (floats, Tree(x).jump(300)):
        np.testing.assert_allclose(
            found.gram(normalize=True), exact.gram(normalize=True), rtol=0, atol=1e-14
        )
    assert math.isclose(floats.gram()[0, 0], float(exact.gram_exact()[0, 0]), rel_tol=1e-11)


@settings(max_examples=40)
@given(st.integers(2, 30), st.integers(0, 10**6))
def test_conservation_law_at_every_depth(n, seed):
    x = np.random.default_rng(seed).standard_normal(n)
    tree = Tree(x)
    for depth in (0, 1, 2, 3, 5, 10, 40, 200, 3000):
        counts = tree.run(depth).clusters()
        assert counts.conserved
        assert sum(counts.three_or_more[0].values()) <= max(n - 2, 0)
        assert tree.jump(depth).clusters().conserved


def test_cluster_counts_match_brute_force():
    x = np.random.default_rng(3).standard_normal(9)
    for depth in range(1, 11):
        counts = [cluster_count(row) for row in brute_rows(x, depth)]
        expected = {c: counts.count(c) for c in set(counts) if c > 2}
        assert Tree(x).run(depth).clusters().three_or_more[0] == expected


def test_theorem_10_stability_layer():
    x = np.random.default_rng(0).standard_normal(12)
    tree = Tree(x)
    t0 = tree.stability_layer()
    assert tree.run(t0).clusters().stable
    assert not tree.run(t0 - 1).clusters().stable


def test_theorem_11_over_500_batches():
    rng = np.random.default_rng(11)
    for trial in range(500):
        n = int(rng.integers(5, 40))
        x = np.sort(rng.standard_normal(n) if trial % 2 else rng.exponential(size=n))
        tree = Tree(x)
        limit = tree.limit()
        gram = tree.run(7).gram()
        assert gram[0, -1] == 0  # item 1, at any depth
        g = limit.gram
        norms = np.sqrt(np.diag(g))
        inside = g[1:-1, 1:-1] / np.outer(norms[1:-1], norms[1:-1])
        np.testing.assert_allclose(inside, 1, atol=1e-12)  # item 2
        assert limit.norm_ratio <= limit.printed_norm_bound  # item 3
        assert limit.angle >= limit.printed_angle_bound  # item 4
        r = limit.ratio
        assert math.isclose(
            limit.norm_ratio, math.sqrt((1 + r) / ((n - 1) ** 2 + r)), rel_tol=1e-12
        )
        cosine = r / math.sqrt((1 + r) * ((n - 1) ** 2 + r))
        assert math.isclose(limit.cosine, cosine, rel_tol=1e-9, abs_tol=1e-15)
        assert set(limit.odd) <= {0, n - 1}


@pytest.mark.parametrize("n", [3, 6, 25])
def test_limit_is_where_depth_leads(n):
    tree = Tree(np.random.default_rng(n).standard_normal(n))
    deep = tree.run(200 * n).gram(normalize=True)
    np.testing.assert_allclose(deep, tree.limit().gram, atol=1e-12)
    np.testing.assert_allclose(tree.jump(10**7).gram(normalize=True), tree.limit().gram, atol=1e-12)


def test_a_symmetric_batch_has_two_odd_points():
    limit = Tree([-2.0, -0.5, 0.0, 0.5, 2.0]).limit()
    assert limit.odd == (0, 4)
    assert limit.ratio == pytest.approx(1)
    assert limit.norm_ratio == pytest.approx(math.sqrt(2 / (16 + 1)))


def test_rounded_ties_count_as_ties():
    """0.2 is not the mean of 0.1, 0.2, 0.3 in floats, but within rounding of it."""
    counts = Tree([0.1, 0.2, 0.3]).run(1).clusters()
    assert counts.ties == (1,)
    assert counts.excess == (0,)
    assert counts.conserved


def test_duplicated_extremes_decide_by_the_more_unbalanced_split():
    x = [0.0, 0.0, 1.0, 2.0, 3.0, 9.0]
    tree = Tree(x)
    np.testing.assert_allclose(tree.run(500).gram(normalize=True), tree.limit().gram, atol=1e-12)
    assert tree.limit().odd == (5,)


def test_one_tree_per_coordinate():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((8, 3))
    X[:, 1] = 4.0  # a constant column is gone after one layer
    tree = Tree(X)
    np.testing.assert_allclose(tree.gram(), X @ X.T, rtol=1e-13)
    expected = brute_gram(X[:, 0], 9) + brute_gram(X[:, 2], 9)
    np.testing.assert_allclose(tree.run(9).gram(), expected, atol=1e-13 * expected.max())
    deep = tree.run(3000).gram(normalize=True)
    np.testing.assert_allclose(tree.limit().gram, deep, atol=1e-10)
    assert tree.run(5).clusters().conserved


def test_order_of_the_points_does_not_matter():
    x = np.array([3.0, -1.0, 0.5, 2.0])
    order = [2, 0, 3, 1]
    gram = Tree(x).run(6).gram()
    np.testing.assert_allclose(Tree(x[order]).run(6).gram(), gram[np.ix_(order, order)], rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-300, 1e150, 1e300])
def test_scale_does_not_matter(scale):
    x = np.array([0.3, -1.0, 2.0, 0.7, 5.0])
    expected = Tree(x).run(40).gram(normalize=True)
    np.testing.assert_allclose(Tree(scale * x).run(40).gram(normalize=True), expected, rtol=1e-12)
    assert Tree(scale * x).limit().odd == Tree(x).limit().odd


def test_a_gram_matrix_beyond_floats_is_refused():
    with pytest.raises(InvalidInputError, match="normalize=True"):
        Tree([0.0, 1e300, 3e300]).run(1).gram()


def test_two_points():
    """Orthogonal and equally long: there is no cluster that one of them could escape from."""
    limit = Tree([1.0, 3.0]).limit()
    assert limit.odd == ()
    assert limit.groups == ((0,), (1,))
    assert limit.cosine == 0
    assert limit.norm_ratio == 1
    assert limit.printed_norm_bound is None


@pytest.mark.parametrize(
    ("x", "groups", "escaping", "degrees"),
    [
        ([1, 1, 2, 2], ((0, 1), (2, 3)), (), 90.0),
        ([2, 1, 2, 1, 1], ((0, 2), (1, 3, 4)), ((0, 2),), 90.0),
        ([1, 1, 2, 3, 3], ((0, 1), (3, 4), (2,)), ((0, 1), (3, 4)), None),
        ([1, 1, 2, 3, 4, 5], ((5,), (0, 1, 2, 3, 4)), ((5,),), 90.0),
    ],
)
def test_equal_points_move_as_one(x, groups, escaping, degrees):
    limit = Tree(x).limit()
    assert limit.groups == groups
    assert limit.escaping == escaping
    assert limit.odd == (escaping[0] if len(escaping) == 1 == len(escaping[0]) else ())
    assert limit.printed_angle_bound is None
    deep = Tree(x).run(400)
    np.testing.assert_allclose(deep.gram(normalize=True), limit.gram, atol=1e-12)
    angles = deep.angles()
    assert limit.angle == pytest.approx(angles[groups[0][0], groups[-1][0]], abs=1e-6)
    if degrees is not None:
        assert math.degrees(limit.angle) == pytest.approx(degrees)
    for group in groups:
        assert angles[np.ix_(group, group)].max() < 1e-6
    assert ("no cluster" in repr(limit)) == (not escaping)


def test_several_coordinates_send_out_points_of_their_own():
    X = np.random.default_rng(0).standard_normal((20, 10))
    limit = Tree(X).limit()
    assert limit.odd == ()
    assert len(limit.escaping) > 2
    assert f"no odd point, {len(limit.escaping)} groups escape" in repr(limit)
    extremes = {*X.argmin(axis=0).tolist(), *X.argmax(axis=0).tolist()}
    assert set(limit.groups[-1]) == set(range(20)) - extremes  # extreme in no coordinate
    assert limit.printed_angle_bound is None
    # the remark before Theorem 11: the same two points extreme in every coordinate
    line = np.random.default_rng(1).standard_normal(9)
    assert Tree(np.column_stack([line, 3 * line])).limit().odd == Tree(line).limit().odd


def test_transformations_of_a_vector():
    np.testing.assert_array_equal(positive_transformation([0, 1, 5]), [0, 0, 3])
    np.testing.assert_array_equal(negative_transformation([0, 1, 5]), [2, 1, 0])


def test_results_are_json_safe():
    import json

    tree = Tree([0.0, 1.0, 5.0, 6.0]).run(2)
    json.dumps(tree.clusters().to_dict(), allow_nan=False)
    json.dumps(tree.limit().to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([2.0, 2.0, 2.0], "are equal"),
        ([1.0], "at least two"),
        ([], "at least two"),
        ([1.0, math.nan], "NaN"),
        (np.zeros((2, 2, 2)), "shape"),
        (["a", "b"], "numbers"),
    ],
)
def test_bad_input(x, message):
    with pytest.raises(InvalidInputError, match=message):
        Tree(x)


def test_bad_depth_and_mode():
    with pytest.raises(InvalidInputError, match="before"):
        Tree([0.0, 1.0]).run(3).run(2)
    with pytest.raises(InvalidInputError, match="whole number"):
        Tree([0.0, 1.0]).run(2.5)
    with pytest.raises(InvalidInputError, match="exact=True"):
        Tree([0.0, 1.0]).gram_exact()
    with pytest.raises(InvalidInputError, match="exact mode"):
        Tree(["x", 1], exact=True)


@pytest.mark.parametrize("x", [[0, 1e-17, 1.0, 3.0], [1e-20, 2e-20, 1, 5], [0, 1e-17, 2e-17, 1, 3]])
def test_gaps_that_rounding_takes(x):
    """Clusters that the mean's subtraction merges count as one from then on."""
    tree = Tree(x)
    odd = tree.limit()
    assert odd.odd == (len(x) - 1,)
    far = tree.jump(1000)
    assert far.clusters().conserved
    np.testing.assert_allclose(
        far.gram(normalize=True), tree.run(1000).gram(normalize=True), atol=1e-12
    )
    assert sum(tree.run(3).clusters().faded) >= 1


def test_exact_limit_keeps_small_gaps_beside_large_ones():
    """[0, 1, 3, N, N + 7]: S at the extreme splits as fractions say at depth 300, for N = 10^18."""
    tree = Tree([0, 1, 3, 10**18, 10**18 + 7], exact=True)
    deep = tree.run(300)
    found = tree.limit()
    gram = deep.gram_exact()
    trace = sum(gram[i, i] for i in range(5))
    # splits 2 and 3 lose by a factor (13/17) a layer, the large gap starts 10^36 above
    np.testing.assert_allclose(found.gram, (gram / trace).astype(float), atol=1e-3)


def test_a_tie_at_the_end_of_a_jump():
    for depth in range(1, 5):
        jumped, taken = Tree([-1.0, 0, 1]).jump(depth), Tree([-1.0, 0, 1]).run(depth)
        assert jumped.clusters().conserved
        np.testing.assert_allclose(jumped.gram(), taken.gram(), atol=1e-14)


def test_constant_coordinates_count_at_depth_zero():
    x = [[0, 5], [1, 5], [3, 5]]
    plain, exact = Tree(x), Tree(x, exact=True)
    expected = np.array(x, float) @ np.array(x, float).T
    np.testing.assert_allclose(plain.gram(), expected)
    np.testing.assert_allclose(plain.gram(normalize=True), expected / np.trace(expected))
    np.testing.assert_allclose(exact.gram(normalize=True), expected / np.trace(expected))
    assert np.isfinite(plain.angles()).all()
    assert np.isfinite(Tree([[0, 1e300], [1, 1e300]]).gram(normalize=True)).all()


def test_beyond_the_range_of_numbers():
    with pytest.raises(InvalidInputError, match="2\\^62"):
        Tree([0.0, 1, 3]).jump(2**63)
    with pytest.raises(InvalidInputError, match="normalize"):
        Tree([0.0, 1e200, 3], exact=True).gram()


@pytest.mark.parametrize("exact", [False, True])
def test_a_gram_matrix_below_floats_is_not_called_zero(exact):
    tree = Tree([1e-310, 2e-310, 5e-310], exact=exact).run(10)
    with pytest.raises(InvalidInputError, match="too small for floats"):
        tree.gram()
    large = Tree([1e-10, 2e-10, 5e-10]).run(10).gram(normalize=True)
    np.testing.assert_allclose(tree.gram(normalize=True), large, rtol=1e-9)
