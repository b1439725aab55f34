"""Models made to break the report: it stays within its budgets, its folder and its page."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from report.validation import check, random_network

import relunorm as rn
from relunorm.clock import Clock
from relunorm.network import Affine, Layer, Network
from relunorm.report import runner
from relunorm.report.case import make_case
from relunorm.report.runner import Apart
from relunorm.report.sections import regions
from relunorm.report.sections.removal import safe_stem

#: A section that needs no data.
LINE = next(section for section in runner.SECTIONS if section.name == "line")

NAMES = [
    "</script><img src=x onerror=alert(1)>",
    "../../../etc/passwd",
    "a\u2028b\u2029c\x00\ud800",
    "x" * 5000,
    '"><svg onload=alert(1)>',
]


def named_network() -> Network:
    rng = np.random.default_rng(0)
    layers = [
        Layer(Affine({k: rng.normal(size=(4, 2 if k == 0 else 4))}, rng.normal(size=4)), name=name)
        for k, name in enumerate(NAMES)
    ]
    output = Affine({len(NAMES): rng.normal(size=(1, 4))}, np.zeros(1))
    return Network(layers, output, input_shape=2, origin=NAMES[0])


def test_names_stay_text(tmp_path: Path) -> None:
    found = rn.report(named_network(), name=NAMES[0], time_limit=8)
    check(found.to_dict())
    page = found.html()
    assert "<img" not in page
    assert "<svg" not in page
    assert not {"\u2028", "\u2029", "\x00"} & set(page)
    assert page.count("</script>") == page.count("<script")
    found.save(tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("name", [*NAMES, "", ".", "..", "C:\\x\\..", "CON.onnx/../..", "-rf"])
def test_file_names_cannot_leave_the_folder(name: str) -> None:
    stem = safe_stem(name)
    assert stem == Path(stem).name
    assert stem[:1] not in ("", ".", "-")
    assert len(stem) <= 60


@pytest.mark.parametrize(
    "net",
    [
        random_network(2, 1),
        random_network(3, 2),
        Network.from_weights([np.ones((4, 2)), np.zeros((1, 4))]),
        Network.from_weights([1e150 * np.ones((4, 2)), 1e100 * np.ones((1, 4))]),
        Network.from_weights([1e200 * np.eye(2), 1e200 * np.ones((1, 2))]),
        Network.from_weights([np.eye(3), np.ones((2, 3))], activation="step"),
        Network([Layer(Affine({}, np.ones(3)))], Affine({}, np.ones(2)), input_shape=2),
    ],
    ids=["no layer", "no layer, three inputs", "constant", "huge", "overflow", "steps", "no input"],
)
def test_odd_networks_have_a_report(net: Network) -> None:
    data = np.random.default_rng(0).normal(size=(30, net.input_size))
    found = rn.report(net, data, data[:, 0], time_limit=5)
    check(found.to_dict())
    assert "<main" not in found.html()  # drawn by the page, not written into it


def test_very_many_outputs_are_not_listed() -> None:
    net = random_network(2, 3, 100_000)
    body = regions.compute(make_case(net, None, None, None, name="wide"), 60.0)
    assert body["outputs"] == {"kind": "exact", "shown": 4, "of": 100_000}
    assert np.shape(body["cells"]["A"])[1:] == (4, 2)
    found = rn.report(net, time_limit=2)
    check(found.to_dict())
    assert len(found.html()) < 1e6


def test_a_layer_of_a_million_units_ends_within_the_budgets() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(1_000_000, 2)), rng.normal(size=(1, 1_000_000))]
    found = rn.report(Network.from_weights(weights), time_limit=1.5)
    document = check(found.to_dict())
    for entry in document["sections"].values():  # which of them end in time is the machine's affair
        assert entry["status"] != "not computed" or entry["why"]
    assert document["sections"]["removal"]["body"] is None
    assert len(found.html()) < 1e6


@pytest.mark.parametrize(
    ("widths", "rows"),
    [((2, 3000, 1), 0), ((2, 12_000, 1), 0), ((2, 400, 400, 400, 1), 0), ((2, 900, 1), 2000)],
    ids=["wide", "wider", "wide and deep", "many values"],
)
def test_what_may_take_long_is_looked_at_in_a_process_that_can_be_killed(
    widths: tuple[int, ...], rows: int
) -> None:
    data = np.zeros((rows, 2)) if rows else None
    assert not runner.is_small(make_case(random_network(*widths), data, None, None, name="x"))
    assert runner.is_small(make_case(random_network(2, 30, 30, 1), data, None, None, name="x"))


def test_nan_weights_are_refused_with_a_reason() -> None:
    with pytest.raises(rn.errors.InvalidNetworkError, match="NaN or infinite"):
        rn.report(Network.from_weights([[[np.nan]], [[1.0]]]))


def test_a_process_of_its_own_gives_the_same_and_can_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case(random_network(2, 3, 1), None, None, None, name="small")
    here, _ = runner.run_sections(case, Clock(60))
    monkeypatch.setattr(runner, "SMALL", 0)
    apart, _ = runner.run_sections(case, Clock(60))
    for name in ("regions", "line", "units"):
        assert apart[name]["body"] == here[name]["body"]
    engine = Apart(case)
    assert engine.run(runner.SECTIONS[0], 60.0, 60.0)["status"] == "done"
    worker = engine.worker
    assert worker is not None
    with monkeypatch.context() as patch:
        patch.setattr(runner, "HANDING_OVER", 0.0)
        killed = engine.run(runner.SECTIONS[-1], 1.0, 0.0)
    assert killed["status"] == "not computed"
    assert killed["why"].startswith("it needs more time than the")
    assert worker._process.poll() is not None
    engine.close()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="signals of POSIX")
def test_a_section_that_hangs_is_replaced_while_it_is_waited_for() -> None:
    case = make_case(random_network(2, 3, 1), None, None, None, name="small")
    engine = Apart(case)
    assert engine.run(runner.SECTIONS[0], 60.0, 60.0)["status"] == "done"
    hung = engine.worker
    assert hung is not None
    hung._process.send_signal(signal.SIGSTOP)  # as if it never ended
    lost = engine.run(LINE, 0.05, 60.0)
    assert lost["status"] == "not computed"
    assert hung._process.poll() is not None
    assert engine.spare is not None
    spare = engine.spare
    assert engine.run(LINE, 60.0, 60.0)["status"] == "done"
    assert engine.worker is spare
    engine.close()
    assert spare._process.poll() is not None
