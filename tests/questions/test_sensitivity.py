"""Ranges of partial derivatives: against cells, monotone and unused inputs, limits."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from brute_force import pieces
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network
from relunorm.cli import app
from relunorm.errors import InvalidDomainError, InvalidInputError


def random_net(seed: int, *widths: int) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    biases = [rng.normal(size=b) for b in widths[1:]]
    return Network.from_weights(weights, biases)


def agree(net: Network, box: Box, low, high) -> None:
    """Exact, no bound inside of what the oracle attains, and attained where it says."""
    found = rn.sensitivity(net, box, time_limit=None)
    assert found.exact.all()
    assert found.complete
    size = np.abs([low, high]).max()
    assert np.allclose(found.lower, low, atol=1e-6 * size)
    assert np.allclose(found.upper, high, atol=1e-6 * size)
    slack = 1e-11 * size  # of the oracle's own sums
    assert (found.lower <= low + slack).all()
    assert (found.upper >= high - slack).all()
    for i, j in np.ndindex(*low.shape):
        for value, at in ((found.least, found.at_least), (found.most, found.at_most)):
            x = found.points[at[i, j]]
            assert box.contains(x)[0]
            assert net.jacobian(x)[i, j] == pytest.approx(value[i, j], abs=1e-9 * size)


@pytest.mark.parametrize("seed", range(8))
def test_ranges_agree_with_every_cell(seed):
    net = random_net(seed, 2, 4, 3, 2)
    lo, hi = np.array([-1.0, -0.5]), np.array([1.0, 1.5])
    jacobians = np.array([piece[0] for piece in pieces(net, lo, hi)])
    agree(net, Box(lo, hi), jacobians.min(axis=0), jacobians.max(axis=0))


@pytest.mark.parametrize("part", range(8))
def test_ranges_agree_with_the_list_of_regions(part):
    for seed in range(25 * part, 25 * part + 25):  # 200 networks
        # an interval, polygons, and cells with corners
        widths = ((1, 6, 5, 1), (2, 6, 5, 1), (3, 5, 4, 2))[seed % 3]
        net, box = random_net(100 + seed, *widths), Box.cube(widths[0], -1, 2)
        listed = rn.regions(net, box)
        assert listed.complete
        assert not listed.hidden
        slopes = listed.affine()[0]
        agree(net, box, slopes.min(axis=0), slopes.max(axis=0))


def test_leaky_units_and_skips():
    rng = np.random.default_rng(5)
    first = Layer(
        Affine({0: rng.normal(size=(5, 2))}, rng.normal(size=5)), Activation("leaky", 0.1)
    )
    second = Layer(
        Affine({0: rng.normal(size=(4, 2)), 1: rng.normal(size=(4, 5))}, rng.normal(size=4))
    )
    output = Affine({0: rng.normal(size=(1, 2)), 2: rng.normal(size=(1, 4))}, np.zeros(1))
    net = Network([first, second], output, input_shape=2)
    box = Box.cube(2, -2, 2)
    slopes = rn.regions(net, box).affine()[0]
    agree(net, box, slopes.min(axis=0), slopes.max(axis=0))


def test_monotone_unused_and_fixed_inputs():
    weights = [[[1.0, -1.0, 0.0, 1.0], [2.0, -0.5, 0.0, -1.0]], [[1.0, 3.0]]]
    net = Network.from_weights(weights, [[0.1, -0.2], [0.0]])
    found = rn.sensitivity(net, Box([-1, -1, -1, 0.5], [1, 1, 1, 0.5]))
    assert found.direction.tolist() == [["increasing", "decreasing", "unused", "fixed"]]
    assert (found.lower[0, 0], found.upper[0, 2], found.lower[0, 2]) == (0.0, 0.0, 0.0)
    assert found.most[0, 0] == pytest.approx(7.0)
    top = found.steepest(1)[0]
    assert (top["input"], top["name"]) == (0, "x0")
    assert net.jacobian(np.array(top["point"]))[0, 0] == pytest.approx(7.0)
    document = found.to_dict()
    json.dumps(document, allow_nan=False)
    assert document["least"][0][3] is None


def test_without_time_the_intervals_hold_and_are_not_called_exact():
    net, box = random_net(0, 6, 20, 20, 2), Box.cube(6)
    found = rn.sensitivity(net, box, time_limit=0.0)
    slopes = net.jacobian(box.sample(500, 1))
    assert (found.lower <= slopes.min(axis=0)).all()
    assert (found.upper >= slopes.max(axis=0)).all()
    assert not found.exact.all()
    assert not found.complete


def test_a_ball_is_enclosed():
    net = random_net(1, 2, 5, 1)
    ball = Ball([0.2, 0.1], 0.7)
    found = rn.sensitivity(net, ball)
    slopes = net.jacobian(ball.sample(2000, 0))
    assert (found.lower <= slopes.min(axis=0)).all()
    assert (found.upper >= slopes.max(axis=0)).all()


def test_kinks_too_close_for_floats_leave_the_slope_between_them():
    size = 1e3
    net = Network.from_weights(
        [[[1.0], [0.1]], [[size, -10 * size]]], [[-0.3, -0.03], [0.0]]
    )  # steep on a stretch that no float lies in
    assert Fraction(0.03) / Fraction(0.1) < Fraction(0.3)  # so that the second unit acts alone
    found = rn.sensitivity(net, Box([0.0], [1.0]))
    assert found.lower[0, 0] <= -size * (1 - 1e-9)
    assert found.upper[0, 0] >= 0.0
    assert not found.exact.any()


def test_a_slope_that_rounding_cancels_is_not_called_unused():
    """5e11 (z - w / 0.94...) of two linear stages: folded the slope is 0, exactly it is 2.2e-6."""
    stages = [[[-1.0, 0.5]], [[-0.9415188823965386, 0.4707594411982693]]]
    weights = [500000000000.0, -531056794875.2147]
    network = Network(
        [Layer(Affine({0: rows}, [0.0]), Activation("identity")) for rows in stages],
        Affine({1: [[weights[0]]], 2: [[weights[1]]]}, [0.0]),
        input_shape=2,
    )
    found = rn.sensitivity(network, Box([-1.0, -0.9], [1.6, 1.7]))
    for j in range(2):
        slope = sum(
            Fraction(w) * Fraction(rows[0][j]) for w, rows in zip(weights, stages, strict=True)
        )
        assert slope != 0
        assert Fraction(found.lower[0, j]) <= slope <= Fraction(found.upper[0, j])
    assert "unused" not in found.direction


def test_slopes_between_kinks_that_rounding_cannot_tell_apart():
    """h = relu(1 - x), then relu(h - 0.3) - 10 relu(0.1 h - 0.03): 1 or -1 on a length of 1e-17."""
    network = Network(
        [Layer(Affine({0: [[-1.0]]}, [1.0])), Layer(Affine({1: [[1.0], [0.1]]}, [-0.3, -0.03]))],
        Affine({2: [[1.0, -10.0]]}, [0.0]),
        input_shape=1,
    )
    found = rn.sensitivity(network, Box([0.0], [1e4]))
    slope = -1.0 if Fraction(0.03) / Fraction(0.1) > Fraction(0.3) else 1.0
    assert found.lower[0, 0] <= slope <= found.upper[0, 0]


@pytest.mark.parametrize("size", [1e-60, 1e-42, 1.0, 1e17, 1e30])
def test_slopes_beyond_single_precision(size):
    """The tape of the search has single precision; slopes are of any size.

    With h = relu(2^-123 - a x), the last unit is on for h < 2^-210: a sliver, in which f is steep.
    """
    a, c, b = 2.0**46, 2.0**64, size * 2.0**15
    weights = [[[-a]], [[2.0**-140], [-c]], [[-(2.0**-124), -b]]]
    net = Network.from_weights(weights, [[2.0**-123], [-(2.0**-160), 2.0**-146], [0.0]])
    found = rn.sensitivity(net, Box([-26.0], [21.0]), time_limit=20)
    steepest = -Fraction(a) * Fraction(c) * Fraction(b)
    assert Fraction(float(found.lower[0, 0])) <= steepest
    assert found.certificate is not None
    assert found.certificate.verify(net).holds


def test_bad_arguments():
    net = random_net(0, 2, 3, 1)
    with pytest.raises(InvalidDomainError, match="nowhere"):
        rn.sensitivity(net, "nowhere")
    with pytest.raises(InvalidDomainError):
        rn.sensitivity(net, Box([0.0, 0.0], [0.0, 0.0]))
    with pytest.raises(InvalidInputError):
        rn.sensitivity(net, Box.cube(2), names=("a",))


def test_the_command_line_names_inputs_and_draws(tmp_path):
    net = random_net(3, 2, 4, 1)
    model, data, figure = tmp_path / "m.npz", tmp_path / "d.csv", tmp_path / "map.png"
    rn.save(net, model)
    data.write_text("age,height,y\n-1,-1,0\n1,1,0\n")
    arguments = ["sensitivity", str(model), "--domain", f"data:{data}?target=y"]
    done = CliRunner().invoke(app, [*arguments, "--json", "-o", str(figure)])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["names"] == ["age", "height"]
    assert document["exact"] == [[True, True]]
    assert figure.read_bytes()[:4] == b"\x89PNG"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "height" in done.stdout


def test_slopes_beyond_the_range_of_floats_are_neither_unused_nor_one_sided() -> None:
    weights = [np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1.0, -2.0]])]
    for size in (1e-200, 1e200):
        net = Network.from_weights([size * w for w in weights])
        found = rn.sensitivity(net, Box.cube(2), time_limit=5.0)
        assert found.direction.tolist() == [["", "decreasing"]]
        json.dumps(found.to_dict(), allow_nan=False)


def test_an_interrupt_keeps_the_bounds(monkeypatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    rng = np.random.default_rng(3)
    net = Network.from_weights([rng.normal(size=(12, 3)), rng.normal(size=(2, 12))])
    monkeypatch.setattr("relunorm.questions.sensitivity._Search.close", pressed)
    found = rn.sensitivity(net, Box.cube(3))
    assert not found.complete
    assert found.certificate is None
    slopes = net.jacobian(rng.uniform(-1, 1, (2000, 3)))
    assert (found.lower <= slopes.min(axis=0)).all()
    assert (slopes.max(axis=0) <= found.upper).all()


def test_a_seed_that_is_none_is_one_sentence() -> None:
    net = Network.from_weights([np.eye(2), np.ones((1, 2))])
    with pytest.raises(InvalidInputError, match="random_state"):
        rn.sensitivity(net, Box.cube(2), random_state=-1)


def test_long_names_stay_apart_on_a_narrow_terminal(tmp_path):
    names = ["InternetService=DSL", "InternetService=No", "InternetService=Fibre optic"]
    rn.save(Network.from_weights([[[1 / 3, -2 / 3, 1e-9]]]), tmp_path / "net.npz")
    (tmp_path / "t.csv").write_text(",".join(names) + "\n0,0,0\n1,1,1\n")
    ask = ["sensitivity", str(tmp_path / "net.npz"), "--domain", f"data:{tmp_path / 't.csv'}"]
    shown = CliRunner().invoke(app, ask, env={"COLUMNS": "60"}).stdout
    cells = [line.split("\u2502")[2].strip() for line in shown.splitlines() if "\u2502" in line]
    assert "".join(cells) == "".join(names).replace(" ", "")


@pytest.mark.parametrize("sizes", [(1e-200, 1e-200), (5e-324, 2e-6), (1e-170, -1e-160)])
def test_slopes_too_small_for_floats_are_not_unused(sizes):
    """relu(1 - w x0) times v falls by w v, which is no float but is not 0; x1 has no weight."""
    w, v = sizes
    net = Network.from_weights([[[-w, 0.0]], [[v]]], [[1.0], [0.0]])
    found = rn.sensitivity(net, Box([0.0, 0.0], [1.0, 1.0]))
    slope = -Fraction(w) * Fraction(v)
    assert slope != 0
    assert Fraction(float(found.lower[0, 0])) <= slope <= Fraction(float(found.upper[0, 0]))
    assert found.direction[0].tolist()[1] == "unused"
    assert found.direction[0, 0] != "unused"


def test_what_folding_a_stage_rounds_may_turn_a_unit_on():
    """z = 2^25 2e8 (x - 1) + 0.0003 x is on near x = 1 alone, for less than floats tell apart."""
    net = Network(
        [
            Layer(Affine({0: [[2.0**25]]}, [-(2.0**25)]), Activation("identity")),
            Layer(Affine({0: [[0.0003]], 1: [[2e8]]}, [0.0])),
        ],
        Affine({2: [[1.0]]}, [0.0]),
        input_shape=1,
    )
    slope = Fraction(0.0003) + 2**25 * Fraction(2e8)
    assert Fraction(0.0003) > 0  # z at x = 1
    found = rn.sensitivity(net, Box([-1.0], [1.0]))
    assert Fraction(float(found.upper[0, 0])) >= slope
    assert Fraction(rn.lipschitz(net, Box([-1.0], [1.0])).upper) >= slope
    fixed = Network.from_weights([[[1e16, -1e16, 3e-4]], [[1.0]]])  # x1 = 1 and x2 = 1 are folded
    found = rn.sensitivity(fixed, Box([-1.0, 1.0, 1.0], [1.0, 1.0, 1.0]))
    assert found.upper[0, 0] >= 1e16


@pytest.mark.parametrize("seed", range(168, 176))
def test_proofs_replay_where_rounding_differs_from_node_to_node(seed: int) -> None:
    """Rows of 1e-6, 1 and 1e6 side by side: a child's bound may come out above its parent's."""
    rng = np.random.default_rng(seed)
    d, a, b, outputs = rng.integers(2, 5, 4)

    def weights(rows: int, columns: int):
        return rng.standard_normal((rows, columns)) * 10.0 ** rng.choice([-6, 0, 6], (rows, 1))

    act = Activation("leaky", -1.0) if rng.random() < 0.5 else Activation("relu")
    bias = rng.standard_normal
    first = Affine({0: weights(a, d)}, bias(a) * 10.0 ** rng.choice([-6, 0], size=a))
    second = Affine({1: weights(b, a), 0: weights(b, d)}, bias(b))
    last = Affine({2: weights(outputs, b)}, bias(outputs))
    net = Network([Layer(first, act), Layer(second, act)], last, input_shape=int(d))
    found = rn.sensitivity(net, Box.cube(net.input_size), time_limit=None)
    assert found.certificate is not None
    assert found.certificate.verify(net).holds
