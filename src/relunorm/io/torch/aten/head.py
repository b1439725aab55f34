"""Operations that may stand at the end of a program: softmax, sigmoid, argmax and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from relunorm.io.graph import heads
from relunorm.io.graph.heads import Headed, Stuck
from relunorm.io.graph.lower import CannotLower, Tensor
from relunorm.io.torch.aten.program import leaves
from relunorm.io.torch.aten.site import OPERATIONS, Site, as_array

#: Operation -> the step of a head that it is, along an axis or on each entry.
_ALONG = {
    "softmax": "softmax",
    "_softmax": "softmax",
    "special_softmax": "softmax",
    "log_softmax": "log_softmax",
    "_log_softmax": "log_softmax",
    "special_log_softmax": "log_softmax",
}
_ENTRY = {
    "sigmoid": "sigmoid",
    "special_expit": "sigmoid",
    "log_sigmoid": "log_sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "round": "round",
}
OPENERS = (*_ALONG, *_ENTRY, "expm1", "softplus", "argmax", "gt")
_CLIPS = ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
#: Moves of entries, and operations that do nothing in eval mode.
# fmt: off
_MOVES = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "dropout",
    "alpha_dropout", "detach", "clone", "contiguous", "alias", "to", "_to_copy", "permute",
    "transpose", "t", "slice", "select", "index_select",
})
# fmt: on
_ARITHMETIC = ("mul", "add", "sub", "rsub", "div", "neg", "true_divide")


def opens_head(name: str) -> bool:
    """Whether an operation on piecewise affine values can only be a step of a head."""
    return name in OPENERS


def follows_head(name: str) -> bool:
    """Whether an operation may stand after a step of a head."""
    return name in (*_MOVES, *_CLIPS, "log", "cat") or (name in _ARITHMETIC)


def apply_head(site: Site, name: str, target: str, arguments: Mapping[str, Any]) -> Headed:
    """One operation on the values before a head, or after its first steps."""
    first, *rest = arguments.values()
    place, described = site.name, target
    if name == "cat":
        return heads.joined(site.lowering, arguments["tensors"], arguments.get("dim", 0))
    if name in _ARITHMETIC:
        return _arithmetic(site, name, arguments)
    if not isinstance(first, Tensor | Headed):
        headed = [value for value in leaves(arguments) if isinstance(value, Headed)]
        if headed:
            raise Stuck(headed[0])
        raise CannotLower("its first argument is a constant")
    if name == "expm1":
        grown = heads.entry(first, "exp", place, described)
        return heads.scaled(site.lowering, grown, 1.0, -1.0)
    if name in _ALONG:
        return heads.along(first, _ALONG[name], arguments["dim"], place, described)  # type: ignore[arg-type]
    if name in _ENTRY:
        return heads.entry(first, _ENTRY[name], place, described)  # type: ignore[arg-type]
    if name == "softplus" and arguments.get("beta", 1) == 1:
        return heads.entry(first, "softplus", place, described)
    if name == "argmax" and isinstance(arguments.get("dim"), int):
        dim = arguments["dim"]
        found = heads.along(first, "argmax", dim, place, described)
        return found if arguments.get("keepdim") else heads.without_axis(found, dim)
    if name == "gt" and heads.constant(rest[0]) is not None and np.size(rest[0]) == 1:
        return heads.entry(first, "greater", place, described, [float(as_array(rest[0]).item())])
    if isinstance(first, Headed):
        return _after(site, name, target, first, arguments)
    raise CannotLower


def _after(
    site: Site, name: str, target: str, value: Headed, arguments: Mapping[str, Any]
) -> Headed:
    if name == "log":
        return heads.logarithm(value)
    if name in _CLIPS:
        ends = _ends(name, list(arguments.values())[1:], arguments)
        return heads.entry(value, "clip", site.name, target, ends)
    function: Callable[..., Any] | None = OPERATIONS.get(name)
    if name in _MOVES and function is not None:
        key = next(iter(arguments))
        jumps = value.steps[-1].kind in ("argmax", "greater", "round")
        if jumps and name in ("to", "_to_copy"):
            return value  # whole numbers stay what they are in any type
        return heads.moved(value, lambda tensor: function(site, **{**arguments, key: tensor}))
    raise Stuck(value)


def _ends(name: str, rest: list[Any], arguments: Mapping[str, Any]) -> tuple[float, float]:
    low = arguments.get("min", arguments.get("min_val"))
    high = arguments.get("max", arguments.get("max_val"))
    if name == "hardtanh":
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    if any(isinstance(end, Tensor | Headed) or np.size(end) > 1 for end in (low, high)):
        raise CannotLower("with ends that differ or depend on the input")
    return (
        -np.inf if low is None else float(as_array(low).item()),
        np.inf if high is None else float(as_array(high).item()),
    )


def _arithmetic(site: Site, name: str, arguments: Mapping[str, Any]) -> Headed:
    """factor x + offset of a value after a head's step."""
    values = [
        v if isinstance(v, Tensor | Headed) else as_array(v)
        for k, v in arguments.items()
        if k in ("self", "other")
    ]
    if arguments.get("rounding_mode") is not None:
        raise Stuck(next(value for value in values if isinstance(value, Headed)))
    kind = {"rsub": "sub", "true_divide": "div"}.get(name, name)
    values = values[::-1] if name == "rsub" else values
    return heads.arithmetic(site.lowering, kind, values, float(arguments.get("alpha", 1)))
