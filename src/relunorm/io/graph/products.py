"""Products with constants: of matrices, in Einstein's notation, and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Lowering, Tensor
from relunorm.io.graph.operations import Array, reshaped
from relunorm.io.graph.windows import convolution
from relunorm.network.structure import Geometry


def matmul(low: Lowering, a: Any, b: Any) -> Any:
    """a @ b by numpy's rules, of which one or both are constants."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return a @ b
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        why = "a product of two computed values is not piecewise affine"
        raise CannotLower(f"both factors depend on the input, and {why}")
    left = isinstance(a, Tensor)
    x: Any = a if left else b
    constant: Any = b if left else a
    while 2 < constant.ndim <= len(x.shape) and constant.shape[0] == 1:
        constant = constant[0]
    if constant.ndim > 2:
        vector = len(x.shape) == 1
        if left:
            equation = "j,...jk->...k" if vector else "...ij,...jk->...ik"
        else:
            equation = "j,...ij->...i" if vector else "...jk,...ij->...ik"
        return einsum(low, equation, [x, constant])
    if left:
        product = low.linear(x, (constant if constant.ndim == 2 else constant[:, None]).T, None)
        shape = product.shape if constant.ndim == 2 else product.shape[:-1]
    else:
        product = low.left_multiply(np.atleast_2d(constant), x)
        shape = product.shape
        if constant.ndim == 1:
            shape = () if len(x.shape) == 1 else (*shape[:-2], shape[-1])
    return reshaped(low, product, shape)


def einsum(low: Lowering, equation: str, values: Sequence[Any]) -> Tensor:
    """A sum of products with constants, as numpy writes it; one value depends on the input."""
    terms, result = _letters(equation, [np.ndim(_shape_of(v)) for v in values])
    at = [k for k, value in enumerate(values) if isinstance(value, Tensor)]
    if len(at) != 1:
        raise CannotLower("several factors depend on the input, and their product is not linear")
    x: Any = values[at[0]]
    extent: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for letter, n in zip(term, _shape_of(value).shape, strict=True):
            if extent.setdefault(letter, n) not in (1, n) and n != 1:
                raise InvalidNetworkError(f"axis {letter!r} of {equation!r} has two sizes")
            extent[letter] = max(extent[letter], n)
    letters = [*result, *sorted(set("".join(terms)) - set(result))]
    full = tuple(extent[letter] for letter in letters)
    if math.prod(full) > 2 * MAX_SIZE:
        raise InvalidNetworkError(f"{equation!r} sums {math.prod(full):,} products, too many")

    def spread(array: Array, term: str) -> Array:
        """The entries of a factor at every place of the sum."""
        axes = [letters.index(letter) for letter in term]
        once = sorted(set(axes))  # of an axis named twice the diagonal
        array = np.expand_dims(np.einsum(array, axes, once), [*set(range(len(full))) - set(once)])
        return np.broadcast_to(array, full).ravel()

    weight = np.ones(math.prod(full))
    known: set[str] = set()
    for k, value in enumerate(values):
        if k != at[0]:
            weight = weight * spread(np.asarray(value, dtype=np.float64), terms[k])
            known |= set(terms[k])
    shape = full[: len(result)]
    summed = math.prod(full[len(result) :])
    rows = np.repeat(np.arange(math.prod(shape)), summed)
    entries = (weight, (rows, spread(x.index, terms[at[0]])))
    matrix = sp.csr_array(entries, shape=(math.prod(shape), x.size))
    new = [extent[letter] if letter in known else 1 for letter in result]
    units = low.new_units(math.prod(new)).reshape(new)
    owners = np.broadcast_to(units, shape).ravel()
    return low.map(x, mx.compact(mx.as_matrix(matrix)), None, shape, owners)


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The axes of the factors and of the result, a letter each."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise InvalidNetworkError(f"{equation!r} with {len(ranks)} factors")
    spare = [chr(n) for n in range(0x100, 0x140)]
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if any(w < 0 or ("..." not in t and w) for t, w in zip(terms, widths, strict=True)):
        raise InvalidNetworkError(f"{equation!r} does not fit its factors")
    longest = max((w for t, w in zip(terms, widths, strict=True) if "..." in t), default=0)
    dots = "".join(spare[:longest])
    terms = [t.replace("...", dots[longest - w :]) for t, w in zip(terms, widths, strict=True)]
    if not arrow:
        letters = "".join(terms)
        once = sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1)
        return terms, dots + "".join(once)
    result = result.replace("...", dots)
    if not set(result) <= set("".join(terms)) or len(set(result)) < len(result):
        raise InvalidNetworkError(f"{equation!r} asks for axes that are not there")
    return terms, result


def _shape_of(value: Any) -> Array:
    """Anything with the value's shape."""
    return value.index if isinstance(value, Tensor) else np.asarray(value)


def convolve_transposed(
    low: Lowering,
    x: Tensor,
    weight: Array,
    bias: Array | None,
    geometry: Geometry,
    groups: int,
) -> Tensor:
    """A transposed convolution of (1, channels, *spatial): tap t of input i adds to output
    i stride - before + t dilation. Its matrix is that of the convolution back, transposed.

    Args:
        weight: shape (out channels, in channels / groups, *kernel), as convolutions have it.
        geometry: its pads are outputs cut off before and after each axis; a negative number after
            it adds some.
    """
    outs, each = weight.shape[:2]
    if len(x.shape) != weight.ndim or x.shape[:2] != (1, each * groups) or outs % groups:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} on an input of {x.shape}")
    spatial = [
        (n - 1) * s + d * (k - 1) + 1 - before - after
        for n, (k, s, (before, after), d) in zip(x.shape[2:], geometry.axes, strict=True)
    ]
    if any(before < 0 or -after >= s for _, s, (before, after), _ in geometry.axes):
        raise CannotLower("adds more outputs than it makes steps")
    back = np.asarray(outputs_first(weight, groups), np.float64)
    cut = geometry.padded([(before, max(after, 0)) for before, after in geometry.pads])
    matrix, shape = convolution(back, (outs, *spatial), cut, groups)
    if shape != x.shape[1:]:
        raise InvalidNetworkError(f"outputs of {spatial} do not come from {x.shape}")
    offset = np.zeros(outs) if bias is None else np.array(bias, np.float64)
    planes = math.prod(spatial)
    owners, shift = np.repeat(low.new_units(outs), planes), np.repeat(offset, planes)
    table = mx.compact(mx.as_matrix(sp.csr_array(matrix.T)))
    result = low.map(x, table, shift, (1, outs, *spatial), owners)
    result.step = low.recorder.affine(
        x.step, "conv_transpose", (outs, *spatial), weight=np.array(weight, np.float64),
        bias=offset, geometry=geometry, groups=groups,
    )  # fmt: skip
    return result


def outputs_first(weight: Array, groups: int) -> Array:
    """A weight of shape (in, out / groups, *kernel) as (out, in / groups, *kernel), or back."""
    channels, each, *kernel = weight.shape
    if channels % groups:
        raise InvalidNetworkError(f"a weight of shape {weight.shape} in {groups} groups")
    apart = np.asarray(weight).reshape(groups, channels // groups, each, *kernel).swapaxes(1, 2)
    return apart.reshape(groups * each, channels // groups, *kernel)
