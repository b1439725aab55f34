"""What proves the bounds, in a form that needs no solver to check and that JSON can hold.

Bounds by intervals and by the fixed linear rule need nothing stored: they are recomputed. The rest:

- `SlopeProof`: slopes, from descent or from the multipliers of a linear programme
- `BranchProof`: the leaves of a tree of sign decisions, with slopes for each
- `SplitProof`: a tree of cuts of the input box, and the boxes that exclude each side
- `TrustedProof`: the word of a MILP solver; nothing to check, marked and counted as such

Any slopes give a sound bound (see `linear`), so a damaged number can only loosen a bound.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relunorm.bounds.linear import Slopes
from relunorm.errors import InvalidInputError
from relunorm.stability.branch import Leaf
from relunorm.stability.split import BoxTree

SCHEMA = "relunorm.bounds/1"


@dataclass(frozen=True, eq=False)
class SlopeProof:
    """Slopes that bound ``signs * z[units]`` of a layer from above."""

    layer: int
    units: NDArray[np.intp]
    signs: NDArray[np.float64]
    slopes: Slopes
    method: str = "slopes"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "kind": "slopes",
            "method": self.method,
            "layer": self.layer,
            "units": self.units.tolist(),
            "signs": self.signs.astype(int).tolist(),
            "tilt": {str(k): _pack(v) for k, v in self.slopes.tilt.items()},
            "offset": _pack_nonzero(self.slopes.offset),
            "multipliers": _pack(self.slopes.multipliers),
        }


@dataclass(frozen=True, eq=False)
class BranchProof:
    """Leaves of sign decisions that exclude ``sign * z[unit] > 0`` of a layer."""

    layer: int
    unit: int
    sign: int
    leaves: tuple[Leaf, ...]
    method: str = "branch"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; the rows of all leaves are packed together."""
        slopes = self.slopes
        return {
            "kind": "branch",
            "layer": self.layer,
            "unit": self.unit,
            "sign": self.sign,
            "paths": [[list(step) for step in leaf.path] for leaf in self.leaves],
            "tilt": {str(k): _pack(v) for k, v in slopes.tilt.items()},
            "offset": _pack_nonzero(slopes.offset),
            "multipliers": _pack(slopes.multipliers),
        }

    @property
    def slopes(self) -> Slopes:
        """One row per leaf."""
        first = self.leaves[0]
        given = [leaf.multipliers for leaf in self.leaves if leaf.multipliers is not None]
        many = np.stack(given) if given else None
        return Slopes(
            {k: np.stack([leaf.tilt[k] for leaf in self.leaves]) for k in first.tilt},
            {k: np.stack([leaf.offset[k] for leaf in self.leaves]) for k in first.offset},
            many,
        )


@dataclass(frozen=True, eq=False)
class SplitProof:
    """A bisection tree of the input box and the boxes that exclude each side of a layer."""

    layer: int
    tree: BoxTree
    sides: tuple[tuple[int, int], ...]
    method: str = "split"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; cuts as hexadecimal floats."""
        return {
            "kind": "split",
            "layer": self.layer,
            "axis": list(self.tree.axis),
            "cut": [float(c).hex() for c in self.tree.cut],
            "children": [list(pair) for pair in self.tree.children],
            "closed": [
                {"unit": u, "sign": s, "boxes": list(self.tree.closed.get((u, s), []))}
                for u, s in self.sides
            ],
        }


@dataclass(frozen=True, eq=False)
class TrustedProof:
    """A MILP solver found no point with ``sign * z[unit] >= -margin``."""

    layer: int
    unit: int
    sign: int
    margin: float
    method: str = "milp"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "kind": "milp",
            "layer": self.layer,
            "unit": self.unit,
            "sign": self.sign,
            "margin": float(self.margin).hex(),
        }


Proof = SlopeProof | BranchProof | SplitProof | TrustedProof


@dataclass(frozen=True, eq=False, repr=False)
class Proofs:
    """Everything `replay` needs besides the network and the domain, in order of use.

    Attributes:
        items: the stored proofs, layer by layer.
        box_duals: the multipliers that bound a polytope, None for other domains.
        digest: of the network they speak of.
    """

    items: tuple[Proof, ...] = ()
    box_duals: NDArray[np.float64] | None = field(default=None)
    digest: str = ""

    @property
    def trusted(self) -> list[tuple[int, int]]:
        """Every (layer, unit) whose verdict rests on a solver's word."""
        return [(x.layer, x.unit) for x in self.items if isinstance(x, TrustedProof)]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, and every number comes back bit for bit."""
        return {
            "schema": SCHEMA,
            "network": self.digest,
            "box_duals": _pack(self.box_duals),
            "solver_trusted": len(self.trusted),
            "proofs": [item.to_dict() for item in self.items],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Proofs:
        """Read what `to_dict` wrote; raises `InvalidInputError` on anything else."""
        try:
            if data["schema"] != SCHEMA:
                raise InvalidInputError(
                    f"bound proofs have schema {data['schema']!r}, expected {SCHEMA!r}"
                )
            return cls(
                tuple(_read(item) for item in data["proofs"]),
                _unpack(data["box_duals"]),
                str(data["network"]),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"the bound proofs cannot be read: {error!r}") from error

    def __repr__(self) -> str:
        kinds = [item.to_dict.__qualname__.split(".")[0] for item in self.items]
        counts = ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds)))
        return f"Proofs({counts or 'fixed rules only'})"


def _read(item: dict[str, Any]) -> Proof:
    kind, layer = item["kind"], int(item["layer"])
    if kind == "slopes":
        return SlopeProof(
            layer,
            np.array(item["units"], dtype=np.intp),
            np.array([_sign(s) for s in item["signs"]], dtype=np.float64),
            _read_slopes(item),
            str(item["method"]),
        )
    if kind == "split":
        tree = BoxTree(
            [int(a) for a in item["axis"]],
            [float.fromhex(c) for c in item["cut"]],
            [(int(a), int(b)) for a, b in item["children"]],
            {
                (int(x["unit"]), _sign(x["sign"])): list(map(int, x["boxes"]))
                for x in item["closed"]
            },
        )
        return SplitProof(layer, tree, tuple(tree.closed))
    unit, sign = int(item["unit"]), _sign(item["sign"])
    if kind == "branch":
        slopes = _read_slopes(item)
        many = slopes.multipliers
        leaves = tuple(
            Leaf(
                tuple((int(a), int(b), _sign(c)) for a, b, c in path),
                {k: v[row] for k, v in slopes.tilt.items()},
                {k: v[row] for k, v in slopes.offset.items()},
                None if many is None else many[row],
            )
            for row, path in enumerate(item["paths"])
        )
        return BranchProof(layer, unit, sign, leaves)
    if kind == "milp":
        margin = float.fromhex(item["margin"])
        if not 0 <= margin < np.inf:
            raise InvalidInputError(f"a margin is {margin}, expected a finite number >= 0")
        return TrustedProof(layer, unit, sign, margin)
    raise InvalidInputError(f"a bound proof has kind {kind!r}, which is not known")


def _sign(value: Any) -> int:
    if value not in (1, -1):
        raise InvalidInputError(f"a sign is {value!r}, expected 1 or -1")
    return int(value)


def _read_slopes(item: dict[str, Any]) -> Slopes:
    return Slopes(
        {int(k): _unpacked(v) for k, v in item["tilt"].items()},
        {int(k): _unpacked(v) for k, v in item["offset"].items()},
        _unpack(item["multipliers"]),
    )


def _pack_nonzero(arrays: dict[int, NDArray[Any]]) -> dict[str, Any]:
    return {str(k): _pack(v) for k, v in arrays.items() if v.any()}


def _pack(array: NDArray[Any] | None) -> dict[str, Any] | None:
    """An array as text: little-endian bytes, compressed; float32 where that loses nothing."""
    if array is None:
        return None
    single = array.astype(np.float32)
    narrow = bool((single == array).all())
    raw = single.astype("<f4") if narrow else array.astype("<f8")
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(raw).tobytes(), 6))
    return {
        "dtype": "float32" if narrow else "float64",
        "shape": list(array.shape),
        "data": data.decode("ascii"),
    }


def _unpack(packed: dict[str, Any] | None) -> NDArray[np.float64] | None:
    return None if packed is None else _unpacked(packed)


def _unpacked(packed: dict[str, Any]) -> NDArray[np.float64]:
    kind = {"float32": "<f4", "float64": "<f8"}[packed["dtype"]]
    try:
        raw = zlib.decompress(base64.b64decode(packed["data"], validate=True))
    except (zlib.error, binascii.Error) as error:
        raise InvalidInputError(f"an array of the bound proofs is damaged: {error}") from error
    array = np.frombuffer(raw, dtype=kind).reshape(packed["shape"]).astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidInputError("an array of the bound proofs holds NaN or infinite entries")
    return array
