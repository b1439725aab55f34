"""Maxima against brute force; every engine agrees; intervals hold; properties are decided."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from brute_force import maximum
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope
from relunorm.cli import app
from relunorm.clock import Progress
from relunorm.errors import InvalidDomainError, InvalidInputError
from relunorm.network.columns import Column
from relunorm.search import engine, pieces
from relunorm.search import explore as kernel

#: Boxes of ACAS Xu properties 3 and 4; in the second one side has length zero.
PROPERTY = {
    3: (
        (-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3),
        (-0.298552812, 0.009549297, 0.5, 0.5, 0.5),
    ),
    4: (
        (-0.303531156, -0.009549297, 0, 0.318181818, 0.083333333),
        (-0.298552812, 0.009549297, 0, 0.5, 0.166666667),
    ),
}


def small(seed: int, d: int, slope: float = 0.0, grid: bool = False, width: int = 3) -> Network:
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        drawn = rng.normal(size=shape)
        return np.round(drawn) if grid else drawn

    kind = Activation("leaky", slope) if slope else Activation("relu")
    first = Layer(Affine({0: numbers(width, d)}, numbers(width)), kind)
    second = Layer(Affine({1: numbers(width, width), 0: numbers(width, d)}, numbers(width)), kind)
    output = Affine({2: numbers(2, width), 1: numbers(2, width)}, numbers(2))
    return Network([first, second], output, input_shape=d)


def cuts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Cut coordinates down to four open units, only units, or either by their number."""
    threshold = {"coordinates": 4, "units": 1 << 30, "both": 6}[name]
    monkeypatch.setattr("relunorm.search.engine.threshold", lambda inputs: threshold)


@pytest.mark.parametrize("name", ["coordinates", "units", "both"])
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.7, -0.5])
@pytest.mark.parametrize("grid", [False, True])
def test_every_kind_of_cut_equals_brute_force(monkeypatch, name, slope, grid):
    cuts(monkeypatch, name)
    for seed in range(3):
        network = small(seed, 3, slope, grid)
        box = Box([-1.0, -1.0, 0.0], [1.0, 0.5, 2.0])
        direction = np.array([1.0, -0.5])
        expected = maximum(network, direction, box.lo, box.hi)
        found = rn.maximize(network, box, direction, time_limit=20)
        assert found.exact, found
        assert found.lower == pytest.approx(expected, abs=2e-7)  # the oracle's LP tolerance
        assert found.lower == pytest.approx(float(direction @ network(found.point)), abs=1e-12)
        assert box.contains(found.point, 0.0)[0]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_maximum_equals_brute_force(seed, d):
    network = small(seed, d)
    expected = maximum(network, np.array([0.0, 1.0]), -np.ones(d), np.ones(d))
    found = rn.maximize(network, Box.cube(d), 1)
    assert found.exact
    assert found.lower == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("name", ["coordinates", "units"])
def test_a_time_limit_leaves_a_sound_interval(monkeypatch, name):
    cuts(monkeypatch, name)
    network = small(3, 12, width=30)
    found = rn.maximize(network, Box.cube(12), 0, time_limit=0.3)
    assert not found.exact
    assert not found.complete
    assert network(Box.cube(12).sample(5000, 0))[:, 0].max() <= found.upper
    assert found.lower <= found.upper < np.inf


def test_polytope_and_ball():
    network = small(1, 2)
    square = Polytope([[1, 0], [-1, 0], [0, 1], [0, -1]], [1.0] * 4)
    box = rn.maximize(network, Box.cube(2), 0)
    assert rn.maximize(network, square, 0).lower == pytest.approx(box.lower, abs=1e-8)
    triangle = Polytope([[-1, 0], [0, -1], [1, 1]], [1.0, 1.0, 0.0])
    inside = rn.maximize(network, triangle, 0)
    assert inside.exact
    assert network(triangle.sample(4000, 0))[:, 0].max() <= inside.upper
    assert triangle.contains(inside.point, 1e-9)[0]
    ball = Ball([0.0, 0.0], 1.0)
    circle = rn.maximize(network, ball, 0, time_limit=1)
    assert ball.contains(circle.point, 1e-12)[0]
    assert network(ball.sample(4000, 0))[:, 0].max() <= circle.upper <= box.upper + 1e-9


@pytest.mark.parametrize("reach", [1e-200, 1e-3, 1.0, 1e10, 1e90])
def test_the_maximum_on_a_ball_is_exact_at_any_radius(reach):
    """relu(x) + relu(y) + relu(x + y - h): on the diagonal of the sphere, sqrt(2) or sqrt(8) r."""
    net = Network.from_weights([[[1.0, 0], [0, 1], [1, 1]], [[1.0, 1, 1]]], [[0, 0, -0.5], [0]])
    ball = Ball([0.0, 0.0], reach)
    found = rn.maximize(net, ball, 0, time_limit=20)
    ends = np.sqrt(2) * reach
    assert found.exact
    assert found.complete
    assert found.lower == pytest.approx(ends + max(ends - 0.5, 0.0), rel=1e-9)
    assert ball.contains(found.point, 1e-12 * reach)[0]
    assert rn.decide(net, ball, [[-1.0]], [-(4 * reach + 1)], time_limit=20).verdict == "proved"


@pytest.mark.parametrize("seed", range(4))
def test_maxima_on_balls_against_samples(seed):
    """Two inputs: the whole circle and its inside, densely."""
    network = small(seed, 2)
    ball = Ball([0.3, -0.2], 0.8)
    found = rn.maximize(network, ball, 0, time_limit=20)
    angle = np.linspace(0, 2 * np.pi, 20001)
    circle = ball.middle + 0.8 * np.column_stack([np.cos(angle), np.sin(angle)])
    seen = max(network(circle)[:, 0].max(), network(ball.sample(4000, 0))[:, 0].max())
    assert found.exact
    assert ball.contains(found.point, 1e-12)[0]
    assert seen - 1e-9 <= found.upper <= seen + 2e-3


def test_difference_of_two_networks():
    # Two copies with permuted units, side by side in one network: the difference is 0.
    net = small(5, 3, width=5)
    order = np.random.default_rng(0).permutation(5)
    a, b = net.layers
    layers = [
        a,
        Layer(Affine({0: a.affine.terms[0][order]}, a.affine.bias[order])),
        Layer(Affine(b.affine.terms, b.affine.bias)),
        Layer(Affine({0: b.affine.terms[0], 2: b.affine.terms[1][:, order]}, b.affine.bias)),
    ]
    terms = {
        1: net.output.terms[1],
        2: -net.output.terms[1][:, order],
        3: net.output.terms[2],
        4: -net.output.terms[2],
    }
    difference = Network(layers, Affine(terms, np.zeros(2)), input_shape=3)
    found = rn.maximize(difference, Box.cube(3), 0, time_limit=20)
    assert abs(found.lower) < 1e-12
    assert found.upper < 1e-8


def test_maximize_on_a_point_and_without_units():
    network = small(0, 2)
    point = rn.maximize(network, Box([0.5, 0.5], [0.5, 0.5]), 0)
    assert point.exact
    assert point.lower == pytest.approx(network([0.5, 0.5])[0])
    affine = Network([], Affine({0: np.array([[1.0, -2.0]])}, np.ones(1)), input_shape=2)
    assert rn.maximize(affine, Box.cube(2), 0).lower == 4.0


def test_decide_agrees_with_the_maximum():
    network = small(2, 3)
    top = rn.maximize(network, Box.cube(3), 0).lower
    beyond = rn.decide(network, Box.cube(3), [[-1.0, 0.0]], [-(top + 1e-6)])
    assert beyond.verdict == "proved"
    assert beyond
    within = rn.decide(network, Box.cube(3), [[-1.0, 0.0]], [-(top - 1e-6)])
    assert within.verdict == "counterexample"
    assert network(within.point)[0] >= top - 1e-6


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_decide_against_sampling(seed, rows):
    network = small(seed, 2)
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(rows, 2)), rng.normal(size=rows)
    decision = rn.decide(network, Box.cube(2), A, b)
    assert decision.verdict != "unknown"
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 60)] * 2), -1).reshape(-1, 2)
    satisfied = (network(grid) @ A.T <= b).all(axis=1).any()
    if decision.verdict == "counterexample":
        assert (A @ network(decision.point) <= b).all()
    else:
        assert not satisfied


@pytest.mark.long
@pytest.mark.parametrize("number", PROPERTY)
@pytest.mark.parametrize(("name", "holds"), [("3_3", True), ("1_1", True), ("1_9", False)])
def test_acas_xu_properties(cases, name, holds, number):
    path = cases / "real" / f"ACASXU_run2a_{name}_batch_2000.onnx"
    network = rn.load(path)
    box = Box(*PROPERTY[number])
    decision = rn.never_smallest(network, box, 0)
    assert decision.verdict == ("proved" if holds else "counterexample")
    if holds:
        outputs = network(box.sample(20_000, 0))
        assert (outputs[:, 0] > outputs.min(axis=1)).all()
        return
    assert box.contains(decision.point)[0]
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    shape = [n if isinstance(n, int) else 1 for n in entry.shape]
    value = decision.point.astype(np.float32).reshape(shape)
    outputs = session.run(None, {entry.name: value})[0].ravel()
    assert outputs[0] == outputs.min()


def test_interrupt_keeps_the_interval(monkeypatch):
    cuts(monkeypatch, "units")

    def stop(progress: Progress) -> None:
        if progress.message == "searching":
            raise KeyboardInterrupt

    found = rn.maximize(small(3, 12, width=30), Box.cube(12), 0, progress=stop)
    assert not found.complete
    assert found.lower <= found.upper < np.inf


def test_one_output_needs_no_direction_and_several_do(tmp_path):
    rng = np.random.default_rng(11)
    box, files = Box.cube(2), {}
    for outputs in (1, 3):
        net = Network.from_weights([rng.normal(size=(5, 2)), rng.normal(size=(outputs, 5))])
        rn.save(net, tmp_path / f"{outputs}.npz")
        files[outputs] = net, str(tmp_path / f"{outputs}.npz")
    net, path = files[1]
    expected = maximum(net, np.ones(1), box.lo, box.hi)
    assert rn.maximize(net, box).lower == pytest.approx(expected, abs=1e-9)
    asked = ["maximize", path, "--domain", "box:-1,1", "--json"]
    shown = json.loads(CliRunner().invoke(app, asked).stdout)
    assert shown["direction"] == "output 0"
    assert shown["lower"] == pytest.approx(expected, abs=1e-9)
    net, path = files[3]
    with pytest.raises(InvalidInputError, match=r"3 outputs, so a direction is needed.*0 to 2"):
        rn.maximize(net, box)
    told = CliRunner().invoke(app, ["maximize", path, "--domain", "box:-1,1"])
    assert "3 outputs, so a direction is needed" in str(told.exception)


def test_bad_arguments():
    network = small(0, 2)
    with pytest.raises(InvalidInputError, match="direction has 3 entries"):
        rn.maximize(network, Box.cube(2), [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="output 7 does not exist"):
        rn.maximize(network, Box.cube(2), 7)
    with pytest.raises(InvalidDomainError, match="expected a Box"):
        rn.maximize(network, None, 0)
    with pytest.raises(InvalidDomainError, match="coordinates"):
        rn.maximize(network, Box.cube(3), 0)
    with pytest.raises(InvalidInputError, match="time_limit"):
        rn.maximize(network, Box.cube(2), 0, time_limit=-1)
    with pytest.raises(InvalidInputError, match="A has shape"):
        rn.decide(network, Box.cube(2), [[1.0]], [0.0])
    with pytest.raises(InvalidInputError, match="NaN"):
        rn.decide(network, Box.cube(2), [[np.nan, 1.0]], [0.0])
    with pytest.raises(InvalidInputError, match="expected 0 to 1"):
        rn.never_smallest(network, Box.cube(2), 2)
    step = Network.from_weights([[[1.0]], [[1.0]]], activation="step")
    with pytest.raises(InvalidInputError, match="step"):
        rn.maximize(step, Box.cube(1), 0)


def test_compiling_really_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small search must reach the kernel, or the first call's time limit pays for it."""
    reached = []
    inner = kernel.explore
    monkeypatch.setattr(kernel, "explore", lambda *a: reached.append(1) or inner(*a))
    walked, programme = [], pieces.maximize
    monkeypatch.setattr(pieces, "maximize", lambda *a: walked.append(1) or programme(*a))
    engine.warm_up()
    assert len(reached) >= 2  # with a tape and without
    assert walked


def test_messages_say_what_is_wrong():
    network = small(0, 2)
    with pytest.raises(InvalidInputError, match="NaN"):
        rn.maximize(network, Box.cube(2), [np.nan] * network.output_size)
    with pytest.raises(InvalidInputError, match="one per output"):
        rn.maximize(network, Box.cube(2), [1.0] * (network.output_size + 1))
    with pytest.raises(InvalidInputError, match="not a list of numbers"):
        rn.maximize(network, Box.cube(2), "up")
    for call in (rn.maximize, rn.lipschitz):
        arguments = (network, Box.cube(2), 0) if call is rn.maximize else (network,)
        with pytest.raises(InvalidInputError, match="time_limit is 'x'"):
            call(*arguments, time_limit="x")
    single = Network.from_weights([[[1.0, 0.0]], [[1.0]]])
    with pytest.raises(InvalidInputError, match="one output"):
        rn.never_smallest(single, Box.cube(2), 0)
    double = Network.from_weights([[[1.0, 0.0]], [[1.0], [2.0]]])
    with pytest.raises(InvalidInputError, match="expected 0 to 1"):
        rn.never_smallest(double, Box.cube(2), 2)


def cancelling(scale: float) -> Network:
    """scale (relu(0.1 h + 0.2 h + 5) - relu(0.3 h + 5)) with h = relu(x), and a unit that bends."""
    layers = [
        Layer(Affine({0: np.ones((3, 1))}, np.zeros(3))),
        Layer(Affine({1: np.array([[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]])}, np.full(2, 5.0))),
        Layer(Affine({0: np.ones((1, 1))}, np.array([-1.5]))),
    ]
    output = Affine({2: np.array([[scale, -scale]]), 3: np.zeros((1, 1))}, np.zeros(1))
    return Network(layers, output, input_shape=1)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e12, 1e20])
def test_the_interval_holds_under_cancellation(scale):
    slope = Fraction(scale) * (Fraction(0.1) + Fraction(0.2) - Fraction(0.3))  # f(x) = slope x
    network, box = cancelling(scale), Box([1.0], [2.0])
    for sign, top in ((1.0, 2 * slope), (-1.0, -slope)):
        found = rn.maximize(network, box, [sign])
        assert Fraction(found.lower) <= top <= Fraction(found.upper)
        assert found.exact == (found.upper - found.lower <= 1e-9)
        assert found.complete
    assert not rn.maximize(network, box, [1.0]).exact or scale == 1.0


def test_polytope_without_a_point_in_float64_gets_no_lower_end():
    row = [0.14824624712321374, -2.212587379987393, 0.34857322557458054]
    A = [*np.eye(3), *-np.eye(3), row, [-w for w in row]]
    flat = Polytope(A, [*[0.001] * 6, 0.00025, -0.00025])
    network = Network.from_weights([[[1.0, 0.0, 0.0]], [[1.0]]])
    found = rn.maximize(network, flat, [1.0])
    assert found.upper >= 0.0
    if np.isnan(found.point).any():
        assert found.lower == -np.inf
        assert not found.exact
        assert found.to_dict()["point"] == [None] * 3
    else:
        assert flat.holds(found.point)


@pytest.mark.parametrize(
    ("weights", "fill", "told"),
    [([1.0, 1.0], None, True), ([1.0, -1.0], None, False), ([-1.0, -1.0], 0.0, False)],
)
def test_the_command_says_where_words_are_not_those_of_a_row(tmp_path, weights, fill, told):
    columns = [Column("n"), Column("hue", ("blue", "red"), fill)]
    network = Network.from_weights([np.eye(3), [[1.0, *weights]]]).replace(columns=columns)
    rn.save(network, tmp_path / "m.npz")
    arguments = ["maximize", str(tmp_path / "m.npz"), "--domain", "box:0,1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert ("note: of the words of 'hue'" in done.stdout) == told
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert ("'hue'" in found["note"]) == told
