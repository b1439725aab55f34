"""The document: valid, every number of a known kind, sections that fall without the others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from report.validation import check, random_network

import relunorm as rn
from relunorm.clock import Clock
from relunorm.errors import InvalidInputError
from relunorm.report.case import make_case
from relunorm.report.runner import SECTIONS, Here, run_sections
from relunorm.report.sections import lipschitz, program, regions
from relunorm.stability import stability
from relunorm.stability.verdicts import Stability


def test_the_demo_is_whole_and_says_what_the_rooms_say(moons: rn.Report) -> None:
    document = check(moons.to_dict())
    statuses = {name: entry["status"] for name, entry in document["sections"].items()}
    assert set(statuses.values()) == {"done"}
    net, box = rn.load("example:moons"), rn.Box.cube(2, -2, 3)
    body = {name: entry["body"] for name, entry in document["sections"].items()}
    assert body["regions"]["count"] == {"value": 745, "kind": "exact"}
    assert body["regions"]["per_layer"]["values"][-1] == 745
    assert body["lipschitz"]["upper"]["value"] == rn.lipschitz(net, box).upper
    assert body["units"]["units"]["value"] == 48
    small = rn.normalize(net, "minimal", box)
    assert body["removal"]["after"]["parameters"] == small.network.parameters
    assert body["removal"]["difference"]["kind"] == "bound"
    calls = [advice["call"].split("(")[0] for advice in document["advice"]]
    assert calls[:2] == ["rn.certify", "rn.normalize"]
    assert "7 units" not in " ".join(moons.advice)  # said once, by the removal
    assert "removal" in repr(moons)


def test_the_maps_listed_are_those_of_the_network(moons: rn.Report) -> None:
    cells = moons.sections["regions"]["body"]["cells"]
    net = rn.load("example:moons")
    for k in range(0, 745, 37):
        corners = np.array(cells["corners"][k]).reshape(-1, 2)
        middle = corners.mean(axis=0)
        region = rn.region_at(net, middle)
        assert np.packbits(region.pattern).tobytes().hex() == cells["patterns"][k]
        A, c = region.affine
        np.testing.assert_allclose(cells["A"][k], A, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cells["c"][k], c, rtol=1e-9, atol=1e-9)


def test_too_many_regions_are_counted_and_drawn_in_a_smaller_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "MAX_DRAWN", 50)
    found = rn.report("example:moons", domain=rn.Box.cube(2, -2, 3), time_limit=60)
    body = check(found.to_dict())["sections"]["regions"]["body"]
    assert body["count"] == {"value": 745, "kind": "exact"}
    x0, x1, y0, y1 = body["plane"]["window"]
    assert -2 < x0 < x1 < 3
    assert 1 < len(body["cells"]["corners"]) <= 50
    inside = rn.regions(rn.load("example:moons"), rn.Box([x0, y0], [x1, y1]))
    assert len(inside) == len(body["cells"]["corners"])


def test_the_outlines_of_a_deep_network_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "MAX_OUTLINES", 300)
    document = check(rn.report(random_network(2, 6, 6, 6, 6, 1), time_limit=60).to_dict())
    layers = document["sections"]["regions"]["body"]["outlines"]["layers"]
    assert len(layers) == 3
    assert layers[0]
    assert layers[-1] is None


@pytest.mark.parametrize("slice", [None, (3, 1), "points"])
def test_more_than_two_inputs_are_seen_on_a_slice(slice: Any) -> None:
    net = random_network(9, 12, 6)  # nine inputs: the whole domain is not counted
    rng = np.random.default_rng(1)
    points = rng.normal(size=(3, 9))
    plane = points if slice == "points" else slice
    data = None if slice == (3, 1) else rng.normal(size=(60, 9))
    found = rn.report(net, data, slice=plane, time_limit=60)
    document = check(found.to_dict())
    body = document["sections"]["regions"]["body"]
    assert body["type"] == "slice"
    view = body["plane"]
    origin, u, v = (np.array(view[name]) for name in ("origin", "u", "v"))
    assert np.allclose([u @ u, v @ v, u @ v], [1, 1, 0])
    if slice == (3, 1):
        assert u[3] == v[1] == 1
        assert view["labels"] == ["x3", "x1"]
        assert view["window"] == [-1, 1, -1, 1]  # the coordinates themselves
        assert origin[3] == origin[1] == 0
    if slice == "points":
        for point in points:  # the three points lie on the plane and in the window
            s, t = (point - origin) @ u, (point - origin) @ v
            np.testing.assert_allclose(origin + s * u + t * v, point, atol=1e-12)
            window = view["window"]
            assert window[0] <= s <= window[1]
            assert window[2] <= t <= window[3]
    corners = np.array(body["cells"]["corners"][0]).reshape(-1, 2)
    s, t = corners.mean(axis=0)
    inside = origin + s * u + t * v
    A, c = np.array(body["cells"]["A"][0]), np.array(body["cells"]["c"][0])
    np.testing.assert_allclose(A @ [s, t] + c, net(inside)[:4], rtol=1e-9, atol=1e-9)


def test_the_slice_and_the_line_of_many_inputs_can_be_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from relunorm.report import plane

    def fail(*_: Any) -> None:
        raise InvalidInputError("left out: it takes seconds with so many inputs")

    monkeypatch.setattr(lipschitz, "compute", fail)
    net = random_network(100, 6, 1)
    document = check(rn.report(net, time_limit=60).to_dict())
    assert (document["domain"]["lo"], document["domain"]["hi"]) == ([-1] * 100, [1] * 100)
    body, line = (document["sections"][name]["body"] for name in ("regions", "line"))
    origin, u, v = (np.array(body["plane"][name]) for name in ("origin", "u", "v"))
    for k, corners in enumerate(body["cells"]["corners"]):
        at = np.reshape(corners, (-1, 2)).mean(axis=0)
        value = np.array(body["cells"]["A"][k]) @ at + body["cells"]["c"][k]
        np.testing.assert_allclose(net(origin + at @ np.stack([u, v])), value, atol=1e-9)
    for end, k in (("start", 0), ("end", -1)):
        np.testing.assert_allclose(net(line[end]["values"]), line["knots"]["values"][k], atol=1e-9)

    monkeypatch.setattr(plane, "PRINTED", 99)
    document = check(rn.report(net, time_limit=60).to_dict())
    body, line = (document["sections"][name]["body"] for name in ("regions", "line"))
    assert [body["plane"][name] for name in ("origin", "u", "v")] == [None] * 3
    assert line["start"]["values"] is None
    assert document["domain"]["lo"] is None


def test_an_exact_lipschitz_constant_is_one_number() -> None:
    net = rn.load("example:moons")
    box = rn.Box.cube(2, -2, 3)
    body = lipschitz.compute(make_case(net, None, None, box, name="moons"), 60.0)
    found = rn.lipschitz(net, box)
    assert found.lower < found.upper
    assert body["lower"] == body["upper"]
    assert body["upper"]["kind"] == "exact"
    ends = {row["side"]: row["value"] for row in body["bounds"]["rows"]}
    assert ends["lower"] < ends["upper"]  # both stand among the bounds


def test_integer_programs_say_what_to_c_proves() -> None:
    net, box = random_network(2, 5, 5, 3), rn.Box.cube(2)
    x = box.sample(200, 0)
    labels = net(x).argmax(axis=1).astype(str)
    case = make_case(net, x, labels, box, name="net", classes=["0", "1", "2"])
    for row in program.compute(case, 60.0)["programs"]["rows"]:
        made = rn.to_c(net, box, bits=row["bits"], shrink=False, parts=16, samples=500)
        assert row["sizes"]["tables"] == made.flash
        assert row["moves"]["proved"]["value"] == made.epsilon
        ours = made.program.predict(x)
        assert row["on_data"]["largest"] == np.abs(ours - net(x)).max()
        same = (ours.argmax(axis=1) == net(x).argmax(axis=1)).sum()
        assert row["on_data"]["same_class"] == same
    late = program.compute(case, 0.0)
    assert [row["bits"] for row in late["programs"]["rows"]] == [8]
    assert late["partial"]


def test_a_network_that_integers_cannot_hold_says_so() -> None:
    net = rn.Network.from_weights([np.array([[1e80]]), np.array([[1.0]])])
    case = make_case(net, None, None, rn.Box([-1e90], [1e90]), name="net")
    rows = program.compute(case, 60.0)["programs"]["rows"]
    assert all(row["sizes"] is None and row["why"] for row in rows)


def test_layers_are_counted_while_there_is_time() -> None:
    found = rn.regions(random_network(2, 5, 5, 1), rn.Box.cube(2))
    counted = regions._counts(found, Clock(60))["per_layer"]["values"]
    assert counted == [len(found.layer(1)[0]), len(found)]
    late = regions._counts(found, Clock(0))["per_layer"]["values"]
    assert late == [None, len(found)]


def test_data_that_does_not_fit_a_module_is_said() -> None:
    nn = pytest.importorskip("torch.nn")
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(InvalidInputError, match=r"shape \(5, 4\), expected .*\(n, 3\)"):
        rn.report(module, np.zeros((5, 4)))
    with pytest.raises(InvalidInputError, match="the data: not an array of numbers"):
        rn.report(module, [[1.0, 2.0, 3.0], [1.0]])
    open_shape = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.ReLU(), nn.Linear(8, 1))
    found = rn.report(open_shape, np.zeros((2, 1, 4, 4)), time_limit=2)
    assert found.sections["network"]["body"]["inputs"]["value"] == 16


def test_one_input_is_a_function_with_knots() -> None:
    net = random_network(1, 7, 1)
    document = check(rn.report(net, domain=rn.Box([-2.0], [3.0]), time_limit=60).to_dict())
    line = document["sections"]["line"]["body"]
    assert line["one_input"]
    at, values = line["knots"]["at"], np.array(line["knots"]["values"])
    assert (at[0], at[-1]) == (-2, 3)
    np.testing.assert_allclose(net(np.array(at)[:, None]), values, atol=1e-12)
    assert document["sections"]["regions"]["body"]["count"]["value"] == line["pieces"]["value"]


def test_the_domain_is_said_where_it_was_chosen() -> None:
    net = random_network(2, 3, 1)
    assumed = check(rn.report(net, time_limit=60).to_dict())
    assert assumed["domain"]["from"] == "default"
    assert "Give data with a target" in assumed["advice"][0]["text"]
    assert "No domain was given" in assumed["advice"][1]["text"]
    data = np.array([[0.0, -1.0], [2.0, 5.0], [1.0, 1.0]])
    found = check(rn.report(net, data, time_limit=60).to_dict())
    assert found["domain"]["from"] == "data"
    assert (found["domain"]["lo"], found["domain"]["hi"]) == ([0, -1], [2, 5])


def test_the_sections_share_one_stability_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def counted(*arguments: Any, time_limit: float, **options: Any) -> Stability:
        limits.append(time_limit)
        found = stability(*arguments, time_limit=time_limit, **options)
        return replace(found, complete=len(limits) > 1)

    monkeypatch.setattr("relunorm.stability.stability", counted)
    case = make_case(random_network(2, 3, 1), None, None, None, name="")
    by_name = {section.name: section for section in SECTIONS}
    assert by_name["units"].compute(case, 1.0)["units"]["value"] == 3
    by_name["removal"].compute(case, 2.0)  # the first one ran out of time
    by_name["removal"].compute(case, 2.0)
    assert limits == [0.7, 1.0]


def labelled() -> tuple[rn.Network, np.ndarray, np.ndarray]:
    """A network, rows and labels for which every section has an answer."""
    data = np.random.default_rng(0).normal(size=(5, 2))
    net = random_network(2, 3, 2)
    return net, data, np.array(["a", "b"])[net(data).argmax(axis=1)]


@pytest.fixture(scope="module")
def bodies() -> dict[str, dict[str, Any]]:
    """What the sections of `labelled` compute."""
    case = make_case(*labelled(), None, name="")
    return {section.name: section.compute(case, 60.0) for section in SECTIONS}


def report_without(name: str, error: Exception) -> None:
    """A report in which one section fails has all others, and says how to get that one."""

    def fail(*_: Any) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module(f"relunorm.report.sections.{name}"), "compute", fail)
        document = check(rn.report(*labelled(), time_limit=60).to_dict())
    for other, entry in document["sections"].items():
        assert entry["status"] == ("not computed" if other == name else "done")
    failed = document["sections"][name]
    assert failed["why"]
    assert failed["call"] in [item["call"] for item in document["advice"]]


@pytest.mark.parametrize("name", [section.name for section in SECTIONS])
def test_a_section_that_fails_leaves_the_others(name: str) -> None:
    report_without(name, InvalidInputError("of itself"))


@pytest.mark.parametrize("name", [section.name for section in SECTIONS])
@pytest.mark.parametrize("error", [KeyError("odd"), MemoryError()])
def test_whatever_ends_a_section_is_told_in_its_place(
    name: str,
    error: Exception,
    bodies: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other sections are those computed before, as one that fails changes nothing in them."""
    for other, body in bodies.items():
        section = import_module(f"relunorm.report.sections.{other}")
        monkeypatch.setattr(section, "compute", lambda *_, body=body: deepcopy(body))
    report_without(name, error)


@pytest.mark.parametrize("caught", [False, True], ids=["raised", "caught by the room"])
def test_an_interrupt_keeps_what_was_found(caught: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> dict[str, Any]:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if not caught:
                raise
        raise InvalidInputError("stopped early")

    monkeypatch.setattr(regions, "compute", interrupt)
    document = check(rn.report(random_network(2, 3, 1), time_limit=60).to_dict())
    assert document["time"]["interrupted"]
    for name in ("units", "removal", "line"):
        assert document["sections"][name]["status"] == "done"
    why = "stopped early" if caught else "interrupted"
    assert document["sections"]["regions"]["why"] == why
    for name in ("geometry", "lipschitz", "program"):
        assert document["sections"][name]["why"] == "interrupted"
    told = [item["text"] for item in document["advice"]]
    assert any(text.startswith("Without the interruption the report would") for text in told)


def test_a_flat_domain_has_counts_but_no_picture() -> None:
    box = rn.Box([-1.0, 2.0], [1.0, 2.0])
    document = check(rn.report(random_network(2, 5, 1), domain=box, time_limit=60).to_dict())
    body = document["sections"]["regions"]["body"]
    assert body["cells"] is None
    assert body["count"]["value"] == document["sections"]["line"]["body"]["pieces"]["value"]


def test_more_rows_than_are_used_make_estimates() -> None:
    data = np.random.default_rng(0).normal(size=(5000, 2))
    document = check(rn.report(random_network(2, 3, 1), data, time_limit=60).to_dict())
    assert document["data"]["used"] == 4096
    assert document["sections"]["units"]["body"]["dead"]["kind"] == "estimate"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": -1}, "time_limit is -1"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"target": [1.0]}, "a target without data"),
        ({"data": [[1.0, 2.0]], "target": [1.0, 2.0]}, "a target of shape"),
        ({"data": [[1.0, float("nan")]]}, "the data holds NaN or infinite"),
        ({"data": [[1.0, 2.0]], "target": [float("inf")]}, "the target holds NaN or infinite"),
        ({"data": [1.0, 2.0]}, "needs rows"),
        ({"data": np.zeros((0, 2))}, "needs rows"),
        ({"slice": (0, 0)}, "two different coordinates"),
        ({"slice": (0, 7)}, "two different coordinates"),
        ({"slice": np.zeros((3, 5))}, "three inputs of 2 numbers"),
        ({"slice": "01"}, "slice: not an array of numbers|slice of shape"),
        ({"domain": rn.Box.cube(3)}, "3 coordinates"),
        ({"domain": 3}, "expected a Box, Ball or Polytope"),
        ({"data": [[1.0, 2.0]], "target": [[1.0], [1.0, 2.0]]}, "the target: not an array"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rn.errors.RelunormError, match=message):
        rn.report(random_network(2, 3, 1), **options)


def test_code_that_loads_too_long_leaves_no_negative_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(engine: object) -> float:
        time.sleep(0.3)
        return 0.0

    monkeypatch.setattr(Here, "compile", load)
    sections, _ = run_sections(
        make_case(random_network(2, 3, 1), None, None, None, name=""), Clock(0.3)
    )
    assert sections["network"]["status"] == "done"
    for name in ("regions", "units", "removal", "lipschitz"):
        assert sections[name]["why"] == "no time was left of 0.3 s"


def test_without_data_the_geometry_loads_nothing() -> None:
    code = (
        "import relunorm as rn\n"
        "from relunorm.report.case import make_case\n"
        "from relunorm.report.registry import SECTIONS, attempt\n"
        "case = make_case(rn.Network.from_weights([[[1.0]]]), None, None, None, name='')\n"
        "section = next(s for s in SECTIONS if s.name == 'geometry')\n"
        "print(attempt(section, case, 1.0)['why'])\n"
        "import sys\n"
        "print('relunorm.batchnorm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    why, loaded = done.stdout.splitlines()
    assert why.startswith("no data was given")
    assert loaded == "False"


def test_one_row_spans_no_domain() -> None:
    document = check(rn.report(random_network(3, 4, 2), np.ones((1, 3)), time_limit=60).to_dict())
    statuses = {name: entry["status"] for name, entry in document["sections"].items()}
    asked = {name for name, status in statuses.items() if status != "not asked"}
    assert asked == {"network", "units", "geometry"} | (asked & {"quality"})
    texts = [item["text"] for item in document["advice"]]
    assert any("The domain is a single input" in text for text in texts)
    assert not any("reduced network" in text for text in texts)


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_count_that_leaves_thin_regions_out_is_a_bound(inputs: int) -> None:
    """The kinks are 1e-13 apart: three regions, one of them thinner than what is listed."""
    first = np.zeros((2, inputs))
    first[:, 0] = 1.0
    net = rn.Network.from_weights([first, [[1.0, -1.0]]], [[0.0, -1e-13], [0.0]])
    case = make_case(net, None, None, rn.Box.cube(inputs), name="net")
    count = regions.compute(case, 60.0)["count"]
    assert (count["value"], count["kind"], count["side"]) == (2, "bound", "lower")


@pytest.mark.parametrize("rows", [0, 20])
@pytest.mark.parametrize("flat", [(1,), (0, 1)])
def test_a_domain_flat_along_some_inputs_has_a_line_and_counts(
    rows: int, flat: tuple[int, ...]
) -> None:
    lo, hi = -np.ones(3), np.ones(3)
    lo[list(flat)] = hi[list(flat)] = 0.5
    data = np.random.default_rng(0).normal(size=(rows, 3)) if rows else None
    found = rn.report(random_network(3, 6, 2), data, domain=rn.Box(lo, hi), time_limit=60)
    sections = check(found.to_dict())["sections"]
    start, end = (np.array(sections["line"]["body"][at]["values"]) for at in ("start", "end"))
    assert (start[list(flat)] == end[list(flat)]).all()
    assert np.abs(end - start).max() > 0.5
    assert ((lo <= start) & (start <= hi) & (lo <= end) & (end <= hi)).all()
    assert sections["regions"]["body"]["count"]["value"] > 1


def test_outputs_of_rows_beyond_float64_leave_a_document() -> None:
    net = rn.Network.from_weights([np.full((1, 1), 1e5), np.full((1, 1), 1e5)])
    found = rn.report(net, [[1e304], [2e304]], domain=rn.Box.cube(1), time_limit=60)
    row = check(found.to_dict())["sections"]["program"]["body"]["programs"]["rows"][0]
    assert row["on_data"]["largest"] is None


def test_commands_name_the_domain_to_the_last_digit() -> None:
    net = rn.Network.from_weights([np.array([[1.0, 0.0]]), np.ones((1, 1))])  # one input is unused
    box = rn.Box.cube(2, -0.123456789, 3.0)
    commands = [item["command"] for item in rn.report(net, domain=box).to_dict()["advice"]]
    assert "relunorm sensitivity MODEL --domain box:-0.123456789,3" in commands


def test_the_target_may_be_a_column_of_the_data_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.0, -2, 3], "kind": ["up", "down", "up"]})
    net = rn.Network.from_weights([[[-1.0], [1.0]]])
    found = rn.report(net, table, "kind", time_limit=1).to_dict()["data"]
    assert (found["target"], found["columns"]) == ("kind", 1)
    assert sorted(found["classes"]["names"]) == ["down", "up"]
    assert list(table.columns) == ["a", "kind"]
    for data, told in ((table, "no column 'kin'; it has a, kind"), ([[1.0]], "no DataFrame")):
        with pytest.raises(InvalidInputError, match=told):
            rn.report(net, data, "kin", time_limit=1)
