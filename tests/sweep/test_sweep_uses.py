"""The rooms that spread their work: regions, extrema, restarts of fit. Same answers anywhere."""

from __future__ import annotations

import itertools

import joblib
import numpy as np
import pytest

import relunorm as rn
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError


def random_net(*widths: int, seed: int = 0) -> rn.Network:
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(widths))
    return rn.Network.from_weights(
        [rng.normal(size=(b, a)) for a, b in pairs], [0.3 * rng.normal(size=b) for _, b in pairs]
    )


@pytest.mark.parametrize("widths", [(2, 9, 9, 1), (3, 6, 6, 1), (5, 6, 6, 2), (3, 2)])
def test_regions_are_the_same_on_processes(widths: tuple[int, ...]) -> None:
    net, box = random_net(*widths), rn.Box.cube(widths[0])
    here = rn.regions(net, box)
    far = rn.regions(net, box, backend="loky", workers=2)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        near = rn.regions(net, box)
    assert far.method == here.method
    for found in (far, near):
        assert found.complete
        assert np.array_equal(found.patterns, here.patterns)
        assert np.array_equal(found.points, far.points)
        np.testing.assert_allclose(found.points, here.points, atol=1e-12)


def test_limits_hold_on_processes() -> None:
    net, box = random_net(6, 12, 12, 1), rn.Box.cube(6)
    told: list[object] = []
    some = rn.regions(
        net, box, backend="threading", workers=2, max_regions=50,
        progress=lambda said: told.append(said.facts.get("found")),
    )  # fmt: skip
    assert (len(some), some.complete, some.reason) == (50, False, "max_regions = 50")
    late = rn.regions(net, box, backend="threading", workers=2, time_limit=1e-6)
    assert (late.complete, late.reason) == (False, "time limit")
    with pytest.raises(InvalidInputError, match="backend 'spark' is not known"):
        rn.regions(net, box, backend="spark")


def test_a_cell_with_too_many_walls_falls_back_to_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    from relunorm.regions.search.engines import CellWork
    from relunorm.regions.search.work import CellLimitError

    net, box = random_net(3, 5, 1), rn.Box.cube(3)
    expected = rn.regions(net, box, method="tree")

    def refuse(*_: object) -> None:
        raise CellLimitError("too many walls")

    monkeypatch.setattr(CellWork, "advance", refuse)
    found = rn.regions(net, box, backend="threading", workers=2)
    assert found.method == "tree"
    assert np.array_equal(found.patterns, expected.patterns)


@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_maxima_are_the_same_on_processes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """See search/test_together for more, on threads: what travels is the same."""
    monkeypatch.setattr("relunorm.search.engine.FIRST_CHUNK", 2)
    monkeypatch.setattr("relunorm.search.engine.DIVISION", 3)
    if backend == "dask":
        pytest.importorskip("distributed", reason="dask and distributed are optional")
    net, box = random_net(6, 12, 12, 1, seed=1), rn.Box.cube(6)
    monkeypatch.setattr("relunorm.clock.PACE", 0.0)  # told of everything, however soon it ends
    told: list[Progress] = []
    here = rn.maximize(net, box, 0)
    far = rn.maximize(net, box, 0, 600.0, progress=told.append, backend=backend, workers=2)
    assert here.exact
    assert far.exact
    assert far.lower == pytest.approx(here.lower, abs=1e-8)
    assert far.certificate.verify(net).holds
    tape = np.concatenate(list(far.certificate.tape))
    assert (tape > 1 << 30).any()  # numbers of nodes that were made elsewhere
    nodes = [said.facts["nodes"] for said in told if "nodes" in said.facts]  # not of compiling
    assert nodes[-1] > 3


def test_restarts_keep_the_best_and_do_not_depend_on_the_backend() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 2))
    y = np.sin(3 * x[:, 0]) * x[:, 1]
    options = {"hidden": (3, 3), "solver": "deep", "n_init": 1, "alpha": 1e-4, "random_state": 0}
    model = rn.ReLURegressor(**options, restarts=3).fit(x, y)
    assert len(model.restart_losses_) == 3
    assert len(set(model.restart_losses_)) == 3
    alone = rn.ReLURegressor(**options).fit(x, y)
    assert len(alone.restart_losses_) == 1
    np.testing.assert_allclose(alone.restart_losses_[0], model.restart_losses_[0], rtol=1e-6)
    # the objective of the kept fit is the smallest, recomputed from its own network
    wanted = min(model.restart_losses_)
    error = np.mean((model.predict(x) - y) ** 2) / np.var(y)
    assert error <= wanted * (1 + 1e-9)
    assert error <= np.mean((alone.predict(x) - y) ** 2) / np.var(y) + 1e-3
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            again = rn.ReLURegressor(**options, restarts=3).fit(x, y)
        assert again.restart_losses_ == model.restart_losses_
        assert np.array_equal(again.predict(x), model.predict(x))
    with pytest.raises(InvalidInputError, match="restarts=0: expected a whole number >= 1"):
        rn.ReLURegressor(restarts=0).fit(x, y)


def test_restarts_end_with_the_time() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    model = rn.ReLURegressor(
        hidden=(4, 4), solver="deep", random_state=0, restarts=500, time_limit=0.3
    ).fit(x, x[:, 0] * x[:, 1])
    assert 1 <= len(model.restart_losses_) < 500
    assert model.stopped_ == "time limit"
