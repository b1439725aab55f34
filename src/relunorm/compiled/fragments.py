"""Compiling parts of kernels: code to be linked into others, and nothing more.

numba optimises every function by itself and makes machine code of it, with all that it calls; then
its callers are optimised with all that they call, and so on up. In a kernel of many small parts the
innermost ones are worked on once for every floor above them. A part that Python never calls needs
none of that: here it is typed and lowered, and the kernel around it is optimised once, as a whole.
The instructions that come out compute the same, since neither way may reorder arithmetic.

A part cannot be cached, for there is no machine code to keep; the kernels around it are.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

#: What Python meets where it calls a part all the same: a SystemError, and not a crash.
_nothing = ctypes.PYFUNCTYPE(ctypes.c_void_p, *(ctypes.c_void_p,) * 3)(lambda *_: None)
NOTHING = ctypes.cast(_nothing, ctypes.c_void_p).value


class _Fragment(JITCodeLibrary):
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


class FragmentCompiler(CompilerBase):
    """numba's own passes, but for the last one."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (_LowerFragment if step is NativeLowering else step, why)
            for step, why in manager.passes
        ]
        manager.finalize()
        return [manager]
