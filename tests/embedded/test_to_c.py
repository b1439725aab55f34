"""`to_c` on networks of every kind: the proofs against rational and scalar oracles."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_program import exact_network, run_scalar
from strategies import networks

from relunorm import Ball, Box, Network, Polytope, to_c
from relunorm.embedded import verify
from relunorm.embedded.integers import RANGES, chosen
from relunorm.errors import InvalidDomainError, InvalidInputError, RelunormError


def mlp(*widths: int, seed: int = 0, activation: str = "relu") -> Network:
    rng = np.random.default_rng(seed)
    weights = [
        rng.normal(size=(b, a)) / np.sqrt(a) for a, b in zip(widths, widths[1:], strict=False)
    ]
    biases = [rng.normal(size=n) / 4 for n in widths[1:]]
    return Network.from_weights(weights, biases, activation)  # type: ignore[arg-type]


def hard_points(box: Box, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = np.where(rng.random((count, box.dimension)) < 0.5, box.lo, box.hi)
    return np.vstack([box.sample(count, rng), corners])


@given(
    networks(),
    st.integers(0, 1000),
    st.sampled_from([8, 16, 32]),
    st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_no_oracle_ever_leaves_what_was_proved(
    network: Network, seed: int, bits: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    middle, reach = (
        rng.normal(size=network.input_size) * size,
        rng.random(network.input_size) * size,
    )
    box = Box(middle - reach, middle + reach)
    made = to_c(network, box, bits=bits, parts=4, samples=50, random_state=seed)
    program, document = made.program, made.certificate.document
    bounds = [np.inf if b is None else b for b in document["bounds"]["of_floats"]]
    on_grid = [np.inf if b is None else b for b in document["bounds"]["on_grid"]]
    accumulators = [RANGES[m.accumulator] for m in program.maps]
    scale = Fraction(2) ** program.output_exponent
    for point in hard_points(box, 4, seed):
        integers = program.quantize(point[None])[0].tolist()
        out, held = run_scalar(program, integers)
        assert out == program(np.array(integers)).tolist()
        for (low, high), (least, most) in zip(held, accumulators, strict=True):
            assert least <= low <= high <= most
        grid = [
            Fraction(q) / Fraction(2) ** int(s)
            for q, s in zip(integers, program.input_exponent, strict=True)
        ]
        for inputs, limits in (([Fraction(float(x)) for x in point], bounds), (grid, on_grid)):
            for y, exact, limit in zip(out, exact_network(network, inputs), limits, strict=True):
                assert limit == np.inf or abs(y / scale - exact) <= Fraction(limit)
    assert verify(made.certificate, network, made.source).holds
