"""``relunorm geometry`` and ``relunorm papers``."""

import json

import numpy as np
import pytest

from relunorm.cli import main


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return stop.value.code


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "model.npz",
        W0=rng.standard_normal((8, 3)),
        b0=np.zeros(8),
        W1=rng.standard_normal((2, 8)),
        b1=np.zeros(2),
    )
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((30, 3)))
    return tmp_path


def test_geometry_prints_and_draws(files, capsys):
    page = files / "page.png"
    assert run("geometry", files / "model.npz", "--data", files / "data.npz", "-o", page) == 0
    out = capsys.readouterr().out
    assert "soft rank" in out
    assert page.stat().st_size > 10_000


def test_geometry_json(files, capsys):
    assert run("geometry", files / "model.npz", "--data", files / "data.npz", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "relunorm.geometry/1"
    assert [layer["width"] for layer in document["layers"]] == [3, 8]


def test_geometry_of_a_table_with_the_wrong_width(files, capsys):
    np.savez(files / "wide.npz", x=np.ones((4, 5)))
    assert run("geometry", files / "model.npz", "--data", files / "wide.npz") == 2
    assert "5" in capsys.readouterr().err


def test_papers(tmp_path, capsys):
    assert run("papers", "batchnorm", "theorem13", "theorem3", "-o", tmp_path / "out") == 0
    assert "E[y]" in capsys.readouterr().out
    home = tmp_path / "out" / "batchnorm"
    assert sorted(p.name for p in home.iterdir())[0] == "theorem13.csv"


def test_papers_json_and_errors(tmp_path, capsys):
    assert run("papers", "batchnorm", "theorem13", "--json") == 0
    assert json.loads(capsys.readouterr().out)["exhibits"][0]["name"] == "theorem13"
    assert run("papers", "batchnorm", "figure99") == 2
    assert "figure99" in capsys.readouterr().err
    assert run("papers", "nothing") == 2


def test_papers_on_a_users_table(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((40, 6)))
    assert run("papers", "batchnorm", "figure3", "--data", tmp_path / "data.npz", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["exhibits"][0]["settings"]["data"].endswith("data.npz")


def test_bad_options_are_one_paragraph(files, capsys):
    both = ("geometry", files / "model.npz", "--data", files / "data.npz")
    assert run(*both, "-o", files / "page.xyz") == 2
    assert "page.xyz: plots are written as .png" in capsys.readouterr().err
    assert not (files / "page.xyz").exists()
    assert run(*both, "--seed", "-1", "--max-points", "5") == 2
    assert run("papers", "batchnorm", "figure6", "--seed", "-1") == 2
    np.savez(files / "wide.npz", x=np.ones((4, 5)))
    capsys.readouterr()
    assert run("geometry", files / "model.npz", "--data", files / "wide.npz") == 2
    assert "--target NAME" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "a,b,c\n", "a,b,c\n\n"])
def test_an_empty_table(files, capsys, text):
    (files / "empty.csv").write_text(text)
    assert run("geometry", files / "model.npz", "--data", files / "empty.csv") == 2
    err = capsys.readouterr().err
    assert "empty.csv: the table" in err
    assert len(err.splitlines()) == 1


def test_geometry_of_huge_entries(files, capsys):
    (files / "huge.csv").write_text("1e200,2e200,-1e200\n3e200,1e199,1e200\n-1e200,0,1\n")
    assert run("geometry", files / "model.npz", "--data", files / "huge.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["rank"] == 3


def test_figure5_on_points_of_a_plane(files, capsys):
    rows = np.random.default_rng(0).standard_normal((12, 2))
    np.savez(files / "plane.npz", x=rows)
    data = ("--data", files / "plane.npz")
    assert run("papers", "batchnorm", "figure5", *data, "--json") == 0
    found = json.loads(capsys.readouterr().out)["exhibits"][0]["rows"]
    assert len(found) == 8
    assert all(row[5] is None for row in found)  # infinite width takes longer: --full has it


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2), (4, 0)])
@pytest.mark.parametrize("command", ["geometry", "diagnose"])
def test_an_empty_batch_is_refused(files, capsys, command, shape):
    np.save(files / "empty.npy", np.zeros(shape))
    assert run(command, files / "model.npz", "--data", files / "empty.npy") == 2
    assert "expected at least one of each" in capsys.readouterr().err
