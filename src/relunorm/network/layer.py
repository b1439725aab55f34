"""The parts of a network: activations, affine maps of numbered values, layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from relunorm import matrix as mx
from relunorm.errors import InvalidNetworkError
from relunorm.matrix import Matrix, Vector

Kind = Literal["relu", "leaky", "step", "identity"]


@dataclass(frozen=True)
class Activation:
    """What follows a layer's affine map, entry by entry.

    - ``relu``: max(z, 0)
    - ``leaky``: z where z > 0, slope * z elsewhere
    - ``step``: 1 where z > 0, 0 where z < 0, and ``at_zero`` at 0 (seed 001, eq. 2.3)
    - ``identity``: z. Such a layer has no units: it is a linear stage kept apart because folding it
      into the next map would round, or fill a sparse matrix. `Network.folded` removes it.
    """

    kind: Kind = "relu"
    slope: float = 0.0
    at_zero: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in ("relu", "leaky", "step", "identity"):
            raise InvalidNetworkError(
                f"activation {self.kind!r} is not known; use relu, leaky, step or identity"
            )
        if not (math.isfinite(self.slope) and math.isfinite(self.at_zero)):
            raise InvalidNetworkError(
                f"activation {self.kind!r} has a parameter that is not finite"
            )

    @property
    def slopes(self) -> tuple[float, float]:
        """The derivative for z < 0 and for z > 0."""
        return {
            "relu": (0.0, 1.0),
            "leaky": (self.slope, 1.0),
            "step": (0.0, 0.0),
            "identity": (1.0, 1.0),
        }[self.kind]

    def apply_(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Overwrite pre-activations by activations and return them."""
        if self.kind == "relu":
            return np.maximum(z, 0.0, out=z)
        if self.kind == "leaky":
            return np.multiply(z, self.slope, out=z, where=z < 0)
        if self.kind == "step":
            z[...] = np.heaviside(z, self.at_zero)
        return z

    def derivative(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative at z; at 0 the one from below, as torch does (0 for relu)."""
        below, above = self.slopes
        return np.where(z > 0, above, below)

    def __str__(self) -> str:
        detail = {"leaky": f"({self.slope:g})", "step": f"({self.at_zero:g} at 0)"}
        return self.kind + detail.get(self.kind, "")


RELU = Activation("relu")
IDENTITY = Activation("identity")


@dataclass(frozen=True, eq=False, repr=False)
class Affine:
    """The map ``values -> sum_k terms[k] @ values[k] + bias``.

    Args:
        terms: earlier value -> matrix with one row per entry of the result. Sources that do not
            appear have weight zero.
        bias: the constant part.
    """

    terms: Mapping[int, Matrix]
    bias: Vector

    def __post_init__(self) -> None:
        bias = np.atleast_1d(mx.as_floats(self.bias, "the biases"))
        terms = {int(source): _own(matrix) for source, matrix in sorted(self.terms.items())}
        object.__setattr__(self, "terms", MappingProxyType(terms))
        object.__setattr__(self, "bias", bias if mx.is_frozen(bias) else mx.frozen(bias.copy()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Affine, (dict(self.terms), self.bias)  # a mapping proxy does not pickle

    @property
    def size(self) -> int:
        """Length of the result."""
        return len(self.bias)

    @property
    def nnz(self) -> int:
        """How many weights are stored."""
        return sum(map(mx.nnz, self.terms.values()))

    @property
    def sources(self) -> tuple[int, ...]:
        """The values this map reads, in order."""
        return tuple(self.terms)

    def __call__(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Apply to batches: ``values[k]`` has shape (n, size of value k).

        Values that are not read may be None, except the last one, which says what n is.
        """
        total = self.linear(values)
        return np.add(total, self.bias, out=total)

    def linear(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """The same without the bias."""
        total: NDArray[np.float64] | None = None
        for source, matrix in self.terms.items():
            part = values[source] @ matrix.T
            total = part if total is None else np.add(total, part, out=total)
        return np.zeros((len(values[-1]), self.size)) if total is None else total

    def absolute(self) -> Affine:
        """The map of absolute weights and biases: of sizes of values, what a row adds up."""
        return Affine({k: abs(m) for k, m in self.terms.items()}, np.abs(self.bias))

    def check(self, place: str, sizes: Sequence[int]) -> None:
        """Raise `InvalidNetworkError` unless the map fits values of these sizes."""
        if self.bias.ndim != 1:
            raise InvalidNetworkError(f"{place}: the bias has shape {self.bias.shape}")
        if self.size == 0:
            raise InvalidNetworkError(f"{place}: width 0; every layer needs at least one row")
        for source, matrix in self.terms.items():
            if not 0 <= source < len(sizes):
                raise InvalidNetworkError(
                    f"{place}: reads value {source}, but only values 0 to {len(sizes) - 1} exist "
                    "before it"
                )
            expected = (self.size, sizes[source])
            if matrix.shape != expected:
                raise InvalidNetworkError(
                    f"{place}: the matrix on value {source} has shape {tuple(matrix.shape)}, "
                    f"expected {expected}"
                )
            if not np.isfinite(mx.entries(matrix)).all():
                raise InvalidNetworkError(f"{place}: the weights hold NaN or infinite entries")
        if not np.isfinite(self.bias).all():
            raise InvalidNetworkError(f"{place}: the bias holds NaN or infinite entries")


@dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """An affine map followed by an activation.

    Args:
        affine: the map.
        activation: what follows it.
        name: where the layer came from (a module path, a node name), for messages and tables.
        shape: the shape of its output before flattening, for example (channels, height, width).
        piece: whether it only helps to write another operation, such as max(a, b) = a + relu(b - a)
            or the upper end of a clip: exact, but no unit of the model it was read from.
        unit_of: per entry, the unit of that model it belongs to (a channel has an entry at every
            position), or -1; None where every entry is a unit of its own.
    """

    affine: Affine
    activation: Activation = RELU
    name: str = ""
    shape: tuple[int, ...] = ()
    piece: bool = False
    unit_of: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = tuple(int(n) for n in self.shape) or (self.affine.size,)
        if math.prod(shape) != self.affine.size:
            raise InvalidNetworkError(
                f"layer {self.name!r}: shape {shape} does not have {self.affine.size} entries"
            )
        object.__setattr__(self, "shape", shape)
        if self.unit_of is not None:
            object.__setattr__(self, "unit_of", _units(self.unit_of, self.affine.size, self.name))

    @property
    def width(self) -> int:
        """How many units the layer has, a channel counted at every position."""
        return self.affine.size

    @property
    def channels(self) -> int:
        """How many units of the model it was read from it has, a channel being one."""
        if self.piece:
            return 0
        return self.width if self.unit_of is None else int(self.unit_of.max(initial=-1)) + 1

    @property
    def has_units(self) -> bool:
        """False for a linear stage (`identity`), which has no kink."""
        return self.activation.kind != "identity"


def substitute(affine: Affine, expressed: Sequence[Affine]) -> Affine:
    """``affine`` with every value k replaced by the affine map ``expressed[k]``."""
    terms: dict[int, Matrix] = {}
    bias = affine.bias.copy()
    for source, matrix in affine.terms.items():
        inner = expressed[source]
        bias += matrix @ inner.bias
        for k, inner_matrix in inner.terms.items():
            part = matrix if mx.is_identity(inner_matrix) else mx.matmul(matrix, inner_matrix)
            terms[k] = mx.add(terms[k], part) if k in terms else part
    return Affine({k: mx.frozen(mx.compact(m)) for k, m in terms.items()}, mx.frozen(bias))


def whole(source: int, size: int) -> Affine:
    """The map that gives one value as it is."""
    return Affine({source: mx.identity(size)}, np.zeros(size))


def _units(unit_of: Any, size: int, name: str) -> NDArray[np.int64]:
    """A frozen copy, once it is known to number units 0, 1, ... without a gap."""
    own = np.array(unit_of)
    fits = own.shape == (size,) and own.dtype.kind == "i" and -1 <= own.min() <= own.max() < size
    if not fits or not np.bincount(own[own >= 0]).all():
        raise InvalidNetworkError(
            f"layer {name!r}: unit_of has shape {own.shape}, expected the number of a unit, or -1, "
            f"for each of {size} entries, with no number left out"
        )
    own = own.astype(np.int64)
    own.flags.writeable = False
    return own


def _own(matrix: Any) -> Matrix:
    """A frozen matrix nobody else can write to: as it is when already frozen, else a copy."""
    if type(matrix) is np.ndarray and matrix.dtype == np.float64:
        flags = matrix.flags
        if flags.c_contiguous and not flags.writeable:
            return matrix
    if type(matrix) is sp.csr_array and mx.is_frozen(matrix) and mx.is_canonical(matrix):
        return matrix
    matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
    own = mx.as_matrix(matrix)
    if mx.is_frozen(own):
        return own
    if own is matrix or np.may_share_memory(mx.entries(own), mx.entries(matrix)):
        own = own.copy()
    return mx.frozen(own)
