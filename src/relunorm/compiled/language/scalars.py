"""Numbers: how they become others, and arithmetic as Python has it."""

from __future__ import annotations

import ast
import operator
import struct
from collections.abc import Callable
from typing import Any

from relunorm.compiled.language.assembly import Value, Writer, together
from relunorm.compiled.language.kinds import (
    BOOL,
    FLOATS,
    INT,
    MASKS,
    REAL,
    SINGLE,
    SIXTEEN,
    WORD,
    KernelError,
    Kind,
    Lanes,
    Number,
    Tuple,
    join,
    number_kind,
)

_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
#: Of numbers that are known when a kernel is compiled.
KNOWN: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_BITS = {
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "lshr",
}
#: For int64, uint64 and floats.
COMPARED = {
    ast.Eq: ("eq", "eq", "oeq"),
    ast.NotEq: ("ne", "ne", "une"),
    ast.Lt: ("slt", "ult", "olt"),
    ast.LtE: ("sle", "ule", "ole"),
    ast.Gt: ("sgt", "ugt", "ogt"),
    ast.GtE: ("sge", "uge", "oge"),
}


def spell(number: Any, kind: Kind) -> str:
    """A number as LLVM reads it, to the last bit."""
    if isinstance(kind, Lanes):
        one = f"{kind.entry.llvm} {spell(number, kind.entry)}"
        return f"<{', '.join([one] * kind.count)}>"
    if kind in FLOATS:
        if kind is SINGLE:
            number = struct.unpack("f", struct.pack("f", number))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    if kind is BOOL:
        return "true" if number else "false"
    return str(int(number))


class Scalars(Writer):
    """Writes arithmetic."""

    def constant(self, number: Any) -> Value:
        """A number that is known now, or a tuple of those."""
        if isinstance(number, tuple):
            return together(list(map(self.constant, number)))
        kind = number_kind(number)
        return Value(kind, (spell(number, kind),), number)

    def convert(self, value: Value, kind: Kind) -> Value:
        """The value as one of another kind."""
        have = value.kind
        if have == kind:
            return value
        if (
            isinstance(have, Tuple)
            and isinstance(kind, Tuple)
            and len(have.kinds) == len(kind.kinds)
        ):
            parts = [self.convert(one, to) for one, to in zip(value, kind.kinds, strict=True)]
            return together(parts, kind.cls)
        if not isinstance(have, Number) or not isinstance(kind, Number):
            raise KernelError(f"{have} is not {kind}")
        if value.number is not None and (kind in FLOATS or kind.rank == have.rank):
            return Value(kind, (spell(value.number, kind),), value.number)
        if isinstance(have, Lanes) or kind in MASKS.values():
            raise KernelError(f"{have} is not {kind}")
        if isinstance(kind, Lanes):
            one = f"{kind.entry.llvm} {self.convert(value, kind.entry).parts[0]}"
            first = self.make(f"insertelement {kind.llvm} poison, {one}, i64 0")
            spread = f"shufflevector {kind.llvm} {first}, {kind.llvm} poison, <{kind.count} x i32>"
            return self.value(kind, f"{spread} zeroinitializer")
        if have.rank == kind.rank:  # int64 and uint64
            return Value(kind, value.parts)
        if kind is BOOL:
            return self.value(BOOL, self._differs(value))
        if have in FLOATS and kind in FLOATS:
            change = "fpext" if kind is REAL else "fptrunc"
        elif have in FLOATS:
            change = "fptosi" if kind is INT else "fptoui"
        elif kind in FLOATS:
            change = "sitofp" if have is INT else "uitofp"
        else:
            change = "zext"
        return self.value(kind, f"{change} {have.llvm} {value.parts[0]} to {kind.llvm}")

    def _differs(self, value: Value) -> str:
        kind, part = value.kind, value.parts[0]
        if kind in FLOATS:
            return f"fcmp une {kind.llvm} {part}, 0.0"  # type: ignore[union-attr]
        return f"icmp ne i64 {part}, 0"

    def truth(self, value: Value) -> str:
        if not isinstance(value.kind, Number):
            raise KernelError("only numbers are true or false")
        return self.convert(value, BOOL).parts[0]

    def common(self, *values: Value) -> Number:
        """The kind of numbers that all of them become.

        Whole numbers written out become words, and any number written out one of float32.
        """
        kinds = [value.kind for value in values]
        if not all(isinstance(kind, Number) for kind in kinds):
            raise KernelError("an operation wants numbers")
        if WORD in kinds and INT in kinds:
            kinds = [v.kind for v in values if not (v.kind is INT and v.number is not None)]
        if SIXTEEN in kinds:
            kinds = [v.kind for v in values if v.number is None]
        both = kinds[0]
        for kind in kinds[1:]:
            both = join(both, kind)
        return both  # type: ignore[return-value]

    def binary(self, operation: type, one: Value, other: Value) -> Value:
        """Two numbers and an operation of Python."""
        kind = self.common(one, other)
        if operation in _BITS:
            if kind in FLOATS:
                raise KernelError("floats have no bits")
            if operation in (ast.LShift, ast.RShift) and kind is BOOL:
                kind = INT
            a, b = (self.convert(v, kind).parts[0] for v in (one, other))
            name = _BITS[operation]
            if operation is ast.RShift:
                name = "lshr" if kind is WORD else "ashr"
            return self.value(kind, f"{name} {kind.llvm} {a}, {b}")
        if kind is BOOL:
            kind = INT
        if operation is ast.Div and kind not in FLOATS:
            kind = REAL
        if operation is ast.Pow:
            return self.power(one, other, kind)
        a, b = (self.convert(v, kind).parts[0] for v in (one, other))
        if operation in _ARITHMETIC and (operation is not ast.Div or kind in FLOATS):
            name = _ARITHMETIC[operation]
            if kind in FLOATS:
                return self.value(kind, f"f{name}{self.fast} {kind.llvm} {a}, {b}")
            return self.value(kind, f"{name} i64 {a}, {b}")
        if operation in (ast.FloorDiv, ast.Mod) and kind not in FLOATS:
            return self.divided(kind, a, b, operation is ast.Mod)
        raise KernelError(f"kernels do not have {operation.__name__} of {kind}")

    def divided(self, kind: Number, a: str, b: str, rest: bool) -> Value:
        """Quotient or rest as Python has them: the rest has the sign of the divisor."""
        if kind is WORD:
            return self.value(WORD, f"{'urem' if rest else 'udiv'} i64 {a}, {b}")
        left = self.make(f"srem i64 {a}, {b}")
        sign = self.make(f"xor i64 {left}, {b}")
        other = self.make(f"icmp slt i64 {sign}, 0")
        some = self.make(f"icmp ne i64 {left}, 0")
        off = self.make(f"and i1 {other}, {some}")
        if rest:
            more = self.make(f"add i64 {left}, {b}")
            return self.value(INT, f"select i1 {off}, i64 {more}, i64 {left}")
        whole = self.make(f"sdiv i64 {a}, {b}")
        less = self.make(f"sub i64 {whole}, 1")
        return self.value(INT, f"select i1 {off}, i64 {less}, i64 {whole}")

    def power(self, one: Value, other: Value, kind: Number) -> Value:
        if isinstance(other.number, int) and 1 <= other.number <= 4:
            result = one
            for _ in range(other.number - 1):
                result = self.binary(ast.Mult, result, one)
            return result
        a, b = (self.convert(value, REAL).parts[0] for value in (one, other))
        return Value(REAL, (self.intrinsic("pow", "double", a, b),))

    def compare(self, operation: type, one: Value, other: Value) -> Value:
        """A truth value, or one of each number side by side."""
        kind = self.common(one, other)
        if kind is BOOL:
            kind = INT
        a, b = (self.convert(value, kind).parts[0] for value in (one, other))
        signed, unsigned, real = COMPARED[operation]
        found = MASKS[kind.count] if isinstance(kind, Lanes) else BOOL
        if kind in FLOATS:
            return self.value(found, f"fcmp {real} {kind.llvm} {a}, {b}")
        return self.value(found, f"icmp {unsigned if kind is WORD else signed} i64 {a}, {b}")
