"""One test per erratum of seed 002: each fails on the printed statement (docs/errata.md)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.special import ndtri

import relunorm as rn
import relunorm.dying as dying

EPSILON = 1e-3


def test_cones_after_23_have_the_wrong_signs_printed():
    dead_unit, linear_unit, plain_unit = ([1.0], -5.0), ([1.0], 5.0), ([1.0], 0.0)
    assert dying.in_dead_cone(*dead_unit, EPSILON)
    assert not dying.in_dead_cone(*plain_unit, EPSILON)
    assert dying.in_linear_cone(*linear_unit, EPSILON)
    assert not dying.in_linear_cone(*plain_unit, EPSILON)
    printed_dead = -ndtri(EPSILON) > 0.0  # b/|w| < -Phi^-1(eps) calls a half-active unit dead
    printed_linear = ndtri(EPSILON) < 0.0  # b/|w| > Phi^-1(eps) calls it linear too
    assert printed_dead
    assert printed_linear
    assert dying.firing_probability([1.0], 0.0) == 0.5


def test_24_lacks_the_inactive_term():
    """(25)-(26) are the gradient of the loss with the inactive term, not of (24) as printed."""
    goal, delta, h = np.array([0.5, -0.2]), 0.3, 1e-5

    def printed(w, b):
        full = dying.loss(w, b, goal, delta)
        inactive = 0.5 * (goal @ goal + delta**2) - _active_square(w, b, goal, delta)
        return float(full - inactive)

    w, b = np.array([0.4, 0.9]), -0.1
    gb = float(dying.gradient(w, b, goal, delta)[1])
    right = (dying.loss(w, b + h, goal, delta) - dying.loss(w, b - h, goal, delta)) / (2 * h)
    wrong = (printed(w, b + h) - printed(w, b - h)) / (2 * h)
    assert gb == pytest.approx(float(right), abs=1e-9)
    assert abs(gb - wrong) > 1e-2


def _active_square(w, b, goal, delta):
    """E[1{z>0} y^2] / 2 by Monte-Carlo-free quadrature over the plane."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    u = w / np.linalg.norm(w)
    rest = goal - (goal @ u) * u
    h = b / np.linalg.norm(w)
    t = np.linspace(-h, 12, 40001)  # along u, from the edge on
    y2 = (goal @ u * t + delta) ** 2 + rest @ rest
    density = np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    assert len(nodes) == len(weights)
    return 0.5 * np.trapezoid(y2 * density, t)


def test_11_and_12_hold_for_gradients_and_reversed():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(2, 10_000))
    relu_z, relu_y = np.maximum(z, 0), np.maximum(y, 0)
    exact, surrogate = relu_z - relu_y, relu_z - y
    larger = relu_y < relu_z
    assert (exact[larger] > 0).all()
    assert (exact[larger] <= surrogate[larger]).all()
    assert not (exact[larger] >= surrogate[larger]).all()  # (12) as printed
    below = (relu_y >= z) & (relu_y >= relu_z)
    assert not np.allclose(exact[below], surrogate[below])  # (11) as printed: the errors differ
    on = z > 0
    np.testing.assert_allclose((exact * on)[below], (surrogate * on * (y > 0))[below])


def test_same_sign_holds_for_gradients_and_not_for_errors():
    """Printed: at any x the error and the gradient are identical or of one sign."""
    rng = np.random.default_rng(2)
    x, w, b, goal, delta = rng.normal(size=(5, 10_000))
    y = goal * x + delta
    gradients, errors = [], []
    for target in (np.maximum(y, 0), y):
        bias = torch.tensor(b, requires_grad=True)
        error = torch.relu(torch.tensor(w * x) + bias) - torch.tensor(target)
        (error.square() / 2).sum().backward()
        gradients.append(np.sign(bias.grad.numpy()))
        errors.append(np.sign(error.detach().numpy()))
    np.testing.assert_array_equal(*gradients)
    off = (y < 0) & (w * x + b <= 0)
    np.testing.assert_array_equal(errors[0] != errors[1], off)  # the printed half about errors
    assert off.any()


def test_expected_gradients_can_oppose():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4000, 1))
    b = rng.normal(size=4000)
    s = dying.gradient(w, b, 1.0)[1]
    r = dying.gradient(w, b, 1.0, target="rectified")[1]
    assert (s * r < -1e-6).any()


def test_oscillation_starts_at_beta_star():
    """No paper gives the formula; the 0.7 that is printed is its value to one digit."""
    assert dying.beta_star(0.1) == pytest.approx(0.66942, abs=5e-6)
    for beta, oscillates in ((0.669, False), (0.670, True)):
        matrix = [[beta, 1 - beta], [-0.1 * beta, 1 - 0.1 * (1 - beta)]]
        assert bool(np.iscomplex(np.linalg.eigvals(matrix)).any()) is oscillates
        assert dying.momentum(0.1, beta).oscillates is oscillates


def test_eigenvalues_leave_the_right_half():
    """Section 4 puts all eigenvalues strictly in the right half; at beta = 0 one is 0."""
    assert min(v.real for v in dying.momentum(0.1, 0.0).eigenvalues) == 0
    assert dying.momentum(1.9, 0.0).stable
    assert not dying.momentum(2.1, 0.0).stable
    assert dying.momentum(2.1, 0.5).stable  # the limit grows with beta


def test_gamma_is_a_standard_deviation():
    y = dying.TargetScaler(gamma=0.1).fit_transform(np.random.default_rng(0).normal(3, 7, 1000))
    assert y.std() == pytest.approx(0.1)
    assert y.var() != pytest.approx(0.1)


def test_lower_left_quadrant_dies_without_momentum():
    found = dying.basin(1.0, 0.0, grid=41)
    quadrant = np.ix_(found.axis < 0, found.axis < 0)
    assert (found.classes[quadrant] == 1).all()  # the prose says it reaches the ground truth


def test_without_momentum_the_dying_region_spreads_to_both_sides():
    """Printed: a majority converges at every gamma, and the region that dies switches sign."""
    large, small = (dying.basin(g, 0.0, grid=41) for g in (1.0, 0.001))
    dead = [
        [(found.classes[:, side] == 1).mean() for side in (found.axis < 0, found.axis > 0)]
        for found in (large, small)
    ]
    assert dead[0][0] > 0.5 > dead[0][1]
    assert min(dead[1]) > 0.5  # it has not left w < 0
    assert small.optimum < 50 < large.optimum


def test_momentum_helps_at_gamma_one_and_hurts_at_small_gamma():
    share = {(g, b): dying.basin(g, b, grid=41).optimum for g in (1.0, 0.01) for b in (0.0, 0.95)}
    assert share[1.0, 0.95] > share[1.0, 0.0]
    assert share[0.01, 0.95] < share[0.01, 0.0]


def test_figure_5_is_with_momentum():
    """The caption says without: the figure's small regions are those of a large momentum."""
    without, large = (dying.basin(0.001, beta, grid=41, near=0.5).optimum for beta in (0.0, 0.99))
    assert large < 1
    assert without > 10  # as printed it would be small, too


def _random_chain(rng, biases=True):
    sizes = (3, 7, 5, 2)
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)]
    shift = [rng.normal(size=len(w)) * biases for w in weights]
    return rn.Network.from_weights(weights, shift)


@pytest.mark.parametrize("gamma", [1e-4, 0.5, 100.0])
def test_theorem_d1_corrected(gamma):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    net = _random_chain(rng)
    np.testing.assert_allclose(dying.rescale_targets(net, gamma)(x), gamma * net(x), rtol=1e-11)
    shifted = dying.rescale_targets(net, gamma, delta=0.7)(x)
    np.testing.assert_allclose(shifted, gamma * net(x) + 0.7, rtol=1e-11)
    # One factor for all parameters: exists with zero biases (the printed theorem says never).
    plain = _random_chain(rng, biases=False)
    nu = dying.single_factor(plain, gamma)
    assert nu is not None
    weights, biases = plain.weights()
    scaled = rn.Network.from_weights([nu * np.asarray(w) for w in weights], biases)
    np.testing.assert_allclose(scaled(x), gamma * plain(x), rtol=1e-11)
    assert dying.single_factor(net, gamma) is None


def test_the_proof_of_theorem_d1_needs_a_second_layer():
    """Printed: nu^n > nu in every layer, so that weights and biases get different factors. In the
    first they get the same: biases there are no obstacle, biases after it are."""
    rng = np.random.default_rng(0)
    w, v, b = rng.normal(size=(5, 3)), rng.normal(size=(1, 5)), rng.normal(size=5)
    x, nu = rng.normal(size=(50, 3)), 2**0.5
    for last, scales in ((0.0, True), (0.3, False)):
        net = rn.Network.from_weights([w, v], [b, [last]])
        scaled = rn.Network.from_weights([nu * w, nu * v], [nu * b, [nu * last]])
        assert np.allclose(scaled(x), 2 * net(x)) is scales


def test_rescaling_works_with_skips_leaky_and_step_layers():
    rng = np.random.default_rng(3)
    A, L = rn.Affine, rn.Layer
    first = L(A({0: rng.normal(size=(4, 3))}, rng.normal(size=4)))
    second = L(
        A({1: rng.normal(size=(4, 4)), 0: rng.normal(size=(4, 3))}, rng.normal(size=4)),
        rn.Activation("leaky", 0.1),
    )
    third = L(A({2: rng.normal(size=(3, 4))}, rng.normal(size=3)), rn.Activation("step"))
    out = A({k: rng.normal(size=(1, w)) for k, w in ((0, 3), (1, 4), (2, 4), (3, 3))}, [0.4])
    net = rn.Network([first, second, third], out, input_shape=3)
    x = rng.normal(size=(40, 3))
    np.testing.assert_allclose(dying.rescale_targets(net, 1e-3)(x), 1e-3 * net(x), rtol=1e-11)


def test_with_a_dead_layer_gradients_vanish_only_up_to_the_next_weights():
    """Figure 6's caption says all but the last biases; b_{k+1} and everything later still moves."""
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5), torch.nn.ReLU(),
        torch.nn.Linear(5, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1),
    ).double()  # fmt: skip
    gen = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.rand(p.shape, generator=gen, dtype=torch.float64) + 0.1)
        model[2].bias.fill_(-1e3)  # layer 2 is dead
    x = torch.rand(20, 3, generator=gen, dtype=torch.float64)
    (model(x) - 1e4).square().mean().backward()
    moves = {name: bool(p.grad.abs().max() > 0) for name, p in model.named_parameters()}
    assert not any(moves[n] for n in ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight"))
    assert moves["4.bias"]
    assert moves["6.weight"]
    assert moves["6.bias"]


def test_the_optimum_nears_the_origin_only_without_a_shift():
    """Printed: as gamma falls the optimum nears the origin and lies between the cones. With Delta
    above 0 it ends in the linear cone; with Delta = 0 it is between the cones at every gamma."""
    for gamma in (1.0, 0.1, 0.01):
        for delta in (0.0, 0.1, -0.1):
            gw, gb = dying.gradient([gamma], delta, [gamma], delta)
            np.testing.assert_allclose([*gw, gb], 0, atol=1e-15)
        assert not dying.in_dead_cone([gamma], 0.0)
        assert not dying.in_linear_cone([gamma], 0.0)
    assert dying.in_linear_cone([0.01], 0.1)
    assert dying.in_dead_cone([0.01], -0.1)
