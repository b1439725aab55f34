"""Equal points stay equal at every depth, and near ones part as direct weights part them."""

import numpy as np
import pytest

from relunorm.batchnorm import gram_step, odd_points, propagate
from relunorm.batchnorm.gram import EqualPoints, merged_step
from relunorm.batchnorm.random_layer import triangular_root
from relunorm.errors import InvalidInputError

FULL = {}
RECENTER = {"rescale": False}
RMS = {"recenter": False}
STD = {"recenter": False, "statistic": "std"}


def plain_network(X, layers, width, seed, recenter=True, rescale=True, statistic="auto"):
    """Activations of a ReLU network with every weight drawn and every point on its own."""
    rng = np.random.default_rng(seed)
    for _ in range(layers):
        z = X @ rng.standard_normal((X.shape[1], width)) * np.sqrt(2 / width)
        about = recenter or statistic == "std"
        spread = z.std(axis=0) if about else np.sqrt((z * z).mean(axis=0))
        z = z - z.mean(axis=0) if recenter else z
        X = np.maximum(z / spread if rescale else z, 0)
    return X


def test_groups_keep_the_order_of_the_batch():
    rows = np.array([[3.0, 1], [0, 2], [3, 1], [-0.0, 2], [1, 1]])
    equal = EqualPoints.of(rows)
    assert equal.first.tolist() == [0, 1, 4]
    assert equal.group.tolist() == [0, 1, 0, 1, 2]
    assert equal.counts.tolist() == [2, 2, 1]
    np.testing.assert_array_equal(equal.expand(rows[equal.first], 0), rows)


@pytest.mark.parametrize("method", ["weights", "gram", "infinite"])
@pytest.mark.parametrize("parts", [FULL, RECENTER, RMS], ids=str)
@pytest.mark.parametrize("which", [[0] * 5 + [1] * 5, [0, 0, 1], [0, 1, 1, 2, 0, 3]], ids=str)
def test_equal_points_stay_equal(which, parts, method):
    """A Cholesky factor of their rounded Gram matrix tore them apart within 25 to 80 layers."""
    X = np.random.default_rng(0).standard_normal((4, 6))[which]
    layers = 15 if method == "infinite" and parts is not RECENTER else 150
    run = propagate(X, layers, 60, method=method, **parts)
    for i, j in zip(*np.nonzero(np.equal.outer(which, which)), strict=True):
        np.testing.assert_array_equal(run.grams[:, i], run.grams[:, j])
    same = np.equal.outer(which, which)[np.triu_indices(len(which), 1)]
    assert (run.angles()[same] == 0).all()
    assert (run.angles()[~same] > 0.01).all()
    np.testing.assert_allclose(np.trace(run.grams, axis1=1, axis2=2), len(X), rtol=1e-12)


@pytest.mark.parametrize("rescale", [True, False])
def test_the_map_itself_keeps_equal_points_equal(rescale):
    X = np.random.default_rng(0).standard_normal((4, 6))[[0, 1, 1, 2, 3]]
    gram = X @ X.T
    gram[2], gram[:, 2] = gram[1], gram[:, 1]
    gram[2, 2] = gram[1, 1]
    for _ in range(20 if rescale else 120):
        gram = gram_step(gram, rescale=rescale)
        gram /= np.trace(gram)
    np.testing.assert_array_equal(gram[1], gram[2])


@pytest.mark.parametrize("recenter", [True, False])
@pytest.mark.parametrize("statistic", [None, "rms", "std"])
def test_counts_weigh_in_the_infinite_width_map(recenter, statistic):
    """One layer of the merged points is one layer of all of them."""
    X = np.random.default_rng(1).standard_normal((5, 7))
    equal = EqualPoints.of(X[[0, 1, 1, 2, 3, 4, 4, 4]])
    gram = X @ X.T
    merged = merged_step(gram, equal.counts, 0.1, recenter, statistic)
    whole = merged_step(equal.expand(gram, 0, 1), np.ones(8), 0.1, recenter, statistic)
    np.testing.assert_allclose(equal.expand(merged, 0, 1), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["weights", "gram"])
@pytest.mark.parametrize("parts", [FULL, RECENTER, RMS, STD], ids=str)
def test_counts_weigh_in_a_random_layer(parts, method):
    """Against every point on its own: means of 60 runs within four standard errors."""
    X = np.random.default_rng(3).standard_normal((4, 6))[[0, 0, 0, 1, 2, 3, 3]]
    runs = [propagate(X, 3, 30, random_state=s, method=method, **parts) for s in range(60)]
    states = [plain_network(X, 3, 30, 1000 + s, **parts) for s in range(60)]
    grams = [x @ x.T * 7 / np.sum(x * x) for x in states]
    logs = [np.log(np.sum(x * x) / 7) for x in states]
    for a, b in (
        ([r.grams[-1][0, 3] for r in runs], [g[0, 3] for g in grams]),
        ([r.grams[-1][6, 6] for r in runs], [g[6, 6] for g in grams]),
        ([r.log_scale[-1] for r in runs], logs),
    ):
        assert abs(np.mean(a) - np.mean(b)) < 4 * np.sqrt((np.var(a) + np.var(b)) / 60) + 1e-9


@pytest.mark.parametrize("distance", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("nl", ["relu", "linear"])
def test_near_points_part_as_direct_weights_part_them(distance, nl):
    """Nine near points and one other: the distance of a pair after three layers, 30 runs each."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((2, 20))[[0] * 9 + [1]] + distance * rng.standard_normal((10, 20))
    rescale = nl == "relu"

    def sizes(method):
        runs = [
            propagate(X, 3, 200, nl, rescale=rescale, method=method, random_state=s)
            for s in range(30)
        ]
        states = [r.activations for r in runs]
        return np.log([np.linalg.norm(x[0] - x[1]) / np.linalg.norm(x) for x in states])

    a, b = sizes("weights"), sizes("gram")
    assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / 30)


def test_a_root_knows_small_distances():
    rng = np.random.default_rng(0)
    for n, width in ((6, 40), (6, 4), (40, 200)):
        X = rng.standard_normal((n, width))
        X[1] = X[0] + 1e-11 * rng.standard_normal(width)
        X[2] *= 1e-9
        X[3] = X[2] * (1 + 1e-7 * rng.standard_normal(width))
        root = triangular_root(2 * X @ X.T, X)
        for i, j in ((0, 1), (2, 3), (0, 4)):
            expected = np.sqrt(2) * np.linalg.norm(X[i] - X[j])
            assert np.linalg.norm(root[i] - root[j]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("method", ["weights", "gram", "infinite"])
@pytest.mark.parametrize("n", [1, 4, 7])
def test_the_deviation_of_equal_points_is_refused(method, n):
    """Divided by a deviation of 0 or of rounding, log_scale was 75."""
    with pytest.raises(InvalidInputError, match="standard deviation is 0"):
        propagate(np.ones((n, 9)) / 3, 3, 50, recenter=False, statistic="std", method=method)
    assert propagate(np.ones((n, 9)) / 3, 3, 50, recenter=False, method=method).layers == 3


@pytest.mark.parametrize("method", ["weights", "gram"])
@pytest.mark.parametrize("stopped", [{"layers": 0}, {"layers": 5, "time_limit": 0.0}], ids=str)
def test_activations_before_any_layer_are_the_input(method, stopped):
    X = np.random.default_rng(0).standard_normal((4, 5))[[0, 1, 1, 2]]
    run = propagate(X, width=20, method=method, **stopped)
    assert run.layers == 0
    np.testing.assert_allclose(run.activations @ run.activations.T, run.grams[-1], atol=1e-12)


def test_arguments_with_a_clear_error():
    X = np.eye(3)
    for options, message in (
        ({"nl": 1e200}, "overflowed"),
        ({"time_limit": "x"}, "time_limit"),
        ({"time_limit": -1}, "time_limit"),
        ({"progress": 3}, "progress"),
        ({"recenter": "no"}, "recenter"),
        ({"rescale": 1}, "rescale"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            propagate(X, 3, 20, **options)


def test_the_gap_of_few_points_is_reported():
    test = odd_points(np.diag([100.0, 1, 1]))
    assert test.count == 0
    assert test.norm_gap == pytest.approx(10)
    assert odd_points(np.ones((1, 1))).norm_gap == 1
    assert odd_points(np.zeros((5, 5))).norm_gap == 1
