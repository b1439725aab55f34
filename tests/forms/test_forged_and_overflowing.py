"""Forged certificates, and numbers that overflow on the way to a verdict."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from test_commands import run

import relunorm as rn
from relunorm.domain.documents import holds
from relunorm.errors import InvalidNetworkError
from relunorm.forms.certificate.certificate import SCHEMA as CERTIFICATE
from relunorm.forms.certificate.certificate import Certificate, seal
from relunorm.forms.comparison.counterexample import uphill
from relunorm.forms.outward import Range
from relunorm.network import Affine, Layer
from relunorm.search.tape import VERSION
from relunorm.stability.bound_proofs import SCHEMA as BOUNDS

LINE = rn.Box([-1.0], [1.0])
build = rn.Network.from_weights
SQUARE, DISK = rn.Box.cube(2, -1, 1), rn.Ball([0.0, 0.0], 1.0)
DIAMOND = rn.Polytope([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], [1.0] * 4)


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


def test_a_range_without_a_number_is_endless() -> None:
    found = Range(np.array([np.nan, 0.0]), np.array([1.0, np.nan]))
    assert found.lo.tolist() == [-np.inf, 0.0]
    assert found.hi.tolist() == [1.0, np.inf]
    assert found.after(rn.Activation("relu")).hi.tolist() == [1.0, np.inf]


def test_tolerance_zero_is_a_question() -> None:
    """No search shows that functions are equal; one that they differ needs no tolerance."""
    first = build([[[1.0, 1], [1.0, -1]], [[1.0, 1.0]], [[1.0]]], [[0.1, 0.3], [-0.5], [0.0]])
    second = build(
        [[[1.0, 1], [1.0, -1]], [[1.0, 1.0], [1.0, 1.0]], [[0.5, 0.5]]],
        [[0.1, 0.3], [-0.5, -0.5], [0.0]],
    )
    found = rn.compare(first, second, rn.Box.cube(2), tolerance=0.0)
    assert found.verdict in ("equal", "unknown")
    assert found.upper < 1e-12
    other = second.replace(output=rn.Affine({2: [[0.5, 0.5 + 2.0**-40]]}, [0.0]))
    assert rn.compare(first, other, rn.Box.cube(2), tolerance=0.0).verdict == "different"


@pytest.mark.parametrize("slope", [[np.inf, 0.0], [np.nan, 1.0], [1e308, -1e300]])
def test_gradients_that_overflow_over_a_polytope(slope: list[float]) -> None:
    """They reached a linear programming routine as they were."""
    points = uphill(DIAMOND, np.zeros((1, 2)), np.array([slope]))
    assert DIAMOND.contains(points, 1e-9).all()


@pytest.mark.parametrize("size", [1e100, 1e200])
def test_linear_stages_that_overflow_raise_no_warning(size: float) -> None:
    def network(bias: float) -> rn.Network:
        stage = Layer(Affine({0: np.array([[size]])}, np.array([size])), rn.Activation("identity"))
        units = Layer(Affine({1: np.array([[size]])}, np.array([bias])))
        return rn.Network([stage, units], Affine({2: np.eye(1)}, np.zeros(1)), input_shape=1)

    try:
        found = rn.compare(network(0.0), network(1.0), LINE, time_limit=2.0)
        assert found.certificate is None or np.isfinite(found.certificate.bound)
    except InvalidNetworkError:
        assert size == 1e200  # the product of the stages is no number


def test_pure_adds_no_skip() -> None:
    network = build([[[1.0, 2]], [[1.0], [-1.0]], [[1.0, 1.0]]], [[0.1], [0.2, 0.3], [1.0]])
    disk = rn.Ball([0.0, 0.0], 1.0)
    found = rn.normalize(network, "bounded", disk, architecture="keep", pure=True)
    assert all(set(a.terms) <= {k} for k, a in enumerate(found.network.maps))
    assert not found.network.output.bias.any()
    points = disk.sample(200, 0)
    assert np.abs(found.network(points) - network(points)).max() < 1e-12
    assert found.certificate is not None
    assert rn.verify(found.certificate, network, found.network).holds


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (SQUARE, SQUARE, True),
        (SQUARE, rn.Box([-1.0, -1.0], [1.0, 1.0 + 2**-52]), False),
        (SQUARE, DISK, True),
        (DISK, SQUARE, False),
        (rn.Ball([0.0, 0.0], 1.5), SQUARE, True),
        (DISK, rn.Ball([0.5, 0.0], 0.5), True),
        (DISK, rn.Ball([0.5, 0.0], 0.5 + 2**-53), False),
        (DIAMOND, DISK, False),
        (DIAMOND, rn.Ball([0.0, 0.0], 0.7), True),
        (DIAMOND, rn.Box.cube(2, -0.5, 0.5), True),
        (DIAMOND, rn.Box.cube(2, -0.5, 0.5 + 2**-53), False),
        (DIAMOND, DIAMOND, True),
        (rn.Box.cube(2, -1.1, 1.1), DIAMOND, True),
        (SQUARE, LINE, False),
    ],
)
def test_which_domain_holds_which(outer, inner, expected: bool) -> None:
    assert holds(outer, inner) == expected


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


@pytest.mark.parametrize("scales", [(3.0, 7.0), (0.1, 0.3), (1e5, 1 / 3)])
def test_rounded_fingerprint_of_a_function_that_is_zero(scales: tuple[float, float]) -> None:
    """What is left of 0 by rounding was scaled up and hashed."""
    row, bias, out = np.array([0.1, 0.2]), 0.05, 0.7
    first = build([[row, row], [[out, -out]]], [[bias, bias], [0.5]])
    rows, ends = [row * s for s in scales], [out / scales[0], -out / scales[1]]
    second = build([rows, [ends]], [[bias * s for s in scales], [0.5]])
    square = rn.Box.cube(2, -1, 1)
    assert rn.fingerprint(first, square, 9) == rn.fingerprint(second, square, 9)
    other = build([rows, [[ends[0], ends[1] * (1 + 1e-6)]]], second.weights()[1])
    assert rn.fingerprint(first, square, 9) != rn.fingerprint(other, square, 9)
