"""What proves the bounds, in a form that needs no solver to check and that JSON can hold.

Bounds by intervals and by the fixed linear rule need nothing stored: they are recomputed. The rest:

- `SlopeProof`: slopes, from descent or from the multipliers of a linear programme
- `SearchedProof`: the tape of a search: its cuts, and the numbers behind the bound of every part
- `FractionProof`: that a side was decided in rational arithmetic, which is done again

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

from relunorm.bounds.layers.linear import Slopes
from relunorm.display.shown import entries
from relunorm.errors import InvalidInputError
from relunorm.matrix import Array

SCHEMA = "relunorm.bounds/3"


@dataclass(frozen=True, eq=False)
class SlopeProof:
    """Slopes that bound ``signs * z[units]`` of a layer from above."""

    layer: int
    units: NDArray[np.intp]
    signs: Array
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
            "tilt": {str(k): pack(v) for k, v in self.slopes.tilt.items()},
            "offset": {str(k): pack(v) for k, v in self.slopes.offset.items() if v.any()},
            "multipliers": pack(self.slopes.multipliers),
        }


@dataclass(frozen=True, eq=False)
class SearchedProof:
    """The tape of a search that shows ``sign * z[unit] < limit`` (see `stability.sides`)."""

    layer: int
    unit: int
    sign: int
    limit: float
    tape: Array
    method: str = "search"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; the limit as a hexadecimal float."""
        return {
            "kind": "search",
            "layer": self.layer,
            "unit": self.unit,
            "sign": self.sign,
            "limit": float(self.limit).hex(),
            "tape": pack(self.tape),
        }


@dataclass(frozen=True, eq=False)
class FractionProof:
    """That ``sign * z[unit] <= 0`` was decided in fractions, in so many parts of the domain."""

    layer: int
    unit: int
    sign: int
    parts: int
    method: str = "rational"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {"kind": "rational", **entries(self, "layer unit sign parts")}


Proof = SlopeProof | SearchedProof | FractionProof


@dataclass(frozen=True, eq=False, repr=False)
class Proofs:
    """Everything `replay` needs besides the network and the domain, in order of use.

    Attributes:
        items: the stored proofs, layer by layer.
        box_duals: the multipliers that bound a polytope, None for other domains.
        digest: of the network they speak of.
    """

    items: tuple[Proof, ...] = ()
    box_duals: Array | None = field(default=None)
    digest: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, and every number comes back bit for bit."""
        return {
            "schema": SCHEMA,
            "network": self.digest,
            "box_duals": pack(self.box_duals),
            "proofs": [item.to_dict() for item in self.items],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Proofs:
        """Read what `to_dict` wrote; raises `InvalidInputError` on anything else."""
        try:
            if data["schema"] != SCHEMA:
                raise InvalidInputError(
                    f"the bound proofs have schema {data['schema']!r}, and this version reads "
                    f"{SCHEMA!r} only; make them again with it"
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


#: What an entry of each kind holds.
_SIDE, _LINES = {"kind", "layer", "unit", "sign"}, ("tilt", "offset")
_KEYS = {
    "slopes": {"kind", "method", "layer", "units", "signs", *_LINES, "multipliers"},
    "search": _SIDE | {"limit", "tape"},
    "rational": _SIDE | {"parts"},
}


def _read(item: dict[str, Any]) -> Proof:
    kind, layer = item["kind"], int(item["layer"])
    if kind not in _KEYS:
        raise InvalidInputError(f"a bound proof has kind {kind!r}, which is not known")
    if set(item) != _KEYS[kind]:
        odd = ", ".join(sorted(set(item) ^ _KEYS[kind]))
        raise InvalidInputError(f"a bound proof has keys too many or too few: {odd}")
    if kind == "slopes":
        units = np.array(item["units"], dtype=np.intp)
        signs = np.array([_sign(s) for s in item["signs"]], dtype=np.float64)
        tilt, offset = ({int(k): unpacked(v) for k, v in item[n].items()} for n in _LINES)
        slopes = Slopes(tilt, offset, _unpack(item["multipliers"]))
        return SlopeProof(layer, units, signs, slopes, str(item["method"]))
    unit, sign = int(item["unit"]), _sign(item["sign"])
    if kind == "rational":
        return FractionProof(layer, unit, sign, int(item["parts"]))
    limit, tape = float.fromhex(item["limit"]), unpacked(item["tape"])
    if not -np.inf < limit <= 0 or tape.ndim != 1:
        raise InvalidInputError(f"a search proof claims {limit}, expected a finite number <= 0")
    return SearchedProof(layer, unit, sign, limit, tape)


def _sign(value: Any) -> int:
    if value not in (1, -1):
        raise InvalidInputError(f"a sign is {value!r}, expected 1 or -1")
    return int(value)


def pack(array: NDArray[Any] | None) -> dict[str, Any] | None:
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


def _unpack(packed: dict[str, Any] | None) -> Array | None:
    return None if packed is None else unpacked(packed)


def unpacked(packed: dict[str, Any]) -> Array:
    kind = {"float32": "<f4", "float64": "<f8"}[packed["dtype"]]
    try:
        raw = zlib.decompress(base64.b64decode(packed["data"], validate=True))
    except (zlib.error, binascii.Error) as error:
        raise InvalidInputError(f"an array of the bound proofs is damaged: {error}") from error
    array = np.frombuffer(raw, dtype=kind).reshape(packed["shape"]).astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidInputError("an array of the bound proofs holds NaN or infinite entries")
    return array
