"""How kernels are written and called.

A kernel is a function of numbers, arrays and groups that Python calls; it runs without Python's
lock. Parts are called by kernels alone. What either may use is what `translate` and `operations`
know: loops over arrays that somebody else made. The first call with arguments of new kinds compiles
the kernel with all of its parts, or loads what was compiled before (`machine`).

Sums are added up in the order they are written in, so that what a proof rests on comes out the same
everywhere, unless a part is one of those that only steer a search.

With ``RELUNORM_CHECKED=1`` every index is checked, and one that is outside of its array ends the
process with the name of the place.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from relunorm.compiled.groups import Grouped
from relunorm.compiled.language.kinds import (
    BOOL,
    CONTIGUOUS,
    INT,
    NOTHING,
    REAL,
    SINGLE,
    WORD,
    Array,
    KernelError,
    Kind,
    Number,
    Tuple,
    kind_of,
    placed_group,
)
from relunorm.compiled.language.sources import Source

#: Sums may be reordered, which makes them vector instructions.
REORDERED = "reassoc contract"

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_lock = threading.RLock()
_CHECKED = os.environ.get("RELUNORM_CHECKED", "") not in ("", "0")

#: Called when a kernel has to be compiled, before that is done.
when_compiling: list[Callable[[], None]] = []


class Kernel(Source):
    """A function that Python calls and that runs compiled."""

    def __init__(self, function: Callable[..., Any], fast: str = "", inline: bool = False):
        super().__init__(function, fast, inline)
        self._ready: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *given: Any) -> Any:
        """Run it."""
        words: list[Any] = []
        key: list[Any] = []
        _pack(given, words, key)
        ready = self._ready.get(tuple(key))
        if ready is None:
            with _lock:
                ready = _prepare(self, tuple(map(kind_of, given)), True)
            self._ready[tuple(key)] = ready
        return ready(words)

    def by_address(self, *kinds: Kind) -> Callable[..., Any]:
        """The compiled function for arguments of given kinds; takes their words.

        The words of an array are its address and the lengths of its axes.
        """
        with _lock:
            ready = _prepare(self, kinds, False)
        return lambda *words: ready(words)


def _pack(given: tuple[Any, ...], words: list[Any], key: list[Any]) -> None:
    """Append the words of arguments, and what their kinds are told by."""
    for value in given:
        if isinstance(value, np.ndarray):
            if value.flags.num & CONTIGUOUS != CONTIGUOUS:
                raise KernelError("a kernel takes contiguous arrays")
            words.append(id(value))
            key += value.dtype, value.ndim
        elif isinstance(value, Grouped):
            address, kind, _ = placed_group(value)
            words.append(address)
            key.append(id(kind))
        elif isinstance(value, tuple):
            key.append(len(value))
            _pack(value, words, key)
        else:
            words.append(bool(value) if isinstance(value, np.bool_) else value)
            key.append(type(value))


def _prepare(
    kernel: Kernel, kinds: tuple[Kind, ...], objects: bool
) -> Callable[[Sequence[Any]], Any]:
    """Compile or load a kernel for the kinds of its arguments."""
    from relunorm.compiled import machine
    from relunorm.compiled.language.program import Program

    name = f"{kernel.name} {kinds} {objects}"
    path, code = (None, None) if _CHECKED else machine.kept(name, f"{kernel.written()} {name}")
    held = None if code is None else _unwrap(code)
    if held is None:
        for tell in list(when_compiling):
            tell()
        program = Program(_CHECKED)
        text, returns = program.text(kernel, kinds, "entry", objects)
        if _CHECKED:
            _watch(program.places)
        held = returns, machine.compile_program(text)
        machine.keep(path, _wrap(*held))
    returns, machine_code = held
    call = _CALL(machine.load(machine_code, "entry"))
    layout = struct.Struct("".join(_letters(kind, objects) for kind in kinds))
    if returns == NOTHING:
        return lambda words: call(layout.pack(*words), None)
    back = struct.Struct(_letters(returns, False))
    return partial(_run, call, layout, back, ctypes.c_char * back.size, returns)


def _run(
    call: Any, layout: struct.Struct, back: struct.Struct, room: Any, returns: Kind,
    words: Sequence[Any],
) -> Any:  # fmt: skip
    out = room()
    call(layout.pack(*words), out)
    found = back.unpack(out)
    if isinstance(returns, Tuple):
        kinds = returns.kinds
        return tuple(
            [bool(v) if k is BOOL else v for v, k in zip(found, kinds, strict=True)]
            if BOOL in kinds
            else found
        )
    return bool(found[0]) if returns is BOOL else found[0]


def _letters(kind: Kind, objects: bool) -> str:
    """How `struct` spells the words of an argument."""
    if isinstance(kind, Number):
        return {"float64": "d", "float32": "d", "uint64": "Q"}.get(kind.name, "q")
    if isinstance(kind, Tuple):
        return "".join(_letters(one, objects) for one in kind.kinds)
    return "q" * (1 + kind.ndim) if isinstance(kind, Array) and not objects else "q"


_RETURNED = {kind.name: kind for kind in (BOOL, INT, WORD, SINGLE, REAL)}


def _wrap(returns: Kind, code: bytes) -> bytes:
    """Code with what it returns: the name of a number, or names of several."""
    kinds = returns.kinds if isinstance(returns, Tuple) else [returns]
    head = f"{'several' if isinstance(returns, Tuple) else 'one'} {' '.join(map(str, kinds))}"
    return head.encode() + b"\n" + code


def _unwrap(held: bytes) -> tuple[Kind, bytes] | None:
    head, _, code = held.partition(b"\n")
    how, *names = head.decode().split()
    kinds = tuple(_RETURNED[name] for name in names)
    return (kinds[0] if how == "one" else Tuple(kinds)), code


_watchers: list[Any] = []


def _watch(places: list[str]) -> None:
    """Have an index that is outside of its array end the process."""
    from relunorm.compiled import machine

    def outside(number: int) -> None:
        os.write(2, f"outside of its array: {places[number]}\n".encode())
        os.abort()

    _watchers.append(ctypes.CFUNCTYPE(None, ctypes.c_int64)(outside))
    address = ctypes.cast(_watchers[-1], ctypes.c_void_p).value or 0
    machine.OUTSIDE["relunorm_outside"] = lambda: address


#: For functions that Python calls.
kernel: Any = Kernel
#: The same where sums may be reordered.
loose_kernel: Any = partial(Kernel, fast=f"{REORDERED} nsz")
#: For parts of kernels, not callable from Python.
kernel_part: Any = Source
#: The same where only a search is steered: sums may be reordered.
loose_part: Any = partial(Source, fast=f"{REORDERED} nsz")
#: Sums keep their order; of 0 the sign is left open, which makes the larger of two numbers cheap.
steady_part: Any = partial(Source, fast="nsz")
#: Products may be rounded together with the sums they go into, which keep their order.
fused_part: Any = partial(Source, fast="contract")
#: For small parts of kernels: always put in where they are called.
inner: Any = partial(Source, inline=True)
#: Put in where they are called, and sums may be reordered.
inner_sum: Any = partial(Source, fast=REORDERED, inline=True)
