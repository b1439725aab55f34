"""The commands normalize, compare, fingerprint and verify: exit codes, files and JSON."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import onnx
import pytest
from planted import planted_16_40_40_5

import relunorm as rn
from relunorm.cli import main
from relunorm.network.head import Step


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.npz"
    rn.save(planted_16_40_40_5(np.random.default_rng(0)), path)
    return path


def test_normalize_verify_compare(capsys, tmp_path, model) -> None:
    out, proof = tmp_path / "small.onnx", tmp_path / "proof.json"
    code, text, _ = run(
        capsys, "normalize", model, "-o", out, "--domain", "box:-1,1", "--certificate", proof
    )
    assert code == 0
    for word in ("constant", "dead", "unobserved", "80 ->"):
        assert word in text
    code, text, _ = run(capsys, "verify", proof, model, out)
    assert code == 0
    assert "holds" in text
    assert run(capsys, "compare", model, out, "--domain", "box:-1,1")[0] == 0
    document = json.loads(proof.read_text())
    document["bounds"][0] /= 2
    proof.write_text(json.dumps(document))
    code, text, _ = run(capsys, "verify", proof, model, out, "--json")
    assert code == 1
    assert json.loads(text)["holds"] is False


def test_output_keeps_the_format(capsys, model) -> None:
    code, text, _ = run(capsys, "normalize", model, "--form", "pow2", "--json")
    assert code == 0
    document = json.loads(text)
    assert document["target"].endswith("model-pow2.npz")
    assert rn.load(document["target"]).units == 80


def test_compare_exit_codes(capsys, tmp_path, model) -> None:
    network = rn.load(model)
    weights, biases = network.weights()
    changed = [np.array(w) for w in weights]
    changed[2][0] += 1e-3
    other = tmp_path / "other.npz"
    rn.save(rn.Network.from_weights(changed, biases), other)
    code, text, _ = run(capsys, "compare", model, other, "--domain", "box:-1,1", "--json")
    assert code == 1
    found = json.loads(text)
    assert found["verdict"] == "different"
    assert found["lower"] <= found["upper"]
    assert (found["precision"], found["top1"]) == ("float64", None)
    asked = "compare", model, other, "--domain", "box:-1,1", "--top1", "--factor", "100"
    code, text, _ = run(capsys, *asked)
    assert code == 1
    assert "classes" in text
    assert "tolerance 1e-09 (for float64 models)" in text
    assert len(found["witness"]) == 16
    assert (
        run(capsys, "compare", model, other, "--domain", "box:-1,1", "--tolerance", "1e9")[0] == 0
    )
    rng = np.random.default_rng(3)
    wide = [tmp_path / f"{i}.npz" for i in range(2)]
    for i, path in enumerate(wide):
        w = rng.normal(size=(30, 8)), rng.normal(size=(30, 30)) / 5, rng.normal(size=(1, 30))
        rn.save(rn.Network.from_weights(w if i == 0 else [v * 1.01 for v in w]), path)
    code, text, _ = run(
        capsys, "compare", *wide, "--domain", "box:-1,1", "--tolerance", "150", "--time-limit", "0"
    )
    assert code in (0, 3)


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("box:1,-1", "empty"),
        ("box:nan,1", "NaN"),
        ("box:-inf,1", "infinite"),
        ("ball:-1", "radius"),
        ("cube:1", "not understood"),
        ("box:@missing.npz", "missing.npz"),
    ],
)
def test_bad_domains_are_explained(capsys, model, domain: str, message: str) -> None:
    code, _, error = run(capsys, "compare", model, model, "--domain", domain)
    assert code == 2
    assert message in error


def test_wrong_dimension(capsys, tmp_path, model) -> None:
    file = tmp_path / "box.npz"
    np.savez(file, lo=np.zeros(3), hi=np.ones(3))
    code, _, error = run(capsys, "fingerprint", model, "--domain", f"box:@{file}")
    assert code == 2
    assert "3 coordinates" in error
    code, _, error = run(capsys, "normalize", model, "--form", "l1")
    assert code == 2
    assert "needs a bounded domain" in error
    code, _, error = run(capsys, "normalize", model, "--form", "tiny", "--domain", "box:0,1")
    assert code == 2
    assert "canonical" in error


@pytest.mark.parametrize(("out", "why"), [("no/x.onnx", "does not exist"), ("x.txt", "'.txt'")])
def test_where_nothing_can_be_written_nothing_is_computed(
    capsys, tmp_path, model, monkeypatch, out, why
) -> None:
    monkeypatch.setattr("relunorm.forms.normalize.normalize", None)
    code, _, error = run(capsys, "normalize", model, "-o", tmp_path / out)
    assert code == 2
    assert why in error


def test_fingerprint(capsys, tmp_path, model) -> None:
    network = rn.load(model)
    (w0, *rest), (b0, *biases) = network.weights()
    order = np.random.default_rng(0).permutation(40)
    copy = tmp_path / "copy.npz"
    rn.save(
        rn.Network.from_weights(
            [4 * w0[order], rest[0][:, order] / 4, rest[1]], [4 * b0[order], *biases]
        ),
        copy,
    )
    prints = [run(capsys, "fingerprint", m, "--domain", "box:-1,1")[1] for m in (model, copy)]
    assert prints[0] == prints[1]
    assert len(prints[0].strip()) == 64


@pytest.mark.parametrize("suffix", ["npz", "onnx"])
def test_certificate_fits_a_float32_file(capsys, tmp_path, model, suffix: str) -> None:
    out, proof = tmp_path / f"small.{suffix}", tmp_path / "proof.json"
    options = ("--domain", "box:-1,1", "--dtype", "float32", "--certificate", proof)
    assert run(capsys, "normalize", model, "-o", out, *options)[0] == 0
    code, text, _ = run(capsys, "verify", proof, model, out, "--json")
    assert code == 0
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 16))
    gap = np.abs(rn.load(model)(points) - rn.load(out)(points)).max()
    assert 1e-12 < gap <= json.loads(text)["bound"] < 1e-2


def test_certificate_that_cannot_exist(capsys, tmp_path, model) -> None:
    proof = tmp_path / "proof.json"
    code, _, error = run(capsys, "normalize", model, "--certificate", proof)
    assert code == 2
    assert "--domain" in error
    assert not proof.exists()


def test_certificates_of_step_networks(capsys, tmp_path) -> None:
    proof, step, out = (tmp_path / name for name in ("proof.json", "step.npz", "out.npz"))
    network = rn.Network.from_weights([[[3.0], [0.0]], [[1.0, 1.0]]], [[0.1, 1.0], [0.0]], "step")
    rn.save(network, step)
    options = ("--domain", "box:-1,1", "--certificate", proof)
    code, text, _ = run(capsys, "normalize", step, "-o", out, "--form", "bounded", *options)
    assert code == 0
    assert "of its threshold" in " ".join(text.split())
    code, text, _ = run(capsys, "verify", proof, step, out)
    assert code == 0
    assert "of its threshold" in text
    code, text, _ = run(capsys, "compare", step, out, "--domain", "box:-1,1")
    assert code in (1, 3)  # between the two thresholds they do differ
    assert "away from the thresholds" in text


def test_progress_needs_a_terminal(capsys, monkeypatch, model, tmp_path) -> None:
    options = ("normalize", model, "-o", tmp_path / "o.npz", "--domain", "box:0,1")
    _, _, error = run(capsys, *options)
    assert error == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, _, error = run(capsys, *options, "--json")
    assert error == ""
    _, _, error = run(capsys, *options)
    assert "looking at units" in error


def test_help_stays_light() -> None:
    """Neither the package nor its help loads a heavy library."""
    code = (
        "import sys, relunorm, relunorm.cli; "
        "print([m for m in ('torch', 'llvmlite', 'sklearn', 'scipy.optimize', 'highspy', 'onnx') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("limit", ["-1", "nan"])
def test_a_time_limit_below_zero_is_refused(capsys, model, limit: str) -> None:
    code, _, error = run(
        capsys, "compare", model, model, "--domain", "box:-1,1", "--time-limit", limit
    )
    assert code == 2
    assert f"time_limit is {float(limit)}, expected a number of seconds of at least 0" in error


def test_files_keep_their_number_type_and_never_grow(capsys, tmp_path) -> None:
    weights = [np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([[1.0, -1.0]])]
    names = [("W", weights[0].T), ("B", np.zeros(2)), ("V", weights[1].T), ("C", np.ones(1))]
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Gemm", ["x", "W", "B"], ["a"]),
            onnx.helper.make_node("Relu", ["a"], ["b"]),
            onnx.helper.make_node("Gemm", ["b", "V", "C"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1])],
        [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in names],
    )
    given, out, proof = (tmp_path / name for name in ("given.onnx", "out.onnx", "proof.json"))
    options = {"opset_imports": [onnx.helper.make_opsetid("", 17)], "ir_version": 8}
    onnx.save(onnx.helper.make_model(graph, **options), given)
    options = ("--domain", "box:-1,1", "--certificate", proof, "--json")
    code, text, _ = run(capsys, "normalize", given, "-o", out, *options)
    assert code == 0
    assert "bytes instead of" in json.loads(text)["kept"]
    code, text, _ = run(capsys, "normalize", given, "-o", out, "--domain", "box:-1,1")
    assert "kept as it is" in " ".join(text.split())
    assert "differ" not in text
    assert out.read_bytes() == given.read_bytes()
    assert run(capsys, "verify", proof, given, out)[0] == 0

    dead = rn.Network.from_weights([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 2.0, 3.0]]])
    rn.save(dead.replace(origin=""), given)
    code, text, _ = run(capsys, "normalize", given, "-o", out, "--domain", "box:-2,-1", "--json")
    assert code == 0
    before, after = json.loads(text)["bytes"]
    assert after == out.stat().st_size < before == given.stat().st_size
    kind = onnx.load(out).graph.input[0].type.tensor_type.elem_type
    assert kind == onnx.TensorProto.FLOAT


def test_a_batch_normalization_does_not_change_the_number_type(capsys, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    first, norm, last = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    with torch.no_grad():
        first.bias[0] = -100.0  # never active, so that something is removed
        norm.running_var.copy_(torch.tensor([2.0, 3.0, 5.0, 7.0]))
    model = torch.nn.Sequential(first, norm, torch.nn.ReLU(), last).eval()
    given, out = tmp_path / "given.pt2", tmp_path / "out.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3),)), given)
    assert rn.load(given).precision == "float32"
    code, text, _ = run(capsys, "normalize", given, "-o", out, "--domain", "box:-1,1", "--json")
    assert code == 0
    assert json.loads(text)["after"]["units"] == 3
    x = torch.rand(1, 3)
    found = torch.export.load(out).module()(x)
    torch.testing.assert_close(found, model(x))
    code, _, _ = run(capsys, "normalize", given, "-o", out, "--form", "pow2")
    assert code == 0
    assert rn.load(out).precision == "float64"
    points = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    np.testing.assert_array_equal(rn.load(out)(points), rn.load(given)(points))


def test_classes_that_differ_are_told_by_name(capsys, tmp_path) -> None:
    for name, shift in (("a.npz", 0.0), ("b.npz", 0.25)):
        net = rn.Network.from_weights([[[1.0], [-1.0]]], [[shift, 0.0]])
        rn.save(net.replace(head=rn.Head((), ("left", "right"))), tmp_path / name)
    asked = ("compare", tmp_path / "a.npz", tmp_path / "b.npz", "--domain", "box:-1,1", "--top1")
    code, text, _ = run(capsys, *asked)
    assert code == 1
    told = " ".join(text.split())
    assert "classes: A chooses right and B left at the input" in told
    # The input where outputs differ stands with the outputs, that of the classes with the classes.
    lines = [line.split()[0] for line in text.splitlines()]
    assert lines.index("input") < lines.index("B") < lines.index("classes:")
    assert text.splitlines()[-1] == "exit code 1, for the outputs: different"
    assert "classes" not in run(capsys, *asked[:-1])[1]
    close = run(capsys, *asked, "--tolerance", "1")
    assert close[0] == 0
    assert close[1].splitlines()[-1] == "exit code 0, for the outputs: within"
    assert "classes: A chooses right and B left" in close[1]
    assert "decided in exact arithmetic, and float32 may not show it" in told
    far = "wherever they disagree, neither prefers its class to the other's by more than "
    margin = float(told.split(far)[1].split()[0])
    assert 2 * 0.25 <= margin <= 2.1 * 0.25
    document = json.loads(run(capsys, *asked, "--json")[1])
    assert document["top1_margin"] == pytest.approx(margin, rel=0.01)
    a, b = (rn.load(tmp_path / name) for name in ("a.npz", "b.npz"))
    x = np.linspace(-1, 1, 2001)[:, None]
    apart = a(x).argmax(axis=1) != b(x).argmax(axis=1)
    assert apart.any()
    for net in (a, b):
        assert abs(np.diff(net(x[apart]))).max() <= document["top1_margin"]
    same = run(capsys, "compare", tmp_path / "a.npz", *asked[1:2], *asked[3:], "--json")[1]
    assert json.loads(same)["top1_margin"] is None


def test_a_model_is_not_replaced_by_a_larger_file_of_itself(capsys, tmp_path) -> None:
    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(6, 2)), rng.normal(size=(1, 6))])
    path = tmp_path / "net.onnx"
    rn.save(net, path)
    content, before = path.read_bytes(), path.stat()
    code, text, _ = run(capsys, "normalize", path, "-o", path, "--domain", "box:-1,1")
    assert code == 0
    assert "kept as it is" in text
    assert "overwritten" not in text
    assert path.read_bytes() == content
    # not even written and put back
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    planted = rn.Network.from_weights([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 3.0]]], [[0, -1.0], [0]])
    rn.save(planted, path)
    code, text, _ = run(capsys, "normalize", path, "-o", path, "--domain", "box:-1,1")
    assert "net.onnxwasoverwritten" in "".join(text.split())  # lines break anywhere in a path
    assert rn.load(path).units < 2


def test_logits_are_compared_with_an_export_that_ends_in_a_softmax(capsys, tmp_path) -> None:
    rng = np.random.default_rng(0)
    net = rn.Network.from_weights([rng.normal(size=(4, 2)), rng.normal(size=(3, 4))])
    head = rn.Head((rn.Step("softmax"),), ("a", "b", "c"))
    paths = [tmp_path / "logits.npz", tmp_path / "softmax.npz"]
    rn.save(net, paths[0])
    rn.save(net.replace(head=head), paths[1])
    code, _, told = run(capsys, "compare", *paths, "--domain", "box:-1,1")
    assert code == 2
    assert "--before-head" in told
    code, text, _ = run(
        capsys, "compare", *paths, "--domain", "box:-1,1", "--before-head", "--json"
    )
    assert code == 0
    document = json.loads(text)
    assert (document["verdict"], document["before_head"]) == ("equal", True)
    assert document["classes"] == ["a", "b", "c"]


def test_verify_says_which_model_is_missing_or_swapped(capsys, tmp_path, model) -> None:
    out, proof = tmp_path / "small.npz", tmp_path / "proof.json"
    run(capsys, "normalize", model, "-o", out, "--domain", "box:-1,1", "--certificate", proof)
    code, _, told = run(capsys, "verify", proof, model)
    assert code == 2
    assert "the second model is missing" in told
    code, text, _ = run(capsys, "verify", proof, out, model)
    assert code == 1
    assert "swap A and B" in text


def test_compare_says_what_logits_mean_for_probabilities(tmp_path, capsys):
    net = rn.Network.from_weights([[[1.0]]], [[0.0]]).replace(head=rn.Head((Step("sigmoid"),)))
    moved = rn.Network.from_weights([[[1.0]]], [[4.0]]).replace(head=net.head)
    paths = [str(tmp_path / name) for name in ("a.npz", "b.npz")]
    for one, path in zip((net, moved), paths, strict=True):
        rn.save(one, path)
    with pytest.raises(SystemExit) as stop:
        main(["compare", *paths, "--domain", "box:-2,-1", "--quiet"])
    assert stop.value.code == 1
    told = " ".join(capsys.readouterr().out.split())
    upper = told.split("max |A - B| <= ")[1]
    assert float(upper.split()[0]) == pytest.approx(4, abs=0.01)
    assert upper.split(maxsplit=1)[1].startswith("(of the logits, before the sigmoid) so in exact")
    assert "so in exact arithmetic the probabilities they return differ by at most 0.762" in told
    at = float(told.split("input ")[1].split()[0])
    for side, value in (("A", at), ("B", at + 4)):
        shown = told.split(f"{side} there ")[1].split("returns ")[1].split(")")[0]
        assert float(shown) == pytest.approx(1 / (1 + math.exp(-value)), rel=1e-4)
