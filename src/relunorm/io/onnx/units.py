"""ONNX operations with kinks: activations, maxima, minima."""

from __future__ import annotations

from relunorm.io.graph import operations as meaning
from relunorm.io.graph.lower import CannotLower
from relunorm.io.onnx.site import Node, Value, operation, pairwise
from relunorm.network import RELU, Activation


@operation("Relu", entrywise=True)
def _relu(node: Node) -> Value:
    return node.lowering.activate(node.tensor(), RELU, node.label)


@operation("LeakyRelu", entrywise=True)
def _leaky_relu(node: Node) -> Value:
    slope = float(node.attribute("alpha", 0.01))
    return node.lowering.activate(node.tensor(), Activation("leaky", slope), node.label)


@operation("PRelu", entrywise=True)
def _prelu(node: Node) -> Value:
    return meaning.prelu(node.lowering, node.tensor(), node.constant(1), node.label)


@operation("HardSigmoid", entrywise=True)
def _hard_sigmoid(node: Node) -> Value:
    slope, middle = float(node.attribute("alpha", 0.2)), float(node.attribute("beta", 0.5))
    return meaning.hard_sigmoid(node.lowering, node.tensor(), node.label, slope, middle)


@operation("ThresholdedRelu", entrywise=True)
def _thresholded(node: Node) -> Value:
    level = float(node.attribute("alpha", 1.0))
    return meaning.threshold(node.lowering, node.tensor(), level, 0.0, node.label)


@operation("Shrink", entrywise=True)
def _shrink(node: Node) -> Value:
    width, shift = float(node.attribute("lambd", 0.5)), float(node.attribute("bias", 0.0))
    if width < 0:
        raise CannotLower("with a negative width")
    return meaning.shrink(node.lowering, node.tensor(), width, shift, node.label)


@operation("Clip", entrywise=True)
def _clip(node: Node) -> Value:
    low, high = (
        node.attribute(name) if node.input(k) is None else float(node.constant(k).reshape(()))
        for k, name in ((1, "min"), (2, "max"))
    )
    return node.lowering.clip(node.tensor(), low, high, node.label)


@operation("Abs", entrywise=True)
def _abs(node: Node) -> Value:
    return meaning.absolute(node.lowering, node.tensor(), node.label)


@operation("Sign", entrywise=True)
def _sign(node: Node) -> Value:
    return node.lowering.sign(node.tensor(), node.label)


@operation("Max", "Min", entrywise=True)
def _extreme(node: Node) -> Value:
    extreme = meaning.maximum if node.kind == "Max" else meaning.minimum
    return pairwise(node, lambda a, b: extreme(node.lowering, a, b, node.label))
