"""Seeing every rectifier a torch model calls, module or function, and giving each a stable name.

A ``TorchFunctionMode`` is active while the model's forward runs, and only then: recomputation by
gradient checkpointing happens in the backward pass and is not seen twice, and code outside the
model costs nothing. A site is named by the module whose forward makes the call and counted from
the second call on: ``net.act``, ``net.act#1``. Counting restarts with every forward.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from relunorm.errors import InvalidInputError

#: Called with the site's name, the output, whether it is leaky, the axis that counts units, and
#: whether that axis is known from the layer behind it (else it is a guess from the shape).
Observer = Callable[[str, Tensor, bool, int, bool], None]

_RELU = {
    torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.relu, F.relu_, F.relu6, F.threshold,
    torch.threshold,
}  # fmt: skip
_LEAKY = {F.leaky_relu, F.leaky_relu_, F.prelu, torch.prelu, F.rrelu, F.rrelu_, torch.rrelu}
_CLAMP = {
    torch.clamp, torch.clamp_, Tensor.clamp, Tensor.clamp_, torch.clip, torch.clip_, Tensor.clip,
    Tensor.clip_, torch.clamp_min, torch.clamp_min_, Tensor.clamp_min, Tensor.clamp_min_,
    F.hardtanh, F.hardtanh_,
}  # fmt: skip
_ACTIVATIONS = _RELU | _LEAKY | _CLAMP
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
    torch.transpose, Tensor.transpose, torch.permute, Tensor.permute, torch.swapaxes,
    Tensor.swapaxes, torch.movedim, Tensor.movedim, torch.moveaxis, Tensor.moveaxis,
    torch.flatten, Tensor.flatten, Tensor.view, Tensor.reshape, torch.reshape, torch.unflatten,
    Tensor.unflatten, torch.squeeze, Tensor.squeeze, torch.unsqueeze, Tensor.unsqueeze,
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("mT", "mH", "T", "H")),
}  # fmt: skip
_JOIN = {torch.cat, torch.concat, torch.concatenate}
#: Calls that give another order or number of units though the shape may look the same.
_SCRAMBLE = {torch.bmm, Tensor.bmm, torch.einsum, torch.stack, F.pixel_shuffle, F.fold, F.unfold}


def is_rectifier(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call is a relu in one of its spellings, with a threshold of 0."""
    if func in _CLAMP:
        low = args[1] if len(args) > 1 else kwargs.get("min", kwargs.get("min_val"))
        return isinstance(low, (int, float)) and low == 0
    if func in (F.threshold, torch.threshold):
        level = args[1] if len(args) > 1 else kwargs.get("threshold")
        below = args[2] if len(args) > 2 else kwargs.get("value")
        return level == 0 and below == 0
    return func in _ACTIVATIONS


class SiteMode(TorchFunctionMode):
    """Calls ``observe`` after every rectifier, and follows which axis of a tensor counts units."""

    def __init__(self, observe: Observer):
        super().__init__()
        self.observe = observe
        self.stack: list[str] = [""]
        self.counts: dict[str, int] = {}
        self.axes: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if torch.compiler.is_compiling():
            return output
        axis = _PRODUCERS.get(func)
        # Dense layers on plain rows need no note: the last of two axes counts units anyway.
        if self.axes or (axis is not None and (axis != -1 or output.ndim > 2)):
            self._follow_axis(func, axis, args, kwargs, output)
        if func not in _ACTIVATIONS or not is_rectifier(func, args, kwargs):
            return output
        if output.ndim > 1 and output.is_floating_point():
            self.observe(self.name(), output, func in _LEAKY, *self.unit_axis(output))
        return output

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

    def name(self) -> str:
        """The name of the call being made now."""
        path = self.stack[-1]
        count = self.counts.get(path, 0)
        self.counts[path] = count + 1
        return path if not count else f"{path}#{count}"


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
    if units == 1:  # a size of 1 shows no stride; any axis of that size counts the one unit
        return None
    shape = [1] * given.ndim
    shape[axis] = units
    probe = torch.empty(shape, device="meta").expand(given.shape)
    try:
        moved = in_place_of(func, args, kwargs, given, probe)
    except RuntimeError:  # view() where only a copy would do: the axis was merged with another
        return None
    steps = [k for k, n in enumerate(moved.shape) if n > 1 and moved.stride(k)]
    return steps[0] if len(steps) == 1 and moved.shape[steps[0]] == units else None


def _nothing(*args: Any) -> None:
    """What a hook becomes in a copy or pickle of the model."""


class _Hook:
    """A forward hook that a copy or pickle of the model does not carry along."""

    def __deepcopy__(self, memo: Any) -> Any:
        return _nothing

    def __reduce__(self) -> Any:
        return _pickled, ()


def _pickled() -> Any:
    return _nothing


class Watch:
    """Hooks on a model that keep a `SiteMode` active during its forward pass; `close` removes them.

    Each thread has its own mode, so replicas of DataParallel do not mix. Exceptions inside forward
    unwind it too.

    Args:
        model: any module; the module inside a DataParallel or DistributedDataParallel wrapper.
        make: builds the mode for one forward pass, or returns None to skip this pass.
    """

    def __init__(self, model: nn.Module, make: Callable[[nn.Module], SiteMode | None]):
        self.local = _Local()
        self.handles: list[Any] = []
        self.running, self.open = 0, True
        self.lock = threading.Lock()
        root = unwrapped(model)
        _check(root)
        for path, module in root.named_modules():
            if module is root or _is_plain_leaf(module):
                continue
            self._register(module, _Enter(self.local, path), _Leave(self.local, path))
        self._register(root, _Begin(self, make), _End(self))

    def _register(self, module: nn.Module, before: Any, after: Any) -> None:
        self.handles.append(module.register_forward_pre_hook(before))
        self.handles.append(module.register_forward_hook(after, always_call=True))

    def begin(self, mode: SiteMode | None) -> None:
        """A forward pass starts in this thread."""
        if mode is not None:
            mode.__enter__()
        self.local.modes.append(mode)
        with self.lock:
            self.running += 1

    def end(self) -> None:
        """The innermost forward pass of this thread is over."""
        if not self.local.modes:
            return
        mode = self.local.modes.pop()
        if mode is not None:
            mode.__exit__(None, None, None)
        with self.lock:
            self.running -= 1
        if not self.open:
            self.close()

    def close(self) -> None:
        """Remove every hook; inside a forward pass, the one that ends it goes when it has."""
        with self.lock:
            self.open = False
            kept = self.handles[-1:] if self.running else []
            gone, self.handles = self.handles[: len(self.handles) - len(kept)], kept
        for handle in gone:
            handle.remove()


def _check(root: nn.Module) -> None:
    """Refuse modules whose Python code does not run."""
    if isinstance(root, torch.jit.ScriptModule):
        raise InvalidInputError(
            f"{type(root).__name__} is scripted: its Python code does not run and its rectifiers "
            "cannot be seen; watch the module it was made from"
        )
    if hasattr(root, "_orig_mod") or getattr(root, "_compiled_call_impl", None) is not None:
        raise InvalidInputError(
            f"{type(root).__name__} is compiled: its Python code does not run and its rectifiers "
            "cannot be seen; watch and call the module without torch.compile"
        )


def _is_plain_leaf(module: nn.Module) -> bool:
    """One of torch's own leaves that rectifies nothing: no hook needed to name what it calls."""
    if isinstance(module, torch.jit.ScriptModule):  # takes no hooks
        return True
    home = type(module).__module__
    own = home.startswith("torch.nn.modules.") and home != "torch.nn.modules.activation"
    return own and not module._modules


class _Local(threading.local):
    """The modes of the forward passes this thread is in, innermost last."""

    def __init__(self) -> None:
        self.modes: list[SiteMode | None] = []


class _Begin(_Hook):
    def __init__(self, watch: Watch, make: Callable[[nn.Module], SiteMode | None]):
        self.watch, self.make = watch, make

    def __call__(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling():
            self.watch.begin(None if _recorded() else self.make(module))


class _End(_Hook):
    def __init__(self, watch: Watch):
        self.watch = watch

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            self.watch.end()


def _recorded() -> bool:
    """Whether torch.jit records this pass or a torch.func transform runs it: no tallies then."""
    core: Any = torch._C
    tracing = core._get_tracing_state() is not None
    return tracing or core._functorch.peek_interpreter_stack() is not None


class _Enter(_Hook):
    def __init__(self, local: _Local, path: str):
        self.local, self.path = local, path

    def __call__(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        modes = self.local.modes
        if modes and modes[-1] is not None:
            modes[-1].stack.append(self.path)


class _Leave(_Hook):
    def __init__(self, local: _Local, path: str):
        self.local, self.path = local, path

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        modes = self.local.modes
        # A module whose pre-hook never ran (one before it raised) has nothing to take off.
        if modes and modes[-1] is not None and modes[-1].stack[-1] == self.path:
            modes[-1].stack.pop()


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DataParallel or DistributedDataParallel."""
    inner = getattr(model, "module", None)
    wrappers = ("DataParallel", "DistributedDataParallel")
    return inner if type(model).__name__ in wrappers and isinstance(inner, nn.Module) else model


def call(model: nn.Module, batch: Any) -> Any:
    """Run the model on a batch: a tuple is its arguments, a dict its keyword arguments."""
    if isinstance(batch, tuple):
        return model(*batch)
    return model(**batch) if isinstance(batch, dict) else model(batch)
