"""A network at a point, for certain: with a bound on the rounding, or without any rounding.

Whatever is called a counterexample rests on one of the two: `enclosed` evaluates a batch in float64
and says how far each number can be off, `exact_output` evaluates one point in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from relunorm.arithmetic.dyadic import Dyadic, dyadic, objects, product
from relunorm.arithmetic.floats import SMALLEST, gamma, slack
from relunorm.matrix import Array, Matrix, Vector
from relunorm.network import Activation, Affine, Network

#: Networks with more parameters than this are not evaluated in whole numbers: a second or so.
PARAMETERS = 1_000_000


def enclosed(
    network: Network, points: Array, absolute: Sequence[dict[int, Matrix]] | None = None
) -> tuple[list[Array], list[Array]]:
    """Every map's result at a batch of points and a bound on its rounding error, the output's last.

    A running error analysis: sound for every order of summation.

    Args:
        absolute: entrywise absolute values of every map's matrices, if at hand.
    """
    operations = max(network.widths) + 4 * len(network.layers) + 12
    values, errors = [points], [np.zeros_like(points)]
    pre, off = [], []
    for index, affine in enumerate(network.maps):
        z = affine(values)
        size = np.broadcast_to(np.abs(affine.bias), z.shape).copy()
        carried = np.zeros_like(z)
        for source, matrix in affine.terms.items():
            weight = abs(matrix) if absolute is None else absolute[index][source]
            size += np.abs(values[source]) @ weight.T
            if source:
                carried += errors[source] @ weight.T
        error = slack(size, operations) + carried * (1 + gamma(operations))
        error = np.where(np.isnan(error), np.inf, error)
        pre.append(z.copy())
        off.append(error)
        if index < len(network.layers):
            activation = network.layers[index].activation
            errors.append(_after(activation, z, error))
            values.append(activation.apply_(z))
    return pre, off


def _after(activation: Activation, z: Array, error: Array) -> Array:
    """How far the activation of z can be off when z is off by ``error``."""
    if activation.kind == "step":
        return np.where(np.abs(z) > error, 0.0, 1.0 + abs(activation.at_zero))
    steep = max(map(abs, activation.slopes))
    lost = 0.0 if activation.kind == "relu" else gamma(2) * steep * np.abs(z) + SMALLEST
    return error * steep * (1 + gamma(4)) + lost


def certain_outputs(network: Network, points: Array) -> tuple[Array, Array]:
    """Outputs and a bound on their rounding error at every point."""
    pre, off = enclosed(network, points)
    return pre[-1], off[-1]


def exact_output(network: Network, point: Vector | Sequence[Fraction]) -> list[Fraction]:
    """f(x) without rounding; some tenths of a microsecond per stored weight.

    >>> network = Network.from_weights([[[0.5]], [[2.0]]], [[0.25], [0.0]])
    >>> exact_output(network, np.array([0.1])) == [Fraction(0.1) + Fraction(1, 2)]
    True
    """
    # All values are integers times a power of two, over the common denominator of the inputs.
    over, start = _input(point)
    values = [start]
    for layer in network.layers:
        values.append(_activated(layer.activation, _affine(layer.affine, values, over), over))
    return _affine(network.output, values, over).fractions(over)


def _input(point: Vector | Sequence[Fraction]) -> tuple[int, Dyadic]:
    entries = np.asarray(point, dtype=object).ravel().tolist()
    if not any(isinstance(x, Fraction) for x in entries):
        return 1, dyadic(np.array(entries, dtype=np.float64))
    fractions = [x if isinstance(x, Fraction) else Fraction(float(x)) for x in entries]
    over = lcm(*(x.denominator for x in fractions))
    whole = [x.numerator * (over // x.denominator) for x in fractions]
    return over, Dyadic(objects(whole), 0)


def _affine(affine: Affine, values: Sequence[Dyadic], over: int) -> Dyadic:
    bias = dyadic(affine.bias)
    total = Dyadic(bias.whole * over, bias.exponent)
    for source, matrix in affine.terms.items():
        total = total + product(matrix, values[source])
    return total


def _activated(activation: Activation, z: Dyadic, over: int) -> Dyadic:
    if activation.kind == "identity":
        return z
    if activation.kind == "step":
        numerator, denominator = float(activation.at_zero).as_integer_ratio()
        levels = (numerator * over, denominator * over, 0)  # at 0, above, below
        whole = [levels[0 if n == 0 else 1 if n > 0 else 2] for n in z.whole.tolist()]
        return Dyadic(objects(whole), 1 - denominator.bit_length())
    numerator, denominator = float(activation.slopes[0]).as_integer_ratio()
    whole = [n * denominator if n > 0 else n * numerator for n in z.whole.tolist()]
    return Dyadic(objects(whole), z.exponent + 1 - denominator.bit_length())


def satisfied(network: Network, point: Vector, A: Array, b: Vector) -> bool | None:
    """Whether A f(x) <= b in real arithmetic; None where that would take too long to decide.

    >>> network = Network.from_weights([[[1.0]], [[0.1]]])
    >>> satisfied(network, np.array([3.0]), np.array([[1.0]]), np.array([0.3]))  # 0.1 * 3 > 0.3
    False
    """
    value, off = (part[0] for part in certain_outputs(network, point[None]))
    room, unsure = room_left(A, b, value, off)
    if (room < -unsure).any():
        return False
    if (room > unsure).all():
        return True
    if network.parameters + A.size > PARAMETERS:
        return None
    return min(exact_room(A, b, exact_output(network, point)), default=0) >= 0


def room_left(A: Array, b: Vector, value: Vector, off: Vector) -> tuple[Vector, Vector]:
    """b - A y, and how far that can be off for a y within ``off`` of ``value``."""
    size = np.abs(b) + np.abs(A) @ np.abs(value)
    unsure = slack(size, A.shape[1] + 2) + (np.abs(A) @ off) * (1 + gamma(A.shape[1] + 4))
    return b - A @ value, unsure


def exact_room(A: Array, b: Vector, value: Sequence[Fraction]) -> list[Fraction]:
    """b - A y without rounding."""
    return [
        Fraction(float(end))
        - sum((Fraction(float(a)) * y for a, y in zip(row, value, strict=True) if a), Fraction(0))
        for row, end in zip(A, b, strict=True)
    ]
