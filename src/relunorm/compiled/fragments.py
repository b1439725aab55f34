"""Compiling kernels and their parts: parts are linked into kernels, and nothing more.

numba optimises every function by itself and makes machine code of it, with all that it calls; then
its callers are optimised with all that they call, and so on up. In a kernel of many small parts the
innermost ones are worked on once for every floor above them. A part that Python never calls needs
none of that: here it is typed and lowered, and the kernel around it is optimised once, as a whole.
The instructions that come out compute the same, since neither way may reorder arithmetic.

A part cannot be cached, for there is no machine code to keep; the kernels around it are.

Of a kernel that counts no references numba's first passes over single functions, and the round that
brings counts together, are left out: what follows does their work on the whole. Its settings are
compared by what was set, where numba would list all forty each time.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

#: What Python meets where it calls a part all the same: a SystemError, and not a crash.
_nothing = ctypes.PYFUNCTYPE(ctypes.c_void_p, *(ctypes.c_void_p,) * 3)(lambda *_: None)
NOTHING = ctypes.cast(_nothing, ctypes.c_void_p).value


class _Once(JITCodeLibrary):
    """Code that is optimised once, when all of it is there."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Counting(_Once):
    """The same for code that counts references: a first round brings the counts together."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)


class _Fragment(_Once):
    """The code of a part and of what it calls, neither optimised as a whole nor made to run."""

    def finalize(self) -> None:
        require_global_compiler_lock()
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerFragment(NativeLowering):
    _name = "lower_fragment"

    def run_pass(self, state: Any) -> bool:
        context = state.targetctx
        library = _Fragment(context.codegen(), state.func_id.func_qualname)
        state.library, state.flags.no_compile = library, True
        super().run_pass(state)
        made = state["cr"]
        called, module = made.fndesc.qualname.split(".")[-1], made.fndesc.lookup_module()
        stand_in = _dynfunc.make_function(module, called, "", NOTHING, made.env, (library,))
        context.insert_user_function(stand_in, made.fndesc, [library])
        state["cr"] = made._replace(cfunc=stand_in)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerKernel(NativeLowering):
    _name = "lower_kernel"

    def run_pass(self, state: Any) -> bool:
        kind = _Counting if state.flags.nrt else _Once
        state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class _Settings(Flags):
    """numba's settings of one function, quick to compare."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        own, others = self._values, other._values
        return own == others or all(
            getattr(self, name) == getattr(other, name) for name in own.keys() | others.keys()
        )

    def __hash__(self) -> int:
        return SETTINGS_HASH


SETTINGS_HASH = hash(Flags())


class _Compiler(CompilerBase):
    """numba's own passes, but for the last one."""

    lowering: Any = NativeLowering

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags.__class__ = _Settings

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (self.lowering if step is NativeLowering else step, why) for step, why in manager.passes
        ]
        manager.finalize()
        return [manager]


class FragmentCompiler(_Compiler):
    """For parts."""

    lowering = _LowerFragment


class KernelCompiler(_Compiler):
    """For kernels."""

    lowering = _LowerKernel
