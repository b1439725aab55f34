"""Resize and Upsample: finer or coarser along each axis, by weights as onnxruntime computes them.

ONNX's own reference differs where a length times its scale is not whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower
from relunorm.io.onnx.file import Array, Node, check_count


def resize(node: Node) -> Any:
    """What a Resize or Upsample node makes of its first input."""
    x, rank = node.tensor(), len(node.tensor().shape)
    if node.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise CannotLower("keeps the aspect ratio")
    axes = [int(a) % rank for a in node.attribute("axes", range(rank))]
    places = (1,) if node.kind == "Upsample" or node.opset < 11 else (2, 3)
    scales, sizes = (*(_numbers(node, k) for k in places), None)[:2]
    if scales is None and node.attribute("scales") is not None:
        scales = np.array(node.attribute("scales"), np.float32)
    if scales is None and sizes is None:
        raise InvalidNetworkError("neither scales nor sizes are given")
    if len(axes) != len(scales if sizes is None else sizes):  # type: ignore[arg-type]
        raise InvalidNetworkError(f"scales or sizes do not fit {len(axes)} axes")
    for k, axis in enumerate(axes):
        n = x.shape[axis]
        if sizes is None:
            scale = float(scales[k])  # type: ignore[index]
            size = int(np.float32(n) * np.float32(scale))
        else:
            size = int(sizes[k])
            scale = size / n
        check_count([size, n])
        if size < 1:
            raise InvalidNetworkError(f"axis {axis} of {n} entries becomes one of {size}")
        _rule(node, scale)  # refuses what is not known, also where nothing is to be done
        if scale == 1:
            continue
        if axis == 0:
            raise CannotLower("resizes the first axis, the batch")
        table = _weights(node, n, size, scale)
        x = meaning.along(node.low, x, axis, lambda rows, table=table: rows @ table.T)
    return x


def _numbers(node: Node, position: int) -> Array | None:
    found = None if node.input(position) is None else node.constant(position).ravel()
    return None if found is None or not found.size else found.astype(np.float32)


def _rule(node: Node, scale: float) -> tuple[str, str, str]:
    """The mode, how entries are placed, and of the mode nearest which input is taken."""
    placed = node.attribute("coordinate_transformation_mode", b"half_pixel").decode()
    nearest = node.attribute("nearest_mode", b"round_prefer_floor").decode()
    if node.kind == "Upsample" or node.opset < 11:  # these had one way to place the entries
        placed, nearest = "asymmetric", "ceil" if scale < 1 else "floor"
    mode = node.attribute("mode", b"nearest").decode()
    if placed not in _PLACES:
        raise CannotLower(f"places entries by {placed!r}")
    if nearest not in _NEAREST or mode not in ("nearest", "linear", "cubic"):
        raise InvalidNetworkError(f"the mode {mode!r} with {nearest!r} is not known")
    return mode, placed, nearest


def _weights(node: Node, n: int, size: int, scale: float) -> Array:
    """The weights of n inputs for each of so many outputs, shape (size, n)."""
    mode, placed, nearest = _rule(node, scale)
    kind = np.float32 if mode == "nearest" else np.float64  # the runtime's own ties
    at = _PLACES[placed](np.arange(size, dtype=kind), kind(scale), kind(n), kind(size))
    table = np.zeros((size, n))
    if mode == "nearest":
        table[np.arange(size), np.clip(_NEAREST[nearest](at), 0, n - 1).astype(np.intp)] = 1.0
        return table
    # a coarser axis may average over all it skips
    narrow = min(scale, 1.0) if node.attribute("antialias", 0) else 1.0
    reach = int(np.ceil((2 if mode == "cubic" else 1) / narrow))
    near = np.floor(at).astype(np.intp)[:, None] + np.arange(-reach, reach + 2)
    away = np.abs(near - at[:, None]) * narrow
    bend = float(node.attribute("cubic_coeff_a", -0.75))
    weights = np.maximum(1 - away, 0) if mode == "linear" else _cubic(away, bend)
    if node.attribute("exclude_outside", 0):  # otherwise the edge is repeated
        weights *= (near >= 0) & (near < n)
    weights /= weights.sum(axis=1, keepdims=True)
    rows = np.broadcast_to(np.arange(size)[:, None], near.shape)
    np.add.at(table, (rows, np.clip(near, 0, n - 1)), weights)
    return table


def _cubic(x: Array, a: float) -> Array:
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))


def _half_pixel(at: Array, scale: Any, n: Any, size: Any) -> Array:
    return (at + 0.5) / scale - 0.5


#: Output position, scale, length before, length after -> place among the inputs.
_PLACES: dict[str, Callable[..., Array]] = {
    "half_pixel": _half_pixel,
    "asymmetric": lambda at, scale, n, size: at / scale,
    "align_corners": lambda at, scale, n, size: at * (n - 1) / max(size - 1, 1),
    "pytorch_half_pixel": lambda at, scale, n, size: (
        _half_pixel(at, scale, n, size) if size > 1 else at
    ),
    "half_pixel_symmetric": lambda at, scale, n, size: (
        n / 2 * (1 - size / (scale * n)) + _half_pixel(at, scale, n, size)
    ),
}
#: Place -> the input taken.
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
