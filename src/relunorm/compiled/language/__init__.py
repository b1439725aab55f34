"""The small part of Python that kernels are written in, and its translation to LLVM's assembly."""
