"""Networks out to ONNX: by their structure where it is known, else map by map.

A dense map becomes Gemm, a sparse one Conv where it is one, else it is gathered.

The graph has one input of shape (batch, *input_shape) and one output (batch, *output_shape), with
the names they had in the ONNX file the network was read from, else ``input`` and ``output``. Opset
17 and IR version 8, which every onnxruntime since 1.12 runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import scipy.sparse as sp
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from relunorm import __version__
from relunorm import matrix as mx
from relunorm.atomic import write_bytes
from relunorm.errors import UnsupportedFormatError
from relunorm.io.border import Model, accepts
from relunorm.io.graph.products import outputs_first
from relunorm.io.graph.windows import Convolution, recover_convolution
from relunorm.io.onnx.file import COLUMNS, STAGE
from relunorm.matrix import Matrix
from relunorm.network import Activation, Affine, Network
from relunorm.network.head import Step as HeadStep
from relunorm.network.structure import Geometry, Step, Structure

OPSET = 17
IR_VERSION = 8

#: A sparse matrix is gathered while its padded rows take less than this share of the dense one.
GATHER_BELOW = 0.25


@accepts("network")
def to_onnx(network: Model, dtype: str | None = None, *, stopped: str = "") -> onnx.ModelProto:
    """The network as an ONNX model.

    Args:
        dtype: "float32" (the default) or "float64": type of weights, input and output.
        stopped: why the network's training ended early; if so, the model's metadata says it under
            ``relunorm.stopped``.

    Returns:
        a model that passes onnx's checker. In float64 it computes what the network does up to the
        order of summation; in float32 weights and arithmetic are rounded.
    """
    model = _Writer(network, np.dtype(dtype or "float32")).model()
    properties = {"relunorm.stopped": stopped} if stopped else {}
    if network.head.classes:
        properties["classes"] = json.dumps(network.head.classes)
    if network.columns:
        properties[COLUMNS] = json.dumps([column.to_dict() for column in network.columns])
    if properties:
        helper.set_model_props(model, properties)
    onnx.checker.check_model(model)
    return model


def write_onnx(
    network: Network, path: Path, dtype: str | None = None, *, stopped: str = ""
) -> None:
    """Write a network as .onnx; the arguments are those of `to_onnx`."""
    try:
        content = to_onnx(network, dtype, stopped=stopped).SerializeToString()
    except ValueError as error:
        if isinstance(error, UnsupportedFormatError):
            raise
        raise UnsupportedFormatError(
            f"{path}: too large for one ONNX file (2 GB); write .safetensors instead ({error})"
        ) from None
    write_bytes(path, content)


class Graph:
    """The nodes and tensors of a graph from ``input`` to ``output`` while it is written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Emit a node; returns the name of its output."""
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def tensor(self, name: str, array: NDArray[Any]) -> str:
        """Store a tensor; returns its name."""
        self.tensors.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def proto(
        self, ends: tuple[int, int], shapes: Sequence[Sequence[int]], opset: int, ir_version: int
    ) -> onnx.ModelProto:
        """The model, from the types of its input and output and their shapes without the batch."""
        infos = [
            helper.make_tensor_value_info(name, kind, ["batch", *shape])
            for name, kind, shape in zip(("input", "output"), ends, shapes, strict=True)
        ]
        graph = helper.make_graph(self.nodes, "relunorm", infos[:1], infos[1:], self.tensors)
        return helper.make_model(
            graph,
            ir_version=ir_version,
            opset_imports=[helper.make_opsetid("", opset)],
            producer_name="relunorm",
            producer_version=__version__,
        )


class _Writer(Graph):
    """Emits nodes; value k is held in the shape of its layer, flattened where a map needs it."""

    def __init__(self, network: Network, dtype: np.dtype[Any]):
        super().__init__()
        self.network = network
        self.dtype = dtype
        self.values = ["input"]
        self.flattened: dict[int, str] = {}
        self.shapes = [network.input_shape, *(layer.shape for layer in network.layers)]

    def model(self) -> onnx.ModelProto:
        network, structure = self.network, self.network.structure
        # onnxruntime has no Conv in float64.
        if structure is not None and can_write(structure) and self.dtype == np.float32:
            last = self.steps(structure)
        else:
            for index, layer in enumerate(network.layers):
                z = self.affine(layer.affine, f"layer{index}", layer.shape)
                self.values.append(self.activation(layer.activation, z, f"layer{index}"))
            last = self.affine(network.output, "last", network.output_shape)
        head = network.head
        for number, step in enumerate(head.steps):
            last = self.head_step(step, last, f"head{number}_{step.kind}")
        self.node("Identity", [last], "output")
        result = head(np.zeros((1, network.output_size)), network.output_shape).shape[1:]
        whole = bool(head) and head.steps[-1].kind == "argmax"
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        ends = kind, onnx.TensorProto.INT64 if whole else kind
        made = self.proto(ends, (network.input_shape, result), OPSET, IR_VERSION)
        _rename(made.graph, dict(zip(("input", "output"), network.names, strict=True)))
        return made

    def affine(self, affine: Affine, prefix: str, shape: tuple[int, ...]) -> str:
        """Emit an affine map with a result of this shape; one term carries the bias if it can."""
        total = ""
        bias: NDArray[np.float64] | None = affine.bias
        # A constant map still needs the batch size of its input, so it reads it with weight zero.
        nothing = {0: np.zeros((affine.size, self.network.input_size))}
        for source, matrix in (affine.terms or nothing).items():
            name = f"{prefix}_from{source}"
            part, took_bias = self.term(matrix, source, name, shape, bias)
            bias = None if took_bias else bias
            total = self.node("Add", [total, part], f"{name}_sum") if total else part
        if bias is not None and bias.any():
            constant = self.tensor(f"{prefix}_bias", bias.reshape(shape))
            total = self.node("Add", [total, constant], f"{prefix}_shifted")
        return total

    def term(
        self,
        matrix: Matrix,
        source: int,
        name: str,
        shape: tuple[int, ...],
        bias: NDArray[np.float64] | None,
    ) -> tuple[str, bool]:
        """Emit ``matrix @ value`` in this shape; returns its name and whether it took the bias."""
        if sp.issparse(matrix):
            if mx.is_identity(matrix):
                same = self.shapes[source] == shape
                value = self.values[source] if same else self.flat(source)
                return (value if same else self.shaped(value, shape)), False
            # onnxruntime has no Conv in float64.
            if self.dtype == np.float32:
                found = recover_convolution(matrix, self.shapes[source], shape)
                if found is not None:
                    return self.convolution(found, self.values[source], name, bias)
            longest = int(np.diff(matrix.indptr).max())
            if longest < GATHER_BELOW * matrix.shape[1]:
                flat = self.gather(matrix, max(longest, 1), self.flat(source), name)
                return self.shaped(flat, shape), False
        return self.shaped(self.gemm(mx.dense(matrix), self.flat(source), name, bias), shape), True

    def flat(self, source: int) -> str:
        """Value ``source`` as (batch, width)."""
        if len(self.shapes[source]) == 1:
            return self.values[source]
        if source not in self.flattened:
            value = self.values[source]
            self.flattened[source] = self.node("Flatten", [value], f"value{source}_flat", axis=1)
        return self.flattened[source]

    def shaped(self, flat: str, shape: tuple[int, ...]) -> str:
        """A (batch, width) result in a layer's own shape."""
        if len(shape) == 1:
            return flat
        target = self.tensor(f"{flat}_shape", np.array([-1, *shape]))
        return self.node("Reshape", [flat, target], f"{flat}_shaped")

    def gemm(
        self,
        matrix: NDArray[np.float64],
        value: str,
        name: str,
        bias: NDArray[np.float64] | None,
    ) -> str:
        inputs = [value, self.tensor(f"{name}_weight", matrix)]
        if bias is not None:
            inputs.append(self.tensor(f"{name}_bias", bias))
        return self.node("Gemm", inputs, f"{name}_gemm", transB=1)

    def convolution(
        self, conv: Convolution, value: str, name: str, bias: NDArray[np.float64] | None
    ) -> tuple[str, bool]:
        inputs = [value, self.tensor(f"{name}_weight", conv.weight)]
        planes = None if bias is None else bias.reshape(len(conv.weight), -1)
        takes_bias = planes is not None and bool((planes == planes[:, :1]).all())
        if planes is not None and takes_bias:
            inputs.append(self.tensor(f"{name}_bias", planes[:, 0]))
        found = {"group": conv.groups, **windows(conv.geometry)}
        return self.node("Conv", inputs, f"{name}_conv", **found), takes_bias

    def gather(self, matrix: sp.csr_array, longest: int, value: str, name: str) -> str:
        """Row by row: pick the entries a row reads, weigh them, add them up."""
        counts = np.diff(matrix.indptr)
        rows = np.repeat(np.arange(len(counts)), counts)
        slots = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)
        index = np.zeros((len(counts), longest), dtype=np.int64)
        weight = np.zeros((len(counts), longest))
        index[rows, slots] = matrix.indices
        weight[rows, slots] = matrix.data
        picked = self.node(
            "Gather", [value, self.tensor(f"{name}_index", index)], f"{name}_picked", axis=1
        )
        weights = self.tensor(f"{name}_weight", weight)
        weighed = self.node("Mul", [picked, weights], f"{name}_weighed")
        axes = self.tensor(f"{name}_axes", np.array([2]))
        return self.node("ReduceSum", [weighed, axes], f"{name}_gathered", keepdims=0)

    def activation(self, activation: Activation, z: str, prefix: str) -> str:
        if activation.kind == "relu":
            return self.node("Relu", [z], f"{prefix}_relu")
        if activation.kind == "leaky":
            return self.leaky(activation.slope, z, prefix)
        if activation.kind == "step":
            return self.step(activation.at_zero, z, prefix)
        return self.stage(z, f"{prefix}_linear")

    def leaky(self, slope: float, z: str, prefix: str) -> str:
        """LeakyRelu in float32; in float64 PRelu, as LeakyRelu's attribute is a float32."""
        if self.dtype == np.float32:
            alpha = float(mx.narrowed(np.array(slope), np.float32, f"{prefix}_slope"))
            return self.node("LeakyRelu", [z], f"{prefix}_leaky", alpha=alpha)
        factor = self.tensor(f"{prefix}_slope", np.array([slope]))
        return self.node("PRelu", [z, factor], f"{prefix}_leaky")

    def step(self, at_zero: float, z: str, prefix: str) -> str:
        """With s = sign(z): relu(s), plus v (1 - |s|) where the value at 0 is v."""
        sign = self.node("Sign", [z], f"{prefix}_sign")
        above = self.node("Relu", [sign], f"{prefix}_above")
        if at_zero == 0:
            return self.stage(above, f"{prefix}_step")
        one = self.tensor(f"{prefix}_one", np.array(1.0))
        size = self.node("Abs", [sign], f"{prefix}_size")
        zero = self.node("Sub", [one, size], f"{prefix}_zero")
        value = self.tensor(f"{prefix}_value", np.array(at_zero))
        at = self.node("Mul", [zero, value], f"{prefix}_at")
        total = self.node("Add", [above, at], f"{prefix}_total")
        return self.stage(total, f"{prefix}_step")

    def clip(self, ends: Sequence[float | None], z: str, name: str) -> str:
        """Cut off at two ends; one that is None or infinite is open."""
        given = [
            "" if end is None or np.isinf(end) else self.tensor(f"{name}_{which}", np.array(end))
            for which, end in zip(("low", "high"), ends, strict=True)
        ]
        return self.node("Clip", [z, *given], name)

    def stage(self, z: str, output: str) -> str:
        """z as it is; the note tells `load` not to multiply what reads it into z, which rounds."""
        return self.node("Identity", [z], output, doc_string=STAGE)

    def steps(self, structure: Structure) -> str:
        """Emit all steps of a structure; returns the name of the output."""
        names = ["input"]
        for number, step in enumerate(structure.steps[1:], start=1):
            names.append(self.one_step(step, f"step{number}", [names[i] for i in step.inputs]))
        return names[-1]

    def one_step(self, step: Step, name: str, inputs: list[str]) -> str:
        if step.kind in ("conv", "conv_transpose", "linear") and step.weight is not None:
            weight = step.weight
            if step.kind == "conv_transpose":
                weight = outputs_first(weight, step.groups)
            inputs = [*inputs, self.tensor(f"{name}_weight", weight)]
            if step.bias is not None and step.bias.any():
                inputs.append(self.tensor(f"{name}_bias", step.bias))
            if step.kind == "linear":
                return self.node("Gemm", inputs, name, transB=1)
            if step.kind == "conv" or step.geometry is None:
                return self.node("Conv", inputs, name, group=step.groups, **windows(step.geometry))
            pads = step.geometry.pads
            added = [max(-after, 0) for _, after in pads]
            cut = step.geometry.padded([(a, max(b, 0)) for a, b in pads])
            found = {"group": step.groups, **windows(cut)}
            return self.node("ConvTranspose", inputs, name, output_padding=added, **found)
        if step.kind == "upsample" and step.geometry is not None:
            scales = np.array([1, 1, *step.geometry.kernel], dtype=np.float32)
            inputs = [*inputs, "", self.tensor(f"{name}_scales", scales)]
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            return self.node("Resize", inputs, name, mode="nearest", **how)
        if step.kind == "max_pool" and step.geometry is not None:
            found = {"ceil_mode": int(step.geometry.ceil), **windows(step.geometry)}
            return self.node("MaxPool", inputs, name, **found)
        if step.kind == "average_pool":
            found = {"count_include_pad": int(step.count_padding), **windows(step.geometry)}
            found.pop("dilations")
            return self.node("AveragePool", inputs, name, **found)
        if step.kind == "activation" and step.activation is not None:
            if step.activation.kind == "relu":
                return self.node("Relu", inputs, name)
            return self.leaky(step.activation.slope, inputs[0], name)
        if step.kind == "clip":
            return self.clip(step.ends, inputs[0], name)
        if step.kind == "reshape":
            if len(step.shape) == 1:
                return self.node("Flatten", inputs, name, axis=1)
            shape = self.tensor(f"{name}_shape", np.array([-1, *step.shape]))
            return self.node("Reshape", [*inputs, shape], name)
        if step.kind == "permute":
            return self.node("Transpose", inputs, name, perm=[0, *(a + 1 for a in step.axes)])
        return self.node("Add", inputs, name)

    def head_step(self, step: HeadStep, value: str, name: str) -> str:
        if step.kind == "pair":
            first = self.node("Neg", [value], f"{name}_0")
            return self.node("Concat", [first, value], name, axis=-1)
        if step.kind in ("sigmoid", "tanh", "softplus", "exp", "round"):
            return self.node(step.kind.capitalize(), [value], name)
        if step.kind in ("softmax", "log_softmax"):
            kind = "Softmax" if step.kind == "softmax" else "LogSoftmax"
            return self.node(kind, [value], name, axis=step.axis + 1)
        if step.kind == "argmax":
            return self.node("ArgMax", [value], name, axis=step.axis + 1, keepdims=0)
        if step.kind == "log_sigmoid":
            return self.node("Log", [self.node("Sigmoid", [value], f"{name}_p")], name)
        if step.kind == "clip":
            return self.clip(step.numbers, value, name)
        if step.kind == "greater":
            level = self.tensor(f"{name}_level", np.array(step.numbers[0]))
            above = self.node("Greater", [value, level], f"{name}_test")
            target = onnx.helper.np_dtype_to_tensor_dtype(self.dtype)
            return self.node("Cast", [above], name, to=target)
        parts = step.scaling(self.network.output_shape)
        factor, offset = (self.tensor(f"{name}_{k}", p) for k, p in zip("ab", parts, strict=True))
        product = self.node("Mul", [value, factor], f"{name}_product")
        return self.node("Add", [product, offset], name)

    def tensor(self, name: str, array: NDArray[Any]) -> str:
        if array.dtype.kind == "f":
            array = mx.narrowed(array, self.dtype, name)
        return super().tensor(name, array)


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Give the input and the output other names, where no other value has them."""
    taken = {name for node in graph.node for name in node.output}
    taken |= {tensor.name for tensor in (*graph.initializer, *graph.input)}
    new = {old: name for old, name in names.items() if name and name not in taken}
    for info in (*graph.input, *graph.output):
        info.name = new.get(info.name, info.name)
    for node in graph.node:
        for listed in (node.input, node.output):
            listed[:] = [new.get(name, name) for name in listed]


def can_write(structure: Structure | None) -> bool:
    """Whether ONNX has an operator for every step, and matrices would say it at greater length."""
    if structure is None or not structure.convolves:
        return False
    for step in structure.steps:
        # averages over dilated windows came later, and runtimes disagree on ceil mode
        g = step.geometry if step.kind == "average_pool" else None
        if g is not None and (g.ceil or set(g.dilation) != {1}):
            return False
    return True


def windows(geometry: Geometry | None) -> dict[str, Any]:
    """The attributes of a node whose windows lie so."""
    if geometry is None:
        return {}
    return {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.stride),
        "dilations": list(geometry.dilation),
        "pads": [before for before, _ in geometry.pads] + [after for _, after in geometry.pads],
    }
