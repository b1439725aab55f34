"""What kernels may call beside their parts: functions of Python and NumPy on numbers and arrays.

Each is a function of the translation on its way and of the values given. `intrinsic` makes one that
modules of kernels can name.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relunorm.compiled.language.assembly import NONE, Value
from relunorm.compiled.language.kinds import (
    BOOL,
    EIGHT,
    ENTRIES,
    FLOATS,
    INT,
    MASK,
    REAL,
    SINGLE,
    WORD,
    Array,
    Group,
    KernelError,
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


def _of_eights(name: str) -> Operation:
    """What NumPy does entry by entry."""

    def make(body: Any, *values: Value) -> Value:
        parts = [body.convert(value, EIGHT).parts[0] for value in values]
        return Value(EIGHT, (body.intrinsic(name, EIGHT.llvm, *parts),))

    return make


def _where(body: Any, mask: Value, one: Value, other: Value) -> Value:
    if mask.kind is not MASK:
        raise KernelError("np.where chooses between eight numbers; of one there is if")
    a, b = (body.convert(value, EIGHT).parts[0] for value in (one, other))
    text = f"select {MASK.llvm} {mask.parts[0]}, {EIGHT.llvm} {a}, {EIGHT.llvm} {b}"
    return body.value(EIGHT, text)


def _any(body: Any, mask: Value) -> Value:
    if mask.kind is not MASK:
        raise KernelError("np.any asks eight truth values")
    body.program.declared["any"] = "declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)"
    text = f"call i1 @llvm.vector.reduce.or.v8i1({MASK.llvm} {mask.parts[0]})"
    return body.value(BOOL, text)


def eight(given: Any, at: int = 0, count: int = 8) -> Any:
    """Eight numbers as one value to kernels: those of an array from ``at`` on, or a number.

    Of an array that has fewer, ``count`` and then zeros.
    """
    if not np.ndim(given):
        return np.full(8, float(given))
    found = np.zeros(8)
    found[:count] = given[at : at + count]
    return found


def keep(array: Any, at: int, count: int, value: Any) -> None:
    """Put the first ``count`` of eight numbers into an array."""
    array[at : at + count] = value[:count]


def _eight(body: Any, given: Value, at: Value | None = None, count: Value | None = None) -> Value:
    if isinstance(given.kind, Number):
        return body.convert(given, EIGHT)
    place = body.eight_at(given, body.constant(0) if at is None else at, count)
    if count is None:
        return body.value(EIGHT, f"load {EIGHT.llvm}, ptr {place}, align 8, !tbaa !5")
    name = "@llvm.masked.load.v8f64.p0"
    body.program.declared[name] = (
        f"declare {EIGHT.llvm} {name}(ptr, i32, {MASK.llvm}, {EIGHT.llvm})"
    )
    given_ = f"ptr {place}, i32 8, {MASK.llvm} {_first(body, count)}, {EIGHT.llvm} zeroinitializer"
    return body.value(EIGHT, f"call {EIGHT.llvm} {name}({given_})")


def _keep(body: Any, array: Value, at: Value, count: Value, value: Value) -> Value:
    place = body.eight_at(array, at, count)
    name, part = "@llvm.masked.store.v8f64.p0", body.convert(value, EIGHT).parts[0]
    body.program.declared[name] = f"declare void {name}({EIGHT.llvm}, ptr, i32, {MASK.llvm})"
    given = f"{EIGHT.llvm} {part}, ptr {place}, i32 8, {MASK.llvm} {_first(body, count)}"
    body.do(f"call void {name}({given})")
    return NONE


def _first(body: Any, count: Value) -> str:
    """A mask of the first ones."""
    kind, part = "<8 x i64>", body.convert(count, INT).parts[0]
    one = body.make(f"insertelement {kind} poison, i64 {part}, i64 0")
    each = body.make(f"shufflevector {kind} {one}, {kind} poison, <8 x i32> zeroinitializer")
    lanes = ", ".join(f"i64 {lane}" for lane in range(8))
    return body.make(f"icmp slt {kind} <{lanes}>, {each}")


def _sum(body: Any, given: Value) -> Value:
    """In pairs of pairs, as LLVM does where sums may be reordered."""
    if given.kind is not EIGHT:
        raise KernelError("np.sum adds eight numbers")
    name = "@llvm.vector.reduce.fadd.v8f64"
    body.program.declared["sum"] = f"declare double {name}(double, {EIGHT.llvm})"
    zero = body.convert(body.constant(-0.0), REAL).parts[0]
    text = f"call{body.fast} double {name}(double {zero}, {EIGHT.llvm} {given.parts[0]})"
    return body.value(REAL, text)


def _largest(body: Any, given: Value) -> Value:
    """NaN if one of them is."""
    if given.kind is not EIGHT:
        raise KernelError("np.max compares eight numbers")
    name = "@llvm.vector.reduce.fmaximum.v8f64"
    body.program.declared["max"] = f"declare double {name}({EIGHT.llvm})"
    return body.value(REAL, f"call double {name}({EIGHT.llvm} {given.parts[0]})")


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
    np.maximum: _of_eights("maximum"),
    np.minimum: _of_eights("minimum"),
    np.where: _where,
    np.any: _any,
    np.sum: _sum,
    np.max: _largest,
    eight: _eight,
    keep: _keep,
}
