"""Arrays in a group, as compiled code sees them: numba's arrays, with fewer instructions.

numba lowers every element that is read or written through a copy of the whole array in memory, and
hands arrays on with all their strides: forty instructions an element, which LLVM then reduces to
three. An array in a group is contiguous and owned by someone else. So its beginning and the lengths
of its axes say all, and an element is found by the same arithmetic without the detour. All else
(slices, shapes, lengths) is numba's.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic, lower_builtin, models, register_model

types: Any = numba_types  # its classes say little of what they hold

INDEX = ir.IntType(64)


class Field(types.Array):
    """The type of such an array, and of its rows."""

    def __init__(self, dtype: Any, ndim: int, readonly: bool):
        super().__init__(dtype, ndim, "C", readonly, f"field({dtype}, {ndim}d, {readonly})")

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        return f"{self.dtype}{self.ndim}", ()  # functions are told apart by numbers

    def copy(
        self, dtype: Any = None, ndim: Any = None, layout: Any = None, readonly: Any = None
    ) -> Any:
        """The type of a part of the array, which numba asks for by ``ndim``, or of another one."""
        if dtype is None and ndim is not None and layout in (None, "C") and readonly is None:
            return Field(self.dtype, ndim, not self.mutable)
        return super().copy(dtype, ndim, layout, readonly)


def make(context: Any, builder: Any, kind: Any, data: Any, lengths: list[Any]) -> Any:
    """An array out of where it begins and how long its axes are."""
    model = context.data_model_manager[kind]
    return _made(builder, model, context.get_abi_sizeof(data.type.pointee), data, lengths)


def _made(builder: Any, model: Any, bytes_: int, data: Any, lengths: list[Any]) -> Any:
    size = INDEX(bytes_)
    strides, items = [size], lengths[-1]
    for length in lengths[-2::-1]:
        strides.append(builder.mul(items, size))
        items = builder.mul(items, length)
    array = cgutils.get_null_value(model.get_value_type())
    for name, value in (
        ("nitems", items),
        ("itemsize", size),
        ("data", data),
        ("shape", cgutils.pack_array(builder, lengths)),
        ("strides", cgutils.pack_array(builder, strides[::-1])),
    ):
        array = builder.insert_value(array, value, model.get_field_position(name))
    return array


def begin_of(model: Any, builder: Any, array: Any) -> Any:
    """Where an array begins."""
    return builder.extract_value(array, model.get_field_position("data"))


def _length(model: Any, builder: Any, array: Any, axis: int) -> Any:
    return builder.extract_value(array, [model.get_field_position("shape"), axis])


@register_model(Field)
class _Model(models.ArrayModel):
    """numba's arrays; as arguments, where they begin and how long their axes are."""

    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind)
        self._axes = range(kind.ndim)
        self._bytes = kind.dtype.bitwidth // 8 if kind.dtype != types.boolean else 1

    def get_argument_type(self) -> Any:
        data = self._dmm[self.get_type("data")].get_value_type()
        return data, tuple(INDEX for _ in self._axes)

    def as_argument(self, builder: Any, value: Any) -> Any:
        lengths = tuple(_length(self, builder, value, axis) for axis in self._axes)
        return begin_of(self, builder, value), lengths

    def from_argument(self, builder: Any, value: Any) -> Any:
        data, lengths = value
        return _made(builder, self, self._bytes, data, list(lengths))


def _place(
    context: Any, builder: Any, kind: Any, array: Any, whole: Any, index: Any
) -> tuple[Any, list[Any]]:
    """Where an element or a row lies, and the lengths of the axes that are left."""
    model = context.data_model_manager[kind]
    lengths = [_length(model, builder, array, axis) for axis in range(kind.ndim)]
    kinds = whole.types if isinstance(whole, types.BaseTuple) else (whole,)
    values = cgutils.unpack_tuple(builder, index) if isinstance(whole, types.BaseTuple) else [index]
    offset = None
    for axis, (one, value) in enumerate(zip(kinds, values, strict=True)):
        value = context.cast(builder, value, one, types.uintp if not one.signed else types.intp)
        if one.signed:  # counted from the end
            below = builder.icmp_signed("<", value, INDEX(0))
            value = builder.select(below, builder.add(value, lengths[axis]), value)
        offset = value if offset is None else builder.add(builder.mul(offset, lengths[axis]), value)
    rest = lengths[len(kinds) :]
    for length in rest:
        offset = builder.mul(offset, length)
    return builder.gep(begin_of(model, builder, array), [offset], inbounds=True), rest


def _is_plain(whole: Any) -> bool:
    """Whether an index is integers alone."""
    kinds = whole.types if isinstance(whole, types.BaseTuple) else (whole,)
    return all(isinstance(one, types.Integer) for one in kinds)


def _by_numba(context: Any, builder: Any, operation: Any, signature: Any, arguments: Any) -> Any:
    """What numba makes of an operation."""
    kind, *others = signature.args
    array = types.Array(kind.dtype, kind.ndim, "C", readonly=not kind.mutable)
    plain = signature.replace(args=(array, *others))
    return context.get_function(operation, plain)(builder, arguments)


@lower_builtin(operator.getitem, Field, types.Integer)
@lower_builtin(operator.getitem, Field, types.UniTuple)
def _get(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind, whole = signature.args
    if not _is_plain(whole):
        return _by_numba(context, builder, operator.getitem, signature, arguments)
    place, rest = _place(context, builder, kind, arguments[0], whole, arguments[1])
    if rest:
        return make(context, builder, signature.return_type, place, rest)
    return context.unpack_value(builder, kind.dtype, place)


@lower_builtin(operator.setitem, Field, types.Integer, types.Any)
@lower_builtin(operator.setitem, Field, types.UniTuple, types.Any)
def _set(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind, whole, given = signature.args
    count = len(whole) if isinstance(whole, types.BaseTuple) else 1
    if not _is_plain(whole) or count < kind.ndim:
        return _by_numba(context, builder, operator.setitem, signature, arguments)
    place, _ = _place(context, builder, kind, arguments[0], whole, arguments[1])
    value = context.cast(builder, arguments[2], given, kind.dtype)
    context.pack_value(builder, kind.dtype, value, place)
    return context.get_dummy_value()


def _field(context: Any, array: Any) -> Any:
    """An array from Python as if it were in a group, for kernels that count no references."""
    if array.layout != "C":
        raise TypeError("a kernel takes contiguous arrays")
    kind = Field(array.dtype, array.ndim, not array.mutable)
    return kind(array), lambda target, builder, signature, values: values[0]


field: Any = intrinsic(_field)  # called without the context
