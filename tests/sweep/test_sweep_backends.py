"""The same sweep everywhere, and workers that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import sweep_functions
from sweep_functions import RUNS, killer, measure, once, predict

import relunorm as rn
from relunorm.errors import InvalidInputError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Address of a Dask scheduler with two worker processes."""
    distributed = pytest.importorskip("distributed", reason="dask and distributed are optional")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_rows_are_the_same_on_local_backends(backend: str, tmp_path: Path) -> None:
    found = rn.sweep(measure, RUNS, backend=backend, workers=2, store=tmp_path / "s.sqlite")
    assert found.runs == rn.sweep(measure, RUNS).runs


def test_rows_are_the_same_on_a_dask_cluster(scheduler: str, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    found = rn.sweep(measure, RUNS, backend="dask", scheduler=scheduler, store=store)
    assert found.runs == rn.sweep(measure, RUNS).runs
    assert rn.sweep(measure, RUNS, backend="dask", scheduler=scheduler, store=store).resumed == 8


def test_a_dask_cluster_of_ones_own_is_closed_again() -> None:
    pytest.importorskip("distributed", reason="dask and distributed are optional")
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    found = rn.sweep(measure, RUNS, backend="dask", workers=1)
    assert found.runs == rn.sweep(measure, RUNS).runs
    after = psutil.Process().children(recursive=True)
    assert not [child for child in after if child.pid not in before and "spawn_main" in
                " ".join(child.cmdline())]  # fmt: skip


def test_killing_a_dask_worker_loses_nothing(scheduler: str, tmp_path: Path) -> None:
    folder, runs = str(tmp_path), [{"i": i, "folder": str(tmp_path)} for i in range(12)]

    def kill_the_worker_of_run_zero() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            called = list(Path(folder).glob("called-0-*"))
            if called:
                time.sleep(0.1)
                os.kill(int(called[0].name.split("-")[2]), signal.SIGKILL)
                (Path(folder) / "go").touch()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=kill_the_worker_of_run_zero)
    thread.start()
    store = tmp_path / "s.sqlite"
    found = rn.sweep(once, runs, backend="dask", scheduler=scheduler, store=store)
    thread.join()
    assert [run.result for run in found.runs] == [{"i": i} for i in range(12)]
    assert len(list(Path(folder).glob("called-0-*"))) > 1  # it was begun again elsewhere
    with rn.Store(store) as opened:
        assert len(opened) == 12


def test_a_run_that_kills_its_worker_fails_alone() -> None:
    found = rn.sweep(killer, [{"i": i} for i in range(6)], backend="loky", workers=2)
    assert [run.result for run in found.runs if run.result] == [{"i": i} for i in (0, 1, 3, 4, 5)]
    assert [run.message for run in found.failed] == ["its worker process died"]


@pytest.mark.long
def test_a_run_that_kills_every_dask_worker_fails_alone(scheduler: str) -> None:
    # joblib's own backend would wait for ever once distributed gives the task up
    found = rn.sweep(killer, [{"i": 2}, {"i": 5}], backend="dask", scheduler=scheduler)
    assert [run.message for run in found.runs] == ["its worker process died", None]


def test_no_scheduler_is_said() -> None:
    pytest.importorskip("distributed", reason="dask and distributed are optional")
    with pytest.raises(InvalidInputError, match="no Dask scheduler answers at 'nonsense"):
        rn.sweep(measure, RUNS[:1], backend="dask", scheduler="nonsense://x")


def test_a_cluster_without_workers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="dask and distributed are optional")
    monkeypatch.setattr(import_module("relunorm.sweep.backends"), "PATIENCE", 0.5)
    with distributed.LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        place = cluster.scheduler_address
        with pytest.raises(InvalidInputError, match=r"no worker after 0\.5 s; start some"):
            rn.sweep(measure, RUNS[:1], backend="dask", scheduler=place)


@pytest.mark.parametrize("backend", ["sequential", "loky", "dask"])
def test_constrained_modules_travel(backend: str, request: pytest.FixtureRequest) -> None:
    import torch
    from torch import nn
    from torch.nn.utils import parametrizations, parametrize

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    rn.nn.constrain(net, rn.Box.cube(2))
    parametrizations.spectral_norm(net[2])
    net.eval()
    x = [[0.25, -0.5], [1.0, 1.0]]
    expected = net(torch.tensor(x, dtype=torch.float64)).tolist()
    place = {"scheduler": request.getfixturevalue("scheduler")} if backend == "dask" else {}
    found = rn.sweep(predict, [{"x": x}], shared={"model": net}, backend=backend, **place)
    result = found.runs[0].result
    assert result is not None, found.failed
    assert result["plain"] is True
    np.testing.assert_allclose(result["values"], expected, rtol=1e-12)
    assert parametrize.is_parametrized(net[0])  # the caller's module is as it was


def test_parcels_release_modules_at_any_depth() -> None:
    from torch import nn
    from torch.nn.utils import parametrize

    from relunorm.sweep.tasks import pack, unpack

    class Estimator:
        def __init__(self, module: nn.Module) -> None:
            self.module_, self.twice = module, [module]

    net = rn.nn.constrain(
        nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)), [[0.0], [1.0]]
    )
    copy = unpack(pack(Estimator(net)))
    assert not parametrize.is_parametrized(copy.module_[0])
    assert copy.twice[0] is copy.module_
    model = rn.ReLURegressor(hidden=2, random_state=0).fit(
        np.arange(20.0)[:, None], np.arange(20.0)
    )
    again = unpack(pack(model))
    assert np.array_equal(again.predict([[3.0]]), model.predict([[3.0]]))
    with pytest.raises(InvalidInputError, match="the lock cannot travel"):
        pack(threading.Lock(), "the lock")


def test_a_function_the_worker_cannot_load_is_said(tmp_path: Path) -> None:
    import types

    module = types.ModuleType("only_here")
    module.f = lambda: {"y": 1}  # type: ignore[attr-defined]
    module.f.__module__, module.f.__qualname__, module.f.__name__ = "only_here", "f", "f"
    sys.modules["only_here"] = module
    try:
        with pytest.raises(InvalidInputError, match="a worker cannot load the function"):
            rn.sweep(module.f, [{}], backend="loky", workers=2)
    finally:
        del sys.modules["only_here"]


RAY = """
import json, sys
sys.path.insert(0, sys.argv[1])
from sweep_functions import RUNS, measure
import relunorm as rn
from relunorm.errors import InvalidInputError
try:
    found = rn.sweep(measure, RUNS, backend="ray", workers=2)
except InvalidInputError as error:
    print("CANNOT", error)
else:
    print("ROWS", json.dumps([[run.key, run.text, run.status, run.outcome] for run in found.runs]))
"""


@pytest.mark.long
def test_rows_are_the_same_on_ray() -> None:
    pytest.importorskip("ray", reason="ray is optional")
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(HERE)], capture_output=True, text=True, env=env, timeout=300
    )
    assert done.returncode == 0, done.stderr
    last = [line for line in done.stdout.splitlines() if line.startswith(("ROWS", "CANNOT"))][-1]
    if last.startswith("CANNOT"):
        pytest.skip(f"Ray is installed but does not start here: {last[7:]}")
    expected = rn.sweep(sweep_functions.measure, RUNS).runs
    assert json.loads(last[5:]) == [[r.key, r.text, r.status, r.outcome] for r in expected]
