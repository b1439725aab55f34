"""Objects packed for another process: whatever they hold, parametrized modules become plain.

Torch refuses to pickle a module with parametrizations (`relunorm.nn.constrain`, weight and spectral
norms). A parcel is a pickle in which each such module, at any depth (inside an estimator, a list, a
closure), stands as a released copy: the same function, plain weights. The caller's object is not
touched.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
from typing import Any

import cloudpickle

from relunorm.errors import InvalidInputError


def pack(value: Any, what: str = "the object") -> bytes:
    """A pickle of the value that any process with the same packages can read.

    >>> unpack(pack({"a": [1, 2]}))
    {'a': [1, 2]}
    """
    buffer = io.BytesIO()
    try:
        _Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise InvalidInputError(f"{what} cannot travel to another process: {error}") from error
    return buffer.getvalue()


def unpack(parcel: bytes) -> Any:
    """What was packed; a fresh copy on every call. For parcels of one's own making only."""
    return pickle.loads(parcel)


def plain(module: Any) -> Any:
    """A copy of a torch module without parametrizations that computes the same function."""
    from torch.nn.utils import parametrize

    module = copy.deepcopy(module)
    for part in list(module.modules()):
        if parametrize.is_parametrized(part):
            own_class(part)
            # a bias first: what bounds it may depend on the weight
            for name in sorted(part.parametrizations, key=lambda name: name != "bias"):
                parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    return module


def own_class(part: Any) -> None:
    """A copy of the class that torch injected into a parametrized module, for this one alone.

    A deepcopy shares that class with its original, and taking a parametrization off deletes an
    attribute of it: the other module would lose its weights.
    """
    shared = type(part)
    kept = {k: v for k, v in vars(shared).items() if k not in ("__dict__", "__weakref__")}
    part.__class__ = type(shared.__name__, shared.__bases__, kept)


class _Packer(cloudpickle.CloudPickler):
    def reducer_override(self, obj: Any) -> Any:
        if _is_parametrized(obj):
            return _same, (plain(obj),)
        return super().reducer_override(obj)


def _is_parametrized(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return False
    return any(torch.nn.utils.parametrize.is_parametrized(part) for part in obj.modules())


def _same(module: Any) -> Any:
    return module
