"""Heads as data: what they compute, what carries over them, how they are told apart."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import relunorm as rn
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.network.head import Head, Step

RNG = np.random.default_rng(3)
NET = rn.Network.from_weights([RNG.normal(size=(5, 2)), RNG.normal(size=(3, 5))])
SOFTMAX = NET.replace(head=Head((Step("softmax"),), ("a", "b", "c")))
MONOTONE = {
    "softmax": (Step("softmax"),),
    "log_softmax": (Step("log_softmax"),),
    "sigmoid": (Step("sigmoid"),),
    "log_sigmoid": (Step("log_sigmoid"),),
    "tanh": (Step("tanh"), Step("scale", 0, (-2.0, 1.0))),
    "softplus": (Step("softplus"), Step("clip", 0, (0.1, 2.0))),
    "ranges": (Step("sigmoid"), Step("scale", 0, (1.0, -2.0, 3.0, 0.0, 1.0, 1e8))),
    "greater": (Step("sigmoid"), Step("greater", 0, (0.5,))),
}


def in_torch(steps: tuple[Step, ...], values: np.ndarray) -> np.ndarray:
    """The steps by torch's own functions, in float64."""
    z = torch.tensor(values)
    for step in steps:
        if step.kind in ("softmax", "log_softmax"):
            z = getattr(torch, step.kind)(z, dim=1)
        elif step.kind == "scale":
            half = len(step.numbers) // 2
            z = z * torch.tensor(step.numbers[:half]) + torch.tensor(step.numbers[half:])
        elif step.kind == "clip":
            z = z.clamp(*step.numbers)
        elif step.kind == "greater":
            z = (z > step.numbers[0]).double()
        else:
            names = {"log_sigmoid": "logsigmoid"}
            z = getattr(torch.nn.functional, names.get(step.kind, step.kind))(z)
    return z.numpy()


@pytest.mark.parametrize("name", MONOTONE)
def test_values_are_those_of_torch(name: str) -> None:
    values = RNG.normal(size=(50, 3)) * 10.0 ** RNG.integers(-3, 3, size=(50, 1))
    expected = in_torch(MONOTONE[name], values)
    np.testing.assert_allclose(Head(MONOTONE[name])(values), expected, rtol=1e-7, atol=1e-300)


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("width", [0.0, 0.1, 5.0, 500.0])
def test_intervals_hold_what_boxes_of_logits_give(name: str, width: float) -> None:
    head = Head(MONOTONE[name])
    low = RNG.normal(size=3) * 3
    high = low + width * RNG.random(3)
    below, above = head.interval(low, high)
    inside = np.vstack([low, high, low + RNG.random((200, 3)) * (high - low)])
    corners = np.array([[(low, high)[k >> i & 1][i] for i in range(3)] for k in range(8)])
    answers = in_torch(MONOTONE[name], np.vstack([inside, corners]))
    assert (below <= answers).all()
    assert (answers <= above).all()
    reach = np.abs(answers).max(initial=1.0)
    np.testing.assert_allclose(below, answers.min(axis=0), rtol=1e-9, atol=1e-12 * reach)
    np.testing.assert_allclose(above, answers.max(axis=0), rtol=1e-9, atol=1e-12 * reach)


@pytest.mark.parametrize("name", [n for n in MONOTONE if n != "greater"])
def test_no_difference_grows_more_than_the_gain(name: str) -> None:
    head = Head(MONOTONE[name])
    values = RNG.normal(size=(500, 3)) * 2
    moved = values + RNG.choice([-1e-4, 1e-4], size=values.shape)
    grown = np.abs(head(values) - head(moved)).max() / 1e-4
    assert head.gain is not None
    assert grown <= head.gain * (1 + 1e-3)


@pytest.mark.parametrize("name", [n for n in MONOTONE if n != "greater"])
@pytest.mark.parametrize("most", [1e-3, 0.5, 3.0, 40.0])
def test_outputs_are_never_further_apart_than_what_moved_says(name: str, most: float) -> None:
    head = Head(MONOTONE[name])
    values = RNG.normal(size=(2000, 3)) * most
    other = values + RNG.choice([-most, most], size=values.shape)
    bound = head.moved(most)
    assert bound is not None
    assert head.gain is not None
    first, second = in_torch(MONOTONE[name], values), in_torch(MONOTONE[name], other)
    rounding = 1e-15 * max(np.abs(first).max(), np.abs(second).max(), np.abs(other).max())
    assert np.abs(first - second).max() <= bound + rounding  # torch rounds, and so does the step
    assert bound <= head.gain * most * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["sigmoid", "softmax", "tanh"])
@pytest.mark.parametrize("most", [1e-3, 1.0, 5.0])
def test_what_moved_says_is_attained(kind: str, most: float) -> None:
    steps = (Step(kind),)  # type: ignore[arg-type]
    ends = np.array([[most / 2, -most / 2], [-most / 2, most / 2]])
    first, second = in_torch(steps, ends)
    assert Head(steps).moved(most) == pytest.approx(abs(first[0] - second[0]), rel=1e-12)


def test_probabilities_are_within_one_of_each_other_whatever_the_logits_do() -> None:
    assert Head((Step("softmax"),)).moved(np.inf) == 1.0
    assert Head((Step("argmax"),)).moved(1.0) is None
    assert Head().moved(2.5) == 2.5


def test_both_classes_of_one_logit() -> None:
    """(-z, z), then a sigmoid: the probabilities 1 - p and p."""
    head = Head((Step("pair"), Step("sigmoid")), ("no", "yes"))
    z = np.linspace(-3, 3, 7)[:, None]
    chance = torch.sigmoid(torch.tensor(z)).numpy()
    np.testing.assert_allclose(head(z), np.hstack([1 - chance, chance]), rtol=1e-12)
    below, above = head.interval([-1.0], [2.0])
    ends = torch.sigmoid(torch.tensor([-2.0, -1.0, 1.0, 2.0], dtype=torch.float64)).tolist()
    np.testing.assert_allclose(below, [ends[0], ends[1]], rtol=1e-12)
    np.testing.assert_allclose(above, [ends[2], ends[3]], rtol=1e-12)
    assert (head.gain, head.of) == (0.25, "logits, before the sigmoid")
    assert head.is_probability
    assert head.decides_plainly((1,))
    assert not Head((Step("pair"), Step("sigmoid"), Step("scale", 0, (-1.0, 0.0)))).decides_plainly(
        (1,)
    )
    assert Head.from_dict(head.to_dict()) == head


def test_gains_are_attained() -> None:
    pair = np.array([[1e-6, -1e-6], [-1e-6, 1e-6]])
    for kind, at in (("softmax", 0.0), ("sigmoid", 0.0), ("tanh", 0.0)):
        head = Head((Step(kind),))  # type: ignore[arg-type]
        first, second = head(pair + at)
        assert np.abs(first - second).max() / 2e-6 == pytest.approx(head.gain)
    deep = np.array([[0.0, 50.0], [2e-6, 50.0 - 2e-6]])
    first, second = Head((Step("log_softmax"),))(deep)
    assert np.abs(first - second).max() / 2e-6 == pytest.approx(2.0)
    for kind in ("argmax", "exp", "round"):
        assert Head((Step(kind),)).gain is None  # type: ignore[arg-type]


def test_a_head_is_part_of_what_a_network_is() -> None:
    others = [
        NET,
        SOFTMAX,
        NET.replace(head=Head((Step("sigmoid"),))),
        NET.replace(head=Head((Step("softmax"), Step("argmax")))),
        NET.replace(head=Head((Step("clip", 0, (0.0, 1.0)),))),
        NET.replace(head=Head((Step("clip", 0, (0.0, 2.0)),))),
        NET.replace(output_shape=(1, 3), head=Head((Step("softmax", 1),))),
    ]
    assert len({net.digest for net in others}) == len(others)
    assert SOFTMAX.replace(head=Head((Step("softmax"),))).digest == SOFTMAX.digest  # names
    assert len({rn.fingerprint(net) for net in others[:6]}) == 6
    for twin in (copy.deepcopy(SOFTMAX), pickle.loads(pickle.dumps(SOFTMAX)), SOFTMAX.folded()):
        assert (twin, twin.head) == (SOFTMAX, SOFTMAX.head)
    assert SOFTMAX.without_head() == NET
    assert Head.from_dict(SOFTMAX.head.to_dict()) == SOFTMAX.head


def test_an_output_of_another_size_has_no_head() -> None:
    part = rn.Affine({1: np.ones((2, 5))}, np.zeros(2))
    assert SOFTMAX.replace(output=part).head == Head()
    same = rn.Affine({1: np.ones((3, 5))}, np.zeros(3))
    assert SOFTMAX.replace(output=same).head == SOFTMAX.head


def test_answers_say_what_they_speak_of() -> None:
    box = rn.Box.cube(2)
    of = "logits, before the softmax"
    answers = [
        rn.maximize(SOFTMAX, box, [1, 0, 0]),
        rn.decide(SOFTMAX, box, [[1.0, 0, 0]], [-1e9]),
        rn.lipschitz(SOFTMAX, box),
        rn.sensitivity(SOFTMAX, box),
        rn.compare(SOFTMAX, SOFTMAX, box),
    ]
    for answer in answers:
        assert answer.of == answer.to_dict()["of"] == of
        assert of in repr(answer)
    assert rn.maximize(NET, box, [1, 0, 0]).of == "outputs"


def test_a_comparison_carries_over_the_head() -> None:
    shifted = rn.Affine(SOFTMAX.output.terms, SOFTMAX.output.bias + np.array([1e-3, 0, 0]))
    found = rn.compare(SOFTMAX, SOFTMAX.replace(output=shifted), rn.Box.cube(2), tolerance=1e-2)
    assert found.verdict == "within"
    assert found.upper == pytest.approx(1e-3)
    assert found.upper_after_head == pytest.approx(5e-4)
    X = RNG.uniform(-1, 1, (100, 2))
    apart = np.abs(SOFTMAX.predict(X) - SOFTMAX.replace(output=shifted).predict(X)).max()
    assert apart <= found.upper_after_head
    assert "of the logits, before the softmax; probabilities within 0.0005" in repr(found)
    with pytest.raises(InvalidInputError, match="end in softmax and in nothing"):
        rn.compare(SOFTMAX, NET, rn.Box.cube(2))
    assert rn.compare(SOFTMAX.without_head(), NET, rn.Box.cube(2)).verdict == "equal"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step("cosine"), "no step 'cosine'"),  # type: ignore[arg-type]
        (lambda: Step("softmax", 0, (1.0,)), "with 1 numbers"),
        (lambda: Step("scale", 0, (1.0, 2.0, 3.0)), "with 3 numbers"),
        (lambda: Step("clip", 0, (0.0, float("nan"))), "NaN"),
        (lambda: Head((Step("argmax"), Step("tanh"))), "argmax ends a head"),
        (lambda: Head((), ("a", "a")), "twice"),
        (lambda: Head((Step("tanh"), Step("pair"))), "only the first step"),
        (lambda: NET.replace(head=Head((Step("pair"), Step("sigmoid")))), "a pair of one value"),
        (lambda: NET.replace(head=Head((Step("softmax", 1),))), "axis 1"),
        (lambda: NET.replace(head=Head((Step("scale", 0, (1.0,) * 4),))), "2 outputs of 3"),
        (lambda: NET.replace(head=Head((), ("a", "b"))), "2 classes for 3 outputs"),
    ],
)
def test_heads_that_cannot_be(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidNetworkError, match=message):
        make()


def test_the_class_is_certified_only_where_the_model_decides_so() -> None:
    X = RNG.normal(size=(4, 2))
    one = rn.Network.from_weights([RNG.normal(size=(5, 2)), RNG.normal(size=(1, 5))])
    level = {0.5: True, 0.9: False, 0.5 + 1e-8: False}
    for at, plainly in level.items():
        net = one.replace(head=Head((Step("sigmoid"), Step("greater", 0, (at,)))))
        assert net.decides_plainly == plainly
        if plainly:
            labels = [row.label for row in rn.certify(net, X, radius=0.0).rows]
            assert labels == net.predict(X).ravel().tolist()
        else:
            with pytest.raises(InvalidInputError, match="does not decide"):
                rn.certify(net, X, radius=0.0)
    turned = NET.replace(head=Head((Step("softmax"), Step("scale", 0, (-1.0, 1.0)))))
    with pytest.raises(InvalidInputError, match="does not decide by its largest output"):
        rn.certify(turned, X, radius=0.0)
    late = one.replace(head=Head((Step("greater", 0, (0.9,)), Step("scale", 0, (2.0, 0.0)))))
    assert not late.decides_plainly
    chosen = NET.replace(head=Head((Step("softmax"), Step("argmax"))))
    labels = [row.label for row in rn.certify(chosen, X, radius=0.0).rows]
    assert labels == chosen.predict(X).tolist()


def test_a_softmax_of_several_rows_names_no_class() -> None:
    """[5, 5, 0] and [1, -9, -9]: of all six the fourth is largest after the softmax of each row."""
    logits = rn.Affine({0: np.zeros((6, 2))}, [5.0, 5.1, 0.0, 1.0, -9.0, -9.0])
    net = rn.Network(
        [], logits, input_shape=2, output_shape=(2, 3), head=Head((Step("softmax", 1),))
    )
    X = np.zeros((3, 2))
    assert (net(X).argmax(axis=1) == 1).all()
    assert (net.predict(X).reshape(3, 6).argmax(axis=1) == 3).all()
    box = rn.Box.cube(2)
    with pytest.raises(InvalidInputError, match="does not decide"):
        rn.certify(net, X, radius=0.1)
    with pytest.raises(InvalidInputError, match="does not decide"):
        rn.compare(net, net, box, top1=True)
    page = rn.report(net, X, ["a", "b", "b"], box, classes=list("abcdef"), time_limit=2.0).sections
    assert "does not decide" in page["quality"]["why"]
    assert "does not decide" in page["robustness"]["why"]
    assert page["regions"]["body"]["winners"] is None
    assert page["program"]["body"]["programs"]["rows"][0]["on_data"]["same_class"] is None
    assert rn.on_plane(net, [0, 0], [1, 0], [0, 1]).classes == ()
    other = net.replace(output_shape=(3, 2))
    with pytest.raises(InvalidInputError, match="shape"):
        rn.compare(net, other, box)
    assert rn.compare(net.without_head(), other.without_head(), box).verdict == "equal"
    one_row = net.replace(output_shape=(1, 6))
    assert one_row.decides_plainly
    assert [row.label for row in rn.certify(one_row, X, radius=0.1).rows] == [1, 1, 1]


def test_a_property_file_speaks_of_outputs() -> None:
    from relunorm.questions.vnnlib import parse_vnnlib

    prop = parse_vnnlib(
        "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)"
        "(declare-const Y_1 Real) (declare-const Y_2 Real) (assert (<= X_0 1)) (assert (>= X_0 -1))"
        "(assert (<= X_1 1)) (assert (>= X_1 -1)) (assert (>= Y_0 2))"
    )
    with pytest.raises(InvalidInputError, match="ends in softmax"):
        rn.check(SOFTMAX, prop)
    rn.check(SOFTMAX.without_head(), prop)


def test_regions_remember_the_head(tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = rn.regions(SOFTMAX, rn.Box.cube(2))
    assert found.to_dict()["of"] == "logits, before the softmax"
    found.save(tmp_path / "regions.npz")
    assert rn.load_regions(tmp_path / "regions.npz").network.head == SOFTMAX.head


def test_the_command_line_says_what_it_speaks_of(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    from relunorm.cli import main

    path = str(tmp_path / "net.npz")
    rn.save(SOFTMAX, path)
    said = {
        "info": "then softmax; answers speak of the logits",
        "maximize": "This speaks of the logits, before the softmax.",
    }
    for command, words in said.items():
        more = ["--domain", "box:-1,1", "--direction", "1,0,0"] if command == "maximize" else []
        with pytest.raises(SystemExit) as stopped:
            main([command, path, *more])
        assert stopped.value.code == 0
        assert words in " ".join(capsys.readouterr().out.split())
