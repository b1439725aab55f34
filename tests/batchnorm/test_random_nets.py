"""Random deep networks: the three methods against each other, and the measured angles."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from relunorm.batchnorm import fixed_points, propagate
from relunorm.batchnorm.gram import odd_points
from relunorm.errors import InvalidInputError

RMS = {"recenter": False}
FULL = {"recenter": True}
STD = {"recenter": False, "statistic": "std"}


@pytest.fixture(scope="module")
def digits():
    return load_digits().data / 16


def last_angles(batches, layers, **options):
    """Mean angle after the last layer, degrees; batch k with random state k."""
    return np.array(
        [
            np.degrees(propagate(X, layers, random_state=k, **options).mean_angles()[-1])
            for k, X in enumerate(batches)
        ]
    )


def subsets(data, n, count):
    rng = np.random.default_rng(0)
    return [data[rng.choice(len(data), n, replace=False)] for _ in range(count)]


@pytest.mark.parametrize("parts", [RMS, FULL, STD, {"rescale": False}], ids=str)
def test_gram_sampler_has_the_law_of_weights(digits, parts):
    """Means over 40 runs of a narrow network agree within four standard errors."""
    a, b = (
        last_angles([digits[:8]] * 40, 4, width=40, method=method, **parts)
        for method in ("weights", "gram")
    )
    error = np.sqrt(a.var(ddof=1) / 40 + b.var(ddof=1) / 40)
    assert abs(a.mean() - b.mean()) < 4 * error
    assert 0.5 < a.std() / b.std() < 2


@pytest.mark.parametrize("parts", [RMS, FULL, STD, {"rescale": False}], ids=str)
def test_wide_networks_approach_infinite_width(digits, parts):
    X = digits[:6]
    wide = propagate(X, 3, 200_000, **parts).grams[-1]
    limit = propagate(X, 3, method="infinite", **parts).grams[-1]
    np.testing.assert_allclose(wide, limit, atol=0.03)


@pytest.mark.parametrize(
    ("parts", "n", "degrees", "within", "mean", "spread"),
    [
        (RMS, 10, 60.3, 1.0, 59.756, 0.59),
        (RMS, 100, 59.2, 0.5, 58.715, 0.49),
        (FULL, 10, 74.6, 0.5, 74.619, 0.17),
        (FULL, 100, 71.7, 0.3, 71.658, 0.06),
        (STD, 10, 0.9, 1.0, 0.890, 0.195),
        (STD, 100, 21.4, 2.0, 19.595, 1.42),
    ],
)
def test_mean_angles_after_30_layers_of_width_1000(digits, parts, n, degrees, within, mean, spread):
    """Random digits as scikit-learn gives them, angles after ReLU.

    ``mean`` and ``spread`` (of one run) are those of 9,225 runs with direct weights by
    benchmarks/batchnorm_angles.py, which shares no code with the package. The band is held by that
    mean, whose error is at most 0.015, and the sampler by it: four standard errors, for any seeds.
    """
    assert abs(mean - degrees) <= within
    runs = 100 if n == 10 else 8 if parts is FULL else 30
    found = last_angles(subsets(digits, n, runs), 30, width=1000, **parts)
    assert abs(found.mean() - mean) < 4 * spread / np.sqrt(runs)
    assert 0.5 < found.std(ddof=1) / spread < 2


def test_broadly_responding_neurons(digits):
    def share(**parts):
        runs = [propagate(digits[:100], 30, 1000, random_state=s, **parts) for s in range(4)]
        return np.mean([((r.activations > 0).mean(axis=0) >= 0.9).mean() for r in runs])

    assert abs(share(**RMS) - 0.11) <= 0.03
    assert share(**FULL) == 0


def test_recentering_alone_acts_once_in_a_linear_network():
    """Section II: without a non-linearity only the first layer's representation changes."""
    X = np.random.default_rng(0).standard_normal((5, 4)) + 2
    run = propagate(X, 4, nl="linear", rescale=False, method="infinite")
    centred = X - X.mean(axis=0)
    expected = centred @ centred.T
    for gram in run.grams[1:]:
        np.testing.assert_allclose(gram, expected * 5 / np.trace(expected), rtol=1e-12)


def test_scale_is_recorded():
    X = np.random.default_rng(0).standard_normal((4, 3))
    run = propagate(X, 2, nl="linear", recenter=False, rescale=False, method="infinite")
    true = 4 * X @ X.T  # the He scale doubles the second moment of a linear layer
    np.testing.assert_allclose(run.grams[2] * np.exp(run.log_scale[2]), true, rtol=1e-12)


def test_same_seed_same_run(digits):
    a, b = (propagate(digits[:5], 3, 20, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(a.grams, b.grams)
    json.dumps(a.to_dict(), allow_nan=False)


def test_interrupt_and_time_limit_keep_what_was_done(digits):
    def stop(said):
        if said.done == 3:
            raise KeyboardInterrupt

    run = propagate(digits[:5], 10, 20, progress=stop)
    assert run.layers == 3
    assert not run.complete
    assert propagate(digits[:5], 10, 20, time_limit=0.0).layers == 0


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 2)), "equal"),
        (np.ones((1, 2)), "at least two"),
        (np.empty((0, 2)), "shape"),
        (np.array([[1, np.nan], [0, 1]]), "NaN"),
        (np.ones(3), "shape"),
        ("text", "numbers"),
    ],
)
def test_bad_batches(X, message):
    with pytest.raises(InvalidInputError, match=message):
        propagate(X, 2)


def test_bad_options():
    X = np.eye(3)
    with pytest.raises(InvalidInputError, match="method"):
        propagate(X, 2, method="exact")
    with pytest.raises(InvalidInputError, match="layers is -1"):
        propagate(X, -1)
    with pytest.raises(InvalidInputError, match="all zeros"):
        propagate(np.zeros((2, 2)), 1, recenter=False)


@pytest.mark.parametrize("method", ["weights", "gram", "infinite"])
def test_one_and_two_points(method):
    one = propagate(np.ones((1, 3)), 2, 30, recenter=False, method=method)
    assert np.isnan(one.mean_angles()).all()
    assert "nan" not in repr(one)
    assert "no pair" in repr(one)
    json.dumps(one.to_dict(), allow_nan=False)
    for rescale in (False, True):
        two = propagate(np.eye(2), 3, 30, rescale=rescale, method=method)
        # recentered, two points are opposite, and ReLU makes opposite points orthogonal
        assert two.angles()[0] == pytest.approx(np.pi / 2)


@pytest.mark.parametrize("recenter", [True, False])
def test_a_linear_network_without_a_matrix_of_its_width(digits, recenter):
    """Bartlett's factor has the law of direct weights, and full activations fit its Gram matrix."""
    X, options = digits[:6], {"nl": "linear", "recenter": recenter, "rescale": False}
    runs = [
        [propagate(X, 3, 12, random_state=s, method=m, **options) for s in range(300)]
        for m in ("weights", "gram")
    ]
    for measure in (
        lambda r: r.grams[-1][0, 1],
        lambda r: r.grams[-1][2, 2],
        lambda r: r.log_scale[-1],
    ):
        a, b = (np.array([measure(r) for r in each]) for each in runs)
        assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / 300)
        assert 0.8 < a.std() / b.std() < 1.25
    for run in runs[1][:3]:
        assert run.activations.shape == (6, 12)
        np.testing.assert_allclose(run.activations @ run.activations.T, run.grams[-1], atol=1e-12)
    narrow = propagate(X, 3, 4, **options)  # fewer neurons than points
    assert np.linalg.matrix_rank(narrow.grams[-1]) <= 4


@pytest.mark.parametrize("nl", ["relu", "linear"])
@pytest.mark.parametrize("method", ["weights", "gram"])
def test_activations_belong_to_the_last_layer_kept(digits, method, nl):
    def stop(said):
        if said.done == 3:
            raise KeyboardInterrupt

    for rescale in (True, False):
        run = propagate(
            digits[:5], 9, 20, nl, recenter=False, rescale=rescale, method=method, progress=stop
        )
        product = run.activations @ run.activations.T
        np.testing.assert_allclose(product, run.grams[-1], atol=1e-12)


def test_infinite_width_needs_no_memory_for_its_width():
    assert propagate(np.eye(3), 2, 10**15, method="infinite").complete


def test_small_and_degenerate_batches():
    assert propagate(np.eye(2), 3, 50).layers == 3
    twice = np.vstack([np.eye(3), np.eye(3)])
    gram = propagate(twice, 2, 50).grams[-1]
    np.testing.assert_allclose(gram[:3, :3], gram[3:, 3:], rtol=1e-9)
    with_constant = np.column_stack([np.arange(4.0), np.full(4, 7.0)])
    assert propagate(with_constant, 2, 50).complete


@pytest.mark.parametrize("method", ["weights", "gram", "infinite"])
@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_an_offset_that_recentering_removes(method, offset):
    X = np.random.default_rng(0).standard_normal((6, 4))
    for rescale in (True, False):
        plain = propagate(X, 3, 2000, rescale=rescale, method=method)
        moved = propagate(X + offset, 3, 2000, rescale=rescale, method=method)
        np.testing.assert_allclose(moved.grams[1:], plain.grams[1:], atol=1e-5)
        np.testing.assert_allclose(moved.log_scale[1:], plain.log_scale[1:], atol=1e-5)


@pytest.mark.parametrize("method", ["weights", "gram", "infinite"])
@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_scale_moves_the_logarithm_alone(method, factor):
    X = np.random.default_rng(0).standard_normal((6, 4))
    for rescale in (True, False):
        plain = propagate(X, 2, 50, rescale=rescale, method=method)
        scaled = propagate(X * factor, 2, 50, rescale=rescale, method=method)
        np.testing.assert_allclose(scaled.grams, plain.grams, atol=1e-9)
        shift = np.full(3, 2 * np.log(factor))
        shift[1:] *= not rescale
        np.testing.assert_allclose(scaled.log_scale, plain.log_scale + shift, atol=1e-9)


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("recenter", [True, False])
def test_log_scale_is_the_same_for_all_methods(recenter, rescale):
    X = np.random.default_rng(0).standard_normal((5, 4))
    runs = [
        propagate(X, 3, 4000, recenter=recenter, rescale=rescale, method=method).log_scale
        for method in ("weights", "gram", "infinite")
    ]
    # fluctuations of width 4000: 1/sqrt(4000) a layer
    np.testing.assert_allclose(runs[0], runs[2], atol=0.1)
    np.testing.assert_allclose(runs[1], runs[2], atol=0.1)


def test_arguments_of_the_wrong_kind():
    X = np.eye(3)
    for arguments in ((X, 2.5), (X, 2, 3.5), (X, 2, 10, None), (X, -1), (X, True)):
        with pytest.raises(InvalidInputError):
            propagate(*arguments)


def test_results_are_json_safe():
    run = propagate(np.eye(4), np.int64(2), np.int64(9), random_state=np.int64(3))
    assert json.loads(json.dumps(run.to_dict(), allow_nan=False))["options"]["random_state"] == 3
    for state in fixed_points(np.int64(10)):
        json.dumps(state.to_dict(), allow_nan=False)


def test_a_tensor_with_gradient():
    torch = pytest.importorskip("torch")
    assert propagate(torch.eye(4, requires_grad=True), 2, 9).layers == 2


@pytest.mark.parametrize("norm_gap", [0.5, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
def test_onset_is_the_first_layer_of_which_odd_points_says_so(n, norm_gap):
    X = np.random.default_rng(n).normal(size=(n, 5))
    for seed in range(3):
        run = propagate(X, 150, 20, recenter=n > 1, rescale=False, random_state=seed)
        asked = {"norm_gap": norm_gap, "angle_gap": 0.2}
        odd = [k for k, gram in enumerate(run.grams) if odd_points(gram, **asked).count]
        assert run.onset(**asked) == (odd[0] if odd else None)
