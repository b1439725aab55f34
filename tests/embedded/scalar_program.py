"""Oracles for exported programs that share no code with them: scalars, one operation at a time.

`run_scalar` walks the structure and tables of a certificate in Python integers, in the order of the
C code, and notes the smallest and largest number each accumulator held. `exact_network` evaluates a
network in rational numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm.network import Network


def run_scalar(program: Any, inputs: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Outputs for one input, and per map the least and largest number its accumulator held."""
    low, high = program.input_low.tolist(), program.input_high.tolist()
    values = [[min(max(x, a), b) for x, a, b in zip(inputs, low, high, strict=True)]]
    seen: list[tuple[int, int]] = []
    for index, affine in enumerate(program.maps):
        held: list[int] = []
        layer = program.layers[index] if index < len(program.layers) else None
        row_values = []
        for i in range(affine.size):
            acc = int(affine.bias[i])
            held.append(acc)
            for source, term in affine.terms.items():
                matrix = term.matrix.toarray() if sp.issparse(term.matrix) else term.matrix
                for j in range(matrix.shape[1]):
                    acc += int(matrix[i, j]) * values[source][j]
                    held.append(acc)
            row_values.append(acc if layer is None else _activate(layer, i, acc, held))
        values.append(row_values)
        seen.append((min(held), max(held)))
    return values[-1], seen


def _activate(layer: Any, i: int, acc: int, held: list[int]) -> int:
    if layer.kind == "step":
        on, at_zero = layer.levels
        return on if acc > 0 else at_zero if acc == 0 else 0
    shift = int(layer.affine.exponent[i]) - int(layer.exponent[i])
    if layer.kind == "relu" and acc <= 0:
        return 0
    if shift:
        acc += 2 ** (shift - 1)
    held.append(acc)
    value = acc // 2**shift
    if layer.kind == "leaky" and value < 0:
        m, k = layer.slope
        value = value * m + (2 ** (k - 1) if k else 0)
        held.append(value)
        value //= 2**k
    return value


def exact_network(network: Network, inputs: list[Fraction]) -> list[Fraction]:
    """The outputs in rational arithmetic."""
    values = [inputs]
    for index, affine in enumerate(network.maps):
        rows = []
        for i in range(affine.size):
            total = Fraction(float(affine.bias[i]))
            for source, matrix in affine.terms.items():
                row = matrix[[i]].toarray()[0] if sp.issparse(matrix) else np.asarray(matrix)[i]
                total += sum(
                    (Fraction(float(w)) * v for w, v in zip(row, values[source], strict=True) if w),
                    Fraction(0),
                )
            if index < len(network.layers):
                act = network.layers[index].activation
                if act.kind == "step":
                    sign = Fraction(act.at_zero) if total == 0 else Fraction(int(total > 0))
                    total = sign
                elif total < 0:
                    total *= Fraction(act.slopes[0])
            rows.append(total)
        values.append(rows)
    return values[-1]
