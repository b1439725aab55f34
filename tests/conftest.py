"""Shared settings: hypothesis without deadline, fixed seeds, where the optional case files lie."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is first imported

settings.register_profile(
    "relunorm",
    deadline=None,  # torch's cold start takes seconds
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("relunorm")

_SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard():
    """Python leaves SIGINT ignored where a shell started it in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    """Global generators start alike in every test, whichever tests ran before it."""
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of case networks; tests that need it are skipped in a bare clone."""
    folder = _SHARED / "cases"
    if not folder.is_dir():
        pytest.skip("the case networks (../shared/cases) are not part of a bare clone")
    return folder
