"""The page in a real browser: nothing fetched, nothing broken, and it says what rn says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from report.validation import random_network

import relunorm as rn
from relunorm.report.sections import robustness

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

TABS = [
    "overview", "robustness", "sensitivity", "regions", "removal", "units", "lipschitz", "geometry",
    "program", "layers",
]  # fmt: skip
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


#: What is wider than its place, and could only be seen by scrolling sideways.
CUT = """() => [...document.querySelectorAll("main .scroll, main figure, main .card")]
  .filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.textContent.slice(0, 40))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None
    )
    with sync_api.sync_playwright() as play:
        program = program or play.chromium.executable_path
        if not Path(program).exists():
            pytest.skip("no Chromium is installed: the page is not opened in a browser")
        opened = play.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


class Opened:
    """A page, with everything it complained about or asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any):
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append(dialog.message))
        self.page.on("request", self._asked)
        self.address = path.resolve().as_uri()
        self.page.goto(self.address)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.trouble.append(f"asked for {request.url}")

    @property
    def tabs(self) -> list[str]:
        """Those that are there: what was not asked has none."""
        return [tab for tab in TABS if self.page.locator(f"#tab-{tab}").count()]

    def show(self, tab: str) -> None:
        self.page.click(f"#tab-{tab}")
        assert self.page.is_visible(f"#{tab}")

    def close(self) -> None:
        self.context.close()
        assert not self.trouble


@pytest.fixture(scope="module")
def demo(moons: rn.Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    moons.save(path)
    return path


@pytest.mark.parametrize(
    "context",
    [
        {"viewport": {"width": 1280, "height": 900}},
        {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
        {"viewport": {"width": 320, "height": 640}},
    ],
    ids=["desktop", "phone, dark", "small phone"],
)
def test_every_tab_opens_and_fits(browser: Any, demo: Path, context: dict[str, Any]) -> None:
    opened = Opened(browser, demo, **context)
    page = opened.page
    assert opened.tabs == TABS
    for tab in opened.tabs:
        opened.show(tab)
        assert page.locator('[role="tabpanel"]:visible').count() == 1
        assert "[object" not in page.inner_text("main")
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{tab} is wider than the screen by {wide} pixels"
        cut = page.evaluate(CUT)
        assert not cut, f"{tab}: {cut} cannot be seen whole"
    paper = [page.evaluate("getComputedStyle(document.body).backgroundColor")]
    page.click("button.theme")
    paper.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = "rgb(247, 247, 244)", "rgb(18, 22, 26)"
    assert paper == ([dark, light] if context.get("color_scheme") == "dark" else [light, dark])
    opened.close()


def test_pointing_shows_the_map_that_region_at_gives(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo, viewport={"width": 1100, "height": 1000})
    page = opened.page
    opened.show("regions")
    canvas = page.locator("#region-map")
    box = canvas.bounding_box()
    net = rn.load("example:moons")
    for share in ((0.3, 0.3), (0.55, 0.41), (0.8, 0.7), (0.45, 0.62)):
        page.mouse.move(box["x"] + share[0] * box["width"], box["y"] + share[1] * box["height"])
        shown = page.locator("#affine-map")
        x = [float(shown.get_attribute(name)) for name in ("data-x", "data-y")]
        region = rn.region_at(net, x)
        (A,), (c,) = region.affine
        np.testing.assert_allclose(json.loads(shown.get_attribute("data-a")), A, rtol=1e-9)
        np.testing.assert_allclose(float(shown.get_attribute("data-c")), c, rtol=1e-9)
        read = shown.inner_text().replace("\u2212", "-").replace("\u00a0", " ").split(" ")
        written = [float(read[0]), float(read[2] + read[3]), float(read[5] + read[6])]
        np.testing.assert_allclose(written, [*A, c], rtol=1e-6)
        bits = "".join(page.locator("#region-readout .bits code").all_inner_texts())
        assert bits == "".join(str(int(bit)) for bit in region.pattern)
    opened.close()


def test_keys_controls_and_slider_of_the_map(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo, viewport={"width": 1100, "height": 1000})
    page = opened.page
    opened.show("regions")
    page.focus("#region-map")
    seen = {page.inner_text("#region-readout h4")}
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        seen.add(page.inner_text("#region-readout h4"))
    assert len(seen) > 2
    pictures = set()

    def picture() -> None:
        pictures.add(page.evaluate("document.getElementById('region-map').toDataURL()"))

    picture()
    for layer, words in ((1, "after layer 1 of 2: 206 regions"), (0, "no walls drawn")):
        page.fill("#layer-slider", str(layer))
        assert words in page.inner_text('output[for="layer-slider"]')
        picture()
    page.fill("#layer-slider", "2")
    picture()
    for color in ("gradient", "pattern"):
        page.select_option("#region-color", color)
        picture()
    for box in ("#region-zero", "#region-points"):
        page.click(box)
        picture()
    # every control changes the picture; classes are shown without walls at first, as layer 0 is
    assert len(pictures) == 7
    page.locator('[data-figure="profile"] svg').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "Piece 2 of 40" in page.inner_text("#regions")
    opened.close()


def test_the_keyboard_alone_reaches_every_tab(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo)
    page = opened.page
    page.focus("#tab-overview")
    for tab in [*opened.tabs[1:], opened.tabs[0]]:
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == f"tab-{tab}"
        assert page.is_visible(f"#{tab}")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.id") == "tab-overview"
    opened.show("units")
    page.locator("#units .unit-map").first.focus()
    page.keyboard.press("ArrowRight")
    assert "Unit 0: " in page.inner_text("#units")
    opened.close()


def test_downloads_replay(browser: Any, demo: Path, tmp_path: Path) -> None:
    opened = Opened(browser, demo, accept_downloads=True)
    opened.show("removal")
    saved = {}
    for link in opened.page.locator("a.download").all():
        with opened.page.expect_download() as waiting:
            link.click()
        name = waiting.value.suggested_filename
        waiting.value.save_as(tmp_path / name)
        saved[Path(name).suffix] = tmp_path / name
    assert {".json", ".npz"} <= set(saved)
    for ending in set(saved) - {".json"}:
        command = [sys.executable, "-m", "relunorm", "verify", saved[".json"], "example:moons"]
        done = subprocess.run([*command, saved[ending]], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "holds" in done.stdout
    opened.close()


def test_the_first_screen_of_a_phone_holds_the_answer(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 30))
    net = random_network(30, 8, 3, seed=5)
    labels = np.array(["a", "b", "c"])[net(x).argmax(axis=1)]
    rn.report(net, x, labels, classes=["a", "b", "c"], time_limit=4).save(tmp_path / "phone.html")
    opened = Opened(browser, tmp_path / "phone.html", viewport={"width": 390, "height": 844})
    box = opened.page.locator(".answer").bounding_box()
    assert box["y"] + box["height"] < 500
    assert opened.page.inner_text(".answer .huge") == "100 %"
    opened.page.click(".answer a")  # what to do
    assert opened.page.is_visible("#overview")
    opened.close()


def test_a_shadow_tells_of_tabs_beyond_the_edge(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo, viewport={"width": 390, "height": 844})
    strip = opened.page.locator('[role="tablist"]')

    def shaded() -> list[bool]:
        """Whether the left and the right edge, above the words, differ from the middle."""
        above = imread(BytesIO(strip.screenshot()))[2]
        middle = above[len(above) // 2]
        return [bool(np.abs(above[end] - middle).max() > 0.1) for end in (0, -1)]

    assert shaded() == [False, True]
    strip.evaluate("strip => { strip.scrollLeft = 1e6; }")
    assert shaded() == [True, False]
    opened.close()


def test_print_shows_every_part(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo)
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.page.locator('[role="tabpanel"]:visible').count() == len(opened.tabs)
    assert not opened.page.is_visible('[role="tablist"]')
    assert opened.page.pdf().startswith(b"%PDF")
    opened.close()


@pytest.mark.parametrize("width", [794, 718], ids=["A4", "A4 with margins"])
def test_print_fits_the_paper(browser: Any, demo: Path, width: int) -> None:
    opened = Opened(browser, demo, viewport={"width": width, "height": 1123})
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    cut = opened.page.evaluate(
        """width => [...document.querySelectorAll("table, svg text, p, canvas")]
          .map((node) => [node.textContent.slice(0, 40), node.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0 && (box.left < 0 || box.right > width))
          .map(([text, box]) => `${text}: ${box.left} to ${box.right}`)""",
        width,
    )
    assert not cut
    opened.close()


def test_hostile_names_odd_shapes_and_missing_parts_are_shown(browser: Any, tmp_path: Path) -> None:
    from report.test_report_hostile import NAMES, named_network

    reports = {
        "names": rn.report(named_network(), name=NAMES[0], time_limit=6),
        "affine": rn.report(random_network(2, 1), time_limit=3),
        "one": rn.report(random_network(1, 5, 2), time_limit=3),
        "overflow": rn.report(
            rn.Network.from_weights([1e200 * np.eye(2), 1e200 * np.ones((1, 2))]), time_limit=3
        ),
        "one row": rn.report(random_network(3, 4, 1), np.ones((1, 3)), time_limit=3),
        "many": rn.report(random_network(9, 8, 5), np.eye(9), np.ones(9), time_limit=4),
    }
    for name, found in reports.items():
        path = tmp_path / f"{name}.html"
        found.save(path)
        opened = Opened(browser, path, viewport={"width": 360, "height": 740})
        for tab in opened.tabs:
            opened.show(tab)
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert opened.page.locator("img, iframe, svg[onload]").count() == 0
        if name == "names":
            assert opened.page.inner_text("h1").startswith("</script><img")
        opened.close()


def test_the_page_names_the_classes(browser: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    net = random_network(2, 5, 3, seed=23)
    labels = np.array(["<b>low</b>", "mid", "top"])[net(x).argmax(axis=1)]
    rn.report(net, x, labels, target_name="kind", time_limit=6).save(tmp_path / "classes.html")
    opened = Opened(browser, tmp_path / "classes.html", viewport={"width": 360, "height": 740})
    page = opened.page
    assert "kind: <b>low</b>" in page.inner_text("main")
    assert page.inner_text(".answer .huge") == "100 %"
    assert "30 of 30 rows" in page.inner_text(".answer")
    opened.show("regions")
    names = ["<b>low</b>", "mid", "top"]
    assert page.locator(".legend-place li").all_inner_texts() == names * 2  # territories, marks
    page.select_option("#region-color", "value")
    page.select_option("#region-output", label="2 · top")
    assert "output 2 · top" in page.inner_text(".legend-place")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.show("units")
    assert "classes, which have no scale" in page.inner_text("main")
    opened.close()


def test_long_names_of_classes_fit_a_small_phone(browser: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    net = random_network(2, 5, 3, seed=23)
    labels = np.array([f"{letter} long name of a class, {'and more ' * 3}" for letter in "abc"])
    found = rn.report(net, x, labels[net(x).argmax(axis=1)], time_limit=4)
    found.save(tmp_path / "long.html")
    opened = Opened(browser, tmp_path / "long.html", viewport={"width": 320, "height": 640})
    opened.show("regions")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 320
    word = """select => {
        const range = document.createRange();
        range.selectNodeContents(select.parentElement.firstChild);
        return range.getClientRects().length;
    }"""
    assert opened.page.locator("#region-output").evaluate(word) == 1  # "Output" in one line
    opened.close()


def test_what_cannot_be_counted_or_scaled_is_told(browser: Any, tmp_path: Path) -> None:
    """More classes than outputs, and a bound whose half is no number of float64."""
    tiny = [np.full((3, 2), 1e-200), np.full((1, 3), 1e-200)]
    net = rn.Network.from_weights(tiny, [np.zeros(3), np.ones(1)])
    found = rn.report(net, np.eye(2)[[0, 1, 0]], ["a", "b", "c"], time_limit=4)
    assert found.sections["lipschitz"]["body"]["upper"]["value"] == 5e-324
    found.save(tmp_path / "tiny.html")
    opened = Opened(browser, tmp_path / "tiny.html", viewport={"width": 360, "height": 740})
    told = "The target has 3 classes and the network 1 output: counting right answers"
    assert told in opened.page.inner_text("main")
    for tab in opened.tabs:
        opened.show(tab)
    opened.close()


def test_each_output_has_its_line_and_its_own_order_of_inputs(browser: Any, tmp_path: Path) -> None:
    """Two outputs of different units: neither error is told as that of the target."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    net = rn.Network.from_weights([np.eye(3), [[5.0, 1.0, 0.0], [0.0, -100.0, 900.0]]])
    y = net(x) + np.random.default_rng(1).normal(size=(60, 2)) * [0.1, 300.0]
    rn.report(net, x, y, time_limit=8).save(tmp_path / "two.html")
    opened = Opened(browser, tmp_path / "two.html", viewport={"width": 390, "height": 844})
    page = opened.page
    told = page.inner_text(".answer")
    assert told.startswith("R² ")
    assert "output 1, the worst of 2 outputs" in told
    rms = np.sqrt(((net(x) - y) ** 2).mean(axis=0))
    shown = page.locator('.answer td[data-label="RMSE"]').all_text_contents()
    np.testing.assert_allclose([float(text.replace(",", "")) for text in shown], rms, rtol=0.01)
    opened.show("sensitivity")
    order = page.locator("#sensitivity svg .name").all_text_contents
    assert order() == ["x0", "x1", "x2"]
    assert "2 inputs can only increase output 0; 1 input is never used" in page.inner_text("main")
    page.select_option("#sensitivity-output", "1")
    assert order()[:2] == ["x2", "x1"]
    lead = page.inner_text("#sensitivity .lead")
    assert "1 input can only increase output 1; 1 input can only decrease output 1" in lead
    opened.close()


def test_a_class_that_is_never_found_is_not_green(browser: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    net = rn.Network.from_weights([np.eye(2), np.zeros((2, 2))], [np.zeros(2), [1.0, 0.0]])
    labels = np.repeat(["ok", "fraud"], [50, 10])
    found = rn.report(net, x, labels, classes=["ok", "fraud"], time_limit=5)
    found.save(tmp_path / "green.html")
    opened = Opened(browser, tmp_path / "green.html", viewport={"width": 390, "height": 844})
    page = opened.page
    matrix = page.locator('[data-figure="confusion"] svg')
    assert matrix.locator("rect").evaluate_all("all => all.map((r) => r.className.baseVal)") == [
        "cell right", "cell", "cell wrong", "cell",
    ]  # fmt: skip
    assert {"true class", "answer"} <= set(matrix.locator("text").all_text_contents())
    told = page.inner_text(".answer")
    assert "No better than always answering ok: 83.3 %." in told
    assert "Of class fraud, 0 of 10 rows are found (0 %)" in told
    opened.close()


def test_what_is_proved_is_drawn_as_steps(browser: Any, demo: Path) -> None:
    opened = Opened(browser, demo)
    opened.show("robustness")
    for k in (0, 1):
        path = opened.page.locator(f'[data-figure="robustness"] path.curve-{k}').get_attribute("d")
        assert "L" not in path
        assert {"H", "V"} <= set(path)
    opened.close()


def test_few_rows_are_told_before_what_they_show(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robustness, "MOST_ROWS", 4)
    net = rn.Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0], [-1.0, 1.0]]])
    found = rn.report(net, np.linspace(1, 2, 60)[:, None], ["a"] * 59 + ["b"], time_limit=5)
    half = found.sections["robustness"]["body"]["median"]["value"]
    found.save(tmp_path / "few.html")
    opened = Opened(browser, tmp_path / "few.html")
    opened.show("robustness")
    told = opened.page.inner_text("#robustness .lead")
    assert told.startswith("Only 4 of 60 rows were looked at. Half of the 4 rows looked at are")
    shown = float(told.partition("moves by up to ")[2].split()[0].rstrip("."))
    assert half * 0.99 <= shown <= half
    opened.show("overview")
    assert "on 4 of 60 rows" in opened.page.inner_text("main")
    opened.close()
