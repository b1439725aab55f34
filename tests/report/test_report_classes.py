"""Targets that are class labels: numbered in the order of the outputs, named on the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report.validation import check, random_network

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.questions.classes import as_classes
from relunorm.report.case import make_case

pytestmark = pytest.mark.usefixtures("few_rows_certified")

X = np.random.default_rng(0).normal(size=(30, 2))
NET = random_network(2, 5, 3, seed=23)
#: The class each row of X is put into by NET, so a right numbering finds every row right.
WINNER = NET(X).argmax(axis=1)


def document(names: list[str], **options: Any) -> dict[str, Any]:
    found = rn.report(NET, X, np.array(names)[WINNER], target_name="kind", time_limit=6, **options)
    return check(found.to_dict())


def test_the_order_of_labels_is_asked_of_the_data_unless_it_is_given() -> None:
    sorted_ones = document(["a", "b", "c"])
    classes = sorted_ones["data"]["classes"]
    assert classes["names"] == ["a", "b", "c"]
    assert classes["counts"] == np.bincount(WINNER, minlength=3).tolist()
    assert classes["from"] == "sorted"
    body = sorted_ones["sections"]["quality"]["body"]
    assert body["accuracy"] == {"kind": "estimate", "right": 30, "rows": 30}
    assert body["rule"] == "largest"
    assert body["confusion"]["mistakes"] == []
    turned = document(["c", "a", "b"])
    assert turned["data"]["classes"]["from"] == "data"
    assert turned["data"]["classes"]["names"] == ["c", "a", "b"]
    assert turned["sections"]["quality"]["body"]["accuracy"]["right"] == 30
    given = document(["c", "a", "b"], classes=["c", "a", "b"])
    assert given["data"]["classes"]["from"] == "given"
    assert given["sections"]["quality"]["body"]["accuracy"]["right"] == 30
    assert given["sections"]["regions"]["body"]["points"]["labels"] == WINNER.tolist()


def test_classes_have_no_scale() -> None:
    body = document(["a", "b", "c"])["sections"]["units"]["body"]
    assert body["target"] is None
    assert not any("scale" in sentence for sentence in body["sentences"])


def test_a_classifier_knows_its_classes() -> None:
    like = rn.to_sklearn(NET, classes=["low", "mid", "top"])
    labels = like.predict(X)
    assert labels.tolist() == np.array(["low", "mid", "top"])[WINNER].tolist()
    case = make_case(rn.load(like), X, labels, None, name="", model=like)
    assert case.classes is not None
    assert case.classes.source == "model"
    assert case.y is not None
    assert case.y.tolist() == WINNER.tolist()
    assert case.scale is None


def test_of_two_classes_the_sign_of_one_output_decides() -> None:
    net = random_network(2, 4, 1, seed=23)
    above = net(X)[:, 0] > 0
    labels = np.where(above, "yes", "no")
    body = rn.report(net, X, labels, time_limit=4).sections["quality"]["body"]
    assert body["accuracy"] == {"kind": "estimate", "right": 30, "rows": 30}
    assert body["rule"] == "sign"
    three = np.array(["a", "b", "c"])[WINNER]
    entry = rn.report(net, X, three, time_limit=4).sections["quality"]
    assert entry["body"] is None
    assert "3 classes and the network 1 output" in entry["why"]


@pytest.mark.parametrize(
    ("target", "classes", "codes", "names"),
    [
        (["b", "a"], None, [1, 0], ("a", "b")),
        ([b"b", b"a"], None, [1, 0], ("a", "b")),
        (np.array(["b", " a "], dtype=object), None, [1, 0], ("a", "b")),
        ([["b"], ["a"]], ["b", "a"], [0, 1], ("b", "a")),
        ([2.0, 7.0], [7, 2], [1, 0], ("7", "2")),
        ([2, 7], ["7", "2"], [1, 0], ("7", "2")),
        ([True, False], [False, True], [1, 0], ("False", "True")),
        ([1.0, 0.0], ["False", "True"], [1, 0], ("False", "True")),
        ([1.0, 0.0], [False, True], [1, 0], ("False", "True")),
        (["true", "false"], [False, True], [1, 0], ("False", "True")),
        (["3", "1"], [1, 2, 3], [2, 0], ("1", "2", "3")),
        ([3, 1], ["1", "3.0"], [1, 0], ("1", "3.0")),
        (["01", "1"], ["1", "01"], [1, 0], ("1", "01")),
        (np.array([np.int64(3), np.int64(1)], dtype=object), [1, 3], [1, 0], ("1", "3")),
        (np.array([1, "a", 2.0], dtype=object), None, [0, 2, 1], ("1", "2", "a")),
        ([2**60 + 1, 2**60], [str(2**60), str(2**60 + 1)], [1, 0], (str(2**60), str(2**60 + 1))),
    ],
)
def test_labels_of_every_type(target: Any, classes: Any, codes: list[int], names: Any) -> None:
    found = as_classes(target, classes)
    assert found is not None
    assert found[0].tolist() == codes
    assert found[1].names == names


def test_every_row_is_counted_also_where_a_part_is_used() -> None:
    """A class of one row among many was listed with none, for the sample had missed it."""
    x = np.zeros((9000, 2))
    labels = np.array(["1"] * 8999 + ["oops"])
    case = make_case(NET, x, labels, None, name="")
    assert case.x is not None
    assert len(case.x) == 4096
    assert case.classes is not None
    assert case.classes.to_dict()["counts"] == [8999, 1]
    assert case.classes.to_dict()["kind"] == "exact"


def test_a_tensor_with_a_gradient_is_told_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    target = torch.ones(2, requires_grad=True)
    for classes in (None, [0, 1]):
        with pytest.raises(InvalidInputError, match="detach"):
            make_case(NET, X[:2], target, None, name="", classes=classes)


def test_plain_numbers_are_no_classes() -> None:
    assert as_classes([0.0, 1.0]) is None
    assert as_classes(np.array([1, 2], dtype=object)) is None
    assert as_classes([[1], [2, 3]]) is None


@pytest.mark.parametrize(
    ("target", "classes", "message"),
    [
        (["a", "b"], ["a"], "'b', which is none of the classes 'a'"),
        (["a", ""], None, "row 1 of the target holds ''"),
        (np.array(["a", None], dtype=object), None, "row 1 of the target holds None"),
        (np.array(["a", float("nan")], dtype=object), None, "row 1 of the target holds nan"),
        (["a", "b"], ["a", "b", "a"], "two classes are the same"),
        ([1, 2], ["one", "two"], "the target holds numbers, but the classes are 'one', 'two'"),
        (["a", "b"], [["a"], ["b"]], "expected a list of labels"),
        (np.ones((2, 3)), ["a", "b"], "one label for each row"),
        (None, ["a", "b"], "classes without a target"),
        (np.array(["a", "b"], dtype=object), [10**400, 1, 2], "class 0 of the list .* float64"),
        (np.array([10**5000, 1], dtype=object), [1, 2], "row 0 of the target .* float64"),
        (np.array([10**400, 1], dtype=object), None, "not an array of numbers"),
        (["1", "x"], [1, 2], "'x', which is none of the classes 1, 2"),
        (["a", "b"], [""], "class 0 of the list holds ''"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), None, "the target: holds dates"),
        (np.array(["2020-01-01", "2021-01-01"], "M8[D]"), [1, 2], "is a date or a time"),
        (np.array([np.datetime64(1, "ns")] * 2, dtype=object), None, "the target: holds dates"),
        (np.array([np.datetime64(1, "ns")] * 2, dtype=object), [1, 2], "holds np.datetime64"),
    ],
)
def test_bad_labels_are_named(target: Any, classes: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_case(NET, X[:2], target, None, name="", classes=classes)
