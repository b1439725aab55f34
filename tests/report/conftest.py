"""The report of the demo, made once, and reports that leave out what a test does not ask for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import relunorm as rn
from relunorm.examples import example_data_path
from relunorm.report.registry import SECTIONS, NotAsked
from relunorm.report.sections import robustness


@pytest.fixture
def few_rows_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Robustness is that of fewer rows, for tests that ask what a page says of others."""
    monkeypatch.setattr(robustness, "MOST_ROWS", 10)
    monkeypatch.setattr(robustness, "NEAREST", 4)


@pytest.fixture
def only_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports with the section of regions alone."""

    def left_out(*_: Any) -> None:
        raise NotAsked("this test has no use for it")

    for section in SECTIONS:
        if section.name != "regions":
            module = import_module(f"relunorm.report.sections.{section.name}")
            monkeypatch.setattr(module, "compute", left_out)


@pytest.fixture(scope="session")
def moons() -> rn.Report:
    with np.load(example_data_path("moons")) as data:
        x, y = data["x"], data["y"]
    box = rn.Box.cube(2, -2, 3)
    return rn.report("example:moons", x, y, box, target_name="y", time_limit=60)
