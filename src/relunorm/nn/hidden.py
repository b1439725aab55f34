"""Which Linear layers of a module feed a ReLU, what feeds them, and which layers read them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from relunorm.errors import InvalidInputError, UnsupportedOperationError

#: Modules and functions that a positive factor passes through unchanged.
_TRANSPARENT = (nn.Identity, nn.Dropout, nn.AlphaDropout)
#: Modules, functions and methods that hand the module's input on as it is, whatever its shape.
_SHAPING = (nn.Flatten, nn.Unflatten)
_SHAPING_CALLS = (torch.flatten, torch.reshape, "flatten", "reshape", "view", "contiguous")
_RELU_CALLS = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)


@dataclass(frozen=True)
class HiddenLinear:
    """A Linear layer followed by ReLU.

    Attributes:
        source: path of the hidden Linear layer whose ReLU it reads; "" if it reads the input, None
            if it reads anything else.
    """

    name: str
    linear: nn.Linear
    readers: tuple[tuple[str, nn.Linear], ...]
    source: str | None


def unwrapped(module: nn.Module) -> nn.Module:
    """The user's module inside ``torch.compile``, ``DataParallel`` and its distributed kin.

    >>> net = nn.Linear(2, 1)
    >>> unwrapped(nn.DataParallel(net)) is net
    True
    """
    while True:
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
            module = inner
        else:
            return module


def hidden_linears(module: nn.Module) -> list[HiddenLinear]:
    """Every Linear followed by ReLU, in execution order.

    Read from the traced graph, so Sequential, nested modules and functional relu all work.
    """
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:
        raise InvalidInputError(
            f"{type(module).__name__} cannot be traced by torch.fx ({error}); pass a module whose "
            "forward does not branch on values"
        ) from error
    modules = dict(module.named_modules())
    found: list[HiddenLinear] = []
    faults: list[tuple[str, str]] = []
    uses: dict[int, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            key = id(modules[str(node.target)])
            uses[key] = uses.get(key, 0) + 1
    read = _read_directly(graph, module)
    owners: dict[int, int] = {}
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for node in graph.nodes:
        if not _is(node, modules, nn.Linear):
            continue
        relus = [user for user in node.users if _is_relu(user, modules)]
        if not relus:
            continue
        name, linear = str(node.target), modules[str(node.target)]
        if len(relus) != len(node.users):
            faults.append((name, "the layer is read before its ReLU as well"))
            continue
        if uses[id(linear)] > 1:
            faults.append((name, "the layer is used more than once"))
            continue
        readers = [reader for relu in relus for reader in _readers(relu, modules)]
        for reader in readers:
            if not _is(reader, modules, nn.Linear):
                faults.append((name, f"its ReLU feeds {reader.op} {reader.target}, not a Linear"))
        for reader in (node, *readers):
            if _is(reader, modules, nn.Linear) and _tied(modules[str(reader.target)], owners):
                faults.append((name, f"{reader.target} shares its weights with another module"))
            if _is(reader, modules, nn.Linear) and _parameters(modules, reader) & read:
                faults.append((name, f"forward reads the weights of {reader.target} itself"))
        source = _source(node.args[0], modules)
        pairs = tuple(
            (str(r.target), modules[str(r.target)]) for r in readers if r.op == "call_module"
        )
        found.append(HiddenLinear(name, linear, pairs, source))  # type: ignore[arg-type]
    if faults:
        wanted = "Linear -> ReLU -> Linear, each Linear used once, is what it works on."
        raise UnsupportedOperationError(type(module).__name__, faults, wanted)
    if not found:
        raise InvalidInputError(f"{type(module).__name__} has no Linear layer followed by ReLU")
    return found


def _is(node: fx.Node, modules: dict[str, nn.Module], kind) -> bool:
    return node.op == "call_module" and isinstance(modules[str(node.target)], kind)


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return _is(node, modules, nn.ReLU) or (
        node.op == "call_function" and node.target in _RELU_CALLS
    )


def _readers(node: fx.Node, modules: dict[str, nn.Module]) -> list[fx.Node]:
    readers: list[fx.Node] = []
    for user in node.users:
        readers += _readers(user, modules) if _is(user, modules, _TRANSPARENT) else [user]
    return readers


def _tied(linear: nn.Module, owners: dict[int, int]) -> bool:
    return any(owners[id(parameter)] > 1 for parameter in linear.parameters())


def _parameters(modules: dict[str, nn.Module], node: fx.Node) -> set[int]:
    return {id(parameter) for parameter in modules[str(node.target)].parameters()}


def _read_directly(graph: fx.Graph, module: nn.Module) -> set[int]:
    """Parameters that forward reads outside their own layers, or that it makes a constant of.

    What forward computes from parameters alone is a constant to the tracer, not a node; autograd
    knows where it comes from.
    """
    found: set[int] = set()
    for node in graph.nodes:
        if node.op != "get_attr":
            continue
        value = operator.attrgetter(str(node.target))(module)
        if isinstance(value, Tensor):
            found.add(id(value))
            found |= _leaves(value.grad_fn)
    return found


def _leaves(function: Any) -> set[int]:
    """Parameters behind a node of autograd's graph."""
    found, seen, waiting = set(), set(), [function]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [following for following, _ in node.next_functions]
    return found


def _source(node, modules: dict[str, nn.Module]) -> str | None:
    """Path of the hidden Linear that a value comes from, "" for the module's input, else None."""
    behind = False
    while isinstance(node, fx.Node) and node.op != "placeholder":
        if _is(node, modules, nn.Linear):
            return str(node.target) if behind else None
        behind = behind or _is_relu(node, modules)
        shaping = _is(node, modules, _SHAPING) or node.target in _SHAPING_CALLS
        passes = _is_relu(node, modules) or _is(node, modules, _TRANSPARENT)
        # reshaping what a hidden layer gives would mix its units up
        if not (passes or (shaping and not behind)) or not node.args:
            return None
        node = node.args[0]
    return None if behind else ""


def flat_rows(values: Tensor) -> Tensor:
    """Inputs of a Linear layer as a matrix, one row per application."""
    return values.reshape(-1, values.shape[-1])
