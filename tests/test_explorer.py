"""The explorer of the documentation, in a real browser: its arithmetic against the library's."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import relunorm as rn
from relunorm.dying import basins

DOCS = Path(__file__).resolve().parents[1] / "docs"
MATH = ("unit_math", "tree_math", "shallow_math")


@pytest.fixture(scope="module")
def browser_page():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install Debian's chromium to run page tests")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.goto("about:blank")
        for name in MATH:
            page.add_script_tag(path=DOCS / "_static" / "explorer" / f"explorer_{name}.js")
        yield page
        browser.close()


BASIN = """([gamma, beta, eta, grid]) => {
  const m = relunormExplorer.unitMath;
  const units = m.gridUnits({ gamma, beta, eta, grid });
  while (units.alive.length && units.steps < 180000) units.advance(100);
  return [...units.w.keys()].map((i) => units.classOf(i));
}"""


@pytest.mark.parametrize(
    ("gamma", "beta", "eta"), [(1.0, 0.0, 0.1), (0.3, 0.9, 0.1), (1.0, 0.5, 0.5)]
)
def test_the_basin_map_is_the_librarys(browser_page, gamma, beta, eta):
    ours = rn.dying.basin(gamma, beta, eta, grid=15).classes.ravel()
    theirs = np.array(browser_page.evaluate(BASIN, [gamma, beta, eta, 15]))
    np.testing.assert_array_equal(theirs, ours)


def test_the_cones_and_firing_probability(browser_page):
    for epsilon in (1e-4, 1e-2, 0.1):
        found = browser_page.evaluate("e => relunormExplorer.unitMath.deadBelow(e)", epsilon)
        assert found == pytest.approx(basins.dead_below(epsilon), rel=1e-10)
    heights = np.linspace(-11, 11, 301)
    found = browser_page.evaluate("h => h.map(relunormExplorer.unitMath.firing)", heights.tolist())
    np.testing.assert_allclose(
        found, basins.firing_probability(np.ones((301, 1)), heights), rtol=1e-10
    )


def test_a_traced_path_ends_where_the_library_ends(browser_page):
    rule = {"gamma": 0.5, "beta": 0.8, "eta": 0.1}
    found = browser_page.evaluate(
        "rule => relunormExplorer.unitMath.trace(-1.2, 1.7, rule)", {**rule}
    )
    path = rn.dying.trajectory(-1.2, 1.7, 0.5, eta=0.1, beta=0.8, steps=found["steps"])
    np.testing.assert_allclose(found["path"][-1], [path.w[-1, 0], path.b[-1]], atol=1e-5)


@pytest.mark.parametrize("batch", [[0, 1, 3, 9], [5, -2, 0.5, 0.25, 7, 7, 1], [1, 2]])
def test_the_tree_is_the_librarys(browser_page, batch):
    depth = 7
    found = browser_page.evaluate(
        """([batch, depth]) => {
          const m = relunormExplorer.treeMath;
          const rows = m.layers(batch, depth)[depth];
          return { ...m.geometry(rows), excess: m.excess(rows) };
        }""",
        [batch, depth],
    )
    tree = rn.batchnorm.Tree([Fraction(x) for x in batch], exact=True).run(depth)
    np.testing.assert_allclose(found["norms"], tree.norms(), atol=1e-12)
    assert found["excess"] == tree.clusters().excess[0]
    angles = np.degrees(tree.angles())
    for pair in found["angles"]:
        if pair["degrees"] is not None:
            assert pair["degrees"] == pytest.approx(angles[pair["i"], pair["j"]], abs=1e-5)


def shallow(rng, units):
    w = rng.normal(size=(units, 2))
    b = rng.normal(size=units)
    v = rng.normal(size=units)
    b[0] = -5.0  # never on
    b[1] = 5.0  # always on
    w[3], b[3] = -2 * w[2], -2 * b[2]  # the same line, turned round
    return w, b, v


@pytest.mark.parametrize("seed", range(5))
def test_cells_and_canonical_form_of_a_shallow_network(browser_page, seed):
    rng = np.random.default_rng(seed)
    w, b, v = shallow(rng, 6)
    units = [{"w": list(w[i]), "b": b[i], "v": v[i]} for i in range(6)]
    found = browser_page.evaluate(
        """units => ({
          cells: relunormExplorer.shallowMath.regions(units),
          form: relunormExplorer.shallowMath.canonical(units),
          signed: units.map(relunormExplorer.shallowMath.signed),
        })""",
        units,
    )
    net = rn.Network.from_weights([w, v[None]], [b, np.zeros(1)])
    box = rn.Box.cube(2, -1, 1)
    assert len(found["cells"]) == len(rn.regions(net, box))
    assert len(found["form"]["lines"]) == rn.normalize(net, "canonical", box).network.units
    x = box.sample(200, random_state=seed)
    form = found["form"]
    again = x @ np.array(form["A"]) + form["c"]
    for line in form["lines"]:
        again += line["gamma"] * np.maximum(x @ np.array(line["n"]) + line["beta"], 0)
    np.testing.assert_allclose(again, net(x)[:, 0], atol=1e-9)
    for cell in found["cells"]:
        p = np.mean(cell["polygon"], axis=0)
        matrix, offset = rn.region_at(net, p).affine
        np.testing.assert_allclose(cell["A"], matrix[0], atol=1e-9)
        np.testing.assert_allclose(cell["c"], offset[0], atol=1e-9)
    outgoing = {unit["v"] for unit in found["signed"]}
    assert outgoing <= {-1, 0, 1}
    signed = rn.Network.from_weights(
        [[unit["w"] for unit in found["signed"]], [[unit["v"] for unit in found["signed"]]]],
        [[unit["b"] for unit in found["signed"]], [0.0]],
    )
    np.testing.assert_allclose(signed(x), net(x), atol=1e-12)


def test_the_explorer_answers_every_control(browser_page, tmp_path):
    block = (DOCS / "explorer.md").read_text().split("```{raw} html\n")[1].split("```")[0]
    path = tmp_path / "explorer.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><base href="{DOCS.as_uri()}/">{block}')
    page = browser_page.context.browser.new_page()
    trouble = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(path.as_uri())
    assert page.locator(".ex-panel").count() == 3
    unit, tree, shallow = page.locator(".ex-panel").all()
    page.wait_for_selector(".ex-map[data-done=true]")
    shares, path = (unit.locator("[role=status]").nth(k) for k in (0, 1))
    said = {shares.inner_text()}
    for slider in unit.locator("input[type=range]").all():
        slider.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".ex-map[data-done=true]")
        said.add(shares.inner_text())
    assert len(said) == 4
    before = path.inner_text()
    unit.locator(".ex-plot").click(position={"x": 40, "y": 60})
    clicked = path.inner_text()
    page.keyboard.press("ArrowLeft")
    assert len({before, clicked, path.inner_text()}) == 3
    unit.locator("select").select_option("0.1")

    drawn = tree.locator(".ex-strip").count()
    tree.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert tree.locator(".ex-strip").count() == 2 * drawn + 1
    tree.locator("input[type=text]").fill("1, two")
    assert "not a number" in tree.inner_text()
    assert tree.locator("svg, .ex-bars").count() == 0  # nothing is left of the tree before
    tree.locator("input[type=text]").fill("1, 2")
    assert (
        "Points 1, 2 have the largest norm; the angle between the two is 90°" in tree.inner_text()
    )
    assert "none" not in tree.inner_text()
    tree.locator("input[type=text]").fill("1, 2, 8")
    assert "Point 3 has the largest norm" in tree.inner_text()

    formula = shallow.locator(".ex-formula")
    written = {formula.inner_text()}
    grip = shallow.locator("[role=button]").nth(1)
    grip.focus()
    page.keyboard.press("ArrowUp")
    written.add(formula.inner_text())
    page.keyboard.press("Shift+ArrowRight")
    written.add(formula.inner_text())
    box = grip.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 30)
    page.mouse.up()
    written.add(formula.inner_text())
    assert len(written) == 4
    assert "bias b" in shallow.inner_text()
    shallow.locator("select").select_option("signed")
    assert {cell.inner_text() for cell in shallow.locator("tbody td:nth-child(4)").all()} <= {
        "1",
        "\u22121",
    }
    page.close()
    assert not trouble
