"""Solvers: certificates against brute force, quality over seeds, time limits, interruption."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from relunorm.clock import Clock, Progress
from relunorm.errors import InvalidInputError
from relunorm.papers.reduced import franke
from relunorm.train.problem.layered import LayeredProblem
from relunorm.train.problem.one_layer import ShallowProblem
from relunorm.train.problem.spline import SplineProblem
from relunorm.train.problem.task import Fit, Task
from relunorm.train.solve.bound import Pieces, spline_bound
from relunorm.train.solve.by_name import solver
from relunorm.train.solve.deep import solve_deep
from relunorm.train.solve.descent import FlatPerceptron
from relunorm.train.solve.exact import solve_exact, tube_knots
from relunorm.train.solve.greedy import solve_greedy


def task(x, y, hidden, **rest) -> Task:
    x, y = np.atleast_2d(np.asarray(x, float).T).T, np.atleast_2d(np.asarray(y, float).T).T
    weight = rest.pop("weight", np.ones(len(x)))
    hidden = hidden if isinstance(hidden, tuple) else (hidden,)
    return Task(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(weight), hidden, **rest)


def evaluate(fit: Fit, x: np.ndarray) -> np.ndarray:
    h = x = np.atleast_2d(np.asarray(x, float).T).T
    for w, b in fit.layers:
        h = np.maximum(h @ w.T + b, 0)
    return fit.bias + x @ fit.skip.T + h @ fit.output.T


def sine(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    x = np.sort(np.random.default_rng(seed).random(n))
    y = np.sin(4 * np.pi * x)
    return (x - x.mean()) / x.std(), (y - y.mean()) / y.std()


def brute_bound(x, y, weight, knots: int) -> float:
    """Every division into at most knots + 1 groups, each with its own line by polyfit."""
    n = len(x)

    def line(a: int, b: int) -> float:
        if b - a <= 1:
            return 0.0
        design = np.column_stack([np.ones(b - a), x[a:b]]) * np.sqrt(weight[a:b])[:, None]
        target = y[a:b] * np.sqrt(weight[a:b])
        gap = design @ np.linalg.lstsq(design, target, rcond=None)[0] - target
        return float(gap @ gap)

    best = line(0, n)
    for count in range(1, knots + 1):
        for cuts in combinations(range(1, n), count):
            edges = [0, *cuts, n]
            best = min(best, sum(line(a, b) for a, b in pairwise(edges)))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_bound_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(size=11))
    if seed % 2:
        x = np.round(x, 0)  # equal inputs: a function has one value there
    y, weight = rng.normal(size=11), rng.random(11) + 0.1
    for knots in (0, 1, 2, 3):
        bound = spline_bound(x, y, weight, knots).value
        brute = brute_bound(x, y, weight, knots)
        if seed % 2:
            assert bound >= brute - 1e-9  # cuts between equal inputs are not allowed here
        else:
            assert bound == pytest.approx(brute, rel=1e-7, abs=1e-9)
            assert bound <= brute + 1e-12


def test_no_spline_beats_the_bound_also_on_gathered_cells():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(400))
    y = np.sin(9 * x) + 0.1 * rng.normal(size=400)
    fine = spline_bound(x, y, np.ones(400), 5).value
    coarse = spline_bound(x, y, np.ones(400), 5, pieces=Pieces.of(x, y, np.ones(400), 80))
    assert 0.5 * fine < coarse.value <= fine
    assert len(coarse.knots) == 5
    fit = solve_exact(task(x, y, 5))
    assert fine <= fit.loss * 400


@pytest.mark.parametrize("seed", range(20))
def test_exact_meets_its_bound_on_the_papers_function(seed):
    x, y = sine(seed)
    fit = solve_exact(task(x, y, 20, seed=seed))
    direct = float(((evaluate(fit, x)[:, 0] - y) ** 2).mean())
    assert fit.lower_bound is not None
    assert fit.loss == pytest.approx(direct, rel=1e-6)
    assert fit.lower_bound <= direct * (1 + 1e-9) <= 1.02 * fit.lower_bound


def test_exact_without_skip_and_bias_is_as_good_as_two_knots_less():
    x, y = sine(3)
    plain = solve_exact(task(x, y, 20, skip=False))
    fewer = solve_exact(task(x, y, 18))
    assert not plain.bias.any()
    assert not plain.skip.any()
    assert len(plain.layers[0][1]) == 20
    direct = float(((evaluate(plain, x)[:, 0] - y) ** 2).mean())
    assert direct <= fewer.loss * (1 + 1e-9)
    # the certificate speaks of all networks with 20 units, so it counts 20 knots
    assert plain.lower_bound == pytest.approx(solve_exact(task(x, y, 20)).lower_bound)


def test_exact_recovers_a_spline():
    x = np.linspace(-1, 1, 101)
    y = np.abs(x - 0.21) - 0.5 * np.maximum(x + 0.4, 0) + x
    fit = solve_exact(task(x, y, 2))
    assert fit.loss < 1e-16
    assert np.sort(-fit.layers[0][1]) == pytest.approx([-0.4, 0.21], abs=1e-6)


def test_exact_on_noise_is_near_a_long_search():
    rng = np.random.default_rng(5)
    x = np.sort(rng.random(120))
    y = np.sin(5 * x) + 0.2 * rng.normal(size=120)
    short, long = (solve_exact(task(x, y, 6, rounds=r)) for r in (6, 20))
    assert short.loss <= 1.05 * long.loss
    assert short.lower_bound <= long.loss


def test_tube_finds_the_best_path_through_its_states():
    rng = np.random.default_rng(2)
    x = np.sort(rng.random(30))
    y = rng.normal(size=30)
    problem = SplineProblem(torch.from_numpy(x), torch.from_numpy(y))
    grid = np.linspace(x[0], x[-1], 7)
    values = rng.normal(size=(7, 3))
    found = tube_knots(problem, grid, values, 2)
    best, which = np.inf, ()
    for count in range(3):
        for inner in combinations(range(1, 6), count):
            stops = [0, *inner, 6]
            for pick in np.ndindex(*[3] * len(stops)):
                height = [values[s, p] for s, p in zip(stops, pick, strict=True)]
                loss = float(((np.interp(x, grid[stops], height) - y) ** 2).sum())
                if loss < best:
                    best, which = loss, tuple(grid[list(inner)])
    assert found == pytest.approx(np.array(which))


def test_exact_refuses_what_it_cannot_certify():
    x, y = sine(0)
    with pytest.raises(InvalidInputError, match="one input"):
        solve_exact(task(np.column_stack([x, x]), y, 3))
    with pytest.raises(InvalidInputError, match="without penalty"):
        solve_exact(task(x, y, 3, alpha=0.1))
    with pytest.raises(InvalidInputError, match="single value"):
        solve_exact(task(np.ones(9), y[:9], 3))


def test_greedy_on_franke_and_exchange_only_improves():
    p = np.random.default_rng(0).random((500, 2))
    y, x = franke(p), 2 * p - 1
    plain = solve_greedy(task(x, y, 40, rounds=0, alpha=0.0))
    better = solve_greedy(task(x, y, 40, rounds=4, alpha=0.0))
    assert better.loss < plain.loss < 6e-5
    assert better.loss < 3e-5
    assert better.loss == pytest.approx(
        float(((evaluate(better, x)[:, 0] - y) ** 2).mean()), rel=1e-6
    )
    norms = np.linalg.norm(better.layers[0][0], axis=1)
    assert norms == pytest.approx(np.ones(40))
    # tight: no unit is dead on the box of the data
    w, b = better.layers[0]
    center, half = (x.max(0) + x.min(0)) / 2, np.ptp(x, axis=0) / 2
    assert (b >= -(w @ center) - np.abs(w) @ half - 1e-12).all()


def test_greedy_without_skip_spends_d_plus_one_units():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    y = np.abs(x[:, 0]) + x[:, 1]
    free = solve_greedy(task(x, y, 8, rounds=0, alpha=0.0))
    bare = solve_greedy(task(x, y, 12, rounds=0, alpha=0.0, skip=False))
    assert not bare.bias.any()
    assert not bare.skip.any()
    assert len(bare.layers[0][1]) == 12
    assert evaluate(bare, x) == pytest.approx(evaluate(free, x), abs=1e-6)
    with pytest.raises(InvalidInputError, match="leaves no unit"):
        solve_greedy(task(x, y, 4, skip=False))


def test_penalty_is_chosen_for_noise_and_not_for_clean_data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 6))
    noise = x[:, 0] + 1.5 * rng.normal(size=150)
    clean = np.maximum(x[:, 0] - 0.2, 0) + x[:, 1]
    assert solve_greedy(task(x, noise / noise.std(), 20, rounds=0)).alpha >= 1e-2
    assert solve_greedy(task(x, clean, 20, rounds=0)).alpha <= 1e-6


@pytest.mark.parametrize("hidden", [(20, 10), (5, 5, 5, 5)])
def test_deep_has_no_failing_start(hidden):
    for seed in range(2):
        x, y = sine(seed)
        fit = solve_deep(task(x, y, hidden, skip=False, alpha=0.0, rounds=4, seed=seed))
        assert fit.loss < (4e-4 if hidden == (20, 10) else 1e-2)
        assert fit.loss == pytest.approx(
            float(((evaluate(fit, x)[:, 0] - y) ** 2).mean()), rel=1e-5
        )
        assert [len(b) for _, b in fit.layers] == list(hidden)


@pytest.mark.parametrize("name", ["exact", "greedy", "deep", "adam", "bfgs", "lbfgs", "slsqp"])
def test_time_limit_and_interruption_return_a_model(name):
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=120))
    y = np.sin(3 * x) + 0.3 * rng.normal(size=120)
    limited = solver(name)(task(x, y, 6, alpha=0.0, clock=Clock(1e-3)))
    assert limited.stopped == "time limit"
    assert np.isfinite(evaluate(limited, x)).all()
    calls = 0

    def stop(said: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    options = {"epochs": 50}
    broken = solver(name)(task(x, y, 6, alpha=0.0, progress=stop, options=options))
    assert broken.stopped == "interrupted"
    assert np.isfinite(evaluate(broken, x)).all()
    assert broken.loss < 2.0


@pytest.mark.parametrize(("solve", "hidden"), [(solve_greedy, 8), (solve_deep, (5, 5))])
@pytest.mark.parametrize("limit", [0.3, 1.5, 6.0])
@pytest.mark.parametrize("pace", [2e-5, 2e-4])
def test_time_limit_holds_on_a_clock_that_only_steps_move(solve, hidden, limit, pace, monkeypatch):
    # one evaluation of one member over all rows takes 600 * pace = 12 or 120 ms
    now = [0.0]
    for kind in (ShallowProblem, LayeredProblem):

        def timed(self, point, plain=kind.linearize):
            now[0] += pace * len(self.x) * len(point[0])
            return plain(self, point)

        monkeypatch.setattr(kind, "linearize", timed)
    monkeypatch.setattr(
        "relunorm.train.problem.task.SPEED", (27 if hidden == 8 else 45) ** 2 / pace
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=600)
    fit = solve(task(x, y, hidden, clock=Clock(limit, read=lambda: now[0])))
    # the longest limit at the faster pace has room for the usual effort, and more
    assert fit.stopped == "time limit" or limit / pace > 1e5
    # the first network is evaluated whatever the clock says, with at most EXCHANGES members
    assert 0.5 * limit - 600 * pace <= now[0] <= 1.1 * limit + 600 * pace
    assert fit.loss < 0.9


def test_flat_gradient_against_finite_differences():
    rng = np.random.default_rng(0)
    net = FlatPerceptron(
        task(rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), (5, 4), alpha=0.1)
    )
    theta = net.start(0)
    _, gradient = net.loss_and_gradient(theta)
    for _ in range(5):
        step = rng.normal(size=net.size)
        h = 1e-6
        up, down = (net.loss_and_gradient(theta + s * h * step)[0] for s in (1, -1))
        assert (up - down) / (2 * h) == pytest.approx(float(gradient @ step), rel=1e-4, abs=1e-6)
    same = net.normalized(theta)
    plain = FlatPerceptron(task(net.x, net.y, (5, 4), alpha=0.0))
    assert plain.loss_and_gradient(same)[0] == pytest.approx(plain.loss_and_gradient(theta)[0])
    for w in net.split(same)[:-3:2]:
        assert np.linalg.norm(w, axis=1) == pytest.approx(np.ones(len(w)))


@pytest.mark.parametrize("hidden", [(8,), (4, 3)])
@pytest.mark.parametrize("d", [1, 2])
def test_constrained_run_stays_in_the_reduced_space(hidden, d):
    rng = np.random.default_rng(0)
    x = rng.random((60, d)) * 2 - 1
    y = np.sin(3 * x[:, 0])
    fit = solver("slsqp")(task(x, y, hidden, skip=False, alpha=0.0, options={"max_iter": 40}))
    free = solver("bfgs")(task(x, y, hidden, skip=False, alpha=0.0, options={"max_iter": 40}))
    for w, _ in fit.layers:
        assert np.linalg.norm(w, axis=1) == pytest.approx(np.ones(len(w)))
    assert fit.loss < 0.5
    assert free.loss < 0.5
    assert fit.curve[0] == pytest.approx(free.curve[0], rel=0.5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_adam_weighs_rows_as_if_they_were_repeated(seed):
    rng = np.random.default_rng(seed)
    x = rng.random((600, 3)) * 4 - 2
    y = np.sin(1.7 * x[:, 0]) + 0.2 * x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=600)
    weight = np.ceil(np.exp(2 * rng.normal(size=600)))
    fit = solver("adam")(task(x, y, 20, weight=weight, seed=seed, options={"epochs": 60}))
    squares = (evaluate(fit, x)[:, 0] - y) ** 2
    assert np.average(squares, weights=weight) < 0.03


def test_adam_learns_with_weights_and_finishes_with_least_squares():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    y = np.abs(x[:, 0]) + np.maximum(x[:, 1] - x[:, 2], 0)
    wrong = rng.random(3000) < 0.3
    y = np.where(wrong, y + 5, y)
    weight = np.where(wrong, 1e-9, 1.0)
    fit = solver("adam")(task(x, y, 24, weight=weight, options={"epochs": 15}, alpha=0.0))
    good = ~wrong
    error = float(((evaluate(fit, x)[good, 0] - y[good]) ** 2).mean())
    assert error < 0.02
    assert np.linalg.norm(fit.layers[0][0], axis=1) == pytest.approx(np.ones(24))
    deep = solver("adam")(task(x[good], y[good], (16, 8), options={"epochs": 15}, skip=False))
    assert float(((evaluate(deep, x[good])[:, 0] - y[good]) ** 2).mean()) < 0.05
