"""What is known of two networks over one growing basis: how each unit relates to it.

Block 0 of the basis is the input, every further block holds the units of one layer that are not yet
known. A unit y = act(z) of either network is then one of

- ``new``       a basis function itself,
- ``scaled``    y = s g: its pre-activation is s > 0 times that of the basis function g,
- ``opposite``  y = (1+a) z + s g, where -z is s times the pre-activation of g
                (relu(z) = z + relu(-z), with a the slope for z < 0),
- ``linear``    y = t z + c: dead (0), always active (z), constant (c), or close to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm.forms import outward
from relunorm.forms.outward import Range
from relunorm.matrix import Matrix, Vector
from relunorm.network import Activation, Affine, Network

NEW, SCALED, OPPOSITE, LINEAR = 0, 1, 2, 3
KINDS = ("new", "scaled", "opposite", "linear")


@dataclass(frozen=True)
class Relation:
    """What is claimed about the units of one layer; one entry per unit.

    Attributes:
        block, index: the basis function meant (SCALED, OPPOSITE), or the block and layer-unit
            (as ``block`` = layer, ``index`` = unit of the first network) whose pre-activation this
            one is a scaled and shifted copy of, so that its bounds carry over (LINEAR; -1 if none).
        factor: s, or t for LINEAR.
        constant: c for LINEAR.
    """

    kind: NDArray[np.int8]
    block: NDArray[np.intp]
    index: NDArray[np.intp]
    factor: Vector
    constant: Vector

    @classmethod
    def fresh(cls, size: int) -> Relation:
        """Every unit a basis function."""
        none = np.full(size, -1, dtype=np.intp)
        return cls(np.zeros(size, dtype=np.int8), none, none.copy(), np.zeros(size), np.zeros(size))


@dataclass
class Block:
    """Basis functions that enter together: units of one layer, with their pre-activation forms."""

    forms: Affine
    error: Vector
    range: Range
    activation: Activation
    network: int


@dataclass
class Side:
    """One network as far as it has been walked: its values and pre-activations as forms.

    Attributes:
        bounds: proved bounds on the pre-activations, per layer (may be infinite).
        values, errors, sizes: per value its form, the error bound and the magnitude of the form.
        balls: per value its errors together.
        rounding: per value what multiplying its form by a weight can lose to rounding. Most
            columns of a form hold one entry, so this is far below the textbook bound.
        boxes: per value its range.
        forms, form_errors, form_balls, ranges: per layer form, error, all errors together and range
            of the pre-activation.
        margins: per layer how close to its threshold a step unit may not come for the relation to
            hold; NaN for units that are no matter.
    """

    network: Network
    bounds: list[Range]
    number: int
    values: list[Affine] = field(default_factory=list)
    errors: list[Vector] = field(default_factory=list)
    sizes: list[Vector] = field(default_factory=list)
    balls: list[ErrorBalls] = field(default_factory=list)
    rounding: list[Vector] = field(default_factory=list)
    boxes: list[Range] = field(default_factory=list)
    forms: list[Affine] = field(default_factory=list)
    form_errors: list[Vector] = field(default_factory=list)
    form_balls: list[ErrorBalls] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    margins: list[Vector] = field(default_factory=list)


#: Matrices with more rows or columns are not multiplied: their norm alone is kept.
LARGEST = 1024

#: Matrices that are followed at a time: those with the largest norms.
MOST = 8


@dataclass(frozen=True, eq=False)
class Term:
    """A matrix times a vector of length at most ``radius``.

    Attributes:
        matrix: None for the identity.
        off: how far the matrix can be from the one meant, in the spectral norm.
    """

    matrix: Matrix | None
    off: float
    radius: float

    @cached_property
    def norm(self) -> float:
        """A bound on the length of all it stands for."""
        size = 1.0 if self.matrix is None else outward.spectral_norm(self.matrix)
        return outward.up_once((size + self.off) * self.radius)

    def rows(self, size: int) -> Vector:
        """A bound on every coordinate."""
        lengths = np.ones(size) if self.matrix is None else outward.row_lengths(self.matrix)
        return outward.up((lengths + self.off) * self.radius, 2)


@dataclass(frozen=True, eq=False)
class ErrorBalls:
    """Errors of many units together: the sum of matrices times vectors of bounded length.

    A map multiplies every matrix. A layer multiplies error i by some slope between lo_i and hi_i,
    that is by its middle, which keeps the matrices, plus at most half the distance in any
    direction, which is a new vector. So the bound is that of Combettes and Pesquet (Lipschitz
    certificates for layered network structures, SIAM J. Math. Data Science 2020) and at most the
    product of all spectral norms: for six random layers of 256 units two and a half times below it.
    Sound: what rounding does to a product of matrices is added to its norm.
    """

    terms: tuple[Term, ...]

    @classmethod
    def ball(cls, radius: float) -> ErrorBalls:
        """Any vector of this length."""
        return cls((Term(None, 0.0, radius),))

    @cached_property
    def norm(self) -> float:
        """A bound on the length of the sum."""
        return outward.up_once(float(sum(term.norm for term in self.terms)))

    def rows(self, size: int) -> Vector:
        """A bound on every coordinate of the sum."""
        total = sum((term.rows(size) for term in self.terms), start=np.zeros(size))
        return outward.up(total, len(self.terms))

    def plus(self, other: ErrorBalls) -> ErrorBalls:
        return ErrorBalls(self.terms + other.terms)

    def mapped(self, matrix: Matrix) -> ErrorBalls:
        """The errors times a matrix."""
        if sp.issparse(matrix) or max(matrix.shape) > LARGEST:
            return ErrorBalls.ball(outward.up_once(outward.spectral_norm(matrix) * self.norm))
        size, length = outward.spectral_norm(matrix), float(np.sqrt((matrix * matrix).sum()))
        terms = []
        for term in self.terms:
            if term.matrix is None:
                terms.append(Term(matrix, 0.0, term.radius))
                continue
            product = np.asarray(matrix @ term.matrix)
            inner = float(np.sqrt((term.matrix * term.matrix).sum()))
            lost = 2 * outward.gamma(matrix.shape[1] + 4) * length * inner
            terms.append(Term(product, outward.up_once(size * term.off + lost), term.radius))
        return ErrorBalls(tuple(terms))

    def passed(self, low: Vector, high: Vector, own: float) -> ErrorBalls:
        """Every coordinate times a number between low and high, and errors of length ``own``."""
        middle = low / 2 + high / 2
        half = float(np.maximum(high - middle, middle - low).max(initial=0.0))
        most = float(np.abs(middle).max(initial=0.0))
        farthest = float(np.maximum(np.abs(low), np.abs(high)).max(initial=0.0))
        radius, kept = own, []
        for term in sorted(self.terms, key=lambda term: -term.norm):
            # nothing is gained by keeping the identity apart
            if term.matrix is None or most == 0.0 or len(kept) == MOST:
                radius += farthest * term.norm
                continue
            radius += half * (1 + 8 * outward.UNIT) * term.norm
            matrix = middle[:, None] * term.matrix
            lost = 4 * outward.UNIT * float(np.sqrt((matrix * matrix).sum())) + outward.TINY
            kept.append(Term(matrix, outward.up_once(most * term.off + lost), term.radius))
        return ErrorBalls((Term(None, 0.0, outward.up_once(radius)), *kept))
