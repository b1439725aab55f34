"""The infinite-width Gram map against sampling and against its own derivatives."""

import math

import numpy as np
import pytest

from relunorm.batchnorm.gram import (
    arccos_kernel,
    center_gram,
    gram_step,
    kernel_gram,
    matrix_root,
    odd_points,
    pair_angles,
    soft_rank,
)
from relunorm.errors import InvalidInputError
from relunorm.papers.batchnorm.theory.fixed_points import (
    fixed_points,
    gram_derivative,
    odd_state,
    symmetric_state,
)


def sampled_step(gram, rng, samples, slope=0.0, recenter=True, rescale=False, statistic="std"):
    z = rng.standard_normal((samples, len(gram))) @ matrix_root(gram)
    moved = z - z.mean(axis=1, keepdims=True)
    y = moved if recenter else z
    if rescale:
        square = (moved**2 if statistic == "std" else y**2).mean(axis=1, keepdims=True)
        y = y / np.sqrt(square)
    y = np.where(y > 0, y, slope * y)
    return 2 * y.T @ y / samples


@pytest.mark.parametrize(
    "parts",
    [
        {"recenter": False},
        {"recenter": True},
        {"recenter": False, "rescale": True, "statistic": "rms"},
        {"recenter": True, "rescale": True, "statistic": "std"},
        {"recenter": False, "rescale": True, "statistic": "std"},
    ],
)
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_map_equals_sampling(parts, slope):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((6, 4)) + 0.3
    gram = X @ X.T
    expected = sampled_step(gram, rng, 200_000, slope, **parts)
    found = gram_step(gram, nl=slope, **parts)
    # standard error of a mean of 2e5 products of standard scale is about 0.005
    np.testing.assert_allclose(found, expected, atol=0.025 * np.diag(expected).max())


def test_quadrature_is_converged():
    gram = np.cov(np.random.default_rng(0).standard_normal((8, 20)))
    for parts in ({"recenter": True}, {"recenter": False}, {"recenter": False, "statistic": "std"}):
        coarse = gram_step(gram, rescale=True, **parts)
        fine = gram_step(gram, rescale=True, nodes=1600, **parts)
        np.testing.assert_allclose(coarse, fine, rtol=1e-10)


def test_rescaling_makes_unit_second_moment():
    """A linear layer with rescaling has mean squared activation 1 over the batch (He scale: 2)."""
    gram = np.diag([1.0, 4.0, 9.0, 2.0])
    after = gram_step(gram, nl="linear", recenter=False, rescale=True)
    assert np.trace(after) / 4 == pytest.approx(2, rel=1e-10)


@pytest.mark.parametrize(
    ("n", "degrees"), [(10, "45.20"), (20, "24.54"), (50, "10.38"), (100, "5.294")]
)
def test_cluster_angle_at_the_attractor(n, degrees):
    state = odd_state(n)
    digits = len(degrees.split(".")[1])
    assert f"{math.degrees(state.angle):.{digits}f}" == degrees
    assert state.stable
    assert state.residual < 1e-12


def test_attractor_attracts_iterated_map():
    """Plain iteration from a batch with one far point, no use of symmetry."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30))
    X[4] *= 20
    gram = X @ X.T
    for _ in range(600):
        gram = gram_step(gram)
        gram /= gram.max()
    state = odd_state(12)
    order = [4, *(i for i in range(12) if i != 4)]
    np.testing.assert_allclose(gram[np.ix_(order, order)], state.gram, atol=1e-9)


def test_no_odd_state_for_small_batches():
    assert [odd_state(n) is None for n in range(3, 9)] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(("n", "degrees"), [(10, 74.65), (100, 71.74)])
def test_symmetric_angle(n, degrees):
    for rescale in (False, True):
        state = symmetric_state(n, rescale=rescale)
        assert math.degrees(state.angle) == pytest.approx(degrees, abs=0.005)
        assert state.stable


def test_symmetric_state_of_rms():
    state = symmetric_state(10, recenter=False, rescale=True)
    assert math.degrees(state.angle) == pytest.approx(59.845, abs=0.001)
    assert state.residual < 1e-9
    assert state.stable


def full_rate(gram):
    """Spectral radius of the derivative on all symmetric matrices, scale taken out: no symmetry
    used.
    """
    n = len(gram)
    index = np.triu_indices(n)
    columns = []
    for i, j in zip(*index, strict=True):
        direction = np.zeros((n, n))
        direction[i, j] = direction[j, i] = 1
        columns.append(gram_derivative(gram, direction)[index])
    growth = gram_step(gram)[0, 0] / gram[0, 0]
    moduli = np.sort(np.abs(np.linalg.eigvals(np.array(columns).T)))[::-1] / growth
    return np.delete(moduli, np.argmin(np.abs(moduli - 1)))[0]


@pytest.mark.parametrize("n", [4, 7, 9])
def test_rates_from_blocks_equal_the_full_jacobian(n):
    for state in fixed_points(n):
        assert state.rate == pytest.approx(full_rate(state.gram), rel=1e-7)


def test_derivative_equals_differences():
    rng = np.random.default_rng(2)
    X, E = rng.standard_normal((5, 7)), rng.standard_normal((5, 5))
    gram, change = X @ X.T, E + E.T
    h = 1e-6
    numeric = (gram_step(gram + h * change) - gram_step(gram - h * change)) / (2 * h)
    np.testing.assert_allclose(gram_derivative(gram, change), numeric, atol=1e-8)


def test_perturbed_symmetric_state_returns_at_its_rate():
    state = symmetric_state(8)
    rng = np.random.default_rng(0)
    E = rng.standard_normal((8, 8)) * 1e-6
    gram = state.gram + E + E.T
    sizes = []
    for _ in range(200):
        gram = gram_step(gram)
        gram *= 8 / np.trace(gram)
        sizes.append(np.abs(gram - state.gram).max())
    assert (sizes[-1] / sizes[-51]) ** (1 / 50) == pytest.approx(state.rate, rel=1e-3)


def test_kernel_of_equal_points_is_exact():
    gram = np.full((3, 3), 0.3)
    np.testing.assert_allclose(kernel_gram(gram), gram, rtol=1e-15)
    assert np.abs(center_gram(gram)).max() == 0


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.ones((2, 3)), "shape"),
        (np.array([[1, np.nan], [0, 1]]), "NaN"),
        (np.array([[1.0, 2], [0, 1]]), "symmetric"),
        (np.ones((3, 3)), "are equal"),
        (np.array([[1.0, 2], [2, 1]]), "semi-definite: it has the eigenvalue -1,"),
        (np.diag([1.0, 1, 1]) - 0.6 * (1 - np.eye(3)), "semi-definite"),
    ],
)
def test_bad_input(gram, message):
    with pytest.raises(InvalidInputError, match=message):
        gram_step(gram)


def test_a_matrix_that_is_no_gram_matrix_is_refused_in_every_mode():
    for options in ({"recenter": False}, {"rescale": True}, {"recenter": False, "rescale": True}):
        with pytest.raises(InvalidInputError, match="semi-definite"):
            gram_step([[1, 2], [2, 1.0]], **options)
    X = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    single = X @ X.T  # rank 3, and eigenvalues of -1e-6 by rounding
    assert np.linalg.eigvalsh(single.astype(float))[0] < -1e-7
    assert np.isfinite(gram_step(single)).all()
    assert np.isfinite(gram_step(single * 1e30)).all()


@pytest.mark.parametrize("rho", [2.0, -1.1, np.nan, [0.5, 1.001], "a"])
def test_the_kernel_takes_cosines(rho):
    with pytest.raises(InvalidInputError, match="rho"):
        arccos_kernel(rho)
    assert arccos_kernel(1 + 1e-12) == 1


def test_other_bad_input():
    with pytest.raises(InvalidInputError, match="non-linearity"):
        gram_step(np.eye(3), nl="tanh")
    with pytest.raises(InvalidInputError, match="statistic"):
        gram_step(np.eye(3), rescale=True, statistic="mad")
    with pytest.raises(InvalidInputError, match="second moment"):
        gram_step(np.eye(3), recenter=False, rescale=True, statistic="std")
    with pytest.raises(InvalidInputError, match="at least 3"):
        symmetric_state(2)
    with pytest.raises(InvalidInputError, match="no"):
        symmetric_state(5, recenter=False)


def test_matrices_that_are_not_square_are_refused():
    flat, small = np.ones((2, 3)), np.eye(2)
    for call in (
        center_gram,
        kernel_gram,
        pair_angles,
        soft_rank,
        odd_points,
        lambda g: gram_derivative(g, small),
        lambda g: gram_derivative(np.eye(3), small),
    ):
        with pytest.raises(InvalidInputError, match="shape"):
            call(flat)
