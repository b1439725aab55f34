"""The report of the demo, made once."""

from __future__ import annotations

import numpy as np
import pytest

import relunorm as rn
from relunorm.examples import example_data_path


@pytest.fixture(scope="session")
def moons() -> rn.Report:
    with np.load(example_data_path("moons")) as data:
        x, y = data["x"], data["y"]
    box = rn.Box.cube(2, -2, 3)
    return rn.report("example:moons", x, y, box, target_name="y", time_limit=60)
