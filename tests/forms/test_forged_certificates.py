"""Certificates that somebody has forged, and what `verify` says of a file."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from test_forms_commands import run

import relunorm as rn
from relunorm.forms.certificate.certificate import SCHEMA as CERTIFICATE
from relunorm.forms.certificate.certificate import Certificate, seal
from relunorm.network import Affine, Layer
from relunorm.search.proofs.tape import VERSION
from relunorm.stability.bound_proofs import SCHEMA as BOUNDS

LINE = rn.Box([-1.0], [1.0])
build = rn.Network.from_weights


def ramp(threshold: float) -> rn.Network:
    """relu(relu(x + 2) - threshold) on [-1, 1]."""
    return build([[[1.0], [2.0]], [[1.0, 0.0]], [[1.0]]], [[2.0, 3.0], [-threshold], [0.0]])


def linear(count: int, factor: float) -> dict[str, list]:
    """A relation that calls every unit linear."""
    none = [-1] * count
    return {
        "kind": ["linear"] * count, "block": none, "index": none,
        "factor": [factor] * count, "constant": [0.0] * count,
    }  # fmt: skip


def forged(first: rn.Network, second: rn.Network, domain: dict, proofs, relations) -> Certificate:
    """A sealed certificate that claims 1e-9."""
    none = dict.fromkeys(("first", "second", "difference"))
    document = {
        "schema": CERTIFICATE,
        "domain": domain,
        "networks": [{"digest": n.digest, "units": n.units} for n in (first, second)],
        "bounds": [1e-9],
        "exceptions": [],
        "evaluation": {"float32": none, "float64": none},
        "order": [0, 1],
        "proofs": proofs,
        "relations": relations,
        "difference": None,
        "residual": None,
        "stepwise": False,
    }
    document["digest"] = seal(document)
    return Certificate(document)


def test_a_tree_that_names_a_child_twice_proves_nothing() -> None:
    first, second = ramp(2.0), ramp(5.0)  # relu(x) and 0
    cut = [1.0, 0.0, -1.0, 0.0, 1.0, 1.0]  # the whole, at x = 0, into 1 and 1
    tape = np.array([VERSION, *cut])
    data = base64.b64encode(zlib.compress(tape.tobytes())).decode()
    tree = {
        "kind": "search", "layer": 1, "unit": 0, "sign": 1, "limit": (0.0).hex(),
        "tape": {"dtype": "float64", "shape": [7], "data": data},
    }  # fmt: skip
    proofs = [
        {
            "schema": BOUNDS, "network": network.digest, "box_duals": None,
            "proofs": items,
        }
        for network, items in ((first, [tree]), (second, []))
    ]  # fmt: skip
    relations = [[linear(2, 1.0), linear(1, 0.0)]] * 2
    lie = forged(first, second, {"kind": "box", "lo": [-1.0], "hi": [1.0]}, proofs, relations)
    found = rn.verify(lie, first, second)
    assert not found.holds
    assert "a part is neither closed nor cut" in found.problems[0]


@pytest.mark.parametrize("named", [(0, 0), (0, -1)])
def test_an_overflow_beside_the_path_proves_nothing(named: tuple[int, int]) -> None:
    """inf - inf in a layer that nothing reads passed for a bound of 0 by way of a NaN."""

    def network(bias: float) -> rn.Network:
        wild = Layer(Affine({0: np.array([[1.7e308]])}, np.zeros(1)))
        plain = Layer(Affine({0: np.array([[1.0]])}, np.array([bias])))
        return rn.Network([wild, plain], Affine({2: np.array([[1.0]])}, np.zeros(1)), input_shape=1)

    first, second = network(0.0), network(-9.0)
    relations = [
        [
            {**linear(1, 0.0), "kind": ["new"]},
            {**linear(1, 0.0), "block": [block], "index": [0 if block >= 0 else -1]},
        ]
        for block in named
    ]
    domain = {"kind": "box", "lo": [-4.0], "hi": [4.0]}
    assert not rn.verify(
        forged(first, second, domain, [None, None], relations), first, second
    ).holds


@pytest.fixture
def proof(tmp_path, capsys):
    """A model, its small copy and the certificate, as files."""
    files = tmp_path / "m.npz", tmp_path / "s.npz", tmp_path / "c.json"
    rn.save(ramp(2.0), files[0])
    made = ("normalize", files[0], "-o", files[1], "--domain", "box:-1,1", "--certificate")
    assert run(capsys, *made, files[2])[0] == 0
    return files[2], files[0], files[1]


def test_verify_says_which_domain(capsys, proof) -> None:
    code, text, _ = run(capsys, "verify", *proof)
    assert code == 0
    assert "Box([-1, 1]^1)" in text
    assert "Box([-1, 1]^1)" in json.loads(run(capsys, "verify", *proof, "--json")[1])["domain"]
    assert run(capsys, "verify", *proof, "--domain", "box:-0.5,1")[0] == 0
    code, text, _ = run(capsys, "verify", *proof, "--domain", "box:-1,2")
    assert code == 1
    assert "Box([-1, 1]^1), which does not contain Box([-1, 2]^1)" in " ".join(text.split())
    assert run(capsys, "verify", *proof, "--domain", "box:1,0")[0] == 2


def test_a_tampered_schema_fails(capsys, proof) -> None:
    document = json.loads(proof[0].read_text())
    proof[0].write_text(json.dumps({**document, "schema": "relunorm.certificate/1"}))
    assert run(capsys, "verify", *proof)[0] == 1
    proof[0].write_text(json.dumps({"schema": "something else"}))
    assert run(capsys, "verify", *proof)[0] == 2


def test_a_file_that_rounds_is_named(tmp_path) -> None:
    network = build([[[0.1], [0.3]], [[1 / 3, 0.7]]], [[0.05, -0.1], [0.2]])
    small = rn.normalize(network, "unit", LINE)
    assert small.certificate is not None
    rn.save(small.network, tmp_path / "small.onnx")
    found = rn.verify(small.certificate, network, rn.load(tmp_path / "small.onnx"))
    assert not found.holds
    assert "float64" in found.problems[0]
    rn.save(small.network, tmp_path / "small.onnx", dtype="float64")
    assert rn.verify(small.certificate, network, rn.load(tmp_path / "small.onnx")).holds
