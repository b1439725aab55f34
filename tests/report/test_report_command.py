"""``relunorm report``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report.validation import check
from typer.testing import CliRunner

import relunorm as rn
from relunorm import Network, save
from relunorm.cli import app, main
from relunorm.errors import InvalidInputError
from relunorm.io.table import read_table


def test_the_command_writes_a_page_and_prints_the_document(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["report", "example:moons", "--data", "example:moons", "--domain", "box:-2,3"]
    done = CliRunner().invoke(app, [*command, "-o", str(page), "--json"])
    assert done.exit_code == 0, done.output
    document = check(json.loads(done.stdout))
    data = document["data"]
    classes = data.pop("classes")
    assert data == {"rows": 2000, "used": 2000, "columns": 2, "target": "y"}
    assert (classes["names"], classes["counts"]) == (["0", "1"], [1000, 1000])  # of one logit
    assert document["model"]["name"] == "example:moons"
    assert "[1/11] What it is" in done.stderr
    assert "moons" in page.read_text(encoding="utf-8")


def test_without_json_the_page_is_named_and_the_advice_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rn.save(rn.Network.from_weights([np.eye(3), np.ones((1, 3))]), tmp_path / "three.npz")
    done = CliRunner().invoke(app, ["report", "three.npz", "--slice", "2,0", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "written to report.html" in done.stdout
    assert "No domain was given" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "page.pdf"], "written as .html"),
        (["-o", "nowhere/page.html"], "does not exist"),
        (["--slice", "1"], "two inputs such as 0,3"),
        (["--slice", "0,9"], "two different coordinates"),
        (["--target", "y"], "--data, which was not given"),
        (["--data", "example:sun"], "no example 'sun'"),
        (["--time-limit", "-1"], "time_limit is -1"),
        (["--data", "example:moons", "--classes", ""], "--classes '': expected names"),
        (["--data", "example:moons", "--classes", "a,,b"], "expected names between the commas"),
        (["--data", "example:moons", "--classes", '"a,b'], "quote a class that holds a comma"),
    ],
)
def test_mistakes_end_with_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["report", "example:moons", *arguments])
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_names_of_classes_in_a_table(tmp_path: Path) -> None:
    table = tmp_path / "kinds.csv"
    table.write_text("a,b,kind\n0.1,0.2,cat\n1,1,dog\n0,1.5,cat\n")
    command = ["report", "example:moons", "--data", str(table), "--target", "kind", "--json"]
    done = CliRunner().invoke(app, [*command, "--time-limit", "3", "--classes", "dog,cat"])
    assert done.exit_code == 0, done.output
    document = check(json.loads(done.stdout))
    assert document["data"]["target"] == "kind"
    assert document["data"]["classes"]["names"] == ["dog", "cat"]
    assert document["data"]["classes"]["counts"] == [1, 2]


@pytest.mark.parametrize(
    ("cells", "classes", "names", "counts"),
    [
        (["cat", '"dog, big"', "cat"], 'cat, "dog, big"', ["cat", "dog, big"], [2, 1]),
        (["True", "False", "True"], "False,True", ["False", "True"], [1, 2]),
    ],
)
def test_classes_are_read_as_a_line_of_csv(
    cells: list[str], classes: str, names: list[str], counts: list[int], tmp_path: Path
) -> None:
    table, page = tmp_path / "kinds.csv", tmp_path / "page.html"
    rows = "".join(f"{k},0.5,{cell}\n" for k, cell in enumerate(cells))
    table.write_text(f"a,b,kind\n{rows}")
    command = ["report", "example:moons", "--data", str(table), "--target", "kind", "--json"]
    options = ["--time-limit", "0.5", "--classes", classes, "-o", str(page)]
    done = CliRunner().invoke(app, [*command, *options])
    assert done.exit_code == 0, done.output
    found = check(json.loads(done.stdout))["data"]["classes"]
    assert (found["names"], found["counts"]) == (names, counts)


def test_a_report_takes_the_targets_a_fit_takes(tmp_path: Path) -> None:
    net = Network.from_weights([[[1.0], [-1.0]]], [[0.0, 0.0]])
    save(net, tmp_path / "net.npz")
    (tmp_path / "t.csv").write_text("id,u,x,v\nk,3.5,3,-3\nl,-3,-3,5\n")
    command = ["report", str(tmp_path / "net.npz"), "--data", str(tmp_path / "t.csv"), "--json"]
    command += ["--target", "u", "--target", "v", "--drop", "id", "--time-limit", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["data"]["target"] == "u, v"
    assert document["sections"]["quality"]["body"] is not None


def test_the_commands_of_a_page_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    words = np.where(x[:, 0] + 0.3 * x[:, 1] > 0, "ja", "no, never")
    lines = [f'{i},{a},{b},"{w}"' for i, (a, b), w in zip(range(40), x, words, strict=True)]
    Path("t.csv").write_text("\n".join(["my id,a,b,kind", *lines]))
    save(Network.from_weights([[[1.0, 0.3], [-1.0, -0.3]], [[-1.0, 1.0], [1.0, -1.0]]]), "m.npz")
    options = ["--data", "t.csv", "--target", "kind", "--drop", "my id"]
    options += ["--classes", '"no, never",ja']
    done = CliRunner().invoke(app, ["report", "m.npz", *options, "-o", "p.html", "--json"])
    assert done.exit_code == 0, done.output
    commands = [item["command"] for item in json.loads(done.stdout)["advice"] if item["command"]]
    assert any("certify" in command for command in commands)
    assert any("data:" in command for command in commands)
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "relunorm"
        again = CliRunner().invoke(app, words[1:])
        assert again.exit_code in (0, 1, 3), (command, again.output)


def test_a_target_may_name_columns_of_a_frame() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    net = Network.from_weights([np.eye(2), [[1.0, 2.0], [3.0, -1.0]]])
    targets = pd.DataFrame(net(frame.to_numpy()), columns=["u", "v"])
    both = pd.concat([frame, targets], axis=1)
    named = rn.report(net, both, ["u", "v"], time_limit=5)
    apart = rn.report(net, frame, targets, time_limit=5)
    errors = (found.sections["quality"]["body"]["errors"] for found in (named, apart))
    assert next(errors) == next(errors)
    with pytest.raises(InvalidInputError, match="no column 'w'"):
        rn.report(net, both, "w", time_limit=5)


def test_a_table_brings_its_file_target_and_names_with_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(30, 2))
    lines = [f"{k},{a},{b},{a - b}" for k, (a, b) in enumerate(x)]
    (tmp_path / "t.csv").write_text("\n".join(["my id,a,b,y", *lines]))
    table = read_table(tmp_path / "t.csv", "y", drop=["my id"])
    assert (table.file, table.dropped) == ("t.csv", ("my id",))
    net = Network.from_weights([np.eye(2), [[1.0, -0.5]]])
    document = rn.report(net, table, time_limit=0).to_dict()
    assert document["inputs"] == ["a", "b"]
    assert document["data"]["target"] == "y"
    spelled = [shlex.split(item["command"]) for item in document["advice"] if item["command"]]
    named = [words for words in spelled if "--data" in words]
    assert named
    for words in named:
        assert words[words.index("--data") + 1] == "t.csv"
        assert words[words.index("--drop") + 1] == "my id"
    assert "t.csv" not in str(rn.report(net, table.x, table.y, time_limit=1).to_dict()["advice"])


@pytest.mark.parametrize(
    ("plane", "domain"),
    [
        ("rows:18,7,33", "box:-2,2"),
        ("rows:18,7,33", None),
        ("a b,d", None),
        ("", "box:-2,2"),
        ("@points.npy", None),
    ],
)
@pytest.mark.usefixtures("only_regions")
def test_what_the_map_suggests_asks_about_the_same_plane(
    plane: str, domain: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call and the command list as many regions as the page, of the same window."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    shapes = ((14, 5), (9, 14), (3, 9))
    weights, biases = [rng.normal(size=s) for s in shapes], [rng.normal(size=s[0]) for s in shapes]
    net = Network.from_weights(weights, biases)
    save(net, "net.npz")
    X = rng.normal(size=(40, 5))
    frame = pd.DataFrame(X, columns=["a b", "b", "c", "d", "e"]).assign(y=net(X).argmax(axis=1))
    frame.to_csv("t.csv", index=False)
    points = rng.normal(size=(3, 5))
    np.save("points.npy", points)
    table = ["--data", "t.csv", "--target", "y", "--classes", "0,1,2"]
    asked = ["--slice", plane] if plane else []
    where = [] if domain is None else ["--domain", domain]
    command = ["report", "net.npz", *table, *asked, *where, "--time-limit", "60", "--json"]
    done = CliRunner().invoke(app, [*command, "--quiet"])
    assert done.exit_code == 0, done.output
    entry = check(json.loads(done.stdout))["sections"]["regions"]
    count = entry["body"]["count"]
    assert count["kind"] == "exact"
    place = rn.Box.around(X) if domain is None else rn.Box.cube(5, -2, 2)
    names = {"rn": rn, "np": np, "model": net, "X": X, "points": points, "domain": place}
    found = eval(entry["call"], names)
    assert len(found) == count["value"]
    program, *arguments = shlex.split(entry["command"])
    assert program == "relunorm"
    again = json.loads(CliRunner().invoke(app, [*arguments, "--json", "--quiet"]).stdout)
    assert again["regions"] == count["value"]
    window = entry["body"]["plane"]["window"]
    corners = found.embed([[s, t] for s in found.regions.domain.lo[:1] for t in (0.0, 1.0)])
    origin, u, v = (np.array(entry["body"]["plane"][name]) for name in ("origin", "u", "v"))
    at = (corners - origin) @ np.stack([u, v]).T
    np.testing.assert_allclose(origin + at @ np.stack([u, v]), corners, atol=1e-9)
    np.testing.assert_allclose(at[:, 0], window[0], atol=1e-9)


def test_a_map_without_time_suggests_its_plane_too() -> None:
    rng = np.random.default_rng(5)
    net = Network.from_weights([rng.normal(size=(4, 5)), rng.normal(size=(1, 4))])
    X, points = rng.normal(size=(9, 5)), rng.normal(size=(3, 5))
    calls = {}
    for name, plane in {"inputs": (3, 1), "rows": X[[4, 2, 7]], "points": points}.items():
        entry = rn.report(net, X, slice=plane, time_limit=1e-9).sections["regions"]
        assert entry["status"] == "not computed"
        calls[name] = entry["call"], entry["command"]
    assert calls["inputs"][0].startswith("rn.on_plane(model, domain.center, np.eye(5)[3], np.eye")
    assert "--slice 3,1 " in calls["inputs"][1]
    assert calls["rows"][0].startswith("rn.on_plane(model, X[4], X[2] - X[4], X[7] - X[4] - ")
    assert "--slice rows:4,2,7 " in calls["rows"][1]
    assert calls["points"][0].startswith("rn.on_plane(model, points[0], ")
    line = rn.report(net, X, slice=np.outer([0, 1, 2], np.ones(5)), time_limit=5)
    assert "lie on one line" in line.sections["regions"]["why"]
    chosen = rn.report(net, X, time_limit=1e-9).sections["regions"]["call"]
    assert chosen == "rn.report(model, X, time_limit=600)"
