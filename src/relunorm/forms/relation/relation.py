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

import numpy as np
from numpy.typing import NDArray

from relunorm.forms.outward import Range
from relunorm.forms.relation.error_balls import ErrorBalls
from relunorm.matrix import Vector
from relunorm.network import Activation, Affine, Network

NEW, SCALED, OPPOSITE, LINEAR = 0, 1, 2, 3
KINDS = ("new", "scaled", "opposite", "linear")


@dataclass(frozen=True)
class Relation:
    """What is claimed about the units of one layer; one entry per unit.

    Attributes:
        kind: NEW, SCALED, OPPOSITE or LINEAR.
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
