"""What kernels may call beside their parts: functions of Python and NumPy on numbers and arrays.

Each is a function of the translation on its way and of the values given. `intrinsic` makes one that
modules of kernels can name.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from relunorm.compiled.language.assembly import NONE, Value
from relunorm.compiled.language.kinds import (
    BOOL,
    EIGHT,
    ENTRIES,
    FLOATS,
    INT,
    LANES,
    MASKS,
    REAL,
    SINGLE,
    WORD,
    Array,
    Group,
    KernelError,
    Lanes,
    Number,
    Tuple,
)

Operation = Callable[..., Value]


class Intrinsic:
    """A name for an operation that Python does not have."""

    def __init__(self, make: Operation):
        self.make = make

    def __call__(self, *given: Any) -> Any:
        raise KernelError("an operation of kernels, which Python cannot call")


def intrinsic(make: Operation) -> Any:
    """Let kernels name an operation."""
    return Intrinsic(make)


def operation(called: Any) -> Operation:
    """What a kernel does where it calls something."""
    if isinstance(called, Intrinsic):
        return called.make
    try:
        return _OPERATIONS[called]
    except (KeyError, TypeError):
        raise KernelError(f"kernels cannot call {called!r}") from None


def _real(body: Any, value: Value) -> tuple[str, Number]:
    kind = value.kind if value.kind in FLOATS else REAL
    return body.convert(value, kind).parts[0], kind


def _of_floats(name: str) -> Operation:
    def make(body: Any, value: Value) -> Value:
        part, kind = _real(body, value)
        return Value(kind, (body.intrinsic(name, kind.llvm, part),))

    return make


def _absolute(body: Any, value: Value) -> Value:
    if value.kind in FLOATS:
        return _of_floats("fabs")(body, value)
    part = body.convert(value, INT).parts[0]
    minus = body.make(f"sub i64 0, {part}")
    negative = body.make(f"icmp slt i64 {part}, 0")
    return Value(INT, (body.select(negative, minus, part, "i64"),))


def _extreme(compared: type) -> Operation:
    """max and min as Python has them: the first of equal ones, and of NaN the first."""

    def make(body: Any, *values: Value) -> Value:
        kind = body.common(*values)
        found = body.convert(values[0], kind)
        for value in values[1:]:
            other = body.convert(value, kind)
            better = body.compare(compared, other, found).parts[0]
            found = Value(kind, (body.select(better, other.parts[0], found.parts[0], kind.llvm),))
        return found

    return make


def _length(body: Any, value: Value) -> Value:
    if isinstance(value.kind, Array):
        return Value(INT, (value.parts[1],))
    if isinstance(value.kind, (Tuple, Group)):
        return body.constant(len(value.kind.kinds))
    raise KernelError(f"{value.kind} has no length")


def _cast(kind: Number) -> Operation:
    def make(body: Any, value: Value) -> Value:
        if not isinstance(value.kind, Number):
            raise KernelError(f"{value.kind} is no number")
        return body.convert(value, kind)

    return make


def _narrow(dtype: str) -> Operation:
    """An integer cut to fewer bits; kernels compute with it in int64."""
    entry, _, widen, _ = ENTRIES[dtype]

    def make(body: Any, value: Value) -> Value:
        part = body.make(f"trunc i64 {body.convert(value, INT).parts[0]} to {entry}")
        return body.value(INT, f"{widen} {entry} {part} to i64")

    return make


def _not_a_number(body: Any, value: Value) -> Value:
    part, kind = _real(body, value)
    return body.value(BOOL, f"fcmp uno {kind.llvm} {part}, {part}")


def _sign(body: Any, value: Value) -> Value:
    """-1, 0 or 1; NaN stays NaN."""
    part, kind = _real(body, value)
    one = body.convert(body.constant(1.0), kind).parts[0]
    unit = body.intrinsic("copysign", kind.llvm, one, part)
    moved = body.make(f"fcmp one {kind.llvm} {part}, 0.0")
    return Value(kind, (body.select(moved, unit, part, kind.llvm),))


def _of_lanes(name: str) -> Operation:
    """What NumPy does entry by entry."""

    def make(body: Any, *values: Value) -> Value:
        kind = body.common(*values)
        kind = kind if isinstance(kind, Lanes) else EIGHT
        parts = [body.convert(value, kind).parts[0] for value in values]
        return Value(kind, (body.intrinsic(name, kind.llvm, *parts),))

    return make


def _lanes_kind(value: Value, known: Iterable[Lanes], refusal: str) -> Lanes:
    if isinstance(value.kind, Lanes) and value.kind in known:
        return value.kind
    raise KernelError(refusal)


def _where(body: Any, mask: Value, one: Value, other: Value) -> Value:
    refusal = "np.where chooses between numbers side by side; of one there is if"
    chosen = _lanes_kind(mask, MASKS.values(), refusal)
    kind = next(kind for kind in LANES.values() if kind.count == chosen.count)
    a, b = (body.convert(value, kind).parts[0] for value in (one, other))
    text = f"select {chosen.llvm} {mask.parts[0]}, {kind.llvm} {a}, {kind.llvm} {b}"
    return body.value(kind, text)


def _any(body: Any, mask: Value) -> Value:
    kind = _lanes_kind(mask, MASKS.values(), "np.any asks truth values side by side")
    name = f"@llvm.vector.reduce.or.v{kind.count}i1"
    body.program.declared[name] = f"declare i1 {name}({kind.llvm})"
    return body.value(BOOL, f"call i1 {name}({kind.llvm} {mask.parts[0]})")


def eight(given: Any, at: int = 0, count: int = 8) -> Any:
    """Eight numbers as one value to kernels: those of an array from ``at`` on, or a number.

    Of an array that has fewer, ``count`` and then zeros.
    """
    if not np.ndim(given):
        return np.full(8, float(given))
    return lanes(given, at, count)


def width(array: Any) -> int:
    """How many numbers of an array kernels take as one value: what 64 bytes hold."""
    return 64 // array.itemsize


def lanes(array: Any, at: int = 0, count: int | None = None) -> Any:
    """So many numbers (`width`) of an array from ``at`` on, or ``count`` of them and zeros."""
    many = width(array) if count is None else count
    found = np.zeros(width(array), dtype=array.dtype)
    found[:many] = array[at : at + many]
    return found


def spread(number: float, array: Any) -> Any:
    """A number, rounded to those of an array, as many times as they lie side by side."""
    return np.full(width(array), number, dtype=array.dtype)


def keep(array: Any, at: int, count: int, value: Any) -> None:
    """Put the first ``count`` of numbers side by side into an array."""
    array[at : at + count] = value[:count]


def _eight(body: Any, given: Value, at: Value | None = None, count: Value | None = None) -> Value:
    if isinstance(given.kind, Number):
        return body.convert(given, EIGHT)
    if given.kind != Array("float64", 1):
        raise KernelError(f"eight numbers are those of a row of float64, not {given.kind}")
    return _lanes(body, given, at, count)


def _lanes(body: Any, array: Value, at: Value | None = None, count: Value | None = None) -> Value:
    kind, place = body.lanes_at(array, body.constant(0) if at is None else at, count)
    align = 64 // kind.count
    if count is None:
        return body.value(kind, f"load {kind.llvm}, ptr {place}, align {align}, !tbaa !5")
    name, mask = f"@llvm.masked.load.{_short(kind)}.p0", MASKS[kind.count].llvm
    body.program.declared[name] = f"declare {kind.llvm} {name}(ptr, i32, {mask}, {kind.llvm})"
    first = f"{mask} {_first(body, count, kind)}"
    given = f"ptr {place}, i32 {align}, {first}, {kind.llvm} zeroinitializer"
    return body.value(kind, f"call {kind.llvm} {name}({given})")


def _width(body: Any, array: Value) -> Value:
    return body.constant(_lanes_of(array).count)


def _spread(body: Any, number: Value, array: Value) -> Value:
    kind = _lanes_of(array)
    return body.convert(body.convert(number, kind.entry), kind)


def _lanes_of(array: Value) -> Lanes:
    if not isinstance(array.kind, Array) or array.kind.dtype not in LANES:
        raise KernelError(f"{array.kind} has no numbers side by side")
    return LANES[array.kind.dtype]


def _keep(body: Any, array: Value, at: Value, count: Value, value: Value) -> Value:
    kind, place = body.lanes_at(array, at, count)
    name, part = f"@llvm.masked.store.{_short(kind)}.p0", body.convert(value, kind).parts[0]
    mask = MASKS[kind.count].llvm
    body.program.declared[name] = f"declare void {name}({kind.llvm}, ptr, i32, {mask})"
    first = f"{mask} {_first(body, count, kind)}"
    body.do(f"call void {name}({kind.llvm} {part}, ptr {place}, i32 {64 // kind.count}, {first})")
    return NONE


def _short(kind: Lanes) -> str:
    """How LLVM names it in its own functions."""
    return f"v{kind.count}f{512 // kind.count}"


def _first(body: Any, count: Value, kind: Lanes) -> str:
    """A mask of the first ones."""
    many = f"<{kind.count} x i{512 // kind.count}>"
    part = body.convert(count, INT).parts[0]
    if kind.count > 8:
        part = body.make(f"trunc i64 {part} to i32")
    one = body.make(f"insertelement {many} poison, i{512 // kind.count} {part}, i64 0")
    every = f"<{kind.count} x i32> zeroinitializer"
    each = body.make(f"shufflevector {many} {one}, {many} poison, {every}")
    numbers = ", ".join(f"i{512 // kind.count} {lane}" for lane in range(kind.count))
    return body.make(f"icmp slt {many} <{numbers}>, {each}")


def _sum(body: Any, given: Value) -> Value:
    """Halves are added until one number is left: on every processor in the same order."""
    kind = _lanes_kind(given, LANES.values(), "np.sum adds numbers side by side")
    one, part, count = kind.entry, given.parts[0], kind.count
    while count > 1:
        whole, half = f"<{count} x {one.llvm}>", count // 2
        parts = []
        for first in (0, half):
            lanes_ = ", ".join(f"i32 {lane}" for lane in range(first, first + half))
            text = f"shufflevector {whole} {part}, {whole} poison, <{half} x i32> <{lanes_}>"
            parts.append(body.make(text))
        part = body.make(f"fadd <{half} x {one.llvm}> {parts[0]}, {parts[1]}")
        count = half
    return body.value(one, f"extractelement <1 x {one.llvm}> {part}, i64 0")


def _largest(body: Any, given: Value) -> Value:
    """NaN if one of them is."""
    kind = _lanes_kind(given, LANES.values(), "np.max compares numbers side by side")
    name, one = f"@llvm.vector.reduce.fmaximum.{_short(kind)}", kind.entry.llvm
    body.program.declared[name] = f"declare {one} {name}({kind.llvm})"
    return body.value(kind.entry, f"call{body.fast} {one} {name}({kind.llvm} {given.parts[0]})")


def _next_float(body: Any, value: Value, towards: Value) -> Value:
    """The next float64 up or down: towards infinity, written out."""
    part, _ = _real(body, value)
    if towards.number not in (math.inf, -math.inf):
        raise KernelError("the next float is asked for towards infinity")
    up = towards.number == math.inf
    # away from 0 the bits count up; beyond infinity and for NaN there is nothing
    bits = body.make(f"bitcast double {part} to i64")
    positive = body.make(f"icmp sge i64 {bits}, 0")
    grow, shrink = (body.make(f"add i64 {bits}, {step}") for step in (1, -1))
    moved = body.select(positive, *((grow, shrink) if up else (shrink, grow)), "i64")
    smallest = str(1 if up else -(2**63) + 1)
    zero = body.make(f"fcmp oeq double {part}, 0.0")
    moved = body.select(zero, smallest, moved, "i64")
    found = body.make(f"bitcast i64 {moved} to double")
    end = body.constant(math.inf if up else -math.inf).parts[0]
    stays = body.make(f"fcmp ueq double {part}, {end}")
    return Value(REAL, (body.select(stays, part, found, "double"),))


def _room(body: Any, size: Value) -> Value:
    """A few numbers of its own, as many as are written out; not set to anything."""
    if not isinstance(size.number, int) or not 0 < size.number <= 4096:
        raise KernelError("a kernel makes arrays of a few entries, their number written out")
    return Value(Array("float64", 1), (body.slot("double", size.number), str(size.number)))


def _placed(body: Any, cls: type, words: Value, memory: Value, at: Value, shapes: Value) -> Value:
    """`groups.views` for compiled code: arrays one after another from ``memory[at]`` on.

    ``words`` has room for a group, which is what lies there until they are used for another one.
    """
    kinds, word = [], 0
    begin, offset = memory.parts[0], body.convert(at, INT).parts[0]
    dtype = memory.kind.dtype  # type: ignore[union-attr]

    def keep(held: str, value: str) -> None:
        nonlocal word
        place = body.make(f"getelementptr inbounds i64, ptr {words.parts[0]}, i64 {word}")
        body.do(f"store {held} {value}, ptr {place}, !tbaa !3")
        word += 1

    for shape in shapes:
        entry = ENTRIES[dtype][0]
        keep("ptr", body.make(f"getelementptr inbounds {entry}, ptr {begin}, i64 {offset}"))
        items = None
        for length in shape:
            (part,) = body.convert(length, INT).parts
            keep("i64", part)
            items = part if items is None else body.make(f"mul nsw i64 {items}, {part}")
        offset = body.make(f"add nsw i64 {offset}, {items}")
        kinds.append(Array(dtype, len(shape.parts)))
    return Value(Group(cls, tuple(kinds), False), (words.parts[0],))


placed = intrinsic(_placed)


def _leading_zeros(body: Any, word: Value) -> Value:
    """The number of leading zeros of a word that is not zero: one instruction."""
    body.program.declared["ctlz"] = "declare i64 @llvm.ctlz.i64(i64, i1)"
    return body.value(INT, f"call i64 @llvm.ctlz.i64(i64 {word.parts[0]}, i1 true)")


leading_zeros = intrinsic(_leading_zeros)

_OPERATIONS: dict[Any, Operation] = {
    abs: _absolute,
    max: _extreme(ast.Gt),
    min: _extreme(ast.Lt),
    len: _length,
    int: _cast(INT),
    float: _cast(REAL),
    bool: _cast(BOOL),
    np.int64: _cast(INT),
    np.uint64: _cast(WORD),
    np.float64: _cast(REAL),
    np.float32: _cast(SINGLE),
    np.bool_: _cast(BOOL),
    np.uint8: _narrow("uint8"),
    np.int8: _narrow("int8"),
    np.sqrt: _of_floats("sqrt"),
    math.sqrt: _of_floats("sqrt"),
    np.exp: _of_floats("exp"),
    np.log: _of_floats("log"),
    np.log2: _of_floats("log2"),
    np.floor: _of_floats("floor"),
    np.ceil: _of_floats("ceil"),
    np.isnan: _not_a_number,
    np.sign: _sign,
    np.nextafter: _next_float,
    np.empty: _room,
    np.maximum: _of_lanes("maximum"),
    np.minimum: _of_lanes("minimum"),
    np.where: _where,
    np.any: _any,
    np.sum: _sum,
    np.max: _largest,
    eight: _eight,
    lanes: _lanes,
    width: _width,
    spread: _spread,
    keep: _keep,
}
