"""Operations on constants only (weights that are computed from parameters), run by torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from relunorm.errors import InvalidNetworkError
from relunorm.io.graph.lower import MAX_SIZE, CannotLower
from relunorm.io.torch.aten.moves import JOINS, MOVES
from relunorm.io.torch.aten.program import is_in_place, leaves, split

#: What may be computed on a file's constants, besides operations tagged pointwise: no operation
#: here reads or writes anything but its arguments, and none is random.
_PURE = MOVES.union(JOINS, {
    "view", "_unsafe_view", "reshape", "expand", "cat", "stack", "contiguous", "detach", "detach_",
    "alias", "lift_fresh_copy", "lift_fresh", "_to_copy", "to", "sum", "mean", "amax", "amin", "mm",
    "mv", "dot", "vdot", "matmul", "bmm", "addmm", "linear", "_weight_norm",
    "_weight_norm_interface", "linalg_vector_norm", "norm", "norm_except_dim", "zeros", "ones",
    "full", "arange", "scalar_tensor", "zeros_like", "ones_like", "full_like", "einsum",
})  # fmt: skip


def compute(target: str, arguments: dict[str, Any], trusted: bool) -> Any:
    """Run an operation on constants."""
    namespace, name, overload = split(target)
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    function = getattr(packet, overload, None)
    if function is None:
        raise CannotLower("not known to this version of torch")
    if torch.Tag.nondeterministic_seeded in function.tags:
        raise CannotLower("is random")
    if "device" in arguments:
        arguments["device"] = torch.device("cpu")
    if is_in_place(name):
        first = next(iter(arguments))
        arguments[first] = arguments[first].clone()
    with torch.no_grad():
        if not trusted:
            _check_harmless(function, namespace, name, arguments)
        return function(**arguments)


def _check_harmless(function: Any, namespace: str, name: str, arguments: Mapping[str, Any]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    pure = torch.Tag.pointwise in function.tags or name in _PURE
    if namespace != "aten" or not pure or name.startswith("_foreach"):
        raise CannotLower("is not run on the constants of a file")
    with FakeTensorMode(allow_non_fake_inputs=True):
        for value in leaves([function(**arguments)]):
            if isinstance(value, torch.Tensor) and value.numel() > MAX_SIZE:
                raise InvalidNetworkError(f"makes a constant of {value.numel():,} entries")
