"""Seeing every rectifier a torch model calls, module or function, and giving each a stable name.

A ``TorchFunctionMode`` is active while the model's forward runs, and only then: recomputation by
gradient checkpointing happens in the backward pass and is not seen twice, and code outside the
model costs nothing. A site is named by the module whose forward makes the call and counted from
the second call on: ``net.act``, ``net.act#1``. Counting restarts with every forward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Observer = Callable[[str, Tensor, bool], None]

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


def is_rectifier(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call is a relu in one of its spellings, with a threshold of 0."""
    if func in _CLAMP:
        low = args[1] if len(args) > 1 else kwargs.get("min", kwargs.get("min_val"))
        return isinstance(low, (int, float)) and low == 0
    if func in (F.threshold, torch.threshold):
        level = args[1] if len(args) > 1 else kwargs.get("threshold")
        return level == 0
    return func in _ACTIVATIONS


class SiteMode(TorchFunctionMode):
    """Calls ``observe(name, output, leaky)`` after every rectifier; may see other calls too."""

    def __init__(self, observe: Observer):
        super().__init__()
        self.observe = observe
        self.stack: list[str] = [""]
        self.counts: dict[str, int] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func not in _ACTIVATIONS:
            return func(*args, **(kwargs or {}))
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if is_rectifier(func, args, kwargs) and output.ndim > 1 and output.is_floating_point():
            self.observe(self.name(), output, func in _LEAKY)
        return output

    def name(self) -> str:
        """The name of the call being made now."""
        path = self.stack[-1]
        count = self.counts.get(path, 0)
        self.counts[path] = count + 1
        return path if not count else f"{path}#{count}"


class _Hook:
    """A forward hook that a copy or pickle of the model does not carry along."""

    def __init__(self, call: Callable[..., None] | None):
        self.call = call

    def __call__(self, *args: Any) -> None:
        if self.call is not None:
            self.call(*args)

    def __deepcopy__(self, memo: Any) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> Any:
        return _Hook, (None,)


class Watch:
    """Hooks on a model that keep a `SiteMode` active during its forward pass; `close` removes them.

    Each thread has its own mode, so replicas of DataParallel do not mix. Exceptions inside forward
    unwind it too.

    Args:
        model: any module; the module inside a DataParallel or DistributedDataParallel wrapper.
        make: builds the mode for one forward pass, or returns None to skip this pass.
    """

    def __init__(self, model: nn.Module, make: Callable[[nn.Module], SiteMode | None]):
        self.make = make
        self.local = threading.local()
        self.handles: list[Any] = []
        root = unwrapped(model)
        for path, module in root.named_modules():
            if module is root:
                continue
            self._register(module, _Enter(self, path), _Leave(self, path))
        self._register(root, self._begin, self._end)

    def _register(self, module: nn.Module, before: Any, after: Any) -> None:
        self.handles.append(module.register_forward_pre_hook(_Hook(before)))
        self.handles.append(module.register_forward_hook(_Hook(after), always_call=True))

    def _begin(self, module: nn.Module, args: Any) -> None:
        active = getattr(self.local, "modes", None)
        if active is None:
            active = self.local.modes = []
        mode = self.make(module)
        if mode is not None:
            mode.__enter__()
        active.append(mode)

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        modes = getattr(self.local, "modes", None)
        if modes:
            mode = modes.pop()
            if mode is not None:
                mode.__exit__(None, None, None)

    def current(self) -> SiteMode | None:
        """The mode of the forward pass this thread is in."""
        modes = getattr(self.local, "modes", None)
        return modes[-1] if modes else None

    def close(self) -> None:
        """Remove every hook."""
        for handle in self.handles:
            handle.remove()
        self.handles = []


class _Enter:
    def __init__(self, watch: Watch, path: str):
        self.watch, self.path = watch, path

    def __call__(self, module: nn.Module, args: Any) -> None:
        mode = self.watch.current()
        if mode is not None:
            mode.stack.append(self.path)


class _Leave:
    def __init__(self, watch: Watch, path: str):
        self.watch, self.path = watch, path

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        mode = self.watch.current()
        # A module whose pre-hook never ran (one before it raised) has nothing to take off.
        if mode is not None and mode.stack[-1] == self.path:
            mode.stack.pop()


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DataParallel or DistributedDataParallel."""
    inner = getattr(model, "module", None)
    wrappers = ("DataParallel", "DistributedDataParallel")
    return inner if type(model).__name__ in wrappers and isinstance(inner, nn.Module) else model


def unit_axis(values: Tensor) -> int:
    """Which axis counts units: 1 for images (batch, channels, ...), else the last.

    Tensors of 3 axes are taken as (batch, sequence, units), as linear layers and transformers
    make them.
    """
    return 1 if values.ndim in (4, 5) else values.ndim - 1
