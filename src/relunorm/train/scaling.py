"""Inputs and targets to mean 0 and deviation 1, and the network back to the user's units.

The target transform is eq. (1) of seed 002 with gamma = 1 and delta = 0. Undoing both is exact up
to rounding: the affine maps are multiplied into the first and the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.errors import InvalidInputError
from relunorm.network import Affine, Layer, Network
from relunorm.train.problem.task import Fit, Start

#: Rows at a time, so that a large table is not copied for its deviations.
BLOCK = 8192

#: Range of a column over the distance of its quartiles above which it has values far away, and
#: above which they are so far that, scaled by these, their squares would have no float64.
FAR, TOO_FAR = 30.0, 1e60


@dataclass(frozen=True)
class Scaling:
    """x -> (x - shift) / scale, column by column; a constant column keeps scale 1."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        table: NDArray[np.float64],
        weight: NDArray[np.float64],
        what: str,
        names: Sequence[Any] | NDArray[Any] | None = None,
        robust: bool = False,
    ) -> Scaling:
        """Weighted mean and deviation, computed so that huge and tiny values do not overflow.

        Args:
            robust: scale columns with values far outside their bulk by that bulk.
            what, names: of the table and its columns, for the error message.
        """
        unit = np.maximum(table.max(axis=0), -table.min(axis=0))
        unit = np.where(unit > 0, unit, 1.0)
        share = weight / weight.sum()
        if unit.min() > 1e-100 and unit.max() < 1e100:
            unit = np.ones_like(unit)
        small = table if (unit == 1).all() else table / unit
        mean = share @ small
        blocks = [slice(at, at + BLOCK) for at in range(0, len(small), BLOCK)]
        spread = np.sqrt(sum(share[rows] @ np.square(small[rows] - mean) for rows in blocks))
        # differences within rounding of the values themselves are not information
        constant = spread <= 1e-13 * np.maximum(np.abs(mean), 1e-300)
        with np.errstate(over="ignore"):
            scale = np.where(constant, 1.0, spread) * np.where(constant, 1.0, unit)
        shift = np.where(constant, small[0], mean) * unit
        if robust:
            shift, scale = _by_the_bulk(small, unit, shift, scale)
        wrong = np.flatnonzero(~((scale >= 1e-290) & (scale <= 1e290)))
        if len(wrong):
            shown = ", ".join(str(k if names is None else names[k]) for k in wrong[:10])
            raise InvalidInputError(
                f"{what} has columns whose values are too large or too small for float64 "
                f"arithmetic: {shown}{', ...' if len(wrong) > 10 else ''}; rescale the data first"
            )
        return cls(shift, scale)

    def apply(self, table: NDArray[np.float64], dtype: type = np.float64) -> NDArray[Any]:
        """Normalized copy, rounded to ``dtype`` at the end."""
        result = np.empty(table.shape, dtype)
        for at in range(0, len(table), BLOCK):
            rows = slice(at, at + BLOCK)
            result[rows] = (table[rows] - self.shift) / self.scale
        return result


def _by_the_bulk(
    table: NDArray[np.float64],
    unit: NDArray[np.float64],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shift and scale, by median and quartiles where a column reaches beyond `FAR` times them.

    A few values far away would otherwise squeeze all others into the last digits.
    """
    low, median, high = np.quantile(table, [0.25, 0.5, 0.75], axis=0)
    bulk = high - low
    reach = np.ptp(table, axis=0)
    squeezed = (reach > FAR * bulk) & (reach < TOO_FAR * bulk)
    return np.where(squeezed, median * unit, shift), np.where(squeezed, bulk * unit, scale)


def varying(table: NDArray[np.float64]) -> NDArray[np.intp]:
    """Columns whose values differ by more than rounding; the others cannot tell rows apart.

    >>> varying(np.array([[7.0, 1.0], [7.0, 2.0]]))
    array([1])
    """
    top, bottom = table.max(axis=0), table.min(axis=0)
    with np.errstate(over="ignore"):
        differ = top - bottom > 1e-13 * np.maximum(np.abs(top), np.abs(bottom))
    return np.flatnonzero(differ)


def widened(
    fit: Fit, inputs: Scaling, columns: NDArray[np.intp], width: int
) -> tuple[Fit, Scaling]:
    """A fit on some columns as one on all ``width`` of them: the others have weight exactly 0.

    Without columns the fit was made on one that does not vary: it becomes the constant that it is
    at that column's value.
    """
    if not len(columns):
        value = np.zeros(fit.skip.shape[1])
        for w, b in fit.layers:
            value = np.maximum(w @ value + b, 0.0)
        bias = fit.bias + fit.output @ value
        flat = {"output": np.zeros_like(fit.output), "skip": np.zeros_like(fit.skip)}
        fit, columns = replace(fit, bias=bias, **flat), np.zeros(1, np.intp)
    if len(columns) == width:
        return fit, inputs
    shift, scale = np.zeros(width), np.ones(width)
    shift[columns], scale[columns] = inputs.shift, inputs.scale
    (first, b), *rest = fit.layers
    w, skip = np.zeros((len(first), width)), np.zeros((len(fit.skip), width))
    w[:, columns], skip[:, columns] = first, fit.skip
    return replace(fit, layers=[(w, b), *rest], skip=skip), Scaling(shift, scale)


def network_of(fit: Fit, inputs: Scaling, targets: Scaling, origin: str) -> Network:
    """The fitted network in the user's units, hidden rows of unit length.

    Rows are normalized from the first layer to the last; each layer hands its row lengths on to the
    columns of the next, so the function does not change.
    """
    layers: list[Layer] = []
    scales = np.empty(0)
    for index, (w, b) in enumerate(fit.layers):
        if index == 0:
            w = w / inputs.scale
            b = b - w @ inputs.shift
        else:
            w = w * scales
        scales = _lengths(w)
        layers.append(Layer(Affine({index: w / scales[:, None]}, b / scales)))
    skip = fit.skip * targets.scale[:, None] / inputs.scale
    bias = fit.bias * targets.scale + targets.shift - skip @ inputs.shift
    output = fit.output * scales * targets.scale[:, None]
    terms = {len(layers): output}
    if np.any(skip):
        terms[0] = skip
    return Network(layers, Affine(terms, bias), input_shape=len(inputs.scale), origin=origin)


def start_of(
    network: Network, inputs: Scaling, targets: Scaling, columns: NDArray[np.intp]
) -> Start:
    """A network that `network_of` made, in normalized units again.

    Args:
        inputs: the scaling of the columns that are used.
    """
    layers = []
    scales = np.empty(0)
    for index, layer in enumerate(network.layers):
        w, b = np.asarray(layer.affine.terms[index]), layer.affine.bias
        if index == 0:
            w = w[:, columns]
            w, b = w * inputs.scale, b + w @ inputs.shift
        else:
            w = w * scales
        scales = _lengths(w)
        layers.append((w / scales[:, None], b / scales))
    terms, unit = network.output.terms, targets.scale[:, None]
    given = terms.get(0)
    skip = np.zeros((len(unit), len(columns))) if given is None else np.asarray(given)[:, columns]
    return Start(
        layers=layers,
        bias=(network.output.bias + skip @ inputs.shift - targets.shift) / targets.scale,
        skip=skip * inputs.scale / unit,
        output=np.asarray(terms[len(layers)]) * scales / unit,
    )


def _lengths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row norms without overflow; 1 for a row of zeros."""
    top = np.abs(rows).max(axis=1)
    safe = np.where(top > 0, top, 1.0)
    lengths = safe * np.linalg.norm(rows / safe[:, None], axis=1)
    return np.where(top > 0, lengths, 1.0)
