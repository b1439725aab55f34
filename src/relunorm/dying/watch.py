"""Hooks that keep a `SiteMode` active during a model's forward pass, and only then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from relunorm.dying.sites import SiteMode
from relunorm.errors import InvalidInputError


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
        self.paths: dict[int, tuple[object, str]] = {}
        self.running, self.open = 0, True
        self.lock = threading.Lock()
        root = unwrapped(model)
        _check(root)
        for path, module in root.named_modules():
            hooks = module._forward_hooks
            self.paths[id(hooks)] = hooks, path  # held, so that no other takes its identity
            if module is root or _calls_nothing(module):
                continue
            self._register(module, _Enter(self.local, path), _Leave(self.local, path))
        self._register(root, _Begin(self, make), _End(self))

    def _register(self, module: nn.Module, before: Any, after: Any) -> None:
        self.handles.append(module.register_forward_pre_hook(before))
        self.handles.append(module.register_forward_hook(after, always_call=True))

    def begin(self, mode: SiteMode | None) -> None:
        """A forward pass starts in this thread."""
        if mode is not None:
            mode.paths = self.paths
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


def _calls_nothing(module: nn.Module) -> bool:
    """Whether no hook is needed to name what it calls.

    That is so for torch's own leaves: those that rectify are found on the call stack, the others
    rectify nothing. Its containers only call their children.
    """
    if isinstance(module, torch.jit.ScriptModule):  # takes no hooks
        return True
    own = type(module).__module__.startswith("torch.nn.modules.")
    return own and (not module._modules or type(module) is nn.Sequential)


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
