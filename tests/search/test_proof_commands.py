"""``maximize --proof`` and ``verify`` of what it wrote."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from relunorm.cli import app, main


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_a_proof_is_written_and_verified(tmp_path):
    path = str(tmp_path / "p.json")
    made = run("maximize", "example:moons", "--domain", "box:-2,3", "--proof", path, "--json")
    assert made.exit_code == 0
    assert json.loads(made.stdout)["proof"] == path
    checked = run("verify", path, "example:moons", "--json")
    assert checked.exit_code == 0
    document = json.loads(checked.stdout)
    assert document["holds"]
    assert document["limit"] >= 40.73182978
    assert "holds" in run("verify", path, "example:moons").stdout
    # a smaller limit is refused, and so is a document with a surprise
    changed = json.loads((tmp_path / "p.json").read_text())
    changed["claim"]["limit"] = 40.0
    (tmp_path / "q.json").write_text(json.dumps(changed))
    refused = run("verify", str(tmp_path / "q.json"), "example:moons")
    assert refused.exit_code == 1
    assert "does not hold" in refused.stdout
    (tmp_path / "r.json").write_text(json.dumps({**changed, "more": 1}))
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(tmp_path / "r.json"), "example:moons"])
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["lipschitz", "sensitivity"])
def test_proofs_about_slopes_are_written_and_verified(command, tmp_path):
    path = str(tmp_path / "p.json")
    made = run(command, "example:moons", "--domain", "box:-2,3", "--proof", path, "--json")
    assert made.exit_code == 0
    assert json.loads(made.stdout)["proof"] == path
    checked = run("verify", path, "example:moons", "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout)["holds"]
    assert "holds" in run("verify", path, "example:moons").stdout
    changed = json.loads((tmp_path / "p.json").read_text())
    changed["claims"][0]["upper"] *= 0.9
    (tmp_path / "q.json").write_text(json.dumps(changed))
    refused = run("verify", str(tmp_path / "q.json"), "example:moons")
    assert refused.exit_code == 1
    assert "does not hold" in refused.stdout


def test_an_unfinished_search_proves_the_end_it_reached(tmp_path):
    path = str(tmp_path / "p.json")
    command = ["maximize", "example:moons", "--domain", "box:-2,3", "--proof", path, "--json"]
    made = run(*command, "--time-limit", "0")
    assert made.exit_code == 3
    checked = run("verify", path, "example:moons", "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout)["limit"] == json.loads(made.stdout)["upper"]
