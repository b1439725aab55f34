"""The batched engine against finite differences, dense least squares and its own twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relunorm.train.problem.layered import LayeredProblem, live_start
from relunorm.train.problem.levenberg_marquardt import Model, dense_step, minimize
from relunorm.train.problem.one_layer import Bounds, ShallowProblem
from relunorm.train.problem.spline import (
    SplineProblem,
    refit,
    solve_blocks,
    solve_tridiagonal,
    stratified_knots,
)

TORCH = {"dtype": torch.float64}


def sine(n: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = np.sort(np.random.default_rng(seed).random(n))
    return torch.from_numpy(x), torch.from_numpy(np.sin(4 * np.pi * x))


def plane_data(n: int, d: int, m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(d + m)
    x = rng.normal(size=(n, d))
    y = np.column_stack([np.sin(2 * x[:, 0] + k) + x[:, -1] ** 2 for k in range(m)])
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(rng.random(n) + 0.5)


def lstsq_loss(features: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    root = np.sqrt(weight)[:, None]
    fit = features @ np.linalg.lstsq(features * root, y * root, rcond=None)[0]
    return float((weight[:, None] * (fit - y) ** 2).sum())


def test_spline_loss_is_least_squares_over_hinges():
    x, y = sine()
    weight = torch.rand(60, generator=torch.Generator().manual_seed(1), **TORCH) + 0.1
    problem = SplineProblem(x, y, weight)
    knots = stratified_knots(float(x[0]), float(x[-1]), 5, 7, torch.Generator().manual_seed(2))
    loss = problem.linearize((knots,)).loss
    for k in range(5):
        t = knots[k].numpy()
        hinges = np.maximum(x.numpy()[:, None] - t, 0)
        features = np.column_stack([np.ones(60), x.numpy(), hinges])
        expected = lstsq_loss(features, y.numpy()[:, None], weight.numpy())
        # both solve the same problem; 1e-12 of jitter on the scaled normal equations is visible
        assert float(loss[k]) == pytest.approx(expected, rel=1e-6)
        edges = np.concatenate([[problem.low], t, [problem.high]])
        values, direct = refit(x.numpy(), y.numpy(), weight.numpy(), edges)
        assert direct == pytest.approx(expected, rel=1e-8)
        assert problem.values((knots[k : k + 1],))[0].numpy() == pytest.approx(values, abs=1e-5)


def test_spline_and_general_engine_are_the_same_model():
    x, y = sine(200)
    knots = stratified_knots(float(x[0]), float(x[-1]), 6, 12, torch.Generator().manual_seed(0))
    problem = SplineProblem(x, y)
    spline = problem.linearize((knots,))
    general = ShallowProblem(x[:, None], y[:, None], Bounds.around(x[:, None]))
    other = general.linearize((torch.ones(6, 12, 1, **TORCH), -knots))
    torch.testing.assert_close(spline.loss, other.loss, rtol=1e-4, atol=0)
    gram, columns, square, descent = dense_parts(spline.parts)
    hessian = square - columns @ torch.linalg.solve(gram, columns.mT)
    # thresholds are minus the knots, so the gradient changes sign and the Hessian does not
    scale = float(hessian.abs().max())
    assert float((hessian - other.parts[0]).abs().max()) < 1e-4 * scale
    assert float((descent + other.parts[1]).abs().max()) < 1e-4 * scale


def dense_parts(parts):
    """Gram matrix of the scaled hats, knot columns against them, and among themselves."""
    diagonal, off, same, following, square, descent = parts
    gram = torch.diag_embed(diagonal) + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    columns = torch.zeros(*same.shape, diagonal.shape[1], **TORCH)
    index = torch.arange(same.shape[1])
    columns[:, index, index + 1], columns[:, index, index + 2] = same, following
    return gram, columns, torch.diag_embed(square), descent


@pytest.mark.parametrize("factor", [1e-6, 1e-2, 10.0])
def test_spline_step_solves_the_damped_normal_equations(factor):
    x, y = sine(200)
    problem = SplineProblem(x, y)
    knots = stratified_knots(float(x[0]), float(x[-1]), 6, 12, torch.Generator().manual_seed(0))
    model = problem.linearize((knots,))
    gram, columns, square, descent = dense_parts(model.parts)
    diagonal = square.diagonal(dim1=1, dim2=2)
    alone = (diagonal - columns.square().sum(dim=2)).maximum(0.02 * diagonal)
    damped = square + torch.diag_embed(factor * alone)
    schur = damped - columns @ torch.linalg.solve(gram, columns.mT)
    expected = torch.linalg.solve(schur, descent[..., None])[..., 0]
    found = problem.step(model, torch.full((6,), factor, **TORCH))
    # the step's own floor of 1e-10 shows where the undamped system is nearly singular
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 22])
def test_cyclic_reduction_against_dense_solves(size):
    rng = np.random.default_rng(size)
    dense = np.zeros((3, 2 * size, 2 * size))
    for i in range(size):
        here, ahead = slice(2 * i, 2 * i + 2), slice(2 * i + 2, 2 * i + 4)
        dense[:, here, here] += 5 * np.eye(2) + 0.5
        if i + 1 < size:
            block = rng.normal(size=(3, 2, 2))
            dense[:, here, ahead] = block
            dense[:, ahead, here] = block.transpose(0, 2, 1)
            dense[:, here, here] += 2 * np.eye(2) * np.abs(block).max()
            dense[:, ahead, ahead] += 2 * np.eye(2) * np.abs(block).max()
    right = rng.normal(size=(3, 2 * size))
    blocks = dense.reshape(3, size, 2, size, 2)
    index = np.arange(size)
    diagonal = torch.from_numpy(blocks[:, index, :, index, :].transpose(2, 3, 1, 0).copy())
    after = torch.zeros_like(diagonal)
    if size > 1:
        next_to = blocks[:, index[:-1], :, index[1:], :].transpose(2, 3, 1, 0)
        after[..., :-1] = torch.from_numpy(next_to.copy())
    shaped = torch.from_numpy(right.reshape(3, size, 2).transpose(2, 0, 1).copy())
    found = solve_blocks(diagonal, after, shaped).numpy().transpose(1, 2, 0).reshape(3, -1)
    assert found == pytest.approx(np.linalg.solve(dense, right[..., None])[..., 0], abs=1e-12)
    single, off = dense[:, ::2, ::2], dense[:, ::2, ::2].diagonal(1, 1, 2)
    scalar = solve_tridiagonal(
        *(torch.from_numpy(v.copy()) for v in (single.diagonal(0, 1, 2), off, right[:, ::2]))
    )
    expected = np.linalg.solve(single, right[:, ::2, None])[..., 0]
    assert scalar.numpy() == pytest.approx(expected, abs=1e-12)


def test_loss_of_nearly_meeting_knots_is_true():
    x, y = sine(200)
    problem = SplineProblem(x, y)
    base = torch.linspace(0.1, 0.9, 10, **TORCH)[None]
    knots = torch.cat([base, base + 1.5e-4], dim=1).sort(dim=1).values
    edges = np.concatenate([[problem.low], knots[0].numpy(), [problem.high]])
    _, direct = refit(x.numpy(), y.numpy(), np.ones(200), edges)
    assert float(problem.linearize((knots,)).loss[0]) == pytest.approx(direct, rel=0.01)


@pytest.mark.parametrize(("d", "m", "ridge"), [(1, 1, 0.0), (2, 1, 0.0), (3, 2, 0.01), (5, 3, 0.0)])
def test_shallow_gradient_is_the_derivative_of_the_projected_loss(d, m, ridge):
    x, y, weight = plane_data(80, d, m)
    problem = ShallowProblem(x, y, Bounds.around(x, "unit"), weight, ridge)
    generator = torch.Generator().manual_seed(5)
    w = torch.randn(2, 6, d, generator=generator, **TORCH)
    w = w / w.norm(dim=2, keepdim=True)
    b = 0.3 * torch.randn(2, 6, generator=generator, **TORCH)
    check_descent(problem, (w, b))


def test_layered_gradient_is_the_derivative_of_the_projected_loss():
    x, y, weight = plane_data(70, 3, 2)
    for skip in (True, False):
        problem = LayeredProblem(x, y, weight, 0.001, skip, clip=False)
        start = live_start(x, (6, 5, 4), 2, torch.Generator().manual_seed(3))
        check_descent(problem, tuple(p + 1e-3 if p.ndim == 2 else p for p in start))


def check_descent(problem, point) -> None:
    """J^T r is minus half the gradient of the loss, along a few directions."""
    model = problem.linearize(point)
    size = model.parts[-1].shape[1]
    generator = torch.Generator().manual_seed(9)
    for _ in range(4):
        step = torch.randn(len(model.loss), size, generator=generator, **TORCH)
        h = 1e-6
        up = problem.linearize(problem.move(point, h * step)).loss
        down = problem.linearize(problem.move(point, -h * step)).loss
        slope = -2 * (model.parts[-1] * step).sum(dim=1)
        # central differences of a loss with 1e-12 of jitter in its normal equations
        torch.testing.assert_close((up - down) / (2 * h), slope, rtol=1e-3, atol=1e-4)


def test_output_solves_the_inner_least_squares():
    x, y, weight = plane_data(90, 3, 2)
    problem = ShallowProblem(x, y, Bounds.around(x), weight)
    start = live_start(x, (8,), 3, torch.Generator().manual_seed(0))
    weights, loss = problem.output(start)
    for k in range(3):
        hidden = np.maximum(x.numpy() @ start[0][k].numpy().T + start[1][k].numpy(), 0)
        features = np.column_stack([np.ones(90), x.numpy(), hidden])
        expected = lstsq_loss(features, y.numpy(), weight.numpy())
        assert float(loss[k]) == pytest.approx(expected, rel=1e-8)
    layered, other = LayeredProblem(x, y, weight).output(start)
    torch.testing.assert_close(loss, other, rtol=1e-8, atol=0)
    torch.testing.assert_close(weights, layered, rtol=1e-5, atol=1e-6)


def test_contributions_are_what_a_unit_is_worth():
    x, y, weight = plane_data(90, 2, 1)
    problem = ShallowProblem(x, y, Bounds.around(x), weight)
    w, b = live_start(x, (5,), 1, torch.Generator().manual_seed(1))
    full = problem.output((w, b))[1]
    worth = problem.contributions((w, b))[0]
    for j in range(5):
        keep = [k for k in range(5) if k != j]
        without = problem.output((w[:, keep], b[:, keep]))[1]
        assert float(without - full) == pytest.approx(float(worth[j]), rel=1e-6, abs=1e-9)


def test_rows_are_sliced_without_changing_the_answer(monkeypatch):
    x, y, weight = plane_data(500, 2, 1)
    start = live_start(x, (7,), 2, torch.Generator().manual_seed(1))
    deep = live_start(x, (4, 3), 2, torch.Generator().manual_seed(1))
    whole = ShallowProblem(x, y, Bounds.around(x), weight).linearize(start)
    whole_deep = LayeredProblem(x, y, weight).linearize(deep)
    for module in ("one_layer", "layered"):
        monkeypatch.setattr(f"relunorm.train.problem.{module}.SLICE_DOUBLES", 100)
    sliced = ShallowProblem(x, y, Bounds.around(x), weight).linearize(start)
    sliced_deep = LayeredProblem(x, y, weight).linearize(deep)
    torch.testing.assert_close(whole.parts[0], sliced.parts[0], rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(whole_deep.loss, sliced_deep.loss)


def test_members_do_not_disturb_each_other():
    x, y = sine(100)
    problem = SplineProblem(x, y)
    knots = stratified_knots(float(x[0]), float(x[-1]), 8, 6, torch.Generator().manual_seed(0))
    together = minimize(problem, (knots,), iterations=20)
    for k in range(8):
        alone = minimize(problem, (knots[k : k + 1],), iterations=20)
        assert float(alone.loss[0]) == pytest.approx(float(together.loss[k]), rel=1e-6)
    broken = knots.clone()
    broken[3] = torch.nan
    rest = [0, 1, 2, 4, 5, 6, 7]
    found = minimize(problem, (broken,), iterations=20)
    assert float(found.loss[3]) == torch.inf
    torch.testing.assert_close(found.loss[rest], together.loss[rest], rtol=1e-6, atol=0)


def test_loss_never_rises_and_knots_stay_inside():
    x, y = sine(150)
    problem = SplineProblem(x, y)
    knots = stratified_knots(float(x[0]), float(x[-1]), 32, 15, torch.Generator().manual_seed(0))
    before = problem.linearize((knots,)).loss
    found = minimize(problem, (knots,), iterations=25)
    assert bool((found.loss <= before).all())
    moved = found.point[0]
    assert bool((moved.diff(dim=1) > 0).all())
    assert float(moved.min()) >= float(x[0])
    assert float(moved.max()) <= float(x[-1])
    assert all(a >= b for a, b in zip(found.curve[:-1], found.curve[1:], strict=True))


def test_ctrl_c_keeps_the_best_point():
    x, y = sine(100)
    knots = stratified_knots(float(x[0]), float(x[-1]), 4, 6, torch.Generator().manual_seed(0))

    def stop(iteration: int, loss: float) -> None:
        if iteration == 3:
            raise KeyboardInterrupt

    found = minimize(SplineProblem(x, y), (knots,), iterations=20, callback=stop)
    assert found.interrupted
    assert found.iterations == 3
    assert found.curve[-1] < found.curve[0]


def test_a_quadratic_is_solved_in_a_few_steps():
    class Quadratic:
        target = torch.tensor([[1.0, -2.0], [3.0, 0.5]], **TORCH)
        scale = torch.tensor([1.0, 100.0], **TORCH)

        def linearize(self, point):
            gap = (self.target - point[0]) * self.scale
            hessian = torch.diag(self.scale**2).expand(2, 2, 2)
            return Model(gap.square().sum(dim=1), (hessian, gap * self.scale))

        def step(self, model, factor):
            return dense_step(*model.parts, factor)

        def move(self, point, step):
            return (point[0] + step,)

    found = minimize(Quadratic(), (torch.zeros(2, 2, **TORCH),), iterations=12, tolerance=0)
    torch.testing.assert_close(found.point[0], Quadratic.target, atol=1e-8, rtol=0)


def test_tight_interval_keeps_units_live_and_printed_bound_does_not():
    # docs/errata, seed 001: X_B of [0, 1]^2 is sqrt(2), so |b| <= X_B admits units dead on the box
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **TORCH)
    w = torch.tensor([[[1.0, 0.0], [0.6, 0.8]]], **TORCH)
    low, high = Bounds.around(x, "tight").interval(w)
    torch.testing.assert_close(low, torch.tensor([[-1.0, -1.4]], **TORCH))
    torch.testing.assert_close(high, torch.zeros(1, 2, **TORCH))
    loose, _ = Bounds.around(x, "bounded").interval(w)
    dead = (x @ w[0, 0] + loose[0, 0]).clamp_min(0)
    assert float(dead.max()) == 0.0
    assert float(loose[0, 0]) < float(low[0, 0])
