"""`relunorm export`, and `relunorm verify` of what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from relunorm.cli import main

DOMAIN = ("--domain", "box:-2,3")
Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def relunorm(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: what it exits with, prints and complains of."""

    def run(*arguments: object) -> CompletedProcess[str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return CompletedProcess(arguments, stopped.value.code, said.out, said.err)  # type: ignore[arg-type]

    return run


def test_export_then_verify(relunorm: Command, tmp_path: Path) -> None:
    source, proof, header = (tmp_path / name for name in ("net.c", "net.json", "net.h"))
    done = relunorm(
        "export", "example:moons", "-o", source, *DOMAIN, "--certificate", proof,
        "--header", header, "--classes", "--parts", 16, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "relunorm.export/1"
    assert document["found"]["of_floats"] <= document["epsilon"] < 0.1
    assert document["digest"] in source.read_text()
    assert "int net_class(" in header.read_text()
    checked = relunorm("verify", proof, "example:moons", source, *DOMAIN)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "holds" in checked.stdout
    source.write_text(source.read_text().replace("= {\n    ", "= {\n    1", 1))
    changed = relunorm("verify", proof, "example:moons", source, "--json")
    assert changed.returncode == 1
    assert json.loads(changed.stdout)["holds"] is False


def test_the_page_says_what_was_proved_and_what_was_found(
    relunorm: Command, tmp_path: Path
) -> None:
    done = relunorm("export", "example:moons", "-o", tmp_path / "net.c", *DOMAIN, "--parts", 1)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "(proved)" in text
    assert "was found by search" in text
    assert "none can overflow" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs --domain"),
        (("--domain", "box:-inf,inf"), "infinite end; write two finite numbers"),
        ((*DOMAIN, "--epsilon", "1e-14", "--parts", "1"), "the best that can be proved is"),
        ((*DOMAIN, "--style", "pieces", "--float"), "pieces are integers"),
        ((*DOMAIN, "--certificate", "nowhere/c.json", "--parts", "1"), "nowhere/c.json"),
        ((*DOMAIN, "--input-shift", "4,x"), "expected a whole number"),
        ((*DOMAIN, "--input-shift", "1,2,3", "--parts", "1"), "one for each input"),
        ((*DOMAIN, "--target", "avr", "--flash", "100", "--parts", "1"), "the tables need"),
    ],
)
def test_nothing_is_written_when_something_is_wrong(
    relunorm: Command, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = relunorm("export", "example:moons", "-o", tmp_path / "net.c", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_one_path_for_two_files_is_refused(relunorm: Command, tmp_path: Path) -> None:
    target, model = tmp_path / "my net.c", tmp_path / "net.npz"
    twice = relunorm("export", "example:moons", "-o", target, *DOMAIN, "--certificate", target)
    assert twice.returncode == 2
    assert "path of its own" in twice.stderr
    relunorm("convert", "example:moons", model)
    before = model.read_bytes()
    over = relunorm("export", model, "-o", model, *DOMAIN, "--parts", 1)
    assert over.returncode == 2
    assert "the model too" in over.stderr
    assert model.read_bytes() == before
    assert list(tmp_path.iterdir()) == [model]


def test_a_quantized_onnx_model(relunorm: Command, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    target = tmp_path / "net.onnx"
    done = relunorm(
        "export", "example:moons", "-o", target, *DOMAIN, "--bits", 8, "--parts", 1, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert target.exists()
    refused = relunorm("export", "example:moons", "-o", target, *DOMAIN, "--certificate", "c.json")
    assert refused.returncode == 2
