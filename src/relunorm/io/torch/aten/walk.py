"""Lowering of a program to a Network, for a batch of one.

The graph is walked once: what depends on the input becomes a lowered `Tensor`, what does not is
computed by torch.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from relunorm.errors import (
    InvalidNetworkError,
    ModelFileError,
    RelunormError,
    UnsupportedFormatError,
)
from relunorm.io import input_shape
from relunorm.io.archive import coarsest
from relunorm.io.graph.heads import Headed, Stuck, finished
from relunorm.io.graph.lower import CannotLower, Lowering, Tensor
from relunorm.io.graph.refusals import refused
from relunorm.io.torch.aten import affine, moves, units, windowed  # noqa: F401 - fill OPERATIONS
from relunorm.io.torch.aten.constants import compute
from relunorm.io.torch.aten.head import apply_head, follows_head, opens_head
from relunorm.io.torch.aten.moves import ALIASES
from relunorm.io.torch.aten.program import (
    Operation,
    Program,
    Ref,
    is_in_place,
    leaves,
    names,
    split,
)
from relunorm.io.torch.aten.site import OPERATIONS, Site
from relunorm.network import Network

#: Complaints of numpy and torch about arguments that make no sense together.
BAD_ARGUMENTS = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    RuntimeError,
    NotImplementedError,
)

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


def lower(program: Program, example: Any = None) -> Network:
    """The network a program computes on a batch of one."""
    shape, batched = _lowered_shape(program, example)
    try:
        lowering = Lowering(shape)
    except RelunormError as error:
        raise InvalidNetworkError(f"{program.origin}: input of shape {shape}: {error}") from None
    walk = _Walk(program, lowering, batched)
    output = walk.run()
    inputs = shape[1:] if batched else shape
    network = finished(walk.lowering, output, input_shape=inputs, origin=program.origin)
    held = (str(c.dtype) for c in program.constants.values() if isinstance(c, torch.Tensor))
    return network.replace(precision=coarsest(held))


def _lowered_shape(program: Program, example: Any) -> tuple[tuple[int, ...], bool]:
    """The shape to lower for, and whether its first axis is the batch (then of size one)."""
    sizes = program.sizes
    if len(sizes) == 0:
        raise UnsupportedFormatError(f"{program.origin}: the input is a single number without axes")
    batched = len(sizes) > 1
    own = sizes[1:] if batched else sizes
    shown = ", ".join("?" if n is None else str(n) for n in sizes)
    if example is not None:
        wanted = input_shape(example, program.origin)
        if len(wanted) != len(own) or any(
            n not in (None, w) for n, w in zip(own, wanted, strict=True)
        ):
            raise UnsupportedFormatError(
                f"{program.origin}: example says that one input has shape {wanted}, but the "
                f"program was exported for an input of shape ({shown})"
            )
        own = wanted
    if None in own:
        raise UnsupportedFormatError(
            f"{program.origin}: the input has shape ({shown}), which leaves sizes open; pass the "
            "shape of one input, for example relunorm.load(model, example=(1, 28, 28))"
        )
    fixed = tuple(int(n or 0) for n in own)
    return ((1, *fixed) if batched else fixed), batched


@dataclass(frozen=True)
class _Unknown:
    """The value of an operation that could not be lowered; its consumers are passed over.

    Attributes:
        head: place and name of the operation that opened a head on it, if one did.
    """

    head: tuple[str, str] | None = None


_UNKNOWN = _Unknown()


class _Walk:
    def __init__(self, program: Program, lowering: Lowering, batched: bool):
        self.program = program
        self.lowering = lowering
        self.batched = batched
        self.values: dict[str, Any] = {**program.constants, program.input: lowering.input}
        self.unsupported: list[tuple[str, str]] = []
        self.memory = Memory(program)
        #: The batch the program was exported for, where that is fixed and not one.
        self.batch = (program.sizes[0] or 1) if batched else 1

    def run(self) -> Tensor | Headed:
        for number, operation in enumerate(self.program.operations):
            place = f"{self.program.origin}: {operation.place} ({operation.target})"
            try:
                arguments = {k: self._resolve(v) for k, v in operation.arguments.items()}
                if any(isinstance(value, _Unknown) for value in leaves(arguments)):
                    result = self._passed_over(operation, arguments)
                else:
                    result = self._apply(operation, arguments)
                    self.memory.record(number, operation, self.values, result)
                self._define(operation, result)
            except CannotLower as reason:
                self._refuse(operation, str(reason))
                self._define(operation, _UNKNOWN)
            except Stuck as stuck:
                self._refuse_head(stuck.value.place, stuck.value.operation)
                self._define(operation, _UNKNOWN)
            except RelunormError as error:
                raise InvalidNetworkError(f"{place}: {error}") from error
            except BAD_ARGUMENTS as error:
                # Sizes and arguments come from the graph: a complaint about them is about it.
                raise InvalidNetworkError(f"{place}: {error}") from error
        if self.unsupported:
            raise refused(self.program.origin, self.unsupported)
        output = self.values.get(self.program.output)
        if not isinstance(output, Tensor | Headed):
            raise InvalidNetworkError(
                f"{self.program.origin}: the output does not depend on the input"
            )
        return output

    def _apply(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        namespace, name, overload = split(operation.target)
        if namespace == "_operator" and name in _INTEGERS:
            return _integer(_INTEGERS[name], list(arguments.values()))
        if namespace == "_operator" and name == "getitem":
            sequence, index = arguments.values()
            return sequence[index]
        if name in _ASSERTIONS:
            return None
        if name in ("sym_size", "size"):
            return next(leaves(arguments)).shape[arguments["dim"]]
        if is_in_place(name) and self.memory.is_constant(operation.arguments):
            raise CannotLower("changes a parameter or buffer in place")
        if not any(isinstance(value, Tensor | Headed) for value in leaves(arguments)):
            return compute(operation.target, arguments, self.program.trusted)
        site = Site(self.lowering, operation.place, operation.owner, self.batched, self.batch)
        base = name[:-1] if is_in_place(name) else name
        headed = any(isinstance(value, Headed) for value in leaves(arguments))
        if namespace == "aten" and (headed or opens_head(base)):
            return apply_head(site, base, _described(operation), arguments)
        function = _function(operation.target)
        if function is None:
            raise CannotLower
        try:
            bound = inspect.signature(function).bind(site, **arguments)
        except TypeError:
            named = ", ".join(arguments)
            raise CannotLower(f"in its form {overload} with {named}") from None
        with np.errstate(all="ignore"):  # what is not finite is refused by the network's own check
            return function(*bound.args, **bound.kwargs)

    def _passed_over(self, operation: Operation, arguments: dict[str, Any]) -> _Unknown:
        """Go on after something unknown, so that everything else unknown is named as well."""
        namespace, name, _ = split(operation.target)
        heads = [value.head for value in leaves(arguments) if isinstance(value, _Unknown)]
        heads += [(v.place, v.operation) for v in leaves(arguments) if isinstance(v, Headed)]
        heads = [head for head in heads if head is not None]
        varying = [v for v in leaves(arguments) if isinstance(v, _Unknown | Headed | Tensor)]
        follows = bool(heads) and follows_head(name) and len(varying) == 1
        if namespace == "aten" and (opens_head(name) or follows):
            return _Unknown((heads or [(operation.place, _described(operation))])[0])
        for head in heads:
            self._refuse_head(*head)
        known = namespace == "_operator" or name in _ASSERTIONS or name in ("sym_size", "size")
        if not known and _function(operation.target) is None:
            self._refuse(operation, "")
        return _UNKNOWN

    def _refuse(self, operation: Operation, reason: str) -> None:
        detail = f": {reason}" if reason else ""
        self.unsupported.append((operation.place, f"{_described(operation)}{detail}"))

    def _refuse_head(self, place: str, operation: str) -> None:
        found = (place, f"{operation}: only known at the end of a model")
        if found not in self.unsupported:
            self.unsupported.append(found)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Ref):
            if value.name not in self.values:
                raise ModelFileError(f"reads {value.name!r}, which nothing before it computes")
            return self.values[value.name]
        if isinstance(value, list | tuple):
            return [self._resolve(item) for item in value]
        return value

    def _define(self, operation: Operation, result: Any) -> None:
        if isinstance(operation.outputs, str):
            self._check_shape(operation.outputs, result)
            self.values[operation.outputs] = result
            return
        if result is None or isinstance(result, _Unknown):
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


def _described(operation: Operation) -> str:
    return operation.target + (f" in {operation.owner}" if operation.owner else "")


def _function(target: str) -> Callable[..., Any] | None:
    namespace, name, overload = split(target)
    if namespace != "aten":
        return None
    if is_in_place(name):
        name = name[:-1]
    return OPERATIONS.get(f"{name}.{overload}") or OPERATIONS.get(name)


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
