"""Norms, Theorem 6, absolute paths, LipSDP: sound, ordered as claimed, equal to the oracles."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm import Activation, Affine, Layer, Network, lipschitz, theorem6
from relunorm.arithmetic.rounding import path_sums
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.lipschitz import norms
from relunorm.lipschitz.methods.products import absolute_paths, norm_product
from relunorm.lipschitz.methods.sdp import lipsdp
from relunorm.lipschitz.norms import (
    as_norm,
    from_l2,
    is_positive_definite,
    matrix_size,
    nonnegative_spectral_bound,
    of_errors,
    operator_norm,
    operator_norms,
)
from relunorm.lipschitz.search import steepest

SMOOTH = (Activation("relu"), Activation("leaky", 0.125), Activation("leaky", 1.5))
NORMS = (1.0, 2.0, np.inf)


def he_net(seed: int, *widths: int) -> Network:
    rng = np.random.default_rng(seed)
    weights, biases = [], []
    for a, b in pairwise(widths):
        weights.append(rng.normal(0, np.sqrt(2 / a), (b, a)))
        biases.append(rng.uniform(-1, 1, b) / np.sqrt(a))
    return Network.from_weights(weights, biases)


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (5, 9), (9, 5)])
@pytest.mark.parametrize("norm", NORMS)
def test_operator_norm_is_numpy_s_rounded_up(shape, norm):
    dense = np.random.default_rng(0).normal(size=shape)
    dense[np.abs(dense) < 0.5] = 0.0
    exact = np.linalg.norm(dense, norm)
    for matrix in (dense, sp.csr_array(dense)):
        value = operator_norm(matrix, norm)
        assert exact <= value <= exact * (1 + 1e-9)
    assert operator_norms(dense[None], norm)[0] == pytest.approx(exact, rel=1e-12)


def test_operator_norm_of_large_sparse_matrix_is_sound(monkeypatch):
    monkeypatch.setattr(import_module("relunorm.lipschitz.norms"), "GRAM_ROWS", 4)
    matrix = sp.random_array((40, 30), density=0.2, rng=np.random.default_rng(1))
    exact = np.linalg.norm(matrix.toarray(), 2)
    assert exact <= operator_norm(sp.csr_array(matrix), 2.0) <= 1.01 * exact  # entries are >= 0


def test_nonnegative_bound_of_zero_is_zero():
    assert nonnegative_spectral_bound(np.zeros((3, 4))) == 0.0


def test_unknown_norm_is_refused():
    with pytest.raises(InvalidInputError, match="use 1, 2 or inf"):
        as_norm(3)
    assert as_norm("inf") == np.inf


def test_positive_definite_proof_rejects_singular_and_indefinite():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(20, 20))
    good = A @ A.T + 1e-6 * np.eye(20)
    assert is_positive_definite(good)
    assert not is_positive_definite(A[:, :10] @ A[:, :10].T)
    assert not is_positive_definite(good - 1.1 * np.linalg.eigvalsh(good)[0] * np.eye(20))


@given(networks(activations=SMOOTH), st.sampled_from(NORMS), st.integers(0, 99))
def test_every_bound_is_above_every_jacobian(network, norm, seed):
    network = network.folded()
    points = np.random.default_rng(seed).normal(size=(200, network.input_size)) * 3
    top = operator_norms(network.jacobian(points), norm).max()
    assert top <= norm_product(network, norm) + 1e-12
    assert top <= absolute_paths(network, norm) + 1e-12
    assert (np.abs(network.jacobian(points)) <= path_sums(network)[0] + 1e-9).all()
    if norm == 2.0:
        assert top <= lipsdp(network) + 1e-12


@given(networks(activations=(Activation("relu"),), skips=False), st.integers(0, 99))
def test_theorem6_order_and_regions(network, seed):
    if not network.layers:
        with pytest.raises(InvalidNetworkError):
            theorem6(network)
        return
    every = theorem6(network)
    assert absolute_paths(network) <= every.paths * (1 + 1e-9)
    assert every.paths <= every.count * (1 + 1e-9)
    assert norm_product(network) <= every.spectral * (1 + 1e-9)
    pairs = zip(every.gradients, every.printed_gradients, strict=True)
    assert all(sharp <= printed * (1 + 1e-9) for sharp, printed in pairs)
    for x in np.random.default_rng(seed).normal(size=(5, network.input_size)) * 3:
        here = theorem6(network, at=x)
        norm = np.linalg.norm(network.jacobian(x), 2)
        assert norm <= here.paths + 1e-12 <= here.count * (1 + 1e-9) + 2e-12
        assert here.paths <= every.paths * (1 + 1e-9)


def test_theorem6_is_tight_on_an_instance():
    ones = Network.from_weights([np.ones((3, 1)), np.ones((3, 3)), np.ones((1, 3))])
    bounds = theorem6(ones, at=[1.0])
    assert bounds.supports == (3, 3)
    assert bounds.count == pytest.approx(np.linalg.norm(ones.jacobian([1.0])), rel=1e-9)


def test_equation_14_needs_every_weight_and_every_width():
    # As printed, C is the largest weight of W_2 .. W_{L-1} and N that of N_1 .. N_{L-1}; the
    # large output layer then breaks (14): |dLoss/dy_1| is 50 |dLoss/dy_L|, the printed bound 1.
    network = Network.from_weights([[[1.0]], [[1.0]], [[50.0], [0.0]]])
    printed_c, printed_n = 1.0, 1
    gradient = 50.0
    assert gradient > (printed_n * printed_c) ** 2
    bounds = theorem6(network)
    assert (bounds.weight, bounds.width) == (50.0, 2)
    assert gradient <= bounds.gradients[1] * (1 + 1e-12) <= bounds.printed_gradients[1]


def test_theorem6_refuses_skips_and_leaky_units():
    leaky = Network.from_weights([[[1.0]], [[1.0]]], activation=Activation("leaky", 0.1))
    with pytest.raises(InvalidNetworkError, match="plain ReLU perceptrons"):
        theorem6(leaky)
    with pytest.raises(InvalidInputError, match="expected one finite point"):
        theorem6(he_net(0, 3, 4, 1), at=[1.0, 2.0])


# sqrt(rho) of the same semidefinite programme in the paper's own block form, solved by Clarabel
# 0.11 through cvxpy (see benchmarks/lipschitz.py, which repeats the comparison on larger networks).
CLARABEL = {
    (1, (2, 6, 1)): 0.77269318742,
    (2, (3, 5, 5, 2)): 6.44617046202,
    (3, (4, 4, 4, 4, 1)): 6.87763579048,
    (4, (12, 3, 3)): 1.85659901038,
}


@pytest.mark.parametrize(("seed", "widths"), CLARABEL)
def test_lipsdp_equals_a_conic_solver(seed, widths):
    assert lipsdp(he_net(seed, *widths)) == pytest.approx(CLARABEL[seed, widths], rel=2e-6)


def test_lipsdp_takes_skips_and_degenerate_networks():
    # y = x + relu(x) - relu(x): slope 1 everywhere.
    both = Affine({0: np.array([[1.0], [1.0]])}, np.zeros(2))
    output = Affine({0: np.eye(1), 1: np.array([[1.0, -1.0]])}, np.zeros(1))
    value = lipsdp(Network([Layer(both)], output, input_shape=1))
    assert 1.0 <= value <= 2.0 + 1e-6  # the two units are not known to be equal
    zero = Network.from_weights([np.zeros((3, 2)), np.zeros((1, 3))])
    assert lipsdp(zero) < 1e-3
    affine = Network([], Affine({0: np.array([[3.0, 4.0]])}, np.zeros(1)), input_shape=2)
    assert lipsdp(affine) == pytest.approx(5.0, rel=1e-9)


def test_lipsdp_refuses_steps_and_very_wide_networks(monkeypatch):
    with pytest.raises(InvalidNetworkError, match="step"):
        lipsdp(Network.from_weights([[[1.0]], [[1.0]]], activation="step"))
    monkeypatch.setattr(import_module("relunorm.lipschitz.methods.sdp"), "MAX_SIZE", 5)
    with pytest.raises(InvalidNetworkError, match="stops at 5"):
        lipsdp(he_net(0, 4, 4, 1))


@pytest.mark.parametrize(
    "bound",
    [
        lambda p: operator_norm(np.eye(2), p),
        lambda p: operator_norms(np.ones((1, 2, 2)), p),
        lambda p: of_errors(np.ones((2, 2)), p),
        lambda p: matrix_size(np.ones((2, 2)), p),
        lambda p: matrix_size(np.ones((2, 1)), p),
        lambda p: from_l2(p, 2, 2),
        lambda p: lipschitz(he_net(0, 2, 3, 1), norm=p, time_limit=0.1),
    ],
)
def test_a_norm_without_its_bounds_is_refused(bound, monkeypatch):
    monkeypatch.setitem(norms.NORMS, "3", 3.0)
    for known in (1.0, 2.0, np.inf):
        assert bound(known)
    with pytest.raises(InvalidInputError, match="norm 3 "):
        bound(3.0)


def test_the_search_for_steep_regions_has_no_bound_on_an_unknown_norm():
    sizes = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = {p: steepest._norm.py_func(sizes, p) for p in (1.0, 2.0, np.inf, 3.0)}
    assert found == {1.0: 6.0, 2.0: pytest.approx(np.sqrt(30)), np.inf: 7.0, 3.0: np.inf}


def test_a_norm_that_is_not_known_is_answered_with_those_that_are(monkeypatch):
    monkeypatch.setitem(norms.NORMS, "3", 3.0)
    with pytest.raises(InvalidInputError, match=r"use 1, 2, inf or 3$"):
        as_norm("l5")


def test_a_norm_that_is_no_p_goes_by_its_name(monkeypatch):
    monkeypatch.setitem(norms.NORMS, "mixed", -1.0)
    assert as_norm("mixed") == -1.0
    found = replace(lipschitz(he_net(0, 2, 3, 1), time_limit=0.1), norm=-1.0)
    assert found.to_dict()["norm"] == "mixed"
    assert repr(found).startswith("LipschitzResult(lmixed, whole space")
    assert found.plot().axes[0].get_xlabel().endswith("(norm mixed)")
