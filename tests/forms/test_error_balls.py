"""Errors of many units together: bounds that hold for every slope, and are worth their products."""

from __future__ import annotations

import numpy as np
import pytest

from relunorm.forms.relation.relation import ErrorBalls


@pytest.mark.parametrize("below", [0.0, 0.25, -0.5])
def test_no_slopes_and_no_errors_exceed_the_bound(below: float) -> None:
    rng = np.random.default_rng(0)
    maps = [rng.normal(0, 0.4, (9, 9)) for _ in range(4)]
    balls, product = ErrorBalls.ball(1.0), 1.0
    for k, matrix in enumerate(maps):
        balls = balls.mapped(matrix)
        product *= np.linalg.norm(matrix, 2)
        if k < 3:
            balls = balls.passed(np.full(9, below), np.ones(9), 0.1)
    worst, seen = 0.0, np.zeros(9)
    for _ in range(3000):
        x = rng.normal(size=9)
        x /= np.linalg.norm(x)
        for k, matrix in enumerate(maps):
            x = matrix @ x
            if k < 3:
                slopes = np.where(rng.random(9) < 0.5, below, 1.0)
                fresh = rng.normal(size=9)
                x = slopes * x + 0.1 * fresh / np.linalg.norm(fresh)
        worst, seen = max(worst, float(np.linalg.norm(x))), np.maximum(seen, np.abs(x))
    assert worst <= balls.norm
    assert (seen <= balls.rows(9)).all()
    alone = 0.1 * sum(np.prod([np.linalg.norm(m, 2) for m in maps[k:]]) for k in (1, 2, 3))
    assert balls.norm <= (product + alone) * (1 + 1e-9)  # what the norms alone give
    assert below < 0 or balls.norm < 0.8 * (product + alone)


def test_units_that_are_known_pass_nothing_on() -> None:
    balls = (
        ErrorBalls.ball(3.0)
        .mapped(np.diag([2.0, 5.0]))
        .passed(np.array([0.0, 0.0]), np.array([1.0, 0.0]), 0.0)
    )
    assert 6.0 <= balls.norm <= 15.0 * (1 + 1e-9)
    none = ErrorBalls.ball(3.0).passed(np.zeros(2), np.zeros(2), 0.5)
    assert none.norm == pytest.approx(0.5)
