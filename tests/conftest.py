"""Shared settings: hypothesis without deadline, and where the optional case files lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "relunorm",
    deadline=None,  # torch's cold start takes seconds
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("relunorm")

_SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of case networks; tests that need it are skipped in a bare clone."""
    folder = _SHARED / "cases"
    if not folder.is_dir():
        pytest.skip("the case networks (../shared/cases) are not part of a bare clone")
    return folder
