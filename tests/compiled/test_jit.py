"""What kernels promise about their sums, whoever compiles them first."""

from __future__ import annotations

import numpy as np

from relunorm.compiled.jit import kernel, kernel_part, loose_part


@kernel_part
def _in_order(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(values)):
        total += values[k]
    return total


@loose_part
def _steering(values):  # type: ignore[no-untyped-def]
    return 2.0 * _in_order(values)


@kernel
def _kernel(values):  # type: ignore[no-untyped-def]
    return _steering(values), _in_order(values)


def test_a_strict_part_keeps_its_order_where_a_loose_one_compiles_it_first() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        values = rng.normal(size=997) * 10.0 ** rng.integers(-6, 6, 997)
        expected = 0.0
        for value in values.tolist():
            expected += value
        assert _kernel(values) == (2.0 * expected, expected)
