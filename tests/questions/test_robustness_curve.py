"""The curve of certified accuracy: steps that hold at every radius, not only at those listed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relunorm.questions.robustness import Robustness, RowRobustness


def made(radii: list[tuple[float, float]], wrong: int = 0) -> Robustness:
    rows = [RowRobustness(k, "attacked", 0, True, ends) for k, ends in enumerate(radii)]
    rows += [RowRobustness(9, "attacked", 0, False, (0.0, 0.0))] * wrong
    return Robustness(tuple(rows), math.inf, None, 0.0)


def steps(curve: list[tuple[float, float, float]], radius: float) -> tuple[float, float]:
    """What a reader takes from the steps at any radius up to the last."""
    sure = next(sure for at, sure, _ in curve if at >= radius)
    possible = next(possible for at, _, possible in reversed(curve) if at <= radius)
    return sure, possible


def test_rows_without_a_safe_radius_are_not_proved_at_any() -> None:
    found = made([(0.0, 0.1), (0.0, 0.2), (0.0484, 0.05), (0.0574, 0.06)])
    assert found.curve()[0] == (0.0, 1.0, 1.0)
    assert steps(found.curve(), 1e-9)[0] == 0.5
    assert [r for r, _, _ in found.curve()] == [0, 0.0484, 0.05, 0.0574, 0.06, 0.1, 0.2]


@pytest.mark.parametrize(
    ("low", "wrong"),
    [([0.75, 0.25, 0.5, 1.0], 0), ([5.0, 1.0, 3.0], 0), ([1.0, 2.0], 1), ([1.0], 2)],
)
def test_half_of_the_rows_are_safe_up_to_a_radius_and_not_beyond(
    low: list[float], wrong: int
) -> None:
    found = made([(a, a + 0.01) for a in low], wrong)
    assert found.to_dict()["half_safe"] == found.half_safe
    assert found.accuracy(found.half_safe)[0] >= 0.5 or found.half_safe == 0
    assert found.accuracy(math.nextafter(found.half_safe, math.inf))[0] < 0.5
    assert f"half of them safe up to {found.half_safe:g}" in repr(found)


def test_invalid_rows_have_no_part_in_the_half() -> None:
    found = made([(1.0, 1.1), (2.0, 2.1)])
    invalid = [RowRobustness(k, "invalid") for k in range(4)]
    assert Robustness((*found.rows, *invalid), math.inf, None, 0.0).half_safe == 2.0
    assert Robustness(tuple(invalid), math.inf, None, 0.0).half_safe == 0.0


@pytest.mark.parametrize("points", [201, 7, 2])
def test_steps_hold_between_the_radii_that_are_listed(points: int) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 1, size=40)
    found = made([(a, a + b) for a, b in zip(low, rng.uniform(0, 0.2, 40), strict=True)], wrong=4)
    curve = found.curve(points)
    assert len(curve) <= points
    for radius in rng.uniform(0, curve[-1][0], size=200):
        sure, possible = steps(curve, radius)
        truth = found.accuracy(radius)
        if points > 100:
            assert (sure, possible) == truth
        assert sure <= truth[0] <= truth[1] <= possible


def test_the_picture_has_the_same_steps() -> None:
    pytest.importorskip("matplotlib")
    found = made([(0.0, 0.5), (1.0, 2.0)])
    sure, possible = found.plot().axes[0].lines
    assert (sure.get_drawstyle(), possible.get_drawstyle()) == ("steps-pre", "steps-post")
    assert sure.get_xdata().tolist() == [0, 0.5, 1, 2]
    assert sure.get_ydata().tolist() == [100, 50, 50, 0]
    assert possible.get_ydata().tolist() == [100, 50, 50, 0]
