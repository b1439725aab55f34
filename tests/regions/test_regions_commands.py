"""``relunorm regions`` and ``relunorm region``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from relunorm import Box, Network, load_regions, on_plane, regions, save
from relunorm.cli import app, main
from relunorm.errors import RelunormError, UnsupportedFormatError
from relunorm.network.head import Head, Step

from .nets import he_net


@pytest.fixture
def model(tmp_path):
    def write(name):
        weights, biases = he_net(name).weights()
        arrays = {f"W{i}": w for i, w in enumerate(weights)}
        arrays.update({f"b{i}": b for i, b in enumerate(biases)})
        np.savez(tmp_path / f"{name}.npz", **arrays)
        return str(tmp_path / f"{name}.npz")

    return write


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_regions_json_and_files(model, tmp_path):
    out = tmp_path / "found.npz"
    result = run("regions", model("2-16-16"), "--json", "-o", str(out), "--statistics")
    document = json.loads(result.stdout)
    assert document["regions"] == 248
    assert document["complete"]
    assert document["regions_per_layer"] == [80, 248]
    assert document["statistics"]["mean_degree"] < 4
    assert len(load_regions(out)) == 248
    picture = tmp_path / "found.svg"
    assert run("regions", model("2-16-16"), "-o", str(picture), "--color", "layer").exit_code == 0
    assert picture.read_text().startswith("<?xml")


def test_regions_surface_and_limits(model, tmp_path):
    surface = tmp_path / "surface.obj"
    result = run("regions", model("3-16-16"), "-o", str(surface), "--level", "0.2", "--quiet")
    assert result.exit_code == 0
    assert "2,757 regions" in result.stdout
    assert surface.read_text().startswith("v ")
    none = tmp_path / "none.obj"
    with pytest.raises(RelunormError, match="never takes the value 1e\\+06"):
        run("regions", model("3-16-16"), "-o", str(none), "--level", "1e6", "--quiet")
    assert not none.exists()
    part = run("regions", model("3-16-16"), "--max-regions", "10", "--json")
    document = json.loads(part.stdout)
    assert not document["complete"]
    assert document["regions"] == 10
    whole = run("regions", model("2-16-16"), "--domain", "all", "--json")
    assert json.loads(whole.stdout)["regions"] == 507
    with pytest.raises(UnsupportedFormatError):
        run("regions", model("2-16-16"), "-o", str(tmp_path / "a.xyz"))


def test_region(model, tmp_path):
    x = tmp_path / "x.npy"
    np.save(x, np.array([0.1, 0.2, 0.3]))
    result = run("region", model("3-16-16"), "--at", str(x), "--polytope", "--atoms", "--json")
    document = json.loads(result.stdout)
    net = he_net("3-16-16")
    np.testing.assert_allclose(document["A"], net.jacobian([0.1, 0.2, 0.3]), atol=1e-12)
    assert document["inradius"] > 0
    assert document["atoms"]["error"] < 1e-12
    assert len(document["neighbors"]) == len(document["polytope"]["walls"])
    shown = run("region", model("3-16-16"), "--at", "0.1,0.2,0.3", "--polytope")
    assert "layer 1" in shown.stdout
    for bad in ("0.1", "a,b", str(tmp_path / "missing.npy")):
        with pytest.raises((RelunormError, OSError)):
            run("region", model("3-16-16"), "--at", bad)


def test_a_network_too_large_to_list_is_refused(tmp_path, capsys):
    """One paragraph and exit code 2, at once, before anything large is allocated."""
    path = tmp_path / "wide.npz"
    first, last = np.eye(2000, 1500), np.ones((1, 2000))
    np.savez_compressed(path, W0=first, b0=np.zeros(2000), W1=last, b1=np.zeros(1))
    with pytest.raises(SystemExit) as end:
        main(["regions", str(path), "--time-limit", "5"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "1500 inputs and 2000 units" in said
    assert "relunorm.along" in said
    assert "Traceback" not in said


def test_one_input_is_drawn_as_a_line_and_the_domain_is_named(tmp_path):
    path, picture = tmp_path / "one.npz", tmp_path / "one.svg"
    np.savez(path, W0=[[1.0], [-1.0]], b0=np.zeros(2), W1=np.ones((1, 2)), b1=np.zeros(1))
    shown = run("regions", str(path), "--domain", "box:-2,2", "-o", str(picture), "--quiet")
    assert shown.exit_code == 0
    assert "2 regions on Box([-2, 2]^1)" in shown.stdout
    assert picture.read_text().startswith("<?xml")
    with pytest.raises(RelunormError, match="interval"):
        run("regions", str(path), "--domain", "all", "-o", str(picture), "--quiet")
    far = run("regions", str(path), "--max-regions", "1", "--statistics", "--quiet")
    assert "statistics of the regions found" in far.stdout


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A network of four inputs and a table, with a target, of its rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(8)
    weights = [rng.normal(size=s) for s in ((12, 4), (8, 12), (1, 8))]
    net = Network.from_weights(weights, [rng.normal(size=len(w)) for w in weights])
    save(net, "net.npz")
    x = rng.normal(size=(20, 4))
    cells = np.column_stack([np.arange(20), x, rng.integers(0, 2, 20)])
    heads = "id,mean radius,worst area,c,d,y"
    np.savetxt("t.csv", cells, delimiter=",", header=heads, comments="", fmt="%.17g")
    return net, x


@pytest.mark.parametrize(
    "options",
    [
        ("--domain", "data:t.csv?target=y&drop=id"),
        ("--domain", "box:-2,2", "--data", "t.csv", "--target", "y", "--drop", "id"),
    ],
)
def test_a_table_names_the_rows_and_inputs_of_a_slice(table, options):
    net, x = table
    np.save("points.npy", x[[4, 17, 9]])
    box = Box.around(x) if len(options) == 2 else Box.cube(4, -2, 2)
    points = ("--slice", "@points.npy", "--domain", options[1], "--json")
    wanted = json.loads(run("regions", "net.npz", *points).stdout)
    asked = json.loads(
        run("regions", "net.npz", *options, "--slice", "rows:4,17,9", "--json").stdout
    )
    assert asked["regions"] == wanted["regions"] > 1
    assert [mark["name"].split(" (")[0] for mark in asked["slice"]["marks"]] == [
        "row 4", "row 17", "row 9",
    ]  # fmt: skip
    assert asked["slice"]["outside"] == [
        f"row {k}" for k in (4, 17, 9) if not box.contains(x[k], 1e-9)[0]
    ]
    named = run("regions", "net.npz", *options, "--slice", "worst area,mean radius", "--json")
    origin = np.where([0, 0, 1, 1], box.center, 0.0)
    window = box.lo[1], box.hi[1], box.lo[0], box.hi[0]
    plane = on_plane(net, origin, np.eye(4)[1], np.eye(4)[0], window)
    assert json.loads(named.stdout)["regions"] == len(plane)


def test_a_slice_through_rows_keeps_to_the_domain_or_says_that_it_does_not(table):
    _, x = table
    rows = ("--slice", "rows:4,17,9", "--data", "t.csv", "--target", "y", "--drop", "id")
    free = run("regions", "net.npz", *rows, "-o", "all.npz", "--quiet")
    assert "no domain was given, so all of the window is shown" in " ".join(free.stdout.split())
    clipped = run("regions", "net.npz", *rows, "--domain", "data:t.csv?target=y&drop=id",
                  "-o", "part.npz", "--quiet")  # fmt: skip
    assert "clipped to the domain" in " ".join(clipped.stdout.split())
    u = (x[17] - x[4]) / np.linalg.norm(x[17] - x[4])
    v = x[9] - x[4] - (x[9] - x[4]) @ u * u
    plane, box = np.stack([u, v / np.linalg.norm(v)]), Box.around(x)
    everywhere, inside = load_regions("all.npz"), load_regions("part.npz")
    st = everywhere.domain.sample(4000, 0)
    held = box.contains(x[4] + st @ plane, 1e-12)
    assert 0 < held.mean() < 1
    assert (everywhere.locate(st) >= 0).all()
    assert np.array_equal(inside.locate(st) >= 0, held)
    with pytest.raises(RelunormError, match="no part with an area"):
        run("regions", "net.npz", *rows, "--domain", "ball:0.001", "--quiet")


def test_a_picture_of_a_classifier_shows_classes_and_rows(table):
    """Names of classes in the legend, rows with their labels, whoever knows them."""
    _, x = table
    rng = np.random.default_rng(1)
    maps = [rng.normal(size=s) for s in ((8, 4), (3, 8))]
    logits = Network.from_weights(maps, [rng.normal(size=8), np.zeros(3)])
    said = logits.replace(head=Head((Step("softmax"),), ("cat", "dog", "emu")))
    save(logits, "logits.npz")
    save(said, "classes.npz")
    kinds = np.array(["cat", "dog", "emu"])[logits(x).argmax(axis=1)]
    lines = [",".join([*map(repr, row.tolist()), kind]) for row, kind in zip(x, kinds, strict=True)]
    Path("kinds.csv").write_text("\n".join(["a,b,c,d,kind", *lines]))
    rows = ("--slice", "rows:4,17,9", "--data", "kinds.csv", "--target", "kind", "--quiet")
    for name in ("logits", "classes"):
        shown = run("regions", f"{name}.npz", *rows, "-o", f"{name}.svg", "--json")
        text = Path(f"{name}.svg").read_text()
        seen = [kind for kind in ("cat", "dog", "emu") if f"<!-- {kind} -->" in text]
        assert seen == sorted(set(_classes_in_window(logits, x[[4, 17, 9]])))
        marks = [mark["name"] for mark in json.loads(shown.stdout)["slice"]["marks"]]
        assert marks == [f"row {row} ({kinds[row]})" for row in (4, 17, 9)]
        guess = "cat, dog, emu" if name == "logits" else ""  # nobody said which output is which
        assert json.loads(shown.stdout)["slice"]["guess"] == guess
        assert "<!-- output 0 -->" not in text
        run("regions", f"{name}.npz", *rows, "--output", "2", "-o", "value.svg")
        assert "<!-- output 2 -->" in Path("value.svg").read_text()
    run("regions", "net.npz", "--slice", "rows:4,17,9", "--data", "t.csv", "--target", "y",
        "--drop", "id", "--quiet", "-o", "one.svg")  # fmt: skip
    assert "<!-- output 0 -->" in Path("one.svg").read_text()


def _classes_in_window(logits, points) -> list[str]:
    """What the network answers at many points of the window that is drawn around three."""
    u = (points[1] - points[0]) / np.linalg.norm(points[1] - points[0])
    v = points[2] - points[0] - (points[2] - points[0]) @ u * u
    height = np.linalg.norm(v)
    s = np.array([0.0, (points[1] - points[0]) @ u, (points[2] - points[0]) @ u])
    edge, above = 0.35 * np.ptp(s), 0.35 * height
    across = np.linspace(s.min() - edge, s.max() + edge, 300)
    up = np.linspace(-above, height + above, 300)
    grid = points[0] + across[:, None, None] * u + up[None, :, None] * v / height
    found = logits(grid.reshape(-1, len(u))).argmax(axis=1)
    return [("cat", "dog", "emu")[k] for k in np.unique(found)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slice", "rows:1,2,3"), "add --data train.csv"),
        (("--slice", "0,1", "--target", "y"), "--target names a column of --data"),
        (("--slice", "0,1", "--drop", "id"), "--drop names a column of --data"),
        (("--data", "t.csv", "--target", "y", "--drop", "id"), "--data is for --slice"),
        (("--domain", "data:t.csv?target=y&drop=id", "--slice", "rows:1,2,20"), "from 0 to 19"),
        (("--domain", "data:t.csv?target=y&drop=id", "--slice", "c,e"), "no input is called 'e'"),
    ],
)
def test_a_slice_that_names_nothing_is_refused(table, options, message):
    with pytest.raises(RelunormError, match=re.escape(message)):
        run("regions", "net.npz", *options)


def test_a_picture_of_inputs_in_other_units_fills_its_axes():
    """A side of 16 beside one of 2,666 would be a line if both had one scale."""
    from relunorm.regions.views.plot import plot_regions

    net = Network.from_weights([np.array([[1.0, 0.01], [1.0, -0.01]]), np.ones((1, 2))])
    for box, aspect in ((Box([0, 0], [16, 2666]), "auto"), (Box([0, 0], [16, 20]), 1.0)):
        assert plot_regions(regions(net, box)).axes[0].get_aspect() == aspect
