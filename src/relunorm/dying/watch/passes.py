"""Hooks that keep a `SiteMode` active during a model's forward pass, and only then.

torch runs the hook that ends a pass after every ``Exception``, but not after a KeyboardInterrupt.
So each pass is kept with the frame that runs it: a pass whose frame is no longer on the stack was
interrupted, and is taken off when the next one begins and when the watch is closed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from relunorm.dying.watch.sites import SiteMode, transformed
from relunorm.errors import InvalidInputError


class Unwatched:
    """A pass that runs as it would without a watch; ``done`` is given its output."""

    def __init__(self, done: Callable[[Any], None]):
        self.done = done


#: The frame that runs a forward pass, its mode (None: none), and what was made for it.
_Made = SiteMode | Unwatched | None
_Pass = tuple[FrameType, SiteMode | None, _Made]


def _nothing(*args: Any) -> None:
    """What a hook becomes in a copy or pickle of the model."""


class _Hook:
    """A forward hook that a copy or pickle of the model does not carry along."""

    def __init__(self, run: Callable[..., None], *first: Any):
        self.run, self.first = run, first

    def __call__(self, *given: Any) -> None:
        if not torch.compiler.is_compiling():
            self.run(*self.first, *given)

    def __deepcopy__(self, memo: Any) -> Any:
        return _nothing

    def __reduce__(self) -> Any:
        return _pickled, ()

    @property
    def __name__(self) -> str:
        # torch.jit.script asks for the name, and then for the source, of every hook.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch.jit."):
            raise InvalidInputError(
                "a watched model cannot be scripted, for its hooks: close the monitor first"
            )
        raise AttributeError("__name__")


def _pickled() -> Any:
    return _nothing


class Watch:
    """Hooks on a model that keep a `SiteMode` active during its forward pass; `close` removes them.

    Each thread has its own mode, so replicas of DataParallel do not mix. Exceptions inside forward
    unwind it too. Passes that `call` makes are shown to no watch but the one it names.

    Args:
        model: any module; the module inside a DataParallel or DistributedDataParallel wrapper.
        make: builds the mode for one forward pass; an `Unwatched` to see its output alone, or None
            to skip it.
    """

    def __init__(self, model: nn.Module, make: Callable[[nn.Module], _Made]):
        self.local = _Local()
        self.handles: list[Any] = []
        self.paths: dict[int, tuple[object, str]] = {}
        self.layers: set[str] = set()
        self.running: list[FrameType] = []  # the passes under way, of all threads
        self.open = True
        self.lock = threading.Lock()
        root = unwrapped(model)
        _check(root)
        self.inner: list[tuple[nn.Module, str]] = []
        self.inner_handles: list[Any] = []
        for path, module in _parts(root):
            hooks = module._forward_hooks
            self.paths[id(hooks)] = hooks, path  # held, so that no other takes its identity
            if _of_a_framework(module):
                self.layers.add(path)
            if module is not root and not _calls_nothing(module):
                self.inner.append((module, path))
        self._hook_inner()
        self.make = make
        self.handles += _hooked(root, _Hook(self._begin), _Hook(self._end))

    def _hook_inner(self) -> None:
        """Hooks that tell which module a call is made in."""
        for module, path in self.inner:
            hooks = _Hook(self._entered, path), _Hook(self._left, path)
            self.inner_handles += _hooked(module, *hooks)

    def _unhook_inner(self) -> None:
        gone, self.inner_handles = self.inner_handles, []
        for handle in gone:
            handle.remove()

    def _entered(self, path: str, module: nn.Module, args: Any) -> None:
        mode = self._mode()
        if mode is not None:
            mode.stack.append(path)

    def _left(self, path: str, module: nn.Module, args: Any, output: Any) -> None:
        mode = self._mode()
        # A module whose pre-hook never ran (one before it raised) has nothing to take off.
        if mode is not None and mode.stack[-1] == path:
            mode.stack.pop()

    def _mode(self) -> SiteMode | None:
        """That of the innermost pass of this thread."""
        passes = self.local.passes
        return passes[-1][1] if passes else None

    def _begin(self, module: nn.Module, args: Any) -> None:
        """A forward pass starts in this thread; its frame lasts as long as it does."""
        frame: Any = sys._getframe(3)  # the module's own call, around the one that runs hooks
        unseen = _recorded() or (_OWN and _OWN.get(threading.get_ident(), self) is not self)
        unseen = unseen or _without_numbers(args)
        made = None if unseen else self.make(module)
        passes = self.local.passes
        mode = made if isinstance(made, SiteMode) else None
        if passes:  # another one around this, or interrupted
            self._sweep()
        passes.append((frame, mode, made))  # first: an interrupt may come between any two lines
        with self.lock:
            # A hook costs a module's call 5 us, also when it does nothing.
            if mode is not None and not self.inner_handles and self.open:
                self._hook_inner()
            elif isinstance(made, Unwatched) and self.inner_handles and not self.running:
                self._unhook_inner()
            self.running.append(frame)
        if mode is not None:
            mode.paths, mode.layers, mode.frame = self.paths, self.layers, frame
            mode.__enter__()

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        """The innermost forward pass of this thread is over."""
        passes = self.local.passes
        if len(passes) > 1:
            self._sweep()
        if not passes:
            return
        made = passes[-1][2]
        self._take_off(passes[-1])
        if made is not None and made.done is not None:
            made.done(output)
        if not self.open:
            self.close()

    def _take_off(self, one: _Pass) -> None:
        frame, mode, _ = one
        if mode is not None:
            _leave(mode)
        self.local.passes.remove(one)
        with self.lock:
            if frame in self.running:
                self.running.remove(frame)

    def _sweep(self) -> None:
        """Take off the passes of this thread that were interrupted."""
        under_way = set(_stack(sys._getframe()))
        for one in [one for one in self.local.passes if one[0] not in under_way]:
            self._take_off(one)

    def close(self) -> None:
        """Remove every hook; inside a forward pass, the one that ends it goes when it has."""
        self._sweep()
        with self.lock:
            self.open = False
            if self.running:
                tops = sys._current_frames().values()
                under_way = {frame for top in tops for frame in _stack(top)}
                self.running = [frame for frame in self.running if frame in under_way]
            self._unhook_inner()
            kept = self.handles[-1:] if self.running else []
            gone, self.handles = self.handles[: len(self.handles) - len(kept)], kept
        for handle in gone:
            handle.remove()


def _hooked(module: nn.Module, before: Any, after: Any) -> list[Any]:
    """Two hooks on a module; the second runs also when its forward raises."""
    return [
        module.register_forward_pre_hook(before),
        module.register_forward_hook(after, always_call=True),
    ]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _leave(mode: TorchFunctionMode) -> None:
    """Take a mode off this thread's stack, wherever on it (or no longer on it) it is."""
    above = []
    while torch._C._len_torch_function_stack():
        top = _pop_mode()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


def _parts(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module with its path. Keras keeps its layers apart from torch's children."""
    seen = set()
    for path, module in root.named_modules():
        seen.add(module)
        yield path, module
    flatten = getattr(root, "_flatten_layers", None)
    for layer in flatten(include_self=False) if flatten is not None else ():
        if isinstance(layer, nn.Module) and layer not in seen:
            yield str(getattr(layer, "name", "")), layer


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


def _without_numbers(args: Any) -> bool:
    """Whether a pass only finds out shapes, as Keras does before it first fits a model."""
    if isinstance(args, Tensor):
        return args.is_meta
    if isinstance(args, dict):
        args = tuple(args.values())
    return isinstance(args, tuple | list) and any(map(_without_numbers, args))


def _of_a_framework(module: nn.Module) -> bool:
    """Whether torch or Keras made the module, which then names whatever it calls."""
    own = type(module).__module__.startswith("torch.nn.modules.")
    return own or hasattr(module, "_flatten_layers")


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
    """The forward passes this thread is in, innermost last."""

    def __init__(self) -> None:
        self.passes: list[_Pass] = []


def _recorded() -> bool:
    """Whether this pass shows nothing new, or no numbers.

    That is so when torch.jit or make_fx records it, when it runs under a torch.func transform or
    on fake tensors, and while backward runs: gradient checkpointing repeats a pass there.
    """
    core: Any = torch._C
    if core._get_tracing_state() is not None or transformed():
        return True
    if not core._len_torch_dispatch_stack():
        return False
    kinds = core._TorchDispatchModeKey
    return any(core._get_dispatch_mode(kind) is not None for kind in (kinds.PROXY, kinds.FAKE))


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DataParallel or DistributedDataParallel."""
    inner = getattr(model, "module", None)
    wrappers = ("DataParallel", "DistributedDataParallel")
    return inner if type(model).__name__ in wrappers and isinstance(inner, nn.Module) else model


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def check_batch(batch: Any) -> None:
    """Refuse what can be no input of a model, such as an optimizer in the batch's place.

    Objects of other packages are let through: a model may take graphs or sentences.
    """
    known = type(batch).__module__.partition(".")[0] in ("builtins", "torch", "numpy", "relunorm")
    if isinstance(batch, (Optimizer, nn.Module)) or (
        known and next(tensors_in(batch), None) is None
    ):
        hint = " (see torch.as_tensor)" if hasattr(batch, "__array__") else ""
        what = "None" if batch is None else type(batch).__name__
        raise InvalidInputError(
            f"batch is {what}, expected an input of the model: a tensor{hint}, a tuple of its "
            "arguments or a dict of its keyword arguments"
        )


def call(model: nn.Module, batch: Any, *, seen_by: Watch | None = None) -> Any:
    """Run the model for the package's own ends, unseen by any watch but the one named.

    A tuple is the model's arguments, a dict its keyword arguments. DataParallel over several
    devices runs in threads of its own; here its module runs once, on the first device.
    """
    check_batch(batch)
    args = batch if isinstance(batch, tuple) else () if isinstance(batch, dict) else (batch,)
    kwargs = batch if isinstance(batch, dict) else {}
    if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
        places, named = model.scatter(args, kwargs, model.device_ids[:1])
        model, args, kwargs = model.module, places[0], named[0]
    thread = threading.get_ident()
    outer = _OWN.get(thread, _NOBODY)
    _OWN[thread] = seen_by
    try:
        return model(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise InvalidInputError(
            f"{type(unwrapped(model)).__name__} failed on the batch ({_described(batch)}): "
            f"{type(error).__name__}: {error}"
        ) from error
    finally:
        if outer is _NOBODY:
            del _OWN[thread]
        else:
            _OWN[thread] = outer


#: By thread that runs a pass of the package's own: the watch that may see it.
_OWN: dict[int, Any] = {}
_NOBODY = object()


def _described(batch: Any) -> str:
    if isinstance(batch, Tensor):
        return f"a tensor of shape {tuple(batch.shape)}"
    if isinstance(batch, tuple):
        return "arguments: " + ", ".join(map(_described, batch))
    if isinstance(batch, dict):
        return ", ".join(f"{name}: {_described(value)}" for name, value in batch.items())
    return f"{type(batch).__name__}, not a tensor"
