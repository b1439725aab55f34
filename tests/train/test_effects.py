"""Partial dependence against brute force on a grid, kinks included."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relunorm.errors import InvalidInputError
from relunorm.network import Network
from relunorm.train.effects import feature_effects, plot_effects


def random_network(rng: np.random.Generator, sizes: list[int]) -> Network:
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    return Network.from_weights(weights, [rng.normal(size=len(w)) for w in weights])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 2))
def test_mean_over_rows_at_any_value(seed, depth, outputs):
    rng = np.random.default_rng(seed)
    network = random_network(rng, [3, *[5] * depth, outputs])
    x = rng.normal(size=(12, 3))
    for effect in feature_effects(network, x):
        t = rng.uniform(x[:, effect.feature].min(), x[:, effect.feature].max(), 20)
        moved = np.repeat(x[None], len(t), axis=0)
        moved[:, :, effect.feature] = t[:, None]
        expected = network(moved.reshape(-1, 3)).reshape(len(t), 12, outputs).mean(axis=1)
        assert effect(t) == pytest.approx(expected, abs=1e-9 * (1 + np.abs(expected).max()))


def test_every_kink_is_a_knot():
    rng = np.random.default_rng(4)
    network = random_network(rng, [2, 6, 1])
    x = rng.normal(size=(5, 2))
    effect = feature_effects(network, x, [0])[0]
    w, b = network.layers[0].affine.terms[0], network.layers[0].affine.bias
    # w_0 t + w_1 x_1 + b = 0 for every row and unit
    kinks = (-(x[:, 1:] @ w[:, 1:].T + b) / w[:, 0]).ravel()
    inside = np.sort(kinks[(kinks > x[:, 0].min()) & (kinks < x[:, 0].max())])
    assert effect.knots[1:-1] == pytest.approx(inside)
    assert "knots" in repr(effect)
    assert effect.to_dict()["rows"] == 5


def test_inputs_that_cannot_be_used_are_named():
    network = random_network(np.random.default_rng(0), [2, 3, 1])
    with pytest.raises(InvalidInputError, match="2 inputs"):
        feature_effects(network, np.zeros((4, 3)))
    with pytest.raises(InvalidInputError, match=r"features \[1\]"):
        feature_effects(network, [[0.0, 1.0], [1.0, 1.0]], [1])
    with pytest.raises(InvalidInputError, match="no input varies"):
        plot_effects(feature_effects(network, [[0.0, 1.0]]))


def test_the_picture_has_a_panel_for_each_input(tmp_path):
    rng = np.random.default_rng(1)
    effects = feature_effects(random_network(rng, [4, 5, 1]), rng.normal(size=(300, 4)), rows=20)
    figure = plot_effects(effects)
    assert sum(ax.get_visible() for ax in figure.axes) == 4
    assert all(len(effect.curves) == 20 for effect in effects)
    assert figure.axes[0].get_ylabel() == "output"
    figure.savefig(tmp_path / "effects.png")


def test_several_outputs_share_a_panel():
    rng = np.random.default_rng(2)
    effects = feature_effects(random_network(rng, [2, 5, 3]), rng.normal(size=(9, 2)))
    figure = plot_effects(effects, labels=["a", "b", "c"])
    best = max(effects, key=lambda effect: effect.size)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    for k, label in enumerate("abc"):
        np.testing.assert_array_equal(lines[label], best.values[:, k])
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["a", "b", "c"]
    assert plot_effects(effects, 1, labels=["a", "b", "c"]).axes[0].get_ylabel() == "b"
