"""How well a network does: counts and errors against those of scikit-learn, the map of classes
against the network itself, names of inputs wherever inputs are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report.validation import check, random_network
from sklearn import metrics

import relunorm as rn
from relunorm.clock import INTERRUPTED, Clock
from relunorm.network.head import Head, Step
from relunorm.report import runner
from relunorm.report.case import make_case
from relunorm.report.registry import SECTIONS
from relunorm.report.sections import advice, line, quality, regions, robustness, sensitivity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 5))
NET = random_network(5, 8, 4, seed=3)
NAMES = np.array(["ant", "bee", "cat", "dog"])
#: Labels that disagree with the network on some rows.
LABELS = NAMES[(NET(X).argmax(axis=1) + (RNG.random(80) < 0.3)) % 4]


def case(net: rn.Network = NET, x: Any = X, y: Any = LABELS, **options: Any) -> Any:
    return make_case(net, x, y, None, name="a net", **options)


def test_counts_of_a_classifier_are_those_of_scikit_learn() -> None:
    body = quality.compute(case(classes=list(NAMES)), 1.0)
    answers = NAMES[NET(X).argmax(axis=1)]
    right = metrics.accuracy_score(LABELS, answers, normalize=False)
    assert body["accuracy"] == {"kind": "exact", "right": right, "rows": 80}
    expected = metrics.confusion_matrix(LABELS, answers, labels=NAMES)
    assert body["confusion"]["rows"] == expected.tolist()
    top = body["confusion"]["mistakes"][0]
    wrong = expected - np.diag(np.diag(expected))
    assert top["count"] == wrong.max() == wrong[top["label"], top["answer"]]
    bars = body["margins"]
    assert (sum(bars["right"]), sum(bars["wrong"])) == (right, 80 - right)


def test_a_model_of_several_labels_is_no_regression() -> None:
    net = NET.replace(head=Head((Step("sigmoid"),)))
    y = (net(X) > 0) ^ (RNG.random((80, 4)) < 0.1)
    body = quality.compute(case(net, y=y.astype(float)), 1.0)
    right = metrics.accuracy_score(y, net(X) > 0, normalize=False)
    assert body["accuracy"] == {"kind": "exact", "right": right, "rows": 80}
    tables = metrics.multilabel_confusion_matrix(y, net(X) > 0)
    for row, ((no, false), (missed, both)) in zip(body["labels"]["rows"], tables, strict=True):
        counts = {"right": no + both, "have": missed + both, "said": false + both, "both": both}
        assert row == counts
    document = rn.report(net, X, y.astype(float), time_limit=0).to_dict()
    document["sections"]["quality"] |= {"status": "done", "body": body}
    check(document)
    body = quality.compute(case(net, y=y + 0.5), 1.0)  # numbers after all
    assert body["type"] == "numbers"


def test_the_least_sure_rows_are_those_with_the_smallest_margins() -> None:
    rows = quality.compute(case(classes=list(NAMES)), 1.0)["unsure"]["rows"]
    top = np.sort(NET(X), axis=1)
    margins = top[:, -1] - top[:, -2]
    assert [row["row"] for row in rows] == np.argsort(margins)[: len(rows)].tolist()
    np.testing.assert_allclose([row["margin"] for row in rows], np.sort(margins)[: len(rows)])


def test_errors_of_a_regression_are_those_of_scikit_learn() -> None:
    net = random_network(5, 8, 2, seed=4)
    y = net(X) + RNG.normal(size=(80, 2))
    body = quality.compute(case(net, y=y), 1.0)
    for k, row in enumerate(body["errors"]["rows"]):
        truth, guess = y[:, k], net(X)[:, k]
        assert row["rms"] == pytest.approx(metrics.root_mean_squared_error(truth, guess))
        assert row["mean_abs"] == pytest.approx(metrics.mean_absolute_error(truth, guess))
        assert row["r2"] == pytest.approx(metrics.r2_score(truth, guess))
        assert row["largest"] == pytest.approx(metrics.max_error(truth, guess))
    worst = body["worst"]["rows"][0]
    far = np.abs(net(X) - y) / y.std(axis=0)  # outputs may have different units
    assert far[worst["row"], worst["output"]] == far.max()
    assert worst["predicted"] == net(X)[worst["row"], worst["output"]]


def test_of_several_outputs_the_worst_is_named_and_all_are_listed() -> None:
    """Errors have the units of their outputs: the largest one need not be the worst fit."""
    pandas = pytest.importorskip("pandas")
    net = random_network(5, 8, 3, seed=4)
    y = net(X) * [1.0, 1.0, 1e3] + RNG.normal(size=(80, 3)) * net(X).std(axis=0) * [0.1, 2, 0.1]
    scaled = rn.Network.from_weights(
        [w * ([[1.0], [1.0], [1e3]] if k else 1) for k, w in enumerate(net.weights()[0])],
        [b * ([1.0, 1.0, 1e3] if k else 1) for k, b in enumerate(net.weights()[1])],
    )
    frame = pandas.DataFrame(y, columns=["u", "v", "w"])
    errors = quality.compute(case(scaled, y=frame), 1.0)["errors"]
    r2 = metrics.r2_score(y, scaled(X), multioutput="raw_values")
    assert errors["worst"] == r2.argmin() == 1
    assert (errors["of"], [row["name"] for row in errors["rows"]]) == (3, ["u", "v", "w"])
    named = quality.compute(case(scaled, y=y, target_name="a, b, c"), 1.0)["errors"]["rows"]
    assert [row["name"] for row in named] == ["a", "b", "c"]


def test_of_many_outputs_the_worst_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MAX_NUMBERS", 2)
    y = NET(X) + RNG.normal(size=(80, 4)) * NET(X).std(axis=0) * [0.1, 1, 0.2, 3]
    body = quality.compute(case(y=y), 1.0)
    assert [row["output"] for row in body["errors"]["rows"]] == [1, 3]
    assert (body["errors"]["worst"], body["errors"]["of"]) == (3, 4)
    assert [row["output"] for row in body["scatter"]["rows"]] == [1, 3]


def test_shares_found_are_those_of_scikit_learn() -> None:
    body = quality.compute(case(classes=list(NAMES)), 1.0)
    answers = NAMES[NET(X).argmax(axis=1)]
    names, counts = np.unique(LABELS, return_counts=True)
    found = metrics.recall_score(LABELS, answers, labels=names, average=None)
    right = dict(zip(names, metrics.precision_score(
        LABELS, answers, labels=names, average=None, zero_division=0.0), strict=True))  # fmt: skip
    rows = body["recall"]["rows"]
    assert [row["right"] / row["rows"] for row in rows] == pytest.approx(sorted(found))
    for row in rows:
        share = row["right"] / max(row["said"], 1)
        assert share == pytest.approx(right[NAMES[row["label"]]])
    balanced = metrics.balanced_accuracy_score(LABELS, answers)
    assert body["recall"]["balanced"] == pytest.approx(balanced)
    assert body["baseline"]["right"] == counts.max()
    assert NAMES[body["baseline"]["label"]] == names[counts.argmax()]
    assert body["misfit"] is None


@pytest.mark.parametrize("kind", ["sigmoid", "tanh", "exp"])
def test_errors_are_those_of_what_the_model_returns(kind: Any) -> None:
    """Not of the values before the head."""
    net = random_network(5, 8, 1, seed=4).replace(head=Head((Step(kind),)))
    y = net.predict(X)[:, 0] + 0.1 * RNG.normal(size=80)
    body = quality.compute(case(net, y=y), 1.0)
    rms = metrics.root_mean_squared_error(y, net.predict(X)[:, 0])
    assert body["errors"]["rows"][0]["rms"] == pytest.approx(rms)
    assert body["scatter"]["rows"][0]["predicted"] == pytest.approx(net.predict(X)[:, 0])


def test_a_classifier_of_one_output_is_counted_by_numbers_of_classes() -> None:
    net = random_network(5, 8, 1, seed=4).replace(head=Head((Step("sigmoid"),)))
    truth = np.where(RNG.random(80) < 0.2, 0, net(X)[:, 0] > 0)
    body = quality.compute(case(net, y=truth), 1.0)
    right = metrics.accuracy_score(truth, net.predict(X)[:, 0] > 0.5, normalize=False)
    assert body["accuracy"] == {"kind": "exact", "right": right, "rows": 80}


def test_rows_are_numbered_as_they_were_given_also_where_a_part_is_used() -> None:
    x = RNG.normal(size=(6000, 5))
    labels = NAMES[NET(x).argmax(axis=1)]
    one = case(x=x, y=labels, classes=list(NAMES))
    assert len(one.x) == 4096
    for row in quality.compute(one, 1.0)["unsure"]["rows"]:
        top = np.sort(NET(x[row["row"]]))
        assert row["margin"] == pytest.approx(top[-1] - top[-2])


@pytest.mark.parametrize(
    ("net", "names"),
    [
        (NET, NAMES),
        (random_network(5, 8, 1, seed=6), NAMES[:2]),
        (random_network(2, 9, 3), NAMES[:3]),
    ],
    ids=["four outputs", "one output", "two inputs"],
)
def test_the_map_shows_the_class_that_wins(net: rn.Network, names: Any) -> None:
    x = RNG.normal(size=(60, net.input_size))
    decide = lambda z: (  # noqa: E731
        net(z).argmax(axis=1) if len(names) > 2 else (net(z)[:, 0] > 0).astype(int)
    )
    one = case(net, x, names[decide(x)], classes=list(names))
    body = regions.compute(one, 30.0)
    found = body["winners"]
    assert found["kind"] == "exact"
    pieces = [
        (np.reshape(corners, (-1, 2)), k)
        for corners, k in zip(body["cells"]["corners"], found["whole"], strict=True)
        if k >= 0
    ]
    pieces += [(np.reshape(part["corners"], (-1, 2)), part["class"]) for part in found["cut"]]
    assert {k for _, k in pieces} > {-1} or len({k for _, k in pieces}) > 1
    view = body["plane"]
    for corners, k in pieces:
        inside = corners.mean(axis=0)[None]
        if "origin" in view:
            origin, u, v = (np.array(view[name]) for name in ("origin", "u", "v"))
            inside = origin + inside @ np.stack([u, v])
        assert decide(inside)[0] == k
    area = sum(_area(corners) for corners, _ in pieces)
    x0, x1, y0, y1 = view["window"]
    assert area == pytest.approx((x1 - x0) * (y1 - y0), rel=1e-5)  # no gap and no overlap


def _area(corners: Any) -> float:
    x, y = corners.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def test_too_many_regions_leave_a_grid_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "MAX_DRAWN", 5)
    body = regions.compute(case(classes=list(NAMES)), 30.0)
    grid = body["winners"]["grid"]
    assert body["winners"]["kind"] == "estimate"
    count, (x0, x1, y0, y1) = grid["count"], grid["window"]
    origin, u, v = (np.array(body["plane"][name]) for name in ("origin", "u", "v"))
    for n in range(0, count**2, 97):
        s = x0 + (n % count + 0.5) / count * (x1 - x0)
        t = y0 + (n // count + 0.5) / count * (y1 - y0)
        assert NET(origin + s * u + t * v).argmax() == grid["classes"][n]


def test_the_plane_goes_through_rows_that_are_named() -> None:
    body = regions.compute(case(classes=list(NAMES)), 30.0)
    view = body["plane"]
    origin, u, v = (np.array(view[name]) for name in ("origin", "u", "v"))
    assert len(view["marks"]) == 3
    for mark in view["marks"]:
        row = int(mark["name"].partition("(row ")[2].rstrip(")"))
        np.testing.assert_allclose(
            origin + np.array(mark["at"]) @ np.stack([u, v]), X[row], atol=1e-9
        )
        assert mark["name"].startswith(str(LABELS[row]))


def test_the_line_ends_in_the_rows_it_names() -> None:
    body = line.compute(case(classes=list(NAMES)), 5.0)
    rows = [int(part.partition(")")[0]) for part in body["words"].split("(row ")[1:]]
    for end, row in zip(("start", "end"), rows, strict=True):
        np.testing.assert_array_equal(body[end]["values"], X[row])


def test_inputs_have_the_names_of_the_table() -> None:
    pandas = pytest.importorskip("pandas")
    names = ["age", "height", "weight", "<b>", "steps"]
    frame = pandas.DataFrame(X, columns=names)
    found = check(rn.report(NET, frame, LABELS, slice=("weight", "age"), time_limit=5).to_dict())
    assert found["inputs"] == names
    assert found["sections"]["regions"]["body"]["plane"]["labels"] == ["weight", "age"]
    rows = found["sections"]["sensitivity"]["body"]["slopes"]["rows"]
    assert {row["name"] for row in rows} == set(names)
    with pytest.raises(rn.errors.InvalidInputError, match="no input is called 'size'"):
        rn.report(NET, frame, LABELS, slice=("size", "age"))
    with pytest.raises(rn.errors.InvalidInputError, match="3 names of inputs"):
        rn.report(NET, X, feature_names=["a", "b", "c"])


@pytest.mark.parametrize("why", ["no time was left of 1 s", "it needs more time than", INTERRUPTED])
def test_what_only_lacked_time_is_told_at_once(why: str) -> None:
    sections = runner.run_sections(case(classes=list(NAMES)), Clock(0.0))[0]
    for entry in sections.values():
        entry["why"] = why
    items = advice.advise(sections, case(classes=list(NAMES)), 1.0)
    assert [item["topic"] for item in items if item["topic"] != "open"] == ["time"]
    assert {item["text"].split(":")[0] for item in items if item["topic"] == "open"} == {
        section.title for section in SECTIONS if not section.more
    }


def test_the_scale_of_targets_is_no_advice_once_they_are_fitted() -> None:
    net = rn.Network.from_weights([np.eye(5), 1e3 * np.ones((1, 5))])
    noise = RNG.normal(size=(80, 1))
    told = rn.diagnose(net, X, net(X), optimizer="sgd").advice
    for y, wanted in ((net(X) + noise, 0), (1e5 * noise, 1)):
        one = case(net, y=y)
        learned = advice._learned(quality.compute(one, 1.0))
        items = advice._units({"body": {"sentences": told}}, one, False, learned)
        assert sum("TargetScaler" in item["call"] for item in items) == wanted


def test_slopes_hold_what_jacobians_show() -> None:
    body = sensitivity.compute(case(classes=list(NAMES)), 20.0)
    box = rn.Box.around(X)
    slopes = NET.jacobian(box.sample(500, 1))
    for row in body["slopes"]["rows"]:
        seen = slopes[:, :, row["input"]]
        assert (seen >= np.array(row["lower"]) - 1e-9).all()
        assert (seen <= np.array(row["upper"]) + 1e-9).all()
    effects = [max(np.abs([*r["lower"], *r["upper"]])) * r["width"] for r in body["slopes"]["rows"]]
    assert effects == sorted(effects, reverse=True)


def test_what_is_certain_of_inputs_is_told_output_by_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Output 0 rises with x0 and falls with x1; output 1, 1000 times as large, the reverse."""
    first = [[1.0, -1.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 1.0]]
    last = [[1.0, 1.0, 0.0], [-1e3, -1e3, 1e3]]
    net = rn.Network.from_weights([first, last])
    x = RNG.normal(size=(40, 3))
    body = sensitivity.compute(case(net, x, None), 20.0)
    words = rn.sensitivity(net, rn.Box.around(x)).direction
    for of, row in zip(words, body["monotone"]["rows"], strict=True):
        assert row == {word: (of == word).sum() for word in ("increasing", "decreasing", "unused")}
    assert body["monotone"]["rows"][0] == {"increasing": 1, "decreasing": 1, "unused": 1}
    assert body["monotone"]["unused"] == 0
    monkeypatch.setattr(sensitivity, "LISTED", 1)  # of every output the one that matters to it
    wide = rn.Network.from_weights([np.eye(3), [[1.0, 0.0, 0.0], [0.0, 0.0, 1e3]]])
    listed = sensitivity.compute(case(wide, x, None), 20.0)["slopes"]["rows"]
    assert {row["input"] for row in listed} == {0, 2}


def test_the_weakest_rows_are_looked_for_among_those_with_the_smallest_margins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 rows on a line whose class changes at 0: the nearest are certified, in any sample."""
    net = rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0], [-1.0, 1.0]]])
    x = np.concatenate([np.linspace(1, 2, 1999), [0.125]])[:, None]
    labels = NAMES[np.zeros(2000, dtype=int)]
    found = case(net, x, labels, classes=list(NAMES[:2]))
    monkeypatch.setattr(robustness, "MOST_ROWS", 6)
    monkeypatch.setattr(robustness, "NEAREST", 2)
    body = robustness.compute(found, 3600.0)  # it is done long before, on any machine
    assert body["weakest"]["rows"][0]["row"] == 1999
    assert body["weakest"]["rows"][0]["safe"] == pytest.approx(0.125, rel=0.06)
    assert (body["rows"]["value"], body["nearest"]["value"]) == (6, 2)
    half = body["median"]["value"]
    assert 1 <= half <= 2  # of the sample alone
    # as large as six rows allow: the larger one of the two in the middle, at which a step stands
    assert [sure for radius, sure, _ in body["curve"]["rows"] if radius == half] == [0.5]
    assert body["partial"] == ""
    wrong = case(net, x, NAMES[np.ones(2000, dtype=int)], classes=list(NAMES[:2]))
    none = robustness.compute(wrong, 3600.0)
    assert none["rows"]["value"] == 6
    assert none["median"]["value"] == none["curve"]["rows"][0][1] == 0.0  # as the curve counts them
    hurried = robustness.compute(found, 0.0)
    assert hurried["certified"]["value"] == 0
    assert (hurried["rows"]["value"], hurried["nearest"]["value"]) == (0, 1)  # no sample of one
    assert hurried["partial"] == "no row could be certified in the time given"


def test_more_time_would_look_at_more_rows() -> None:
    posed = case(classes=list(NAMES))
    sections = rn.report(NET, X, LABELS, classes=list(NAMES), time_limit=3).to_dict()["sections"]
    for entry in sections.values():  # as if all that was begun had been done
        entry.update(status="done", why="")
    sections["robustness"]["body"] = robustness.compute(posed, 3600.0)
    expected = ["More time than 10 s would certify more rows, and more closely."]
    for looked_at, more in ((4, True), (79, True), (80, False)):
        sections["robustness"]["body"]["rows"]["value"] = looked_at
        told = [item["text"] for item in advice.advise(sections, posed, 10.0)]
        assert [text for text in told if text.startswith("More time")] == expected * more


def test_safe_radii_are_safe_and_attacked_ones_are_not() -> None:
    body = robustness.compute(case(classes=list(NAMES)), 20.0)
    assert body["rows"]["of"] == 80
    for row in body["weakest"]["rows"]:
        x, label = X[row["row"]], row["label"]
        assert NAMES[label] == LABELS[row["row"]]
        assert row["correct"] == (NET(x).argmax() == label)
        if row["correct"]:
            assert 0 < row["safe"] <= row["attacked"]
            near = x + row["safe"] * RNG.uniform(-1, 1, size=(300, 5))
            assert (NET(near).argmax(axis=1) == label).all()
            assert rn.certify(NET, x, row["attacked"], label=[label]).rows[0].verdict == "attacked"
        else:
            assert row["attacked"] == 0
    curve = body["curve"]["rows"]
    assert all(sure <= possible for _, sure, possible in curve)
    ends = {end for row in body["weakest"]["rows"] for end in (row["safe"], row["attacked"])}
    assert ends & {radius for radius, _, _ in curve}  # the steps stand at the rows' own radii


def test_distances_are_in_spreads_where_scales_differ() -> None:
    """The same rows and network with the last input in units 4096 times as small."""
    factors = np.array([1.0, 1.0, 1.0, 1.0, 4096.0])
    first, *rest = NET.weights()[0]
    other = rn.Network.from_weights([first / factors, *rest], NET.weights()[1])
    x = X[:8] / X[:8].std(axis=0)
    labels = NAMES[NET(x).argmax(axis=1)]
    plain = robustness.compute(case(x=x, y=labels, classes=list(NAMES)), 20.0)
    scaled = robustness.compute(case(other, x * factors, labels, classes=list(NAMES)), 20.0)
    assert (plain["scales_differ"], scaled["scales_differ"]) == (False, True)
    two = np.random.default_rng(0).normal(size=(50, 2)) * [17.6, 44_150.0]  # age and income
    assert robustness._scales_differ(two)
    for one, two in zip(plain["weakest"]["rows"], scaled["weakest"]["rows"], strict=True):
        assert one["row"] == two["row"]
        assert one["safe"] == pytest.approx(two["safe"], rel=0.1)
        assert one["attacked"] == pytest.approx(two["attacked"], rel=0.1)


def test_a_short_limit_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(runner, "Apart", refuse)
    monkeypatch.setattr(runner, "SMALL", 10)
    one = case(classes=list(NAMES))
    assert not runner.is_small(one)
    found, _ = runner.run_sections(one, Clock(1.0))
    assert found["network"]["status"] == "done"
    with pytest.raises(AssertionError, match="a process was started"):
        runner.run_sections(one, Clock(60.0))


def test_constant_inputs_have_no_scale() -> None:
    """The deviation of 0.1, 0.1, ... is not 0 after rounding."""
    x = np.random.default_rng(0).normal(size=(10, 4))
    x[:, :3] = 0.1, 0.3, 0.7
    assert not robustness._scales_differ(x)
    assert robustness._spreads(x) == pytest.approx(x[:, 3].std())
