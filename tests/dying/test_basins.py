"""Basin maps: the table of measured shares, an oracle that shares no code, homogeneity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

import relunorm.dying as dying
from relunorm.errors import InvalidInputError

#: Percent of [-2, 2]^2 that reaches the optimum, eta = 0.1, 201^2 starts (docs/errata.md).
#: Every other start in each direction has the same shares to 0.2 points.
TABLE = {
    (1.0, 0.0): 62.4, (1.0, 0.7): 64.5, (1.0, 0.8): 66.8, (1.0, 0.9): 72.0, (1.0, 0.95): 77.3,
    (1.0, 0.99): 84.3, (0.1, 0.0): 58.0, (0.1, 0.9): 48.4, (0.001, 0.0): 14.2, (0.001, 0.7): 8.3,
    (0.001, 0.9): 0.1,
}  # fmt: skip


@pytest.mark.parametrize(("gamma", "beta"), sorted(TABLE))
def test_shares_match_the_measured_table(gamma, beta):
    found = dying.basin(gamma, beta, grid=101)
    assert found.optimum == pytest.approx(TABLE[gamma, beta], abs=0.5)
    assert found.optimum + found.dead + found.other == pytest.approx(100)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.95])
def test_shares_at_gamma_one_do_not_hang_on_the_stop_rule(beta):
    """Halved and doubled tolerances and step caps move the share by less than 0.5 points."""
    base = dying.basin(1.0, beta, grid=101).optimum
    for change in (
        {"update_tolerance": 5e-7, "gradient_tolerance": 5e-4},
        {"update_tolerance": 2e-6, "gradient_tolerance": 2e-3},
        {"max_steps": 90_000},
    ):
        assert dying.basin(1.0, beta, grid=101, **change).optimum == pytest.approx(base, abs=0.5)


def test_kernel_normal_functions():
    from relunorm.dying.basin_kernel import normal

    h = np.linspace(-12, 12, 4001)
    cdf, pdf = np.transpose([normal.py_func(v) for v in h])
    np.testing.assert_allclose(cdf, ndtr(h), rtol=2e-12)
    np.testing.assert_allclose(pdf, np.exp(-(h**2) / 2) / math.sqrt(2 * math.pi), rtol=2e-12)


@pytest.mark.parametrize(("gamma", "beta", "delta"), [(0.5, 0.9, 0.0), (1.0, 0.0, 0.3)])
def test_ends_agree_with_the_general_trajectory(gamma, beta, delta):
    found = dying.basin(gamma, beta, grid=5, delta=delta, max_steps=300)
    w, b = np.meshgrid(found.axis, found.axis)
    path = dying.trajectory(w, b, gamma, delta, eta=0.1, beta=beta, steps=300)
    # Starts that stopped early stay within the tolerances; the rest agree to rounding.
    np.testing.assert_allclose(found.w, path.w[-1][..., 0], atol=2e-4)
    np.testing.assert_allclose(found.b, path.b[-1], atol=2e-4)


def test_one_map_serves_every_gamma():
    """With the tolerances scaled too, gamma only changes the window."""
    near = dying.basin(1.0, 0.9, grid=41, extent=20.0, max_steps=2000)
    far = dying.basin(
        0.1, 0.9, grid=41, extent=2.0, max_steps=2000,
        update_tolerance=1e-7, gradient_tolerance=1e-4,
    )  # fmt: skip
    np.testing.assert_array_equal(near.classes, far.classes)


def test_torch_path_gives_the_same_map():
    wide = {"update_tolerance": 1e-5, "gradient_tolerance": 1e-2}  # a sixth of the updates
    cpu = dying.basin(1.0, 0.9, grid=31, **wide)
    torch_map = dying.basin(1.0, 0.9, grid=31, device="cpu", **wide)
    np.testing.assert_array_equal(cpu.classes, torch_map.classes)
    for ends in ("w", "b"):
        np.testing.assert_allclose(getattr(cpu, ends), getattr(torch_map, ends), atol=1e-10)


def test_interrupt_keeps_what_was_found():
    def stop(said) -> None:
        raise KeyboardInterrupt

    found = dying.basin(1.0, 0.0, grid=21, progress=stop)
    assert found.moving > 0
    assert found.steps == 100
    assert found.to_dict()["schema"] == "relunorm.dying.basin/1"


@pytest.mark.parametrize("bad", [{"gamma": 0.0}, {"gamma": np.nan}, {"beta": 1.0}, {"grid": 0}])
def test_bad_arguments(bad):
    with pytest.raises(InvalidInputError):
        dying.basin(**{"gamma": 1.0, "beta": 0.0, **bad})


@pytest.mark.parametrize("options", [{"grid": 2.5}, {"mode": "xx"}, {"mode": "eager"}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InvalidInputError):
        dying.basin(**{"grid": 3, **options})
