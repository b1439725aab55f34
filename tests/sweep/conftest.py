"""What tests of this folder share: a cluster, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package")
def scheduler() -> Iterator[str]:
    """Address of a Dask scheduler with two worker processes."""
    distributed = pytest.importorskip("distributed", reason="dask and distributed are optional")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address
