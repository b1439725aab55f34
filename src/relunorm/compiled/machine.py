"""Compiled programs: made by LLVM for this processor, kept in files, loaded into the process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm


@cache
def _target() -> Any:
    """The processor at hand."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="default"
    )


@cache
def _loader() -> Any:
    """What brings object files into the process."""
    return llvm.create_lljit_compiler(_target(), use_jit_link=False)


def _address_of_library(name: str) -> int:
    """A function of the C library for mathematics."""
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    try:
        function = getattr(library, name)
    except AttributeError:
        from ctypes.util import find_library

        function = getattr(ctypes.CDLL(find_library("m")), name)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@cache
def _compiler() -> str:
    """All that decides what a source compiles to: the files of this folder, LLVM, the processor."""
    ours = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))
    features = llvm.get_host_cpu_features().flatten()
    parts = hashlib.sha256(ours).hexdigest(), llvmlite.__version__, _target().triple
    return f"{' '.join(parts)} {llvm.get_host_cpu_name()} {features}"


def compile_program(text: str) -> bytes:
    """An object file of a program."""
    machine = _target()
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.inlining_threshold = 50
    options.loop_vectorization = True
    options.loop_unrolling = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


#: What code may call: how the address of each name is found.
OUTSIDE: dict[str, Callable[[], int]] = {
    name: partial(_address_of_library, name) for name in ("exp", "log", "log2", "pow")
}
_loaded: list[Any] = []


def load(code: bytes, entry: str) -> int:
    """Bring an object file into the process; the address of one of its functions."""
    builder = llvm.JITLibraryBuilder().add_object_img(code).export_symbol(entry)
    for name, address in OUTSIDE.items():
        if name.encode() in code:
            builder.import_symbol(name, address())
    library = builder.link(_loader(), f"{entry}{len(_loaded)}")
    _loaded.append(library)  # the code lives as long as this
    return library[entry]


@cache
def folder() -> Path | None:
    """Where compiled programs are kept: beside the sources, else in the user's cache, if anywhere.

    ``RELUNORM_CACHE_DIR`` names another place.
    """
    named = os.environ.get("RELUNORM_CACHE_DIR")
    if named:
        places = [Path(named)]
    else:
        home = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
        users = Path(home) if home else Path("~").expanduser() / ".cache"
        places = [Path(__file__).parent / "__pycache__", users / "relunorm"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            probe = place / f".probe-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError:
            continue
        return place
    return None


def kept(name: str, written: str) -> tuple[Path | None, bytes | None]:
    """Where a program is kept, and its code if it is."""
    where = folder()
    if where is None:
        return None, None
    stem = hashlib.sha256(name.encode()).hexdigest()[:12]
    digest = hashlib.sha256(f"{_compiler()}\n{written}".encode()).hexdigest()[:24]
    path = where / f"{name.split(' ')[0]}-{stem}-{digest}.o"
    try:
        held = path.read_bytes()
    except OSError:
        return path, None
    code = held[32:]  # a file that is not whole is made again
    return path, code if hashlib.sha256(code).digest() == held[:32] else None


def keep(path: Path | None, code: bytes) -> None:
    """Keep a program, if there is a place for it."""
    if path is not None:
        new = path.with_suffix(f".{os.getpid()}.tmp")
        with suppress(OSError):  # a full disk: it will be compiled again
            new.write_bytes(hashlib.sha256(code).digest() + code)
            new.replace(path)
