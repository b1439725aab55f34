"""Arrays and groups: where entries and parts of them lie, and how they are read and written."""

from __future__ import annotations

import ast

from relunorm.compiled.assembly import Value
from relunorm.compiled.kinds import (
    BOOL,
    ENTRIES,
    INT,
    WORD,
    Array,
    Group,
    KernelError,
    Number,
    Tuple,
    flat,
)
from relunorm.compiled.scalars import Scalars


class Entries(Scalars):
    """Writes reading and writing."""

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def entries(self, value: Value, indices: list[ast.expr]) -> tuple[str, list[str], bool]:
        """Where a part of an array begins, the lengths of its axes, and whether it is one entry."""
        assert isinstance(value.kind, Array)
        begin, *lengths = value.parts
        offset, cut = None, None
        for axis, index in enumerate(indices):
            if isinstance(index, ast.Slice):
                if axis != len(indices) - 1 or index.step is not None:
                    raise KernelError("a part of an array has to be contiguous")
                at, cut = self.cut(index, lengths[axis])
            else:
                at = self.index(index, lengths[axis])
            if offset is None:
                offset = at
            else:
                row = self.make(f"mul nsw i64 {offset}, {lengths[axis]}")
                offset = self.make(f"add nsw i64 {row}, {at}")
        rest = lengths[len(indices) :]
        for length in rest:
            offset = self.make(f"mul nsw i64 {offset}, {length}")
        entry = ENTRIES[value.kind.dtype][0]
        place = self.make(f"getelementptr inbounds {entry}, ptr {begin}, i64 {offset}")
        return place, rest if cut is None else [cut, *rest], cut is None and not rest

    def index(self, node: ast.expr, length: str) -> str:
        value = self.expression(node)
        if value.kind not in (INT, WORD, BOOL):
            raise KernelError(f"an index is {value.kind}")
        if value.number is not None and value.number < 0:  # counted from the end
            return self.make(f"add nsw i64 {length}, {value.number}")
        at = self.convert(value, INT).parts[0]
        if self.program.checked:
            inside = self.make(f"icmp ult i64 {at}, {length}")
            before, fault, after = self.block, self.begin(), self.begin()
            self.branch(inside, after, fault, before)
            name = "@relunorm_outside"
            self.program.declared[name] = f"declare void {name}(i64)"
            fault.lines.append(f"call void {name}(i64 {len(self.program.places)})")
            self.program.places.append(f"{self.source.name}: {ast.unparse(node)}")
            self.jump(fault, after)
        return at

    def cut(self, part: ast.Slice, length: str) -> tuple[str, str]:
        """Beginning and length of a slice, as Python clips them; ends are not negative."""
        first, last = "0", length
        if part.upper is not None:
            end = self.convert(self.expression(part.upper), INT).parts[0]
            last = self.intrinsic("smin", "i64", end, length)
        if part.lower is not None:
            begin = self.convert(self.expression(part.lower), INT).parts[0]
            first = self.intrinsic("smin", "i64", begin, length)
        many = last if first == "0" else self.make(f"sub nsw i64 {last}, {first}")
        return first, self.intrinsic("smax", "i64", many, "0")

    def load(self, kind: Array, place: str) -> Value:
        entry, number, widen, _ = ENTRIES[kind.dtype]
        read = self.make(f"load {entry}, ptr {place}, !tbaa !5")
        if widen:
            read = self.make(f"{widen} {entry} {read} to {number.llvm}")
        return Value(number, (read,))

    def store(self, kind: Array, place: str, value: Value) -> None:
        entry, number, _, narrow = ENTRIES[kind.dtype]
        if not isinstance(value.kind, Number):
            raise KernelError(f"an entry of an array cannot be {value.kind}")
        part = self.convert(value, number).parts[0]
        if narrow:
            part = self.make(f"{narrow} {number.llvm} {part} to {entry}")
        self.do(f"store {entry} {part}, ptr {place}, !tbaa !5")

    def item(self, value: Value, number: int) -> Value:
        """One value in a tuple or a group."""
        kind = value.kind
        if isinstance(kind, Tuple):
            return list(value)[number]
        if not isinstance(kind, Group):
            raise KernelError(f"{kind} has no items")
        one, first = kind.kinds[number], kind.first(range(len(kind.kinds))[number])
        parts = []
        note = ", !invariant.load !0" if kind.fixed else ""
        for word, held in enumerate(flat(one)):
            place = f"getelementptr inbounds i64, ptr {value.parts[0]}, i64 {first + word}"
            parts.append(self.make(f"load {held}, ptr {self.make(place)}, !tbaa !3{note}"))
        return Value(one, tuple(parts))

    def reshaped(self, value: Value, shape: Value) -> Value:
        if not isinstance(value.kind, Array) or not isinstance(shape.kind, Tuple):
            raise KernelError("arrays are reshaped by a tuple")
        return Value(Array(value.kind.dtype, len(shape.parts)), (value.parts[0], *shape.parts))
