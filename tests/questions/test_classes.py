"""Labels of every kind matched to outputs: by what is said, by convention, or by the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.network.head import Head, Step
from relunorm.questions.classes import as_classes
from relunorm.report.case import make_case
from relunorm.report.sections.quality import compute

RNG = np.random.default_rng(5)
X = RNG.uniform(0.1, 2.0, size=(60, 3))
NET = rn.Network.from_weights([np.eye(3), np.eye(3)])
OUTPUTS = NET(X)
WINNER = OUTPUTS.argmax(axis=1)
FEW = np.argsort([list(WINNER[:k]).count(WINNER[k]) for k in range(60)], kind="stable")[:6]
ONE = OUTPUTS[:, :1] - np.median(OUTPUTS[:, 0])


def found(target: Any, **options: Any) -> tuple[list[float], Any]:
    codes = as_classes(target, **options)
    assert codes is not None
    return codes[0].tolist(), codes[1]


@pytest.mark.parametrize(
    ("labels", "source"),
    [
        ([0, 1, 2], "numbers"),
        ([1, 2, 3], "sorted"),
        ([7, -4, 100], "data"),
        (["c", "a", "b"], "data"),
        (["a", "b", "c"], "sorted"),
    ],
)
def test_any_labels_find_their_outputs(labels: list[Any], source: str) -> None:
    codes, classes = found(np.array(labels)[WINNER], outputs=OUTPUTS)
    assert codes == WINNER.tolist()
    assert classes.names == tuple(map(str, labels))
    assert classes.source == source
    assert classes.guessed == (source in ("data", "sorted"))


def test_a_model_that_is_often_wrong_is_asked_all_the_same() -> None:
    """The best order is that of the confusion table's best assignment, found by brute force."""
    from itertools import permutations

    truth = np.where(RNG.random(60) < 0.5, WINNER, RNG.integers(0, 3, 60))
    labels = np.array(["x", "z", "y"])[truth]
    codes, classes = found(labels, outputs=OUTPUTS)
    best = max(
        sum(order[w] == label for w, label in zip(WINNER, labels, strict=True))
        for order in permutations(["x", "y", "z"])
    )
    assert (np.array(codes) == WINNER).sum() == best
    assert classes.source == "data"


def test_one_hot_rows_are_in_the_order_of_the_outputs() -> None:
    codes, classes = found(np.eye(3)[WINNER], outputs=OUTPUTS)
    assert codes == WINNER.tolist()
    assert (classes.source, classes.names) == ("columns", ("0", "1", "2"))
    named = found(np.eye(3, dtype=int)[WINNER], given=["a", "b", "c"], outputs=OUTPUTS)[1]
    assert (named.source, named.names) == ("given", ("a", "b", "c"))
    with pytest.raises(InvalidInputError, match="2 classes, but the target has 3 columns"):
        as_classes(np.eye(3)[WINNER], ["a", "b"], outputs=OUTPUTS)
    assert as_classes(np.eye(3)[WINNER] * 0.5, outputs=OUTPUTS) is None


def test_of_one_output_the_side_is_asked_for() -> None:
    above = ONE[:, 0] > 0
    codes, classes = found(np.where(above, "no", "yes"), outputs=ONE)
    assert codes == above.tolist()
    assert (classes.names, classes.source) == (("yes", "no"), "data")


def test_what_the_model_says_comes_first() -> None:
    head = Head((Step("softmax"),), ("c", "a", "b"))
    codes, classes = found(np.array(["b", "c", "a"])[WINNER], model=head, outputs=OUTPUTS)
    assert codes == [[2, 0, 1][w] for w in WINNER]
    assert (classes.source, classes.guessed) == ("model", False)
    by_number = found(WINNER, model=head, outputs=OUTPUTS)
    assert by_number[0] == WINNER.tolist()
    assert (by_number[1].source, by_number[1].names) == ("numbers", ("c", "a", "b"))


def test_the_classes_of_the_model_in_another_order_are_refused() -> None:
    for own, other in [(("c", "a", "b"), ["a", "b", "c"]), ((5, 3, 4), ["3", "4", "5"])]:
        said = NET.replace(head=Head((), own))
        for labels in (np.array(own)[WINNER], np.eye(3)[WINNER]):
            with pytest.raises(InvalidInputError, match=f"but the model's order is '{own[0]}'"):
                make_case(said, X, labels, None, name="", classes=other)
        case = make_case(said, X, np.array(own)[WINNER], None, name="", classes=list(own))
        assert case.y is not None
        assert case.y.tolist() == WINNER.tolist()


def test_numbers_for_two_classes_with_names_are_a_guess_that_the_data_may_refute() -> None:
    """Which of two words is 1, or true, nobody said; true counted as the second word, "no"."""
    head = Head((Step("sigmoid"),), ("yes", "no"))
    codes, classes = found(SIDE, model=head, outputs=ONE)
    assert codes == SIDE.tolist()
    assert (classes.names, classes.guessed) == (("yes", "no"), True)
    net = rn.Network.from_weights([[[1.0, 0.0, 0.0]]], [[-np.median(X[:, 0])]]).replace(head=head)
    shown = rn.certify(net, X[:4], radius=1e-9, label=SIDE[:4])
    assert [row.label for row in shown.rows] == SIDE[:4].tolist()
    assert (shown.classes, shown.classes_from) == (("yes", "no"), "sorted")
    for labels, message in [
        (SIDE == 0, "true and false, but the model's classes are 'yes', 'no'.*--classes"),
        (1 - SIDE, "numbers, but the .* 0 of 60 rows are right, in another order 60"),
    ]:
        for asked in (labels, labels.astype(object)):
            with pytest.raises(InvalidInputError, match=message):
                as_classes(asked, model=head, outputs=ONE)
            with pytest.raises(InvalidInputError, match=message):
                rn.certify(net, X, radius=1e-9, label=asked)
    with pytest.raises(InvalidInputError, match="in another order 60"):
        rn.certify(net, X, radius=1e-9, label=1 - 2 * SIDE)
    mapped, classes = found(SIDE == 0, given=["True", "False"], model=head, outputs=ONE)
    assert mapped == SIDE.tolist()
    assert classes.source == "given"


def test_numbers_that_are_no_labels_stay_numbers() -> None:
    for target in (OUTPUTS[:, 0], np.arange(60), WINNER + 0.5, OUTPUTS):
        assert as_classes(target, outputs=OUTPUTS) is None
    assert as_classes(WINNER, outputs=ONE) is None


SIDE = (ONE[:, 0] > 0).astype(int)
SIGMOID = Head((Step("sigmoid"),))


@pytest.mark.parametrize(
    ("pair", "head", "source", "names"),
    [
        ([0, 1], SIGMOID, "numbers", ("0", "1")),
        ([-1, 1], SIGMOID, "numbers", ("-1", "1")),
        ([1, 2], SIGMOID, "sorted", ("1", "2")),
        ([20, 10], SIGMOID, "data", ("20", "10")),
        ([False, True], Head(), "numbers", ("False", "True")),
        ([0.0, 1.0], Head(), "numbers", ("0", "1")),
        ([1, 2], Head(), "sorted", ("1", "2")),
        ([-1, 1], Head((Step("tanh"),)), "numbers", ("-1", "1")),
    ],
)
def test_two_numbers_are_the_sides_of_one_output(
    pair: list[Any], head: Head, source: str, names: tuple[str, ...]
) -> None:
    codes, classes = found(np.array(pair)[SIDE], model=head, outputs=9 * ONE)
    assert codes == SIDE.tolist()
    assert (classes.source, classes.names) == (source, names)


def test_two_numbers_that_one_output_comes_close_to_are_numbers() -> None:
    assert as_classes(SIDE, model=Head(), outputs=SIDE[:, None] + 0.1 * ONE) is None
    assert as_classes(SIDE + 0.5, model=SIGMOID, outputs=ONE) is None
    assert as_classes(10 * SIDE, model=Head(), outputs=9 * ONE) is None


@pytest.mark.parametrize("pair", [[0, 1], [-1, 1], [1, 2], [20, 10], [False, True]])
@pytest.mark.parametrize("head", [Head(), SIGMOID])
def test_certify_takes_any_two_numbers_for_the_sides(pair: list[Any], head: Head) -> None:
    net = rn.Network.from_weights([[[1.0, 0.0, 0.0]]], [[-np.median(X[:, 0])]]).replace(head=head)
    shown = rn.certify(net, X[:8], radius=1e-9, label=np.array(pair)[SIDE[:8]])
    assert [row.label for row in shown.rows] == SIDE[:8].tolist()
    assert shown.counts["robust"] == 8


def test_the_target_of_a_regression_is_told_about_delta() -> None:
    with pytest.raises(InvalidInputError, match=r"the first is 151\).*--delta"):
        rn.certify(NET, X[:4], radius=0.1, label=[151.0, 75.0, 141.0, 3.5])


def test_a_guess_is_not_called_exact() -> None:
    labels = np.array(["c", "a", "b"])[WINNER]
    guessed = compute(make_case(NET, X, labels, None, name=""), 1.0)
    assert guessed["accuracy"] == {"kind": "estimate", "right": 60, "rows": 60}
    said = NET.replace(head=Head((), ("c", "a", "b")))
    known = compute(make_case(said, X, labels, None, name=""), 1.0)
    assert known["accuracy"] == {"kind": "exact", "right": 60, "rows": 60}


@pytest.mark.parametrize("labels", [["c", "a", "b"], [5, 3, 4], [0, 1, 2], [1, 2, 3]])
def test_certify_takes_labels_of_every_kind(labels: list[Any]) -> None:
    shown = rn.certify(NET, X[FEW], radius=1e-6, label=np.array(labels)[WINNER[FEW]])
    assert [row.label for row in shown.rows] == WINNER[FEW].tolist()
    assert shown.counts["robust"] == 6


def test_labels_that_cannot_be_matched_are_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"1 different ones.*between 3 classes"):
        rn.certify(NET, X[:1], radius=1e-6, label=["c"])


def test_certify_matches_labels_to_the_classes_of_the_model() -> None:
    said = NET.replace(head=Head((Step("softmax"),), (5, 3, 4)))
    shown = rn.certify(said, X[:3], radius=1e-6, label=[*np.array([5, 3, 4])[WINNER[:2]], 8])
    assert [row.label for row in shown.rows[:2]] == WINNER[:2].tolist()
    assert shown.rows[2].verdict == "invalid"
    assert "label 8, but the model has classes 5, 3, 4" in shown.rows[2].reason
    assert (shown.classes, shown.classes_from) == (("5", "3", "4"), "model")


@pytest.mark.parametrize(("others", "source"), [(0, "sorted"), (1, "sorted"), (30, "data")])
def test_an_order_is_asked_of_answers_that_tell_it(others: int, source: str) -> None:
    """Of 90 rows all but some are answered by output 0; those others in turned order."""
    labels = np.repeat(["a", "b", "c"], 30)
    outputs = np.tile([1.0, 0.0, 0.0], (90, 1))
    turned = {"a": 1, "b": 2, "c": 0}
    for k in [*range(others), *range(30, 30 + others), *range(60, 60 + others)]:
        outputs[k] = np.eye(3)[turned[labels[k]]]
    found = as_classes(labels, outputs=outputs)
    assert found is not None
    assert found[1].source == source
    assert found[1].names == (("a", "b", "c") if source == "sorted" else ("c", "a", "b"))
