"""How compiled code takes a group of arrays (`relunorm.compiled.groups`) by its address.

What Python made never changes, and loads from it say so: loops may read fields where they need
them. What `placed` made changes when its words are used again: there a loop that matters takes its
fields before it begins.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from relunorm.compiled.fields import INDEX, Field, begin_of, make
from relunorm.compiled.groups import Grouped


class Group(types.NamedTuple):  # type: ignore[misc]
    """The type of a group in compiled code: the types of its fields, and its class.

    ``fixed`` where what lies behind the address never changes.
    """

    def __init__(self, kinds: tuple[Any, ...], cls: type, fixed: bool):
        super().__init__(kinds, cls)
        self.fixed = fixed
        if not fixed:
            self.name = f"placed {self.name}"

    @property
    def key(self) -> Any:
        return *super().key, self.fixed

    @property
    def mangling_args(self) -> tuple[str, tuple[()]]:
        return self.instance_class.__name__, ()  # functions are told apart by numbers


@typeof_impl.register(Grouped)
def _typeof(value: Any, context: Any) -> Any:
    return Group(tuple(_kind(value, name, context) for name in value._fields), type(value), True)


def _kind(values: Any, name: str, context: Any) -> Any:
    """The type of a field; what `groups` cannot keep in words is refused."""
    value = getattr(values, name)
    kind = typeof_impl(value, context)
    if isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned:
        return Field(kind.dtype, kind.ndim, not kind.mutable)
    if isinstance(kind, Group) or kind in (types.int64, types.float64):
        return kind
    raise TypeError(f"a kernel cannot take {type(values).__name__}.{name}, which is {kind}")


@register_model(Group)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, INDEX.as_pointer())


@unbox(Group)
def _unbox(kind: Any, value: Any, c: Any) -> Any:
    words = c.pyapi.object_getattr_string(value, "_words")  # which the group keeps
    numbers = types.Array(types.int64, 1, "C")
    native = c.unbox(numbers, words)
    c.pyapi.decref(words)
    address = begin_of(c.context.data_model_manager[numbers], c.builder, native.value)
    return NativeValue(address, is_error=native.is_error, cleanup=native.cleanup)


def _width(kind: Any) -> int:
    """Words of a field."""
    return 1 + kind.ndim if isinstance(kind, Field) else 1


def _place(builder: Any, address: Any, kind: Any) -> Any:
    """The place of a word that holds a value of an LLVM type."""
    return builder.bitcast(address, kind.as_pointer())


def _field(context: Any, builder: Any, kind: Any, words: Any, at: int) -> Any:
    """A field of the group at an address."""
    one, first = kind.types[at], sum(map(_width, kind.types[:at]))

    def load(word: int, llvm_type: Any) -> Any:
        address = cgutils.gep_inbounds(builder, words, first + word)
        found = builder.load(_place(builder, address, llvm_type))
        if kind.fixed:
            found.set_metadata("invariant.load", builder.module.add_metadata([]))
        return found

    if not isinstance(one, Field):
        return load(0, context.get_value_type(one))
    data = load(0, context.get_data_type(one.dtype).as_pointer())
    return make(context, builder, one, data, [load(1 + axis, INDEX) for axis in range(one.ndim)])


@lower_getattr_generic(Group)
def _attribute(context: Any, builder: Any, kind: Any, words: Any, name: str) -> Any:
    return _field(context, builder, kind, words, kind.fields.index(name))


@lower_builtin("static_getitem", Group, types.IntegerLiteral)
def _item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    words, at = arguments
    return _field(context, builder, signature.args[0], words, at % len(signature.args[0]))


def _placed(context: Any, cls: Any, words: Any, memory: Any, at: Any, shapes: Any) -> Any:
    """`views` for compiled code, from ``memory[at]`` on; ``words`` has room for a group.

    The group is what lies in ``words`` until they are used for another one.
    """
    kinds = tuple(Field(memory.dtype, len(shape), False) for shape in shapes)
    kind = Group(kinds, cls.instance_class, False)

    def write(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, room, numbers, offset, lengths = values
        manager = target.data_model_manager
        place = begin_of(manager[words], builder, room)
        base, word = begin_of(manager[memory], builder, numbers), 0
        for one, shape in enumerate(kinds):
            begin = builder.gep(base, [offset], inbounds=True)
            address = cgutils.gep_inbounds(builder, place, word)
            builder.store(begin, _place(builder, address, begin.type))
            items = None
            for axis in range(shape.ndim):
                length = builder.extract_value(lengths, [one, axis])
                builder.store(length, cgutils.gep_inbounds(builder, place, word + 1 + axis))
                items = length if items is None else builder.mul(items, length)
            offset = builder.add(offset, items)
            word += _width(shape)
        return place

    return kind(cls, words, memory, types.int64, shapes), write


placed: Any = intrinsic(_placed)  # called without the context
