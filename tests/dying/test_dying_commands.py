from __future__ import annotations

import json

import numpy as np
import pytest

import relunorm as rn
from relunorm.cli import main
from relunorm.errors import InvalidInputError
from relunorm.papers.dying.target_scales import load_tables


def run(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_map(capsys, tmp_path):
    file = tmp_path / "map.png"
    out = run(capsys, "dying", "map", "--grid", "21", "-o", str(file), "--json")
    document = json.loads(out)
    assert document["schema"] == "relunorm.dying.basin/1"
    assert document["optimum"] == pytest.approx(62.4, abs=2)
    assert file.stat().st_size > 1000
    assert "optimum" in run(capsys, "dying", "map", "--grid", "11")


def test_sweep_with_checkpoint(capsys, tmp_path):
    common = [
        "dying",
        "sweep",
        "--gamma",
        "1",
        "--optimizer",
        "adam",
        "--seeds",
        "1",
        "--hidden",
        "8",
    ]
    more = ["--updates", "200", "--checkpoint", str(tmp_path / "c.pt"), "--json", "--quiet"]
    first = json.loads(run(capsys, *common, *more))
    again = json.loads(run(capsys, *common, *more))  # finished: resumes and reports the same
    assert first["rows"] == again["rows"]


def test_sweep_of_a_file_with_its_target(capsys, tmp_path):
    rows = np.random.default_rng(0).normal(size=(80, 3))
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c", comments="")
    out = run(
        capsys, "dying", "sweep", "--data", str(tmp_path / "t.csv"), "--target", "b", "--updates",
        "100", "--gamma", "1", "--optimizer", "sgd", "--seeds", "1", "--hidden", "4", "--json",
        "--quiet",
    )  # fmt: skip
    assert json.loads(out)["rows"]


def test_diagnose(capsys, tmp_path):
    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(6, 3)), rng.normal(size=(1, 6))])
    rn.save(net, tmp_path / "m.npz")
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(50, 3)), y=1e-5 * rng.normal(size=50))
    arguments = ["diagnose", str(tmp_path / "m.npz"), "--data", str(tmp_path / "d.npz")]
    document = json.loads(run(capsys, *arguments, "--domain", "box:-1,1", "--json"))
    assert document["schema"] == "relunorm.dying.diagnosis/1"
    assert document["target"]["risk"] == "high"
    assert "TargetScaler" in run(capsys, *arguments).replace("\n", " ")


@pytest.mark.parametrize("domain", [(), ("--domain", "box:-1,1")])
def test_diagnose_in_80_columns(domain, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = "feature_extractor.first_block.activation_function"
    unit_of = np.repeat([0, 1], 3)
    layer = rn.Layer(
        rn.Affine({0: np.ones((6, 2))}, np.arange(6.0) - 3), name=path, unit_of=unit_of
    )
    output = rn.Affine({1: np.ones((1, 6))}, np.zeros(1))
    rn.save(rn.Network([layer], output, input_shape=2), tmp_path / "m.npz")
    np.savez(tmp_path / "d.npz", x=np.ones((5, 2)))
    files = [str(tmp_path / "m.npz"), "--data", str(tmp_path / "d.npz")]
    text = run(capsys, "diagnose", *files, *domain)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    rows = text[text.index("feature") :].splitlines()
    assert "".join(row.split()[0] for row in rows[: len(path)] if row.strip()).startswith(path)
    assert "silent at 2 of 6 in all" in " ".join(text.split())


def test_data_sources(tmp_path):
    assert load_tables(["diabetes"])["diabetes"][0].shape == (442, 10)
    assert load_tables(["friedman"])["friedman"][0].shape == (1000, 8)
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n4,5,7\n")
    x, y = load_tables([f"{tmp_path / 't.csv'}?target=c"])["t"]
    assert (x.shape, y.tolist()) == ((2, 2), [3.0, 7.0])
    both = load_tables([str(tmp_path / "t.csv"), "friedman"], target="a")
    assert both["t"][1].tolist() == [1.0, 4.0]
    with pytest.raises(InvalidInputError, match="of a file"):
        load_tables(["friedman"], target="a")
    with pytest.raises(InvalidInputError, match="which column"):
        load_tables([str(tmp_path / "t.csv")])


def refused(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_wrong_ending_is_refused_before_the_map_is_computed(capsys, tmp_path):
    said = refused(capsys, "dying", "map", "--grid", "3", "-o", str(tmp_path / "map.xyz"))
    assert "plots are written as .png, .pdf or .svg" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"not a checkpoint"])
def test_a_broken_checkpoint_is_named(capsys, tmp_path, content):
    path = tmp_path / "sweep.pt"
    path.write_bytes(content)
    small = ["--updates", "100", "--seeds", "1", "--hidden", "4", "--gamma", "1"]
    plan = [*small, "--optimizer", "adam", "--quiet", "--checkpoint", str(path)]
    said = refused(capsys, "dying", "sweep", *plan)
    assert "is no checkpoint that can be read" in said
    assert path.read_bytes() == content


def test_diagnose_leaves_classes_out(capsys, tmp_path):
    """A target of text was refused; it has no scale, and the units do not need it."""
    (tmp_path / "d.csv").write_text("a,b,kind\n0.1,0.2,cat\n1,1,dog\n0,1.5,cat\n")
    arguments = ["diagnose", "example:moons", "--data", str(tmp_path / "d.csv")]
    document = json.loads(run(capsys, *arguments, "--target", "kind", "--json"))
    assert document["target"] is None
    assert document["classes"] == ["cat", "dog"]
    assert "2 classes, which have no scale" in run(capsys, *arguments, "--target", "kind")
