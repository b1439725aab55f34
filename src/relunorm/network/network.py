"""The one data type: a piecewise affine network, immutable, in float64.

Values are numbered: value 0 is the input, value k the output of ``layers[k - 1]``. A layer is an
affine map of any earlier values followed by an activation, so residual and dense skips need no
special case. The output is an affine map of any values.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from relunorm import matrix as mx
from relunorm.arguments import real_numbers
from relunorm.display.shown import Shown, entries
from relunorm.errors import InvalidInputError, InvalidNetworkError
from relunorm.matrix import Matrix, Vector
from relunorm.network.columns import Column, arranged, check_columns
from relunorm.network.encoding import encoding
from relunorm.network.head import NO_HEAD, Head
from relunorm.network.layer import RELU, Activation, Affine, Kind, Layer, substitute, whole
from relunorm.network.patterns import pulled_back
from relunorm.network.structure import Structure

#: Evaluate a batch in slices whose widest value has about this many entries (16 MB: measured best
#: for sparse layers, and no slower for dense ones).
CHUNK_DOUBLES = 1 << 21


class Network(Shown):
    """An immutable piecewise affine network.

    Args:
        layers: the hidden layers, each reading the input or earlier layers.
        output: the output map.
        input_shape: shape of one input (an int for a vector). Images are flattened in C order.
        output_shape: shape of one output; a vector by default.
        head: what the model does after its last affine map (softmax, sigmoid, ...) and the labels
            of its outputs. The network computes what comes before it; `predict` applies it.
        origin: where the network came from (a file, a class), for messages.
        structure: the operations it was read as, where all of them are known; no part of the
            function, and dropped by `replace` when the function changes.
        precision: of the numbers it was read from: ``float64``, ``float32``, ``float16``,
            ``bfloat16``; empty where nobody said.
        columns: of the table its inputs come from, where that is known.
        names: of its input and its output in the ONNX file it was read from; empty elsewhere.

    Exactness: all numbers are float64; evaluation rounds as any float64 matrix product does.

    >>> net = Network.from_weights([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])  # |x|
    >>> net([[-3.0], [2.0]]).ravel().tolist()
    [3.0, 2.0]
    >>> net
    Network(1 -> 2 relu -> 1, 7 parameters)
    """

    __slots__ = (
        "__dict__", "columns", "head", "input_shape", "layers", "names", "origin",
        "output", "output_shape", "precision", "structure",
    )  # fmt: skip

    layers: tuple[Layer, ...]
    output: Affine
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    head: Head
    origin: str
    structure: Structure | None
    precision: str
    columns: tuple[Column, ...]
    names: tuple[str, str]

    def __init__(
        self,
        layers: Iterable[Layer],
        output: Affine,
        *,
        input_shape: int | Sequence[int],
        output_shape: Sequence[int] = (),
        head: Head = NO_HEAD,
        origin: str = "",
        structure: Structure | None = None,
        precision: str = "",
        columns: Iterable[Column] = (),
        names: tuple[str, str] = ("", ""),
    ):
        shape = (input_shape,) if isinstance(input_shape, int) else tuple(input_shape)
        put = object.__setattr__
        put(self, "layers", tuple(layers))
        put(self, "output", output)
        put(self, "input_shape", tuple(int(n) for n in shape))
        put(self, "output_shape", tuple(int(n) for n in output_shape) or (output.size,))
        put(self, "head", head)
        put(self, "origin", origin)
        put(self, "structure", structure)
        put(self, "precision", precision)
        put(self, "columns", tuple(columns))
        put(self, "names", names)
        self._check()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Network is immutable: {name!r} cannot be set")

    def _check(self) -> None:
        where = f"{self.origin}: " if self.origin else ""
        if math.prod(self.input_shape) < 1:
            raise InvalidNetworkError(f"{where}the input has shape {self.input_shape}: no entries")
        sizes = [self.input_size]
        for index, layer in enumerate(self.layers):
            label = f" ({layer.name})" if layer.name else ""
            layer.affine.check(f"{where}layer {index}{label}", sizes)
            sizes.append(layer.width)
        self.output.check(f"{where}output", sizes)
        if math.prod(self.output_shape) != self.output.size:
            raise InvalidNetworkError(
                f"{where}output shape {self.output_shape} does not have {self.output.size} entries"
            )
        self.head.check(self.output_shape, where)
        check_columns(self.columns, self.input_size, where)

    @classmethod
    def from_weights(
        cls,
        weights: Sequence[ArrayLike | Matrix],
        biases: Sequence[ArrayLike] | None = None,
        activation: Activation | Kind = RELU,
        *,
        origin: str = "",
    ) -> Network:
        """A plain multi-layer perceptron: y = W x + b, activation between layers, none at the end.

        Args:
            weights: one matrix per layer, shape (out, in), dense or sparse.
            biases: one vector per layer; zeros if omitted.
        """
        if not weights:
            raise InvalidNetworkError("a network needs at least one weight matrix")
        if isinstance(activation, str):
            activation = Activation(activation)
        matrices = [mx.as_matrix(w) for w in weights]
        for index, matrix in enumerate(matrices):
            if matrix.ndim != 2:
                raise InvalidNetworkError(
                    f"{origin + ': ' if origin else ''}weight {index} has {matrix.ndim} axes, "
                    "expected 2"
                )
        if biases is None:
            biases = [np.zeros(matrix.shape[0]) for matrix in matrices]
        if len(biases) != len(matrices):
            raise InvalidNetworkError(f"{len(matrices)} weights but {len(biases)} biases")
        maps = [
            Affine({source: matrix}, mx.as_floats(bias, "the biases"))
            for source, (matrix, bias) in enumerate(zip(matrices, biases, strict=True))
        ]
        layers = [Layer(affine, activation) for affine in maps[:-1]]
        return cls(layers, maps[-1], input_shape=matrices[0].shape[1], origin=origin)

    def replace(self, **changes: Any) -> Network:
        """A copy with some fields exchanged; a change of layers or shapes drops the structure.

        An output of another size is another output: shape and head are then no longer the old ones.
        So are the columns of inputs of another shape.
        """
        fields = self._fields()
        if set(changes) - {"head", "origin", "precision", "columns", "names"}:
            fields["structure"] = None
        if "input_shape" in changes:
            fields["columns"] = ()
        if "output" in changes and changes["output"].size != self.output.size:
            fields |= {"output_shape": (), "head": NO_HEAD}
        return Network(**{**fields, **changes})

    def without_head(self) -> Network:
        """The same network without what follows its last affine map, and without class labels."""
        return self if self.head == NO_HEAD else self.replace(head=NO_HEAD)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "__dict__"}

    @property
    def input_size(self) -> int:
        """Entries of one input."""
        return math.prod(self.input_shape)

    @property
    def output_size(self) -> int:
        """Entries of one output."""
        return self.output.size

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of all values and of the output: (input, layer 1, ..., output)."""
        return (self.input_size, *(layer.width for layer in self.layers), self.output.size)

    @cached_property
    def hidden(self) -> tuple[int, ...]:
        """Indices into ``layers`` of those with units (all but linear stages)."""
        return tuple(i for i, layer in enumerate(self.layers) if layer.has_units)

    @property
    def units(self) -> int:
        """How many units the network has, a channel counted at every position."""
        return sum(self.layers[i].width for i in self.hidden)

    @property
    def channels(self) -> int:
        """How many units the model has that it was read from: a channel is one of them.

        As many as `units` where nothing is known of channels.
        """
        return sum(self.layers[i].channels for i in self.hidden)

    @property
    def maps(self) -> Iterator[Affine]:
        """Every affine map, the output's last."""
        yield from (layer.affine for layer in self.layers)
        yield self.output

    @property
    def parameters(self) -> int:
        """Weights and biases: kernels of convolutions where these are known, else of the matrices.

        A dense matrix counts all its entries, a sparse one those that are not zero, and every row
        has a bias.
        """
        if self.structure is not None and self.structure.convolves:
            return self.structure.parameters
        return sum(a.size + a.nnz for a in self.maps)

    @property
    def is_chain(self) -> bool:
        """Whether every map reads exactly the value before it: a plain perceptron."""
        return all(affine.sources == (k,) for k, affine in enumerate(self.maps))

    def check_continuous(self, why: str) -> None:
        """Raise `InvalidInputError` where the network jumps: its units may have no step."""
        for index, layer in enumerate(self.layers):
            if layer.activation.kind == "step":
                name = layer.name or "unnamed"
                raise InvalidInputError(f"layer {index} ({name}) has step units; {why}")

    @property
    def decides_plainly(self) -> bool:
        """Whether the model's class is that of the largest output, or of the sign of the only one.

        Of the outputs before its head, that is.
        """
        return self.head.decides_plainly(self.output_shape)

    def check_decides(self, advice: str) -> None:
        """Raise `InvalidInputError` unless the model `decides_plainly`."""
        if not self.decides_plainly:
            raise InvalidInputError(
                f"a model that ends in {self.head.label} does not decide by its largest output, or "
                f"by the sign of one; {advice}"
            )

    def weights(self) -> tuple[list[Matrix], list[Vector]]:
        """The matrices and biases of a plain perceptron (`is_chain`), the output's last."""
        if not self.is_chain:
            raise InvalidNetworkError(
                f"{self!r} has skip connections, so it is not one list of matrices"
            )
        maps = list(self.maps)
        return [a.terms[k] for k, a in enumerate(maps)], [a.bias for a in maps]

    def __call__(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """Evaluate one input or a batch.

        Args:
            inputs: shape (d,), (n, d), or (n, *input_shape) / input_shape for images. The columns
                of a DataFrame are found by name where the network has ``columns``.

        Returns:
            shape (n, outputs), or (outputs,) for a single input.
        """
        batch, single = self._batch(inputs)
        step = max(1, CHUNK_DOUBLES // max(self.widths))
        result = np.empty((len(batch), self.output.size))
        for start in range(0, len(batch), step):
            part = batch[start : start + step]
            values = self._forward(part, keep=False)
            result[start : start + step] = self.output(values)
        return result[0] if single else result

    def predict(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """What the model itself returns: the network's values with its head applied.

        Returns:
            n results in the shape of the model's output, or one for a single input; for a model
            without a head the same numbers as calling the network.
        """
        batch, single = self._batch(inputs)
        result = self.head(self(batch), self.output_shape)
        return result[0] if single else result

    def values(self, inputs: ArrayLike) -> list[NDArray[np.float64]]:
        """The input and every layer's output on a batch, each of shape (n, width)."""
        return self._forward(self._batch(inputs)[0], keep=True)

    def preactivations(self, inputs: ArrayLike) -> list[NDArray[np.float64]]:
        """Pre-activations on a batch, one array (n, width) per layer with units."""
        batch, _ = self._batch(inputs)
        kept: list[NDArray[np.float64]] = []
        self._forward(batch, keep=False, preactivations=kept)
        return kept

    def pattern(self, inputs: ArrayLike) -> NDArray[np.bool_]:
        """Which units are active (pre-activation > 0): shape (n, units), or (units,) for one."""
        batch, single = self._batch(inputs)
        kept = [z > 0 for z in self.preactivations(batch)]
        bits = np.concatenate(kept, axis=1) if kept else np.zeros((len(batch), 0), dtype=bool)
        return bits[0] if single else bits

    def jacobian(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """The exact Jacobian: shape (n, outputs, d), or (outputs, d) for a single input.

        Where a unit sits exactly at its kink the derivative from below is used (0 for relu), as in
        torch. Computed in reverse, one matrix product per layer for the whole batch.
        """
        batch, single = self._batch(inputs)
        if not np.isfinite(batch).all():
            raise InvalidInputError("inputs hold NaN or infinite entries: no Jacobian there")
        result = self._gradients(batch, None)
        return np.array(result[0] if single else result)

    def pullback(self, inputs: ArrayLike, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient of ``weights . f`` at every input of a batch, weights (n, outputs)."""
        return self._gradients(self._batch(inputs)[0], weights[:, None])[:, 0]

    def _gradients(
        self, batch: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """(n, rows, d): the gradients of rows of weights, or with None of every output."""
        n, rows = len(batch), self.output.size if weights is None else weights.shape[1]
        preactivations: list[NDArray[np.float64]] = []
        self._forward(batch, keep=False, preactivations=preactivations, all_layers=True)
        slopes = [
            layer.activation.derivative(z)
            for layer, z in zip(self.layers, preactivations, strict=True)
        ]
        by_value = {
            source: np.broadcast_to(mx.dense(matrix), (n, *matrix.shape))
            if weights is None
            else (weights.reshape(n * rows, -1) @ matrix).reshape(n, rows, -1)
            for source, matrix in self.output.terms.items()
        }
        found = pulled_back(self.layers, slopes, by_value)
        return np.zeros((n, rows, self.input_size)) if found is None else found

    def _batch(self, inputs: ArrayLike) -> tuple[NDArray[np.float64], bool]:
        inputs = arranged(inputs, self.columns)
        array = real_numbers("the batch", inputs).astype(np.float64, copy=False)
        size = self.input_size
        # A matrix with d columns is always a batch, also where one input has shape (1, d).
        if array.ndim > 1 and array.shape[1:] in ((size,), self.input_shape):
            return array.reshape(len(array), size), False
        if array.shape in ((size,), self.input_shape):
            return array.reshape(1, size), True
        shapes = f"({size},) or (n, {size})"
        if len(self.input_shape) > 1:
            shapes += f", or with the shape {self.input_shape} in place of {size}"
        raise InvalidInputError(f"inputs have shape {array.shape}, expected {shapes}")

    def _forward(
        self,
        batch: NDArray[np.float64],
        *,
        keep: bool,
        preactivations: list[NDArray[np.float64]] | None = None,
        all_layers: bool = False,
    ) -> list[Any]:
        values: list[Any] = [batch]
        for index, layer in enumerate(self.layers):
            z = layer.affine(values)
            if preactivations is not None and (all_layers or layer.has_units):
                preactivations.append(z.copy())
            values.append(layer.activation.apply_(z))
            if not keep:
                for source in self._last_read[index]:
                    values[source] = None
        return values

    @cached_property
    def _last_read(self) -> list[list[int]]:
        """For each layer, the hidden values that nothing after it reads."""
        last: dict[int, int] = {}
        for index, affine in enumerate(self.maps):
            last.update(dict.fromkeys(affine.sources, index))
        freed: list[list[int]] = [[] for _ in range(len(self.layers) + 1)]
        for source, index in last.items():
            if source:
                freed[index].append(source)
        return freed

    def folded(self) -> Network:
        """The same function without linear stages: every `identity` layer is multiplied out.

        Exact up to the rounding of the matrix products. Costs memory where a product fills in.
        """
        if all(layer.has_units for layer in self.layers):
            return self
        expressed: list[Affine] = [whole(0, self.input_size)]
        layers: list[Layer] = []
        for layer in self.layers:
            affine = substitute(layer.affine, expressed)
            if layer.has_units:
                layers.append(dataclasses.replace(layer, affine=affine))
                expressed.append(whole(len(layers), layer.width))
            else:
                expressed.append(affine)
        return self.replace(layers=layers, output=substitute(self.output, expressed))

    def restricted(self, embedding: Matrix, offset: Vector) -> Network:
        """The function t -> self(embedding @ t + offset), up to the rounding of the products."""

        def change(affine: Affine) -> Affine:
            terms = dict(affine.terms)
            if 0 not in terms:
                return affine
            shift = terms[0] @ offset
            terms[0] = mx.compact(mx.matmul(terms[0], embedding))
            return Affine(terms, affine.bias + shift)

        layers = [Layer(change(x.affine), x.activation, x.name, x.shape) for x in self.layers]
        output = change(self.output)
        return self.replace(layers=layers, output=output, input_shape=embedding.shape[1])

    @cached_property
    def digest(self) -> str:
        """sha256 of structure, numbers and head (not of names, labels or storage), as hex.

        Of bytes that only this network has (module `encoding`), so that networks with the same
        digest are the same network.
        """
        h = hashlib.sha256()
        for part in encoding(self):
            h.update(part)
        return h.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Structure without the numbers, JSON-safe."""

        def describe(affine: Affine) -> dict[str, Any]:
            return {
                "reads": list(affine.sources),
                "parameters": affine.size + affine.nnz,
                "sparse": any(map(sp.issparse, affine.terms.values())),
            }

        layers = [
            {
                "name": layer.name,
                "shape": list(layer.shape),
                "activation": str(layer.activation),
                **describe(layer.affine),
            }
            for layer in self.layers
        ]
        output = {"name": "output", "shape": list(self.output_shape), "activation": "none"}
        return {
            "schema": "relunorm.network/1",
            **entries(self, "origin input_shape units channels parameters digest"),
            "layers": layers,
            "output": {**output, **describe(self.output)},
            "head": self.head.to_dict(),
            "precision": self.precision or None,
            "columns": [column.to_dict() for column in self.columns],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._fields(),)

    def __repr__(self) -> str:
        def size(shape: tuple[int, ...]) -> str:
            return "x".join(map(str, shape))

        stages = [size(self.input_shape)]
        stages += [f"{size(layer.shape)} {layer.activation}" for layer in self.layers]
        if len(stages) > 9:
            stages = [*stages[:4], f"... {len(stages) - 7} more ...", *stages[-3:]]
        chain = " -> ".join([*stages, size(self.output_shape)])
        chain += f", then {self.head.label}" if self.head else ""
        skips = "" if self.is_chain else ", with skips"
        plural = "s" if self.parameters != 1 else ""
        return f"Network({chain}, {self.parameters:,} parameter{plural}{skips})"


def units_in_words(units: int, channels: int) -> str:
    """So many units, and how many they are with every channel counted once.

    >>> units_in_words(1256, 44)
    '1,256 units (44 with a channel counted once)'
    """
    once = "" if units == channels else f" ({channels:,} with a channel counted once)"
    return f"{units:,} unit{'' if units == 1 else 's'}{once}"


def _rebuild(fields: dict[str, Any]) -> Network:
    return Network(**fields)
