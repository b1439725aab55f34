"""`to_c` on networks of every kind: the proofs against rational and scalar oracles."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scalar_program import exact_network, run_scalar
from strategies import networks

from relunorm import Ball, Box, Network, Polytope, load, regions, to_c
from relunorm.embedded import verify
from relunorm.embedded.arithmetic.integers import RANGES, chosen
from relunorm.embedded.arithmetic.scales import _Builder, build
from relunorm.embedded.arithmetic.terms import Kernel
from relunorm.embedded.c.c_file import TARGETS, Target
from relunorm.embedded.programs import read_tables
from relunorm.errors import InvalidDomainError, InvalidInputError, UnsupportedFormatError
from relunorm.network import Activation, Affine, Layer
from relunorm.network.head import Head, Step

QUICK: dict[str, Any] = {"parts": 4, "samples": 50}


def mlp(*widths: int, seed: int = 0, activation: Any = "relu") -> Network:
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(widths))
    weights = [rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairs]
    biases = [rng.normal(size=n) / 4 for n in widths[1:]]
    return Network.from_weights(weights, biases, activation)


def hard_points(box: Box, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = np.where(rng.random((count, box.dimension)) < 0.5, box.lo, box.hi)
    return np.vstack([box.sample(count, rng), corners])


@settings(max_examples=40)
@given(
    networks(),
    st.integers(0, 1000),
    st.sampled_from([8, 16, 32]),
    st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_no_oracle_ever_leaves_what_was_proved(
    network: Network, seed: int, bits: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=network.input_size) * size
    reach = rng.random(network.input_size) * size
    box = Box(middle - reach, middle + reach)
    made = to_c(network, box, bits=bits, random_state=seed, **QUICK)
    program, document = made.program, made.certificate.document
    bounds = [np.inf if b is None else b for b in document["bounds"]["of_floats"]]
    on_grid = [np.inf if b is None else b for b in document["bounds"]["on_grid"]]
    accumulators = [RANGES[m.accumulator] for m in program.maps]
    scale = Fraction(2) ** program.output_exponent
    for point in hard_points(box, 4, seed):
        integers = program.quantize(point[None])[0].tolist()
        out, held = run_scalar(program, integers)
        assert out == program(np.array(integers)).tolist()
        for (low, high), (least, most) in zip(held, accumulators, strict=True):
            assert least <= low <= high <= most
        grid = [
            Fraction(q) / Fraction(2) ** int(s)
            for q, s in zip(integers, program.input_exponent, strict=True)
        ]
        for inputs, limits in (([Fraction(float(x)) for x in point], bounds), (grid, on_grid)):
            for y, exact, limit in zip(out, exact_network(network, inputs), limits, strict=True):
                assert limit == np.inf or abs(y / scale - exact) <= Fraction(limit)
    assert verify(made.certificate, network, made.source).holds


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_the_bound_is_near_what_search_finds(bits: int) -> None:
    network = mlp(3, 12, 12, 2)
    made = to_c(network, Box.cube(3), bits=bits, samples=1000, parts=32)
    assert made.found <= made.epsilon <= 10 * made.found
    assert made.certificate.epsilon_on_grid <= made.epsilon


def test_more_bits_prove_a_smaller_epsilon_and_cost_more() -> None:
    network, box = mlp(4, 10, 3), Box.cube(4)
    made = [to_c(network, box, bits=b, **QUICK) for b in (8, 16, 32)]
    assert made[0].epsilon > 50 * made[1].epsilon > 2500 * made[2].epsilon
    assert made[0].flash < made[1].flash < made[2].flash


def test_epsilon_chooses_the_smallest_tables_and_mixes_widths() -> None:
    network, box = mlp(6, 24, 4), Box.cube(6)
    fixed = {bits: to_c(network, box, bits=bits, **QUICK) for bits in (8, 16)}
    loose = to_c(network, box, epsilon=fixed[8].epsilon * 1.01, **QUICK)
    assert loose.flash == fixed[8].flash
    kinds = []
    for share in (2, 4, 8, 16):
        made = to_c(network, box, epsilon=fixed[8].epsilon / share, **QUICK)
        assert made.epsilon <= fixed[8].epsilon / share
        assert fixed[8].flash <= made.flash <= fixed[16].flash
        kinds.append({m.weight_type for m in made.program.maps})
    assert {"int8_t", "int16_t"} in kinds


def test_what_does_nothing_is_removed_first() -> None:
    network = mlp(2, 8, 1)
    weights, biases = network.weights()
    dead = [np.append(biases[0], [-50.0] * 5), biases[1]]
    grown = Network.from_weights(
        [np.vstack([weights[0], np.ones((5, 2))]), np.hstack([weights[1], np.ones((1, 5))])], dead
    )
    box = Box.cube(2)
    small, plain = to_c(grown, box, **QUICK), to_c(grown, box, shrink=False, **QUICK)
    assert small.program.maps[0].size <= 8 < plain.program.maps[0].size == 13
    assert small.certificate.document["shrunk"] is not None
    for made in (small, plain):
        assert verify(made.certificate, grown, made.source).holds
        gap = np.abs(made.program.predict(box.sample(500, 0)) - grown(box.sample(500, 0)))
        assert gap.max() <= made.epsilon


def test_inputs_outside_the_domain_are_clamped() -> None:
    made = to_c(mlp(2, 4, 1), Box.cube(2, -1, 1), bits=16, **QUICK)
    far, edge = np.array([[5.0, -7.0]]), np.array([[1.0, -1.0]])
    assert made.program.predict(far) == made.program.predict(edge)


def test_inputs_as_a_sensor_gives_them_cost_nothing_of_the_bound() -> None:
    network = mlp(3, 8, 1)
    box = Box.cube(3, 0, 1023 / 1024)  # a converter of ten bits
    made = to_c(network, box, bits=16, input_shift=10, **QUICK)
    assert made.program.input_low.tolist() == [0] * 3
    assert made.program.input_high.tolist() == [1023] * 3
    assert made.certificate.epsilon_on_grid < made.epsilon / 2
    wanted = {"epsilon": 2e-4, "input_shift": 10}
    asked = to_c(network, box, **wanted, integer_inputs=True, **QUICK)
    assert asked.certificate.epsilon_on_grid <= 2e-4 < asked.epsilon
    with pytest.raises(InvalidInputError, match="rounding the inputs is most of it"):
        to_c(network, box, **wanted, **QUICK)
    coarse = to_c(network, box, epsilon=0.01, input_shift=10, **QUICK)
    assert coarse.epsilon <= 0.01
    points = hard_points(box, 2000, 0)
    assert np.abs(coarse.program.predict(points) - network(points)).max() <= 0.01


@pytest.mark.parametrize(
    "domain",
    [Ball([0.5, 0.0], 1.0), Polytope([[1.0, 1.0], [-1, 0], [0, -1]], [1.0, 0.0, 0.0])],
    ids=["ball", "polytope"],
)
def test_balls_and_polytopes_are_proved_over_their_boxes(domain: Any) -> None:
    network = mlp(2, 6, 2)
    made = to_c(network, domain, bits=16, **QUICK)
    points = domain.sample(300, 0)
    assert np.abs(made.program.predict(points) - network(points)).max() <= made.epsilon
    assert verify(made.certificate, network, made.source, domain).holds
    assert not verify(made.certificate, network, made.source, Box.cube(2, -9, 9)).holds


def test_steps_are_bounded_everywhere_and_more_tightly_away_from_their_thresholds() -> None:
    network = mlp(2, 5, 1, activation=Activation("step", at_zero=0.25))
    box = Box.cube(2)
    made = to_c(network, box, bits=16, shrink=False, **QUICK)
    steps = made.certificate.document["steps"]
    assert steps["bounds"][0] < 1e-3 < made.epsilon
    margins = {entry["unit"]: entry["margin"] for entry in steps["exceptions"]}
    points = box.sample(3000, 0)
    z = network.preactivations(points)[0]
    away = np.all([np.abs(z[:, u]) > m for u, m in margins.items()], axis=0)
    gap = np.abs(made.program.predict(points) - network(points))[:, 0]
    assert 0.2 < made.found <= made.epsilon  # a jump, which no random point meets
    assert away.any()
    assert gap[away].max() <= steps["bounds"][0]
    assert gap.max() <= made.epsilon


def test_the_class_is_the_network_s_outside_the_margin() -> None:
    network, box = mlp(3, 10, 4), Box.cube(3)
    made = to_c(network, box, bits=8, classes=True, **QUICK)
    points = box.sample(5000, 0)
    outputs = np.sort(network(points), axis=1)
    sure = outputs[:, -1] - outputs[:, -2] > made.certificate.margin
    same = made.program.classes(points) == chosen(network(points))
    assert 0.3 < sure.mean() < 1
    assert same[sure].all()


def test_the_class_can_be_the_same_everywhere() -> None:
    weights = [np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0]])]
    network = Network.from_weights(weights, [np.zeros(2), np.array([5.0, 0.0])])
    made = to_c(network, Box.cube(2), bits=16, classes=True, **QUICK)
    assert made.certificate.document["classes"]["everywhere"] == 0
    assert made.certificate.margin == made.certificate.margin_on_grid == 0.0
    one = Network.from_weights([np.eye(2), np.array([[1.0, 1.0]])], [np.zeros(2), np.array([1.0])])
    assert to_c(one, Box.cube(2), classes=True, **QUICK).certificate.margin == 0.0


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_pieces_of_one_input(bits: int) -> None:
    network = mlp(1, 8, 8, 2, seed=3)
    box = Box([-1.0], [2.0])
    made = to_c(network, box, bits=bits, style="pieces", classes=True, **QUICK)
    assert verify(made.certificate, network, made.source).holds
    program = made.program
    scale = Fraction(2) ** program.output_exponent
    low, high = int(program.input_low[0]), int(program.input_high[0])
    power = Fraction(2) ** int(program.input_exponent[0])
    on_grid = made.certificate.document["bounds"]["on_grid"]
    for q in np.unique(np.linspace(low, high, 60).astype(np.int64)).tolist():
        out = program(np.array([[q]]))[0].tolist()
        for y, exact, limit in zip(out, exact_network(network, [q / power]), on_grid, strict=True):
            assert abs(y / scale - exact) <= Fraction(limit)
    points = box.sample(2000, 0)
    gap = np.abs(program.predict(points) - network(points)).max()
    assert gap <= made.epsilon <= 10 * made.found


@pytest.mark.parametrize("activation", ["relu", Activation("leaky", -0.2)])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_pieces_of_two_inputs(bits: int, activation: Any) -> None:
    network = mlp(2, 5, 4, 2, seed=5, activation=activation)
    box = Box([-1.0, 0.0], [2.0, 1.5])
    made = to_c(network, box, bits=bits, style="pieces", classes=True, **QUICK)
    program = made.program
    scale = Fraction(2) ** program.output_exponent
    start, bounds = program, made.certificate.document["bounds"]
    rng = np.random.default_rng(0)
    points = hard_points(box, 60, 1)
    integers = np.vstack(
        [
            rng.integers(start.input_low, start.input_high + 1, (60, 2)),
            program.quantize(points),
        ]
    )
    outputs = program(integers)
    for q, out in zip(integers.tolist(), outputs.tolist(), strict=True):
        steps = (Fraction(2) ** -int(s) for s in start.input_exponent)
        exact = [v * step for v, step in zip(q, steps, strict=True)]
        for y, f, limit in zip(out, exact_network(network, exact), bounds["on_grid"], strict=True):
            assert abs(y / scale - f) <= Fraction(limit)
    for x, out in zip(points, program(program.quantize(points)).tolist(), strict=True):
        real = exact_network(network, [Fraction(float(v)) for v in x])
        for y, f, limit in zip(out, real, bounds["of_floats"], strict=True):
            assert abs(y / scale - f) <= Fraction(limit)
    assert made.epsilon <= 20 * made.found
    assert verify(made.certificate, network, made.source).holds


def test_the_leaves_of_a_tree_are_the_regions() -> None:
    network, box = mlp(2, 8, 6, 1, seed=2), Box.cube(2, -2, 2)
    layers, pieces = (
        to_c(network, box, shrink=False, style=s, **QUICK) for s in ("layers", "pieces")
    )
    assert len(pieces.program.start) == len(regions(network, box))
    assert pieces.multiplications < layers.multiplications / 2
    assert pieces.found < layers.found


def test_a_tree_of_one_leaf_and_one_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    made = to_c(mlp(2, 3), Box.cube(2), style="pieces", **QUICK)
    assert made.multiplications == 6
    assert verify(made.certificate, made.network, made.source).holds
    monkeypatch.setattr("relunorm.embedded.pieces.two_input_cuts.MOST_PIECES", 5)
    with pytest.raises(InvalidInputError, match="more than 5 affine pieces"):
        to_c(mlp(2, 8, 1), Box.cube(2, -2, 2), style="pieces", **QUICK)


@pytest.mark.parametrize("size", [1, 2])
def test_steep_pieces_are_searched_at_their_borders(size: int) -> None:
    """A ramp of a millionth between two integers, which no random input meets."""
    weights = [np.full((2, size), 1e6), np.array([[1.0, -1.0]])]
    network = Network.from_weights(weights, [np.array([-1e5, -1e5 - 1]), np.zeros(1)])
    for style in ("pieces", "layers"):
        made = to_c(network, Box.cube(size), style=style, shrink=False, **QUICK)
        assert 0.4 < made.found <= made.epsilon
        assert verify(made.certificate, network, made.source).holds


@pytest.mark.parametrize("style", ["layers", "pieces", "float"])
def test_every_program_is_called_in_the_same_way(style: str) -> None:
    network, box = mlp(2, 5, 3, seed=1), Box([-1.0, 0.0], [1.0, 2.0])
    kind = {"floats": True} if style == "float" else {"style": style}
    made = to_c(network, box, classes=True, **kind, **QUICK)
    program, points = made.program, box.sample(40, 0)
    assert (program.input_size, program.input_shape, program.output_shape) == (2, (2,), (3,))
    assert f"int net_run(const {program.input_type} *x, {program.output_type} *y)" in made.header
    assert program.multiplications == made.multiplications
    assert np.array_equal(program.classes(points), np.argmax(program.predict(points), axis=1))
    assert (program.input_low < program.input_high).all()
    assert program.predict(points).shape == (40, 3)
    if style != "float":
        integers = program.quantize(points)
        assert np.array_equal(program.dequantize(program(integers)), program.predict(points))
        assert program(integers[0]).tolist() == program(integers)[0].tolist()
        with pytest.raises(InvalidInputError, match="NaN"):
            program.predict([[np.nan, 0.0]])


def test_pieces_are_smaller_than_layers_where_there_are_few() -> None:
    network, box = mlp(1, 16, 16, 1, seed=1), Box([-1.0], [1.0])
    layers, pieces = (to_c(network, box, style=s, **QUICK) for s in ("layers", "pieces"))
    assert pieces.flash < layers.flash
    assert pieces.multiplications == 1


def test_single_precision_is_bounded_too() -> None:
    network = Network(
        [
            Layer(
                Affine({0: np.array([[0.3], [-0.7]])}, np.array([0.1, 0.2])),
                Activation("leaky", 0.1),
            ),
        ],
        Affine({1: np.array([[1.1, -0.4]]), 0: np.array([[0.9]])}, np.array([0.3])),
        input_shape=1,
    )
    made = to_c(network, Box([-3.0], [3.0]), floats=True, **QUICK)
    assert 0 < made.found <= made.epsilon < 1e-5
    assert verify(made.certificate, network, made.source).holds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 12}, "expected 8, 16 or 32"),
        ({"bits": 8.0}, "expected 8, 16 or 32"),
        ({"input_shift": 3, "floats": True}, "input_shift: a program in single precision"),
        ({"bits": 8, "floats": True}, "leave bits out"),
        ({"epsilon": 0.0}, "expected a finite number > 0"),
        ({"epsilon": float("nan")}, "expected a finite number > 0"),
        ({"epsilon": 1e-15}, "the best that can be proved is .* with weights of type int32_t"),
        ({"epsilon": 1e-3, "bits": 8}, "16 bits meet it, with [0-9,]+ bytes of tables"),
        ({"target": "z80"}, "choose c99, avr, arm"),
        ({"style": "tree"}, "choose layers or pieces"),
        ({"name": "2net"}, "no name in C"),
        ({"name": "while"}, "'while' is a word of C itself"),
        ({"name": "int"}, "'int' is a word of C itself"),
        ({"input_shift": 40}, "more than int16_t holds"),
        ({"input_shift": 1.5}, "expected a whole number"),
        ({"flash": 10}, "the tables need [0-9,]+ bytes"),
        ({"ram": 1}, "the buffers need [0-9,]+ bytes"),
        ({"parts": 0}, "expected a whole number of at least 1"),
        ({"name": 5}, "name is 5, expected text"),
        ({"random_state": -1}, "random_state is -1, expected a whole number of at least 0"),
        ({"integer_inputs": True, "floats": True}, "in single precision takes floats"),
        ({"samples": 0}, "samples is 0, expected a whole number of at least 1"),
        ({"flash": "much"}, "flash is 'much', expected a whole number of at least 0"),
        ({"epsilon": "0.1"}, "expected a finite number > 0"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        to_c(mlp(2, 4, 1), Box.cube(2), **{**QUICK, **options})
    assert "\n" not in str(error.value)


def test_a_domain_is_needed_and_has_to_fit() -> None:
    with pytest.raises(InvalidDomainError, match="domain is None, expected a Box"):
        to_c(mlp(2, 4, 1), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidDomainError, match="coordinates"):
        to_c(mlp(2, 4, 1), Box.cube(3))


def sampled_gap(made: Any, network: Network, box: Box, count: int = 2000) -> float:
    points = hard_points(box, count, 0)
    return float(np.abs(made.program.predict(points) - network(points)).max())


def test_norms_hold_for_every_value_of_the_program() -> None:
    """|d_k| and |v_k - c_k| against the integers themselves, on random points and corners."""
    network = mlp(30, 40, 40, 3, seed=4)
    box = Box.cube(30, -1, 1)
    program, walk = build(network, box, weight_bits=[8] * 3, value_bits=8)
    integers = program.quantize(hard_points(box, 500, 1))
    exact = np.ldexp(integers.astype(float), -program.input_exponent.astype(np.int32))
    norms = walk.difference.norms
    for k, (ours, theirs) in enumerate(
        zip(program.values(integers), network.values(exact), strict=True)
    ):
        held = np.ldexp(ours.astype(float), -program.exponents(k).astype(np.int32))
        gap = np.linalg.norm(held - theirs, axis=1).max()
        far = np.linalg.norm(theirs - norms.center[k], axis=1).max()
        assert gap <= norms.gap[k]
        assert far <= norms.radius[k]
        if k:
            single = np.linalg.norm(walk.difference.gap(k))
            assert gap > 0
            assert norms.gap[k] <= single * (1 + 1e-9)


def test_wide_layers_are_bounded_by_singular_values() -> None:
    """An orthogonal layer keeps lengths; the sums of its rows grow with the root of its width."""
    rng = np.random.default_rng(0)
    turns = [np.linalg.qr(rng.normal(size=(64, 64)))[0] for _ in range(4)]
    network = Network.from_weights([*turns, rng.normal(size=(1, 64)) / 8])
    made = to_c(network, Box.cube(64), bits=16, parts=1, samples=200)
    found = sampled_gap(made, network, Box.cube(64))
    assert found <= made.epsilon <= 60 * found


def test_long_sums_leave_bits_to_the_weights() -> None:
    network, box = mlp(400, 30, 2), Box.cube(400)
    program, walk = build(network, box, weight_bits=[16, 16], value_bits=16)
    plain = _Builder(network, box, [16, 16], 16, None, balance=False).run()
    largest = [np.abs(p.maps[0].terms[0].weight).max() for p in (program, plain[0])]
    assert largest[0] > 4 * largest[1]
    errors = [np.abs(w.errors[-1]).max() for w in (walk, plain[1])]
    assert errors[0] < 0.5 * errors[1]


def test_a_convolution_shrinks_by_channels_and_its_inputs_share_a_shift() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(48, 12),
        torch.nn.ReLU(),
        torch.nn.Linear(12, 2),
    ).double()
    with torch.no_grad():
        model[0].bias[1] = -100.0  # a dead channel
        model[3].bias[:6] = -100.0  # six dead units
    network = load(model, example=torch.zeros(1, 1, 4, 4).double())
    rng = np.random.default_rng(0)
    reach = np.exp(rng.normal(size=16))
    box = Box(-reach, reach * rng.random(16))
    made = to_c(network, box, bits=8, **QUICK)
    assert made.certificate.document["shrunk"] is not None
    assert len(set(made.program.input_exponent.tolist())) == 1
    assert made.program.layers[0].shape == (2, 4, 4)
    assert isinstance(made.program.maps[0].terms[0], Kernel)
    assert verify(made.certificate, network, made.source).holds


SIGMOID, SOFTMAX = Head((Step("sigmoid"),), ("no", "yes")), Head((Step("softmax"),))


@pytest.mark.parametrize(("outputs", "head"), [(1, SIGMOID), (3, SOFTMAX)])
def test_a_head_is_not_run_but_its_outputs_are_bounded(outputs: int, head: Head) -> None:
    plain = mlp(2, 8, outputs, seed=2)
    weights, biases = plain.weights()
    dead = np.append(np.full(3, -50.0), biases[0][3:])  # three units to shrink away
    network = Network.from_weights(weights, [dead, biases[1]]).replace(head=head)
    box = Box.cube(2)
    made = to_c(network, box, bits=8, classes=True, **QUICK)
    told = made.certificate.document["head"]
    assert told["of"] in made.source
    assert verify(made.certificate, network, made.source).holds
    points = hard_points(box, 2000, 0)
    gap = np.abs(head(made.program.predict(points)) - network.predict(points)).max()
    assert 0 < gap <= told["bound"] <= 0.51 * made.epsilon
    assert told["bound_on_grid"] <= told["bound"]
    assert made.to_dict()["head"] == told
    wide = to_c(network, Box.cube(2, -1000, 1000), bits=8, **QUICK)
    assert wide.epsilon > 4
    assert wide.certificate.document["head"]["bound"] == 1.0  # probabilities move no further
    assert ("1 yes" in made.header) == bool(head.classes)
    assert not verify(made.certificate, network.replace(head=Head()), made.source).holds


def test_a_head_whose_class_the_outputs_do_not_decide_is_refused() -> None:
    box = Box.cube(2)
    for outputs, steps in (
        (1, (Step("greater", numbers=(0.1,)),)),
        (1, (Step("sigmoid"), Step("greater", numbers=(0.9,)))),
        (2, (Step("scale", numbers=(-1.0, 0.0)),)),
    ):
        network = mlp(2, 4, outputs).replace(head=Head(steps))
        with pytest.raises(InvalidInputError, match="leave classes out"):
            to_c(network, box, classes=True, **QUICK)
        assert to_c(network, box, **QUICK).certificate.document["head"] is not None
    decided = mlp(2, 4, 1).replace(head=Head((Step("sigmoid"), Step("round"))))
    assert to_c(decided, box, classes=True, **QUICK).certificate.margin is not None


def test_long_labels_are_wrapped() -> None:
    network = mlp(2, 3, 2).replace(head=Head((Step("softmax"),), ("a" * 300, "*/ int x; /*")))
    made = to_c(network, Box.cube(2), classes=True, **QUICK)
    assert max(map(len, made.header.splitlines())) <= 100
    assert "*/ int x" not in made.header


def test_pieces_of_many_inputs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="one or two inputs, and this one has 3"):
        to_c(mlp(3, 4, 1), Box.cube(3), style="pieces", **QUICK)


def test_a_network_too_large_for_the_board_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="avr is taken to have 32,256 of flash"):
        to_c(mlp(40, 400, 3), Box.cube(40), target="avr", **QUICK)


def test_numbers_that_no_power_of_two_fits_are_refused() -> None:
    weights = [np.array([[1e80]]), np.array([[1.0]])]
    with pytest.raises(InvalidInputError):
        to_c(Network.from_weights(weights), Box([-1e90], [1e90]), **QUICK)
    steep = Network.from_weights([np.eye(2), np.ones((1, 2))], activation=Activation("leaky", 1e9))
    with pytest.raises(InvalidInputError, match="too steep"):
        to_c(steep, Box.cube(2), bits=8, **QUICK)


def test_onnx_of_what_has_no_qdq_form_is_refused(tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    box = Box.cube(2)
    leaky = mlp(2, 4, 1, activation=Activation("leaky", 0.1))
    for made in (to_c(leaky, box, bits=8, **QUICK), to_c(mlp(2, 4, 1), box, bits=16, **QUICK)):
        with pytest.raises(UnsupportedFormatError, match="QDQ"):
            made.save_onnx(tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("weights", "options", "word"),
    [
        ([[[1.0], [-1.0]], [[1e66, 1.0]]], {"bits": 8}, "would hold numbers that int8_t does not"),
        ([[[1e30]], [[1e30]]], {"floats": True}, "no finite bound can be proved"),
    ],
)
def test_weights_beyond_what_a_program_holds_are_refused(weights, options, word):
    network = Network.from_weights([np.array(w) for w in weights])
    with pytest.raises(InvalidInputError, match=word):
        to_c(network, Box.cube(1), **options)


def test_inputs_of_another_shape_are_refused() -> None:
    program = to_c(mlp(1, 3, 1), Box([-3.0], [3.0]), bits=16, **QUICK).program
    with pytest.raises(InvalidInputError, match="expected rows of 1 integers"):
        program([[1, 2]])


def test_a_target_is_an_entry_in_the_table(monkeypatch):
    def read(macro: str, kind: str) -> list[str]:
        return [f"#define {macro}(p) far_read((const __flash {kind} *)(p))"]

    monkeypatch.setitem(TARGETS, "z8", Target(600, 64, "z8/far.h", "__attribute__((far))", read))
    network = mlp(2, 3, 1)
    made = to_c(network, Box.cube(2), target="z8", **QUICK)
    assert "#include <stdint.h>\n#include <z8/far.h>\n" in made.source
    assert "] __attribute__((far)) = {" in made.source
    assert "_READ_INT16(p) far_read((const __flash int16_t *)(p))" in made.source
    assert verify(made.certificate, network, made.source).holds
    assert (
        read_tables(made.source).keys()
        == read_tables(to_c(network, Box.cube(2), **QUICK).source).keys()
    )
    with pytest.raises(InvalidInputError, match="600"):
        to_c(mlp(2, 200, 1), Box.cube(2), target="z8", **QUICK)
