"""Seeing every rectifier a torch model calls, module or function, and giving each a stable name.

A ``TorchFunctionMode`` is active while the model's forward runs, and only then: code outside the
model costs nothing. What runs in a backward pass is left out: gradient checkpointing repeats there
what was seen. A site is named as the torch reader names layers: by the rectifier's module, or by
the module whose forward calls a function and that function, and counted from the second call on:
``net.act``, ``net.act#1``, ``net.block.relu``. Counting restarts with every forward.

torch's own rectifier modules carry no hooks: the call stack tells which of them made a call.

`Labels` follow units through operations that move, pool or drop entries, whatever the shapes. Every
unit has a label, a random number. A tensor of labels in the shape of the activations takes the
place of the activations in each call; an entry of the result belongs to a unit if it carries that
unit's label alone. Sizes that happen to coincide cannot mislead: the entries themselves are
followed. Exact, but for a coincidence of random float64 numbers.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

#: Called with the site's name, the output, whether it is leaky, the axis that counts units, and
#: whether that axis is known from the layer behind it (else it is a guess from the shape).
Observer = Callable[[str, Tensor, bool, int, bool], None]


def calls(names: str) -> set[Any]:
    """The functions of these names in torch, its tensors and ``torch.nn.functional``."""
    homes = (torch, Tensor, F)
    found = (getattr(home, name, None) for home in homes for name in names.split())
    return {call for call in found if callable(call)}


def _rectifiers(names: str) -> set[Any]:
    """`calls`, and the same as ``torch.ops.aten.NAME`` or ``.default``."""
    packets = [getattr(torch.ops.aten, name) for name in names.split()]
    return {*calls(names), *packets, *(packet.default for packet in packets)}


_THRESHOLD = _rectifiers("threshold threshold_")
_RELU = _rectifiers("relu relu_ relu6")
_LEAKY = _rectifiers("leaky_relu leaky_relu_ prelu rrelu rrelu_")
_CLAMP = _rectifiers("clamp clamp_ clip clip_ clamp_min clamp_min_ hardtanh hardtanh_")
_ACTIVATIONS = _RELU | _LEAKY | _CLAMP | _THRESHOLD
#: Calls that decide which axis of their output counts units: its index, from the end if negative.
_PRODUCERS = {
    **dict.fromkeys((F.linear, F.bilinear, torch.matmul, Tensor.matmul, Tensor.__matmul__), -1),
    **dict.fromkeys((F.conv1d, F.conv_transpose1d), -2),
    **dict.fromkeys((F.conv2d, F.conv_transpose2d), -3),
    **dict.fromkeys((F.conv3d, F.conv_transpose3d), -4),
    **dict.fromkeys((F.batch_norm, F.instance_norm, F.group_norm), 1),
    **dict.fromkeys((torch.batch_norm, torch.instance_norm, torch.group_norm), 1),
}
#: Calls that move axes or merge and split them; F.layer_norm and others keep them in place.
_MOVE = {
    *calls("transpose permute swapaxes movedim moveaxis flatten view reshape unflatten squeeze"),
    *calls("unsqueeze"),
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("mT", "mH", "T", "H")),
}
_JOIN = {torch.cat, torch.concat, torch.concatenate}
#: Calls that give another order or number of units though the shape may look the same.
_SCRAMBLE = {torch.bmm, Tensor.bmm, torch.einsum, torch.stack, F.pixel_shuffle, F.fold, F.unfold}

#: The code of the modules that make one rectifier call and nothing else, by identity: a code
#: object's own hash reads all of it.
_FORWARDS = {
    id(kind.forward.__code__)
    for kind in (
        nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Threshold,
    )
}  # fmt: skip
#: The code that calls a module's forward.
_CALL = id(nn.Module._call_impl.__code__)

_core: Any = torch._C
_interpreter, _graph_task = _core._functorch.peek_interpreter_stack, _core._current_graph_task_id


def is_rectifier(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call is a relu in one of its spellings, with a threshold of 0."""
    if func in _CLAMP:
        low = args[1] if len(args) > 1 else kwargs.get("min", kwargs.get("min_val"))
        return isinstance(low, (int, float, np.number)) and low == 0
    if func in _THRESHOLD:
        level = args[1] if len(args) > 1 else kwargs.get("threshold")
        below = args[2] if len(args) > 2 else kwargs.get("value")
        return level == 0 and below == 0
    return func in _ACTIVATIONS


class SiteMode(TorchFunctionMode):
    """Calls ``observe`` after every rectifier, and follows which axis of a tensor counts units."""

    #: Where modules are found by their hooks' dictionary, which the replicas of DataParallel share
    #: with the module they are made from; `Watch` sets it.
    paths: Mapping[int, tuple[object, str]] = {}
    #: The paths of torch's and Keras' own layers, whose calls take no function's name.
    layers: Collection[str] = ()
    #: The frame that lasts as long as the forward pass; `Watch` sets it.
    frame: FrameType | None = None
    #: Called with the model's output when the pass is over.
    done: Callable[[Any], None] | None = None

    def __init__(self, observe: Observer):
        super().__init__()
        self.observe = observe
        self.stack: list[str] = [""]
        self.counts: dict[str, int] = {}
        self.axes: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self.from_weights: dict[int, weakref.ref[Tensor]] = {}  # made of parameters alone

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if torch.compiler.is_compiling():
            return output
        axis = _PRODUCERS.get(func)
        # Dense layers on plain rows need no note: the last of two axes counts units anyway.
        if self.axes or (axis is not None and (axis != -1 or output.ndim > 2)):
            self._follow_axis(func, axis, args, kwargs, output)
        # What a layer makes, of parameters alone though it be, is an activation.
        weight = axis is None and args and (self.from_weights or type(args[0]) is nn.Parameter)
        if weight and self._of_weights(args, kwargs, output):
            return output
        if func not in _ACTIVATIONS or not is_rectifier(func, args, kwargs):
            return output
        if output.ndim > 1 and output.is_floating_point() and not transformed():
            name = self.name(func)
            if name is not None and output.layout is torch.strided and not output.is_nested:
                self.observe(name, output, func in _LEAKY, *self.unit_axis(output))
        return output

    def _of_weights(self, args: tuple[Any, ...], kwargs: Any, output: Any) -> bool:
        """Whether the output is made of parameters alone, and so no activation."""
        given = list(_given(args, kwargs))
        if not (given and isinstance(output, Tensor) and all(map(self._is_weight, given))):
            return False
        self.from_weights[id(output)] = weakref.ref(output)
        return True

    def _is_weight(self, value: Any) -> bool:
        if isinstance(value, nn.Parameter):
            return True
        mark = self.from_weights.get(id(value))
        return mark is not None and mark() is value

    def unit_axis(self, values: Tensor) -> tuple[int, bool]:
        """Which axis counts units, and whether that is known.

        Known from the linear, convolution or normalisation layer behind the tensor, through
        operations that keep or move axes; the last of two axes otherwise. Where neither says, a
        guess: the last of three axes, the second of four or more.
        """
        if self.axes:
            mark = self.axes.get(id(values))
            if mark is not None and mark[0]() is values:
                return mark[1], True
        ndim = values.ndim
        return (1 if ndim > 3 else ndim - 1), ndim == 2

    def _follow_axis(
        self, func: Any, axis: int | None, args: tuple[Any, ...], kwargs: Any, output: Any
    ) -> None:
        """Note which axis of the output counts units, or forget it."""
        if isinstance(output, (tuple, list)):  # chunk, split
            for part in output:
                self._follow_axis(func, axis, args, kwargs, part)
            return
        if not isinstance(output, Tensor):
            return
        if axis is not None:
            axis = axis if axis >= 0 else output.ndim + axis
        elif func not in _SCRAMBLE:
            axis = self._kept_axis(func, args, kwargs, output)
        if axis is not None and 0 <= axis < output.ndim:
            self.axes[id(output)] = weakref.ref(output), axis
        else:
            self.axes.pop(id(output), None)

    def _kept_axis(
        self, func: Any, args: tuple[Any, ...], kwargs: Any, output: Tensor
    ) -> int | None:
        for given in _given(args, kwargs):
            mark = self.axes.get(id(given))
            if mark is None or mark[0]() is not given:
                continue
            axis = mark[1]
            if func in _MOVE:
                return _moved_axis(func, args, kwargs, given, axis)
            same = output.ndim == given.ndim and axis < output.ndim
            if same and (func in _JOIN or output.shape[axis] == given.shape[axis]):
                return axis
        return None

    def name(self, func: Any) -> str | None:
        """The name of the call being made now; None after the pass this mode is for."""
        path, module = self.stack[-1], None
        frame: FrameType | None = sys._getframe(2)  # past this one and the mode
        seeking = True
        while frame is not self.frame:
            if frame is None:
                return None
            if seeking:
                code = id(frame.f_code)
                if code in _FORWARDS:  # one of torch's own modules makes the call
                    module, seeking = frame.f_locals["self"], False
                elif code == _CALL:
                    seeking = False
            frame = frame.f_back
        if module is not None:
            path = self.paths.get(id(module._forward_hooks), (None, path))[1]
        elif path not in self.layers:
            called = func.__name__.partition(".")[0].strip("_")
            path = f"{path}.{called}" if path else called
        count = self.counts.get(path, 0)
        self.counts[path] = count + 1
        return path if not count else f"{path}#{count}"


def transformed() -> bool:
    """Whether a torch.func transform or a backward pass runs here."""
    return _interpreter() is not None or _graph_task() != -1


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (part for part in value if isinstance(part, Tensor))


def in_place_of(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor, other: Tensor
) -> Any:
    """The call once more, with ``other`` where ``given`` was."""
    swap = lambda value: other if value is given else value  # noqa: E731
    return func(*map(swap, args), **{key: swap(value) for key, value in kwargs.items()})


def _moved_axis(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor, axis: int
) -> int | None:
    """Where an axis goes: the same call on a tensor without memory along all other axes."""
    units = given.shape[axis]
    shape = [1] * given.ndim
    shape[axis] = units
    probe = torch.empty(shape, device="meta").expand(given.shape)
    try:
        moved = in_place_of(func, args, kwargs, given, probe)
    except RuntimeError:  # view() where only a copy would do: the axis was merged with another
        return None
    if units == 1:  # a size of 1 shows no stride; any axis of that size counts the one unit
        return next((k for k, n in enumerate(moved.shape) if n == 1), None)
    steps = [k for k, n in enumerate(moved.shape) if n > 1 and moved.stride(k)]
    return steps[0] if len(steps) == 1 and moved.shape[steps[0]] == units else None


#: Owner of entries that belong to no unit, such as padding; and of those that mix several.
NOBODY, MIXED = -1, -2


@dataclass(frozen=True)
class Labels:
    """Per entry of a tensor the unit it belongs to, or `NOBODY`; on the host, in its shape."""

    owner: Tensor
    units: int

    @classmethod
    def along(cls, shape: torch.Size, axis: int) -> Labels:
        """The labels of activations whose units are counted by one axis."""
        sizes = [1] * len(shape)
        sizes[axis] = units = shape[axis]
        return cls(torch.arange(units).reshape(sizes).expand(shape), units)

    def through(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Tensor
    ) -> Labels | None:
        """The labels of the call's output, or None where it mixes units or adds a constant.

        Labels v in (1, 2) go through together with their mirror images 3 - v and with ones. For a
        linear call (pooling by means, padding by zeros, interpolation) the first over the last is
        a mean of labels; for a maximum it is the largest, and the mirror image the smallest.
        """
        gen = torch.Generator().manual_seed(0)
        values = 1 + torch.rand(self.units, generator=gen, dtype=torch.float64)
        nothing = self.owner == NOBODY
        label = values[self.owner.clamp_min(0)]
        label, there = (torch.where(nothing, 0.0, p) for p in (label, torch.ones_like(label)))
        made = [
            in_place_of(func, args, kwargs, given, part)
            for part in (label, 3 * there - label, there)
        ]
        low, high, weight = made
        empty = weight == 0
        safe = torch.where(empty, 1.0, weight)
        owner = _decode(low / safe, values)
        same = owner == _decode(3 - high / safe, values)
        owner = torch.where(empty, NOBODY, torch.where(same, owner, MIXED))
        return None if (owner == MIXED).any() else Labels(owner, self.units)

    def columns(self, axis: int) -> Tensor | None:
        """The unit that owns each place along an axis, or None where several share one."""
        rows = self.owner.movedim(axis, 0).flatten(1)
        largest = rows.amax(1)
        # Padding next to a unit's entries is no other unit.
        mixed = ((rows != largest[:, None]) & (rows != NOBODY)).any()
        return None if mixed else largest


def _decode(label: Tensor, values: Tensor) -> Tensor:
    """Which unit has this label; MIXED if none, to rounding."""
    ordered, order = values.sort()
    at = torch.searchsorted(ordered, label.contiguous() - 1e-12).clamp_max(len(values) - 1)
    return torch.where((ordered[at] - label).abs() <= 2e-12, order[at], MIXED)
