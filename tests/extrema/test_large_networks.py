"""Networks too large for one triangular form: folded first, and the same answers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from brute_force import maximum

import relunorm as rn
from relunorm import Activation, Affine, Ball, Box, Layer, Network, Polytope
from relunorm.arithmetic.certain import exact_output
from relunorm.bounds.nodes.form import fits
from relunorm.clock import Progress
from relunorm.errors import InvalidInputError
from relunorm.extrema.decide import decide_any
from relunorm.search.proofs.proof import SearchProof
from relunorm.search.proofs.tape import VERSION, Tape

SQUARE = Box.cube(2)
TRIANGLE = Polytope([[-1, 0], [0, -1], [1, 1]], [1.0, 1.0, 0.0])
DISK = Ball([0.3, -0.2], 0.8)
SQUARE3 = Box.cube(3)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network is too large for a form until it is folded."""
    for where in ("engine", "proofs.proof"):
        monkeypatch.setattr(f"relunorm.search.{where}.fits", lambda network: False)


@pytest.fixture
def no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network is small enough, folded or not."""
    monkeypatch.setattr("relunorm.bounds.nodes.form.MOST_ENTRIES", 0)


def with_skips(seed: int, d: int, slope: float = 0.0, width: int = 3) -> Network:
    rng = np.random.default_rng(seed)
    kind = Activation("leaky", slope) if slope else Activation("relu")
    linear = Layer(Affine({0: rng.normal(size=(d, d))}, rng.normal(size=d)), Activation("identity"))
    first = Layer(Affine({1: rng.normal(size=(width, d))}, rng.normal(size=width)), kind)
    terms = {2: rng.normal(size=(width, width)), 0: rng.normal(size=(width, d))}
    second = Layer(Affine(terms, rng.normal(size=width)), kind)
    output = Affine({3: rng.normal(size=(2, width)), 2: rng.normal(size=(2, width))}, [0.1, -0.2])
    return Network([linear, first, second], output, input_shape=d)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.7, -0.5])
def test_maxima_equal_brute_force(slope):
    for seed in range(3):
        network = with_skips(seed, 3, slope)
        box = Box([-1.0, -1.0, 0.0], [1.0, 0.5, 2.0])
        direction = np.array([1.0, -0.5])
        expected = maximum(network.folded(), direction, box.lo, box.hi)
        found = rn.maximize(network, box, direction, time_limit=20)
        assert found.exact, found
        assert found.complete
        assert found.lower == pytest.approx(expected, abs=2e-7)  # the oracle's LP tolerance
        assert box.holds(found.point)[0]
        first, second = exact_output(network, found.point)
        value = first - second / 2
        assert found.lower <= value <= found.upper
        assert found.certificate is not None
        assert found.certificate.verify(network).holds


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("domain", [TRIANGLE, DISK], ids=["polytope", "ball"])
def test_intervals_hold_on_other_domains(domain):
    network = with_skips(1, 2)
    found = rn.maximize(network, domain, 0, time_limit=1)
    assert domain.holds(found.point)[0]
    assert found.lower <= exact_output(network, found.point)[0]
    assert network(domain.sample(4000, 0))[:, 0].max() <= found.upper < np.inf


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(3))
def test_thresholds_around_the_maximum_are_decided(seed):
    network = with_skips(seed, 2)
    top = maximum(network.folded(), np.array([1.0, 0.0]), SQUARE.lo, SQUARE.hi)
    above, below = ([[-1.0, 0.0]], [-top - 1e-3]), ([[-1.0, 0.0]], [-top + 1e-3])
    never = rn.decide(network, SQUARE, *above)
    assert never.verdict == "proved"
    assert never.certificate is not None
    assert never.certificate.verify(network).holds
    assert never.margin[0] <= -1e-3 + 1e-6
    assert -1e-3 - 1e-6 <= never.margin[1] < 0
    there = rn.decide(network, SQUARE, *below)
    assert there.verdict == "counterexample"
    assert SQUARE.holds(there.point)[0]
    assert exact_output(network, there.point)[0] >= top - 1e-3
    # proved only if every pair is, and a counterexample of any will do
    assert decide_any(network, SQUARE, [above, above]).verdict == "proved"
    assert decide_any(network, SQUARE, [above, below]).verdict == "counterexample"
    assert decide_any(network, SQUARE, [below, above]).verdict == "counterexample"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(3))
def test_conjunctions_against_samples(seed):
    """Both outputs within narrow bounds at once."""
    network = with_skips(seed, 2)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 401)] * 2), axis=-1).reshape(-1, 2)
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    value = network(SQUARE.sample(1, seed))[0]
    for low in (value[1] + 0.05, value[1] - 3.0):
        rhs = np.array([value[0] + 0.05, 0.05 - value[0], low])
        best = (rhs - network(grid) @ rows.T).min(axis=1).max()
        found = rn.decide(network, SQUARE, rows, rhs, time_limit=20)
        assert found.margin[1] >= best
        if best >= 0:
            assert found.verdict == "counterexample"
        if found.verdict == "counterexample":
            value_there = rows @ [float(y) for y in exact_output(network, found.point)]
            assert (value_there <= rhs + 1e-12).all()
        else:
            assert found.verdict == "proved"


@pytest.mark.usefixtures("large")
def test_interrupts_keep_what_is_known():
    def stop(said: Progress) -> None:
        if "upper" in said.facts:
            raise KeyboardInterrupt

    network = with_skips(3, 12, width=40)
    found = rn.maximize(network, Box.cube(12), 0, progress=stop)
    assert not found.complete
    assert found.lower <= found.upper < np.inf
    assert found.resume is not None
    further = found.resume(0.2)
    assert further.lower >= found.lower
    assert further.upper <= found.upper


@pytest.mark.usefixtures("no_form")
@pytest.mark.parametrize("slope", [0.0, 0.2, -0.5])
def test_what_does_not_fit_even_folded_is_bounded_once(slope):
    """Against the maximum that the search finds."""
    network = with_skips(5, 3, slope, width=8)
    box, rows = Box.cube(3), np.array([[1.0, -0.5], [0.0, 1.0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relunorm.bounds.nodes.form.MOST_ENTRIES", 1 << 20)
        true = rn.maximize(network, box, rows[0])
        first = rn.maximize(network, box, -rows[1])
    found = rn.maximize(network, box, rows[0])
    assert true.exact
    assert found.lower <= true.upper
    assert true.lower <= found.upper
    assert found.certificate is not None
    assert found.certificate.verify(network).holds
    assert not replace(found.certificate, limit=found.upper - 1e-6).verify(network).holds
    empty = Tape()
    empty.write(np.array([VERSION]))
    assert not replace(found.certificate, tape=empty).verify(network).holds
    # rows . f <= rhs at once: the second row alone is never satisfied
    never = rn.decide(network, box, rows, [found.upper, -10.0 - first.upper])
    assert never.verdict == "proved"
    assert never.certificate is not None
    assert never.certificate.verify(network).holds
    closer = rn.decide(network, box, [-rows[0]], [-true.upper - 1e-6])
    assert closer.verdict == "unknown"
    assert closer.certificate is None


@pytest.mark.usefixtures("large")
def test_a_changed_proof_is_refused(tmp_path):
    network = with_skips(3, 3, width=6)
    found = rn.maximize(network, SQUARE3, 0)
    proof = found.certificate
    assert proof is not None
    proof.save(tmp_path / "proof.json")
    assert SearchProof.load(tmp_path / "proof.json").verify(network).holds
    assert proof.counts is not None
    assert not replace(proof, limit=found.lower - 1e-6).verify(network).holds
    assert not replace(proof, counts=proof.counts[:-1]).verify(network).holds
    assert not replace(proof, counts=None).verify(network).holds
    document = json.loads((tmp_path / "proof.json").read_text())
    for wrong in (["1"], [-1] * len(proof.counts), 3):
        with pytest.raises(InvalidInputError):
            SearchProof.from_dict({**document, "counts": wrong})


def test_a_convolution_with_many_units():
    """Two layers of 64 x 64 units: each reads its neighbours, the output reads them all."""
    rng = np.random.default_rng(0)
    side = 64

    def stencil() -> sp.csr_array:
        weights = rng.normal(size=(3, 3)) / 3
        parts = [
            sp.diags_array(weights[i], offsets=(-1, 0, 1), shape=(side, side)) for i in (0, 1, 2)
        ]
        shifts = [sp.diags_array([1.0], offsets=[k], shape=(side, side)) for k in (-1, 0, 1)]
        return sp.csr_array(sum(sp.kron(a, b) for a, b in zip(shifts, parts, strict=True)))

    size = side * side
    layers = [
        Layer(Affine({0: stencil()}, rng.normal(size=size) / 8)),
        Layer(Affine({1: stencil()}, rng.normal(size=size) / 8)),
    ]
    output = Affine({2: rng.normal(size=(2, size)) / side}, [0, 0])
    network = Network(layers, output, input_shape=size)
    assert not fits(network)
    center = rng.uniform(size=size)
    box = Box(center - 1e-4, center + 1e-4)
    values = network(box.sample(200, 0))
    found = rn.maximize(network, box, 0)
    assert found.exact
    assert found.certificate is not None
    assert found.certificate.verify(network).holds
    assert box.holds(found.point)[0]
    assert values[:, 0].max() <= found.upper
    assert found.lower == pytest.approx(float(network(found.point)[0]), abs=1e-9)
    never = rn.decide(network, box, [[-1.0, 0]], [-found.upper - 1e-6])
    assert never.verdict == "proved"
    assert never.certificate is not None
    assert never.certificate.verify(network).holds
    there = rn.decide(network, box, [[-1.0, 0]], [-found.lower + 1e-6])
    assert there.verdict == "counterexample"
