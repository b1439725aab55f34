"""Robustness: verdicts and radii against cells, adversarial inputs, rows that are bad."""

from __future__ import annotations

import dataclasses
import importlib
import json
import signal
import types
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from brute_force import pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_programme import minimum
from scipy.optimize import linprog, minimize_scalar, nnls
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Box, Network, NormBall
from relunorm.cli import app, main
from relunorm.clock import Clock
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.network.head import Head, Step
from relunorm.questions.neighbourhood import neighbourhood, quick_radius

certify_module = importlib.import_module("relunorm.questions.certify")


def random_net(rng: np.random.Generator, *widths: int) -> Network:
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    return Network.from_weights(weights, [rng.normal(size=b) for b in widths[1:]])


def nearest(rows, rhs, x, norm) -> float:
    """The distance from x to {rows z <= rhs}; infinite where that is empty."""
    d = len(x)
    if norm == 2:  # least distance programming (Lawson and Hanson 1974, chapter 23)
        G, h = -rows, -(rhs - rows @ x)
        if (h <= 0).all():
            return 0.0
        E = np.vstack([G.T, h])
        f = np.append(np.zeros(d), 1.0)
        u, left = nnls(E, f)
        residual = E @ u - f
        return np.inf if left < 1e-10 else float(np.linalg.norm(residual[:d] / residual[d]))
    own = np.eye(d)
    if norm == 1:
        A = np.block([[rows, np.zeros((len(rows), d))], [own, -own], [-own, -own]])
        cost = np.append(np.zeros(d), np.ones(d))
        low = np.append(np.full(d, -np.inf), np.zeros(d))
    else:
        one = np.ones((d, 1))
        A = np.block([[rows, np.zeros((len(rows), 1))], [own, -one], [-own, -one]])
        cost = np.append(np.zeros(d), 1.0)
        low = np.append(np.full(d, -np.inf), 0.0)
    found = minimum(cost, A, np.concatenate([rhs, x, -x]), low)
    return np.inf if found is None else found[1]


def safe_radius(network: Network, groups, x, norm, lo, hi) -> float:
    """The distance to the nearest input of the box with a wrong output, cell by cell."""
    best, d = np.inf, len(x)
    box, ends = np.vstack([np.eye(d), -np.eye(d)]), np.concatenate([hi, -lo])
    for M, c, rows, rhs in pieces(network, lo, hi):
        for A, b in groups:
            side = np.vstack([rows, box, A @ M])
            best = min(best, nearest(side, np.concatenate([rhs, ends, b - A @ c]), x, norm))
    return best


@pytest.mark.parametrize("norm", ["inf", 2, 1])
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_radii_agree_with_cells(norm, seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng, 2, 4, 3, 3)
    lo, hi = np.array([-1.0, -1.0]), np.array([1.0, 1.5])
    x = rng.uniform(lo, hi)
    label = int(net(x).argmax())
    own = np.eye(3)
    groups = [(own[[label]] - own[[j]], np.zeros(1)) for j in range(3) if j != label]
    exact = safe_radius(net, groups, x, float(norm), lo, hi)
    (row,) = rn.certify(net, x, None, norm, valid=Box(lo, hi)).rows
    low, high = row.radius
    if np.isinf(exact):
        assert row.verdict == "robust"
        assert low == np.inf
        return
    assert low <= exact * (1 + 1e-7) + 1e-9
    assert high >= exact * (1 - 1e-7) - 1e-9
    assert high - low <= 0.0101 * high
    z = row.adversarial
    assert net(z)[label] <= np.delete(net(z), label).max()
    assert (lo <= z).all()
    assert (z <= hi).all()
    below = rn.certify(net, x, 0.9 * exact, norm, valid=Box(lo, hi)).rows[0]
    above = rn.certify(net, x, 1.1 * exact + 1e-6, norm, valid=Box(lo, hi)).rows[0]
    assert (below.verdict, above.verdict) == ("robust", "attacked")
    assert np.linalg.norm(above.adversarial - x, ord=float(norm)) <= 1.1 * exact + 1e-6
    assert above.single
    assert (above.adversarial == above.adversarial.astype(np.float32)).all()


@pytest.mark.parametrize("norm", [np.inf, 2, 1])
@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_a_quick_radius_is_safe(norm, seed):
    rng = np.random.default_rng(seed)
    net = random_net(rng, 2, 4, 3, 3)
    lo, hi = np.array([-1.0, -1.0]), np.array([1.0, 1.5])
    x = rng.uniform(lo, hi)
    label = int(net(x).argmax())
    own = np.eye(3)
    groups = [(own[[label]] - own[[j]], np.zeros(1)) for j in range(3) if j != label]
    exact = safe_radius(net, groups, x, float(norm), lo, hi)

    def around(radius: float) -> rn.Domain:
        return neighbourhood(x, radius, norm, Box(lo, hi)).outer

    found = quick_radius(net, groups, around, min(exact, 4.0) * 2, Clock())
    assert found <= exact * (1 + 1e-7) + 1e-9
    if exact > 1e-3:  # near by a network is linear, and there linear bounds are exact
        assert found > 0


def test_many_units_get_a_safe_radius_without_a_search(monkeypatch):
    net = random_net(np.random.default_rng(0), 3, 8, 2)
    monkeypatch.setattr(certify_module, "MANY_UNITS", 1)
    monkeypatch.setattr(certify_module._Job, "_decide", lambda *a, **k: ("unknown", None, 0))
    (row,) = rn.certify(net, [[0.1, 0.2, 0.3]]).rows
    low, high = row.radius
    assert 0 < low < high


def test_no_time_leaves_rows_unknown():
    net = random_net(np.random.default_rng(0), 3, 8, 2)
    found = rn.certify(net, np.zeros((3, 3)), 0.1, time_limit=0)
    assert [(row.verdict, row.reason) for row in found.rows] == [("unknown", "time limit")] * 3


def test_a_sigmoid_on_several_outputs_is_not_one_class():
    net = random_net(np.random.default_rng(0), 3, 8, 4).replace(head=Head((Step("sigmoid"),)))
    with pytest.raises(InvalidInputError, match="several answers at once; pass label"):
        rn.certify(net, np.zeros((2, 3)), 0.1)
    label = net(np.zeros(3)).argmax()
    assert rn.certify(net, np.zeros((1, 3)), 1e-6, label=[label]).rows[0].verdict == "robust"


def test_radii_of_the_largest_norm_agree_with_decide():
    rng = np.random.default_rng(3)
    net = random_net(rng, 4, 8, 8, 3)
    x = rng.uniform(-1, 1, 4)
    label = int(net(x).argmax())
    (row,) = rn.certify(net, x, tolerance=1e-3).rows

    def attacked(radius: float) -> bool:
        verdicts = []
        for j in range(3):
            if j != label:
                A = np.eye(3)[[label]] - np.eye(3)[[j]]
                verdicts.append(rn.decide(net, Box(x - radius, x + radius), A, [0.0]).verdict)
        assert "unknown" not in verdicts
        return "counterexample" in verdicts

    assert not attacked(row.radius[0] * (1 - 1e-9))
    assert attacked(row.radius[1] * (1 + 1e-9))


def test_one_output_is_a_class_by_its_sign():
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])  # |x| - 1
    found = rn.certify(net, [[3.0], [0.25], [0.25]], 1.0, label=[1, 0, 1])
    assert [row.verdict for row in found.rows] == ["robust", "attacked", "attacked"]
    assert found.rows[1].correct
    assert not found.rows[2].correct
    assert found.rows[2].radius == (0.0, 0.0)
    assert found.accuracy(0.0) == (2 / 3, 2 / 3)  # at the inputs themselves
    assert found.accuracy(0.9)[0] == 1 / 3
    signs = rn.certify(net, [[3.0], [0.25], [0.25]], 1.0, label=[1, -1, 0])
    assert [row.verdict for row in signs.rows] == ["robust", "attacked", "invalid"]


@pytest.mark.parametrize("large", [1e12, 1e16, -1e16])
def test_a_delta_that_float64_cannot_add_to_an_output(large):
    """Outputs beside 1e16 are 2 apart: adding 1e-6 gives the output itself, which is not wrong."""
    net = rn.Network.from_weights([[[1.0]], [[1.0]]], [[0.0], [large]])
    for row in rn.certify(net, [[2.0], [4.0]], 1e-7, delta=1e-6, time_limit=2).rows:
        assert row.verdict in ("robust", "unknown")
    row = rn.certify(net, [[2.0]], 8.0, delta=1e-6, time_limit=2).rows[0]
    assert row.verdict == "attacked"
    gap = Fraction(row.adversarial[0]) + Fraction(large) - Fraction(net([2.0])[0])
    assert abs(gap) >= Fraction(1e-6)


def test_a_regression_stays_within_delta():
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])  # |x|
    low, high = rn.certify(net, [[2.0]], delta=0.5).rows[0].radius
    assert low <= 0.5 <= high
    assert high - low <= 0.01
    assert rn.certify(net, [[2.0]], 0.4, delta=0.5).rows[0].verdict == "robust"
    # with the right output given, half of the way is used up
    assert rn.certify(net, [[2.0]], 0.4, label=[2.25], delta=0.5).rows[0].verdict == "attacked"
    unknown = rn.certify(net, [[2.0], [2.0]], 0.4, label=[np.nan, 2.0], delta=0.5).rows
    assert [row.verdict for row in unknown] == ["invalid", "robust"]
    assert "row 0: the right output is not a finite number" in unknown[0].reason


def test_inputs_at_the_edge_of_the_valid_range_move_inward_only():
    net = Network.from_weights([[[1.0, 1.0]], [[1.0]]], [[0.0], [-0.25]])  # class 1 above 1/4
    x = [[0.0, 0.0]]
    assert rn.certify(net, x, 0.2, 2, valid=(0.0, 0.125)).rows[0].verdict == "attacked"
    assert rn.certify(net, x, 1.0, 2, valid=(0.0, 0.12)).rows[0].verdict == "robust"
    found = rn.certify(net, x, None, 1, valid=(0.0, 0.12)).rows[0]
    assert found.verdict == "robust"
    assert found.radius[0] == np.inf


def test_the_neighbourhood_holds_what_it_should():
    x, radius = np.array([0.1, 0.7, 1e-9]), 0.3
    place = neighbourhood(x, radius, np.inf, None)
    from fractions import Fraction

    for number in range(3):
        low = Fraction(x[number]) - Fraction(radius)
        high = Fraction(x[number]) + Fraction(radius)
        assert Fraction(place.outer.lo[number]) <= low <= Fraction(place.inner.lo[number])
        assert Fraction(place.inner.hi[number]) <= high <= Fraction(place.outer.hi[number])


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from([1, 2]))
def test_the_support_of_a_ball_in_a_box(seed, norm):
    rng = np.random.default_rng(seed)
    lo, hi = rng.uniform(-1, 0, 3), rng.uniform(0, 1, 3)
    middle = np.where(rng.random(3) < 0.3, lo, rng.uniform(lo, hi))
    ball = NormBall(middle, float(rng.uniform(0.1, 1.5)), norm, Box(lo, hi))
    direction = rng.normal(size=3) * (rng.random(3) < 0.8)
    low, high = (end[0] for end in ball.support(direction))
    points = ball.sample(200, seed)
    assert ball.contains(points, 1e-12).all()
    assert (points @ direction <= high + 1e-9).all()
    assert (points @ direction >= low - 1e-9).all()
    top = ball.maximizer(direction[None])[0]
    assert ball.contains(top, 1e-9)[0]
    assert top @ direction == pytest.approx(high)
    if norm == 1:
        own = np.eye(3)
        found = linprog(
            -np.append(direction, np.zeros(3)),
            A_ub=np.block([[own, -own], [-own, -own], [np.zeros((1, 3)), np.ones((1, 3))]]),
            b_ub=np.concatenate([middle, -middle, [ball.reach]]),
            bounds=[*zip(lo, hi, strict=True), *[(0, None)] * 3],
        )
        assert high == pytest.approx(-found.fun, abs=1e-8)
    else:  # the dual: the ball's constraint with a multiplier, the box as it is
        room, size = np.where(direction > 0, hi - middle, middle - lo), np.abs(direction)

        def dual(exponent: float) -> float:
            step = np.minimum(size / (2 * np.exp(exponent)), room)
            return float(np.exp(exponent) * (ball.reach**2 - step @ step) + size @ step)

        least = minimize_scalar(dual, bounds=(-40, 10), method="bounded", options={"xatol": 1e-9})
        assert high - middle @ direction == pytest.approx(least.fun, abs=1e-6)


def test_a_ball_decides_its_members_without_rounding():
    ball = NormBall([0.1, 0.2], 0.3, 1, Box.cube(2, -2, 2))
    assert ball.contains([[0.1, 0.5]])[0] or not ball.holds([[0.1, 0.5]])[0]
    assert not ball.holds([[0.4000000000000001, 0.2]])[0]  # 0.1 + 0.3 is a little less
    with pytest.raises(InvalidDomainError):
        NormBall([3.0], 1.0, 2, Box([0.0], [1.0]))


def test_bad_rows_are_named_and_the_others_answered():
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])
    found = rn.certify(
        net, [[3.0], [np.nan], [9.0], [3.0]], 0.5, label=[1, 1, 1, 7], valid=(-5.0, 5.0)
    )
    assert [row.verdict for row in found.rows] == ["robust", "invalid", "invalid", "invalid"]
    reasons = [row.reason for row in found.rows]
    assert "row 1: input 0 is nan" in reasons[1]
    assert "row 2: input 0 is 9, outside of the valid range [-5, 5]" in reasons[2]
    assert "row 3: label 7, but the model has classes 0 to 1" in reasons[3]
    assert found.accuracy(0.5) == (1.0, 1.0)


#: |x_0| against relu(x_1).
BENT = Network.from_weights(
    [[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
)
CONSTANT = Network.from_weights([np.zeros((2, 2)), np.eye(2)], [[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e-160])
def test_distances_whose_squares_underflow(size):
    """The answer changes where |x_0| = x_1: from (s, s / 2) that is s / sqrt(8) away."""
    found = rn.certify(BENT, [[size, size / 2]], 0.5 * size, norm=2, time_limit=20).rows[0]
    assert found.verdict == "attacked"
    assert found.adversarial is not None
    steps = [
        Fraction(a) - Fraction(b)
        for a, b in zip(found.adversarial.tolist(), [size, size / 2], strict=True)
    ]
    square = sum(step * step for step in steps)
    assert 0 < square <= Fraction(found.radius[1]) ** 2
    assert found.radius[1] <= 0.5 * size


def test_rows_too_large_to_compute_with_do_not_stop_the_others():
    found = rn.certify(CONSTANT, [[0.0, 1.0], [1e120, 0.0], [3e99, 1.0]], 0.5).rows
    assert [row.verdict for row in found] == ["robust", "invalid", "robust"]
    assert "row 1: input 0 is 1e+120, too large" in found[1].reason
    told = rn.certify(CONSTANT, [[0.0, 1.0]] * 2, 0.5, label=[[1.0, 0.0], [1e200, 0.0]], delta=0.1)
    assert [row.verdict for row in told.rows] == ["robust", "invalid"]
    for more in ({"radius": 1e100}, {"radius": [1e100, 1.0]}, {"delta": 1e200, "radius": 1.0}):
        with pytest.raises(InvalidInputError):
            rn.certify(CONSTANT, [[0.0, 1.0]], **more)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_where_nothing_is_ever_attacked_the_reason_is_not_the_time(norm):
    for x in ([0.0, 0.0], [1e95, 1.0]):
        row = rn.certify(CONSTANT, [x], norm=norm, time_limit=60).rows[0]
        assert row.verdict == "unknown"
        assert row.reason == "safe at every radius that was tried"
        assert 1e12 < row.radius[0] < row.radius[1] == np.inf


def test_a_name_the_model_does_not_have_is_the_fault_of_its_row(tmp_path, capsys):
    plain = Network.from_weights([[[1.0], [-1.0]]], [[0.0, 0.0]])
    net = plain.replace(head=rn.Head((), ("oak", "ash")))
    rows = [[3.0], [3.0], [-3.0], [3.0]]
    found = rn.certify(net, rows, 0.5, label=["oak", "pine", "ash", None])
    assert [row.verdict for row in found.rows] == ["robust", "invalid", "robust", "invalid"]
    assert found.rows[1].reason == "row 1: label 'pine', but the model has classes oak, ash"
    rn.save(net, tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,kind\n3,oak\n3,pine\n-3,ash\n")
    data = ["--data", str(tmp_path / "rows.csv"), "--target", "kind", "--eps", "0.5", "--json"]
    with pytest.raises(SystemExit) as stop:
        main(["certify", str(tmp_path / "net.npz"), *data])
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert "row 1: label 'pine'" in told.err
    assert json.loads(told.out)["counts"] == {
        "robust": 2, "attacked": 0, "unknown": 0, "invalid": 1,
    }  # fmt: skip


def test_the_first_rows_have_the_labels_of_the_whole_table(tmp_path, capsys):
    """Of labels 1 and 2 the first rows show 1 alone, which is not the output's number 1."""
    rn.save(Network.from_weights([[[1.0]]], [[0.0]]), tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,kind\n-3,1\n-2,1\n3,2\n5,2\n")
    data = ["--data", str(tmp_path / "rows.csv"), "--target", "kind", "--eps", "0.5"]
    with pytest.raises(SystemExit) as stop:
        main(["certify", str(tmp_path / "net.npz"), *data, "--rows", "2", "--json"])
    assert stop.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["counts"]["robust"] == 2
    assert (told["classes"], told["classes_from"]) == (["1", "2"], "sorted")


def test_the_whole_table_may_refute_numbers_for_names(tmp_path, capsys):
    """Two rows are too few to say that 1 stands for the first name; the table says so."""
    net = Network.from_weights([[[1.0]]], [[0.0]]).replace(head=rn.Head((), ("yes", "no")))
    rn.save(net, tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,kind\n" + "-3,1\n2,0\n" * 6)
    data = ["--data", str(tmp_path / "rows.csv"), "--target", "kind", "--eps", "0.5"]
    with pytest.raises(SystemExit) as stop:
        main(["certify", str(tmp_path / "net.npz"), *data, "--rows", "2"])
    assert stop.value.code == 2
    assert "0 of 12 rows are right, in another order 12" in capsys.readouterr().err


def test_the_target_of_a_regression_is_one_error(tmp_path, capsys):
    rn.save(Network.from_weights([[[1.0]]], [[0.0]]), tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,y\n-3,151\n-2,75\n3,141\n")
    data = ["--data", str(tmp_path / "rows.csv"), "--target", "y", "--eps", "0.5"]
    with pytest.raises(SystemExit) as stop:
        main(["certify", str(tmp_path / "net.npz"), *data])
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "--delta" in told.err
    with pytest.raises(SystemExit):
        main(["certify", str(tmp_path / "net.npz"), *data, "--delta", "9"])
    assert "None" not in capsys.readouterr().out


def test_a_radius_for_each_input():
    """One affine output w x + b changes its sign at |w x + b| / sum |w_i| s_i, in lengths s."""
    w, b = np.array([3.0, -2e-4, 5e3, 1.0]), 0.7
    net = Network.from_weights([[w]], [[b]])
    scale, x = np.array([0.3, 2e4, 1e-3, 0.0]), np.array([1.0, 1e4, 1e-4, 2.0])
    exact = sum((Fraction(a) * Fraction(c) for a, c in zip(w, x, strict=True)), Fraction(b))
    exact = abs(exact) / sum(abs(Fraction(a)) * Fraction(c) for a, c in zip(w, scale, strict=True))
    found = rn.certify(net, [x], scale=scale)
    low, high = found.rows[0].radius
    assert Fraction(low) <= exact <= Fraction(high)
    assert high - low <= 0.01 * high
    moved = np.abs(found.rows[0].adversarial - x)
    assert moved[3] == 0
    assert (moved <= high * scale * (1 + 1e-12)).all()
    for factor, verdict in ((0.999, "robust"), (1.001, "attacked")):
        radii = factor * float(exact) * scale
        row = rn.certify(net, [x], radii).rows[0]
        assert row.verdict == verdict
        if verdict == "attacked":
            assert all(
                abs(Fraction(a) - Fraction(c)) <= Fraction(r)
                for a, c, r in zip(row.adversarial, x, radii, strict=True)
            )
        else:
            assert row.radius[0] == 1.0
    for bad in ({"radius": [1.0, 2.0]}, {"scale": np.zeros(4)}, {"scale": scale, "norm": 2}):
        with pytest.raises(InvalidInputError, match="a radius or a scale for each input"):
            rn.certify(net, [x], **bad)


def test_the_spread_of_a_table_as_the_unit(tmp_path):
    net = Network.from_weights([[[1.0, 1.0], [-1.0, -1.0]]])
    rn.save(net, tmp_path / "net.npz")
    rows = np.array([[3.0, 300.0], [1.0, 100.0], [2.0, 200.0]])
    np.savez(tmp_path / "rows.npz", x=rows)
    asked = ["certify", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.npz"), "--json"]
    found = json.loads(CliRunner().invoke(app, [*asked, "--scale", "spread"]).output)
    np.testing.assert_allclose(found["scale"], rows.std(axis=0))
    for row, x in zip(found["rows"], rows, strict=True):
        low, high = row["radius"]
        assert low <= x.sum() / rows.std(axis=0).sum() <= high
    bad = CliRunner().invoke(app, [*asked, "--scale", "wide"])
    assert isinstance(bad.exception, InvalidInputError)


def test_an_interrupt_keeps_the_rows_decided_until_then(tmp_path, monkeypatch, capsys):
    net = Network.from_weights([[[1.0], [-1.0]]])
    rows = np.full((6, 1), 4.0)
    rn.save(net, tmp_path / "net.npz")
    np.savez(tmp_path / "rows.npz", x=rows)
    decide = certify_module.decide_any
    asked = ["certify", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.npz"), "--json"]

    def interrupted(after: int, caught: bool):
        calls = iter(range(100))

        def run(*arguments, **options):
            if next(calls) == after:
                try:
                    signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:  # as a search does that is under way
                    if not caught:
                        raise
            return decide(*arguments, **options)

        monkeypatch.setattr(certify_module, "decide_any", run)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for caught in (False, True):
            interrupted(2, caught)
            found = rn.certify(net, rows, 1.0)
            verdicts = ["robust"] * (2 + caught) + ["unknown"] * (4 - caught)
            assert [row.verdict for row in found.rows] == verdicts
            assert found.stopped == found.rows[-1].reason == "interrupted"
        interrupted(2, False)
        with pytest.raises(SystemExit) as stop:
            main([*asked, "--eps", "1"])
        told = capsys.readouterr()
        assert stop.value.code == 130
        assert json.loads(told.out)["counts"]["robust"] == 2
        assert "what was found until then is kept" in told.err
        interrupted(0, False)
        with pytest.raises(KeyboardInterrupt):
            rn.certify(net, rows, 1.0)
        interrupted(0, False)
        with pytest.raises(SystemExit) as stop:
            main([*asked, "--eps", "1"])
        assert stop.value.code == 130
        assert capsys.readouterr() == ("", "relunorm: interrupted\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_time_that_is_left_goes_to_the_rows_that_are_undecided(monkeypatch):
    net = Network.from_weights([[[1.0], [-1.0]]])
    decide, asked = certify_module.decide_any, []

    def run(network, domain, groups, clock, *rest):
        """Row 0 is undecided until it gets more than its share of a third."""
        row = round(float(domain.center[0])) - 4
        asked.append(row)
        found = decide(network, domain, groups, clock, *rest)
        if row == 0 and clock.limit < 3600 / 2:
            clock.ends = clock.began  # its time is up
            return dataclasses.replace(found, verdict="unknown")
        return found

    monkeypatch.setattr(certify_module, "decide_any", run)
    found = rn.certify(net, [[4.0], [5.0], [6.0]], 1.0, time_limit=3600)
    assert asked == [0, 1, 2, 0]
    assert [row.verdict for row in found.rows] == ["robust"] * 3
    monkeypatch.setattr(
        certify_module,
        "decide_any",
        lambda *asked: dataclasses.replace(decide(*asked), verdict="unknown"),
    )
    left = rn.certify(net, [[4.0]], 1.0, time_limit=3600).rows[0]
    assert (left.verdict, left.reason) == ("unknown", certify_module.ROUNDING)


def test_an_interval_that_is_not_closed_says_why(tmp_path, monkeypatch):
    net = Network.from_weights([[[1.0], [-1.0]]])
    model, data = tmp_path / "m.npz", tmp_path / "d.csv"
    rn.save(net, model)
    data.write_text("a\n4.0\n")
    arguments = ["certify", str(model), "--data", str(data)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "not closed" not in done.stdout
    decide, patience = certify_module.decide_any, [3]

    def run(network, domain, groups, clock, *rest):
        """The time of every search is up before it ends, but for the last few."""
        patience[0] -= 1
        if patience[0] > 0:
            return decide(network, domain, groups, clock, *rest)
        clock.ends = clock.began
        return types.SimpleNamespace(verdict="unknown", stopped="", nodes=0, point=None)

    monkeypatch.setattr(certify_module, "decide_any", run)
    (row,) = rn.certify(net, [[4.0]], time_limit=3600).rows
    low, high = row.radius
    assert row.adversarial is not None
    assert 0 < low < 4 <= high
    assert high - low > 0.01 * high
    assert row.reason == "time limit"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3
    assert "1 row not closed: time limit" in done.stdout
    patience[0] = 3  # what the first attempt proved holds for the second

    def once(job, row, clock, before=None):
        if before is None:
            return largest(job, row, clock)
        patience[0] = 0
        again = largest(job, row, clock, before)
        assert again.radius == before.radius
        return again

    largest = certify_module._Job.largest
    monkeypatch.setattr(certify_module._Job, "largest", once)
    (row,) = rn.certify(net, [[4.0]], time_limit=3600).rows
    assert row.radius == (low, high)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"radius": -1.0}, "radius is -1.0"),
        ({"norm": 3}, "norm is 3"),
        ({"label": [0, 1]}, "expected (1,)"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"tolerance": 2.0}, "tolerance is 2.0"),
        ({"label": ["a"], "delta": 1.0}, "labels such as 'a' are no numbers"),
    ],
)
def test_bad_arguments(more, message):
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])
    with pytest.raises(InvalidInputError) as error:
        rn.certify(net, [[1.0]], **more)
    assert message in str(error.value)


def test_the_command_line(tmp_path):
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])
    model, data = tmp_path / "m.npz", tmp_path / "d.csv"
    rn.save(net, model)
    data.write_text("a,kind\n3.0,yes\n0.25,no\n")
    arguments = ["certify", str(model), "--data", str(data), "--target", "kind", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--eps", "0.5"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["counts"]["robust"] == 2
    assert document["classes"] == ["no", "yes"]
    assert document["curve"] == [[0.0, 1.0, 1.0], [0.5, 1.0, 1.0]]  # of what was asked alone
    assert CliRunner().invoke(app, [*arguments, "--eps", "1"]).exit_code == 1
    done = CliRunner().invoke(app, arguments[:-1])
    assert done.exit_code == 0
    assert "safe up to" in done.stdout
    assert "accuracy against radius" in done.stdout
    assert "at some radii" not in done.stdout
    rn.save(net.replace(head=Head(classes=("no", "yes"))), model)
    data.write_text("a\n3.0\n0.25\n")
    done = CliRunner().invoke(app, [*arguments[:4], "--eps", "0.5"])  # agreement with itself
    assert "yes" in done.stdout
    assert "accuracy" not in done.stdout
    assert "the model's own answer" in " ".join(done.stdout.split())
    assert rn.certify(model, [[3.0]], 0.5).classes == ("no", "yes")
    data.write_text("a,kind\n3.0,yes\nnan,no\n")
    done = CliRunner().invoke(app, [*arguments, "--eps", "0.5"])
    assert done.exit_code == 2
    assert "row 1: input 0 is nan" in done.stderr
    assert json.loads(done.stdout)["rows"][0]["verdict"] == "robust"


def test_the_table_of_rows_says_what_it_shows(tmp_path):
    """All of the rows or some, and weakest only where one is weaker than another."""
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])
    model, data = tmp_path / "m.npz", tmp_path / "d.csv"
    rn.save(net.replace(head=Head(classes=("no", "yes"))), model)
    arguments = ["certify", str(model), "--data", str(data), "--target", "kind", "--quiet"]

    def title(rows, *options):
        data.write_text("a,kind\n" + "".join(f"{x},yes\n" for x in rows))
        shown = CliRunner().invoke(app, [*arguments, *options]).stdout
        return " ".join(shown.split("┏")[0].split())

    far, near = [2 + k / 8 for k in range(25)], [1.1, 2.0]
    assert title(far[:3], "--eps", "0.5") == "rows, all robust"
    assert title(far, "--eps", "0.5") == "the first 20 of 25 rows, all robust"
    assert title([*far, "nan"], "--eps", "0.5") == "the first 20 of 25 valid rows, all robust"
    assert title(near, "--eps", "0.5") == "rows, the weakest first"
    assert title([*near, *far], "--eps", "0.5") == "the 20 weakest of 27 rows"
    assert title(near) == "rows, the smallest radii first"
    assert title(far) == "the 20 smallest radii of 25 rows"


def test_without_a_radius_the_page_speaks_of_radii(tmp_path):
    """The class of |x| - 1 changes at 1 and -1 alone, so the largest safe radius is ||x| - 1|."""
    net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0, 0], [-1.0]])
    model, data = tmp_path / "m.npz", tmp_path / "d.csv"
    rn.save(net.replace(head=Head(classes=("no", "yes"))), model)
    arguments = ["certify", str(model), "--data", str(data), "--target", "kind", "--quiet"]
    data.write_text("a,kind\n3,yes\n1.5,yes\n0.25,no\n1.25,no\n")
    shown = CliRunner().invoke(app, arguments).stdout
    assert shown.count("attacked") == 1  # the head of a column
    assert "closed" in shown
    assert "wrong answer" in shown
    line = next(line for line in shown.splitlines() if line.startswith("4 rows: "))
    assert line.startswith("4 rows: half of them safe up to ")
    assert ", 1 wrong; " in line
    assert float(line.split("up to ")[1].split(",")[0]) == pytest.approx(0.75, rel=0.01)
    assert "at some radii" not in shown
    data.write_text("a,kind\n" + "".join(f"{2 + k / 8},yes\n" for k in range(30)))
    shown = " ".join(CliRunner().invoke(app, arguments).stdout.split())
    assert "accuracy against radius (at some radii; those of every row with --json)" in shown
    data.write_text("a,kind\n1.5,no\n2,no\n3,yes\n")
    shown = CliRunner().invoke(app, arguments).stdout
    assert "3 rows: 1 with a safe radius, 2 wrong; " in shown


def test_digits_and_tumours():
    """Verdicts of trained classifiers hold up against attacks by sampling and by gradients."""
    sklearn_datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import MinMaxScaler

    for load, eps in (("load_digits", 0.05), ("load_breast_cancer", 0.03)):
        x, y = getattr(sklearn_datasets, load)(return_X_y=True)
        x = MinMaxScaler().fit_transform(x)
        model = MLPClassifier((12, 12), max_iter=400, tol=1e-2, random_state=0).fit(x, y)
        net = rn.load(model)
        found = rn.certify(model, x[:25], eps, label=y[:25], valid=(0.0, 1.0))
        assert found.counts["unknown"] == 0
        rng = np.random.default_rng(0)
        for row in found.rows:
            near = np.clip(x[row.row] + rng.uniform(-eps, eps, (300, x.shape[1])), 0, 1)
            corners = np.clip(x[row.row] + eps * rng.choice([-1, 1], (300, x.shape[1])), 0, 1)
            answers = model.predict(np.concatenate([near, corners]))
            if row.verdict == "robust":
                assert (answers == y[row.row]).all()
            elif row.correct:
                assert np.abs(row.adversarial - x[row.row]).max() <= eps * (1 + 1e-12)
                outputs = net(row.adversarial)
                right = (
                    outputs[y[row.row]] if len(outputs) > 1 else outputs[0] * (2 * y[row.row] - 1)
                )
                assert right <= (np.delete(outputs, y[row.row]).max() if len(outputs) > 1 else 0)


def test_labels_under_other_names_are_told_the_classes_that_read_them(tmp_path, capsys):
    net = Network.from_weights([[[1.0], [-1.0]]], [[0.0, 0.0]])
    rn.save(net.replace(head=rn.Head((), ("oak", "ash"))), tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,kind\n3,2\n-3,1\n-4,1\n")
    ask = ["certify", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.csv"), "--json"]
    ask += ["--target", "kind", "--eps", "0.5"]
    with pytest.raises(SystemExit) as stop:
        main(ask)
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert "the target holds 1, 2, but the model's classes are oak, ash; if 2 is oak" in told
    words = told.split()
    with pytest.raises(SystemExit) as stop:
        main([*ask, *words[words.index("--classes") :]])
    assert stop.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in document["rows"]] == [0, 1, 1]
    assert (document["classes"], document["classes_from"]) == (["2", "1"], "given")
    with pytest.raises(SystemExit) as stop:  # what the user says holds, also where it is wrong
        main([*ask, "--classes", "1,2"])
    assert stop.value.code == 1
    assert json.loads(capsys.readouterr().out)["counts"]["attacked"] == 3


def test_a_regression_has_as_many_targets_as_outputs(tmp_path, capsys):
    rn.save(Network.from_weights([[[1.0], [-1.0]]], [[0.0, 0.0]]), tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("id,u,x,v\nk,3.5,3,-3\nl,-3,-3,5\n")
    ask = ["certify", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.csv"), "--json"]
    ask += ["--target", "u", "--target", "v", "--drop", "id", "--eps", "0.25"]
    with pytest.raises(SystemExit) as stop:
        main([*ask, "--delta", "1"])
    assert stop.value.code == 1
    verdicts = [row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert verdicts == ["robust", "attacked"]
    with pytest.raises(SystemExit) as stop:
        main(ask)
    assert stop.value.code == 2
    assert "2 columns of numbers, no classes" in capsys.readouterr().err


def test_a_table_of_invalid_rows_has_no_accuracy(tmp_path, capsys):
    net = Network.from_weights([[[1.0], [-1.0]]], [[0.0, 0.0]])
    rn.save(net.replace(head=rn.Head((), ("oak", "ash"))), tmp_path / "net.npz")
    (tmp_path / "rows.csv").write_text("x,kind\n3,elm\n3,elm\n3,oak\n")
    ask = ["certify", str(tmp_path / "net.npz"), "--data", str(tmp_path / "rows.csv")]
    with pytest.raises(SystemExit) as stop:
        main([*ask, "--target", "kind", "--eps", "0.5", "--rows", "2"])
    told = capsys.readouterr()
    assert stop.value.code == 2
    assert told.err.count("label 'elm'") == 2
    assert "2 rows: 2 invalid" in told.out
    assert "%" not in told.out
