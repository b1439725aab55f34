"""Networks at points, for certain: whole numbers and error bounds against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import networks

from relunorm.arithmetic import certain
from relunorm.arithmetic.certain import certain_outputs, exact_output, satisfied
from relunorm.arithmetic.dyadic import dyadic, product
from relunorm.network import Activation, Affine, Network

seeds = st.integers(0, 2**32 - 1)


def by_fractions(network: Network, x: list[Fraction]) -> list[Fraction]:
    """f(x), one product after the other."""
    values = [x]

    def affine(part: Affine) -> list[Fraction]:
        out = [Fraction(b) for b in part.bias.tolist()]
        for source, matrix in part.terms.items():
            rows = matrix.toarray().tolist() if sp.issparse(matrix) else matrix.tolist()
            for i, row in enumerate(rows):
                for w, v in zip(row, values[source], strict=True):
                    out[i] += Fraction(w) * v
        return out

    def activated(kind: Activation, z: Fraction) -> Fraction:
        if kind.kind == "step":
            return Fraction(kind.at_zero) if z == 0 else Fraction(int(z > 0))
        return z if z > 0 else Fraction({"leaky": kind.slope, "relu": 0.0}.get(kind.kind, 1.0)) * z

    for layer in network.layers:
        values.append([activated(layer.activation, z) for z in affine(layer.affine)])
    return affine(network.output)


@given(networks(), seeds, st.sampled_from([0, -30, 200]), st.booleans())
def test_exact_output_is_what_fractions_say(
    network: Network, seed: int, exponent: int, thirds: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=network.input_size) * 10.0**exponent * (rng.random() < 0.9)
    point = [Fraction(v) / 3 if thirds else Fraction(v) for v in x.tolist()]
    assert exact_output(network, point if thirds else x) == by_fractions(network, point)


@given(networks(), seeds)
def test_rounding_errors_stay_within_their_bound(network: Network, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(3, network.input_size))
    values, errors = certain_outputs(network, points)
    for x, value, error in zip(points, values, errors, strict=True):
        exact = by_fractions(network, [Fraction(v) for v in x.tolist()])
        for y, v, e in zip(exact, value.tolist(), error.tolist(), strict=True):
            assert abs(y - Fraction(v)) <= Fraction(e)


@given(networks(), seeds)
def test_constraints_are_decided_without_rounding(network: Network, seed: int) -> None:
    """b is A f(x) rounded to float64, or one float beside it: too close for an error bound."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=network.input_size)
    exact = by_fractions(network, [Fraction(v) for v in x.tolist()])
    A = rng.integers(-2, 3, size=(2, network.output_size)) / 4.0
    sums = [sum((Fraction(a) * y for a, y in zip(row, exact, strict=True)), Fraction(0))
            for row in A.tolist()]  # fmt: skip
    b = np.array([float(s) for s in sums])
    b = np.nextafter(b, rng.choice([-np.inf, np.inf], size=2)) if rng.random() < 0.5 else b
    want = all(s <= Fraction(e) for s, e in zip(sums, b.tolist(), strict=True))
    assert satisfied(network, x, A, b) is want


def test_what_is_too_large_stays_open(monkeypatch) -> None:
    network = Network.from_weights([[[1.0]], [[0.1]]])
    x, A = np.array([3.0]), np.array([[1.0]])
    assert satisfied(network, x, A, np.array([0.1 * 3.0])) is True  # 0.30000000000000004
    assert satisfied(network, x, A, np.array([0.3])) is False
    monkeypatch.setattr(certain, "PARAMETERS", 1)
    assert satisfied(network, x, A, np.array([0.3])) is None
    assert satisfied(network, x, A, np.array([0.4])) is True


@given(seeds)
def test_products_of_any_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 5, size=2)
    matrix = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-300, 300, (rows, columns))
    matrix *= rng.random(matrix.shape) < 0.7
    x = rng.normal(size=columns) * 10.0 ** rng.integers(-320, 300, columns)
    want = [
        sum((Fraction(a) * Fraction(v) for a, v in zip(row, x.tolist(), strict=True)), Fraction(0))
        for row in matrix.tolist()
    ]
    assert product(matrix, dyadic(x)).fractions() == want
    assert product(sp.csr_array(matrix), dyadic(x)).fractions() == want
