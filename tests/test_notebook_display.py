"""Results in a notebook: every public function's result has a table and a picture."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import relunorm as rn
from relunorm.stability import stability

NET = rn.load("example:moons")
SMALL = rn.Network.from_weights([[[1.0, 0.5], [-1.0, 1.0], [0.0, 1.0]], [[1.0, 1.0, -1.0]]])
BOX = rn.Box.cube(2)
X = BOX.sample(40, 0)
PROPERTY = """
(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)
(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))(assert (>= Y_0 99))
"""


def _written(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".vnnlib", delete=False) as file:
        file.write(text)
    return file.name


RESULTS: dict[str, Callable[[], Any]] = {
    "along": lambda: rn.along(SMALL, [-1, -1], [1, 1]),
    "basin": lambda: rn.dying.basin(1.0, 0.0, grid=9),
    "certify": lambda: rn.certify(SMALL, X[:3]),
    "check": lambda: rn.check(SMALL, _written(PROPERTY)),
    "compare": lambda: rn.compare(SMALL, SMALL, BOX),
    "decide": lambda: rn.decide(SMALL, BOX, [[1.0]], [5.0]),
    "diagnose": lambda: rn.diagnose(SMALL, X, domain=BOX),
    "geometry": lambda: rn.geometry(SMALL, X),
    "lipschitz": lambda: rn.lipschitz(SMALL, BOX),
    "load": lambda: NET,
    "maximize": lambda: rn.maximize(SMALL, BOX, 0),
    "normalize": lambda: rn.normalize(SMALL, "minimal", BOX),
    "on_plane": lambda: rn.on_plane(
        rn.Network.from_weights([np.eye(3), np.ones((1, 3))]), [0, 0, 0], [1, 0, 0], [0, 1, 1]
    ),
    "region_at": lambda: rn.region_at(SMALL, [0.1, 0.2]),
    "regions": lambda: rn.regions(SMALL, BOX),
    "regions of one input": lambda: rn.regions(
        rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]]), rn.Box.cube(1)
    ),
    "sensitivity": lambda: rn.sensitivity(SMALL, BOX),
    "stability": lambda: stability(SMALL, BOX),
    "to_c": lambda: rn.to_c(SMALL, BOX, bits=16),
    "verify": lambda: rn.verify(
        rn.normalize(SMALL, "minimal", BOX).certificate,  # type: ignore[arg-type]
        SMALL,
        rn.normalize(SMALL, "minimal", BOX).network,
    ),
}


class Balanced(HTMLParser):
    """Fails on tags that do not close; collects the texts."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_a_table_and_a_picture(name: str) -> None:
    from matplotlib.figure import Figure

    found = RESULTS[name]()
    shown = Balanced(found._repr_html_())
    assert repr(found) in shown.texts
    assert len(shown.texts) > 2, "nothing but its line"
    drawn = found.plot()
    assert isinstance(drawn, Figure)
    assert any(axes.has_data() for axes in drawn.axes)
    whole = Figure()
    axes = whole.add_subplot()
    assert found.plot(ax=axes) is whole
    assert axes.has_data()


def test_a_monitored_training_run_has_a_picture() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    with rn.DeadUnitMonitor(model) as monitor:
        model(torch.zeros(3, 2))
    assert monitor.report().plot().axes[0].has_data()
    assert repr(monitor.report()) in Balanced(monitor.report()._repr_html_()).texts


def test_texts_of_a_result_stay_text() -> None:
    network = rn.Network.from_weights([[[1.0]]], origin="<script>alert(1)</script>")
    assert "<script>" not in network._repr_html_()


def test_a_report_shows_itself_in_a_frame() -> None:
    shown = rn.report(SMALL, domain=BOX, time_limit=2)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count("<") == 2


def test_only_public_names_are_listed_and_each_has_help() -> None:
    assert set(dir(rn)) == set(rn.__all__)
    for name in rn.__all__:
        value = getattr(rn, name)
        if not name.startswith("__"):
            assert inspect.getdoc(value), f"{name} has no help"
        if callable(value):
            assert inspect.signature(value) is not None


@pytest.mark.parametrize("name", ["regions", "lipschitz", "report", "sweep"])
def test_functions_stay_functions_when_their_packages_are_imported(name: str) -> None:
    from importlib import import_module

    home = {"regions": "regions.views.plot", "lipschitz": "lipschitz.front"}
    import_module(f"relunorm.{home.get(name, f'{name}.{name}')}")
    assert inspect.isfunction(getattr(rn, name))
    assert "time_limit" in inspect.signature(getattr(rn, name)).parameters
