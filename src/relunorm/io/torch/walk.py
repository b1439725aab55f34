"""Lowering of a program to a Network, for a batch of one.

The graph is walked once: what depends on the input becomes a lowered `Tensor`, what does not is
computed by torch.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from relunorm.errors import (
    SENSELESS,
    InvalidNetworkError,
    ModelFileError,
    RelunormError,
    UnsupportedFormatError,
)
from relunorm.io import one_shape
from relunorm.io.archive import coarsest
from relunorm.io.graph.heads import Headed, finished
from relunorm.io.graph.lower import MAX_SIZE, CannotLower, Lowering, Tensor
from relunorm.io.graph.walk import Call, Unknown, Walk
from relunorm.io.torch.operations import AFTER, FOLLOWERS, OPENERS, OPERATIONS
from relunorm.io.torch.program import (
    Operation,
    Program,
    Ref,
    Site,
    is_in_place,
    leaves,
    listed_as,
    names,
    split,
)
from relunorm.io.torch.shapes import ALIASES, JOINS, MOVES
from relunorm.network import Network

_INTEGERS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "ge", "gt", "le", "lt")
}

#: Checks that exporters leave in a graph; sizes are checked here anyway.
_ASSERTIONS = (
    "_assert_scalar",
    "_assert_async",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)


#: Arguments that change no number.
_IGNORED = frozenset({
    "memory_format", "layout", "device", "pin_memory", "non_blocking", "copy", "momentum", "path",
    "cudnn_enabled", "benchmark", "deterministic", "allow_tf32", "generator", "implicit",
})  # fmt: skip

#: What may be computed on a file's constants, besides operations tagged pointwise: no operation
#: here reads or writes anything but its arguments, and none is random.
_PURE = MOVES.union(JOINS, {
    "view", "_unsafe_view", "reshape", "expand", "cat", "stack", "contiguous", "detach", "detach_",
    "alias", "lift_fresh_copy", "lift_fresh", "_to_copy", "to", "sum", "mean", "amax", "amin", "mm",
    "mv", "dot", "vdot", "matmul", "bmm", "addmm", "linear", "_weight_norm",
    "_weight_norm_interface", "linalg_vector_norm", "norm", "norm_except_dim", "zeros", "ones",
    "full", "arange", "scalar_tensor", "zeros_like", "ones_like", "full_like", "einsum",
})  # fmt: skip


#: What asks for a size.
_SIZES = ("sym_size", "size")


def lower(program: Program, example: Any = None) -> Network:
    """The network a program computes on a batch of one."""
    shape, batched = _lowered_shape(program, example)
    try:
        lowering = Lowering(shape)
    except RelunormError as error:
        raise InvalidNetworkError(f"{program.origin}: input of shape {shape}: {error}") from None
    output = _Walk(program, lowering, batched).run()
    inputs = shape[1:] if batched else shape
    network = finished(lowering, output, input_shape=inputs, origin=program.origin)
    held = (str(c.dtype) for c in program.constants.values() if isinstance(c, torch.Tensor))
    return network.replace(precision=coarsest(held))


def _lowered_shape(program: Program, example: Any) -> tuple[tuple[int, ...], bool]:
    """The shape to lower for, and whether its first axis is the batch (then of size one)."""
    sizes = program.sizes
    if len(sizes) == 0:
        raise UnsupportedFormatError(f"{program.origin}: the input is a single number without axes")
    batched = len(sizes) > 1
    own = one_shape(sizes[1:] if batched else sizes, example, program.origin)
    return ((1, *own) if batched else own), batched


class _Walk(Walk):
    def __init__(self, program: Program, lowering: Lowering, batched: bool):
        super().__init__(lowering, program.origin)
        self.program = program
        self.batched = batched
        self.values: dict[str, Any] = {**program.constants, program.input: lowering.input}
        self.memory = Memory(program)
        #: The batch the program was exported for, where that is fixed and not one.
        self.batch = (program.sizes[0] or 1) if batched else 1

    def run(self) -> Tensor | Headed:
        for number, operation in enumerate(self.program.operations):
            try:
                arguments = {k: self._resolve(v) for k, v in operation.arguments.items()}
                run = partial(self._apply, number, operation, arguments)
                result = self.lower(_call(operation, arguments), leaves(arguments), run)
                self._define(operation, result)
            except (RelunormError, *SENSELESS, RuntimeError) as error:
                # Sizes and arguments come from the graph: a complaint about them is about it.
                place = f"{self.origin}: {operation.place} ({operation.target})"
                raise InvalidNetworkError(f"{place}: {error}") from error
        self.check()
        output = self.values.get(self.program.output)
        if not isinstance(output, Tensor | Headed):
            raise InvalidNetworkError(f"{self.origin}: the output does not depend on the input")
        return output

    def _apply(self, number: int, operation: Operation, arguments: dict[str, Any]) -> Any:
        """What an operation gives, its memory noted."""
        result = self._computed(operation, arguments)
        self.memory.record(number, operation, self.values, result)
        return result

    def _computed(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        namespace, name, overload = split(operation.target)
        if namespace == "_operator" and name in _INTEGERS:
            return _integer(_INTEGERS[name], list(arguments.values()))
        if namespace == "_operator" and name == "getitem":
            sequence, index = arguments.values()
            return sequence[index]
        if name in _ASSERTIONS:
            return None
        if name in _SIZES:
            return next(leaves(arguments)).shape[arguments["dim"]]
        if is_in_place(name) and self.memory.is_constant(operation.arguments):
            raise CannotLower("changes a parameter or buffer in place")
        if not any(isinstance(value, Tensor | Headed) for value in leaves(arguments)):
            return compute(operation.target, arguments, self.program.trusted)
        function = _function(operation.target) or AFTER[listed_as(operation.target)]
        site = Site(self.lowering, operation.place, operation.owner, self.batched, self.batch)
        given = {key: value for key, value in arguments.items() if key not in _IGNORED}
        try:
            bound = inspect.signature(function).bind(site, **given)
        except TypeError:
            raise CannotLower(f"in its form {overload} with {', '.join(arguments)}") from None
        return function(*bound.args, **bound.kwargs)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Ref):
            if value.name not in self.values:
                raise ModelFileError(f"reads {value.name!r}, which nothing before it computes")
            found = self.values[value.name]
            if found is None:
                raise InvalidNetworkError("reads the places of entries, which jump")
            return found
        if isinstance(value, list | tuple):
            return [self._resolve(item) for item in value]
        return value

    def _define(self, operation: Operation, result: Any) -> None:
        if isinstance(operation.outputs, str):
            self._check_shape(operation.outputs, result)
            self.values[operation.outputs] = result
            return
        if result is None or isinstance(result, Unknown):
            result = [result] * len(operation.outputs)
        if len(result) < len(operation.outputs):
            raise ModelFileError(f"has {len(operation.outputs)} outputs, expected {len(result)}")
        for name, value in zip(operation.outputs, result, strict=False):
            self._check_shape(name, value)
            self.values[name] = value

    def _check_shape(self, name: str, value: Any) -> None:
        """The shape must be the recorded one, except that the batch is one here."""
        recorded = self.program.shapes.get(name)
        if recorded is None or not isinstance(value, Tensor):
            return
        fits = len(recorded) == len(value.shape) and all(
            r in (None, n) or (n == 1 and r == self.batch)
            for r, n in zip(recorded, value.shape, strict=True)
        )
        if not fits:
            raise InvalidNetworkError(
                f"comes out with shape {value.shape} for a batch of one, but was exported with "
                f"{recorded}; export with a batch of one or a dynamic batch"
            )


def _call(operation: Operation, arguments: dict[str, Any]) -> Call:
    """What is known of an operation; anything may be computed from constants."""
    namespace, name, _ = split(operation.target)
    plain = namespace == "_operator" or name in (*_ASSERTIONS, *_SIZES)
    varies = any(isinstance(v, Tensor | Headed | Unknown) for v in leaves(arguments))
    known = plain or not varies or _function(operation.target) is not None
    base = listed_as(operation.target)
    shown = operation.target + (f" in {operation.owner}" if operation.owner else "")
    return Call(operation.place, shown, known, base in OPENERS, plain or base in FOLLOWERS)


def _function(target: str) -> Callable[..., Any] | None:
    name, (*_, overload) = listed_as(target), split(target)
    return OPERATIONS.get(f"{name}.{overload}") or OPERATIONS.get(name)


def compute(target: str, arguments: dict[str, Any], trusted: bool) -> Any:
    """Run an operation on constants."""
    namespace, name, overload = split(target)
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    function = getattr(packet, overload, None)
    if function is None:
        raise CannotLower("not known to this version of torch")
    if torch.Tag.nondeterministic_seeded in function.tags:
        raise CannotLower("is random")
    if "device" in arguments:
        arguments["device"] = torch.device("cpu")
    if is_in_place(name):
        first = next(iter(arguments))
        arguments[first] = arguments[first].clone()
    with torch.no_grad():
        if not trusted:
            _check_harmless(function, namespace, name, arguments)
        return function(**arguments)


def _check_harmless(function: Any, namespace: str, name: str, arguments: Mapping[str, Any]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    pure = torch.Tag.pointwise in function.tags or name in _PURE
    if namespace != "aten" or not pure or name.startswith("_foreach"):
        raise CannotLower("is not run on the constants of a file")
    with FakeTensorMode(allow_non_fake_inputs=True):
        for value in leaves([function(**arguments)]):
            if isinstance(value, torch.Tensor) and value.numel() > MAX_SIZE:
                raise InvalidNetworkError(f"makes a constant of {value.numel():,} entries")


def _integer(function: Callable[..., Any], values: list[Any]) -> Any:
    if not all(isinstance(value, int) for value in values):
        raise CannotLower("on something other than sizes")
    result = function(*values)
    if abs(result) >= 1 << 63:
        raise InvalidNetworkError("a size beyond 64 bits")
    return result


class Memory:
    """What is known about the memory behind each name.

    Attributes:
        storage: names with the same number may share memory.
        identity: names with the same number are the same tensor, not merely overlapping views.
        last_use: the last operation that reads a name.
    """

    def __init__(self, program: Program):
        self.storage: dict[str, int] = {}
        self.identity: dict[str, int] = {}
        self.fixed = frozenset(program.constants)
        self.last_use = {program.output: len(program.operations)}
        for number, operation in enumerate(program.operations):
            for name in names(operation.arguments):
                self.last_use[name] = max(number, self.last_use.get(name, -1))

    def is_constant(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the first argument is (a view of) a parameter or buffer."""
        target = next(names(arguments), "")
        storage = self.storage.get(target)
        shared = {name for name, s in self.storage.items() if s == storage} | {target}
        return bool(shared & self.fixed)

    def record(
        self, number: int, operation: Operation, values: dict[str, Any], result: Any
    ) -> None:
        """Note what an operation's outputs alias; an in-place one updates its other names."""
        _, name, _ = split(operation.target)
        outputs = operation.outputs
        results = [outputs] if isinstance(outputs, str) else list(outputs)
        base = next(names(operation.arguments), None)
        if base is not None and is_in_place(name):
            self._overwrite(number, base, values, result)
            self._join(results, base, same=True)
        elif base is not None and (name in ALIASES or name == "getitem"):
            self._join(results, base, same=False)

    def _join(self, results: Sequence[str], base: str, same: bool) -> None:
        storage = self.storage.setdefault(base, len(self.storage) + 1)
        identity = self.identity.setdefault(base, len(self.identity) + 1)
        for name in results:
            self.storage[name] = storage
            self.identity[name] = identity if same else len(self.identity) + 1

    def _overwrite(self, number: int, base: str, values: dict[str, Any], result: Any) -> None:
        if base not in self.storage:
            values[base] = result
            return
        for name, storage in self.storage.items():
            if storage != self.storage[base]:
                continue
            if self.identity[name] == self.identity[base]:
                values[name] = result
            elif self.last_use.get(name, -1) > number:
                raise CannotLower("changes memory in place of which another view is read later")
