"""The canonical form of a shallow network in rational arithmetic: complete and exact.

    f(x) = A x + c + sum_H gamma_H relu(n_H.x + beta_H)

over the distinct hyperplanes H that cross the interior of the domain, n_H of l1 norm 1 and on the
standard side (first non-zero entry positive). relu(z) = z + relu(-z) turns a unit around at the
price of an affine term, leaky(z) = a z + (1 - a) relu(z) makes it a relu. The kinks of f show every
H and gamma_H, and what is left is affine, so equal functions on the domain have equal forms.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import inf

import numpy as np

from relunorm import matrix as mx
from relunorm.arithmetic.certain import exact_output
from relunorm.clock import NO_LIMIT, Clock
from relunorm.domain import Box, Domain
from relunorm.errors import InvalidNetworkError
from relunorm.network import RELU, Activation, Affine, Layer, Network

Row = tuple[Fraction, ...]
#: An affine function: coefficients on entries (0, j) of the input and (1, i) of the hidden layer.
Linear = dict[tuple[int, int], Fraction]
#: Where a `Linear` keeps its constant.
BIAS = (-1, 0)


@dataclass(frozen=True)
class ShallowForm:
    """A shallow network written in the one possible way.

    Attributes:
        units: per hyperplane its normal n, offset beta and the weights gamma on the outputs,
            sorted.
        activation: relu, or the step with its value at 0.
    """

    linear: tuple[Row, ...]
    constant: Row
    units: tuple[tuple[Row, Fraction, Row], ...]
    activation: Activation

    @cached_property
    def digest(self) -> str:
        """sha256 of all numbers, as hex."""
        kind = (self.activation.kind, self.activation.at_zero if self._steps else None)
        kind = kind if self.units else None  # then the function is affine, whatever the network was
        return hashlib.sha256(
            repr((kind, self.linear, self.constant, self.units)).encode()
        ).hexdigest()

    @property
    def _steps(self) -> bool:
        return self.activation.kind == "step"

    def network(self) -> Network:
        """The form as a network, every number rounded to float64."""
        d = len(self.linear[0])
        terms: dict[int, np.ndarray] = {0: np.array(self.linear, dtype=np.float64).reshape(-1, d)}
        layers = []
        if self.units:
            normals = np.array([n for n, _, _ in self.units], dtype=np.float64)
            offsets = np.array([beta for _, beta, _ in self.units], dtype=np.float64)
            layers = [Layer(Affine({0: normals}, offsets), self.activation)]
            terms[1] = np.array([gamma for _, _, gamma in self.units], dtype=np.float64).T
            if not terms[0].any():
                del terms[0]
        output = Affine(terms, np.array(self.constant, dtype=np.float64))
        return Network(layers, output, input_shape=d)


def steps_apart(first: ShallowForm, second: ShallowForm, box: Box) -> Fraction | None:
    """A bound on |f - g| over a box for two forms with the same kind of step; else None.

        |f - g| <= |A - A'| max |x| + |c - c'| + sum_H |gamma_H - gamma'_H| max |step|

    for every output, gamma_H = 0 where a form has no unit on H. Steps on one hyperplane jump
    together, so their weights are subtracted before their sizes are added up.

    >>> box = Box([-1.0], [1.0])
    >>> forms = [
    ...     shallow_form(Network.from_weights([[[3.0]], [[v]]], [[-1.0], [0.0]], "step"), box)
    ...     for v in (1.0, 1.5)
    ... ]
    >>> steps_apart(forms[0], forms[1], box)
    Fraction(1, 2)
    """
    if first.activation != second.activation or first.activation.kind != "step":
        return None
    most = max(Fraction(1), abs(Fraction(first.activation.at_zero)))
    reach = [
        max(abs(Fraction(float(lo))), abs(Fraction(float(hi))))
        for lo, hi in zip(box.lo, box.hi, strict=True)
    ]
    weights: dict[tuple[Row, Fraction], list[Fraction]] = {}
    outputs = len(first.constant)
    for form, sign in ((first, 1), (second, -1)):
        for normal, offset, gamma in form.units:
            old = weights.setdefault((normal, offset), [Fraction(0)] * outputs)
            for out, v in enumerate(gamma):
                old[out] += sign * v
    return max(
        sum((abs(a - b) * x for a, b, x in zip(*lines, reach, strict=True)), Fraction(0))
        + abs(first.constant[out] - second.constant[out])
        + sum((abs(gamma[out]) for gamma in weights.values()), Fraction(0)) * most
        for out, lines in enumerate(zip(first.linear, second.linear, strict=True))
    )


def shallow_form(network: Network, domain: Domain | None = None) -> ShallowForm:
    """The canonical form of a network with at most one hidden layer, without any rounding.

    Complete: two networks have the same form if and only if they are the same function on the
    domain (a box, a ball, or all of space when omitted). A change of 2^-40 in one weight shows.
    Cost: about outputs * inputs * units rational operations, a microsecond each.

    >>> absolute = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]])
    >>> form = shallow_form(absolute, Box([-1.0], [1.0]))
    >>> [str(form.linear[0][0]), str(form.units[0][2][0])]
    ['-1', '2']
    """
    if len(network.hidden) > 1:
        raise InvalidNetworkError(
            f"{network!r} has {len(network.hidden)} hidden layers; the complete rational form "
            "exists for at most one"
        )
    return _Builder(network, domain).build()


def shallow_cost(network: Network) -> float:
    """How many rational products `shallow_form` takes, about; inf for deeper networks."""
    if len(network.hidden) > 1:
        return inf
    longest = network.input_size + network.units
    stages = sum(affine.nnz for affine in network.maps) * longest
    return network.units * network.input_size * network.output_size + (
        stages if len(network.layers) > len(network.hidden) else 0
    )


class _Builder:
    def __init__(self, network: Network, domain: Domain | None):
        self.domain = domain
        self.network = network
        self.size = network.input_size
        self.outputs = network.output_size
        box = None if domain is None else domain.as_box
        fixed = [] if box is None else np.flatnonzero(box.lo == box.hi)
        self.pinned = {int(i): Fraction(float(box.lo[i])) for i in fixed if box is not None}
        self.linear = [[Fraction(0)] * self.size for _ in range(self.outputs)]
        self.units, self.outs = _multiplied_out(network)
        self.constant = [row.pop(BIAS, Fraction(0)) for row in self.outs]
        self.found: dict[tuple[Row, Fraction], list[Fraction]] = {}
        hidden = [network.layers[k].activation for k in network.hidden]
        self.activation = hidden[0] if hidden else RELU

    def build(self) -> ShallowForm:
        zero = Fraction(0)
        for out, row in enumerate(self.outs):
            direct = [row.get((0, j), zero) for j in range(self.size)]
            self._affine(out, Fraction(1), *self._pin(direct, zero))
        for i, unit in enumerate(self.units):
            dense = [unit.get((0, j), zero) for j in range(self.size)]
            weights = [row.get((1, i), zero) for row in self.outs]
            self._unit(*self._pin(dense, unit.get(BIAS, zero)), weights)
        units = [(n, beta, tuple(gamma)) for (n, beta), gamma in self.found.items() if any(gamma)]
        step = self.activation.kind == "step"
        return ShallowForm(
            tuple(map(tuple, self.linear)),
            tuple(self.constant),
            tuple(sorted(units)),
            self.activation if step else RELU,
        )

    def _pin(self, row: list[Fraction], bias: Fraction) -> tuple[list[Fraction], Fraction]:
        """The row without coordinates that the domain holds fixed."""
        for i, value in self.pinned.items():
            bias += row[i] * value
            row[i] = Fraction(0)
        return row, bias

    def _affine(self, out: int, weight: Fraction, row: list[Fraction], bias: Fraction) -> None:
        """Add weight * (row.x + bias) to an output."""
        target = self.linear[out]
        for i, w in enumerate(row):
            if w:
                target[i] += weight * w
        self.constant[out] += weight * bias

    def _unit(self, row: list[Fraction], bias: Fraction, weights: list[Fraction]) -> None:
        if not any(weights):
            return
        size = sum(map(abs, row), Fraction(0))
        if self.activation.kind == "step":
            self._step(row, bias, weights, size)
            return
        slope = Fraction(self.activation.slopes[0])
        active, dead = self._sides(row, bias)
        for out, v in enumerate(weights):
            if v and (slope or active):
                self._affine(out, v if active else v * slope, row, bias)
        if active or dead or not size:
            return
        first = next(w for w in row if w)
        if first < 0:
            for out, v in enumerate(weights):
                if v:
                    self._affine(out, v * (1 - slope), row, bias)
        self._collect(row, bias, size if first > 0 else -size, weights, (1 - slope) * size)

    def _step(
        self, row: list[Fraction], bias: Fraction, weights: list[Fraction], size: Fraction
    ) -> None:
        at_zero = Fraction(self.activation.at_zero)
        active, dead = self._sides(row, bias, strict=True)
        if not size:
            active, dead = True, False
            level = Fraction(1) if bias > 0 else Fraction(0) if bias < 0 else at_zero
            weights = [v * level for v in weights]
        if active:
            self.constant = [c + v for c, v in zip(self.constant, weights, strict=True)]
        if active or dead:
            return
        turn = at_zero == Fraction(1, 2) and next(w for w in row if w) < 0
        if turn:  # step(z) = 1 - step(-z), seed 001 (2.5)
            self.constant = [c + v for c, v in zip(self.constant, weights, strict=True)]
        self._collect(row, bias, -size if turn else size, weights, Fraction(-1 if turn else 1))

    def _collect(
        self,
        row: list[Fraction],
        bias: Fraction,
        divisor: Fraction,
        weights: list[Fraction],
        factor: Fraction,
    ) -> None:
        key = (tuple(w / divisor for w in row), bias / divisor)
        old = self.found.setdefault(key, [Fraction(0)] * self.outputs)
        for out, v in enumerate(weights):
            old[out] += factor * v

    def _sides(
        self, row: list[Fraction], bias: Fraction, strict: bool = False
    ) -> tuple[bool, bool]:
        """Whether row.x + bias is never negative, and whether never positive, on the domain.

        With ``strict`` for a step: whether it is always at its upper, or lower, value.
        """
        if self.domain is None:
            constant = not any(row)
            low_sign = high_sign = (bias > 0) - (bias < 0) if constant else 0
            if not constant:
                low_sign, high_sign = -1, 1
        else:
            low_sign, high_sign = self.domain.end_signs(dict(enumerate(row)), bias)
        if not strict:
            return low_sign >= 0, high_sign <= 0 and low_sign < 0
        at_zero = self.activation.at_zero
        active = low_sign > 0 or (low_sign == 0 and at_zero == 1)
        dead = high_sign < 0 or (high_sign == 0 and at_zero == 0)
        return active, dead and not active


def _multiplied_out(network: Network) -> tuple[list[Linear], list[Linear]]:
    """The rows of the units, and those of the outputs, with every linear stage multiplied out."""
    expressed: list[list[Linear]] = [[{(0, j): Fraction(1)} for j in range(network.input_size)]]
    units: list[Linear] = []
    for layer in network.layers:
        rows = _substituted(layer.affine, expressed)
        if layer.has_units:
            units = rows
            rows = [{(1, i): Fraction(1)} for i in range(layer.width)]
        expressed.append(rows)
    return units, _substituted(network.output, expressed)


def _substituted(affine: Affine, expressed: list[list[Linear]]) -> list[Linear]:
    """The rows of a map, each value replaced by what it is."""
    rows: list[Linear] = [{BIAS: Fraction(float(b))} for b in affine.bias]
    for source, matrix in affine.terms.items():
        ends, columns, values = mx.csr_parts(matrix)
        for i, row in enumerate(rows):
            for k in range(ends[i], ends[i + 1]):
                weight = Fraction(float(values[k]))
                for place, inner in expressed[source][columns[k]].items():
                    row[place] = row.get(place, 0) + weight * inner
    return rows


#: Rational products that are computed, at most; about a microsecond each.
PRODUCTS = 2_000_000


def largest_difference(
    first: Network, second: Network, domain: Domain, clock: Clock = NO_LIMIT
) -> tuple[Fraction, float | None] | None:
    """max |f - g| over the interval, without rounding, and a float at which it is attained.

    Where one input is read by steps alone, z = w x + b changes sign at x = -b/w and nowhere else.
    Between two neighbouring thresholds every step, and so the network, is constant. Its values at
    the thresholds, at one point between each two and at both ends are all it ever takes.

    Exact: both networks are evaluated in rational arithmetic on every piece of both. None where
    that does not apply (see `_thresholds`), would take more than `PRODUCTS`, or is not done by
    the end of the clock. In place of the float None where no piece holds one.

    >>> from relunorm import Box
    >>> up = Network.from_weights([[[1.0]], [[1.0]]], [[0.0], [0.0]], "step")
    >>> down = Network.from_weights([[[-1.0]], [[-1.0]]], [[0.0], [1.25]], "step")
    >>> largest_difference(up, down, Box([-1.0], [1.0]))
    (Fraction(1, 4), -1.0)
    """
    cuts = [_thresholds(network) for network in (first, second)]
    box = domain.as_box
    if cuts[0] is None or cuts[1] is None or box is None:
        return None
    lo, hi = Fraction(float(box.lo[0])), Fraction(float(box.hi[0]))
    ends = sorted({lo, hi} | {cut for cut in cuts[0] | cuts[1] if lo < cut < hi})
    if (first.parameters + second.parameters) * (2 * len(ends) - 1) > PRODUCTS:
        return None
    most, witness = Fraction(-1), None
    for low, high in [*((end, end) for end in ends), *pairwise(ends)]:
        if clock.expired():
            return None
        point = (low + high) / 2
        values = (exact_output(network, [point]) for network in (first, second))
        apart = max(abs(a - b) for a, b in zip(*values, strict=True))
        near = float(point)
        if apart > most or (apart == most and witness is None):
            inside = low == near == high or low < near < high  # exact: a Fraction and a float
            most, witness = apart, near if inside else None
    return most, witness


def _thresholds(network: Network) -> set[Fraction] | None:
    """Where its steps jump; None unless there is one input, read by nothing but steps alone."""
    if network.input_size != 1 or 0 in network.output.terms:
        return None
    found: set[Fraction] = set()
    for layer in network.layers:
        if 0 not in layer.affine.terms:
            continue
        if layer.activation.kind != "step" or len(layer.affine.terms) > 1:
            return None
        slopes = mx.dense(layer.affine.terms[0])[:, 0]
        for w, b in zip(slopes, layer.affine.bias, strict=True):
            if w:
                found.add(-Fraction(float(b)) / Fraction(float(w)))
    return found
