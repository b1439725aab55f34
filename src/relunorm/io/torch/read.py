"""PyTorch modules and exported programs in."""

from __future__ import annotations

import copy
import inspect
import io
import logging
import operator
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument

from relunorm.display.shown import counted
from relunorm.errors import BranchingError, SeveralTensorsError, UnsupportedFormatError
from relunorm.io import input_shape
from relunorm.io.graph.walk import refused
from relunorm.io.torch.operations import ENTRYWISE
from relunorm.io.torch.program import Operation, Program, Ref, listed_as, place_of
from relunorm.io.torch.pt2 import read_beside, read_program
from relunorm.io.torch.walk import lower
from relunorm.network import Network
from relunorm.network.head import Head

#: Operations that leave the length of a vector as it is, like those on each entry alone: looked
#: through for the first product.
# fmt: off
_TRANSPARENT = ENTRYWISE | {
    "flatten", "view", "reshape", "squeeze", "dropout", "detach", "clone", "contiguous", "alias",
    "to", "_to_copy", "batch_norm",
}
# fmt: on


def read_pt2(path: Path, example: Any = None) -> Network:
    """Read a program saved by torch.export.save, without unpickling anything in the file."""
    network, (classes, columns) = lower(read_program(Path(path)), example), read_beside(Path(path))
    head = Head(network.head.steps, network.head.classes or classes)
    return network.replace(head=head, columns=columns)


def from_torch(model: nn.Module | ExportedProgram, example: Any = None) -> Network:
    """Read a module, as it computes in eval mode on a batch of one, or an exported program.

    The module is copied (sharing its parameters) and the copy is exported by torch.export: the
    module's mode, device, hooks, gradients and parameters stay as they are, and so does the random
    state. Forward hooks are left out of what is read.

    Args:
        example: the shape of one input or a batch of inputs; needed when the first operation does
            not fix the shape, as a convolution does not.

    >>> from_torch(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    Network(2 -> 3 relu -> 1, 13 parameters)
    """
    origin = type(model).__qualname__
    if isinstance(model, ExportedProgram):
        network = lower(_program(model, origin), example)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            _check_batch(model.module(), network.input_shape, origin)
        return network
    module = _checked(getattr(model, "_orig_mod", model), origin)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        twin = detached_copy(module)
        if example is None:
            network = lower(_export_guessing(twin, origin))
        else:
            shape = input_shape(example, origin)
            network = lower(_program(_export(twin, shape, origin), origin))
        _check_batch(twin, network.input_shape, origin)
        return network


def _checked(module: nn.Module, origin: str) -> nn.Module:
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedFormatError(
            f"{origin}: TorchScript cannot be exported again; pass the original nn.Module"
        )
    lazy = [
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if nn.parameter.is_lazy(tensor)
    ]
    if lazy:
        raise UnsupportedFormatError(
            f"{origin}: {', '.join(lazy)} of lazy modules have no shape yet; run the module once "
            "on a batch of inputs, then load it"
        )
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise UnsupportedFormatError(
            f"{origin}: its weights are on the meta device, without numbers; load them first"
        )
    _check_quantization(module, origin)
    required = [
        parameter.name
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) > 1:
        raise UnsupportedFormatError(
            f"{origin}: forward takes {len(required)} inputs ({', '.join(required)}), expected "
            "one tensor; wrap it in a module that takes one and splits it"
        )
    return module


def _check_quantization(module: nn.Module, origin: str) -> None:
    """Refuse what computes with integers, or rounds as if it did, in hooks that are not read."""
    parts = list(module.named_modules())
    whole = [name or origin for name, part in parts if ".quantized." in type(part).__module__]
    if whole:
        raise UnsupportedFormatError(
            f"{origin}: {', '.join(whole)} computes with integers; pass the module in floating "
            "point that it was made from"
        )
    rounding = [
        name.removesuffix(".activation_post_process")
        for name, part in parts
        if name.endswith("activation_post_process") and any(getattr(part, "fake_quant_enabled", ()))
    ]
    if rounding:
        raise UnsupportedFormatError(
            f"{origin}: FakeQuantize rounds the outputs of {', '.join(rounding)}; to read the "
            "model in floating point, call model.apply(torch.ao.quantization.disable_fake_quant)"
        )


def _check_statistics(module: nn.Module, origin: str) -> None:
    """Refuse layers that need a batch, where the complaint would be about the input's shape."""
    unfixed = [name or origin for name, part in module.named_modules() if _uses_the_batch(part)]
    if unfixed:
        raise UnsupportedFormatError(
            f"{origin}: {', '.join(unfixed)} keeps no running statistics "
            "(track_running_stats=False), so it normalizes by the batch in eval mode too and is no "
            "function of one input; use layers that keep them, and run some batches in train mode"
        )


def _uses_the_batch(part: nn.Module) -> bool:
    """Whether a batch normalization, torch's or in parts, has no fixed statistics for eval mode."""
    kept = getattr(part, "running_mean", part)
    per_input = isinstance(part, nn.modules.instancenorm._InstanceNorm)
    idle = not (getattr(part, "recenter", True) or getattr(part, "rescale", True))
    return hasattr(part, "track_running_stats") and kept is None and not (per_input or idle)


def _export(module: nn.Module, shape: tuple[int, ...], origin: str) -> ExportedProgram:
    """torch.export on a batch of one input of this shape."""
    try:
        with _quiet():
            return torch.export.export(module, (_zeros(module, (1, *shape)),), strict=False)
    except Exception as error:
        # The exporter runs the caller's own forward, so anything can come out of it.
        _check_statistics(module, origin)
        if type(error).__name__ == "GuardOnDataDependentSymNode":
            line = re.search(r'File "(?P<file>.+)", line (?P<line>\d+)', str(error))
            raise BranchingError(
                f"{origin}: torch.export could not trace it: forward chooses by values of its input"
                + (f" ({Path(line['file']).name}, line {line['line']})" if line else "")
                + "; write the choice with relu, clamp or torch.maximum"
            ) from None
        tables = [(name, part) for name, part in module.named_modules() if _looks_up(part)]
        if tables and "indices" in str(error):
            found = [
                (name or origin, f"a lookup in {type(part).__name__}") for name, part in tables
            ]
            raise refused(origin, found) from None
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedFormatError(
            f"{origin}: torch.export could not trace it on a batch of one input of shape {shape}: "
            f"{type(error).__name__}: {' '.join(reason[:3])}"
        ) from None


def _looks_up(part: nn.Module) -> bool:
    return isinstance(part, nn.Embedding | nn.EmbeddingBag)


def _zeros(module: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """A batch in the type and on the device of the module's own numbers."""
    like = next(
        (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None
    )
    dtype = torch.get_default_dtype() if like is None else like.dtype
    return torch.zeros(shape, dtype=dtype, device=None if like is None else like.device)


#: How many inputs are tried as one batch.
_BATCH = 4


def _check_batch(module: nn.Module, shape: tuple[int, ...], origin: str) -> None:
    """Refuse a module that does not do with a batch what it does with each input: it mixes them.

    Called once the graph is known to change no buffer, which the copy shares with the caller's.
    """
    zeros = _zeros(module, (_BATCH, *shape))
    inputs = torch.randn(zeros.shape, generator=torch.Generator().manual_seed(0)).to(zeros)
    try:
        with _quiet():
            each = [torch.atleast_1d(module(x[None].clone())) for x in inputs]
            batch, alone = module(inputs), torch.cat(each).double()
    except Exception:  # written for exactly one input, which is what is read
        return
    close = torch.finfo(zeros.dtype).eps ** 0.5 * (1 + float(alone.abs().max()))
    if batch.shape != alone.shape or not float((batch - alone).abs().max()) <= close:
        raise UnsupportedFormatError(
            f"{origin}: a batch of {_BATCH} inputs gives an output of shape {tuple(batch.shape)} "
            "that is not the outputs of each, so it mixes the inputs of a batch; a network "
            "computes one output per input"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings and log messages: what matters comes as an exception."""
    loggers = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("torch") and isinstance(logger, logging.Logger) and not logger.disabled
    ]
    try:
        for logger in loggers:
            logger.disabled = True
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # where it prints graphs
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger in loggers:
            logger.disabled = False


def _export_guessing(module: nn.Module, origin: str) -> Program:
    """Export with a shape read off the weights, if the graph shows that the guess was forced."""
    _check_statistics(module, origin)
    failure: UnsupportedFormatError | None = None
    for size in dict.fromkeys(_sizes(module)):
        try:
            program = _program(_export(module, (size,), origin), origin)
        except (SeveralTensorsError, BranchingError):
            raise  # whatever the shape
        except UnsupportedFormatError as error:
            failure = failure or error
            continue
        if _fixes_length(program):
            return program
    hint = _first_hint(module)
    raise UnsupportedFormatError(
        f"{origin}: the shape of its input is not fixed by its first operation{hint}; pass the "
        "shape of one input, for example relunorm.load(module, example=(3, 32, 32)), or a batch of "
        "inputs" + (f". What was tried: {failure}" if failure and not hint else "")
    )


def _sizes(module: nn.Module) -> Iterator[int]:
    """Lengths that a vector input may have, the likeliest first."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            yield part.in_features
        elif isinstance(part, nn.BatchNorm1d):
            yield part.num_features
    for parameter in module.parameters():
        if parameter.ndim == 2:
            yield from reversed(parameter.shape)


def _first_hint(module: nn.Module) -> str:
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            axes = ("length", "height, width", "depth, height, width")[len(part.kernel_size) - 1]
            channels = counted(part.in_channels, "channel")
            return (
                f" (the convolution {name!r} reads {channels} of any size: "
                f"example=({part.in_channels}, {axes}))"
            )
    return ""


def _fixes_length(program: Program) -> bool:
    """Whether the input reaches a product with a constant through entrywise operations only."""
    reached = {program.input}
    for operation in program.operations:
        arguments = list(operation.arguments.values())
        if not any(isinstance(a, Ref) and a.name in reached for a in arguments):
            continue
        name = listed_as(operation.target).rstrip("_")
        if name in ("linear", "addmm", "mm", "matmul", "mv"):
            return True
        if name in _TRANSPARENT and isinstance(operation.outputs, str):
            reached.add(operation.outputs)
    return False


def _program(exported: ExportedProgram, origin: str) -> Program:
    signature = exported.graph_signature
    values = {**exported.constants, **exported.state_dict}
    constants = {}
    for spec in signature.input_specs:
        if spec.target is not None:
            constants[spec.arg.name] = _constant(values[spec.target])
        elif isinstance(spec.arg, ConstantArgument):
            constants[spec.arg.name] = spec.arg.value
    if signature.buffers_to_mutate:
        changed = ", ".join(sorted(signature.buffers_to_mutate.values()))
        raise UnsupportedFormatError(
            f"{origin}: changes its own buffers ({changed}), so its output is not a function of "
            "its input alone; export it in eval mode"
        )
    inputs = [str(name) for name in signature.user_inputs if name not in constants]
    outputs = [str(name) for name in signature.user_outputs]
    if len(inputs) != 1 or len(outputs) != 1:
        raise SeveralTensorsError(
            f"{origin}: {len(inputs)} inputs and {len(outputs)} outputs, expected one tensor in "
            "and one out; wrap it in a module whose forward takes one and returns one of them"
        )
    nodes = {node.name: node for node in exported.graph.nodes}
    shapes = {
        name: _sizes_of(node.meta["val"])
        for name, node in nodes.items()
        if isinstance(node.meta.get("val"), torch.Tensor)
    }
    operations: list[Operation] = []
    bound: dict[str, Any] = {}
    _flatten(exported.graph_module, "", bound, operations)
    output, name = bound.get(outputs[0], Ref(outputs[0])), inputs[0]
    return Program(origin, name, shapes[name], output.name, constants, operations, shapes)


def _constant(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _sizes_of(tensor: torch.Tensor) -> tuple[int | None, ...]:
    return tuple(n if isinstance(n, int) else None for n in tensor.shape)


def _flatten(
    module: torch.fx.GraphModule, prefix: str, bound: dict[str, Any], calls: list[Operation]
) -> None:
    """Append the calls of a graph; blocks under torch.no_grad() are written out in place.

    Names inside a block get a prefix; ``bound`` says which of them stand for another value.
    """

    def convert(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            name = prefix + value.name
            return bound.get(name, Ref(name))
        return [convert(item) for item in value] if isinstance(value, list | tuple) else value

    blocks: dict[Any, list[Any]] = {}
    for node in module.graph.nodes:
        name = prefix + node.name
        if node.op != "call_function":
            continue
        if str(node.target) == "wrap_with_set_grad_enabled":
            block = getattr(module, node.args[1].target)
            inner = [n.name for n in block.graph.nodes if n.op == "placeholder"]
            given = [convert(value) for value in node.args[2:]]
            bound.update(zip((f"{name}/{n}" for n in inner), given, strict=True))
            _flatten(block, f"{name}/", bound, calls)
            names = [f"{name}/{n.name}" for n in block.graph.output_node().args[0]]
            blocks[node] = [bound.get(n, Ref(n)) for n in names]
        elif node.target is operator.getitem and node.args[0] in blocks:
            bound[name] = blocks[node.args[0]][node.args[1]]
        else:
            named = {key: convert(value) for key, value in node.kwargs.items()}
            arguments = _named(node.target, [convert(value) for value in node.args]) | named
            calls.append(Operation(_target(node.target), arguments, name, *_place(node)))


def _target(target: Any) -> str:
    if target is operator.getitem or getattr(target, "__module__", "") == "_operator":
        return f"_operator.{target.__name__}"
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', 'torch')}.{getattr(target, '__name__', target)}"


def _named(target: Any, arguments: list[Any]) -> dict[str, Any]:
    if isinstance(target, torch._ops.OpOverload):
        names = [argument.name for argument in target._schema.arguments]
        return dict(zip(names, arguments, strict=False))
    return {str(number): value for number, value in enumerate(arguments)}


def _place(node: torch.fx.Node) -> tuple[str, str]:
    """The module path of a call (with its own name where a function was called), and the class."""
    stack = list((node.meta.get("nn_module_stack") or {}).items())
    return place_of([(key, *value) for key, value in stack], _target(node.target))


def detached_copy(module: nn.Module) -> nn.Module:
    """The same module in eval mode, without hooks, sharing parameters and buffers.

    Modules that are used in several places stay shared. Only the hooks by which torch.nn.utils
    computes weights (weight_norm, spectral_norm, pruning) are part of what a module computes: they
    are run once on the copy. Other hooks are left out.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(tensor, torch.Tensor):
                memo[id(tensor)] = tensor
        for name, value in vars(part).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
                memo[id(value)] = OrderedDict()
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedFormatError(
            f"{type(module).__qualname__} cannot be copied ({error}), and the module itself is "
            "never touched; pass torch.export.export(module.eval(), (example,)) instead"
        ) from error
    twin.eval()
    _compute_weights(module, twin)
    return twin


def _compute_weights(module: nn.Module, twin: nn.Module) -> None:
    """Run the pre-forward hooks of torch.nn.utils on the copy's modules."""
    twins = dict(twin.named_modules(remove_duplicate=False))
    done = set()
    for name, part in module.named_modules(remove_duplicate=False):
        if id(part) in done:
            continue
        done.add(id(part))
        for hook in part._forward_pre_hooks.values():
            if type(hook).__module__.startswith("torch.nn.utils."):
                with torch.no_grad():
                    hook(twins[name], None)
