"""An integer network as ONNX in QDQ form, which onnxruntime runs with the same integers.

The graph takes the program's integers and gives real outputs. Weights are int8 with a
DequantizeLinear a row; sums are float32; QuantizeLinear rounds them to the layer's own steps:

    q = QuantizeLinear(DequantizeLinear(w) q' + (bias + 1/4) 2^-a)

QuantizeLinear rounds halves to even and the program rounds them up. The sum is a whole number of
2^-a, so the quarter of a step decides halves and changes nothing else.

Exact where float32 is: every sum and the quarter need sizes below 2^22. Weights of 8 bits have
that up to some hundred inputs a row; 16 bits do not. Leaky units round twice and steps compare, for
which QDQ has no form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import scipy.sparse as sp
from onnx import helper

from relunorm.atomic import write_bytes
from relunorm.embedded.arithmetic.integers import IntegerNetwork
from relunorm.embedded.arithmetic.terms import Kernel
from relunorm.errors import UnsupportedFormatError
from relunorm.io.onnx.write import Graph, windows
from relunorm.network.structure import Geometry

#: int16 and uint16 may be quantized from this version of the operators on.
OPSET, IR_VERSION = 21, 10
LARGEST = 2**22


def to_qdq(network: IntegerNetwork) -> onnx.ModelProto:
    """The integer network as an ONNX model whose integers are the program's."""
    model = _Writer(network).model()
    onnx.checker.check_model(model)
    return model


def write_qdq(network: IntegerNetwork, path: str | Path) -> None:
    """Write `to_qdq` as a file, atomically."""
    write_bytes(path, to_qdq(network).SerializeToString())


class _Writer(Graph):
    def __init__(self, network: IntegerNetwork):
        super().__init__()
        self.network = network
        self.sizes = [np.maximum(np.abs(network.input_low), np.abs(network.input_high))]
        self.shapes = [network.input_shape, *(layer.shape for layer in network.layers)]

    def model(self) -> onnx.ModelProto:
        network = self.network
        kind = network.input_type.removesuffix("_t")
        entry = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        real = self.node("Cast", ["input"], "input_real", to=onnx.TensorProto.FLOAT)
        low = self.tensor("input_low", network.input_low.astype(np.float32))
        high = self.tensor("input_high", network.input_high.astype(np.float32))
        clamped = self.node("Max", [real, low], "input_above")
        values = [self.node("Min", [clamped, high], "input_clamped")]
        for index, layer in enumerate(network.layers):
            name = f"layer{index + 1}"
            if layer.kind not in ("relu", "identity"):
                raise UnsupportedFormatError(
                    f"{name} is {layer.kind}, which QDQ cannot round as the program does; only "
                    "relu and identity can be written"
                )
            z = self.affine(index, values, name, layer.shape, quarter=True)
            if layer.kind == "relu":
                z = self.node("Relu", [z], f"{name}_relu")
            kind = np.dtype(layer.value_type.removesuffix("_t"))
            scale = np.ldexp(np.float32(1), -layer.exponent.astype(np.int32))
            steps = self.tensor(f"{name}_step", scale)
            zero = self.tensor(f"{name}_zero", np.zeros(len(scale), kind))
            q = self.node("QuantizeLinear", [z, steps, zero], f"{name}_integers", axis=1)
            one = self.tensor(f"{name}_one", np.ones((), np.float32))
            nought = self.tensor(f"{name}_nought", np.zeros((), kind))
            values.append(self.node("DequantizeLinear", [q, one, nought], f"{name}_values"))
            most = np.iinfo(kind).max
            self.sizes.append(np.full(layer.affine.size, most))
        last = self.affine(len(network.layers), values, "last", network.output_shape, quarter=False)
        self.node("Identity", [last], "output")
        shapes = (network.input_size,), (network.output.size,)
        model = self.proto((entry, onnx.TensorProto.FLOAT), shapes, OPSET, IR_VERSION)
        shifts = {
            "relunorm.input_shift": ",".join(map(str, network.input_exponent.tolist())),
            "relunorm.output_shift": str(network.output_exponent),
        }
        helper.set_model_props(model, shifts)
        return model

    def affine(
        self, index: int, values: list[str], name: str, shape: tuple[int, ...], *, quarter: bool
    ) -> str:
        """The real sums of one map, shape (batch, rows)."""
        affine = self.network.maps[index]
        self.check(index, name)
        scale = np.ldexp(np.float32(1), -affine.exponent.astype(np.int32))
        bias = (affine.bias + (0.25 if quarter else 0.0)).astype(np.float32) * scale
        total = self.tensor(f"{name}_bias", bias)
        for source, term in affine.terms.items():
            part = f"{name}_from{source}"
            if isinstance(term, Kernel):
                shaped = self.reshape(values[source], self.shapes[source], f"{part}_in")
                found = self.convolution(term, shaped, affine.exponent, part)
                found = self.reshape(found, (affine.size,), f"{part}_out")
            else:
                matrix = term.matrix.toarray() if sp.issparse(term.matrix) else term.matrix
                weight = self.weights(matrix, scale, part)
                found = self.node("Gemm", [values[source], weight], f"{part}_product", transB=1)
            total = self.node("Add", [found, total], f"{part}_sum")
        return total

    def check(self, index: int, name: str) -> None:
        """Raise where a float32 could round a sum, whatever the order."""
        affine = self.network.maps[index]
        reach = np.abs(affine.bias).astype(np.float64) + 1
        for source, term in affine.terms.items():
            reach = reach + abs(term.matrix).astype(np.float64) @ self.sizes[source].astype(float)
        if affine.weight_type != "int8_t" or reach.max() >= LARGEST:
            raise UnsupportedFormatError(
                f"{name}: sums reach {reach.max():.3g} with weights {affine.weight_type}, and "
                f"float32 is exact below {LARGEST:,} and for int8_t only; write QDQ with 8 bits"
            )

    def weights(self, matrix: Any, scale: Any, name: str) -> str:
        tensor = self.tensor(f"{name}_weight", matrix.astype(np.int8))
        steps = self.tensor(f"{name}_scale", scale)
        zero = self.tensor(f"{name}_weight_zero", np.zeros(len(scale), np.int8))
        return self.node("DequantizeLinear", [tensor, steps, zero], f"{name}_real", axis=0)

    def convolution(self, term: Kernel, value: str, exponent: Any, name: str) -> str:
        channel = exponent.reshape(term.shape_out[0], -1)[:, 0].astype(np.int32)
        weight = self.weights(term.weight, np.ldexp(np.float32(1), -channel), name)
        found = windows(Geometry(term.weight.shape[2:], term.stride, term.pads, term.dilation))
        return self.node("Conv", [value, weight], f"{name}_conv", group=term.groups, **found)

    def reshape(self, value: str, shape: tuple[int, ...], name: str) -> str:
        target = self.tensor(f"{name}_shape", np.array([-1, *shape], dtype=np.int64))
        return self.node("Reshape", [value, target], name)
